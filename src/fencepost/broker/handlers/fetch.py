"""Fetch (4-18): whole batches up to the high watermark or the last stable offset; parked until there is enough to read.

Sessions from v7, leader epochs from v9, diverging epochs from v12, topic ids instead of names from v13.
"""

from typing import TYPE_CHECKING

from fencepost.broker.connection import Call
from fencepost.broker.dispatch import Handler
from fencepost.broker.fetch_sessions import FetchSession, Wanted
from fencepost.broker.partition import Partition
from fencepost.broker.security.access import Access
from fencepost.log.open_transactions import PACKED_BYTES
from fencepost.ports import Timer
from fencepost.promise import Promise
from fencepost.wire.acls import AclOperation, ResourceType
from fencepost.wire.catalog import ApiKey
from fencepost.wire.encoding import PackedStructs
from fencepost.wire.errors import ErrorCode, KafkaError
from fencepost.wire.messages import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from fencepost.broker.node import Node

_TopicResponse = FetchResponse.FetchableTopicResponse
_PartitionData = _TopicResponse.PartitionData
READ_COMMITTED = 1


def fetch(node: "Node", call: Call, request: FetchRequest) -> FetchResponse | Promise[FetchResponse]:
    try:
        session = node.fetch_sessions.resolve(request, call.version)
    except KafkaError as error:
        return FetchResponse(error_code=error.code)
    attempt = _Attempt(node, call, request, session)
    attempt.read()
    may_wait = request.max_wait_ms > 0 and session.partitions and not attempt.is_final
    if not may_wait or attempt.size >= request.min_bytes or not node.may_park():
        return attempt.response()
    return _ParkedFetch(attempt).promise


class _Attempt:
    """One reading of everything that a fetch asks for."""

    __slots__ = ("access", "call", "is_final", "node", "request", "results", "session", "size")

    def __init__(self, node: "Node", call: Call, request: FetchRequest, session: FetchSession) -> None:
        self.node = node
        self.call = call
        self.access = call.access
        self.request = request
        self.session = session
        self.results: list[tuple[Wanted, _PartitionData]] = []
        self.size = 0
        self.is_final = False
        """An error or a divergence must be told at once."""

    def read(self) -> None:
        self.results = []
        self.size = 0
        left = min(self.request.max_bytes, self.node.config.fetch_max_bytes)
        for wanted in self.session.partitions.values():
            data = self._read_partition(wanted, left)
            size = len(data.records or b"")
            self.size += size
            left = max(0, left - size)
            self.results.append((wanted, data))

    def _read_partition(self, wanted: Wanted, left: int) -> _PartitionData:
        data = _PartitionData(partition_index=wanted.index, high_watermark=-1, records=b"")
        try:
            partition = self.partition(wanted)
            data.aborted_transactions = None
            partition_log = partition.log
            partition.check_leader_epoch(wanted.current_leader_epoch)
            if wanted.last_fetched_epoch >= 0 and self._diverges(partition, wanted, data):
                return data
            is_committed = self.request.isolation_level == READ_COMMITTED
            upper = partition_log.last_stable_offset if is_committed else partition_log.high_watermark
            found = partition_log.read(
                wanted.fetch_offset,
                min(left, wanted.max_bytes),
                upper_bound=upper,
                at_least_one_batch=self.size == 0,
            )
        except KafkaError as error:
            if error.code is ErrorCode.CORRUPT_MESSAGE:
                self.node.damage_found(partition.topic, partition.index, error)
            self.is_final = True
            data.error_code = error.code
            return data
        data.high_watermark = partition_log.high_watermark
        data.last_stable_offset = partition_log.last_stable_offset
        data.log_start_offset = partition_log.log_start_offset
        data.records = found.records
        if is_committed:
            aborted = partition_log.packed_aborted_transactions(wanted.fetch_offset, found.next_offset)
            data.aborted_transactions = PackedStructs(aborted, PACKED_BYTES)  # type: ignore[assignment]
        return data

    def _diverges(self, partition: Partition, wanted: Wanted, data: _PartitionData) -> bool:
        epoch, end_offset = partition.log.end_offset_for_epoch(wanted.last_fetched_epoch)
        if epoch < 0 or end_offset < 0:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if epoch == wanted.last_fetched_epoch and end_offset >= wanted.fetch_offset:
            return False
        self.is_final = True
        data.diverging_epoch = _PartitionData.EpochEndOffset(epoch=epoch, end_offset=end_offset)
        data.high_watermark = partition.log.high_watermark
        data.last_stable_offset = partition.log.last_stable_offset
        data.log_start_offset = partition.log.log_start_offset
        return True

    def partition(self, wanted: Wanted) -> Partition:
        if self.access is not None:
            self._check_readable(self.access, wanted)
        if self.session.uses_topic_ids:
            partition = self.node.partition_by_id(wanted.topic_id, wanted.index)
        else:
            partition = self.node.partition(wanted.topic, wanted.index)
        if partition.failure is not None:
            raise partition.failure
        return partition

    def _check_readable(self, access: Access, wanted: Wanted) -> None:
        """At every reading, since a session and a parked fetch may outlive the right to read."""
        name = wanted.topic
        if self.session.uses_topic_ids:
            topic = self.node.metadata.topics_by_id.get(wanted.topic_id)
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            name = topic.name
        if not access.may(AclOperation.READ, ResourceType.TOPIC, name):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    def response(self) -> FetchResponse:
        session = self.session
        response = FetchResponse(session_id=session.session_id)
        topics: dict[str | bytes, _TopicResponse] = {}
        for wanted, data in self.results:
            if session.is_incremental and not _is_news(wanted, data):
                continue
            wanted.answered_high_watermark = data.high_watermark
            wanted.answered_log_start_offset = data.log_start_offset
            wanted.answered_error = data.error_code != 0
            key = wanted.topic_id if session.uses_topic_ids else wanted.topic
            topic = topics.get(key)
            if topic is None:
                topic = topics[key] = _TopicResponse(topic=wanted.topic, topic_id=wanted.topic_id)
                response.responses.append(topic)
            topic.partitions.append(data)
            if session.session_id and data.records:
                session.partitions.move_to_end((key, wanted.index))
        return response


def _is_news(wanted: Wanted, data: _PartitionData) -> bool:
    """Whether an incremental answer has to mention a partition."""
    return bool(
        data.records
        or data.error_code
        or wanted.answered_error
        or data.high_watermark != wanted.answered_high_watermark
        or data.log_start_offset != wanted.answered_log_start_offset
        or data.diverging_epoch.end_offset >= 0
    )


class _ParkedFetch:
    """A fetch that waits: for `min_bytes` more, for trouble, or for its time to run out."""

    def __init__(self, attempt: _Attempt) -> None:
        self.promise: Promise[FetchResponse] = Promise()
        self._attempt = attempt
        self._gathered = attempt.size
        self._read_scheduled = False
        self._partitions = [attempt.partition(wanted) for wanted, _ in attempt.results]
        for partition in self._partitions:
            partition.watch(self)
        node = attempt.node
        node.parked_requests += 1
        attempt.call.connection.on_closed[self] = self._abandon
        self._timer: Timer = node.scheduler.call_later(attempt.request.max_wait_ms, self._time_out)

    def on_progress(self, partition: Partition, new_bytes: int) -> None:
        self._gathered += new_bytes
        if self._gathered >= self._attempt.request.min_bytes:
            self._read_soon()

    def on_failure(self, partition: Partition) -> None:
        self._gathered = self._attempt.request.min_bytes
        self._read_soon()

    def _read_soon(self) -> None:
        # After the event: one reading for all that it brought.
        if not self._read_scheduled:
            self._read_scheduled = True
            self._attempt.node.scheduler.call_soon(self._read)

    def _read(self) -> None:
        self._read_scheduled = False
        if self.promise.done:
            return
        attempt = self._attempt
        attempt.read()
        if attempt.size >= attempt.request.min_bytes or attempt.is_final:
            self._finish()
        else:
            self._gathered = attempt.size

    def _time_out(self) -> None:
        self._attempt.read()
        self._finish()

    def _finish(self) -> None:
        self._release()
        self.promise.resolve(self._attempt.response())

    def _abandon(self) -> None:
        self._release()

    def _release(self) -> None:
        self._timer.cancel()
        for partition in self._partitions:
            partition.unwatch(self)
        self._attempt.node.parked_requests -= 1
        self._attempt.call.connection.on_closed.pop(self, None)


HANDLERS = {ApiKey.FETCH: Handler(fetch)}
