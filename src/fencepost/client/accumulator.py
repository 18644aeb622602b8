"""Records on their way to one partition: batches in order, their producer identity and their sequence numbers.

One batch of a partition is in flight at a time, so order and sequences hold through any retry, and batches grow while
they wait. Pure bookkeeping: the producer owns the clock and the network.
"""

import asyncio
import collections
import dataclasses

from fencepost.client.values import RecordMetadata
from fencepost.topic_partition import TopicPartition
from fencepost.wire.batch import (
    HEADER,
    HEADER_BYTES,
    SEQUENCE_MAX,
    TRANSACTIONAL_MASK,
    NewRecord,
    build_batch,
    read_header,
    seal,
)

RECORD_OVERHEAD_BYTES = 21
"""The most a record's lengths and deltas take."""
BATCH_OVERHEAD_BYTES = 61


@dataclasses.dataclass(frozen=True, slots=True)
class ProducerIdentity:
    producer_id: int
    producer_epoch: int


def size_of(record: NewRecord) -> int:
    _, key, value, headers = record
    size = RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
    for name, content in headers:
        size += 10 + len(name) * 3 + len(content or b"")
    return size


def stamp_producer(batch: bytearray, identity: ProducerIdentity, base_sequence: int, transactional: bool) -> bytearray:
    """Write who sends a finished batch into its header; in place, with a new CRC."""
    header = read_header(batch)
    assert header.size_bytes == len(batch) > HEADER_BYTES, "exactly one whole batch"
    HEADER.pack_into(
        batch,
        0,
        *header._replace(
            attributes=header.attributes | (TRANSACTIONAL_MASK if transactional else 0),
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=base_sequence,
        ),
    )
    seal(batch, 0, len(batch))
    return batch


@dataclasses.dataclass(slots=True, eq=False)
class Batch:
    created: float
    deadline: float
    records: list[NewRecord] = dataclasses.field(default_factory=list)
    futures: list["asyncio.Future[RecordMetadata]"] = dataclasses.field(default_factory=list)
    size_bytes: int = BATCH_OVERHEAD_BYTES
    attempts: int = 0
    may_be_written: bool = False
    """An answer was lost: whether the broker has the batch is not known."""
    encoded: bytearray | None = None
    base_sequence: int = -1
    is_sealed: bool = False
    raw: bytearray | None = None
    """A batch that was encoded elsewhere; only the producer's fields are written into it. It has one future."""
    raw_count: int = 0

    @property
    def record_count(self) -> int:
        return len(self.records) if self.raw is None else self.raw_count

    @property
    def may_be_split(self) -> bool:
        return len(self.records) > 1

    def add(self, record: NewRecord, size_bytes: int, future: "asyncio.Future[RecordMetadata]") -> None:
        self.records.append(record)
        self.futures.append(future)
        self.size_bytes += size_bytes

    def split(self) -> tuple["Batch", "Batch"]:
        middle = len(self.records) // 2
        halves = []
        for part in (slice(None, middle), slice(middle, None)):
            half = Batch(self.created, self.deadline, self.records[part], self.futures[part], is_sealed=True)
            half.size_bytes += sum(map(size_of, half.records))
            halves.append(half)
        return halves[0], halves[1]

    def acknowledge(self, partition: TopicPartition, base_offset: int, log_append_time_ms: int) -> None:
        if self.raw is not None:
            timestamp_ms = read_header(self.raw).base_timestamp if log_append_time_ms < 0 else log_append_time_ms
            if not self.futures[0].done():
                self.futures[0].set_result(
                    RecordMetadata(partition.topic, partition.partition, base_offset, timestamp_ms)
                )
            return
        for index, (record, future) in enumerate(zip(self.records, self.futures, strict=True)):
            if not future.done():
                offset = base_offset + index if base_offset >= 0 else -1
                timestamp_ms = record[0] if log_append_time_ms < 0 else log_append_time_ms
                future.set_result(RecordMetadata(partition.topic, partition.partition, offset, timestamp_ms))

    def fail(self, error: Exception) -> None:
        for future in self.futures:
            if not future.done():
                future.set_exception(error)
                # Whoever only flushes still learns of the failure there; asyncio need not complain as well.
                future.exception()


class PartitionQueue:
    """The batches of one partition. The head is the one that is sent, or sent again; only the last takes records."""

    def __init__(self, partition: TopicPartition, identity: ProducerIdentity) -> None:
        self.partition = partition
        self.identity: ProducerIdentity | None = identity
        self.next_sequence = 0
        self.batches: collections.deque[Batch] = collections.deque()
        self.is_in_flight = False
        self.retry_at = 0.0
        self.backoff_ms = 0.0

    def open_batch(self, size_bytes: int, batch_bytes: int) -> Batch | None:
        """The batch that can take a record of this size, if there is one."""
        if not self.batches:
            return None
        last = self.batches[-1]
        if last.is_sealed or (self.is_in_flight and len(self.batches) == 1):
            return None
        return last if last.size_bytes + size_bytes <= batch_bytes else None

    def encode_head(self, codec: int, transactional: bool = False) -> bytearray:
        """The head's bytes: made once, so that a retry repeats identity and sequence exactly."""
        head = self.batches[0]
        if head.encoded is None:
            assert self.identity is not None
            head.is_sealed = True
            head.base_sequence = self.next_sequence
            if head.raw is not None:
                head.encoded = stamp_producer(head.raw, self.identity, head.base_sequence, transactional)
            else:
                head.encoded = build_batch(
                    head.records,
                    producer_id=self.identity.producer_id,
                    producer_epoch=self.identity.producer_epoch,
                    base_sequence=head.base_sequence,
                    transactional=transactional,
                    compression=codec,
                )
        return head.encoded

    def acknowledged(self) -> Batch:
        head = self.batches.popleft()
        self.next_sequence = (head.base_sequence + head.record_count) & SEQUENCE_MAX
        return head

    def give_up(self) -> Batch:
        """Drop the head. If the broker may have it, the sequence that follows is unknown: begin a new identity."""
        head = self.batches.popleft()
        if head.may_be_written:
            self.begin_again()
        return head

    def begin_again(self) -> None:
        """A new producer identity, asked for before the next batch is encoded; it starts at sequence 0."""
        self.identity = None
        self.next_sequence = 0
        if self.batches:
            self.batches[0].encoded = None

    def split_head(self) -> None:
        first, second = self.batches.popleft().split()
        self.batches.extendleft((second, first))
