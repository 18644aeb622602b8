"""Assignments, heartbeats and leaving: the life of a member once it has an id."""

import pytest

from fencepost.coordinators.events import GroupEmptied, GroupStabilized, MemberRemoved, RemovalReason
from fencepost.wire.errors import ErrorCode
from tests.unit.coordinators.scene import GROUP, REBALANCE_MS, SESSION_MS, Scene


def joined_pair(scene: Scene) -> tuple[str, str]:
    """A leader and a follower of generation 1 that wait for their assignment."""
    leader, follower = scene.new_id(), scene.new_id()
    scene.join(leader)
    scene.join(follower)
    scene.advance(0)
    return leader, follower


def test_everybody_gets_their_share_once_the_leader_has_assigned_it() -> None:
    scene = Scene()
    leader, follower = joined_pair(scene)
    waiting = scene.sync_group(follower, 1)
    assert not waiting.done
    own = scene.sync_group(leader, 1, {leader: b"0,1", follower: b"2,3"})
    assert own.value.assignment == b"0,1"
    assert waiting.value.assignment == b"2,3"
    assert (waiting.value.protocol_type, waiting.value.protocol_name) == ("consumer", "range")
    assert scene.state() == "Stable"
    assert scene.happened(GroupStabilized) == [GroupStabilized(GROUP, 1)]


def test_a_member_without_a_share_gets_an_empty_one() -> None:
    scene = Scene()
    leader, follower = joined_pair(scene)
    scene.sync_group(leader, 1, {leader: b"all"})
    assert scene.sync_group(follower, 1).value.assignment == b""


def test_the_assignment_is_handed_out_only_when_it_is_durable() -> None:
    scene = Scene()
    leader, follower = joined_pair(scene)
    scene.is_disk_slow = True
    own = scene.sync_group(leader, 1, {leader: b"all"})
    waiting = scene.sync_group(follower, 1)
    assert not own.done
    assert scene.state() == "CompletingRebalance"
    scene.sync()
    assert own.value.assignment == b"all"
    assert waiting.value.error_code == ErrorCode.NONE
    assert scene.state() == "Stable"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_when_the_assignment_cannot_be_stored_everybody_starts_over(error: ErrorCode, told: ErrorCode) -> None:
    scene = Scene()
    leader, follower = joined_pair(scene)
    waiting = scene.sync_group(follower, 1)
    scene.failures.append(error)
    assert scene.sync_group(leader, 1, {leader: b"all"}).value.error_code == told
    assert waiting.value.error_code == told
    assert scene.state() == "PreparingRebalance"
    scene.join(follower)
    assert scene.join(leader).value.generation_id == 2


def test_a_join_during_the_write_makes_the_assignment_history() -> None:
    scene = Scene()
    leader, follower = joined_pair(scene)
    scene.is_disk_slow = True
    own = scene.sync_group(leader, 1, {leader: b"all"})
    rejoined = scene.join(follower, topics=["audit"])
    assert own.value.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    scene.sync()
    assert scene.state() == "PreparingRebalance"
    scene.join(leader)
    assert rejoined.value.generation_id == 2


def test_bad_syncs_are_refused_as_kafka_does() -> None:
    scene = Scene()
    assert scene.sync_group("nobody", 1).value.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.sync_group("nobody", 1, group="").value.error_code == ErrorCode.INVALID_GROUP_ID
    leader, _ = joined_pair(scene)
    assert scene.sync_group("nobody", 1).value.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.sync_group(leader, 7).value.error_code == ErrorCode.ILLEGAL_GENERATION
    assert scene.sync_group(leader, 1, protocol="sticky").value.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert scene.sync_group(leader, 1, protocol=None).value.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert not scene.sync_group(leader, 1, protocol=None, version=4).value.error_code


def test_a_member_that_never_fetches_its_assignment_is_removed() -> None:
    scene = Scene()
    leader, follower = joined_pair(scene)
    scene.sync_group(leader, 1, {leader: b"all"})
    for _ in range(REBALANCE_MS // 5_000):
        scene.heartbeat(leader, 1)
        scene.heartbeat(follower, 1)
        scene.advance(5_000)
    assert scene.happened(MemberRemoved) == [MemberRemoved(GROUP, follower, RemovalReason.SYNC_EXPIRED)]
    assert scene.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS


def test_heartbeats_keep_a_member_and_silence_removes_it() -> None:
    scene = Scene()
    leader, follower = scene.stable_group(2)
    for _ in range(10):
        scene.advance(SESSION_MS - 1)
        assert scene.heartbeat(leader, 1) == scene.heartbeat(follower, 1) == ErrorCode.NONE
    scene.advance(1)
    scene.heartbeat(leader, 1)
    scene.advance(SESSION_MS - 1)
    assert scene.happened(MemberRemoved) == [MemberRemoved(GROUP, follower, RemovalReason.SESSION_EXPIRED)]
    assert scene.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert scene.heartbeat(follower, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_whose_last_member_falls_silent_is_written_as_empty() -> None:
    scene = Scene()
    scene.stable_group()
    scene.advance(SESSION_MS)
    assert scene.state() == "Empty"
    assert scene.happened(GroupEmptied) == [GroupEmptied(GROUP, 2)]
    last = scene.journal()[-1].value
    assert (last.generation, last.protocol, last.leader, last.members) == (2, None, None, [])
    assert last.protocol_type == "consumer"


def test_a_member_whose_join_is_parked_needs_no_heartbeat() -> None:
    scene = Scene()
    leader, follower = scene.stable_group(2)
    parked = scene.join(leader)
    for _ in range(4):
        scene.advance(SESSION_MS - 1)
        scene.heartbeat(follower, 1)
    assert not parked.done
    scene.join(follower)
    assert parked.value.error_code == ErrorCode.NONE


def test_heartbeats_are_checked() -> None:
    scene = Scene()
    assert scene.heartbeat("nobody", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.heartbeat("nobody", 1, group="") == ErrorCode.INVALID_GROUP_ID
    (member,) = scene.stable_group()
    assert scene.heartbeat(member, 2) == ErrorCode.ILLEGAL_GENERATION
    assert scene.heartbeat("nobody", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.heartbeat(member, 1, instance="never-seen") == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_leaves_makes_the_others_rebalance() -> None:
    scene = Scene()
    leader, follower = scene.stable_group(2)
    answer = scene.leave(follower).value
    assert [(m.member_id, m.error_code) for m in answer.members] == [(follower, ErrorCode.NONE)]
    assert scene.happened(MemberRemoved) == [MemberRemoved(GROUP, follower, RemovalReason.LEFT)]
    rejoined = scene.join(leader).value
    assert (rejoined.generation_id, len(rejoined.members)) == (2, 1)


def test_the_last_to_leave_is_answered_when_the_empty_group_is_durable() -> None:
    scene = Scene()
    (member,) = scene.stable_group()
    scene.is_disk_slow = True
    leaving = scene.leave(member)
    assert not leaving.done
    scene.sync()
    assert leaving.value.error_code == ErrorCode.NONE
    assert scene.state() == "Empty"


def test_several_members_leave_at_once_each_with_an_answer_of_its_own() -> None:
    scene = Scene()
    first, second = scene.stable_group(2)
    answer = scene.leave(first, "nobody", second).value
    assert [m.error_code for m in answer.members] == [0, ErrorCode.UNKNOWN_MEMBER_ID, 0]
    assert scene.state() == "Empty"


def test_before_version_3_leaving_has_one_answer() -> None:
    scene = Scene()
    (member,) = scene.stable_group()
    assert scene.leave("nobody", version=2).value.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.leave(member, version=2).value.error_code == ErrorCode.NONE
    assert scene.leave(member, version=0).value.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.leave(member, group="", version=0).value.error_code == ErrorCode.INVALID_GROUP_ID


def test_leaving_with_a_parked_join_answers_the_join() -> None:
    scene = Scene()
    scene.stable_group()
    newcomer = scene.new_id()
    parked = scene.join(newcomer)
    scene.leave(newcomer)
    assert parked.value.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_id_that_was_given_out_can_be_given_back() -> None:
    scene = Scene()
    (leader,) = scene.stable_group()
    pending = scene.new_id()
    rejoin = scene.join(leader)
    assert not rejoin.done
    assert scene.leave(pending).value.members[0].error_code == ErrorCode.NONE
    assert rejoin.value.generation_id == 2


def test_the_next_member_leads_when_the_leader_leaves() -> None:
    scene = Scene()
    leader, follower = scene.stable_group(2)
    scene.leave(leader)
    rejoined = scene.join(follower).value
    assert rejoined.leader == follower
    assert len(rejoined.members) == 1
