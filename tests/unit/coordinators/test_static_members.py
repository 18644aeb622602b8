"""Static members (KIP-345, KIP-814): a process that restarts keeps its place, and the one before it is fenced."""

from fencepost.coordinators.events import MemberFenced, StaticMemberReplaced
from fencepost.wire.errors import ErrorCode
from tests.unit.coordinators.scene import GROUP, REBALANCE_MS, SESSION_MS, Scene


def stable_static(scene: Scene) -> str:
    join = scene.join(instance="till-1")
    scene.advance(0)
    member_id = str(join.value.member_id)
    scene.sync_group(member_id, 1, {member_id: b"all"}, instance="till-1")
    return member_id


def test_a_static_member_needs_no_second_join() -> None:
    scene = Scene()
    member_id = stable_static(scene)
    assert member_id.startswith("till-1-")
    assert scene.journal()[-1].value.members[0].group_instance_id == "till-1"


def test_a_restarted_leader_takes_its_place_without_a_rebalance_and_skips_the_assignment() -> None:
    scene = Scene()
    old = stable_static(scene)
    back = scene.join(instance="till-1").value
    assert back.error_code == ErrorCode.NONE
    assert back.member_id != old
    assert (back.generation_id, back.leader, back.skip_assignment) == (1, back.member_id, True)
    assert [m.member_id for m in back.members] == [back.member_id]
    assert scene.state() == "Stable"
    assert scene.sync_group(back.member_id, 1, instance="till-1").value.assignment == b"all"
    assert scene.happened(StaticMemberReplaced) == [StaticMemberReplaced(GROUP, "till-1", old, back.member_id)]


def test_before_version_9_a_restarted_leader_is_told_that_its_old_self_leads() -> None:
    scene = Scene()
    old = stable_static(scene)
    back = scene.join(instance="till-1", version=8).value
    assert back.leader == old
    assert back.members == []
    assert back.skip_assignment is False


def test_the_process_before_is_fenced_on_every_call() -> None:
    scene = Scene()
    old = stable_static(scene)
    new = scene.join(instance="till-1").value.member_id
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert scene.heartbeat(old, 1, instance="till-1") == fenced
    assert scene.join(old, instance="till-1").value.error_code == fenced
    assert scene.sync_group(old, 1, instance="till-1").value.error_code == fenced
    assert scene.leave(old, instance="till-1").value.members[0].error_code == fenced
    assert scene.commit_error({("orders", 0): 1}, member_id=old, generation=1, instance="till-1") == fenced
    assert scene.happened(MemberFenced)[0] == MemberFenced(GROUP, "till-1", old, new, "Heartbeat")
    assert scene.heartbeat(old, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_takeover_is_answered_when_durable_and_survives_a_restart() -> None:
    scene = Scene()
    stable_static(scene)
    scene.is_disk_slow = True
    back = scene.join(instance="till-1")
    assert not back.done
    scene.sync()
    new = back.value.member_id
    scene.restart()
    assert scene.heartbeat(new, 1, instance="till-1") == ErrorCode.NONE


def test_a_takeover_that_cannot_be_stored_is_taken_back() -> None:
    scene = Scene()
    old = stable_static(scene)
    scene.failures.append(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    refused = scene.join(instance="till-1", protocols=["range", "sticky"]).value
    assert refused.error_code == ErrorCode.NOT_COORDINATOR
    assert refused.member_id == ""
    assert scene.heartbeat(old, 1, instance="till-1") == ErrorCode.NONE
    assert scene.describe().members[0].member_id == old
    scene.advance(SESSION_MS)
    assert scene.state() == "Empty"


def test_a_takeover_lost_by_a_failed_sync_is_taken_back_too() -> None:
    scene = Scene()
    old = stable_static(scene)
    scene.is_disk_slow = True
    back = scene.join(instance="till-1")
    scene.fail_sync()
    assert back.value.error_code == ErrorCode.NOT_COORDINATOR
    assert scene.heartbeat(old, 1, instance="till-1") == ErrorCode.NONE


def test_a_takeover_that_changes_the_protocol_rebalances() -> None:
    scene = Scene()
    join = scene.join(instance="till-1", protocols=["range", "sticky"])
    scene.advance(0)
    member_id = join.value.member_id
    scene.sync_group(member_id, 1, {member_id: b"all"}, instance="till-1")
    back = scene.join(instance="till-1", protocols=["sticky", "range"]).value
    assert (back.generation_id, back.protocol_name) == (2, "sticky")
    assert scene.state() == "CompletingRebalance"


def test_a_takeover_during_the_sync_phase_starts_over() -> None:
    scene = Scene()
    join = scene.join(instance="till-1")
    other = scene.join(instance="till-2")
    scene.advance(0)
    waiting = scene.sync_group(other.value.member_id, 1, instance="till-2")
    back = scene.join(instance="till-1")
    assert waiting.value.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert not back.done
    scene.join(other.value.member_id, instance="till-2")
    assert back.value.generation_id == 2
    assert back.value.leader == back.value.member_id != join.value.member_id


def test_a_parked_join_of_the_process_before_is_fenced() -> None:
    scene = Scene()
    static = stable_static(scene)
    newcomer = scene.new_id()
    waiting = scene.join(newcomer)
    held_up_by = scene.new_id()
    parked = scene.join(static, instance="till-1")
    assert not parked.done
    back = scene.join(instance="till-1")
    assert (parked.value.error_code, parked.value.member_id) == (ErrorCode.FENCED_INSTANCE_ID, static)
    scene.leave(held_up_by)
    assert waiting.value.generation_id == back.value.generation_id == 2


def test_a_parked_sync_of_the_process_before_is_fenced() -> None:
    scene = Scene()
    scene.join(instance="till-1")
    follower = scene.join(instance="till-2")
    scene.advance(0)
    waiting = scene.sync_group(follower.value.member_id, 1, instance="till-2")
    scene.join(instance="till-2")
    assert waiting.value.error_code == ErrorCode.FENCED_INSTANCE_ID


def test_a_silent_static_member_is_kept_through_a_rebalance() -> None:
    scene = Scene()
    long_ms = 4 * REBALANCE_MS
    static = scene.join(instance="till-1", session_ms=long_ms)
    scene.advance(0)
    static_id = static.value.member_id
    scene.sync_group(static_id, 1, {static_id: b"all"}, instance="till-1")
    newcomer = scene.join(scene.new_id(session_ms=long_ms), session_ms=long_ms)
    scene.advance(REBALANCE_MS)
    assert newcomer.value.generation_id == 2
    assert newcomer.value.leader == newcomer.value.member_id
    assert {m.group_instance_id for m in newcomer.value.members} == {None, "till-1"}


def test_an_administrator_removes_a_static_member_by_its_instance_id() -> None:
    scene = Scene()
    stable_static(scene)
    unknown = scene.leave("", instance="till-9").value.members[0]
    assert unknown.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.leave("", instance="till-1").value.members[0].error_code == ErrorCode.NONE
    assert scene.state() == "Empty"
