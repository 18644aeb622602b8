"""The unacknowledged batches of one partition: their order, producer identity and sequence numbers.

A `PartitionQueue` decides which batch may be sent next, with which identity and sequence it is retried, and how
sequence numbers continue after a loss, so that a retry neither reorders nor duplicates records. The sender owns the
clock and the network.
"""

import abc
import asyncio
import collections
from collections.abc import Iterable

from fencepost.client.cluster import BACKOFF_MAX_MS, BACKOFF_MIN_MS, CONCURRENT_BACKOFF_MS
from fencepost.client.errors import BrokerError, ClientError
from fencepost.client.kafka_types import ProducerIdentity, RecordMetadata
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
from fencepost.wire.errors import ErrorCode

RECORD_OVERHEAD_BYTES = 21
"""The most that a record's lengths and deltas take."""
_NOT_SENT = -1

Acknowledgement = asyncio.Future[RecordMetadata]


def size_of(record: NewRecord) -> int:
    """At most as many bytes as the record takes in a batch."""
    _, key, value, headers = record
    size = RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
    for name, content in headers:
        size += 10 + len(name) * 3 + len(content or b"")
    return size


def stamp_producer(batch: bytearray, identity: ProducerIdentity, base_sequence: int, transactional: bool) -> bytearray:
    """Write the producer's fields into the header of a finished batch, in place, with a new CRC."""
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


class Batch(abc.ABC):
    """A batch from its first record to its acknowledgement."""

    __slots__ = (
        "base_sequence",
        "created",
        "deadline",
        "encoded",
        "is_sealed",
        "may_be_written",
        "place",
        "size_bytes",
    )

    def __init__(self, created: float, deadline: float, size_bytes: int) -> None:
        self.created = created
        self.deadline = deadline
        self.size_bytes = size_bytes
        self.is_sealed = False
        """It takes no more records."""
        self.place = _NOT_SENT
        """Its position in the sending order. Sequence numbers cannot tell, because they wrap around."""
        self.base_sequence = _NOT_SENT
        self.encoded: bytearray | None = None
        """Encoded once, so that a retry repeats identity and sequence exactly."""
        self.may_be_written = False
        """An answer was lost: the broker may have the batch."""

    def answer_lost(self) -> None:
        self.may_be_written = True

    @property
    @abc.abstractmethod
    def record_count(self) -> int: ...

    @abc.abstractmethod
    def encode(self, identity: ProducerIdentity, codec: int, transactional: bool) -> bytearray: ...

    @abc.abstractmethod
    def acknowledge(self, partition: TopicPartition, base_offset: int, log_append_time_ms: int) -> None: ...

    @abc.abstractmethod
    def fail(self, error: Exception) -> None: ...


class RecordBatch(Batch):
    """Records of an application, encoded when the batch is sent. Each has its own acknowledgement."""

    __slots__ = ("futures", "records")

    def __init__(
        self,
        created: float,
        deadline: float,
        records: list[NewRecord] | None = None,
        futures: list[Acknowledgement] | None = None,
    ) -> None:
        self.records = [] if records is None else records
        self.futures = [] if futures is None else futures
        super().__init__(created, deadline, HEADER_BYTES + sum(map(size_of, self.records)))

    @property
    def record_count(self) -> int:
        return len(self.records)

    def add(self, record: NewRecord, size_bytes: int, future: Acknowledgement) -> None:
        self.records.append(record)
        self.futures.append(future)
        self.size_bytes += size_bytes

    def encode(self, identity: ProducerIdentity, codec: int, transactional: bool) -> bytearray:
        return build_batch(
            self.records,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=self.base_sequence,
            transactional=transactional,
            compression=codec,
        )

    def split(self) -> tuple["RecordBatch", "RecordBatch"]:
        """Two batches with the same records, in the same place of the order."""
        middle = len(self.records) // 2
        first = RecordBatch(self.created, self.deadline, self.records[:middle], self.futures[:middle])
        second = RecordBatch(self.created, self.deadline, self.records[middle:], self.futures[middle:])
        for half, sequence in ((first, self.base_sequence), (second, self.base_sequence + middle)):
            half.is_sealed = True
            half.place = self.place
            half.base_sequence = sequence & SEQUENCE_MAX
        return first, second

    def acknowledge(self, partition: TopicPartition, base_offset: int, log_append_time_ms: int) -> None:
        topic, index = partition
        for position, (record, future) in enumerate(zip(self.records, self.futures, strict=True)):
            if not future.done():
                offset = base_offset + position if base_offset >= 0 else -1
                timestamp_ms = record[0] if log_append_time_ms < 0 else log_append_time_ms
                future.set_result(RecordMetadata(topic, index, offset, timestamp_ms))

    def fail(self, error: Exception) -> None:
        for future in self.futures:
            _fail_future(future, error)


class FinishedBatch(Batch):
    """A batch that was encoded elsewhere; only the producer's fields are written into it. One acknowledgement."""

    __slots__ = ("_data", "_future", "_record_count")

    def __init__(self, created: float, deadline: float, data: bytearray, future: Acknowledgement) -> None:
        super().__init__(created, deadline, len(data))
        self._data = data
        self._future = future
        self._record_count = read_header(data).record_count
        self.is_sealed = True

    @property
    def record_count(self) -> int:
        return self._record_count

    def encode(self, identity: ProducerIdentity, codec: int, transactional: bool) -> bytearray:
        return stamp_producer(self._data, identity, self.base_sequence, transactional)

    def acknowledge(self, partition: TopicPartition, base_offset: int, log_append_time_ms: int) -> None:
        if not self._future.done():
            timestamp_ms = read_header(self._data).base_timestamp if log_append_time_ms < 0 else log_append_time_ms
            self._future.set_result(RecordMetadata(*partition, base_offset, timestamp_ms))

    def fail(self, error: Exception) -> None:
        _fail_future(self._future, error)


def _fail_future(future: Acknowledgement, error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
        # A caller that only flushes gets the error there, so asyncio need not report it as unhandled.
        future.exception()


class PartitionQueue:
    """The batches of one partition: waiting, in flight, and to be retried."""

    def __init__(
        self, partition: TopicPartition, identity: ProducerIdentity, next_sequence: int = 0, in_flight_max: int = 1
    ) -> None:
        self.partition = partition
        self.identity: ProducerIdentity | None = identity
        """None after a loss: a new identity is needed before anything else is sent."""
        self.next_sequence = next_sequence
        self.waiting: collections.deque[Batch] = collections.deque()
        self.in_flight: list[Batch] = []
        self.is_held = False
        """The queue is held until pending work is done."""
        self.retry_at = 0.0
        self._returned: list[Batch] = []
        self._in_flight_max = in_flight_max
        self._is_confirmed = False
        self._departures = 0
        self._backoff_ms = 0.0

    @property
    def is_idle(self) -> bool:
        return not (self.waiting or self.in_flight or self._returned or self.is_held)

    @property
    def can_send(self) -> bool:
        if not self.waiting or self._returned or self.is_held:
            return False
        return len(self.in_flight) < (self._in_flight_max if self._is_confirmed else 1)

    def append(self, batch: Batch) -> None:
        self.waiting.append(batch)

    def hold(self) -> None:
        """Sends nothing until `release`."""
        self.is_held = True

    def release(self) -> None:
        self.is_held = False

    def continue_as(self, identity: ProducerIdentity) -> None:
        """After a loss: with a new identity, whose sequence numbers begin at 0."""
        assert self.identity is None
        self.identity = identity

    def due(self, batch_bytes: int, linger_ms: int) -> float:
        """When the first batch should be sent; 0.0 for immediately."""
        head = self.waiting[0]
        if head.is_sealed or len(self.waiting) > 1 or head.size_bytes >= batch_bytes:
            return self.retry_at
        return max(self.retry_at, head.created + linger_ms / 1000)

    def open_batch(self, size_bytes: int, batch_bytes: int) -> RecordBatch | None:
        """The batch that can take a record of this size, if there is one."""
        if not self.waiting:
            return None
        last = self.waiting[-1]
        if last.is_sealed or last.size_bytes + size_bytes > batch_bytes:
            return None
        assert isinstance(last, RecordBatch)
        return last

    def take(self, codec: int, transactional: bool) -> Batch:
        """Takes the first batch, encoded and marked as in flight."""
        assert self.identity is not None
        batch = self.waiting[0]
        if batch.encoded is None:
            batch.is_sealed = True
            is_first_departure = batch.base_sequence == _NOT_SENT
            if is_first_departure:
                batch.base_sequence = self.next_sequence
            batch.encoded = batch.encode(self.identity, codec, transactional)
            if is_first_departure:
                batch.place = self._departures
                self._departures += 1
                self.next_sequence = (self.next_sequence + batch.record_count) & SEQUENCE_MAX
        self.in_flight.append(self.waiting.popleft())
        return batch

    # What the answer to a batch in flight brought

    def delivered(self, batch: Batch) -> None:
        self.in_flight.remove(batch)
        if not self._returned:
            self._is_confirmed = True
            self._backoff_ms = self.retry_at = 0.0
        self._gather_returned()

    def is_consequence(self, code: ErrorCode) -> bool:
        """After a refused batch, the following ones are out of order. That is not an error of their own."""
        return code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and bool(self._returned)

    def send_again(self, batch: Batch) -> None:
        self.in_flight.remove(batch)
        self._return([batch])

    def split(self, batch: RecordBatch) -> int:
        """Replaces a batch that was too large by two halves. Returns the number of bytes by which the buffer grows."""
        self.in_flight.remove(batch)
        halves = batch.split()
        self._return(halves)
        return halves[0].size_bytes + halves[1].size_bytes - batch.size_bytes

    def _return(self, batches: Iterable[Batch]) -> None:
        self._returned.extend(batches)
        self._is_confirmed = False
        self._gather_returned()

    def _gather_returned(self) -> None:
        """When nothing is in flight any more, the returned batches are sent first, in their old order."""
        if self._returned and not self.in_flight:
            self._returned.sort(key=lambda batch: batch.place)
            self.waiting.extendleft(reversed(self._returned))
            self._returned.clear()

    def give_up(self, batch: Batch) -> None:
        """Drop a batch that waits or is in flight. If the broker may have it, the next sequence number is unknown."""
        if batch in self.in_flight:
            self.in_flight.remove(batch)
        else:
            self.waiting.remove(batch)
        if batch.may_be_written:
            self.begin_again()
        elif batch.base_sequence != _NOT_SENT:
            self.next_sequence = batch.base_sequence
        self._gather_returned()

    def drop_waiting(self) -> list[Batch]:
        """Drop everything that is not in flight, in order."""
        dropped = sorted(self._returned, key=lambda batch: batch.place) + list(self.waiting)
        self._returned.clear()
        self.waiting.clear()
        sent = [batch for batch in dropped if batch.base_sequence != _NOT_SENT]
        if any(batch.may_be_written for batch in sent):
            self.begin_again()
        elif sent:
            self.next_sequence = sent[0].base_sequence
        return dropped

    def begin_again(self) -> None:
        """Continue as a new producer, whose sequence numbers begin at 0."""
        self.identity = None
        self.next_sequence = 0
        for batch in (*self._returned, *self.waiting):
            batch.encoded = None
            batch.base_sequence = _NOT_SENT

    def back_off(self, now: float, deadline: float, error: ClientError) -> None:
        if isinstance(error, BrokerError) and error.code == ErrorCode.CONCURRENT_TRANSACTIONS:
            # The previous transaction is being completed, which takes milliseconds.
            self._backoff_ms = CONCURRENT_BACKOFF_MS
        else:
            self._backoff_ms = min(max(self._backoff_ms * 2, BACKOFF_MIN_MS), BACKOFF_MAX_MS)
        self.retry_at = min(now + self._backoff_ms / 1000, deadline)
