"""The phases of a rebalance: gather the members, hand out a generation, wait for the leader's assignment, settle.

Owns the timers of groups and members. What starts a rebalance is decided by the requests in `join` and `membership`;
what a group may do at all, by the table in `group`. Records are appended by `append`, which changes the group by
replay; what follows when a record is durable or lost is a method of its own, named after the record.
"""

from collections.abc import Callable, Hashable
from functools import partial

from fencepost.config import BrokerConfig
from fencepost.coordinators.events import (
    GroupEmptied,
    GroupRebalanced,
    GroupStabilized,
    MemberRemoved,
    RebalanceStarted,
    RemovalReason,
)
from fencepost.coordinators.group import UNKNOWN_MEMBER_ID, Group, GroupState, Member
from fencepost.coordinators.journal import Entry, GroupEntry
from fencepost.coordinators.runtime import CoordinatorRuntime, Events, ShardState, Written
from fencepost.coordinators.shard import GroupShard
from fencepost.coordinators.timers import Timers
from fencepost.coordinators.write_errors import error_for_members
from fencepost.ports import Now
from fencepost.promise import Promise
from fencepost.wire.errors import ErrorCode
from fencepost.wire.messages import GroupMetadataValue, JoinGroupResponse, SyncGroupResponse

GroupRuntime = CoordinatorRuntime[GroupShard, Entry]

# A new member has no id to heartbeat with while its join is parked; if it has not come through by then, it is gone.
NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
# If the record of a group without members could not be written, it is written again.
EMPTY_RETRY_MS = 10_000


def session_key(group: Group, member_id: str) -> Hashable:
    return ("session", group.group_id, member_id)


def join_key(group: Group) -> Hashable:
    return ("join", group.group_id)


def sync_key(group: Group) -> Hashable:
    return ("sync", group.group_id)


def refused_join(error: ErrorCode, member_id: str = UNKNOWN_MEMBER_ID) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=error, member_id=member_id, protocol_name=None)


class Rebalance:
    def __init__(self, config: BrokerConfig, runtime: GroupRuntime, timers: Timers, events: Events) -> None:
        self.config = config
        self.runtime = runtime
        self.timers = timers
        self.events = events

    # Records

    def append(self, group: Group, record: GroupMetadataValue) -> Promise[Written]:
        """Have the next record of a group written. It is applied at once, and taken back if it is lost."""
        return self.runtime.schedule_write(group.partition, (GroupEntry(group.group_id, record),))

    def is_current(self, group: Group) -> bool:
        """Whether this is still the group of its name: timers and writes may outlive it."""
        if self.runtime.state_of(group.partition) is not ShardState.ACTIVE:
            return False
        return self.runtime.machine(group.partition).groups.get(group.group_id) is group

    # Sessions

    def restart_session(self, group: Group, member: Member, now: Now, timeout_ms: int | None = None) -> None:
        if timeout_ms is None:
            timeout_ms = member.session_timeout_ms
        self.await_heartbeat(group, member.member_id, timeout_ms, now)

    def await_heartbeat(self, group: Group, member_id: str, timeout_ms: int, now: Now) -> None:
        key = session_key(group, member_id)
        self._arm(group, key, timeout_ms, now, lambda at: self._expire_session(group, member_id, at))

    def _expire_session(self, group: Group, member_id: str, now: Now) -> None:
        if member_id in group.pending_join_ids:
            group.remove(member_id)
            self.events(MemberRemoved(group.group_id, member_id, RemovalReason.NEVER_JOINED))
            if group.is_in(GroupState.PREPARING_REBALANCE) and group.has_all_members_joined:
                self.complete_join(group, now)
            return
        member = group.members.get(member_id)
        if member is None or member.has_satisfied_heartbeat:
            return
        self.remove_member(group, member, RemovalReason.SESSION_EXPIRED)
        if group.is_in(GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self.prepare_or_complete(group, f"removing member {member_id} on heartbeat expiration", now)
        elif group.is_in(GroupState.PREPARING_REBALANCE) and group.has_all_members_joined:
            self.complete_join(group, now)

    def remove_member(
        self, group: Group, member: Member, reason: RemovalReason, client_reason: str | None = None
    ) -> None:
        """Take a member out. If its join is parked here it learns that it is no longer known, and may come again."""
        self.timers.cancel(session_key(group, member.member_id))
        member.answer_join(refused_join(ErrorCode.UNKNOWN_MEMBER_ID))
        member.answer_sync(SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        group.remove(member.member_id)
        self.events(MemberRemoved(group.group_id, member.member_id, reason, client_reason))

    # First phase: gather the members
    #
    # A step that empties the group returns the promise of its record; a LeaveGroup is answered when that is durable.

    def prepare_or_complete(self, group: Group, cause: str, now: Now) -> Promise[Written] | None:
        if group.can_rebalance:
            return self.prepare(group, cause, now)
        return self.maybe_complete_join(group, now)

    def prepare(self, group: Group, cause: str, now: Now) -> Promise[Written] | None:
        if group.is_in(GroupState.COMPLETING_REBALANCE):
            self.refuse_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS, now)
        group.pending_sync_ids.clear()
        self.timers.cancel(sync_key(group))
        is_first = group.is_in(GroupState.EMPTY)
        group.transition_to(GroupState.PREPARING_REBALANCE, now.wall_ms)
        self.events(RebalanceStarted(group.group_id, group.generation_id, cause))
        if is_first:
            delay_ms = self.config.group_initial_rebalance_delay_ms
            self._await_company(group, delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0), now)
        elif group.has_all_members_joined:
            return self.complete_join(group, now)
        else:
            self._await_joins(group, now)
        return None

    def maybe_complete_join(self, group: Group, now: Now) -> Promise[Written] | None:
        """Go on as soon as everybody is here; only the first rebalance of a group waits for its delay."""
        if (
            group.is_in(GroupState.PREPARING_REBALANCE)
            and group.previous_state is not GroupState.EMPTY
            and group.has_all_members_joined
        ):
            return self.complete_join(group, now)
        return None

    def _await_joins(self, group: Group, now: Now) -> None:
        self._arm(group, join_key(group), group.rebalance_timeout_ms, now, partial(self.complete_join, group))

    def _await_company(self, group: Group, delay_ms: int, remaining_ms: int, now: Now) -> None:
        """A new group waits for more members, and again while more come, but not past the rebalance time-out."""

        def decide(at: Now) -> None:
            if remaining_ms != 0 and group.take_company():
                longer_ms = min(self.config.group_initial_rebalance_delay_ms, remaining_ms)
                self._await_company(group, longer_ms, max(remaining_ms - delay_ms, 0), at)
            else:
                self.complete_join(group, at)

        self._arm(group, join_key(group), delay_ms, now, decide)

    # Second phase: a new generation

    def complete_join(self, group: Group, now: Now) -> Promise[Written] | None:
        self.timers.cancel(join_key(group))
        for member in list(group.members.values()):
            if member.awaiting_join is None and not member.is_static:
                self.remove_member(group, member, RemovalReason.JOIN_EXPIRED)
        if not group.members:
            return self._store_empty(group, now)
        if group.elect_joined_leader():
            group.begin_next_generation(now.wall_ms)
            self._hand_out_generation(group, now)
        else:
            # Only static members, all of them silent: wait until they come or their sessions end.
            self._await_joins(group, now)
        return None

    def _store_empty(self, group: Group, now: Now) -> Promise[Written]:
        record = group.empty_record(now.wall_ms)
        written = self.append(group, record)
        written.then(partial(self._empty_written, group, record.generation))
        return written

    def _empty_written(self, group: Group, generation_id: int, written: Written) -> None:
        if written.error is ErrorCode.NONE:
            self.events(GroupEmptied(group.group_id, generation_id))
        elif self.is_current(group) and group.is_in(GroupState.PREPARING_REBALANCE) and not group.members:
            # Otherwise a restart would bring the last generation back, and its members would have to time out again.
            self._arm(group, join_key(group), EMPTY_RETRY_MS, written.now, partial(self.complete_join, group))

    def _hand_out_generation(self, group: Group, now: Now) -> None:
        assert group.leader_id is not None
        assert group.protocol is not None
        self.events(
            GroupRebalanced(group.group_id, group.generation_id, group.leader_id, group.protocol, len(group.members))
        )
        group.expect_syncs()
        generation_id = group.generation_id
        timeout_ms = group.rebalance_timeout_ms
        self._arm(group, sync_key(group), timeout_ms, now, lambda at: self._expire_syncs(group, generation_id, at))
        answers = [(member, self.joined(group, member.member_id)) for member in group.members.values()]
        for member, answer in answers:
            self.restart_session(group, member, now)
            member.settle_in()
            member.answer_join(answer)

    def joined(self, group: Group, member_id: str, *, tell_members: bool = True) -> JoinGroupResponse:
        """The answer to a member of the current generation; the leader's lists all members."""
        members = []
        if tell_members and group.is_leader(member_id):
            members = [
                JoinGroupResponse.JoinGroupResponseMember(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    metadata=member.metadata_for(group.protocol),
                )
                for member in group.members.values()
            ]
        return JoinGroupResponse(
            members=members,
            member_id=member_id,
            generation_id=group.generation_id,
            protocol_name=group.protocol,
            protocol_type=group.protocol_type,
            leader=group.leader_id or "",
        )

    # Third phase: the assignment

    def store_assignment(self, group: Group, assignments: dict[str, bytes]) -> None:
        if group.is_storing_assignment:
            # The leader asks again before its first answer: what it sent then is what counts.
            return
        group.storing_assignment()
        written = self.append(group, group.as_record(assignments))
        written.then(partial(self._assignment_written, group, group.generation_id))

    def _assignment_written(self, group: Group, generation_id: int, written: Written) -> None:
        group.stored_assignment(generation_id)
        # A member may have joined meanwhile: then this generation is over.
        if not self.is_current(group) or not group.is_in(GroupState.COMPLETING_REBALANCE):
            return
        if group.generation_id != generation_id:
            return
        if written.error is ErrorCode.NONE:
            self._hand_out_assignment(group, written.now)
        else:
            error = error_for_members(written.error)
            self.refuse_syncs(group, error, written.now)
            cause = f"{error.name} when storing the assignment of generation {generation_id}"
            self.prepare_or_complete(group, cause, written.now)

    def _hand_out_assignment(self, group: Group, now: Now) -> None:
        assert group.is_in(GroupState.COMPLETING_REBALANCE)
        group.hand_out(now.wall_ms)
        self.events(GroupStabilized(group.group_id, group.generation_id))
        self._answer_syncs(group, ErrorCode.NONE, now)

    def refuse_syncs(self, group: Group, error: ErrorCode, now: Now) -> None:
        assert group.is_in(GroupState.COMPLETING_REBALANCE)
        group.withdraw_assignment()
        self._answer_syncs(group, error, now)

    def _answer_syncs(self, group: Group, error: ErrorCode, now: Now) -> None:
        is_good = error is ErrorCode.NONE
        for member in list(group.members.values()):
            if member.awaiting_sync is None:
                continue
            # Its session may have run out unnoticed while its sync was parked: it starts anew.
            self.restart_session(group, member, now)
            answer = SyncGroupResponse(
                protocol_name=group.protocol if is_good else None,
                protocol_type=group.protocol_type if is_good else None,
                assignment=member.assignment,
                error_code=error,
            )
            member.answer_sync(answer)

    def received_sync(self, group: Group, member_id: str) -> None:
        group.pending_sync_ids.pop(member_id, None)
        if not group.pending_sync_ids:
            self.timers.cancel(sync_key(group))

    def _expire_syncs(self, group: Group, generation_id: int, now: Now) -> None:
        if generation_id != group.generation_id or not group.pending_sync_ids:
            return
        if not group.is_in(GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            return
        late = list(group.pending_sync_ids)
        for member_id in late:
            self.remove_member(group, group.members[member_id], RemovalReason.SYNC_EXPIRED)
        self.prepare(group, f"removing {', '.join(late)} on pending sync request expiration", now)

    # The end of a shard

    def abandon(self, group: Group, error: ErrorCode) -> None:
        """The group is no longer ours: answer everybody who waits and let no timer fire."""
        for key in (join_key(group), sync_key(group)):
            self.timers.cancel(key)
        for member_id in [*group.members, *group.pending_join_ids]:
            self.timers.cancel(session_key(group, member_id))
        for member in list(group.members.values()):
            member.answer_join(refused_join(error, member.member_id))
            member.answer_sync(SyncGroupResponse(error_code=error))

    def _arm(self, group: Group, key: Hashable, delay_ms: int, now: Now, callback: Callable[[Now], object]) -> None:
        def fire(at: Now) -> None:
            if self.is_current(group):
                callback(at)

        self.timers.schedule(key, now.monotonic_ms + delay_ms, fire)
