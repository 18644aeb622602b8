"""Sequence numbers and order of one partition's batches, through acknowledgements, splits and lost answers."""

import asyncio
from collections.abc import Iterator

import pytest

from fencepost.client.accumulator import Batch, PartitionQueue, ProducerIdentity, size_of
from fencepost.client.values import RecordMetadata
from fencepost.topic_partition import TopicPartition
from fencepost.wire.batch import NewRecord, read_header

PARTITION = TopicPartition("purchases", 0)


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture
def queue() -> PartitionQueue:
    return PartitionQueue(PARTITION, ProducerIdentity(7, 0))


def filled(loop: asyncio.AbstractEventLoop, *values: bytes) -> Batch:
    batch = Batch(created=0.0, deadline=120.0)
    for value in values:
        record: NewRecord = (1_000, None, value, ())
        batch.add(record, size_of(record), loop.create_future())
    return batch


def test_sequences_follow_on_as_batches_are_acknowledged(
    loop: asyncio.AbstractEventLoop, queue: PartitionQueue
) -> None:
    queue.batches.extend([filled(loop, b"a", b"b"), filled(loop, b"c")])
    assert read_header(queue.encode_head(0)).base_sequence == 0
    queue.acknowledged()
    header = read_header(queue.encode_head(0))
    assert (header.base_sequence, header.producer_id, header.record_count) == (2, 7, 1)


def test_a_retry_repeats_the_very_same_bytes(loop: asyncio.AbstractEventLoop, queue: PartitionQueue) -> None:
    queue.batches.append(filled(loop, b"a"))
    assert queue.encode_head(0) is queue.encode_head(0)


def test_sequences_wrap_at_the_largest(loop: asyncio.AbstractEventLoop, queue: PartitionQueue) -> None:
    queue.next_sequence = 2**31 - 1
    queue.batches.extend([filled(loop, b"a", b"b"), filled(loop, b"c")])
    queue.encode_head(0)
    queue.acknowledged()
    assert read_header(queue.encode_head(0)).base_sequence == 1


def test_a_batch_that_was_certainly_not_written_leaves_its_sequence_to_the_next(
    loop: asyncio.AbstractEventLoop, queue: PartitionQueue
) -> None:
    queue.batches.extend([filled(loop, b"a"), filled(loop, b"b")])
    queue.encode_head(0)
    queue.give_up()
    assert read_header(queue.encode_head(0)).base_sequence == 0
    assert queue.identity == ProducerIdentity(7, 0)


def test_a_batch_of_unknown_fate_ends_the_identity(loop: asyncio.AbstractEventLoop, queue: PartitionQueue) -> None:
    queue.batches.extend([filled(loop, b"a"), filled(loop, b"b")])
    queue.encode_head(0)
    queue.batches[0].may_be_written = True
    queue.give_up()
    assert queue.identity is None
    queue.identity = ProducerIdentity(8, 0)
    header = read_header(queue.encode_head(0))
    assert (header.producer_id, header.base_sequence) == (8, 0)


def test_a_batch_too_large_becomes_two_in_order(loop: asyncio.AbstractEventLoop, queue: PartitionQueue) -> None:
    queue.batches.append(filled(loop, b"a", b"b", b"c"))
    queue.encode_head(0)
    queue.split_head()
    assert [[record[2] for record in batch.records] for batch in queue.batches] == [[b"a"], [b"b", b"c"]]
    assert read_header(queue.encode_head(0)).base_sequence == 0
    queue.acknowledged()
    assert read_header(queue.encode_head(0)).base_sequence == 1


def test_a_batch_in_flight_or_sealed_takes_no_more_records(
    loop: asyncio.AbstractEventLoop, queue: PartitionQueue
) -> None:
    queue.batches.append(filled(loop, b"a"))
    assert queue.open_batch(30, 1_000) is queue.batches[0]
    assert queue.open_batch(30, 100) is None
    queue.is_in_flight = True
    assert queue.open_batch(30, 1_000) is None


def test_each_record_learns_its_own_offset(loop: asyncio.AbstractEventLoop) -> None:
    batch = filled(loop, b"a", b"b")
    batch.acknowledge(PARTITION, 40, -1)
    assert [future.result().offset for future in batch.futures] == [40, 41]
    assert batch.futures[0].result() == RecordMetadata("purchases", 0, 40, 1_000)
