"""Fetch (4-18): whole batches up to the high watermark or the last stable offset; parked until there is enough to read.

Sessions come from v7 on, leader epochs from v9, diverging epochs from v12, topic ids instead of names from v13, and a
field of its own for the id of a follower from v15. A consumer needs READ on each topic; it is checked at every reading,
because a session and a parked fetch may outlive the right. A follower needs CLUSTER_ACTION on the cluster.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from fencepost.broker.connection import Call
from fencepost.broker.fetch_sessions import FetchSession, Wanted, wanted_of
from fencepost.broker.handler import NEVER_SPLIT, Handler, Shape
from fencepost.broker.partition import Partition
from fencepost.broker.security.access import Access
from fencepost.broker.slices import Steps
from fencepost.log.open_transactions import PACKED_BYTES
from fencepost.log.partition_log import PartitionLog
from fencepost.log.segments import NotInMemory, ReadResult
from fencepost.ports import Timer
from fencepost.promise import Promise
from fencepost.wire.acls import AclOperation, ResourceType
from fencepost.wire.batch import HEADER_BYTES, RECORD_COUNT_POSITION, iterate_headers
from fencepost.wire.catalog import ApiKey
from fencepost.wire.encoding import PackedStructs
from fencepost.wire.errors import ErrorCode, KafkaError
from fencepost.wire.messages import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from fencepost.broker.node import Node

_TopicResponse = FetchResponse.FetchableTopicResponse
_PartitionData = _TopicResponse.PartitionData
READ_COMMITTED = 1
REPLICA_STATE_VERSION = 15
T = TypeVar("T")


# A fetch of more partitions is served in slices.
PARTITIONS_AT_ONCE = 100
RESULTS_PER_SLICE = 64
# How many segments without a record one answer passes over.
EMPTY_READS_MAX = 64
_NO_RECORDS = bytes(HEADER_BYTES - RECORD_COUNT_POSITION)


def fetch(
    node: "Node", call: Call, request: FetchRequest
) -> FetchResponse | Promise[FetchResponse] | Steps[FetchResponse | Promise[FetchResponse]]:
    if call.is_large:
        return _fetch_many(node, call, request)
    try:
        session = node.fetch_sessions.resolve(request, call.version)
    except KafkaError as error:
        return FetchResponse(error_code=error.code)
    attempt = _Attempt(node, call, request, session)
    if len(session.partitions) > PARTITIONS_AT_ONCE:
        return _read_many(attempt)
    attempt.read()
    if attempt.not_in_memory:
        return _read_when_loaded(attempt)
    if attempt.size >= request.min_bytes or attempt.is_enough():
        return attempt.response()
    return _ParkedFetch(attempt).promise


def _fetch_many(node: "Node", call: Call, request: FetchRequest) -> Steps[FetchResponse | Promise[FetchResponse]]:
    wanted = yield from wanted_of(request, call.version)
    try:
        session = node.fetch_sessions.resolve(request, call.version, wanted)
    except KafkaError as error:
        return FetchResponse(error_code=error.code)
    yield None
    return (yield from _read_many(_Attempt(node, call, request, session)))


def _read_many(attempt: "_Attempt") -> Steps[FetchResponse | Promise[FetchResponse]]:
    yield from attempt.reading()
    if attempt.not_in_memory:
        return (yield from _read_when_loaded(attempt))
    return (yield from attempt.responding()) if attempt.is_enough() else _ParkedFetch(attempt).promise


def _read_when_loaded(attempt: "_Attempt") -> Steps[FetchResponse | Promise[FetchResponse]]:
    """Helper threads wait for the disk; then everything is read again."""
    yield from attempt.loading()
    yield from attempt.reading()
    return (yield from attempt.responding()) if attempt.is_enough() else _ParkedFetch(attempt).promise


class _Attempt:
    """One reading of everything that a fetch asks for."""

    __slots__ = (
        "access",
        "call",
        "is_final",
        "node",
        "not_in_memory",
        "request",
        "results",
        "session",
        "size",
        "waits_for_disk",
    )

    def __init__(self, node: "Node", call: Call, request: FetchRequest, session: FetchSession) -> None:
        self.node = node
        self.call = call
        self.access = call.access
        self.request = request
        self.session = session
        self.is_final = False
        """An error or a divergence is answered at once."""
        self.waits_for_disk = False
        self.not_in_memory: list[NotInMemory] = []
        """What the disk has to be waited for before all of it can be read."""

    def is_enough(self) -> bool:
        """Whether what was read is the answer; otherwise there may be more to wait for."""
        request = self.request
        may_wait = request.max_wait_ms > 0 and self.session.partitions and not self.is_final
        return not may_wait or self.size >= request.min_bytes or not self.node.may_park()

    def read(self) -> None:
        self._take(self.session.partitions.values(), self._begin())

    def reading(self) -> Steps[None]:
        """The same in slices."""
        left = self._begin()
        # Another connection may change the session meanwhile.
        for wanted in list(self.session.partitions.values()):
            yield None
            left = self._take((wanted,), left)

    def loading(self) -> Steps[None]:
        node = self.node
        for missing in self.not_in_memory:
            yield node.slices.in_a_helper(node.workers, missing.load)
        self.not_in_memory = []
        self.waits_for_disk = True

    def _begin(self) -> int:
        """How many bytes may be read."""
        self.results: list[tuple[Wanted, _PartitionData]] = []
        self.size = 0
        max_bytes, answer_max_bytes = self.request.max_bytes, self.node.answer_max_bytes()
        return max_bytes if max_bytes < answer_max_bytes else answer_max_bytes

    def _take(self, some: Iterable[Wanted], left: int) -> int:
        """Read some partitions; how many bytes are left."""
        for wanted in some:
            try:
                data = self._read_partition(wanted, left)
            except NotInMemory as missing:
                self.not_in_memory.append(missing)
                size = missing.size_bytes
            else:
                self.results.append((wanted, data))
                size = len(data.records) if data.records else 0
            if size:
                self.size += size
                left = left - size if left > size else 0
        return left

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
            max_bytes = wanted.max_bytes if wanted.max_bytes < left else left
            at_least_one_batch = self.size == 0
            found = partition_log.read(
                wanted.fetch_offset,
                max_bytes,
                upper_bound=upper,
                at_least_one_batch=at_least_one_batch,
                waits_for_disk=self.waits_for_disk,
            )
            records = found.records
            if records and not records[HEADER_BYTES - 1] and records[RECORD_COUNT_POSITION:HEADER_BYTES] == _NO_RECORDS:
                found = _past_empty_batches(partition_log, found, max_bytes, upper, at_least_one_batch)
                records = found.records
        except KafkaError as error:
            if error.code is ErrorCode.CORRUPT_MESSAGE:
                self.node.damage_found(partition.topic, partition.index, error)
            self.is_final = True
            data.error_code = error.code
            return data
        data.high_watermark = partition_log.high_watermark
        data.last_stable_offset = partition_log.last_stable_offset
        data.log_start_offset = partition_log.log_start_offset
        data.records = records
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
        name = wanted.topic
        if self.session.uses_topic_ids:
            topic = self.node.metadata.topics_by_id.get(wanted.topic_id)
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            name = topic.name
        if not access.may(AclOperation.READ, ResourceType.TOPIC, name):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    def response(self) -> FetchResponse:
        response = FetchResponse(session_id=self.session.session_id)
        self._mention(self.results, response, {})
        return response

    def responding(self) -> Steps[FetchResponse]:
        """The same in slices."""
        response = FetchResponse(session_id=self.session.session_id)
        topics: dict[str | bytes, _TopicResponse] = {}
        for start in range(0, len(self.results), RESULTS_PER_SLICE):
            yield None
            self._mention(self.results[start : start + RESULTS_PER_SLICE], response, topics)
        return response

    def _mention(
        self,
        results: list[tuple[Wanted, _PartitionData]],
        response: FetchResponse,
        topics: dict[str | bytes, _TopicResponse],
    ) -> None:
        session = self.session
        for wanted, data in results:
            if session.is_incremental and not _is_news(wanted, data):
                continue
            wanted.answered(data.high_watermark, data.log_start_offset, is_error=data.error_code != 0)
            key = wanted.topic_id if session.uses_topic_ids else wanted.topic
            topic = topics.get(key)
            if topic is None:
                topic = topics[key] = _TopicResponse(topic=wanted.topic, topic_id=wanted.topic_id)
                response.responses.append(topic)
            topic.partitions.append(data)
            if session.session_id and data.records and (key, wanted.index) in session.partitions:
                session.partitions.move_to_end((key, wanted.index))


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
        # What was there has just been read; what comes is in memory because it was just written.
        attempt.waits_for_disk = True
        self._gathered = attempt.size
        self._read_scheduled = False
        self._is_due = False
        self._is_over = False
        self._partitions: list[Partition] = []
        for wanted, _ in attempt.results:
            try:
                partition = attempt.partition(wanted)
            except KafkaError:
                # Gone since it was read: the client has to learn that at once.
                self._read_soon()
            else:
                self._partitions.append(partition)
                partition.watch(self)
        node = attempt.node
        node.request_parked()
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
        if self._is_over:
            return
        if self._is_small:
            self._attempt.read()
            self._was_read()
        else:
            self._in_slices(self._attempt.reading(), lambda _: self._was_read())

    def _was_read(self) -> None:
        self._read_scheduled = False
        attempt = self._attempt
        if self._is_over:
            return
        if self._is_due or attempt.size >= attempt.request.min_bytes or attempt.is_final:
            self._finish()
        else:
            self._gathered = attempt.size

    def _time_out(self) -> None:
        self._is_due = True
        if not self._read_scheduled:
            self._read_scheduled = True
            self._read()

    def _finish(self) -> None:
        self._release()
        if self._is_small:
            self.promise.resolve(self._attempt.response())
        else:
            self._in_slices(self._attempt.responding(), self.promise.resolve)

    @property
    def _is_small(self) -> bool:
        return len(self._partitions) <= PARTITIONS_AT_ONCE

    def _in_slices(self, steps: Steps[T], then: Callable[[T], None]) -> None:
        node, call = self._attempt.node, self._attempt.call
        node.slices.run(steps, call.failed, bill=call.bill).then(then)

    def _abandon(self) -> None:
        self._release()

    def _release(self) -> None:
        self._is_over = True
        self._timer.cancel()
        for partition in self._partitions:
            partition.unwatch(self)
        self._attempt.node.request_resumed()
        self._attempt.call.connection.on_closed.pop(self, None)


def _past_empty_batches(
    log: PartitionLog, found: ReadResult, max_bytes: int, upper_bound: int, at_least_one_batch: bool
) -> ReadResult:
    """What comes behind batches without records, if anything does, in place of them.

    Compaction and repair leave such batches, and a segment may hold nothing else. KafkaJS asks for the same offset
    again when it gets nothing but them, and librdkafka takes them for a record that is too large to fetch.
    """
    for _ in range(EMPTY_READS_MAX):
        is_empty = all(header.record_count == 0 for _, header in iterate_headers(memoryview(found.records)))
        if not is_empty or found.next_offset >= upper_bound:
            break
        following = log.read(
            found.next_offset, max_bytes, upper_bound=upper_bound, at_least_one_batch=at_least_one_batch
        )
        if not following.records:
            break
        found = following
    return found


# What is declared


def _may_follow(access: Access, call: Call, request: FetchRequest) -> ErrorCode:
    """A client that claims to be a follower is not believed without the right to be one (CVE-2018-1288)."""
    is_old = call.version < REPLICA_STATE_VERSION
    replica_id = request.replica_id if is_old else request.replica_state.replica_id
    if replica_id < 0:
        return ErrorCode.NONE
    if not access.may_cluster(AclOperation.CLUSTER_ACTION):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    # A follower reads every topic.
    call.grant(None)
    return ErrorCode.NONE


_SHAPE = Shape(
    "topics",
    "responses",
    ("topic", "topic_id"),
    Shape(
        "partitions",
        "partitions",
        ("partition",),
        answer=_PartitionData,
        answer_keys=("partition_index",),
        on_error={"high_watermark": -1, "records": b""},
    ),
    part_entries=NEVER_SPLIT,
    answer=_TopicResponse,
)

HANDLERS = {ApiKey.FETCH: Handler(fetch, reads_only=True, shapes=(_SHAPE,), needs=(_may_follow,))}
