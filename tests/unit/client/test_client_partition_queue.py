"""Sequence numbers and order of the batches of one partition, through splits, refusals and lost answers."""

import asyncio
from collections.abc import Iterator

import pytest

from fencepost.client.errors import BrokerError, NoLeader
from fencepost.client.kafka_types import ProducerIdentity, RecordMetadata
from fencepost.client.partition_queue import Batch, FinishedBatch, PartitionQueue, RecordBatch, size_of
from fencepost.topic_partition import TopicPartition
from fencepost.wire.batch import BatchHeader, NewRecord, build_batch, read_header
from fencepost.wire.errors import ErrorCode

PARTITION = TopicPartition("purchases", 0)
IDENTITY = ProducerIdentity(7, 0)


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture
def queue() -> PartitionQueue:
    return PartitionQueue(PARTITION, IDENTITY)


@pytest.fixture
def bulk() -> PartitionQueue:
    return PartitionQueue(PARTITION, IDENTITY, in_flight_max=5)


def filled(loop: asyncio.AbstractEventLoop, *values: bytes) -> RecordBatch:
    batch = RecordBatch(created=0.0, deadline=120.0)
    for value in values:
        record: NewRecord = (1_000, None, value, ())
        batch.add(record, size_of(record), loop.create_future())
    return batch


def finished(loop: asyncio.AbstractEventLoop, *values: bytes) -> FinishedBatch:
    data = build_batch([(1_000, None, value, ()) for value in values])
    return FinishedBatch(0.0, 120.0, data, loop.create_future())


def take(queue: PartitionQueue) -> Batch:
    return queue.take(0, False)


def header_of(batch: Batch) -> BatchHeader:
    assert batch.encoded is not None
    return read_header(batch.encoded)


def taken(queue: PartitionQueue) -> list[Batch]:
    """Everything that may leave now."""
    batches = []
    while queue.can_send:
        batches.append(take(queue))
    return batches


def test_sequences_follow_on_from_batch_to_batch(loop: asyncio.AbstractEventLoop, queue: PartitionQueue) -> None:
    queue.waiting.extend([filled(loop, b"a", b"b"), filled(loop, b"c")])
    first = take(queue)
    assert header_of(first).base_sequence == 0
    assert not queue.can_send
    queue.delivered(first)
    header = header_of(take(queue))
    assert (header.base_sequence, header.producer_id, header.record_count) == (2, 7, 1)


def test_a_retry_repeats_the_very_same_bytes(loop: asyncio.AbstractEventLoop, queue: PartitionQueue) -> None:
    queue.waiting.append(filled(loop, b"a"))
    batch = take(queue)
    sent = batch.encoded
    queue.send_again(batch)
    assert take(queue) is batch
    assert batch.encoded is sent


def test_sequences_wrap_at_the_largest(loop: asyncio.AbstractEventLoop) -> None:
    queue = PartitionQueue(PARTITION, IDENTITY, next_sequence=2**31 - 1)
    queue.waiting.extend([filled(loop, b"a", b"b"), filled(loop, b"c")])
    queue.delivered(take(queue))
    assert header_of(take(queue)).base_sequence == 1


def test_a_batch_that_was_certainly_not_written_leaves_its_sequence_to_the_next(
    loop: asyncio.AbstractEventLoop, queue: PartitionQueue
) -> None:
    queue.waiting.extend([filled(loop, b"a"), filled(loop, b"b")])
    queue.give_up(take(queue))
    assert header_of(take(queue)).base_sequence == 0
    assert queue.identity == IDENTITY


def test_a_batch_of_unknown_fate_ends_the_identity(loop: asyncio.AbstractEventLoop, queue: PartitionQueue) -> None:
    queue.waiting.extend([filled(loop, b"a"), filled(loop, b"b")])
    lost = take(queue)
    lost.answer_lost()
    queue.give_up(lost)
    assert queue.identity is None
    queue.continue_as(ProducerIdentity(8, 0))
    header = header_of(take(queue))
    assert (header.producer_id, header.base_sequence) == (8, 0)


def test_a_batch_that_is_sent_as_a_new_producer_is_encoded_anew(
    loop: asyncio.AbstractEventLoop, queue: PartitionQueue
) -> None:
    queue.waiting.extend([filled(loop, b"a"), filled(loop, b"b")])
    queue.delivered(take(queue))
    refused = take(queue)
    queue.send_again(refused)
    queue.begin_again()
    queue.continue_as(ProducerIdentity(8, 0))
    header = header_of(take(queue))
    assert (header.producer_id, header.base_sequence) == (8, 0)


def test_a_batch_too_large_becomes_two_in_order(loop: asyncio.AbstractEventLoop, queue: PartitionQueue) -> None:
    large = filled(loop, b"a", b"b", b"c")
    queue.waiting.extend([large, filled(loop, b"d")])
    take(queue)
    grown = queue.split(large)
    halves = [batch for batch in queue.waiting if isinstance(batch, RecordBatch)]
    assert [[record[2] for record in batch.records] for batch in halves] == [[b"a"], [b"b", b"c"], [b"d"]]
    assert halves[0].size_bytes + halves[1].size_bytes == large.size_bytes + grown
    sequences = []
    while queue.can_send:
        batch = take(queue)
        sequences.append(header_of(batch).base_sequence)
        queue.delivered(batch)
    assert sequences == [0, 1, 3]


def test_a_batch_in_flight_or_full_takes_no_more_records(
    loop: asyncio.AbstractEventLoop, queue: PartitionQueue
) -> None:
    queue.waiting.append(filled(loop, b"a"))
    assert queue.open_batch(30, 1_000) is queue.waiting[0]
    assert queue.open_batch(30, 100) is None
    batch = take(queue)
    assert queue.open_batch(30, 1_000) is None
    queue.send_again(batch)
    assert queue.open_batch(30, 1_000) is None


def test_a_batch_lingers_until_it_is_full_or_another_waits_behind_it(
    loop: asyncio.AbstractEventLoop, queue: PartitionQueue
) -> None:
    queue.waiting.append(filled(loop, b"a"))
    assert queue.due(1_000, linger_ms=5) == 0.005
    assert queue.due(80, linger_ms=5) == 0.0
    queue.waiting.append(filled(loop, b"b"))
    assert queue.due(1_000, linger_ms=5) == 0.0


def test_each_record_gets_its_own_offset(loop: asyncio.AbstractEventLoop) -> None:
    batch = filled(loop, b"a", b"b")
    batch.acknowledge(PARTITION, 40, -1)
    assert [future.result().offset for future in batch.futures] == [40, 41]
    assert batch.futures[0].result() == RecordMetadata("purchases", 0, 40, 1_000)


# Several in flight


def test_the_first_batch_travels_alone_and_then_five_at_once(
    loop: asyncio.AbstractEventLoop, bulk: PartitionQueue
) -> None:
    bulk.waiting.extend(finished(loop, b"%d" % number) for number in range(8))
    (first,) = taken(bulk)
    bulk.delivered(first)
    following = taken(bulk)
    assert [header_of(batch).base_sequence for batch in following] == [1, 2, 3, 4, 5]
    bulk.delivered(following[0])
    assert [header_of(batch).base_sequence for batch in taken(bulk)] == [6]


def test_what_comes_back_waits_for_the_others_and_leaves_first_in_its_old_order_one_at_a_time(
    loop: asyncio.AbstractEventLoop, bulk: PartitionQueue
) -> None:
    bulk.waiting.extend(finished(loop, b"%d" % number) for number in range(8))
    bulk.delivered(take(bulk))
    one, two, three, four, five = taken(bulk)
    bulk.delivered(one)
    bulk.send_again(three)
    assert not bulk.can_send
    bulk.send_again(two)
    bulk.send_again(five)
    bulk.delivered(four)  # an answer to a duplicate, say
    assert taken(bulk) == [two]
    bulk.delivered(two)
    assert taken(bulk)[:2] == [three, five]


def test_out_of_order_behind_a_refused_batch_is_a_consequence(
    loop: asyncio.AbstractEventLoop, bulk: PartitionQueue
) -> None:
    bulk.waiting.extend(finished(loop, b"%d" % number) for number in range(4))
    bulk.delivered(take(bulk))
    refused, behind, _ = taken(bulk)
    assert not bulk.is_consequence(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    bulk.send_again(refused)
    assert bulk.is_consequence(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert not bulk.is_consequence(ErrorCode.INVALID_PRODUCER_EPOCH)
    bulk.send_again(behind)
    assert not bulk.can_send


def test_what_is_dropped_gives_its_sequence_numbers_back_unless_it_may_be_written(
    loop: asyncio.AbstractEventLoop, queue: PartitionQueue
) -> None:
    queue.waiting.extend([filled(loop, b"a"), filled(loop, b"b"), filled(loop, b"c")])
    queue.delivered(take(queue))
    queue.send_again(take(queue))
    assert len(queue.drop_waiting()) == 2
    assert (queue.next_sequence, queue.identity, queue.is_idle) == (1, IDENTITY, True)
    queue.waiting.append(filled(loop, b"d"))
    lost = take(queue)
    lost.answer_lost()
    queue.send_again(lost)
    queue.drop_waiting()
    assert queue.identity is None


def test_retries_wait_longer_each_time_but_not_past_the_deadline_and_for_a_busy_coordinator_hardly_at_all(
    queue: PartitionQueue,
) -> None:
    waits = []
    for _ in range(7):
        queue.back_off(100.0, 100.7, NoLeader("purchases", 0))
        waits.append(round(queue.retry_at - 100.0, 3))
    assert waits == [0.05, 0.1, 0.2, 0.4, 0.7, 0.7, 0.7]
    queue.back_off(100.0, 200.0, BrokerError(ErrorCode.CONCURRENT_TRANSACTIONS, "batch"))
    assert round(queue.retry_at - 100.0, 3) == 0.02
