"""The idempotent producer: batches per partition, acks from all, retries that neither reorder nor duplicate.

A record's future resolves once it is acknowledged. When a batch's fate is unknown it is sent again under the same
sequence number, which the broker recognizes; only when the time is up does its record fail, and it says so.
"""

import asyncio
import collections
import time
from collections.abc import Iterable, Sequence
from typing import Any, Self

from fencepost.client import apis
from fencepost.client.accumulator import Batch, PartitionQueue, ProducerIdentity, size_of
from fencepost.client.cluster import BACKOFF_MAX_MS, BACKOFF_MIN_MS, Cluster
from fencepost.client.errors import (
    BrokerError,
    ClientClosed,
    ClientError,
    DeliveryFailed,
    NoLeader,
    UnknownPartition,
)
from fencepost.client.partitioner import StickyPartitioner, partition_of_key
from fencepost.client.values import RecordMetadata, TopicMetadata, TopicPartition
from fencepost.client.verdicts import STALE_LEADER, check
from fencepost.wire import messages
from fencepost.wire.compression import Codec
from fencepost.wire.errors import ErrorCode, error_code

BATCH_BYTES = 256 * 1024
BUFFER_BYTES_MAX = 32 * 1024 * 1024
REQUEST_BYTES_MAX = 1024 * 1024
LINGER_MS = 2
DELIVERY_TIMEOUT_MS = 120_000
IN_FLIGHT_PER_BROKER_MAX = 5

# The broker no longer knows the producer, or knows another past of it.
_LOST_IDENTITY = frozenset(
    {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH}
)
_MAY_BE_WRITTEN = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND})


class AsyncProducer:
    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        compression: Codec = Codec.NONE,
        batch_bytes: int = BATCH_BYTES,
        linger_ms: int = LINGER_MS,
        buffer_bytes_max: int = BUFFER_BYTES_MAX,
        delivery_timeout_ms: int = DELIVERY_TIMEOUT_MS,
        **options: Any,
    ) -> None:
        self._cluster = Cluster(bootstrap_servers, **options)
        self._compression = compression
        self._batch_bytes = batch_bytes
        self._linger = linger_ms / 1000
        self._buffer_bytes_max = buffer_bytes_max
        self._delivery_timeout = delivery_timeout_ms / 1000
        self._sticky = StickyPartitioner(batch_bytes)
        self._identity: ProducerIdentity | None = None
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._busy: dict[TopicPartition, PartitionQueue] = {}
        self._in_flight: collections.Counter[int] = collections.Counter()
        self._buffered_bytes = 0
        self._flushing = 0
        self._failure: ClientError | None = None
        self._wake = asyncio.Event()
        self._progress = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()
        self._sender: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    # Life

    async def start(self) -> None:
        await self._cluster.connect()
        self._identity = await self._new_identity()
        self._sender = asyncio.create_task(self._send_what_is_due())

    async def close(self) -> None:
        """Send what is buffered, then leave."""
        try:
            if self._sender is not None:
                await self._drain()
        finally:
            sender, self._sender = self._sender, None
            if self._timer is not None:
                self._timer.cancel()
            for task in [*self._tasks, *([sender] if sender else [])]:
                task.cancel()
            for queue in self._busy.values():
                while queue.batches:
                    queue.give_up().fail(ClientClosed())
            await self._cluster.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # Sending

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> "asyncio.Future[RecordMetadata]":
        """Buffer a record. Waits only for metadata and for room; the future is the acknowledgement."""
        if self._sender is None or self._identity is None:
            raise ClientClosed
        metadata = self._cluster.cached_topic(topic) or await self._cluster.topic(topic)
        record = (int(time.time() * 1000) if timestamp_ms is None else timestamp_ms, key, value, headers)
        size_bytes = size_of(record)
        chosen = TopicPartition(topic, self._choose(metadata, key, partition, size_bytes))
        if self._buffered_bytes and self._buffered_bytes + size_bytes > self._buffer_bytes_max:
            await self._wait_for_room(size_bytes)
        future: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        if self._append(chosen, record, size_bytes, future):
            # A full batch waits: let it leave while the caller goes on filling the next.
            await asyncio.sleep(0)
        return future

    async def produce(self, topic: str, values: Iterable[bytes | None]) -> list[RecordMetadata]:
        """Send many values and wait for all."""
        futures = [await self.send(topic, value) for value in values]
        await self._drain()
        return [future.result() for future in futures]

    async def flush(self) -> None:
        """Wait for everything buffered. Raises the first failure since the last flush."""
        await self._drain()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    async def _drain(self) -> None:
        self._flushing += 1
        try:
            self._wake.set()
            async with self._progress:
                await self._progress.wait_for(lambda: not self._busy)
        finally:
            self._flushing -= 1

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

    async def _wait_for_room(self, size_bytes: int) -> None:
        self._wake.set()
        async with self._progress:
            await self._progress.wait_for(
                lambda: not self._buffered_bytes or self._buffered_bytes + size_bytes <= self._buffer_bytes_max
            )

    def _append(
        self, partition: TopicPartition, record: Any, size_bytes: int, future: "asyncio.Future[RecordMetadata]"
    ) -> bool:
        """Put the record into its batch; true if that is a new one behind a full one."""
        queue = self._queues.get(partition)
        if queue is None:
            assert self._identity is not None
            queue = self._queues[partition] = PartitionQueue(partition, self._identity)
        batch = queue.open_batch(size_bytes, self._batch_bytes)
        is_new = batch is None
        if batch is None:
            now = asyncio.get_running_loop().time()
            batch = Batch(created=now, deadline=now + self._delivery_timeout)
            queue.batches.append(batch)
            self._busy[partition] = queue
            self._wake.set()
        batch.add(record, size_bytes, future)
        self._buffered_bytes += size_bytes
        return is_new and len(queue.batches) > 1

    # The sender

    async def _send_what_is_due(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            look_again = self._dispatch(loop.time())
            if look_again is not None:
                self._timer = loop.call_at(look_again, self._wake.set)

    def _dispatch(self, now: float) -> float | None:
        """Start a request for every broker that has something due; the time of the next look, if one is known."""
        by_leader: dict[int, list[PartitionQueue]] = collections.defaultdict(list)
        look_again: float | None = None
        for queue in self._busy.values():
            if queue.is_in_flight:
                continue
            due = self._due(queue, now)
            if due > now:
                look_again = due if look_again is None else min(due, look_again)
                continue
            metadata = self._cluster.cached_topic(queue.partition.topic)
            found = metadata.partitions.get(queue.partition.partition) if metadata is not None else None
            by_leader[-1 if found is None else found.leader].append(queue)
        for leader, queues in by_leader.items():
            if leader < 0:
                for queue in queues:
                    self._start(self._find_leader(queue), [queue])
                continue
            while queues and self._in_flight[leader] < IN_FLIGHT_PER_BROKER_MAX:
                taken = _fitting(queues)
                queues = queues[len(taken) :]
                self._in_flight[leader] += 1
                self._start(self._send(leader, taken), taken)
        return look_again

    def _due(self, queue: PartitionQueue, now: float) -> float:
        head = queue.batches[0]
        if head.attempts:
            return queue.retry_at
        is_full = head.is_sealed or len(queue.batches) > 1 or head.size_bytes >= self._batch_bytes
        return now if is_full or self._flushing else head.created + self._linger

    def _start(self, work: Any, queues: list[PartitionQueue]) -> None:
        for queue in queues:
            queue.is_in_flight = True
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _find_leader(self, queue: PartitionQueue) -> None:
        try:
            await self._cluster.leader(queue.partition.topic, queue.partition.partition)
            queue.is_in_flight = False
            self._wake.set()
        except ClientError as error:
            if queue.batches[0].deadline <= asyncio.get_running_loop().time() or not error.is_retriable:
                await self._failed(queue, error)
            else:
                await self._again(queue, NoLeader(queue.partition.topic, queue.partition.partition))

    async def _send(self, leader: int, queues: list[PartitionQueue]) -> None:
        try:
            connection = await self._cluster.connection_to(leader)
            for queue in queues:
                if queue.identity is None:
                    queue.identity = await self._new_identity()
            request = self._request(queues)
        except ClientError as error:
            self._in_flight[leader] -= 1
            for queue in queues:
                self._cluster.forget_topic(queue.partition.topic)
                await self._again(queue, error)
            return
        except Exception as error:
            # Records that cannot be encoded: nothing was sent, and sending again would not help.
            self._in_flight[leader] -= 1
            for queue in queues:
                await self._failed(queue, error)
            return
        try:
            answer = await connection.call(apis.PRODUCE, request, self._cluster.request_timeout_ms)
        except ClientError as error:
            self._in_flight[leader] -= 1
            for queue in queues:
                queue.batches[0].may_be_written = True
                self._cluster.forget_topic(queue.partition.topic)
                await self._again(queue, error)
            return
        self._in_flight[leader] -= 1
        results = {
            TopicPartition(topic.name, result.index): result
            for topic in answer.responses
            for result in topic.partition_responses
        }
        for queue in queues:
            result = results.get(queue.partition)
            if result is None:
                queue.batches[0].may_be_written = True
                await self._again(queue, BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, f"partition {queue.partition}"))
            else:
                await self._settle(queue, result)

    def _request(self, queues: list[PartitionQueue]) -> messages.ProduceRequest:
        by_topic: dict[str, list[Any]] = collections.defaultdict(list)
        for queue in queues:
            by_topic[queue.partition.topic].append(
                messages.ProduceRequest.TopicProduceData.PartitionProduceData(
                    index=queue.partition.partition, records=queue.encode_head(self._compression)
                )
            )
        return messages.ProduceRequest(
            transactional_id=None,
            acks=-1,
            timeout_ms=self._cluster.request_timeout_ms,
            topic_data=[
                messages.ProduceRequest.TopicProduceData(name=name, partition_data=data)
                for name, data in by_topic.items()
            ],
        )

    # What came of it

    async def _settle(self, queue: PartitionQueue, result: Any) -> None:
        code, head = error_code(result.error_code), queue.batches[0]
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            queue.acknowledged()
            offset = result.base_offset if code == ErrorCode.NONE else -1
            head.acknowledge(queue.partition, offset, result.log_append_time_ms)
            await self._released(queue, head)
            return
        error = BrokerError(code, f"batch for {queue.partition}", result.error_message)
        if code in STALE_LEADER:
            self._cluster.forget_topic(queue.partition.topic)
        if code in _MAY_BE_WRITTEN:
            head.may_be_written = True
        if code == ErrorCode.MESSAGE_TOO_LARGE and len(head.records) > 1:
            queue.split_head()
            queue.is_in_flight = False
            self._wake.set()
        elif code in _LOST_IDENTITY and not head.may_be_written:
            # The broker refused it and cannot have it from before: a new identity cannot make a duplicate.
            queue.begin_again()
            await self._again(queue, error)
        elif error.is_retriable:
            await self._again(queue, error)
        else:
            await self._failed(queue, error)

    async def _again(self, queue: PartitionQueue, error: ClientError) -> None:
        now = asyncio.get_running_loop().time()
        head = queue.batches[0]
        if not error.is_retriable and not (isinstance(error, BrokerError) and error.code in _LOST_IDENTITY):
            await self._failed(queue, error)
            return
        if now >= head.deadline:
            await self._failed(queue, error)
            return
        head.attempts += 1
        queue.backoff_ms = min(max(queue.backoff_ms * 2, BACKOFF_MIN_MS), BACKOFF_MAX_MS)
        queue.retry_at = min(now + queue.backoff_ms / 1000, head.deadline)
        queue.is_in_flight = False
        self._wake.set()

    async def _failed(self, queue: PartitionQueue, cause: Exception) -> None:
        head = queue.give_up()
        partition = queue.partition
        failure = DeliveryFailed(partition.topic, partition.partition, cause, may_be_written=head.may_be_written)
        self._failure = self._failure or failure
        head.fail(failure)
        await self._released(queue, head)

    async def _released(self, queue: PartitionQueue, batch: Batch) -> None:
        queue.is_in_flight = False
        queue.backoff_ms = 0.0
        self._buffered_bytes -= sum(map(size_of, batch.records))
        if not queue.batches:
            self._busy.pop(queue.partition, None)
        self._wake.set()
        async with self._progress:
            self._progress.notify_all()

    async def _new_identity(self) -> ProducerIdentity:
        async def attempt() -> ProducerIdentity:
            request = messages.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            answer = await self._cluster.call_any(apis.INIT_PRODUCER_ID, request)
            check(answer.error_code, "producer id")
            return ProducerIdentity(answer.producer_id, answer.producer_epoch)

        return await self._cluster.retrying(attempt)


def _fitting(queues: list[PartitionQueue]) -> list[PartitionQueue]:
    """As many from the front as one request takes; at least one."""
    taken: list[PartitionQueue] = []
    size_bytes = 0
    for queue in queues:
        size_bytes += queue.batches[0].size_bytes
        if taken and size_bytes > REQUEST_BYTES_MAX:
            break
        taken.append(queue)
    return taken
