"""aiokafka: AIOKafkaProducer, AIOKafkaConsumer and AIOKafkaAdminClient."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiokafka
import aiokafka.admin
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.structs import OffsetAndMetadata

from tests.interop.allowed import ABSENT_TOPIC_CONFIGS
from tests.interop.whole_api.scenario import PATIENCE_SECONDS, Library, Scene, plain

LIBRARY = Library(
    "aiokafka",
    [aiokafka, aiokafka.admin],
    {
        "AIOKafkaProducer": AIOKafkaProducer,
        "AIOKafkaConsumer": AIOKafkaConsumer,
        "AIOKafkaAdminClient": AIOKafkaAdminClient,
    },
)
LIBRARY.other_classes = {"AIOKafkaClient": "the connections of the other three; not documented"}
THEN_MS = 1_000_000
Run = Callable[[Scene], Awaitable[Any]]


def scenario(method: str) -> Callable[[Run], Run]:
    """A scenario that is a coroutine; each gets an event loop of its own."""

    def register(run: Run) -> Run:
        async def whole(scene: Scene) -> Any:
            return await asyncio.wait_for(run(scene), 2 * PATIENCE_SECONDS)

        LIBRARY.scenario(method)(lambda scene: asyncio.run(whole(scene)))
        return run

    return register


async def outcome(awaitable: Awaitable[Any]) -> Any:
    try:
        return answer(await awaitable)
    except Exception as error:
        return plain(error)


def answer(value: Any) -> Any:
    """The plain form of what may hold messages of the protocol."""
    if isinstance(value, list):
        return [answer(each) for each in value]
    return plain(value.to_object() if hasattr(value, "to_object") else value)


@asynccontextmanager
async def producer_of(scene: Scene, **options: Any) -> AsyncIterator[AIOKafkaProducer]:
    async with AIOKafkaProducer(bootstrap_servers=scene.bootstrap, **options) as producer:
        yield producer


@asynccontextmanager
async def consumer_of(
    scene: Scene, *topics: str, stem: str | None = "group", **options: Any
) -> AsyncIterator[AIOKafkaConsumer]:
    settings = {
        "bootstrap_servers": scene.bootstrap,
        "group_id": None if stem is None else scene.name(stem),
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "client_id": "whole-api",
        "fetch_max_wait_ms": 50,
        **options,
    }
    async with AIOKafkaConsumer(*topics, **settings) as consumer:
        yield consumer


@asynccontextmanager
async def admin_of(scene: Scene) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=scene.bootstrap)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def read(consumer: AIOKafkaConsumer, count: int) -> list[Any]:
    found: list[Any] = []
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(found) < count:
            for records in (await consumer.getmany(timeout_ms=200, max_records=count - len(found))).values():
                found.extend(record_of(record) for record in records)
    return sorted(found, key=lambda record: (record["topic"], record["partition"], record["offset"]))


def record_of(record: Any) -> dict[str, Any]:
    names = ("topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers")
    return {name: plain(getattr(record, name)) for name in names}


async def until(condition: Callable[[], Any]) -> Any:
    """The first true result; a broker cannot be asked to say when."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (found := condition()):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    return found


def first(scene: Scene, number: int = 0) -> TopicPartition:
    return TopicPartition(scene.name("t"), number)


def state_of_group(scene: Scene) -> Any:
    described = scene.call("DescribeGroups", 5, {"Groups": [scene.name("group")]})["Groups"][0]
    return [described["GroupState"], len(described["Members"])]


# ---------------------------------------------------------------- AIOKafkaProducer


@scenario("AIOKafkaProducer.start")
async def _(scene: Scene) -> Any:
    producer = AIOKafkaProducer(bootstrap_servers=scene.bootstrap)
    started = await outcome(producer.start())
    await producer.stop()
    return started


@scenario("AIOKafkaProducer.stop")
async def _(scene: Scene) -> Any:
    topic = scene.topic()
    producer = AIOKafkaProducer(bootstrap_servers=scene.bootstrap, linger_ms=200)
    await producer.start()
    future = await producer.send(topic, b"value", partition=0, timestamp_ms=THEN_MS)
    await producer.stop()
    return await outcome(future)


@scenario("AIOKafkaProducer.send")
async def _(scene: Scene) -> Any:
    topic = scene.topic()
    kinds: list[dict[str, Any]] = [{}, {"acks": 1}, {"enable_idempotence": True}, {"compression_type": "zstd"}]
    outcomes = []
    for options in kinds:
        async with producer_of(scene, **options) as producer:
            outcomes.append(await outcome(await producer.send(topic, b"value", partition=0, timestamp_ms=THEN_MS)))
    async with producer_of(scene, acks=0) as producer:
        outcomes.append(await outcome(await producer.send(topic, b"value", partition=0, timestamp_ms=THEN_MS)))
    return outcomes


@scenario("AIOKafkaProducer.send_and_wait")
async def _(scene: Scene) -> Any:
    topic = scene.topic()
    async with producer_of(scene, max_request_size=3_000_000) as producer:
        record = {"key": b"key", "headers": [("name", b"text")], "partition": 0, "timestamp_ms": THEN_MS}
        sent = await outcome(producer.send_and_wait(topic, b"value", **record))
        large = await outcome(producer.send_and_wait(topic, bytes(2_000_000), partition=0))
        return [sent, large]


@scenario("AIOKafkaProducer.create_batch")
async def _(scene: Scene) -> Any:
    async with producer_of(scene) as producer:
        batch = producer.create_batch()
        metadata = batch.append(key=b"key", value=b"value", timestamp=THEN_MS)
        return [metadata is not None, batch.record_count()]


@scenario("AIOKafkaProducer.send_batch")
async def _(scene: Scene) -> Any:
    topic = scene.topic()
    async with producer_of(scene) as producer:
        batch = producer.create_batch()
        for number in range(3):
            batch.append(key=None, value=b"value %d" % number, timestamp=THEN_MS)
        batch.close()
        return await outcome(await producer.send_batch(batch, topic, partition=0))


@scenario("AIOKafkaProducer.flush")
async def _(scene: Scene) -> Any:
    topic = scene.topic()
    async with producer_of(scene, linger_ms=200) as producer:
        future = await producer.send(topic, b"value", partition=0, timestamp_ms=THEN_MS)
        await producer.flush()
        return [future.done(), await outcome(future)]


@scenario("AIOKafkaProducer.partitions_for")
async def _(scene: Scene) -> Any:
    topic = scene.topic(partitions=3)
    async with producer_of(scene) as producer:
        return await outcome(producer.partitions_for(topic))


def transactional(scene: Scene, stem: str = "txn") -> Any:
    return producer_of(scene, transactional_id=scene.name(stem))


async def committed_values(scene: Scene, count: int) -> list[Any]:
    async with consumer_of(scene, stem=None, isolation_level="read_committed") as consumer:
        consumer.assign([first(scene)])
        return await read(consumer, count)


@scenario("AIOKafkaProducer.begin_transaction")
async def _(scene: Scene) -> Any:
    topic = scene.topic()
    async with transactional(scene) as older:
        await older.begin_transaction()
        await older.send_and_wait(topic, b"lost", partition=0)
        async with transactional(scene):
            # A newer producer of the same id ends the older one's transaction.
            return [await outcome(older.commit_transaction()), await outcome(older.begin_transaction())]


@scenario("AIOKafkaProducer.commit_transaction")
async def _(scene: Scene) -> Any:
    topic = scene.topic()
    async with transactional(scene) as producer:
        ends = []
        for number in range(2):
            await producer.begin_transaction()
            await producer.send(topic, b"transaction %d" % number, partition=0, timestamp_ms=THEN_MS)
            ends.append(await outcome(producer.commit_transaction()))
        return [ends, await committed_values(scene, 2)]


@scenario("AIOKafkaProducer.abort_transaction")
async def _(scene: Scene) -> Any:
    topic = scene.topic()
    async with transactional(scene) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"never", partition=0, timestamp_ms=THEN_MS)
        aborted = await outcome(producer.abort_transaction())
        await producer.begin_transaction()
        await producer.send(topic, b"ever", partition=0, timestamp_ms=THEN_MS)
        return [aborted, await outcome(producer.commit_transaction()), await committed_values(scene, 1)]


@scenario("AIOKafkaProducer.transaction")
async def _(scene: Scene) -> Any:
    topic = scene.topic()
    async with transactional(scene) as producer:
        try:
            async with producer.transaction():
                await producer.send_and_wait(topic, b"never", partition=0, timestamp_ms=THEN_MS)
                raise ValueError("on purpose")
        except ValueError:
            pass
        async with producer.transaction():
            await producer.send_and_wait(topic, b"ever", partition=0, timestamp_ms=THEN_MS)
        return await committed_values(scene, 1)


@scenario("AIOKafkaProducer.send_offsets_to_transaction")
async def _(scene: Scene) -> Any:
    scene.filled()
    async with transactional(scene) as producer, consumer_of(scene) as consumer:
        consumer.assign([first(scene)])
        await producer.begin_transaction()
        sending = await outcome(producer.send_offsets_to_transaction({first(scene): 2}, scene.name("group")))
        ending = await outcome(producer.commit_transaction())
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (committed := await consumer.committed(first(scene))) is None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        return [sending, ending, committed]


# ---------------------------------------------------------------- AIOKafkaConsumer


@scenario("AIOKafkaConsumer.start")
async def _(scene: Scene) -> Any:
    topic = scene.filled()
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=scene.bootstrap, group_id=scene.name("group"))
    started = await outcome(consumer.start())
    state = await until(lambda: state_of_group(scene) if consumer.assignment() else None)
    await consumer.stop()
    return [started, state]


@scenario("AIOKafkaConsumer.stop")
async def _(scene: Scene) -> Any:
    topic = scene.filled()
    async with consumer_of(scene, topic, enable_auto_commit=True) as consumer:
        await read(consumer, 3)
    async with consumer_of(scene) as consumer:
        consumer.assign([first(scene)])
        return [state_of_group(scene), await consumer.committed(first(scene))]


@scenario("AIOKafkaConsumer.assign")
async def _(scene: Scene) -> Any:
    scene.filled(partitions=2)
    async with consumer_of(scene, stem=None) as consumer:
        consumer.assign([first(scene), first(scene, 1)])
        return await read(consumer, 6)


@scenario("AIOKafkaConsumer.assignment")
async def _(scene: Scene) -> Any:
    topic = scene.filled(partitions=2)
    async with consumer_of(scene, topic) as consumer:
        await read(consumer, 6)
        return consumer.assignment()


@scenario("AIOKafkaConsumer.subscribe")
async def _(scene: Scene) -> Any:
    for stem in ("one", "two", "other"):
        scene.filled(stem)
    async with consumer_of(scene) as consumer:
        consumer.subscribe(pattern=f"^{re.escape(scene.name(''))}(one|two)$")
        return [await read(consumer, 6), consumer.subscription(), consumer.assignment()]


@scenario("AIOKafkaConsumer.subscription")
async def _(scene: Scene) -> Any:
    topic = scene.topic()
    async with consumer_of(scene, topic) as consumer:
        return consumer.subscription()


@scenario("AIOKafkaConsumer.unsubscribe")
async def _(scene: Scene) -> Any:
    topic = scene.filled()
    async with consumer_of(scene, topic) as consumer:
        await read(consumer, 3)
        consumer.unsubscribe()
        state = await until(lambda: found if (found := state_of_group(scene))[1] == 0 else None)
        return [state, consumer.assignment()]


@scenario("AIOKafkaConsumer.getone")
async def _(scene: Scene) -> Any:
    scene.filled()
    async with (
        consumer_of(scene, stem=None) as consumer,
        consumer_of(scene, stem=None, auto_offset_reset="none") as strict,
    ):
        consumer.assign([first(scene)])
        strict.assign([first(scene)])
        strict.seek(first(scene), 99)
        return [record_of(await consumer.getone()), await outcome(strict.getone())]


@scenario("AIOKafkaConsumer.getmany")
async def _(scene: Scene) -> Any:
    scene.filled(partitions=2)
    async with consumer_of(scene, stem=None) as consumer:
        consumer.assign([first(scene), first(scene, 1)])
        only = await until_some(consumer, first(scene, 1))
        return [[record_of(record) for record in only], await read(consumer, 3)]


async def until_some(consumer: AIOKafkaConsumer, partition: TopicPartition) -> list[Any]:
    found: list[Any] = []
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(found) < 3:
            found += (await consumer.getmany(partition, timeout_ms=100)).get(partition, [])
    return found


@scenario("AIOKafkaConsumer.commit")
async def _(scene: Scene) -> Any:
    topic = scene.filled()
    async with consumer_of(scene, topic) as consumer:
        await read(consumer, 3)
        outcomes = [await outcome(consumer.commit()), await consumer.committed(first(scene))]
        outcomes.append(await outcome(consumer.commit({first(scene): (1, "note")})))
        outcomes.append(await consumer.committed(first(scene)))
        outcomes.append(await outcome(consumer.commit({first(scene): OffsetAndMetadata(1, "x" * 5000)})))
        return outcomes


@scenario("AIOKafkaConsumer.committed")
async def _(scene: Scene) -> Any:
    scene.filled(partitions=2)
    async with consumer_of(scene) as consumer:
        consumer.assign([first(scene), first(scene, 1)])
        await consumer.commit({first(scene): 2})
        return [await consumer.committed(first(scene)), await consumer.committed(first(scene, 1))]


@scenario("AIOKafkaConsumer.seek")
async def _(scene: Scene) -> Any:
    scene.filled()
    async with consumer_of(scene, stem=None) as consumer:
        consumer.assign([first(scene)])
        consumer.seek(first(scene), 2)
        once = await read(consumer, 1)
        consumer.seek(first(scene), 99)
        return [once, await read(consumer, 3)]


@scenario("AIOKafkaConsumer.seek_to_beginning")
async def _(scene: Scene) -> Any:
    scene.filled()
    async with consumer_of(scene, stem=None) as consumer:
        consumer.assign([first(scene)])
        await read(consumer, 3)
        return [await outcome(consumer.seek_to_beginning(first(scene))), await read(consumer, 3)]


@scenario("AIOKafkaConsumer.seek_to_end")
async def _(scene: Scene) -> Any:
    scene.filled()
    async with consumer_of(scene, stem=None) as consumer:
        consumer.assign([first(scene)])
        return [await outcome(consumer.seek_to_end(first(scene))), await consumer.position(first(scene))]


@scenario("AIOKafkaConsumer.seek_to_committed")
async def _(scene: Scene) -> Any:
    scene.filled()
    async with consumer_of(scene) as consumer:
        consumer.assign([first(scene)])
        await consumer.commit({first(scene): 2})
        return [await outcome(consumer.seek_to_committed(first(scene))), await read(consumer, 1)]


@scenario("AIOKafkaConsumer.position")
async def _(scene: Scene) -> Any:
    scene.filled()
    async with consumer_of(scene, stem=None) as consumer:
        consumer.assign([first(scene)])
        before = await consumer.position(first(scene))
        await read(consumer, 2)
        return [before, await consumer.position(first(scene))]


@scenario("AIOKafkaConsumer.pause")
async def _(scene: Scene) -> Any:
    scene.filled(partitions=2)
    async with consumer_of(scene, stem=None) as consumer:
        consumer.assign([first(scene), first(scene, 1)])
        consumer.pause(first(scene, 1))
        return [await read(consumer, 3), consumer.paused()]


@scenario("AIOKafkaConsumer.resume")
async def _(scene: Scene) -> Any:
    scene.filled()
    async with consumer_of(scene, stem=None) as consumer:
        consumer.assign([first(scene)])
        consumer.pause(first(scene))
        before = plain(await consumer.getmany(timeout_ms=50))
        consumer.resume(first(scene))
        return [before, await read(consumer, 3)]


@scenario("AIOKafkaConsumer.beginning_offsets")
async def _(scene: Scene) -> Any:
    scene.filled()
    async with consumer_of(scene, stem=None) as consumer:
        return await consumer.beginning_offsets([first(scene)])


@scenario("AIOKafkaConsumer.end_offsets")
async def _(scene: Scene) -> Any:
    scene.filled()
    async with consumer_of(scene, stem=None) as consumer:
        return await consumer.end_offsets([first(scene)])


@scenario("AIOKafkaConsumer.offsets_for_times")
async def _(scene: Scene) -> Any:
    scene.filled()
    async with consumer_of(scene, stem=None) as consumer:
        return [await consumer.offsets_for_times({first(scene): at}) for at in (0, 1000, 1001, 3000, 3001)]


@scenario("AIOKafkaConsumer.highwater")
async def _(scene: Scene) -> Any:
    scene.filled()
    async with consumer_of(scene, stem=None) as consumer:
        consumer.assign([first(scene)])
        await read(consumer, 3)
        return consumer.highwater(first(scene))


@scenario("AIOKafkaConsumer.last_stable_offset")
async def _(scene: Scene) -> Any:
    scene.filled()
    async with (
        transactional(scene) as producer,
        consumer_of(scene, stem=None, isolation_level="read_committed") as consumer,
    ):
        await producer.begin_transaction()
        await producer.send_and_wait(scene.name("t"), b"open", partition=0)
        consumer.assign([first(scene)])
        await read(consumer, 3)
        found = [consumer.last_stable_offset(first(scene)), consumer.highwater(first(scene))]
        await producer.abort_transaction()
        return found


@scenario("AIOKafkaConsumer.last_poll_timestamp")
async def _(scene: Scene) -> Any:
    scene.filled()
    async with consumer_of(scene, stem=None) as consumer:
        consumer.assign([first(scene)])
        await read(consumer, 3)
        return consumer.last_poll_timestamp(first(scene)) > 0


@scenario("AIOKafkaConsumer.partitions_for_topic")
async def _(scene: Scene) -> Any:
    topic = scene.topic(partitions=3)
    async with consumer_of(scene, topic, stem=None) as consumer:
        return [consumer.partitions_for_topic(topic), consumer.partitions_for_topic(scene.name("missing"))]


@scenario("AIOKafkaConsumer.topics")
async def _(scene: Scene) -> Any:
    scene.topic("one")
    scene.topic("two")
    async with consumer_of(scene, stem=None) as consumer:
        return sorted(name for name in await consumer.topics() if name.startswith(scene.name("")))


# ---------------------------------------------------------------- AIOKafkaAdminClient


@scenario("AIOKafkaAdminClient.start")
async def _(scene: Scene) -> Any:
    admin = AIOKafkaAdminClient(bootstrap_servers=scene.bootstrap)
    started = await outcome(admin.start())
    return [started, await outcome(admin.close())]


@scenario("AIOKafkaAdminClient.close")
async def _(scene: Scene) -> Any:
    admin = AIOKafkaAdminClient(bootstrap_servers=scene.bootstrap)
    await admin.start()
    return [await outcome(admin.close()), await outcome(admin.close())]


@scenario("AIOKafkaAdminClient.create_topics")
async def _(scene: Scene) -> Any:
    name = scene.name
    wanted = [
        NewTopic(name("plain"), 2, 1),
        NewTopic(name("assigned"), -1, -1, replica_assignments={0: [1], 1: [1]}),
        NewTopic(name("compacted"), 1, 1, topic_configs={"cleanup.policy": "compact"}),
        NewTopic(name("wide"), 1, 3),
        NewTopic(name("strange"), 1, 1, topic_configs={"no.such.setting": "1"}),
    ]
    async with admin_of(scene) as admin:
        return [
            await outcome(admin.create_topics(wanted)),
            await outcome(admin.create_topics([NewTopic(name("plain"), 2, 1)])),
            await outcome(admin.create_topics([NewTopic(name("checked"), 2, 1)], validate_only=True)),
        ]


@scenario("AIOKafkaAdminClient.delete_topics")
async def _(scene: Scene) -> Any:
    topic = scene.topic()
    async with admin_of(scene) as admin:
        return await outcome(admin.delete_topics([topic, scene.name("missing")]))


@scenario("AIOKafkaAdminClient.create_partitions")
async def _(scene: Scene) -> Any:
    topic = scene.topic()
    async with admin_of(scene) as admin:
        return [
            await outcome(admin.create_partitions({topic: NewPartitions(2)}, validate_only=True)),
            await outcome(admin.create_partitions({topic: NewPartitions(2)})),
            await outcome(admin.create_partitions({topic: NewPartitions(3, [[1]])})),
            await outcome(admin.create_partitions({topic: NewPartitions(1)})),
        ]


@scenario("AIOKafkaAdminClient.list_topics")
async def _(scene: Scene) -> Any:
    scene.topic("one")
    scene.topic("two")
    async with admin_of(scene) as admin:
        return sorted(name for name in await admin.list_topics() if name.startswith(scene.name("")))


@scenario("AIOKafkaAdminClient.describe_topics")
async def _(scene: Scene) -> Any:
    topic = scene.topic(partitions=2)
    async with admin_of(scene) as admin:
        everything = [each for each in await admin.describe_topics() if each["topic"] == topic]
        return [await outcome(admin.describe_topics([topic])), everything]


@scenario("AIOKafkaAdminClient.describe_cluster")
async def _(scene: Scene) -> Any:
    async with admin_of(scene) as admin:
        return await outcome(admin.describe_cluster())


def topic_settings(name: str, configs: dict[str, str] | None = None) -> list[ConfigResource]:
    return [ConfigResource(ConfigResourceType.TOPIC, name, configs)]


@scenario("AIOKafkaAdminClient.describe_configs")
async def _(scene: Scene) -> Any:
    topic = scene.topic(segment_bytes="2000000")
    async with admin_of(scene) as admin:
        return [
            await outcome(admin.describe_configs(topic_settings(topic, {"segment.bytes": ""}), include_synonyms=True)),
            sorted(await setting_names(admin, topic) - ABSENT_TOPIC_CONFIGS),
            await outcome(admin.describe_configs(topic_settings(scene.name("missing")))),
        ]


async def setting_names(admin: AIOKafkaAdminClient, topic: str) -> set[str]:
    found = await admin.describe_configs(topic_settings(topic))
    return {entry["config_names"] for entry in found[0].to_object()["resources"][0]["config_entries"]}


@scenario("AIOKafkaAdminClient.alter_configs")
async def _(scene: Scene) -> Any:
    topic = scene.topic(segment_bytes="2000000")
    async with admin_of(scene) as admin:
        altered = [
            await outcome(admin.alter_configs(topic_settings(topic, {"retention.ms": "77"}))),
            await outcome(admin.alter_configs(topic_settings(topic, {"retention.ms": "soon"}))),
            await outcome(admin.alter_configs(topic_settings(scene.name("missing"), {"retention.ms": "77"}))),
        ]
        scene.settle()
        return [
            *altered,
            await outcome(admin.describe_configs(topic_settings(topic, {"segment.bytes": ""}))),
            await outcome(admin.describe_configs(topic_settings(topic, {"retention.ms": ""}))),
        ]


@scenario("AIOKafkaAdminClient.delete_records")
async def _(scene: Scene) -> Any:
    scene.filled()
    async with admin_of(scene) as admin:
        return [
            await outcome(admin.delete_records({first(scene): RecordsToDelete(2)})),
            await outcome(admin.delete_records({first(scene): RecordsToDelete(-1)})),
            await outcome(admin.delete_records({first(scene): RecordsToDelete(99)})),
        ]


@scenario("AIOKafkaAdminClient.find_coordinator")
async def _(scene: Scene) -> Any:
    async with admin_of(scene) as admin:
        return [await outcome(admin.find_coordinator(scene.name("group"), kind)) for kind in (0, 1)]


@scenario("AIOKafkaAdminClient.describe_consumer_groups")
async def _(scene: Scene) -> Any:
    topic = scene.filled()
    async with admin_of(scene) as admin, consumer_of(scene, topic) as consumer:
        await read(consumer, 3)
        groups = [scene.name("group"), scene.name("missing")]
        return [await outcome(admin.describe_consumer_groups([group])) for group in groups]


@scenario("AIOKafkaAdminClient.list_consumer_groups")
async def _(scene: Scene) -> Any:
    topic = scene.filled()
    async with admin_of(scene) as admin, consumer_of(scene, topic) as consumer:
        await read(consumer, 3)
        return [each for each in await admin.list_consumer_groups() if each[0] == scene.name("group")]


@scenario("AIOKafkaAdminClient.list_consumer_group_offsets")
async def _(scene: Scene) -> Any:
    scene.filled(partitions=2)
    group = scene.name("group")
    async with admin_of(scene) as admin, consumer_of(scene) as consumer:
        consumer.assign([first(scene)])
        await consumer.commit({first(scene): (2, "note")})
        return [
            await outcome(admin.list_consumer_group_offsets(group)),
            await outcome(admin.list_consumer_group_offsets(group, partitions=[first(scene), first(scene, 1)])),
            await outcome(admin.list_consumer_group_offsets(scene.name("missing"))),
        ]


LIBRARY.talks_to_no_broker("AIOKafkaConsumer.paused", "the client's own state; called in the scenario of pause")
