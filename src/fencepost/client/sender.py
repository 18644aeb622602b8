"""Sends what `record_buffer` holds: batches per partition, acks from all, retries that neither reorder nor duplicate.

What every producer needs. Who the producer is, what must happen before a batch may leave, and what an error means are
decided by the subclass: `producer` for idempotent sending, `transaction_sender` for sending inside a transaction.
"""

import abc
import asyncio
import collections
import enum
from collections.abc import Coroutine, Sequence
from typing import Any

from fencepost.client.accumulator import Batch, PartitionQueue
from fencepost.client.apis import Api
from fencepost.client.cluster import BACKOFF_MAX_MS, BACKOFF_MIN_MS, CONCURRENT_BACKOFF_MS, Cluster
from fencepost.client.errors import (
    BrokerError,
    ClientClosed,
    ClientError,
    DeliveryFailed,
    NoLeader,
)
from fencepost.client.record_buffer import RecordBuffer, Sending
from fencepost.client.verdicts import STALE_LEADER
from fencepost.topic_partition import TopicPartition
from fencepost.wire import messages
from fencepost.wire.errors import ErrorCode, error_code

REQUEST_BYTES_MAX = 1024 * 1024
IN_FLIGHT_PER_BROKER_MAX = 5

_MAY_BE_WRITTEN = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND})
_PartitionData = messages.ProduceRequest.TopicProduceData.PartitionProduceData


class Fate(enum.Enum):
    """What becomes of a batch that the broker refused."""

    AGAIN = enum.auto()
    AS_ANOTHER = enum.auto()
    """Again, under a new producer identity."""
    FAILED = enum.auto()


class RecordSender(RecordBuffer):
    transactional_id: str | None = None

    def __init__(self, cluster: Cluster, sending: Sending) -> None:
        super().__init__(cluster, sending)
        self._in_flight: collections.Counter[int] = collections.Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._sender: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    # What the subclass decides

    @property
    @abc.abstractmethod
    def produce_api(self) -> Api[messages.ProduceRequest, messages.ProduceResponse]: ...

    @abc.abstractmethod
    async def prepare(self, queues: Sequence[PartitionQueue]) -> None:
        """Before their heads are encoded: identities, and whatever must be agreed with a coordinator."""

    @abc.abstractmethod
    def fate(self, head: Batch, error: BrokerError) -> Fate: ...

    @abc.abstractmethod
    def on_failed(self, failure: DeliveryFailed) -> None: ...

    # Life

    @property
    def is_running(self) -> bool:
        return self._sender is not None

    def run(self) -> None:
        self._sender = asyncio.create_task(self._send_what_is_due())

    def halt(self) -> None:
        """Leave at once; what is still buffered fails."""
        sender, self._sender = self._sender, None
        if self._timer is not None:
            self._timer.cancel()
        for task in [*self._tasks, *([sender] if sender else [])]:
            task.cancel()
        for queue in self._busy.values():
            while queue.batches:
                queue.give_up().fail(ClientClosed())
        self._busy.clear()

    async def stop(self, reason: ClientError) -> None:
        """Fail what has not left yet with `reason` and wait for what has. Nothing more is taken until `resume`."""
        self._stopped_by = reason
        for queue in list(self._busy.values()):
            kept = 1 if queue.is_in_flight else 0
            while len(queue.batches) > kept:
                batch = queue.batches.pop()
                batch.fail(reason)
                if batch.may_be_written:
                    self.on_failed(_failure(queue.partition, batch, reason))
                self._forget_bytes(batch)
            if not queue.batches:
                self._busy.pop(queue.partition)
        async with self._progress:
            self._progress.notify_all()
        await self.drain()

    def resume(self) -> None:
        self._stopped_by = None

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
        is_full = head.is_sealed or len(queue.batches) > 1 or head.size_bytes >= self._sending.batch_bytes
        return now if is_full or self._flushing else head.created + self._sending.linger_ms / 1000

    def _start(self, work: Coroutine[Any, Any, None], queues: list[PartitionQueue]) -> None:
        for queue in queues:
            queue.is_in_flight = True
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _find_leader(self, queue: PartitionQueue) -> None:
        try:
            await self._cluster.leader(queue.partition.topic, queue.partition.partition)
            if self._stopped_by is not None:
                raise self._stopped_by
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
            await self.prepare(queues)
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
            answer = await connection.call(self.produce_api, request, self._cluster.request_timeout_ms)
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
        by_topic: dict[str, list[_PartitionData]] = collections.defaultdict(list)
        for queue in queues:
            records = queue.encode_head(self._sending.compression, self.transactional_id is not None)
            by_topic[queue.partition.topic].append(_PartitionData(index=queue.partition.partition, records=records))
        return messages.ProduceRequest(
            transactional_id=self.transactional_id,
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
        if code == ErrorCode.MESSAGE_TOO_LARGE and head.may_be_split:
            queue.split_head()
            queue.is_in_flight = False
            self._wake.set()
            return
        fate = self.fate(head, error)
        if fate is Fate.FAILED:
            await self._failed(queue, error)
            return
        if fate is Fate.AS_ANOTHER:
            queue.begin_again()
        await self._again(queue, error, decided=True)

    async def _again(self, queue: PartitionQueue, error: ClientError, *, decided: bool = False) -> None:
        """Send the head once more, unless that cannot help or it is too late."""
        now = asyncio.get_running_loop().time()
        head = queue.batches[0]
        if self._stopped_by is not None or now >= head.deadline or not (decided or error.is_retriable):
            await self._failed(queue, error)
            return
        head.attempts += 1
        if isinstance(error, BrokerError) and error.code == ErrorCode.CONCURRENT_TRANSACTIONS:
            # The transaction before this one is still being completed: a matter of milliseconds.
            queue.backoff_ms = CONCURRENT_BACKOFF_MS
        else:
            queue.backoff_ms = min(max(queue.backoff_ms * 2, BACKOFF_MIN_MS), BACKOFF_MAX_MS)
        queue.retry_at = min(now + queue.backoff_ms / 1000, head.deadline)
        queue.is_in_flight = False
        self._wake.set()

    async def _failed(self, queue: PartitionQueue, cause: Exception) -> None:
        head = queue.give_up()
        failure = _failure(queue.partition, head, cause)
        self.on_failed(failure)
        head.fail(failure)
        await self._released(queue, head)

    async def _released(self, queue: PartitionQueue, batch: Batch) -> None:
        queue.is_in_flight = False
        queue.backoff_ms = 0.0
        self._forget_bytes(batch)
        if not queue.batches:
            self._busy.pop(queue.partition, None)
        self._wake.set()
        async with self._progress:
            self._progress.notify_all()


def _failure(partition: TopicPartition, batch: Batch, cause: Exception) -> DeliveryFailed:
    return DeliveryFailed(partition.topic, partition.partition, cause, may_be_written=batch.may_be_written)


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
