"""Who comes into a group, under which id, and what everybody is told."""

from fencepost.coordinators.events import GroupRebalanced, MemberRemoved, RemovalReason
from fencepost.coordinators.journal import GroupEntry
from fencepost.wire.errors import ErrorCode
from tests.unit.coordinators.scene import GROUP, REBALANCE_MS, SESSION_MS, Scene, subscription


def test_a_dynamic_member_is_given_an_id_joins_with_it_and_leads() -> None:
    scene = Scene()
    first = scene.join(client_id="billing").value
    assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert first.member_id.startswith("billing-")

    second = scene.join(first.member_id)
    assert not second.done
    scene.advance(0)
    joined = second.value
    assert joined.error_code == ErrorCode.NONE
    assert (joined.generation_id, joined.leader, joined.protocol_name) == (1, first.member_id, "range")
    assert [(m.member_id, m.metadata) for m in joined.members] == [(first.member_id, subscription(["orders"]))]
    assert scene.happened(GroupRebalanced) == [GroupRebalanced(GROUP, 1, first.member_id, "range", 1)]


def test_before_version_4_a_member_joins_in_one_step() -> None:
    scene = Scene()
    reply = scene.join(version=3)
    scene.advance(0)
    assert reply.value.error_code == ErrorCode.NONE
    assert reply.value.member_id == reply.value.leader


def test_only_the_leader_learns_of_the_others() -> None:
    scene = Scene()
    ids = [scene.new_id() for _ in range(3)]
    replies = [scene.join(member_id) for member_id in ids]
    scene.advance(0)
    assert [len(reply.value.members) for reply in replies] == [3, 0, 0]
    assert {reply.value.leader for reply in replies} == {ids[0]}


def test_a_new_group_is_written_empty_and_again_with_its_assignment() -> None:
    scene = Scene()
    (member,) = scene.stable_group()
    created, stable = scene.journal()
    assert isinstance(created, GroupEntry)
    assert created.value is not None
    assert (created.value.protocol_type, created.value.generation, created.value.members) == ("", 0, [])
    assert stable.value.generation == 1
    assert [(m.member_id, m.client_host, m.assignment) for m in stable.value.members] == [
        (member, "/127.0.0.1", b"share-0")
    ]


def test_an_id_that_is_not_used_within_the_session_timeout_is_forgotten() -> None:
    scene = Scene()
    member_id = scene.new_id()
    scene.advance(SESSION_MS)
    assert scene.happened(MemberRemoved) == [MemberRemoved(GROUP, member_id, RemovalReason.NEVER_JOINED)]
    assert scene.join(member_id).value.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_for_an_id_that_was_given_out() -> None:
    scene = Scene()
    (leader,) = scene.stable_group()
    pending = scene.new_id()
    rejoin = scene.join(leader)
    assert not rejoin.done
    scene.join(pending)
    assert rejoin.value.generation_id == 2
    assert len(rejoin.value.members) == 2


def test_bad_joins_are_refused_as_kafka_does() -> None:
    scene = Scene()
    assert scene.join(group="").value.error_code == ErrorCode.INVALID_GROUP_ID
    assert scene.join(session_ms=5_999).value.error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert scene.join(session_ms=1_800_001).value.error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert scene.join("never-seen").value.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.join(protocols=()).value.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert scene.join(protocol_type="").value.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    scene.stable_group()
    assert scene.join("never-seen").value.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.join(protocol_type="connect").value.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert scene.join(protocols=["sticky"]).value.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_refusals_before_version_7_carry_an_empty_protocol_name() -> None:
    scene = Scene()
    scene.stable_group()
    assert scene.join("never-seen", version=6).value.protocol_name == ""
    assert scene.join("never-seen", version=7).value.protocol_name is None


def test_the_protocol_most_members_prefer_among_those_all_support_is_chosen() -> None:
    scene = Scene()
    preferences = [("range", "sticky"), ("sticky", "range"), ("sticky", "roundrobin", "range")]
    ids = [scene.new_id(protocols=preference) for preference in preferences]
    replies = [scene.join(i, protocols=preference) for i, preference in zip(ids, preferences, strict=True)]
    scene.advance(0)
    assert {reply.value.protocol_name for reply in replies} == {"sticky"}


def test_a_member_that_lost_its_answer_gets_it_again_without_a_rebalance() -> None:
    scene = Scene()
    leader, follower = (scene.new_id() for _ in range(2))
    scene.join(leader)
    scene.join(follower)
    scene.advance(0)
    again = scene.join(leader).value
    assert again.generation_id == 1
    assert len(again.members) == 2
    assert scene.state() == "CompletingRebalance"


def test_a_retried_join_and_its_first_try_get_one_answer() -> None:
    scene = Scene()
    member_id = scene.new_id()
    first, retry = scene.join(member_id), scene.join(member_id)
    scene.advance(0)
    assert first.value == retry.value
    assert first.value.generation_id == 1


def test_in_a_stable_group_only_news_start_a_rebalance() -> None:
    scene = Scene()
    leader, follower = scene.stable_group(2)
    assert scene.join(follower).value.generation_id == 1
    assert scene.state() == "Stable"

    changed = scene.join(follower, topics=["orders", "audit"])
    assert not changed.done
    assert scene.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    scene.join(leader)
    assert changed.value.generation_id == 2


def test_the_leader_of_a_stable_group_may_ask_for_a_rebalance() -> None:
    scene = Scene()
    leader, follower = scene.stable_group(2)
    rejoin = scene.join(leader)
    assert scene.state() == "PreparingRebalance"
    scene.join(follower)
    assert rejoin.value.generation_id == 2


def test_new_metadata_during_the_sync_phase_starts_over() -> None:
    scene = Scene()
    leader, follower = (scene.new_id() for _ in range(2))
    scene.join(leader)
    scene.join(follower)
    scene.advance(0)
    waiting = scene.sync_group(follower, 1)
    changed = scene.join(leader, topics=["audit"])
    assert waiting.value.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    scene.join(follower)
    assert changed.value.generation_id == 2


def test_the_first_rebalance_waits_and_waits_longer_while_members_keep_coming() -> None:
    scene = Scene(group_initial_rebalance_delay_ms=3_000)
    first_id, second_id, third_id = (scene.new_id() for _ in range(3))
    first = scene.join(first_id)
    scene.advance(2_000)
    scene.join(second_id)
    scene.advance(1_000)
    assert not first.done
    scene.advance(2_999)
    assert not first.done
    third = scene.join(third_id)
    scene.advance(1)
    assert not first.done
    scene.advance(3_000)
    assert first.value.generation_id == third.value.generation_id == 1
    assert len(first.value.members) == 3


def test_the_first_rebalance_never_waits_past_the_rebalance_timeout() -> None:
    scene = Scene(group_initial_rebalance_delay_ms=3_000)
    first = scene.join(scene.new_id(), rebalance_ms=5_000)
    for _ in range(4):
        scene.advance(1_000)
        scene.join(scene.new_id(), rebalance_ms=5_000)
    assert not first.done
    scene.advance(1_000)
    assert len(first.value.members) == 5


def test_a_group_takes_no_more_members_than_it_may() -> None:
    scene = Scene(group_max_size=2)
    scene.stable_group(2)
    assert scene.join().value.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_while_rebalancing_the_last_to_come_are_turned_away() -> None:
    scene = Scene(group_max_size=2)
    leader, _ = scene.stable_group(2)
    scene.join(leader)
    newcomer = scene.new_id()
    scene.join(newcomer)
    assert scene.join().value.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_version_0_has_one_timeout_for_both() -> None:
    scene = Scene()
    scene.join(version=0, session_ms=7_000)
    scene.advance(0)
    (entry, *_) = scene.journal()
    assert entry.group_id == GROUP
    leader = scene.describe().members[0].member_id
    scene.sync_group(leader, 1, {leader: b"all"}, version=0, protocol=None, protocol_type=None)
    assert scene.journal()[-1].value.members[0].rebalance_timeout == 7_000


def test_a_member_that_does_not_rejoin_in_time_is_left_behind() -> None:
    scene = Scene()
    leader, laggard = scene.stable_group(2, session_ms=2 * REBALANCE_MS)
    rejoin = scene.join(leader, session_ms=2 * REBALANCE_MS)
    scene.advance(REBALANCE_MS - 1)
    assert not rejoin.done
    scene.advance(1)
    assert [m.member_id for m in rejoin.value.members] == [leader]
    assert scene.happened(MemberRemoved) == [MemberRemoved(GROUP, laggard, RemovalReason.JOIN_EXPIRED)]
    assert scene.heartbeat(laggard, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_when_the_leader_is_left_behind_another_member_leads() -> None:
    scene = Scene()
    leader, follower = scene.stable_group(2, session_ms=2 * REBALANCE_MS)
    rejoin = scene.join(follower, topics=["audit"], session_ms=2 * REBALANCE_MS)
    scene.advance(REBALANCE_MS)
    assert rejoin.value.leader == follower
    assert scene.heartbeat(leader, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_new_member_whose_join_is_parked_too_long_is_dropped() -> None:
    scene = Scene()
    day_ms = 86_400_000
    leader, _ = scene.stable_group(2, session_ms=1_800_000, rebalance_ms=day_ms)
    newcomer = scene.join(scene.new_id(), rebalance_ms=day_ms)
    scene.advance(5 * 60 * 1000)
    assert newcomer.value.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS
