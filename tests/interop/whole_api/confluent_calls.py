"""librdkafka as its Python binding shows it: Producer, Consumer and AdminClient."""

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import confluent_kafka
import confluent_kafka.admin
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    ConsumerGroupTopicPartitions,
    ElectionType,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
    Uuid,
)
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    GroupMember,
    NewPartitions,  # type: ignore[attr-defined]
    NewTopic,  # type: ignore[attr-defined]
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from tests.interop.whole_api.scenario import PATIENCE_SECONDS, Library, Scene, outcome, plain, until

LIBRARY = Library(
    "confluent-kafka",
    [confluent_kafka, confluent_kafka.admin],
    {"Producer": Producer, "Consumer": Consumer, "AdminClient": AdminClient},
)
LIBRARY.other_classes = {
    "SerializingProducer": "a Producer that turns values into bytes",
    "DeserializingConsumer": "a Consumer that turns bytes into values",
    "ShareConsumer": "share groups are not here yet and not advertised (docs/differences.md)",
    "DeserializingShareConsumer": "share groups are not here yet and not advertised (docs/differences.md)",
}
scenario = LIBRARY.scenario
THEN_MS = 1_000_000
QUIET = {"log_level": 0}


@plain.register
def _(error: KafkaError) -> Any:
    flags = {"fatal": error.fatal(), "retriable": error.retriable(), "requires abort": error.txn_requires_abort()}
    return {"error": error.name(), **{name: True for name, is_set in flags.items() if is_set}}


@plain.register
def _(error: KafkaException) -> Any:
    return plain(error.args[0])


@plain.register
def _(partition: TopicPartition) -> Any:
    # The epoch of a committed offset: what the client had seen; both brokers begin with zero.
    found = {"topic": partition.topic, "partition": partition.partition, "offset": partition.offset}
    extra = {"metadata": partition.metadata, "error": plain(partition.error), "leader epoch": partition.leader_epoch}
    return {**found, **{name: value for name, value in extra.items() if value is not None}}


@plain.register
def _(message: Message) -> Any:
    if message.error() is not None:
        return {"topic": message.topic(), "partition": message.partition(), **plain(message.error())}
    found = {"topic": message.topic(), "partition": message.partition(), "offset": message.offset()}
    content = {"key": plain(message.key()), "value": plain(message.value()), "headers": plain(message.headers())}
    return {**found, **content, "timestamp": list(message.timestamp()), "leader epoch": message.leader_epoch()}


@plain.register
def _(identifier: Uuid) -> Any:
    return "an id"


@plain.register
def _(member: GroupMember) -> Any:
    # Metadata and assignment are bytes that the members made among themselves.
    return {"client id": member.client_id, "metadata": bool(member.metadata), "assignment": bool(member.assignment)}


def futures(found: dict[Any, Future[Any]]) -> Any:
    """What became of each part of an administrator's call."""
    return {_name(key): result(future) for key, future in found.items()}


def _name(key: Any) -> str:
    match key:
        case TopicPartition():
            return f"{key.topic} {key.partition}"
        case ConfigResource():
            return f"{key.restype.name} {key.name}"
    return str(key)


def result(future: Future[Any]) -> Any:
    return outcome(future.result, PATIENCE_SECONDS)


_admins: dict[str, AdminClient] = {}


def admin_of(scene: Scene) -> AdminClient:
    """One for all scenarios of a broker: it keeps nothing that belongs to one of them."""
    if scene.bootstrap not in _admins:
        _admins[scene.bootstrap] = AdminClient({"bootstrap.servers": scene.bootstrap, **QUIET})
    return _admins[scene.bootstrap]


def producer_of(scene: Scene, **options: Any) -> Producer:
    settings = {key.replace("_", "."): value for key, value in options.items()}
    return Producer({"bootstrap.servers": scene.bootstrap, "linger.ms": 0, **QUIET, **settings})


@contextmanager
def consumer_of(scene: Scene, stem: str = "group", **options: Any) -> Iterator[Consumer]:
    settings = {key.replace("_", "."): value for key, value in options.items()}
    consumer = Consumer(
        {
            "bootstrap.servers": scene.bootstrap,
            "group.id": scene.name(stem),
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 50,
            "client.id": "whole-api",
            **QUIET,
            **settings,
        }
    )
    try:
        yield consumer
    finally:
        consumer.close()


def read(consumer: Consumer, count: int) -> list[Message]:
    found: list[Message] = []

    def enough() -> bool:
        found.extend(consumer.consume(count - len(found), 0.5))
        return len(found) >= count

    until(enough, f"{count} messages")
    return found


def joined(consumer: Consumer, topics: list[str]) -> list[Message]:
    """A member with its partitions: the first message proves them."""
    consumer.subscribe(topics)
    return read(consumer, 1)


def partitions_of(topic: str, *numbers: int, offset: int | None = None) -> list[TopicPartition]:
    return [
        TopicPartition(topic, number) if offset is None else TopicPartition(topic, number, offset) for number in numbers
    ]


def sent(producer: Producer, topic: str, *values: bytes, partition: int = 0) -> list[Any]:
    """Delivery reports, in order, without the time."""
    reports: list[Any] = []
    for value in values:
        producer.produce(
            topic,
            value,
            b"key",
            partition=partition,
            timestamp=THEN_MS,
            headers=[("name", b"text")],
            on_delivery=lambda error, message: reports.append(plain(error) or plain(message)),
        )
    left = producer.flush(PATIENCE_SECONDS)
    return [left, *reports]


def mine(scene: Scene, topics: dict[str, Any]) -> dict[str, Any]:
    """The topics of this scenario only: the others' are made meanwhile."""
    return {name: topic for name, topic in topics.items() if name.startswith(scene.name(""))}


def metadata(scene: Scene, found: Any) -> Any:
    """A ClusterMetadata with this scenario's topics."""
    topics = {name: plain(topic) for name, topic in mine(scene, found.topics).items()}
    brokers = {number: plain(broker) for number, broker in found.brokers.items()}
    has_id = bool(found.cluster_id)
    return {"topics": topics, "brokers": brokers, "controller": found.controller_id, "cluster id": has_id}


# ---------------------------------------------------------------- Producer


@scenario("Producer.produce")
def _(scene: Scene) -> Any:
    topic = scene.topic(partitions=2)
    producer = producer_of(scene, client_id="whole-api")
    too_large = producer_of(scene, message_max_bytes=3_000_000)
    return [
        sent(producer, topic, b"one", b"two", partition=1),
        sent(producer_of(scene, enable_idempotence=True), topic, b"once"),
        sent(producer_of(scene, acks=1), topic, b"leader only"),
        sent(producer_of(scene, compression_type="zstd"), topic, b"small" * 1000)[0],
        sent(too_large, topic, bytes(2_000_000)),
        sent(producer_of(scene, topic_metadata_propagation_max_ms=0), topic, b"x", partition=7),
    ]


@scenario("Producer.produce_batch")
def _(scene: Scene) -> Any:
    topic = scene.topic()
    producer = producer_of(scene)
    reports: list[Any] = []
    messages = [{"value": b"one"}, {"value": b"two", "key": b"key"}]
    queued = producer.produce_batch(
        topic,
        messages,
        partition=0,
        on_delivery=lambda error, message: reports.append([plain(error), message.offset()]),
    )
    return [queued, producer.flush(PATIENCE_SECONDS), reports]


@scenario("Producer.flush")
def _(scene: Scene) -> Any:
    return sent(producer_of(scene), scene.topic(), b"one")


@scenario("Producer.poll")
def _(scene: Scene) -> Any:
    producer, topic = producer_of(scene), scene.topic()
    reports: list[Any] = []
    producer.produce(topic, b"one", partition=0, timestamp=THEN_MS, on_delivery=lambda *report: reports.append(report))
    until(lambda: producer.poll(0.5), "the delivery report")
    return reports


@scenario("Producer.close")
def _(scene: Scene) -> Any:
    topic = scene.topic()
    producer = producer_of(scene)
    producer.produce(topic, b"one", partition=0)
    return [producer.close(), scene.fetch(topic, 0)["Responses"][0]["Partitions"][0]["HighWatermark"]]


@scenario("Producer.cluster_id")
def _(scene: Scene) -> Any:
    return len(producer_of(scene).cluster_id(PATIENCE_SECONDS))


@scenario("Producer.list_topics")
def _(scene: Scene) -> Any:
    topic = scene.topic(partitions=2)
    producer = producer_of(scene)
    return [
        metadata(scene, producer.list_topics(topic, PATIENCE_SECONDS)),
        metadata(scene, producer.list_topics(timeout=PATIENCE_SECONDS)),
        sorted(producer.list_topics(scene.name("missing"), PATIENCE_SECONDS).topics),
    ]


def transactional(scene: Scene, stem: str = "txn", **options: Any) -> Producer:
    return producer_of(scene, transactional_id=scene.name(stem), **options)


@scenario("Producer.init_transactions")
def _(scene: Scene) -> Any:
    first, second, topic = transactional(scene), transactional(scene), scene.topic()
    first.init_transactions(PATIENCE_SECONDS)
    first.begin_transaction()
    first.produce(topic, b"lost", partition=0)
    first.flush(PATIENCE_SECONDS)
    takeover = outcome(second.init_transactions, PATIENCE_SECONDS)
    too_long = transactional(scene, "long", transaction_timeout_ms=1_000_000)
    return [
        takeover,
        outcome(first.commit_transaction, PATIENCE_SECONDS),
        outcome(too_long.init_transactions, PATIENCE_SECONDS),
    ]


@scenario("Producer.begin_transaction")
def _(scene: Scene) -> Any:
    producer = transactional(scene)
    before = outcome(producer.begin_transaction)
    producer.init_transactions(PATIENCE_SECONDS)
    return [before, outcome(producer.begin_transaction), outcome(producer.begin_transaction)]


def committed_values(scene: Scene, topic: str) -> list[Any]:
    """What a reader of committed records sees of the first partition, up to its end."""
    with consumer_of(scene, "reader", isolation_level="read_committed", enable_partition_eof=True) as consumer:
        consumer.assign(partitions_of(topic, 0, offset=0))
        found: list[Any] = []

        def at_the_end() -> bool:
            for message in consumer.consume(10, 0.5):
                found.append(plain(message))
            return any("error" in each for each in found)

        until(at_the_end, "the end of the partition")
        return found


@scenario("Producer.commit_transaction")
def _(scene: Scene) -> Any:
    producer, topic = transactional(scene), scene.topic()
    producer.init_transactions(PATIENCE_SECONDS)
    ends = []
    for number in range(2):
        producer.begin_transaction()
        producer.produce(topic, b"transaction %d" % number, partition=0, timestamp=THEN_MS)
        ends.append(outcome(producer.commit_transaction, PATIENCE_SECONDS))
    producer.begin_transaction()
    ends.append(outcome(producer.commit_transaction, PATIENCE_SECONDS))
    return [*ends, committed_values(scene, topic)]


@scenario("Producer.abort_transaction")
def _(scene: Scene) -> Any:
    producer, topic = transactional(scene), scene.topic()
    producer.init_transactions(PATIENCE_SECONDS)
    producer.begin_transaction()
    producer.produce(topic, b"never", partition=0, timestamp=THEN_MS)
    producer.flush(PATIENCE_SECONDS)
    aborted = outcome(producer.abort_transaction, PATIENCE_SECONDS)
    producer.begin_transaction()
    producer.produce(topic, b"ever", partition=0, timestamp=THEN_MS)
    return [aborted, outcome(producer.commit_transaction, PATIENCE_SECONDS), committed_values(scene, topic)]


@scenario("Producer.send_offsets_to_transaction")
def _(scene: Scene) -> Any:
    topic, producer = scene.filled(), transactional(scene)
    producer.init_transactions(PATIENCE_SECONDS)
    with consumer_of(scene) as consumer:
        joined(consumer, [topic])
        producer.begin_transaction()
        positions = partitions_of(topic, 0, offset=2)
        group = consumer.consumer_group_metadata()
        sending = outcome(producer.send_offsets_to_transaction, positions, group, PATIENCE_SECONDS)
        ending = outcome(producer.commit_transaction, PATIENCE_SECONDS)
        return [sending, ending, plain(consumer.committed(partitions_of(topic, 0), PATIENCE_SECONDS))]


# ---------------------------------------------------------------- Consumer


@scenario("Consumer.assign")
def _(scene: Scene) -> Any:
    topic = scene.filled(partitions=2)
    with consumer_of(scene) as consumer:
        consumer.assign([TopicPartition(topic, 0, 1), TopicPartition(topic, 1, OFFSET_BEGINNING)])
        found = sorted(plain(read(consumer, 5)), key=lambda each: (each["partition"], each["offset"]))
        return [found, sorted(plain(consumer.assignment()), key=str)]


@scenario("Consumer.assignment")
def _(scene: Scene) -> Any:
    topic = scene.filled(partitions=2)
    with consumer_of(scene) as consumer:
        before = consumer.assignment()
        joined(consumer, [topic])
        return [before, sorted((each.topic, each.partition) for each in consumer.assignment())]


@scenario("Consumer.unassign")
def _(scene: Scene) -> Any:
    topic = scene.filled()
    with consumer_of(scene) as consumer:
        consumer.assign(partitions_of(topic, 0, offset=0))
        read(consumer, 1)
        consumer.unassign()
        return [consumer.assignment(), consumer.consume(1, 0)]


@scenario("Consumer.incremental_assign")
def _(scene: Scene) -> Any:
    topic = scene.filled(partitions=2)
    with consumer_of(scene) as consumer:
        consumer.incremental_assign(partitions_of(topic, 0, offset=1))
        first = plain(read(consumer, 2))
        consumer.incremental_assign(partitions_of(topic, 1, offset=2))
        return [first, plain(read(consumer, 1)), len(consumer.assignment())]


@scenario("Consumer.incremental_unassign")
def _(scene: Scene) -> Any:
    topic = scene.filled(partitions=2)
    with consumer_of(scene) as consumer:
        consumer.incremental_assign(partitions_of(topic, 0, 1, offset=0))
        read(consumer, 6)
        consumer.incremental_unassign(partitions_of(topic, 0))
        again = outcome(consumer.incremental_unassign, partitions_of(topic, 0))
        return [again, plain(consumer.assignment())]


@scenario("Consumer.subscribe")
def _(scene: Scene) -> Any:
    for stem in ("one", "two", "other"):
        scene.filled(stem)
    owned: list[list[str]] = []
    with consumer_of(scene, topic_metadata_refresh_interval_ms=200) as consumer:
        pattern = f"^{scene.name('').replace('.', '[.]')}(one|two|three)$"
        consumer.subscribe([pattern], on_assign=lambda _, assigned: owned.append(sorted(p.topic for p in assigned)))
        values = sorted(str(plain(message)) for message in read(consumer, 6))
        scene.filled("three")
        # A topic that is made later belongs to the pattern, too.
        until(lambda: consumer.consume(10, 0.1) is not None and scene.name("three") in owned[-1], "the third topic")
        return [values, owned[0], owned[-1]]


@scenario("Consumer.unsubscribe")
def _(scene: Scene) -> Any:
    topic = scene.filled()
    with consumer_of(scene) as consumer:
        joined(consumer, [topic])
        consumer.unsubscribe()
        until(lambda: consumer.poll(0.1) is None and not consumer.assignment(), "the loss of the partitions")
        return until(lambda: state_of_group(scene, scene.name("group")) == ["Empty", 0], "the group without members")


def state_of_group(scene: Scene, group: str) -> Any:
    described = scene.call("DescribeGroups", 5, {"Groups": [group]})["Groups"][0]
    return [described["GroupState"], len(described["Members"])]


@scenario("Consumer.poll")
def _(scene: Scene) -> Any:
    topic = scene.filled(count=1)
    with consumer_of(scene, enable_partition_eof=True) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        record, end = (until(lambda: consumer.poll(0.5), "an event") for _ in range(2))
        consumer.assign([TopicPartition(topic, 0, 99)])
        reset = until(lambda: consumer.poll(0.5), "the first record again")
        return [plain(record), plain(end), plain(reset)]


@scenario("Consumer.consume")
def _(scene: Scene) -> Any:
    topic = scene.filled()
    with (
        consumer_of(scene) as consumer,
        consumer_of(scene, "strict", auto_offset_reset="error") as strict,
        consumer_of(scene, "nowhere", allow_auto_create_topics=False) as nowhere,
    ):
        consumer.assign([TopicPartition(topic, 0, 0)])
        strict.assign([TopicPartition(topic, 0, 99)])
        nowhere.subscribe([scene.name("missing")])
        return [plain(read(consumer, 3)), plain(read(strict, 1)), plain(read(nowhere, 1))]


@scenario("Consumer.seek")
def _(scene: Scene) -> Any:
    topic = scene.filled()
    with consumer_of(scene) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        read(consumer, 3)
        consumer.seek(TopicPartition(topic, 0, 1))
        once = plain(read(consumer, 1))
        consumer.seek(TopicPartition(topic, 0, OFFSET_BEGINNING))
        return [once, plain(read(consumer, 1)), outcome(consumer.seek, TopicPartition(topic, 5, 1))]


@scenario("Consumer.pause")
def _(scene: Scene) -> Any:
    topic = scene.filled(partitions=2)
    with consumer_of(scene) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0), TopicPartition(topic, 1, 0)])
        consumer.pause(partitions_of(topic, 1))
        return [plain(read(consumer, 3)), outcome(consumer.pause, partitions_of(topic, 9))]


@scenario("Consumer.resume")
def _(scene: Scene) -> Any:
    topic = scene.filled()
    with consumer_of(scene) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        consumer.pause(partitions_of(topic, 0))
        before = plain(consumer.consume(1, 0.1))
        consumer.resume(partitions_of(topic, 0))
        return [before, plain(read(consumer, 3))]


@scenario("Consumer.position")
def _(scene: Scene) -> Any:
    topic = scene.filled(partitions=2)
    with consumer_of(scene) as consumer:
        consumer.assign([TopicPartition(topic, 0, 1), TopicPartition(topic, 1, OFFSET_END)])
        read(consumer, 2)
        return plain(consumer.position(partitions_of(topic, 0, 1)))


@scenario("Consumer.memberid")
def _(scene: Scene) -> Any:
    topic = scene.filled()
    with consumer_of(scene) as consumer:
        before = consumer.memberid()
        joined(consumer, [topic])
        return [before, consumer.memberid().startswith("whole-api-")]


@scenario("Consumer.consumer_group_metadata")
def _(scene: Scene) -> Any:
    topic = scene.filled()
    with consumer_of(scene) as consumer:
        joined(consumer, [topic])
        return type(consumer.consumer_group_metadata()).__name__


@scenario("Consumer.commit")
def _(scene: Scene) -> Any:
    topic = scene.filled()
    with consumer_of(scene) as consumer:
        message = joined(consumer, [topic])[0]
        wanted = TopicPartition(topic, 0, 3, "note")
        return [
            plain(consumer.commit(message, asynchronous=False)),
            plain(consumer.commit(offsets=[wanted], asynchronous=False)),
            outcome(consumer.commit, offsets=[TopicPartition(scene.name("missing"), 0, 3)], asynchronous=False),
            outcome(consumer.commit, offsets=[TopicPartition(topic, 0, 3, "x" * 5000)], asynchronous=False),
            plain(consumer.committed(partitions_of(topic, 0), PATIENCE_SECONDS)),
        ]


@scenario("Consumer.committed")
def _(scene: Scene) -> Any:
    topic = scene.filled(partitions=2)
    with consumer_of(scene) as consumer:
        consumer.commit(offsets=[TopicPartition(topic, 1, 2, "note")], asynchronous=False)
        missing = partitions_of(scene.name("missing"), 0)
        return [outcome(consumer.committed, partitions_of(topic, 0, 1, 7) + missing, PATIENCE_SECONDS)]


@scenario("Consumer.store_offsets")
def _(scene: Scene) -> Any:
    topic = scene.filled()
    with consumer_of(scene, enable_auto_offset_store=False) as consumer:
        message = joined(consumer, [topic])[0]
        nothing = outcome(consumer.commit, asynchronous=False)
        consumer.store_offsets(message)
        stored = plain(consumer.commit(asynchronous=False))
        consumer.store_offsets(offsets=[TopicPartition(topic, 0, 3)])
        return [nothing, stored, plain(consumer.commit(asynchronous=False))]


@scenario("Consumer.get_watermark_offsets")
def _(scene: Scene) -> Any:
    topic = scene.filled()
    with consumer_of(scene) as consumer:
        cached_before = consumer.get_watermark_offsets(TopicPartition(topic, 0), cached=True)
        asked = consumer.get_watermark_offsets(TopicPartition(topic, 0), PATIENCE_SECONDS)
        consumer.assign([TopicPartition(topic, 0, 0)])
        read(consumer, 3)
        cached = consumer.get_watermark_offsets(TopicPartition(topic, 0), cached=True)
        missing = outcome(consumer.get_watermark_offsets, TopicPartition(topic, 7), 5)
        return [cached_before, asked, cached, missing]


@scenario("Consumer.offsets_for_times")
def _(scene: Scene) -> Any:
    topic = scene.filled()
    with consumer_of(scene) as consumer:
        asked = [[TopicPartition(topic, 0, at)] for at in (0, 1000, 1001, 2999, 3000, 3001)]
        return [plain(consumer.offsets_for_times(each, PATIENCE_SECONDS)) for each in asked]


@scenario("Consumer.list_topics")
def _(scene: Scene) -> Any:
    scene.topic("one", partitions=2)
    scene.topic("two")
    with consumer_of(scene) as consumer:
        one = consumer.list_topics(scene.name("one"), PATIENCE_SECONDS)
        missing = consumer.list_topics(scene.name("missing"), PATIENCE_SECONDS)
        return [metadata(scene, each) for each in (one, missing, consumer.list_topics(timeout=PATIENCE_SECONDS))]


@scenario("Consumer.cluster_id")
def _(scene: Scene) -> Any:
    with consumer_of(scene) as consumer:
        return len(consumer.cluster_id(PATIENCE_SECONDS))


@scenario("Consumer.close")
def _(scene: Scene) -> Any:
    topic = scene.filled()
    with consumer_of(scene, enable_auto_commit=True) as consumer:
        joined(consumer, [topic])
    with consumer_of(scene) as consumer:
        committed = plain(consumer.committed(partitions_of(topic, 0), PATIENCE_SECONDS))
    return [committed, state_of_group(scene, scene.name("group"))]


# ---------------------------------------------------------------- AdminClient


@scenario("AdminClient.create_topics")
def _(scene: Scene) -> Any:
    admin, name = admin_of(scene), scene.name
    wanted = [
        NewTopic(name("plain"), 2, 1),
        NewTopic(name("compacted"), 1, 1, config={"cleanup.policy": "compact"}),
        NewTopic(name("assigned"), 2, replica_assignment=[[1], [1]]),
        NewTopic(name("default"), -1, -1),
        NewTopic(name("wide"), 1, 3),
        NewTopic(name("none"), 0, 1),
        NewTopic(name("elsewhere"), 1, replica_assignment=[[7]]),
        NewTopic(name("strange"), 1, 1, config={"no.such.setting": "1"}),
        NewTopic(name("wrong"), 1, 1, config={"retention.ms": "soon"}),
        NewTopic("no/such/name", 1, 1),
        NewTopic("__consumer_offsets", 1, 1),
    ]
    made = futures(admin.create_topics(wanted))
    again = futures(admin.create_topics([NewTopic(name("plain"), 2, 1)]))
    checked = futures(admin.create_topics([NewTopic(name("checked"), 2, 1)], validate_only=True))

    def names() -> list[str]:
        return sorted(mine(scene, admin.list_topics(timeout=PATIENCE_SECONDS).topics))

    return [made, again, checked, until(lambda: names() if len(names()) >= 4 else None, "the topics")]


@scenario("AdminClient.delete_topics")
def _(scene: Scene) -> Any:
    topic = scene.topic()
    admin = admin_of(scene)
    return [futures(admin.delete_topics([topic, scene.name("missing")])), futures(admin.delete_topics([topic]))]


@scenario("AdminClient.create_partitions")
def _(scene: Scene) -> Any:
    admin, topic = admin_of(scene), scene.topic(partitions=2)
    return [
        futures(admin.create_partitions([NewPartitions(topic, 4)], validate_only=True)),
        futures(admin.create_partitions([NewPartitions(topic, 3)])),
        futures(admin.create_partitions([NewPartitions(topic, 4, [[1]])])),
        futures(admin.create_partitions([NewPartitions(topic, 5, [[9]])])),
        futures(admin.create_partitions([NewPartitions(topic, 4), NewPartitions(scene.name("missing"), 3)])),
        futures(admin.create_partitions([NewPartitions(topic, 1)])),
    ]


@scenario("AdminClient.list_topics")
def _(scene: Scene) -> Any:
    topic = scene.topic(partitions=2)
    admin = admin_of(scene)
    return [
        metadata(scene, admin.list_topics(timeout=PATIENCE_SECONDS)),
        metadata(scene, admin.list_topics(topic, PATIENCE_SECONDS)),
        metadata(scene, admin.list_topics(scene.name("missing"), PATIENCE_SECONDS)),
        "__consumer_offsets" in admin.list_topics(timeout=PATIENCE_SECONDS).topics,
    ]


@scenario("AdminClient.describe_topics")
def _(scene: Scene) -> Any:
    topic = scene.topic(partitions=2)
    asked = TopicCollection([topic, scene.name("missing")])
    return [
        futures(admin_of(scene).describe_topics(asked)),
        futures(admin_of(scene).describe_topics(asked, include_authorized_operations=True)),
    ]


@scenario("AdminClient.describe_cluster")
def _(scene: Scene) -> Any:
    admin = admin_of(scene)
    return [result(admin.describe_cluster()), result(admin.describe_cluster(include_authorized_operations=True))]


@scenario("AdminClient.cluster_id")
def _(scene: Scene) -> Any:
    return len(admin_of(scene).cluster_id(PATIENCE_SECONDS))


def settings_of(found: dict[str, ConfigEntry], *names: str) -> Any:
    return {name: plain(found[name]) for name in names}


@scenario("AdminClient.describe_configs")
def _(scene: Scene) -> Any:
    topic = scene.topic(retention_ms="1234", cleanup_policy="compact,delete")
    admin = admin_of(scene)

    def described(kind: Any, name: str) -> Any:
        future = next(iter(admin.describe_configs([ConfigResource(kind, name)]).values()))
        try:
            return future.result(PATIENCE_SECONDS)
        except KafkaException as error:
            return plain(error)

    names = ("cleanup.policy", "segment.bytes", "max.message.bytes", "compression.type")
    return [
        settings_of(described(ResourceType.TOPIC, topic), *names),
        settings_of(described(ResourceType.BROKER, "1"), "num.partitions", "message.max.bytes"),
        described(ResourceType.TOPIC, scene.name("missing")),
        described(ResourceType.TOPIC, "no/such/name"),
    ]


def configured(kind: Any, name: str, *entries: ConfigEntry, **settings: str) -> ConfigResource:
    texts = {key.replace("_", "."): value for key, value in settings.items()}
    return ConfigResource(kind, name, set_config=texts or None, incremental_configs=list(entries) or None)


@scenario("AdminClient.alter_configs")
def _(scene: Scene) -> Any:
    topic, admin = scene.topic(retention_ms="1234"), admin_of(scene)

    def altered(name: str, **settings: str) -> Any:
        return futures(admin.alter_configs([configured(ResourceType.TOPIC, name, **settings)]))

    found = [
        altered(topic, segment_bytes="2000000"),
        altered(topic, segment_bytes="none"),
        altered(topic, no_such_setting="1"),
        futures(admin.alter_configs([configured(ResourceType.TOPIC, topic)])),
        altered(scene.name("missing"), segment_bytes="2000000"),
        futures(
            admin.alter_configs([configured(ResourceType.TOPIC, topic, retention_ms="77")], validate_only=True),
        ),
    ]
    return [*found, non_default_settings(scene, topic)]


def non_default_settings(scene: Scene, topic: str) -> dict[str, str]:
    scene.settle()
    resource = {"ResourceType": 2, "ResourceName": topic, "ConfigurationKeys": None}
    entries = scene.call("DescribeConfigs", 4, {"Resources": [resource]})["Results"][0]["Configs"]
    return {entry["Name"]: entry["Value"] for entry in entries if entry["ConfigSource"] == 1}


@scenario("AdminClient.incremental_alter_configs")
def _(scene: Scene) -> Any:
    topic, admin = scene.topic(retention_ms="1234", cleanup_policy="delete"), admin_of(scene)

    def altered(name: str, setting: str, value: str | None, operation: Any, kind: Any = ResourceType.TOPIC) -> Any:
        entry = ConfigEntry(setting, value, incremental_operation=operation)
        return futures(admin.incremental_alter_configs([configured(kind, name, entry)]))

    found = [
        altered(topic, "segment.bytes", "2000000", AlterConfigOpType.SET),
        altered(topic, "retention.ms", None, AlterConfigOpType.DELETE),
        altered(topic, "cleanup.policy", "compact", AlterConfigOpType.APPEND),
        altered(topic, "cleanup.policy", "delete", AlterConfigOpType.SUBTRACT),
        altered(topic, "segment.bytes", "1", AlterConfigOpType.APPEND),
        altered(topic, "segment.bytes", "none", AlterConfigOpType.SET),
        altered(topic, "no.such.setting", "1", AlterConfigOpType.SET),
        altered(scene.name("missing"), "segment.bytes", "2000000", AlterConfigOpType.SET),
        altered("1", "log.retention.bytes", "1000000000000", AlterConfigOpType.SET, ResourceType.BROKER),
        altered("1", "log.retention.bytes", None, AlterConfigOpType.DELETE, ResourceType.BROKER),
        altered("1", "node.id", "5", AlterConfigOpType.SET, ResourceType.BROKER),
    ]
    return [*found, non_default_settings(scene, topic)]


@scenario("AdminClient.delete_records")
def _(scene: Scene) -> Any:
    topic, admin = scene.filled(partitions=2), admin_of(scene)
    wanted = [
        [TopicPartition(topic, 0, 2)],
        [TopicPartition(topic, 1, OFFSET_END)],
        [TopicPartition(topic, 0, 99)],
        [TopicPartition(topic, 0, 1)],
    ]
    found = [futures(admin.delete_records(each)) for each in wanted]
    missing = futures(admin.delete_records([TopicPartition(topic, 7, 1)], request_timeout=5, operation_timeout=1))
    return [*found, missing, watermarks(scene, topic)]


def watermarks(scene: Scene, topic: str) -> Any:
    with consumer_of(scene, "watermarks") as consumer:
        return [consumer.get_watermark_offsets(TopicPartition(topic, n), PATIENCE_SECONDS) for n in (0, 1)]


@scenario("AdminClient.list_offsets")
def _(scene: Scene) -> Any:
    topic, admin = scene.filled(), admin_of(scene)
    specs = [
        OffsetSpec.earliest(),
        OffsetSpec.latest(),
        OffsetSpec.max_timestamp(),
        OffsetSpec.for_timestamp(2000),
        OffsetSpec.for_timestamp(9999),
    ]
    levels = (IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED)
    found = [
        futures(admin.list_offsets({TopicPartition(topic, 0): spec}, isolation_level=level))
        for level in levels
        for spec in specs
    ]
    missing = {TopicPartition(topic, 7): OffsetSpec.latest()}
    return [*found, futures(admin.list_offsets(missing, request_timeout=5))]


@scenario("AdminClient.elect_leaders")
def _(scene: Scene) -> Any:
    topic, admin = scene.topic(partitions=2), admin_of(scene)
    asked = [TopicPartition(topic, 0), TopicPartition(topic, 7), TopicPartition(scene.name("missing"), 0)]

    def elected(kind: Any, partitions: list[TopicPartition] | None) -> Any:
        future = admin.elect_leaders(kind, partitions)
        try:
            found = future.result(PATIENCE_SECONDS)
        except KafkaException as error:
            return plain(error)
        return sorted(str((each.topic, each.partition, plain(error))) for each, error in found.items())

    kinds = (ElectionType.PREFERRED, ElectionType.UNCLEAN)
    return [elected(kind, partitions) for kind in kinds for partitions in (asked, None)]


@contextmanager
def running_member(scene: Scene, topic: str, **options: Any) -> Iterator[Consumer]:
    with consumer_of(scene, **options) as consumer:
        joined(consumer, [topic])
        yield consumer


@scenario("AdminClient.list_consumer_groups")
def _(scene: Scene) -> Any:
    admin, topic = admin_of(scene), scene.filled()

    def listed(**options: Any) -> Any:
        found = admin.list_consumer_groups(**options).result(PATIENCE_SECONDS)
        return [[plain(each) for each in found.valid if each.group_id == scene.name("group")], plain(found.errors)]

    with running_member(scene, topic) as consumer:
        consumer.commit(offsets=partitions_of(topic, 0, offset=1), asynchronous=False)
        running = listed()
    return [running, listed()]


@scenario("AdminClient.list_groups")
def _(scene: Scene) -> Any:
    admin, topic, group = admin_of(scene), scene.filled(), scene.name("group")

    def listed(*arguments: Any) -> Any:
        found = admin.list_groups(*arguments, timeout=PATIENCE_SECONDS)
        return [
            {
                "error": plain(each.error),
                "state": each.state,
                "protocol type": each.protocol_type,
                "protocol": each.protocol,
                "members": plain(each.members),
            }
            for each in found
            if each.id == group
        ]

    with running_member(scene, topic):
        running = [listed(group), listed()]
    return [*running, [each["state"] for each in listed(group)]]


@scenario("AdminClient.describe_consumer_groups")
def _(scene: Scene) -> Any:
    admin, topic, group = admin_of(scene), scene.filled(partitions=2), scene.name("group")
    with running_member(scene, topic, group_instance_id="static"):
        running = futures(admin.describe_consumer_groups([group], include_authorized_operations=True))
    return [running, futures(admin.describe_consumer_groups([scene.name("missing")]))]


@scenario("AdminClient.delete_consumer_groups")
def _(scene: Scene) -> Any:
    admin, topic, group = admin_of(scene), scene.filled(), scene.name("group")
    with running_member(scene, topic):
        running = futures(admin.delete_consumer_groups([group]))
    return [
        running,
        futures(admin.delete_consumer_groups([group, scene.name("missing")])),
        futures(admin.delete_consumer_groups([group])),
    ]


def offsets_of(scene: Scene, stem: str, partitions: list[TopicPartition] | None) -> ConsumerGroupTopicPartitions:
    return ConsumerGroupTopicPartitions(scene.name(stem), partitions)


@scenario("AdminClient.list_consumer_group_offsets")
def _(scene: Scene) -> Any:
    admin, topic = admin_of(scene), scene.filled(partitions=2)
    with consumer_of(scene) as consumer:
        consumer.commit(offsets=[TopicPartition(topic, 1, 2, "note")], asynchronous=False)
    asked = [
        offsets_of(scene, "group", None),
        offsets_of(scene, "group", partitions_of(topic, 0, 1)),
        offsets_of(scene, "missing", None),
    ]
    stable = admin.list_consumer_group_offsets([asked[0]], require_stable=True)
    return [*(futures(admin.list_consumer_group_offsets([each])) for each in asked), futures(stable)]


@scenario("AdminClient.alter_consumer_group_offsets")
def _(scene: Scene) -> Any:
    admin, topic = admin_of(scene), scene.filled(partitions=2)

    def altered(stem: str, *partitions: TopicPartition) -> Any:
        return futures(admin.alter_consumer_group_offsets([offsets_of(scene, stem, list(partitions))]))

    empty = [
        altered("group", TopicPartition(topic, 0, 1, "note"), TopicPartition(topic, 1, 2)),
        altered("group", TopicPartition(scene.name("missing"), 0, 1)),
    ]
    with running_member(scene, topic):
        running = altered("group", TopicPartition(topic, 0, 2))
    return [*empty, running, futures(admin.list_consumer_group_offsets([offsets_of(scene, "group", None)]))]


def binding(scene: Scene, stem: str = "t", operation: Any = AclOperation.READ, **options: Any) -> AclBinding:
    pattern = options.get("pattern", ResourcePatternType.LITERAL)
    permission = options.get("permission", AclPermissionType.ALLOW)
    principal = options.get("principal", "User:alice")
    return AclBinding(ResourceType.TOPIC, scene.name(stem), pattern, principal, "*", operation, permission)


def acl_filter(scene: Scene, stem: str | None = "t", **options: Any) -> AclBindingFilter:
    return AclBindingFilter(
        ResourceType.TOPIC,
        None if stem is None else scene.name(stem),
        options.get("pattern", ResourcePatternType.ANY),
        options.get("principal"),
        None,
        options.get("operation", AclOperation.ANY),
        AclPermissionType.ANY,
    )


def acls_of(scene: Scene, **options: Any) -> Any:
    scene.settle()
    found = result_or_error(admin_of(scene).describe_acls(acl_filter(scene, **options)))
    return found if isinstance(found, dict) else sorted(str(plain(each)) for each in found)


def result_or_error(future: Future[Any]) -> Any:
    try:
        return future.result(PATIENCE_SECONDS)
    except KafkaException as error:
        return plain(error)


@scenario("AdminClient.create_acls")
def _(scene: Scene) -> Any:
    admin = admin_of(scene)
    wanted = [
        binding(scene),
        binding(scene, operation=AclOperation.WRITE, permission=AclPermissionType.DENY),
        binding(scene, pattern=ResourcePatternType.PREFIXED),
        binding(scene, "bad", AclOperation.CLUSTER_ACTION),
        binding(scene, "nobody", principal="alice"),
    ]
    made = [outcome(next(iter(admin.create_acls([each]).values())).result, PATIENCE_SECONDS) for each in wanted]
    return [made, acls_of(scene), acls_of(scene, stem="bad"), acls_of(scene, stem="nobody")]


@scenario("AdminClient.describe_acls")
def _(scene: Scene) -> Any:
    admin = admin_of(scene)
    for each in (binding(scene), binding(scene, pattern=ResourcePatternType.PREFIXED), binding(scene, "other")):
        futures(admin.create_acls([each]))
    return [
        acls_of(scene),
        acls_of(scene, pattern=ResourcePatternType.LITERAL),
        acls_of(scene, pattern=ResourcePatternType.MATCH),
        acls_of(scene, operation=AclOperation.WRITE),
        acls_of(scene, principal="User:bob"),
    ]


@scenario("AdminClient.delete_acls")
def _(scene: Scene) -> Any:
    admin = admin_of(scene)
    for each in (binding(scene), binding(scene, operation=AclOperation.WRITE), binding(scene, "other")):
        futures(admin.create_acls([each]))

    def deleted(**options: Any) -> Any:
        found = result_or_error(next(iter(admin.delete_acls([acl_filter(scene, **options)]).values())))
        return found if isinstance(found, dict) else sorted(str(plain(each)) for each in found)

    return [deleted(operation=AclOperation.READ), acls_of(scene), deleted(), deleted(), acls_of(scene, stem="other")]


def scram_info(iterations: int = 4096) -> ScramCredentialInfo:
    return ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, iterations)


@scenario("AdminClient.alter_user_scram_credentials")
def _(scene: Scene) -> Any:
    admin, user = admin_of(scene), scene.name("user")

    def altered(*alterations: Any) -> Any:
        return futures(admin.alter_user_scram_credentials(list(alterations)))

    return [
        altered(UserScramCredentialUpsertion(user, scram_info(), b"secret")),
        altered(UserScramCredentialUpsertion(user, scram_info(8192), b"secret", b"the salt of it")),
        altered(UserScramCredentialUpsertion(user, scram_info(100), b"secret")),
        altered(UserScramCredentialUpsertion(user, scram_info(100_000), b"secret")),
        altered(UserScramCredentialDeletion(user, ScramMechanism.SCRAM_SHA_512)),
        altered(UserScramCredentialDeletion(user, ScramMechanism.SCRAM_SHA_256)),
        altered(UserScramCredentialDeletion(user, ScramMechanism.SCRAM_SHA_256)),
    ]


@scenario("AdminClient.describe_user_scram_credentials")
def _(scene: Scene) -> Any:
    admin, user = admin_of(scene), scene.name("user")
    futures(admin.alter_user_scram_credentials([UserScramCredentialUpsertion(user, scram_info(5000), b"secret")]))
    scene.settle()
    everybody = admin.describe_user_scram_credentials().result(PATIENCE_SECONDS)
    return [
        futures(admin.describe_user_scram_credentials([user, scene.name("missing")])),
        plain(everybody[user]),
    ]


for name in LIBRARY.classes:
    LIBRARY.talks_to_no_broker(f"{name}.set_sasl_credentials", "takes effect with the next login; see tests/security")
LIBRARY.talks_to_no_broker("Producer.purge", "empties the client's own queues")
LIBRARY.talks_to_no_broker("AdminClient.poll", "serves the client's own callbacks")
