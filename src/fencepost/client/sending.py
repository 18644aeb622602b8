"""The send path: sends records and finished batches to the leaders of their partitions.

The `Sender` gathers records into batches, bounds what is buffered, and sends each batch until the broker has
acknowledged it or its time is up. Every producer sends through it. What differs between an idempotent producer and a
transaction (who sends, what must happen first, what an error means) is the decision of a `ProducerRole`.

Most producers have one batch of a partition in flight, so that batches grow while they wait. A bulk writer of finished
batches has several (`BULK`). A partition's first batch travels alone even then, because the coordinator may still be
completing the previous transaction. After an error the partition goes back to one batch at a time until the broker has
accepted the oldest one; the broker recognizes those it already has. At most five are in flight, because that is how
many a broker remembers.
"""

import abc
import asyncio
import collections
import dataclasses
import enum
import functools
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from typing import Any, Protocol

from fencepost.client.apis import Api
from fencepost.client.cluster import Cluster
from fencepost.client.connection import Connection, SentRequest
from fencepost.client.errors import (
    STALE_LEADER,
    BrokerError,
    ClientClosed,
    ClientError,
    DeliveryFailed,
    NoLeader,
    UnknownPartition,
)
from fencepost.client.kafka_types import ProducerIdentity, TopicMetadata
from fencepost.client.partition_queue import Acknowledgement, Batch, FinishedBatch, PartitionQueue, RecordBatch, size_of
from fencepost.client.partitioner import StickyPartitioner, partition_of_key
from fencepost.topic_partition import TopicPartition
from fencepost.wire import messages
from fencepost.wire.batch import NewRecord
from fencepost.wire.compression import Codec
from fencepost.wire.errors import ErrorCode, error_code

BATCH_BYTES = 256 * 1024
BUFFER_BYTES_MAX = 32 * 1024 * 1024
BULK_BUFFER_BYTES_MAX = 24 * 1024 * 1024
LINGER_MS = 2
DELIVERY_TIMEOUT_MS = 120_000
REQUEST_BYTES_MAX = 1024 * 1024
REQUESTS_PER_BROKER_MAX = 5
BATCHES_IN_FLIGHT_MAX = 5
FINISHED_BATCH_WEIGHT = 250
"""The weight of a finished batch, in records, when the sends of a blocking caller are limited."""

_DELIVERED = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})
_MAY_BE_WRITTEN = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND})
_PartitionData = messages.ProduceRequest.TopicProduceData.PartitionProduceData


@dataclasses.dataclass(frozen=True, slots=True)
class Sending:
    """How records are gathered and sent."""

    compression: Codec = Codec.NONE
    batch_bytes: int = BATCH_BYTES
    linger_ms: int = LINGER_MS
    buffer_bytes_max: int = BUFFER_BYTES_MAX
    delivery_timeout_ms: int = DELIVERY_TIMEOUT_MS
    in_flight_per_partition: int = 1
    """At most five; more than one only in a transaction, where a failed batch stops all those behind it."""

    def __post_init__(self) -> None:
        assert 1 <= self.in_flight_per_partition <= BATCHES_IN_FLIGHT_MAX


BULK = Sending(buffer_bytes_max=BULK_BUFFER_BYTES_MAX, in_flight_per_partition=BATCHES_IN_FLIGHT_MAX)
"""For writers of large finished batches in a transaction."""


class Fate(enum.Enum):
    """What becomes of a batch that the broker refused."""

    RETRY = enum.auto()
    RETRY_AS_NEW_PRODUCER = enum.auto()
    FAIL = enum.auto()


class ProducerRole(Protocol):
    """Decides what differs between an idempotent producer and a transaction."""

    @property
    def transactional_id(self) -> str | None: ...

    @property
    def produce_api(self) -> Api[messages.ProduceRequest, messages.ProduceResponse]: ...

    def starting_point(self, partition: TopicPartition) -> tuple[ProducerIdentity, int]:
        """The identity and the first sequence number of a partition."""

    def may_write(self, partition: TopicPartition) -> bool:
        """Whether batches may be sent to the partition. If not, `admit` is called first."""

    async def admit(self, partitions: Collection[TopicPartition]) -> None:
        """Registers these partitions with the coordinator before they are written."""

    async def new_identity(self) -> ProducerIdentity:
        """An identity for a partition whose sequence numbers were lost."""

    def fate(self, error: BrokerError, *, may_be_written: bool) -> Fate: ...

    def delivery_failed(self, failure: DeliveryFailed) -> ClientError | None:
        """Called when a batch is given up. If it returns an error, everything else is stopped."""


@dataclasses.dataclass(slots=True, eq=False)
class _BrokerLink:
    """The pending requests to one broker. A connection keeps their order; before another is used, they must be
    answered."""

    connection: Connection | None = None
    requests: int = 0


class Sender:
    """Sends in the background from `run` to `halt`."""

    def __init__(self, cluster: Cluster, sending: Sending, role: ProducerRole) -> None:
        self._cluster = cluster
        self._sending = sending
        self._role = role
        self._sticky = StickyPartitioner(sending.batch_bytes)
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._busy: dict[TopicPartition, PartitionQueue] = {}
        self._links: collections.defaultdict[int, _BrokerLink] = collections.defaultdict(_BrokerLink)
        self._buffered_bytes = 0
        self._flushing = 0
        self._stopped_by: ClientError | None = None
        self._progress = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._look: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.has_sent = False
        """Whether a request was sent since `resume`."""

    # Starting and stopping

    @property
    def is_running(self) -> bool:
        return self._loop is not None

    @property
    def _running_loop(self) -> asyncio.AbstractEventLoop:
        assert self._loop is not None
        return self._loop

    def run(self) -> None:
        self._loop = asyncio.get_running_loop()

    def halt(self) -> None:
        """Stops immediately; what is buffered fails."""
        self._loop = None
        for handle in (self._look, self._timer):
            if handle is not None:
                handle.cancel()
        for task in self._tasks:
            task.cancel()
        for queue in self._busy.values():
            for batch in (*queue.in_flight, *queue.drop_waiting()):
                batch.fail(ClientClosed())
        self._busy.clear()
        self._progress.set()

    async def stop(self, reason: ClientError) -> None:
        """Fails what was not sent yet with `reason` and waits for the rest. Accepts nothing until `resume`."""
        self._stop_taking(reason, lambda partition, batch: reason)
        await self.drain()

    def resume(self) -> None:
        self._stopped_by = None
        self.has_sent = False

    async def drain(self) -> None:
        """Wait until everything buffered is acknowledged or has failed."""
        self._flushing += 1
        try:
            self._look_soon()
            while self._busy:
                await self._wait_for_progress()
        finally:
            self._flushing -= 1

    @property
    def sequences(self) -> dict[TopicPartition, int]:
        """The next sequence number of each partition."""
        return {partition: queue.next_sequence for partition, queue in self._queues.items()}

    def forget_sequences(self) -> None:
        """Starts every partition again with a new identity. Nothing may be buffered."""
        assert not self._busy
        self._queues.clear()

    # Accepting records

    async def add(self, topic: str, record: NewRecord, partition: int | None) -> Acknowledgement:
        """Buffer a record. Waits only for metadata and for room."""
        size_bytes = size_of(record)
        queue = await self._queue_with_room(topic, record[1], partition, size_bytes)
        future: Acknowledgement = self._running_loop.create_future()
        batch = queue.open_batch(size_bytes, self._sending.batch_bytes)
        if batch is not None:
            batch.add(record, size_bytes, future)
            self._buffered_bytes += size_bytes
            return future
        batch = RecordBatch(*self._times())
        batch.add(record, size_bytes, future)
        self._enqueue(queue, batch)
        if len(queue.waiting) > 1 or queue.in_flight:
            # A full batch is waiting: send it while the caller fills the next one.
            await asyncio.sleep(0)
        return future

    async def add_batch(self, topic: str, partition: int, data: bytearray) -> Acknowledgement:
        """Buffer a finished batch. Waits only for metadata and for room."""
        queue = await self._queue_with_room(topic, None, partition, len(data))
        future: Acknowledgement = self._running_loop.create_future()
        self._enqueue(queue, FinishedBatch(*self._times(), data, future))
        return future

    async def _queue_with_room(
        self, topic: str, key: bytes | None, partition: int | None, size_bytes: int
    ) -> PartitionQueue:
        self._check_taking()
        metadata = self._cluster.cached_topic(topic) or await self._cluster.topic(topic)
        chosen = TopicPartition(topic, self._choose(metadata, key, partition, size_bytes))
        if not self._has_room(size_bytes):
            self._look_soon()
            while not self._has_room(size_bytes):
                await self._wait_for_progress()
        self._check_taking()
        return self._queues.get(chosen) or self._new_queue(chosen)

    def _check_taking(self) -> None:
        if self._loop is None:
            raise ClientClosed
        if self._stopped_by is not None:
            raise self._stopped_by

    def _choose(self, metadata: TopicMetadata, key: bytes | None, partition: int | None, size_bytes: int) -> int:
        count = len(metadata.partitions)
        if partition is not None:
            if partition not in metadata.partitions:
                raise UnknownPartition(metadata.name, partition, count)
            return partition
        if key is not None:
            return partition_of_key(key, count)
        led = [index for index, found in metadata.partitions.items() if found.leader >= 0]
        return self._sticky.partition(metadata.name, led or list(metadata.partitions), size_bytes)

    def _has_room(self, size_bytes: int) -> bool:
        return not self._buffered_bytes or self._buffered_bytes + size_bytes <= self._sending.buffer_bytes_max

    async def _wait_for_progress(self) -> None:
        self._progress.clear()
        await self._progress.wait()

    def _new_queue(self, partition: TopicPartition) -> PartitionQueue:
        identity, sequence = self._role.starting_point(partition)
        queue = PartitionQueue(partition, identity, sequence, self._sending.in_flight_per_partition)
        self._queues[partition] = queue
        return queue

    def _times(self) -> tuple[float, float]:
        now = self._running_loop.time()
        return now, now + self._sending.delivery_timeout_ms / 1000

    def _enqueue(self, queue: PartitionQueue, batch: Batch) -> None:
        queue.append(batch)
        self._buffered_bytes += batch.size_bytes
        self._busy[queue.partition] = queue
        self._look_soon()

    # Sending

    def _look_soon(self) -> None:
        if self._look is None and self._loop is not None:
            self._look = self._loop.call_soon(self._send_what_is_due)

    def _look_now(self) -> None:
        if self._look is not None:
            self._look.cancel()
        if self._loop is not None:
            self._send_what_is_due()

    def _send_what_is_due(self) -> None:
        """Sends every request that can be sent now, and schedules the next check."""
        self._look = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self._running_loop.time()
        by_leader: dict[int, list[PartitionQueue]] = collections.defaultdict(list)
        look_again: float | None = None
        for queue in self._busy.values():
            if not queue.can_send:
                continue
            due = self._due(queue)
            if due > now:
                look_again = due if look_again is None else min(due, look_again)
                continue
            metadata = self._cluster.cached_topic(queue.partition.topic)
            found = metadata.partitions.get(queue.partition.partition) if metadata is not None else None
            by_leader[-1 if found is None else found.leader].append(queue)
        for leader, queues in by_leader.items():
            if leader < 0:
                for queue in queues:
                    self._hold([queue], functools.partial(self._find_leader, queue))
            else:
                self._send_to(leader, queues, now)
        if look_again is not None:
            self._timer = self._running_loop.call_at(look_again, self._look_soon)

    def _due(self, queue: PartitionQueue) -> float:
        return queue.due(self._sending.batch_bytes, 0 if self._flushing else self._sending.linger_ms)

    def _send_to(self, leader: int, queues: list[PartitionQueue], now: float) -> None:
        link = self._links[leader]
        if link.requests >= REQUESTS_PER_BROKER_MAX:
            return
        connection = self._cluster.open_connection_to(leader)
        if connection is None:
            self._hold(queues, functools.partial(self._connect, leader, queues))
            return
        if link.connection is not connection:
            if link.requests:
                return
            link.connection = connection
        ready: list[PartitionQueue] = []
        unready: list[PartitionQueue] = []
        for queue in queues:
            is_ready = queue.identity is not None and self._role.may_write(queue.partition)
            (ready if is_ready else unready).append(queue)
        if unready:
            self._hold(unready, functools.partial(self._prepare, unready))
        while ready and link.requests < REQUESTS_PER_BROKER_MAX:
            taken, ready = self._fill_request(ready)
            if taken:
                self._send_request(link, connection, taken)
            ready = [queue for queue in ready if queue.can_send and self._due(queue) <= now]

    def _fill_request(
        self, queues: list[PartitionQueue]
    ) -> tuple[list[tuple[PartitionQueue, Batch]], list[PartitionQueue]]:
        """Takes one batch of each queue, as far as the request has room. Returns also the queues in the order of their
        next turns."""
        taken: list[tuple[PartitionQueue, Batch]] = []
        size_bytes = served = 0
        for queue in queues:
            if not queue.can_send:  # a batch that could not be encoded has stopped the sender
                break
            size_bytes += queue.waiting[0].size_bytes
            if taken and size_bytes > REQUEST_BYTES_MAX:
                break
            served += 1
            try:
                batch = queue.take(self._sending.compression, self._role.transactional_id is not None)
            except Exception as error:
                # The records cannot be encoded. Nothing was sent, and retrying would not help.
                self._fail(queue, queue.waiting[0], error)
            else:
                taken.append((queue, batch))
        return taken, queues[served:] + queues[:served]

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _send_request(
        self, link: _BrokerLink, connection: Connection, taken: Sequence[tuple[PartitionQueue, Batch]]
    ) -> None:
        self.has_sent = True
        try:
            sent = connection.send(self._role.produce_api, self._request(taken))
        except ClientError as error:
            for queue, batch in taken:
                self._not_answered(queue, batch, error)
            self._look_soon()
            return
        link.requests += 1
        self._start(self._receive(link, connection, sent, taken))

    async def _receive(
        self,
        link: _BrokerLink,
        connection: Connection,
        sent: SentRequest[messages.ProduceResponse],
        taken: Sequence[tuple[PartitionQueue, Batch]],
    ) -> None:
        failure: ClientError | None = None
        results: dict[tuple[str, int], Any] = {}
        try:
            answer = await connection.answer(sent, self._cluster.request_timeout_ms)
            results = {
                (topic.name, result.index): result for topic in answer.responses for result in topic.partition_responses
            }
        except ClientError as error:
            failure = error
        link.requests -= 1
        for queue, batch in taken:
            result = results.get(queue.partition)
            if result is None:
                self._not_answered(queue, batch, failure)
            else:
                self._answered(queue, batch, result)
        self._look_soon()

    def _request(self, taken: Sequence[tuple[PartitionQueue, Batch]]) -> messages.ProduceRequest:
        by_topic: dict[str, list[_PartitionData]] = collections.defaultdict(list)
        for queue, batch in taken:
            topic, index = queue.partition
            by_topic[topic].append(_PartitionData(index=index, records=batch.encoded))
        return messages.ProduceRequest(
            transactional_id=self._role.transactional_id,
            acks=-1,
            timeout_ms=self._cluster.request_timeout_ms,
            topic_data=[
                messages.ProduceRequest.TopicProduceData(name=name, partition_data=data)
                for name, data in by_topic.items()
            ],
        )

    # Before a batch can be sent

    def _hold(self, queues: Sequence[PartitionQueue], work: Callable[[], Awaitable[None]]) -> None:
        """Holds these queues while `work` prepares what their batches need to be sent."""
        for queue in queues:
            queue.hold()
        self._start(self._release_after(queues, work))

    async def _release_after(self, queues: Sequence[PartitionQueue], work: Callable[[], Awaitable[None]]) -> None:
        failure: Exception | None = None
        try:
            await work()
        except Exception as error:
            failure = error
        for queue in queues:
            queue.release()
            # An abort may have emptied it meanwhile.
            if failure is not None and queue.waiting:
                if isinstance(failure, ClientError):
                    self._retry_or_fail(queue, queue.waiting[0], failure)
                else:
                    self._fail(queue, queue.waiting[0], failure)
            self._tidy(queue)
        self._look_now()

    async def _find_leader(self, queue: PartitionQueue) -> None:
        try:
            await self._cluster.leader(queue.partition.topic, queue.partition.partition)
        except ClientError as error:
            is_late = bool(queue.waiting) and queue.waiting[0].deadline <= asyncio.get_running_loop().time()
            if is_late or not error.is_retriable:
                raise
            raise NoLeader(queue.partition.topic, queue.partition.partition) from error

    async def _connect(self, leader: int, queues: Sequence[PartitionQueue]) -> None:
        try:
            await self._cluster.connection_to(leader)
        except ClientError:
            for queue in queues:
                self._cluster.forget_topic(queue.partition.topic)
            raise

    async def _prepare(self, queues: Sequence[PartitionQueue]) -> None:
        for queue in queues:
            if queue.identity is None:
                queue.continue_as(await self._role.new_identity())
        # The same call admits all other waiting queues.
        await self._role.admit(list(self._busy))

    # Answers

    def _answered(self, queue: PartitionQueue, batch: Batch, result: Any) -> None:
        code = error_code(result.error_code)
        if code in _DELIVERED:
            queue.delivered(batch)
            offset = result.base_offset if code == ErrorCode.NONE else -1
            batch.acknowledge(queue.partition, offset, result.log_append_time_ms)
            self._forget(queue, batch)
            return
        error = BrokerError(code, f"batch for {queue.partition}", result.error_message)
        if code in STALE_LEADER:
            self._cluster.forget_topic(queue.partition.topic)
        if code in _MAY_BE_WRITTEN:
            batch.answer_lost()
        if code == ErrorCode.MESSAGE_TOO_LARGE and isinstance(batch, RecordBatch) and batch.record_count > 1:
            self._buffered_bytes += queue.split(batch)
        elif queue.is_consequence(code):
            queue.send_again(batch)
        else:
            self._retry_or_fail(queue, batch, error, self._role.fate(error, may_be_written=batch.may_be_written))

    def _not_answered(self, queue: PartitionQueue, batch: Batch, failure: ClientError | None) -> None:
        batch.answer_lost()
        self._cluster.forget_topic(queue.partition.topic)
        error = failure or BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, f"partition {queue.partition}")
        self._retry_or_fail(queue, batch, error)

    def _retry_or_fail(self, queue: PartitionQueue, batch: Batch, error: ClientError, fate: Fate | None = None) -> None:
        """Retries the batch, unless that cannot help or its time is up."""
        now = asyncio.get_running_loop().time()
        if fate is None:
            fate = Fate.RETRY if error.is_retriable else Fate.FAIL
        if fate is Fate.FAIL or self._stopped_by is not None or now >= batch.deadline:
            self._fail(queue, batch, error)
            return
        if batch in queue.in_flight:
            queue.send_again(batch)
        if fate is Fate.RETRY_AS_NEW_PRODUCER:
            queue.begin_again()
        queue.back_off(now, batch.deadline, error)

    def _fail(self, queue: PartitionQueue, batch: Batch, cause: Exception) -> None:
        queue.give_up(batch)
        failure = _failure(queue.partition, batch, cause)
        batch.fail(failure)
        self._forget(queue, batch)
        reason = self._role.delivery_failed(failure)
        if reason is not None and self._stopped_by is None:
            self._stop_taking(reason, lambda partition, other: _failure(partition, other, reason))

    def _stop_taking(self, reason: ClientError, error_of: Callable[[TopicPartition, Batch], ClientError]) -> None:
        self._stopped_by = reason
        for queue in list(self._busy.values()):
            for batch in queue.drop_waiting():
                batch.fail(error_of(queue.partition, batch))
                if batch.may_be_written:
                    self._role.delivery_failed(_failure(queue.partition, batch, reason))
                self._forget(queue, batch)

    def _forget(self, queue: PartitionQueue, batch: Batch) -> None:
        self._buffered_bytes -= batch.size_bytes
        self._progress.set()
        self._tidy(queue)

    def _tidy(self, queue: PartitionQueue) -> None:
        if queue.is_idle:
            self._busy.pop(queue.partition, None)
            self._progress.set()


def _failure(partition: TopicPartition, batch: Batch, cause: Exception) -> DeliveryFailed:
    return DeliveryFailed(partition.topic, partition.partition, cause, may_be_written=batch.may_be_written)


class SendsRecords(abc.ABC):
    """The methods of every class that sends records."""

    @abc.abstractmethod
    def open_sender(self) -> Sender:
        """The sender to use. Raises the error that forbids sending now."""

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Acknowledgement:
        """Buffers a record. Waits only for metadata and for room. The returned future is its acknowledgement."""
        record = (int(time.time() * 1000) if timestamp_ms is None else timestamp_ms, key, value, headers)
        return await self.open_sender().add(topic, record, partition)

    async def send_batch(self, topic: str, partition: int, batch: bytearray) -> Acknowledgement:
        """Buffer a finished batch, as `wire.arrow_records` makes them. Only the producer's fields are written into it.
        The future is its acknowledgement, with the offset of its first record."""
        return await self.open_sender().add_batch(topic, partition, batch)
