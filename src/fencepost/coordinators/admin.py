"""DescribeGroups 0-6, ListGroups 0-5, DeleteGroups 0-2, and how offsets and groups end by themselves.

An offset expires when its group has been empty, or it has not been committed, for `offsets.retention.minutes`; never
while a member subscribes to its topic or a transaction holds a newer one. A group without offsets or members goes too.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial

from fencepost.coordinators.events import GroupDeleted, OffsetsRemoved
from fencepost.coordinators.group import Group, GroupState
from fencepost.coordinators.journal import CommittedOffset, Entry, GroupEntry, OffsetEntry
from fencepost.coordinators.rebalance import Rebalance
from fencepost.coordinators.runtime import Written
from fencepost.coordinators.shard import GroupShard
from fencepost.coordinators.write_errors import error_for_commits
from fencepost.ports import Now
from fencepost.promise import Promise
from fencepost.wire.errors import ErrorCode, KafkaError
from fencepost.wire.messages import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)

GROUP_ID_NOT_FOUND_VERSION = 6
CLASSIC_GROUP_TYPE = "classic"
GROUPS_PER_STEP = 32
# Read, delete, describe, describe configs and alter configs: everything that may be done to a group.
ALL_GROUP_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11

Described = DescribeGroupsResponse.DescribedGroup
DescribedMember = DescribeGroupsResponse.DescribedGroup.DescribedGroupMember
Listed = ListGroupsResponse.ListedGroup
Deleted = DeleteGroupsResponse.DeletableGroupResult

CommitTimestampOf = Callable[[CommittedOffset], int]


class GroupAdmin:
    def __init__(self, rebalance: Rebalance, shard_of: Callable[[str], GroupShard]) -> None:
        self._rebalance = rebalance
        self._runtime = rebalance.runtime
        self._events = rebalance.events
        self._shard_of = shard_of

    # DescribeGroups

    def describe(self, request: DescribeGroupsRequest, version: int) -> DescribeGroupsResponse:
        described = []
        for group_id in dict.fromkeys(request.groups):
            try:
                group = self._shard_of(group_id).groups.get(group_id)
            except KafkaError as refusal:
                described.append(Described(group_id=group_id, error_code=refusal.code))
                continue
            answer = _describe_missing(group_id, version) if group is None else _describe(group)
            if request.include_authorized_operations and answer.error_code == ErrorCode.NONE:
                answer.authorized_operations = ALL_GROUP_OPERATIONS
            described.append(answer)
        return DescribeGroupsResponse(groups=described)

    # ListGroups

    def list_groups(self, request: ListGroupsRequest) -> Generator[None, None, ListGroupsResponse]:
        """Yields where others may be served: there may be very many groups."""
        if self._runtime.is_loading:
            return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        states = {state.lower() for state in request.states_filter}
        types = {kind.lower() for kind in request.types_filter}
        if types and CLASSIC_GROUP_TYPE not in types:
            return ListGroupsResponse()
        listed = []
        for shard in list(self._runtime.active_machines()):
            for number, group in enumerate(list(shard.groups.values())):
                if not number % GROUPS_PER_STEP:
                    yield None
                state = group.state.value
                if group.state is not GroupState.DEAD and (not states or state.lower() in states):
                    listed.append(
                        Listed(
                            group_id=group.group_id,
                            protocol_type=group.protocol_type or "",
                            group_state=state,
                            group_type=CLASSIC_GROUP_TYPE,
                        )
                    )
        return ListGroupsResponse(groups=listed)

    # DeleteGroups

    def delete(self, request: DeleteGroupsRequest) -> Promise[DeleteGroupsResponse]:
        results: dict[str, ErrorCode] = {}
        doomed: dict[int, list[tuple[GroupShard, Group]]] = {}
        for group_id in dict.fromkeys(request.groups_names):
            try:
                shard = self._shard_of(group_id)
                group = _deletable(shard, group_id)
            except KafkaError as refusal:
                results[group_id] = refusal.code
                continue
            results[group_id] = ErrorCode.NONE
            doomed.setdefault(shard.partition, []).append((shard, group))
        reply: Promise[DeleteGroupsResponse] = Promise()
        waiting = set(doomed)

        def answer_if_complete() -> None:
            if not waiting:
                answers = [Deleted(group_id=group_id, error_code=error) for group_id, error in results.items()]
                reply.resolve(DeleteGroupsResponse(results=answers))

        def written(partition: int, outcome: Written) -> None:
            for _, group in doomed[partition]:
                results[group.group_id] = error_for_commits(outcome.error)
                if outcome.error is ErrorCode.NONE:
                    self._events(GroupDeleted(group.group_id, "DeleteGroups"))
            waiting.discard(partition)
            answer_if_complete()

        answer_if_complete()
        for partition, groups in doomed.items():
            entries: list[Entry] = []
            for shard, group in groups:
                entries.extend(_tombstones(shard, group.group_id))
            promise = self._runtime.schedule_write(partition, entries)
            promise.then(partial(written, partition))
        return reply

    # What ends without being asked

    def expire(self, shard: GroupShard, now: Now) -> None:
        """One round of expiry over the groups of a shard."""
        retention_ms = self._rebalance.config.offsets_retention_minutes * 60_000
        entries: list[Entry] = []
        removed: list[object] = []
        for group in shard.groups.values():
            expired, is_bare = _expired_offsets(shard, group, retention_ms, now)
            entries.extend(expired)
            if expired:
                removed.append(OffsetsRemoved(group.group_id, len(expired), "offsets.retention.minutes"))
            if is_bare and group.is_in(GroupState.EMPTY):
                entries.append(GroupEntry(group.group_id, None))
                removed.append(GroupDeleted(group.group_id, "empty and without offsets"))
        self._remove(shard, entries, removed)

    def topics_deleted(self, shard: GroupShard, topics: Iterable[str]) -> None:
        gone = frozenset(topics)
        entries: list[Entry] = []
        removed: list[object] = []
        for group_id in dict.fromkeys([g for g, _ in shard.offsets.groups()] + shard.offsets.pending_group_ids()):
            keys = dict.fromkeys([*shard.offsets.of_group(group_id), *shard.offsets.pending_of_group(group_id)])
            lost = [OffsetEntry(group_id, topic, index, None) for topic, index in keys if topic in gone]
            entries.extend(lost)
            if lost:
                removed.append(OffsetsRemoved(group_id, len(lost), "the topic was deleted"))
        self._remove(shard, entries, removed)

    def _remove(self, shard: GroupShard, entries: Sequence[Entry], removed: Iterable[object]) -> None:
        if not entries:
            return

        def written(outcome: Written) -> None:
            # A round that could not be written is not made up for: the next one finds the same.
            if outcome.error is ErrorCode.NONE:
                for event in removed:
                    self._events(event)

        self._runtime.schedule_write(shard.partition, entries).then(written)


def _describe(group: Group) -> Described:
    # Metadata belongs to the protocol that was chosen, and is only final once the group is stable.
    is_stable = group.is_in(GroupState.STABLE)
    return Described(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol or "") if is_stable else "",
        members=[
            DescribedMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata_for(group.protocol) if is_stable else b"",
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )


def _describe_missing(group_id: str, version: int) -> Described:
    answer = Described(group_id=group_id, group_state=GroupState.DEAD.value)
    if version >= GROUP_ID_NOT_FOUND_VERSION:
        answer.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        answer.error_message = f"Group {group_id} not found."
    return answer


def _deletable(shard: GroupShard, group_id: str) -> Group:
    group = shard.groups.get(group_id)
    if group is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
    if not group.is_in(GroupState.EMPTY):
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
    return group


def _tombstones(shard: GroupShard, group_id: str) -> list[Entry]:
    keys = dict.fromkeys([*shard.offsets.of_group(group_id), *shard.offsets.pending_of_group(group_id)])
    return [*(OffsetEntry(group_id, topic, partition, None) for topic, partition in keys), GroupEntry(group_id, None)]


def _expired_offsets(shard: GroupShard, group: Group, retention_ms: int, now: Now) -> tuple[list[OffsetEntry], bool]:
    """Tombstones for what has expired, and whether that leaves the group without offsets."""
    offsets = shard.offsets.of_group(group.group_id)
    is_bare = not shard.offsets.has_open_transaction(group.group_id)
    if not offsets:
        return [], is_bare
    timestamp_of = _retention_starts(group)
    if timestamp_of is None:
        return [], False
    expired: list[OffsetEntry] = []
    for (topic, partition), stored in offsets.items():
        if (
            not group.is_subscribed_to(topic)
            and _is_expired(stored.value, timestamp_of, retention_ms, now)
            and not shard.offsets.is_pending(group.group_id, topic, partition)
        ):
            expired.append(OffsetEntry(group.group_id, topic, partition, None))
        else:
            is_bare = False
    return expired, is_bare


def _retention_starts(group: Group) -> CommitTimestampOf | None:
    """From when an offset's retention counts; None while nothing of the group may expire."""
    if group.protocol_type is None:
        return lambda committed: committed.commit_timestamp_ms
    if group.is_in(GroupState.EMPTY):
        # Since the group has been empty; records from before version 2 do not say since when.
        since_ms = group.state_timestamp_ms
        return lambda committed: committed.commit_timestamp_ms if since_ms is None else since_ms
    if group.uses_consumer_protocol and group.subscribed_topics is not None and group.is_in(GroupState.STABLE):
        return lambda committed: committed.commit_timestamp_ms
    return None


def _is_expired(committed: CommittedOffset, timestamp_of: CommitTimestampOf, retention_ms: int, now: Now) -> bool:
    if committed.expire_timestamp_ms is not None:
        return now.wall_ms >= committed.expire_timestamp_ms
    return now.wall_ms - timestamp_of(committed) >= retention_ms
