"""The group coordinator as the broker sees it: one method per request, each answering through a Promise.

Owns the wiring of the parts and the checks that come before any of them: is the group id valid, is its partition ours
and loaded. The broker loads and unloads partitions through `runtime`, and calls `on_time` at `next_deadline_ms`. That
moves with calls and with writes that become durable; `deadline_moved` is called when it came nearer.
"""

from collections.abc import Callable, Generator, Iterable

from fencepost.config import BrokerConfig
from fencepost.coordinators import journal
from fencepost.coordinators.admin import GroupAdmin
from fencepost.coordinators.commits import Commits
from fencepost.coordinators.context import Caller, Topics
from fencepost.coordinators.fetches import Fetches
from fencepost.coordinators.group import GroupState
from fencepost.coordinators.join import Joins
from fencepost.coordinators.membership import Membership
from fencepost.coordinators.placement import partition_for_key
from fencepost.coordinators.rebalance import GroupRuntime, Rebalance, refused_join
from fencepost.coordinators.runtime import Append, AppendMarkers, CoordinatorRuntime
from fencepost.coordinators.shard import GroupShard
from fencepost.coordinators.timers import Timers
from fencepost.internal_topic_names import CONSUMER_OFFSETS
from fencepost.log.producers import VerificationGuard
from fencepost.ports import Clock, Now, Randomness
from fencepost.promise import Promise
from fencepost.wire.errors import ErrorCode, KafkaError
from fencepost.wire.messages import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncGroupRequest,
    SyncGroupResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)

NULLABLE_PROTOCOL_NAME_VERSION = 7
_EXPIRY_KEY = ("expiry",)


class GroupCoordinator:
    def __init__(
        self,
        config: BrokerConfig,
        append: Append,
        topics: Topics,
        clock: Clock,
        randomness: Randomness,
        events: Callable[[object], None],
        append_markers: AppendMarkers | None = None,
        deadline_moved: Callable[[], None] = lambda: None,
    ) -> None:
        self.partition_count = config.offsets_topic_num_partitions
        """Partitions of __consumer_offsets; the broker corrects it if the topic was created with another number."""
        self.runtime: GroupRuntime = CoordinatorRuntime(
            CONSUMER_OFFSETS,
            lambda partition: GroupShard(partition, self._shard_loaded, self._shard_unloaded),
            journal,
            append,
            clock,
            events,
            append_markers=append_markers,
            decompressed_batch_bytes_max=config.decompressed_batch_max_bytes,
        )
        self._config = config
        self._timers = Timers(deadline_moved)
        self._rebalance = Rebalance(config, self.runtime, self._timers, events)
        self._joins = Joins(self._rebalance, randomness)
        self._membership = Membership(self._rebalance)
        self._commits = Commits(self._rebalance, topics, self._shard_of)
        self._fetches = Fetches(self.runtime, topics, self._shard_of)
        self._admin = GroupAdmin(self._rebalance, self._shard_of)

    def partition_for(self, group_id: str) -> int:
        return partition_for_key(group_id, self.partition_count)

    # Time

    def next_deadline_ms(self) -> int | None:
        """When `on_time` is due, on the monotonic clock; it may lie in the past."""
        return self._timers.next_deadline_ms()

    def on_time(self, now: Now) -> None:
        self._timers.run_due(now)

    # Members

    def join_group(
        self, request: JoinGroupRequest, version: int, caller: Caller, now: Now
    ) -> Promise[JoinGroupResponse]:
        reply: Promise[JoinGroupResponse] = Promise()
        try:
            self._check_join(request)
            joined = self._joins.join(self._shard_of(request.group_id), request, version, caller, now)
        except KafkaError as refusal:
            is_request_bad = refusal.code in (ErrorCode.INVALID_GROUP_ID, ErrorCode.INVALID_SESSION_TIMEOUT)
            member_id = request.member_id if is_request_bad else ""
            joined = Promise.resolved(refused_join(refusal.code, member_id))

        def answer(response: JoinGroupResponse) -> None:
            if version < NULLABLE_PROTOCOL_NAME_VERSION and response.protocol_name is None:
                response.protocol_name = ""
            reply.resolve(response)

        joined.then(answer)
        return reply

    def _check_join(self, request: JoinGroupRequest) -> None:
        self._check_group_id(request.group_id)
        shortest_ms = self._config.group_min_session_timeout_ms
        longest_ms = self._config.group_max_session_timeout_ms
        if not shortest_ms <= request.session_timeout_ms <= longest_ms:
            raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT)

    def sync_group(
        self, request: SyncGroupRequest, version: int, caller: Caller, now: Now
    ) -> Promise[SyncGroupResponse]:
        try:
            self._check_group_id(request.group_id)
            return self._membership.sync(self._shard_of(request.group_id), request, version, now)
        except KafkaError as refusal:
            return Promise.resolved(SyncGroupResponse(error_code=refusal.code))

    def heartbeat(
        self, request: HeartbeatRequest, version: int, caller: Caller, now: Now
    ) -> Promise[HeartbeatResponse]:
        try:
            self._check_group_id(request.group_id)
            error = self._membership.heartbeat(self._shard_of(request.group_id), request, now)
        except KafkaError as refusal:
            error = refusal.code
            if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                # Its session starts anew when the group is loaded: the member need not know.
                error = ErrorCode.NONE
        return Promise.resolved(HeartbeatResponse(error_code=error))

    def leave_group(
        self, request: LeaveGroupRequest, version: int, caller: Caller, now: Now
    ) -> Promise[LeaveGroupResponse]:
        try:
            self._check_group_id(request.group_id)
            return self._membership.leave(self._shard_of(request.group_id), request, version, now)
        except KafkaError as refusal:
            return Promise.resolved(LeaveGroupResponse(error_code=refusal.code))

    # Offsets

    def offset_commit(
        self, request: OffsetCommitRequest, version: int, caller: Caller, now: Now
    ) -> Promise[OffsetCommitResponse]:
        return self._commits.commit(request, version, now)

    def txn_offset_commit(
        self,
        request: TxnOffsetCommitRequest,
        version: int,
        caller: Caller,
        now: Now,
        guard: VerificationGuard | None = None,
    ) -> Promise[TxnOffsetCommitResponse]:
        """`guard`: the partition's, if the transaction is not open there yet and its coordinator has agreed."""
        return self._commits.commit_in_transaction(request, now, guard)

    def offset_fetch(
        self, request: OffsetFetchRequest, version: int, caller: Caller, now: Now
    ) -> Promise[OffsetFetchResponse]:
        return self._fetches.fetch(request, version)

    def offset_delete(
        self, request: OffsetDeleteRequest, version: int, caller: Caller, now: Now
    ) -> Promise[OffsetDeleteResponse]:
        return self._commits.delete(request)

    # Administration

    def describe_groups(
        self, request: DescribeGroupsRequest, version: int, caller: Caller, now: Now
    ) -> Promise[DescribeGroupsResponse]:
        return Promise.resolved(self._admin.describe(request, version))

    def list_groups(
        self, request: ListGroupsRequest, version: int, caller: Caller, now: Now
    ) -> Generator[None, None, ListGroupsResponse]:
        return self._admin.list_groups(request)

    def delete_groups(
        self, request: DeleteGroupsRequest, version: int, caller: Caller, now: Now
    ) -> Promise[DeleteGroupsResponse]:
        return self._admin.delete(request)

    def on_topics_deleted(self, topics: Iterable[str]) -> None:
        names = list(topics)
        for shard in self.runtime.active_machines():
            self._admin.topics_deleted(shard, names)

    # Shards

    def _shard_of(self, group_id: str) -> GroupShard:
        return self.runtime.machine(self.partition_for(group_id))

    def _check_group_id(self, group_id: str) -> None:
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)

    def _shard_loaded(self, shard: GroupShard, now: Now) -> None:
        """Members could not heartbeat while there was no coordinator: every session starts anew."""
        for group in list(shard.groups.values()):
            for member in group.members.values():
                self._rebalance.restart_session(group, member, now)
            if len(group.members) > self._config.group_max_size:
                self._rebalance.prepare(group, "the loaded group is over group.max.size", now)
        if _EXPIRY_KEY not in self._timers:
            self._await_expiry(now)

    def _shard_unloaded(self, shard: GroupShard) -> None:
        for group in shard.groups.values():
            group.transition_to(GroupState.DEAD, 0)
            self._rebalance.abandon(group, ErrorCode.NOT_COORDINATOR)

    def _await_expiry(self, now: Now) -> None:
        deadline_ms = now.monotonic_ms + self._config.offsets_retention_check_interval_ms
        self._timers.schedule(_EXPIRY_KEY, deadline_ms, self._expire)

    def _expire(self, now: Now) -> None:
        # First of all: a round that fails must not be the last.
        self._await_expiry(now)
        for shard in self.runtime.active_machines():
            self._admin.expire(shard, now)
