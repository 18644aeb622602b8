"""The client library against a real broker: what the commands do not show of it."""

import asyncio
import time
from collections.abc import Callable

import pytest
from confluent_kafka import Producer as TransactionalProducer

from fencepost.client import (
    Admin,
    AsyncProducer,
    AtTimestamp,
    BrokerError,
    DeliveryFailed,
    IsolationLevel,
    NewTopic,
    PartitionReader,
    Producer,
    Reset,
    TopicPartition,
    UnknownTopic,
)
from fencepost.client.apis import Api
from fencepost.client.connection import connect
from tests.interop_cli.conftest import KINDS
from tests.peers.broker_process import BrokerProcess
from tests.peers.process import WAIT_TIMEOUT_SECONDS
from tests.support.patience import patient

ADD_PARTITIONS_TO_TXN: Api[object, object] = Api("AddPartitionsToTxn", 24, 0, 5)


def values(broker: BrokerProcess, topic: str, **options: object) -> list[bytes | None]:
    with PartitionReader(broker.bootstrap_servers, **options) as reader:
        reader.assign_topic(topic)
        return [record.value for record in reader.records()]


def test_the_plain_face_produces_and_reads(broker: BrokerProcess, topic: str) -> None:
    with Producer(broker.bootstrap_servers) as producer:
        acknowledged = [
            producer.send(topic, b"%d" % at, key=b"k", headers=[("n", b"%d" % at)], timestamp_ms=1_700_000_000_000 + at)
            for at in range(10)
        ]
        assert [future.result(patient(20)).offset for future in acknowledged] == list(range(10))
        partition = acknowledged[0].result().partition
    with PartitionReader(broker.bootstrap_servers) as reader:
        reader.assign({TopicPartition(topic, partition): 7})
        records = list(reader.records())
        assert [(record.offset, record.value, record.timestamp_ms) for record in records] == [
            (at, b"%d" % at, 1_700_000_000_000 + at) for at in (7, 8, 9)
        ]
        assert records[0].headers == (("n", b"7"),)
        reader.assign({TopicPartition(topic, partition): AtTimestamp(1_700_000_000_004)})
        assert reader.positions == {TopicPartition(topic, partition): 4}


def test_unknown_topics_fail_at_once(broker: BrokerProcess) -> None:
    started = time.monotonic()
    with Producer(broker.bootstrap_servers) as producer, pytest.raises(UnknownTopic):
        producer.send("absent", b"x")
    with PartitionReader(broker.bootstrap_servers) as reader, pytest.raises(UnknownTopic):
        reader.assign_topic("absent")
    assert time.monotonic() - started < 10


def test_one_record_refused_does_not_harm_its_neighbours(broker: BrokerProcess, topic: str) -> None:
    with Producer(broker.bootstrap_servers) as producer:
        large = producer.send(topic, b"x" * 3_000_000, partition=0)
        small = producer.send(topic, b"small", partition=0)
        with pytest.raises(DeliveryFailed, match="MESSAGE_TOO_LARGE") as failed:
            large.result(patient(20))
        assert not failed.value.may_be_written
        assert small.result(patient(20)).offset == 0


def test_records_are_deleted_and_offsets_listed(broker: BrokerProcess, topic: str) -> None:
    at = TopicPartition(topic, 0)
    with Producer(broker.bootstrap_servers) as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number, partition=0)
        producer.flush()
    with Admin(broker.bootstrap_servers) as admin:
        assert admin.delete_records({at: 4}) == {at: 4}
        assert admin.list_offsets({at: int(Reset.EARLIEST)})[at].offset == 4
        assert admin.list_offsets({at: int(Reset.LATEST)})[at].offset == 10
        with pytest.raises(BrokerError, match="OFFSET_OUT_OF_RANGE"):
            admin.delete_records({at: 11})
    assert values(broker, topic) == [b"%d" % number for number in range(4, 10)]


def test_the_cluster_describes_itself(broker: BrokerProcess, topic: str) -> None:
    with Admin(broker.bootstrap_servers) as admin:
        cluster = admin.describe_cluster()
        assert [str(address) for address in cluster.brokers] == [broker.bootstrap_servers]
        assert len(cluster.cluster_id) == 22
        (directory,) = admin.describe_log_dirs()
        assert directory.path == str(broker.data_directory)
        assert directory.partition_size_bytes[TopicPartition(topic, 2)] == 0
        assert "transaction.version" in admin.describe_features().supported


def test_aborted_transactions_are_not_read_and_markers_are_passed(broker: BrokerProcess, topic: str) -> None:
    async def has_transactions() -> bool:
        connection = await connect(*broker.address, "test")
        offers = connection.offers(ADD_PARTITIONS_TO_TXN)
        await connection.close()
        return offers

    if not asyncio.run(has_transactions()):
        pytest.skip("the broker does not offer transactions")
    producer = TransactionalProducer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": f"id-{topic}"})
    producer.init_transactions(30)
    for number in range(4):
        producer.begin_transaction()
        for at in range(3):
            producer.produce(topic, b"%d.%d" % (number, at), partition=0)
        producer.flush(patient(20))  # an abort would drop what librdkafka has not sent yet
        if number % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    committed = [b"%d.%d" % (number, at) for number in (0, 2) for at in range(3)]
    assert values(broker, topic, isolation_level=IsolationLevel.READ_COMMITTED) == committed
    assert len(values(broker, topic)) == 12
    # An open transaction holds back what comes after it, and the reader ends before it.
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(patient(20))
    with Producer(broker.bootstrap_servers) as other:
        other.send(topic, b"behind", partition=0).result(patient(20))
    assert values(broker, topic, isolation_level=IsolationLevel.READ_COMMITTED) == committed
    assert values(broker, topic)[-2:] == [b"open", b"behind"]
    producer.abort_transaction(30)
    # The abort is answered when it is decided; its marker, which lets readers pass, may come after.
    deadline = time.monotonic() + WAIT_TIMEOUT_SECONDS
    while (found := values(broker, topic, isolation_level=IsolationLevel.READ_COMMITTED)) == committed:
        assert time.monotonic() < deadline, "the marker does not come"
    assert found == [*committed, b"behind"]


def test_a_producer_outlives_a_killed_broker_without_loss_duplicate_or_disorder(
    request: pytest.FixtureRequest, unique: Callable[[str], str]
) -> None:
    against = request.config.getoption("--against")
    count, kills = 4_000, 3
    with KINDS["fencepost" if against == "both" else against]() as broker:
        name = unique("survivor")
        with Admin(broker.bootstrap_servers) as admin:
            admin.create_topic(NewTopic(name, 1))

        async def produce() -> list[int]:
            async with AsyncProducer(broker.bootstrap_servers, batch_bytes=1_000, linger_ms=0) as producer:
                futures = []
                for number in range(count):
                    futures.append(await producer.send(name, b"%d" % number))
                    if number % (count // (kills + 1)) == 0 and number:
                        await asyncio.to_thread(lambda: (broker.kill(), broker.start()))
                return [(await future).offset for future in futures]

        offsets = asyncio.run(asyncio.wait_for(produce(), patient(100)))
        assert offsets == list(range(count))
        assert values(broker, name) == [b"%d" % number for number in range(count)]
