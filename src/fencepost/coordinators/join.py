"""JoinGroup, versions 0-9: who comes in, under which id, and whether that starts a rebalance.

From version 4 a dynamic member is first given an id (MEMBER_ID_REQUIRED) and joins with it, so that lost answers leave
no ghosts behind. Static members (version 5) keep their place across restarts: a new process takes the id over without a
rebalance, and the old one is fenced. From version 9 the answer to a leader that comes back this way says to skip the
assignment.
"""

import uuid
from functools import partial

from fencepost.coordinators.context import Caller
from fencepost.coordinators.events import MemberFenced, MemberRemoved, RemovalReason, StaticMemberReplaced
from fencepost.coordinators.group import (
    UNKNOWN_MEMBER_ID,
    Group,
    GroupState,
    Member,
    Protocols,
    distinct_protocols,
)
from fencepost.coordinators.journal import GroupEntry
from fencepost.coordinators.rebalance import NEW_MEMBER_JOIN_TIMEOUT_MS, Rebalance, refused_join, session_key
from fencepost.coordinators.runtime import Written
from fencepost.coordinators.shard import GroupShard
from fencepost.coordinators.write_errors import error_for_members
from fencepost.ports import Now, Randomness
from fencepost.promise import Promise
from fencepost.wire.errors import ErrorCode, KafkaError
from fencepost.wire.messages import GroupMetadataValue, JoinGroupRequest, JoinGroupResponse, SyncGroupResponse

KNOWN_MEMBER_ID_VERSION = 4
SKIP_ASSIGNMENT_VERSION = 9


class _Join:
    """One JoinGroup request with everything that belongs to it."""

    __slots__ = ("caller", "member_id", "now", "protocols", "rebalance_timeout_ms", "reply", "request", "version")

    def __init__(self, request: JoinGroupRequest, version: int, caller: Caller, now: Now) -> None:
        self.request = request
        self.version = version
        self.caller = caller
        self.now = now
        self.member_id = request.member_id
        self.protocols: Protocols = distinct_protocols((p.name, p.metadata) for p in request.protocols)
        # Version 0 knows one time-out only.
        self.rebalance_timeout_ms = request.session_timeout_ms if version == 0 else request.rebalance_timeout_ms
        self.reply: Promise[JoinGroupResponse] = Promise()

    @property
    def reason(self) -> str:
        return self.request.reason or "not provided"

    def refuse(self, error: ErrorCode, member_id: str = UNKNOWN_MEMBER_ID) -> None:
        self.reply.resolve(refused_join(error, member_id))


class Joins:
    def __init__(self, rebalance: Rebalance, randomness: Randomness) -> None:
        self._rebalance = rebalance
        self._config = rebalance.config
        self._events = rebalance.events
        self._randomness = randomness

    def join(
        self, shard: GroupShard, request: JoinGroupRequest, version: int, caller: Caller, now: Now
    ) -> Promise[JoinGroupResponse]:
        join = _Join(request, version, caller, now)
        group = shard.groups.get(request.group_id)
        is_unknown = join.member_id == UNKNOWN_MEMBER_ID
        if group is None:
            if not is_unknown:
                join.refuse(ErrorCode.UNKNOWN_MEMBER_ID, join.member_id)
                return join.reply
            self._found_group(shard, join)
        else:
            self._dispatch(group, join)
        return join.reply

    def _found_group(self, shard: GroupShard, join: _Join) -> None:
        """A group begins with a record that says that it is empty."""
        group_id = join.request.group_id
        empty = GroupMetadataValue(protocol=None, leader=None, current_state_timestamp=join.now.wall_ms)
        written = self._rebalance.runtime.schedule_write(shard.partition, (GroupEntry(group_id, empty),))
        group = shard.groups.get(group_id)
        if group is None:
            join.refuse(error_for_members(written.value.error))
            return
        self._dispatch(group, join)
        written.then(partial(self._founding_written, group, join))

    def _founding_written(self, group: Group, join: _Join, written: Written) -> None:
        if written.error is not ErrorCode.NONE:
            error = error_for_members(written.error)
            self._rebalance.abandon(group, error)
            join.refuse(error)

    def _dispatch(self, group: Group, join: _Join) -> None:
        is_unknown = join.member_id == UNKNOWN_MEMBER_ID
        if not self._has_room_for(group, join.member_id):
            if group.remove(join.member_id) is not None:
                self._events(MemberRemoved(group.group_id, join.member_id, RemovalReason.GROUP_FULL))
            join.refuse(ErrorCode.GROUP_MAX_SIZE_REACHED)
        elif not group.supports(join.request.protocol_type, join.protocols):
            join.refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, join.member_id)
        elif is_unknown:
            self._join_new(group, join)
        else:
            self._join_existing(group, join)

    def _has_room_for(self, group: Group, member_id: str) -> bool:
        limit = self._config.group_max_size
        member = group.members.get(member_id)
        if group.is_in(GroupState.PREPARING_REBALANCE):
            # Those who wait are counted, not the members: that also pushes out the last to rejoin of a group that
            # is too large since the limit was lowered.
            return (member is not None and member.awaiting_join is not None) or group.awaiting_join_count < limit
        if group.is_in(GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            return member is not None or len(group.members) < limit
        return True

    # New members

    def _join_new(self, group: Group, join: _Join) -> None:
        instance_id = join.request.group_instance_id
        member_id = self._new_member_id(join)
        if instance_id is not None:
            old_id = group.static_member_ids.get(instance_id)
            if old_id is not None:
                self._replace_static(group, instance_id, old_id, member_id, join)
            else:
                self._add(group, member_id, join)
        elif join.version >= KNOWN_MEMBER_ID_VERSION:
            group.pending_join_ids.add(member_id)
            self._rebalance.await_heartbeat(group, member_id, join.request.session_timeout_ms, join.now)
            join.refuse(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        else:
            self._add(group, member_id, join)

    def _new_member_id(self, join: _Join) -> str:
        prefix = join.request.group_instance_id
        if prefix is None:
            prefix = join.caller.client_id
        return f"{prefix}-{uuid.UUID(bytes=self._randomness.random_bytes(16), version=4)}"

    def _add(self, group: Group, member_id: str, join: _Join) -> None:
        member = Member(
            member_id,
            join.request.group_instance_id,
            join.caller.client_id,
            # Java prints an address without a host name this way, and clients show what they get.
            f"/{join.caller.client_host}",
            join.rebalance_timeout_ms,
            join.request.session_timeout_ms,
            join.request.protocol_type,
            join.protocols,
            is_new=True,
        )
        if group.is_in(GroupState.PREPARING_REBALANCE) and group.previous_state is GroupState.EMPTY:
            group.note_company()
        group.add(member)
        member.park_join(join.reply)
        self._rebalance.restart_session(group, member, join.now, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._rebalance.prepare_or_complete(
            group, f"adding new member {member_id}; client reason: {join.reason}", join.now
        )

    # Members that are known already

    def _join_existing(self, group: Group, join: _Join) -> None:
        member_id, instance_id = join.member_id, join.request.group_instance_id
        if member_id in group.pending_join_ids:
            if instance_id is not None:
                # Static members are never asked to come again, so this one is unknown.
                join.refuse(ErrorCode.UNKNOWN_SERVER_ERROR, member_id)
                return
            self._add(group, member_id, join)
            return
        try:
            group.check_member(member_id, instance_id)
        except KafkaError as error:
            self._note_fencing(group, join, error)
            join.refuse(error.code, member_id)
            return
        member = group.members[member_id]
        is_unchanged = member.protocols == join.protocols
        if group.is_in(GroupState.PREPARING_REBALANCE):
            self._update(group, member, join, "is joining")
        elif group.is_in(GroupState.COMPLETING_REBALANCE) and is_unchanged:
            # The answer to its first join was probably lost.
            join.reply.resolve(self._rebalance.joined(group, member_id))
        elif group.is_in(GroupState.COMPLETING_REBALANCE):
            self._update(group, member, join, "has new metadata")
        elif group.is_in(GroupState.STABLE) and group.is_leader(member_id):
            # The leader asks for a rebalance this way, for reasons that only it sees, such as new partitions.
            self._update(group, member, join, "leads and rejoins")
        elif group.is_in(GroupState.STABLE) and not is_unchanged:
            self._update(group, member, join, "has new metadata")
        elif group.is_in(GroupState.STABLE):
            join.reply.resolve(self._rebalance.joined(group, member_id))
        else:
            join.refuse(ErrorCode.UNKNOWN_MEMBER_ID, member_id)

    def _update(self, group: Group, member: Member, join: _Join, what: str) -> None:
        group.update(member, join.protocols, join.rebalance_timeout_ms, join.request.session_timeout_ms)
        member.park_join(join.reply)
        self._rebalance.prepare_or_complete(
            group,
            f"member {member.member_id} {what} during {group.state.value}; client reason: {join.reason}",
            join.now,
        )

    def _note_fencing(self, group: Group, join: _Join, error: KafkaError) -> None:
        instance_id = join.request.group_instance_id
        if error.code is ErrorCode.FENCED_INSTANCE_ID and instance_id is not None:
            current = group.static_member_ids[instance_id]
            self._events(MemberFenced(group.group_id, instance_id, join.member_id, current, "JoinGroup"))

    # Static members that come back

    def _replace_static(self, group: Group, instance_id: str, old_id: str, new_id: str, join: _Join) -> None:
        if group.is_in(GroupState.STABLE) and group.protocol_with(old_id, join.protocols) == group.protocol:
            self._store_takeover(group, instance_id, old_id, new_id, join)
            return
        old = group.members[old_id]
        member = group.replace_static(old_id, new_id)
        self._taken_over(group, instance_id, old, member, join)
        cause = f"static member {new_id} took over {instance_id}; client reason: {join.reason}"
        if group.is_in(GroupState.COMPLETING_REBALANCE):
            # The leader may be assigning partitions to the old id right now.
            self._rebalance.prepare(group, cause, join.now)
        elif not group.is_in(GroupState.STABLE):
            self._rebalance.maybe_complete_join(group, join.now)
        else:
            self._rebalance.prepare_or_complete(group, cause, join.now)

    def _taken_over(self, group: Group, instance_id: str, old: Member, member: Member, join: _Join) -> None:
        """The place has a new id: fence what still waits under the old one, and let the new one wait."""
        self._rebalance.timers.cancel(session_key(group, old.member_id))
        fenced = ErrorCode.FENCED_INSTANCE_ID
        old.answer_join(refused_join(fenced, old.member_id))
        old.answer_sync(SyncGroupResponse(error_code=fenced))
        self._events(StaticMemberReplaced(group.group_id, instance_id, old.member_id, member.member_id))
        group.update(member, join.protocols, join.rebalance_timeout_ms, join.request.session_timeout_ms)
        # As in Kafka, its new session time-out counts from its first heartbeat on.
        self._rebalance.restart_session(group, member, join.now, old.session_timeout_ms)
        member.park_join(join.reply)

    def _store_takeover(self, group: Group, instance_id: str, old_id: str, new_id: str, join: _Join) -> None:
        """A static member is back and changes nothing: no rebalance, but its new id must survive a restart."""
        old, leader_before = group.members[old_id], group.leader_id
        record = group.takeover_record(
            old_id, new_id, join.protocols, join.rebalance_timeout_ms, join.request.session_timeout_ms
        )
        written = self._rebalance.append(group, record)
        member = group.members.get(new_id)
        if member is None:
            join.reply.resolve(self._not_taken_over(group, leader_before, written.value.error))
            return
        self._taken_over(group, instance_id, old, member, join)
        written.then(partial(self._takeover_written, group, old, member, leader_before, join))

    def _takeover_written(
        self, group: Group, old: Member, member: Member, leader_before: str | None, join: _Join, written: Written
    ) -> None:
        if written.error is not ErrorCode.NONE:
            # By now the group has its old member back.
            self._rebalance.timers.cancel(session_key(group, member.member_id))
            if self._rebalance.is_current(group) and group.members.get(old.member_id) is old:
                self._rebalance.restart_session(group, old, written.now)
            answer = self._not_taken_over(group, leader_before, written.error)
            member.answer_join(answer)
            member.answer_sync(SyncGroupResponse(error_code=answer.error_code))
            join.reply.resolve(answer)
        elif member.awaiting_join is not join.reply or not group.is_in(GroupState.STABLE):
            # A rebalance began meanwhile: this join is part of it and is answered by it.
            return
        elif join.version >= SKIP_ASSIGNMENT_VERSION:
            answer = self._rebalance.joined(group, member.member_id)
            answer.skip_assignment = group.is_leader(member.member_id)
            member.answer_join(answer)
        else:
            # An older leader must not compute an assignment for a group that is stable, so its answer says that the
            # id it had before leads.
            answer = self._rebalance.joined(group, member.member_id, tell_members=False)
            answer.leader = leader_before or ""
            member.answer_join(answer)

    def _not_taken_over(self, group: Group, leader_before: str | None, error: ErrorCode) -> JoinGroupResponse:
        answer = self._rebalance.joined(group, UNKNOWN_MEMBER_ID, tell_members=False)
        answer.leader = leader_before or ""
        answer.error_code = error_for_members(error)
        return answer
