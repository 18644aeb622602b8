"""`fencepost lag` says how many records are then read, on both brokers; a reader of another maker counts them."""

import asyncio
import random
import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as ConfluentPartition

from fencepost.client import AsyncAdmin, AsyncClient, CommittedOffset, NewTopic, Sending, TopicPartition
from fencepost.client.transactions import AsyncTransactionalProducer
from fencepost.wire.compression import Codec
from tests.insight.scenes import LONG_MS
from tests.interop_cli.conftest import Command
from tests.peers.broker_process import BrokerProcess
from tests.support.patience import patient

pytestmark = pytest.mark.timeout(300)
Unique = Callable[[str], str]
DEADLINE_SECONDS = patient(60)
COMPACTION = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.bytes": "1048576"}
KEYS = 40
ATTENTION = 3


def consumed(broker: BrokerProcess, topic: str, start: int, isolation_level: str = "read_committed") -> int:
    """Records from an offset to the end."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "counting",
            "isolation.level": isolation_level,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
        }
    )
    consumer.assign([ConfluentPartition(topic, 0, start)])
    count, deadline = 0, time.monotonic() + DEADLINE_SECONDS
    try:
        while time.monotonic() < deadline:
            for message in consumer.consume(500, 0.1):
                error = message.error()
                if error is None:
                    count += 1
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    return count
    finally:
        consumer.close()
    raise AssertionError(f"no end of {topic} within {DEADLINE_SECONDS} s")


async def commit(broker: BrokerProcess, group: str, topic: str, offset: int) -> None:
    async with AsyncAdmin(broker.bootstrap_servers) as admin:
        await admin.commit_offsets(group, {TopicPartition(topic, 0): CommittedOffset(offset)})


def partition_lag(command: Command, group: str, *options: str) -> dict[str, int]:
    (found,) = command("lag", group, "--json", *options).json["partitions"]
    return found


async def fill_and_compact(broker: BrokerProcess, topic: str) -> int:
    """Committed and aborted transactions and plain records over few keys, then waits for the cleaner; gives the end."""
    chance = random.Random(3)
    async with AsyncAdmin(broker.bootstrap_servers) as admin, AsyncClient(broker.bootstrap_servers) as client:
        await admin.create_topic(NewTopic(topic, 1, configs=COMPACTION))
        producers = [
            client.producer(f"{topic}-{n}", transaction_timeout_ms=LONG_MS, sending=Sending(compression=Codec(n)))
            for n in range(2)
        ]
        for producer in producers:
            await producer.init()
        for turn in range(24):
            producer = chance.choice(producers)
            await producer.begin()
            for _ in range(chance.randrange(40, 80)):
                await producer.send(topic, chance.randbytes(1500), key=b"%d" % chance.randrange(KEYS))
            await producer.flush()
            await (producer.abort() if chance.random() < 0.4 else producer.commit())
            if turn == 18:
                await wait_for_cleaning(broker, topic)
        await wait_until_stable(admin, topic)
        ends = await admin.list_offsets({TopicPartition(topic, 0): -1})
        return ends[TopicPartition(topic, 0)].offset


async def wait_for_cleaning(broker: BrokerProcess, topic: str) -> None:
    checkpoint = broker.data_directory / "cleaner-offset-checkpoint"
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        lines = checkpoint.read_text().splitlines() if checkpoint.exists() else []
        if any(line.startswith(f"{topic} 0 ") and int(line.split()[-1]) > 0 for line in lines):
            return
        assert time.monotonic() < deadline, "the topic was never compacted"
        await asyncio.sleep(0.05)


def test_on_a_quiet_topic_the_lag_is_the_number_of_records_then_read(
    command: Command, broker: BrokerProcess, unique: Unique
) -> None:
    topic, group = unique("compacted"), unique("group")
    end = asyncio.run(fill_and_compact(broker, topic))
    chance = random.Random(4)
    some_gap = False
    for start in (0, *sorted(chance.randrange(end) for _ in range(2)), end):
        asyncio.run(commit(broker, group, topic, start))
        for isolation_level in ("read_committed", "read_uncommitted") if start == 0 else ("read_committed",):
            found, expected = measured_in_quiet(broker, command, group, topic, start, isolation_level)
            assert (found["lag_min"], found["lag_max"]) == (expected, expected), (start, isolation_level)
            assert found["readable"] == expected
            some_gap |= expected < end - start - 60
    assert some_gap, "offsets without records were in the way"


def measured_in_quiet(
    broker: BrokerProcess, command: Command, group: str, topic: str, start: int, isolation_level: str
) -> tuple[dict[str, int], int]:
    """The lag, and what is read before and after; again if the cleaner was at work between."""
    expected = consumed(broker, topic, start, isolation_level)
    while True:
        found = partition_lag(command, group, "--exact", "--isolation-level", isolation_level)
        before, expected = expected, consumed(broker, topic, start, isolation_level)
        if before == expected:
            return found, expected


class RandomTransactions:
    """Several producers that begin, write and end by chance, over one partition."""

    def __init__(self, client: AsyncClient, topic: str, seed: int) -> None:
        self.chance = random.Random(seed)
        self.topic = topic
        self.producers = [client.producer(f"{topic}-{seed}-{n}", transaction_timeout_ms=LONG_MS) for n in range(4)]
        self.open: list[AsyncTransactionalProducer] = []
        self.plain = client

    async def start(self) -> None:
        await asyncio.gather(*(producer.init() for producer in self.producers))

    async def act(self) -> None:
        chance = self.chance
        if self.open and chance.random() < 0.35:
            await self.end(self.open.pop(chance.randrange(len(self.open))), chance.random() < 0.5)
            return
        idle = [producer for producer in self.producers if producer not in self.open]
        if idle and (not self.open or chance.random() < 0.5):
            begun = chance.choice(idle)
            await begun.begin()
            self.open.append(begun)
        producer = chance.choice(self.open)
        for _ in range(chance.randrange(1, 5)):
            await producer.send(self.topic, b"value")
        await producer.flush()

    async def end(self, producer: AsyncTransactionalProducer, is_commit: bool) -> None:
        await (producer.commit() if is_commit else producer.abort())


@pytest.mark.parametrize("seed", range(3))
def test_the_bounds_hold_whatever_becomes_of_open_transactions(
    command: Command, broker: BrokerProcess, unique: Unique, seed: int
) -> None:
    topic, group = unique("random"), unique("group")

    async def scenario() -> None:
        async with AsyncAdmin(broker.bootstrap_servers) as admin, AsyncClient(broker.bootstrap_servers) as client:
            await admin.create_topic(NewTopic(topic, 1))
            work = RandomTransactions(client, topic, seed)
            await work.start()
            for _ in range(25):
                await work.act()
            while len(work.open) < 2:
                await work.act()
            ends = await admin.list_offsets({TopicPartition(topic, 0): -1})
            start = work.chance.randrange(ends[TopicPartition(topic, 0)].offset // 2)
            await commit(broker, group, topic, start)
            found = await asyncio.to_thread(partition_lag, command, group)
            assert found["is_counted"]
            assert found["open_records"] == found["lag_max"] - found["lag_min"] > 0
            outcomes = [work.chance.random() < 0.5 for _ in work.open] if seed else [True for _ in work.open]
            for producer, is_commit in zip(work.open, outcomes, strict=True):
                await work.end(producer, is_commit)
            await wait_until_stable(admin, topic)
            read = await asyncio.to_thread(consumed, broker, topic, start)
            assert found["lag_min"] <= read <= found["lag_max"]
            if all(outcomes):
                assert read == found["lag_max"]
            after = await asyncio.to_thread(partition_lag, command, group, "--exact")
            assert (after["lag_min"], after["lag_max"]) == (read, read)

    asyncio.run(scenario())


async def wait_until_stable(admin: AsyncAdmin, topic: str, partition: int = 0) -> None:
    """The answer to a commit comes before the markers are written."""
    from fencepost.client import IsolationLevel

    at = TopicPartition(topic, partition)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        stable = await admin.list_offsets({at: -1}, IsolationLevel.READ_COMMITTED)
        latest = await admin.list_offsets({at: -1})
        if stable[at].offset == latest[at].offset:
            return
        assert time.monotonic() < deadline, "a transaction stays open"
        await asyncio.sleep(0.02)


def test_pending_offsets_are_shown(command: Command, broker: BrokerProcess, unique: Unique) -> None:
    topic, group, name = unique("pending"), unique("group"), unique("id")

    async def scenario() -> None:
        async with AsyncAdmin(broker.bootstrap_servers) as admin, AsyncClient(broker.bootstrap_servers) as client:
            await admin.create_topic(NewTopic(topic, 1))
            async with client.transaction(f"{name}-before") as transaction:
                for _ in range(5):
                    await transaction.send(topic, b"value")
            await commit(broker, group, topic, 1)
            await wait_until_stable(admin, topic)
            producer = client.producer(name, transaction_timeout_ms=LONG_MS)
            identity = await producer.init()
            await producer.begin()
            await producer.send_offsets({TopicPartition(topic, 0): CommittedOffset(4)}, group)
            found = await asyncio.to_thread(partition_lag, command, group)
            assert (found["committed_offset"], found["lag_min"], found["lag_max"]) == (1, 4, 4)
            assert found["has_pending_offset"] is True
            (pending,) = found["pending_offsets"]
            assert (pending["offset"], pending["producer_id"]) == (4, identity.producer_id)
            text = await asyncio.to_thread(command, "lag", group)
            assert f"pending offset 4 of producer {identity.producer_id}" in text.output
            assert f"{group} has 4 records to read" in text.output
            await producer.commit()

    asyncio.run(scenario())


def test_where_nothing_is_committed_lag_is_counted_from_the_start_of_the_log(
    command: Command, broker: BrokerProcess, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, group, name = unique("uncommitted"), unique("group"), unique("id")

    async def scenario() -> None:
        async with AsyncAdmin(broker.bootstrap_servers) as admin, AsyncClient(broker.bootstrap_servers) as client:
            await admin.create_topic(NewTopic(topic, 2))
            for _ in range(3):  # nine records and three markers
                async with client.transaction(name) as transaction:
                    for _ in range(3):
                        await transaction.send(topic, b"value", partition=1)
            await wait_until_stable(admin, topic, 1)
            await commit(broker, group, topic, 0)
            consumer = client.consumer(group, [topic])
            while not await consumer.poll(1000):
                pass
            done = await asyncio.to_thread(command.run, ("lag", group, "--json"))
            assert done.status == ATTENTION, "a group that never committed where records are is not healthy"
            assert (done.json["lag_min"], done.json["lag_max"]) == (9, 9)
            empty, full = done.json["partitions"]
            assert (empty["committed_offset"], empty["lag_max"]) == (0, 0)
            assert (full["committed_offset"], full["start_offset"]) == (None, 0)
            assert (full["lag_min"], full["lag_max"], full["readable"], full["is_counted"]) == (9, 9, 9, True)
            text = await asyncio.to_thread(command.run, ("lag", group))
            assert text.status == ATTENTION
            assert f"{group} has 9 records to read" in text.output
            assert "nothing committed: counted from 0, as auto.offset.reset=earliest reads" in text.output
            described = await asyncio.to_thread(command, "groups", "describe", group, "--json")
            assert [at["lag"] for at in described.json["offsets"]] == [0, 12], "offsets, as Kafka's tool counts"

            monkeypatch.setattr("fencepost.insight.lag.COUNTED_OFFSETS_MAX", 5)
            far = (await asyncio.to_thread(command.run, ("lag", group, "--json"))).json["partitions"][1]
            assert (far["lag_min"], far["lag_max"], far["is_counted"]) == (0, 12, False)
            exact = (await asyncio.to_thread(command.run, ("lag", group, "--json", "--exact"))).json["partitions"][1]
            assert (exact["lag_min"], exact["lag_max"], exact["is_counted"]) == (9, 9, True)
            await consumer.commit()
            healthy = await asyncio.to_thread(command.run, ("lag", group))
            assert healthy.status == 0

    asyncio.run(scenario())


def test_a_group_that_is_not_there_is_said_to(command: Command) -> None:
    assert "GROUP_ID_NOT_FOUND" in command.refused("lag", "absent")
    command.refused("lag", "absent", "--isolation-level", "none", status=2)
