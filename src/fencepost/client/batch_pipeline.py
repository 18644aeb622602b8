"""Finished batches into a transaction that another process has begun: several of a partition in flight at once.

For bulk writers. A partition's first batch travels alone, because the coordinator may still be busy with the
transaction before; then batches follow each other without waiting. After any trouble a partition goes back to one at a
time until the broker has taken the oldest of what is open; it recognises what it has already. At most five batches of a
partition are open, which is as far as a broker's memory of duplicates reaches. Calls no coordinator.
"""

import asyncio
import collections
import dataclasses
from typing import Any

from fencepost.client import apis
from fencepost.client.accumulator import stamp_producer
from fencepost.client.cluster import BACKOFF_MAX_MS, BACKOFF_MIN_MS, CONCURRENT_BACKOFF_MS, Cluster
from fencepost.client.connection import Connection
from fencepost.client.errors import BrokerError, ClientError, DeliveryFailed
from fencepost.client.face import Blocking, blocking
from fencepost.client.transaction_calls import TransactionProtocol
from fencepost.client.transaction_errors import (
    Call,
    ProducerFenced,
    TransactionError,
    TransactionFailed,
    TransactionMustAbort,
    Verdict,
    verdict,
)
from fencepost.client.transaction_handle import TransactionHandle
from fencepost.client.verdicts import STALE_LEADER
from fencepost.topic_partition import TopicPartition
from fencepost.wire import messages
from fencepost.wire.batch import SEQUENCE_MAX, read_header
from fencepost.wire.errors import ErrorCode, error_code

IN_FLIGHT_MAX = 5
REQUEST_BYTES_MAX = 1024 * 1024
BUFFER_BYTES_MAX = 24 * 1024 * 1024
DELIVERY_TIMEOUT_MS = 120_000
_PartitionData = messages.ProduceRequest.TopicProduceData.PartitionProduceData
_DELIVERED = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)


@dataclasses.dataclass(slots=True, eq=False)
class _Batch:
    data: bytearray
    number: int
    """Its place in the order of the lane; sequences may wrap around."""
    deadline: float = 0.0
    may_be_written: bool = False


class _Lane:
    """The batches of one partition: those that wait, those in flight, those that come back to be sent again."""

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.waiting: collections.deque[_Batch] = collections.deque()
        self.in_flight = 0
        self.returned: list[_Batch] = []
        self.is_confirmed = False
        self.next_sequence = 0
        self.count = 0
        self.retry_at = 0.0
        self.backoff_ms = 0.0

    def may_send(self, now: float) -> bool:
        if not self.waiting or self.returned or now < self.retry_at:
            return False
        return self.in_flight == 0 if not self.is_confirmed else self.in_flight < IN_FLIGHT_MAX

    def gather_returned(self) -> None:
        """When nothing is in flight any more, what came back goes first, in its old order."""
        if self.returned and self.in_flight == 0:
            self.returned.sort(key=lambda batch: batch.number)
            self.waiting.extendleft(reversed(self.returned))
            self.returned = []


class AsyncBatchPipeline:
    def __init__(self, handle: TransactionHandle, buffer_bytes_max: int = BUFFER_BYTES_MAX) -> None:
        self.handle = handle
        self._cluster = Cluster(handle.bootstrap_servers, **handle.options)
        self._api = apis.PRODUCE_TV2 if handle.protocol is TransactionProtocol.TV2 else apis.PRODUCE_TV1
        self._buffer_bytes_max = buffer_bytes_max
        self._lanes: dict[TopicPartition, _Lane] = {}
        self._connections: dict[int, Connection] = {}
        self._requests: collections.Counter[int] = collections.Counter()
        self._open_bytes = 0
        self._open_batches = 0
        self._trouble: TransactionError | None = None
        self._wake = asyncio.Event()
        self._progress = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._sender: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self._cluster.connect()
        self._sender = asyncio.create_task(self._send_what_may_go())

    async def close(self) -> None:
        """Leave; what was not drained may not have been sent."""
        for task in [self._sender, *self._tasks]:
            if task is not None:
                task.cancel()
        await self._cluster.close()

    # What the writer calls

    async def put(self, topic: str, partition: int, batch: bytearray) -> None:
        """Hand over one whole batch, waiting for room only. Raises what makes a commit impossible."""
        while self._trouble is None and self._open_bytes and self._open_bytes + len(batch) > self._buffer_bytes_max:
            await self._wait_for_progress()
        if self._trouble is not None:
            raise self._trouble
        where = TopicPartition(topic, partition)
        lane = self._lanes.setdefault(where, _Lane(where))
        records = read_header(batch).record_count
        stamp_producer(batch, self.handle.identity, lane.next_sequence, transactional=True)
        lane.waiting.append(_Batch(batch, lane.count))
        lane.count += 1
        lane.next_sequence = (lane.next_sequence + records) & SEQUENCE_MAX
        self._open_bytes += len(batch)
        self._open_batches += 1
        self._wake.set()

    async def drain(self) -> None:
        """Wait until every batch is acknowledged by its partition."""
        while self._trouble is None and self._open_batches:
            await self._wait_for_progress()
        if self._trouble is not None:
            raise self._trouble

    async def _wait_for_progress(self) -> None:
        self._progress.clear()
        await self._progress.wait()

    # Sending

    async def _send_what_may_go(self) -> None:
        loop = asyncio.get_running_loop()
        while self._trouble is None:
            self._wake.clear()
            try:
                await self._send_round(loop.time())
            except Exception as error:
                self._fail(TransactionFailed(self.handle.transactional_id, self.handle.identity, error))
                return
            due = [lane.retry_at for lane in self._lanes.values() if lane.waiting and lane.retry_at > loop.time()]
            try:
                async with asyncio.timeout_at(min(due) if due else None):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _send_round(self, now: float) -> None:
        is_going = True
        while is_going and self._trouble is None:
            is_going = False
            by_leader: dict[int, list[_Lane]] = collections.defaultdict(list)
            for lane in list(self._lanes.values()):  # while we wait, the writer may add one
                if lane.may_send(now):
                    leader = await self._leader(lane, now)
                    if leader >= 0:
                        by_leader[leader].append(lane)
            for leader, lanes in by_leader.items():
                if self._requests[leader] < IN_FLIGHT_MAX and await self._send_to(leader, lanes, now):
                    is_going = True

    async def _leader(self, lane: _Lane, now: float) -> int:
        where = lane.partition
        try:
            return (await self._cluster.leader(where.topic, where.partition)).leader
        except ClientError as error:
            self._cluster.forget_topic(where.topic)
            if lane.waiting:
                self._return(lane, [lane.waiting.popleft()], error)
            return -1

    async def _send_to(self, leader: int, lanes: list[_Lane], now: float) -> bool:
        try:
            connection = await self._cluster.connection_to(leader)
        except ClientError as error:
            for lane in lanes:
                self._cluster.forget_topic(lane.partition.topic)
                if lane.waiting:
                    self._return(lane, [lane.waiting.popleft()], error)
            return False
        # Order holds within a connection only: a new one waits until the old one has answered everything.
        if self._connections.get(leader) is not connection:
            if self._requests[leader]:
                return False
            self._connections[leader] = connection
        taken: list[tuple[_Lane, _Batch]] = []
        size_bytes = 0
        for lane in lanes:
            if not lane.may_send(now):
                continue  # Something came back while this waited for the connection.
            if taken and size_bytes + len(lane.waiting[0].data) > REQUEST_BYTES_MAX:
                break
            batch = lane.waiting.popleft()
            batch.deadline = batch.deadline or now + DELIVERY_TIMEOUT_MS / 1000
            lane.in_flight += 1
            size_bytes += len(batch.data)
            taken.append((lane, batch))
        if not taken:
            return False
        self._requests[leader] += 1
        # Tasks begin in the order they are made, and a call is on its connection before it waits for anything.
        task = asyncio.create_task(self._exchange(leader, connection, taken))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.sleep(0)
        return True

    async def _exchange(self, leader: int, connection: Connection, taken: list[tuple[_Lane, _Batch]]) -> None:
        by_topic: dict[str, list[Any]] = collections.defaultdict(list)
        for lane, batch in taken:
            by_topic[lane.partition.topic].append(_PartitionData(index=lane.partition.partition, records=batch.data))
        request = messages.ProduceRequest(
            transactional_id=self.handle.transactional_id,
            acks=-1,
            timeout_ms=self._cluster.request_timeout_ms,
            topic_data=[
                messages.ProduceRequest.TopicProduceData(name=name, partition_data=data)
                for name, data in by_topic.items()
            ],
        )
        failure: ClientError | None = None
        results: dict[TopicPartition, Any] = {}
        try:
            answer = await connection.call(self._api, request, self._cluster.request_timeout_ms)
            results = {
                TopicPartition(topic.name, result.index): result
                for topic in answer.responses
                for result in topic.partition_responses
            }
        except ClientError as error:
            failure = error
        self._requests[leader] -= 1
        for lane, batch in taken:
            lane.in_flight -= 1
            self._settle(lane, batch, results.get(lane.partition), failure)
        self._wake.set()
        self._progress.set()

    def _settle(self, lane: _Lane, batch: _Batch, result: Any, failure: ClientError | None) -> None:
        if result is None:
            batch.may_be_written = True
            self._cluster.forget_topic(lane.partition.topic)
            error = failure or BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, f"partition {lane.partition}")
            self._return(lane, [batch], error)
            return
        code = error_code(result.error_code)
        if code in _DELIVERED:
            if not lane.returned:
                lane.is_confirmed = True
                lane.backoff_ms = 0.0
            self._open_bytes -= len(batch.data)
            self._open_batches -= 1
            lane.gather_returned()
            return
        if code in STALE_LEADER:
            self._cluster.forget_topic(lane.partition.topic)
        self._return(lane, [batch], BrokerError(code, f"batch for {lane.partition}", result.error_message))

    def _return(self, lane: _Lane, batches: list[_Batch], error: ClientError) -> None:
        """Send again later, unless that cannot help."""
        now = asyncio.get_running_loop().time()
        # One batch that was not taken makes those behind it come out of order: a consequence, not a failure.
        is_consequence = (
            isinstance(error, BrokerError)
            and error.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            and bool(lane.returned)
        )
        oldest = batches[0]
        if not is_consequence and (
            not self._may_help(error) or (oldest.deadline and now >= oldest.deadline) or self._trouble is not None
        ):
            self._fail(self._trouble_of(lane, oldest, error))
            return
        if not oldest.deadline:
            oldest.deadline = now + DELIVERY_TIMEOUT_MS / 1000
        lane.returned.extend(batches)
        lane.is_confirmed = False
        if not is_consequence:
            is_busy = isinstance(error, BrokerError) and error.code == ErrorCode.CONCURRENT_TRANSACTIONS
            lane.backoff_ms = (
                CONCURRENT_BACKOFF_MS if is_busy else min(max(lane.backoff_ms * 2, BACKOFF_MIN_MS), BACKOFF_MAX_MS)
            )
            lane.retry_at = now + lane.backoff_ms / 1000
        lane.gather_returned()

    def _may_help(self, error: ClientError) -> bool:
        if isinstance(error, BrokerError):
            return verdict(Call.PRODUCE, error.code) is Verdict.RETRY
        return error.is_retriable

    def _trouble_of(self, lane: _Lane, batch: _Batch, error: ClientError) -> TransactionError:
        who = (self.handle.transactional_id, self.handle.identity)
        if isinstance(error, BrokerError):
            decision = verdict(Call.PRODUCE, error.code)
            if decision is Verdict.FENCED:
                return ProducerFenced(*who, error)
            if decision is Verdict.FATAL:
                return TransactionFailed(*who, error)
        where = lane.partition
        cause = DeliveryFailed(where.topic, where.partition, error, may_be_written=batch.may_be_written)
        return TransactionMustAbort(*who, cause)

    def _fail(self, trouble: TransactionError) -> None:
        self._trouble = self._trouble or trouble
        self._wake.set()
        self._progress.set()


class BatchPipeline(Blocking[AsyncBatchPipeline]):
    """The same without async."""

    def __init__(self, handle: TransactionHandle, buffer_bytes_max: int = BUFFER_BYTES_MAX) -> None:
        super().__init__(lambda: AsyncBatchPipeline(handle, buffer_bytes_max))

    put = blocking(AsyncBatchPipeline.put)
    drain = blocking(AsyncBatchPipeline.drain)
