"""SyncGroup 0-5, Heartbeat 0-4 and LeaveGroup 0-5: what members do once they have an id."""

from fencepost.coordinators.events import MemberFenced, MemberRemoved, RemovalReason
from fencepost.coordinators.group import UNKNOWN_MEMBER_ID, Group, GroupState
from fencepost.coordinators.rebalance import Rebalance, session_key
from fencepost.coordinators.runtime import Written
from fencepost.coordinators.shard import GroupShard
from fencepost.coordinators.write_errors import error_for_commits
from fencepost.ports import Now
from fencepost.promise import Promise
from fencepost.wire.errors import ErrorCode, KafkaError
from fencepost.wire.messages import (
    HeartbeatRequest,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

MANDATORY_PROTOCOL_VERSION = 5


class Membership:
    def __init__(self, rebalance: Rebalance) -> None:
        self._rebalance = rebalance
        self._events = rebalance.events

    # SyncGroup

    def sync(self, shard: GroupShard, request: SyncGroupRequest, version: int, now: Now) -> Promise[SyncGroupResponse]:
        if version >= MANDATORY_PROTOCOL_VERSION and (request.protocol_type is None or request.protocol_name is None):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        group = shard.groups.get(request.group_id)
        if group is None or group.is_in(GroupState.EMPTY):
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        self._check(group, request.member_id, request.group_instance_id, "SyncGroup")
        if request.generation_id != group.generation_id:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        if _differs(request.protocol_type, group.protocol_type) or _differs(request.protocol_name, group.protocol):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.is_in(GroupState.PREPARING_REBALANCE):
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        self._rebalance.received_sync(group, request.member_id)
        member = group.members[request.member_id]
        if group.is_in(GroupState.STABLE):
            return Promise.resolved(
                SyncGroupResponse(
                    protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=member.assignment
                )
            )
        reply: Promise[SyncGroupResponse] = Promise()
        member.park_sync(reply)
        if group.is_leader(request.member_id):
            assignments = dict.fromkeys(group.members, b"")
            assignments.update((a.member_id, a.assignment) for a in request.assignments)
            self._rebalance.store_assignment(group, assignments)
        return reply

    # Heartbeat

    def heartbeat(self, shard: GroupShard, request: HeartbeatRequest, now: Now) -> ErrorCode:
        group = shard.groups.get(request.group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        self._check(group, request.member_id, request.group_instance_id, "Heartbeat")
        if request.generation_id != group.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        self._rebalance.restart_session(group, group.members[request.member_id], now)
        return ErrorCode.REBALANCE_IN_PROGRESS if group.is_in(GroupState.PREPARING_REBALANCE) else ErrorCode.NONE

    # LeaveGroup

    def leave(
        self, shard: GroupShard, request: LeaveGroupRequest, version: int, now: Now
    ) -> Promise[LeaveGroupResponse]:
        identities = request.members
        if version <= 2:
            identities = [LeaveGroupRequest.MemberIdentity(member_id=request.member_id)]
        group = shard.groups.get(request.group_id)
        answers = []
        for identity in identities:
            error = ErrorCode.UNKNOWN_MEMBER_ID
            if group is not None:
                error = self._leave_one(group, identity)
            answers.append(
                LeaveGroupResponse.MemberResponse(
                    member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=error
                )
            )
        gone = [answer.member_id for answer in answers if answer.error_code == ErrorCode.NONE]
        emptied = None if group is None or not gone else self._after_leaving(group, gone, now)
        reply: Promise[LeaveGroupResponse] = Promise()

        def answer_when_durable(written: Written) -> None:
            if written.error is not ErrorCode.NONE:
                reply.resolve(LeaveGroupResponse(error_code=error_for_commits(written.error)))
            elif version <= 2:
                reply.resolve(LeaveGroupResponse(error_code=answers[0].error_code))
            else:
                reply.resolve(LeaveGroupResponse(members=answers))

        if emptied is not None and emptied.done and emptied.value.error is not ErrorCode.NONE:
            answer_when_durable(emptied.value)
        else:
            self._rebalance.runtime.schedule_write(shard.partition, ()).then(answer_when_durable)
        return reply

    def _leave_one(self, group: Group, identity: LeaveGroupRequest.MemberIdentity) -> ErrorCode:
        member_id = identity.member_id
        if member_id == UNKNOWN_MEMBER_ID:
            # An administrator removes a static member without knowing its id.
            if identity.group_instance_id not in group.static_member_ids:
                return ErrorCode.UNKNOWN_MEMBER_ID
            assert identity.group_instance_id is not None
            member_id = group.static_member_ids[identity.group_instance_id]
        elif member_id in group.pending_join_ids:
            group.remove(member_id)
            self._rebalance.timers.cancel(session_key(group, member_id))
            self._events(MemberRemoved(group.group_id, member_id, RemovalReason.LEFT, identity.reason))
            return ErrorCode.NONE
        else:
            try:
                self._check(group, member_id, identity.group_instance_id, "LeaveGroup")
            except KafkaError as error:
                return error.code
        self._rebalance.remove_member(group, group.members[member_id], RemovalReason.LEFT, identity.reason)
        return ErrorCode.NONE

    def _after_leaving(self, group: Group, gone: list[str], now: Now) -> Promise[Written] | None:
        if group.is_in(GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            return self._rebalance.prepare(group, f"explicit LeaveGroup request for ({', '.join(gone)})", now)
        return self._rebalance.maybe_complete_join(group, now)

    def _check(self, group: Group, member_id: str, group_instance_id: str | None, operation: str) -> None:
        try:
            group.check_member(member_id, group_instance_id)
        except KafkaError as error:
            if error.code is ErrorCode.FENCED_INSTANCE_ID and group_instance_id is not None:
                current = group.static_member_ids[group_instance_id]
                self._events(MemberFenced(group.group_id, group_instance_id, member_id, current, operation))
            raise


def _differs(given: str | None, current: str | None) -> bool:
    return given is not None and current is not None and given != current
