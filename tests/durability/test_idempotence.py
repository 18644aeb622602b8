"""What an idempotent producer may rely on, over real sockets and through real restarts.

A response may get lost: the client sees a broken connection and sends the same batch again. It must get the offset of
the first time, and the log must hold the batch once. The last scenario shows what idempotence does not give.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fencepost.wire.errors import ErrorCode
from tests.peers.batches import batch
from tests.peers.fencepost_process import FencepostProcess
from tests.peers.raw import RawClient

SEQUENCE_MAX = 2**31 - 1
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
OLD_EPOCH = ErrorCode.INVALID_PRODUCER_EPOCH
WINDOW = 5

Restart = Callable[[FencepostProcess], object]


def cleanly(broker: FencepostProcess) -> None:
    broker.stop()
    broker.start()


def by_kill(broker: FencepostProcess) -> None:
    broker.kill()
    broker.start()


RESTARTS = pytest.mark.parametrize("restart", [cleanly, by_kill])


@pytest.fixture(scope="module")
def broker() -> Iterator[FencepostProcess]:
    """One broker for all scenarios; each has a topic of its own."""
    with FencepostProcess() as broker:
        yield broker


class Producer:
    """An idempotent producer of one partition, by hand."""

    def __init__(self, broker: FencepostProcess, topic: str, **configs: str) -> None:
        self.broker = broker
        self.topic = topic
        with RawClient(broker.address) as client:
            settings = [{"Name": name.replace("_", "."), "Value": value} for name, value in configs.items()]
            wanted = {"Name": topic, "NumPartitions": 1, "ReplicationFactor": 1, "Configs": settings}
            created = client.call("CreateTopics", 5, {"Topics": [wanted], "timeoutMs": 1000})
            assert created["Topics"][0]["ErrorCode"] in (0, 36)
            self.producer_id = new_producer_id(client)

    def request(self, sequence: int, *values: bytes, epoch: int = 0) -> dict[str, Any]:
        records = batch(
            values or (b"%d" % sequence,),
            producer_id=self.producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            timestamp=time.time_ns() // 1_000_000,  # producers are forgotten by the age of their records
        )
        data = [{"Index": 0, "Records": records}]
        return {"Acks": -1, "TimeoutMs": 5000, "TopicData": [{"Name": self.topic, "PartitionData": data}]}

    def send(self, sequence: int, *values: bytes, epoch: int = 0) -> tuple[int, int]:
        """The error code and the offset of the answer."""
        with RawClient(self.broker.address) as client:
            return produced(client.call("Produce", 9, self.request(sequence, *values, epoch=epoch)))

    def send_and_lose_the_responses(self, *sequences: int) -> None:
        """The batches reach the log, but the client never reads an answer."""
        client = RawClient(self.broker.address)
        for sequence in sequences:
            client.send("Produce", 9, self.request(sequence))
        with RawClient(self.broker.address) as watcher:
            end = 0
            while end < sequences[-1] + 1:
                batches = watcher.fetch_batches(self.topic, 0)
                end = batches[-1].base_sequence + 1 if batches else 0
        client.close()

    def sequences_in_log(self) -> list[tuple[int, int]]:
        with RawClient(self.broker.address) as client:
            return [(one.base_sequence, one.base_offset) for one in client.fetch_batches(self.topic, 0)]


def produced(answer: dict[str, Any]) -> tuple[int, int]:
    data = answer["Responses"][0]["PartitionResponses"][0]
    return data["ErrorCode"], data["BaseOffset"]


def new_producer_id(client: RawClient) -> int:
    wanted = {"TransactionalId": None, "TransactionTimeoutMs": 1000, "ProducerId": -1, "ProducerEpoch": -1}
    answer = client.call("InitProducerId", 4, wanted)
    assert answer["ErrorCode"] == 0
    return int(answer["ProducerId"])


# Retries


def test_a_retry_after_a_lost_response_gets_the_first_offset_and_writes_nothing(broker: FencepostProcess) -> None:
    producer = Producer(broker, "lost-response")
    assert producer.send(0) == (0, 0)
    producer.send_and_lose_the_responses(1)
    assert producer.send(1) == (0, 1)
    assert producer.send(1) == (0, 1)
    assert producer.send(2) == (0, 2)
    assert producer.sequences_in_log() == [(0, 0), (1, 1), (2, 2)]


@RESTARTS
def test_a_retry_after_a_restart_of_the_broker_gets_the_first_offset(
    broker: FencepostProcess, restart: Restart
) -> None:
    producer = Producer(broker, f"retry-{restart.__name__}")
    assert producer.send(0) == (0, 0)
    producer.send_and_lose_the_responses(1)
    restart(broker)
    assert producer.send(1) == (0, 1)
    assert producer.send(2) == (0, 2)
    assert producer.sequences_in_log() == [(0, 0), (1, 1), (2, 2)]


@RESTARTS
def test_five_batches_in_flight_may_all_be_sent_again_after_a_restart(
    broker: FencepostProcess, restart: Restart
) -> None:
    producer = Producer(broker, f"five-{restart.__name__}")
    producer.send_and_lose_the_responses(*range(WINDOW + 2))
    restart(broker)
    for sequence in range(2, WINDOW + 2):
        assert producer.send(sequence) == (0, sequence)
    assert producer.send(WINDOW + 2) == (0, WINDOW + 2)
    assert producer.sequences_in_log() == [(sequence, sequence) for sequence in range(WINDOW + 3)]


@RESTARTS
def test_five_batches_in_flight_over_a_rolled_segment_may_all_be_sent_again_after_a_restart(
    broker: FencepostProcess, restart: Restart
) -> None:
    producer = Producer(broker, f"rolled-{restart.__name__}", segment_bytes="200")
    producer.send_and_lose_the_responses(*range(WINDOW + 2))
    restart(broker)
    for sequence in range(2, WINDOW + 2):
        assert producer.send(sequence) == (0, sequence)
    assert producer.sequences_in_log() == [(sequence, sequence) for sequence in range(WINDOW + 2)]


def test_five_in_flight_are_taken_in_order_and_a_sixth_old_one_is_out_of_order(broker: FencepostProcess) -> None:
    producer = Producer(broker, "sixth")
    with RawClient(broker.address) as client:
        numbers = [client.send("Produce", 9, producer.request(sequence)) for sequence in range(WINDOW + 1)]
        answers = [produced(client.receive("Produce", 9, number)) for number in numbers]
    assert answers == [(0, sequence) for sequence in range(WINDOW + 1)]
    for sequence in range(1, WINDOW + 1):
        assert producer.send(sequence) == (0, sequence)
    assert producer.send(0) == (OUT_OF_ORDER, -1)
    assert len(producer.sequences_in_log()) == WINDOW + 1


def test_only_the_same_batch_is_a_duplicate_not_one_that_overlaps(broker: FencepostProcess) -> None:
    producer = Producer(broker, "overlap")
    assert producer.send(0, b"a", b"b", b"c") == (0, 0)
    assert producer.send(0, b"a", b"b") == (OUT_OF_ORDER, -1)
    assert producer.send(1, b"b", b"c") == (OUT_OF_ORDER, -1)
    assert producer.send(0, b"a", b"b", b"c") == (0, 0)
    assert producer.send(3, b"d") == (0, 3)


# Order


@RESTARTS
def test_a_gap_in_the_sequence_is_refused(broker: FencepostProcess, restart: Restart) -> None:
    producer = Producer(broker, f"gap-{restart.__name__}")
    assert producer.send(0) == (0, 0)
    assert producer.send(2) == (OUT_OF_ORDER, -1)
    restart(broker)
    assert producer.send(2) == (OUT_OF_ORDER, -1)
    assert producer.send(1) == (0, 1)
    assert producer.sequences_in_log() == [(0, 0), (1, 1)]


@RESTARTS
def test_sequences_begin_again_at_zero_after_the_largest(broker: FencepostProcess, restart: Restart) -> None:
    producer = Producer(broker, f"wrap-{restart.__name__}")
    assert producer.send(SEQUENCE_MAX - 1, b"a") == (0, 0)
    # This batch itself goes over the end: its records have the sequences 2^31-1, 0 and 1.
    assert producer.send(SEQUENCE_MAX, b"b", b"c", b"d") == (0, 1)
    assert producer.send(SEQUENCE_MAX, b"b", b"c", b"d") == (0, 1)
    restart(broker)
    assert producer.send(SEQUENCE_MAX, b"b", b"c", b"d") == (0, 1)
    assert producer.send(1, b"e") == (OUT_OF_ORDER, -1)
    assert producer.send(2, b"e") == (0, 4)
    assert producer.send(2, b"e") == (0, 4)


@RESTARTS
def test_an_old_epoch_is_refused(broker: FencepostProcess, restart: Restart) -> None:
    producer = Producer(broker, f"epoch-{restart.__name__}")
    assert producer.send(0, epoch=0) == (0, 0)
    assert producer.send(5, epoch=1) == (OUT_OF_ORDER, -1)
    assert producer.send(0, b"new", epoch=1) == (0, 1)
    assert producer.send(1, epoch=0) == (OLD_EPOCH, -1)
    restart(broker)
    assert producer.send(1, epoch=0) == (OLD_EPOCH, -1)
    assert producer.send(0, b"new", epoch=1) == (0, 1)
    assert producer.send(1, epoch=1) == (0, 2)


# The limit


def test_a_producer_that_restarts_sends_a_duplicate_and_that_is_expected(broker: FencepostProcess) -> None:
    """A new producer has a new id: nothing tells the broker that it sends what another has sent. Transactions do."""
    first = Producer(broker, "restarted-producer")
    first.send_and_lose_the_responses(0)
    second = Producer(broker, "restarted-producer")
    assert second.producer_id != first.producer_id
    assert second.send(0) == (0, 1)
    assert second.sequences_in_log() == [(0, 0), (0, 1)]


@RESTARTS
def test_a_producer_id_is_never_given_out_twice(broker: FencepostProcess, restart: Restart) -> None:
    given = []
    for _ in range(2):
        with RawClient(broker.address) as client:
            given += [new_producer_id(client) for _ in range(3)]
        restart(broker)
    assert len(set(given)) == len(given)
