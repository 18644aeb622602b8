"""A group's durable state changes by replay alone: what is written counts, what is lost leaves the group as it was."""

import random
from typing import Any

import pytest

from fencepost.coordinators.events import GroupEmptied
from fencepost.coordinators.group import GroupState
from fencepost.coordinators.rebalance import EMPTY_RETRY_MS
from fencepost.wire.errors import ErrorCode
from tests.unit.coordinators.scene import GROUP, SESSION_MS, Scene

STEPS = 250


def test_a_group_whose_first_record_is_refused_does_not_exist_and_hands_out_no_id() -> None:
    scene = Scene()
    scene.failures.append(ErrorCode.NOT_ENOUGH_REPLICAS)
    refused = scene.join().value
    assert (refused.error_code, refused.member_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "")
    assert scene.state() == "Dead"
    assert scene.new_id()


def test_a_group_whose_first_record_is_lost_answers_everybody_who_has_joined_it() -> None:
    scene = Scene()
    scene.is_disk_slow = True
    joins = [scene.join(version=3) for _ in range(2)]
    scene.fail_sync(ErrorCode.REQUEST_TIMED_OUT)
    assert [join.value.error_code for join in joins] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    assert scene.state() == "Dead"


def test_a_group_is_empty_only_once_that_is_in_the_log() -> None:
    scene = Scene()
    (member,) = scene.stable_group()
    scene.failures.append(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert scene.leave(member).value.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (scene.state(), scene.happened(GroupEmptied)) == ("PreparingRebalance", [])
    scene.advance(EMPTY_RETRY_MS)
    assert scene.state() == "Empty"
    assert scene.happened(GroupEmptied) == [GroupEmptied(GROUP, 2)]
    scene.restart()
    assert scene.state() == "Empty"


def test_a_lost_record_of_an_empty_group_is_written_again() -> None:
    scene = Scene()
    (member,) = scene.stable_group()
    scene.is_disk_slow = True
    left = scene.leave(member)
    assert scene.state() == "Empty"
    scene.fail_sync(ErrorCode.REQUEST_TIMED_OUT)
    assert left.value.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert scene.state() == "PreparingRebalance"
    scene.is_disk_slow = False
    scene.advance(EMPTY_RETRY_MS)
    assert (scene.state(), scene.journal()[-1].value.generation) == ("Empty", 2)


def test_whoever_joins_while_the_record_of_the_empty_group_is_lost_goes_on() -> None:
    scene = Scene()
    (member,) = scene.stable_group()
    scene.is_disk_slow = True
    scene.leave(member)
    newcomer = scene.join(scene.new_id())
    scene.fail_sync(ErrorCode.REQUEST_TIMED_OUT)
    scene.is_disk_slow = False
    scene.advance(0)
    joined = newcomer.value
    assert (joined.error_code, joined.leader) == (ErrorCode.NONE, joined.member_id)
    scene.sync_group(joined.member_id, joined.generation_id, {joined.member_id: b"all"})
    assert scene.journal()[-1].value.generation == joined.generation_id


def test_a_leader_that_asks_twice_does_not_replace_the_assignment_that_is_being_written() -> None:
    scene = Scene()
    leader = scene.new_id()
    scene.join(leader)
    scene.advance(0)
    scene.is_disk_slow = True
    asked = [scene.sync_group(leader, 1, {leader: share}) for share in (b"first", b"second")]
    scene.sync()
    assert [answer.value.assignment for answer in asked] == [b"first"] * 2
    scene.restart()
    assert scene.sync_group(leader, 1).value.assignment == b"first"


def test_a_refused_takeover_of_a_static_place_leaves_the_member_and_its_deadline_alone() -> None:
    scene = Scene()
    joined = scene.join(instance="till-1")
    scene.advance(0)
    member = joined.value.member_id
    scene.sync_group(member, 1, {member: b"all"}, instance="till-1")
    scene.advance(SESSION_MS - 1)
    scene.failures.append(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    refused = scene.join(instance="till-1", session_ms=3 * SESSION_MS).value
    assert refused.error_code == ErrorCode.NOT_COORDINATOR
    assert scene.describe().members[0].member_id == member
    scene.advance(1)
    assert scene.state() == "Empty"


def test_both_joins_of_a_process_whose_takeover_is_lost_are_answered() -> None:
    scene = Scene()
    member = scene.join(instance="till-1")
    scene.advance(0)
    old = member.value.member_id
    scene.sync_group(old, 1, {old: b"all"}, instance="till-1")
    scene.is_disk_slow = True
    first = scene.join(instance="till-1")
    (taker,) = scene.coordinator.runtime.machine(0).groups[GROUP].members
    again = scene.join(taker, instance="till-1")
    scene.fail_sync(ErrorCode.REQUEST_TIMED_OUT)
    assert {join.value.error_code for join in (first, again)} <= {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NONE}
    assert scene.describe().members[0].member_id == old


class Life:
    """A random life of one group with a disk that is slow and fails; nobody in it plays by the rules for long."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.scene = Scene(group_max_size=4)
        self.instances: dict[str, str | None] = {}

    def step(self) -> None:
        scene, group = self.scene, self.group()
        act = self.random.choices(
            (self.join, self.rebalance, self.leave, self.sync, self.advance, self.disk), (4, 5, 1, 3, 4, 3)
        )[0]
        act(group)
        scene.fetch(("orders", 0))

    def group(self) -> Any:
        return self.scene.coordinator.runtime.machine(0).groups.get(GROUP)

    def join(self, group: Any) -> None:
        instance = self.random.choice((None, "till-1", "till-2"))
        answer = self.scene.join(instance=instance, protocols=self.random.choice((("range",), ("range", "sticky"))))
        answer.then(lambda joined: self.instances.setdefault(joined.member_id, instance))  # type: ignore[attr-defined]

    def rebalance(self, group: Any) -> None:
        if group is not None:
            for member_id in [*group.members, *sorted(group.pending_join_ids)]:
                instance = self.instances.get(member_id)
                self.scene.join(member_id, instance=instance, session_ms=30_000)
            self.scene.advance(0)
            self.sync(self.group())

    def sync(self, group: Any) -> None:
        if group is not None and group.members:
            shares = {member_id: b"%d" % self.random.randrange(1000) for member_id in group.members}
            instance = self.instances.get(group.leader_id)
            self.scene.sync_group(group.leader_id, group.generation_id, shares, instance=instance, version=4)

    def leave(self, group: Any) -> None:
        if group is not None and group.members:
            member_id = self.random.choice(list(group.members))
            self.scene.leave(member_id, instance=self.instances.get(member_id))

    def advance(self, group: Any) -> None:
        self.scene.advance(self.random.choice((10, 5_000, 40_000)))

    def disk(self, group: Any) -> None:
        scene = self.scene
        how = self.random.randrange(5)
        if how == 0:
            scene.failures.append(ErrorCode.NOT_ENOUGH_REPLICAS)
        elif how == 1:
            scene.is_disk_slow = True
        elif how == 2:
            scene.fail_sync(ErrorCode.REQUEST_TIMED_OUT)
        else:
            scene.sync()
            scene.is_disk_slow = False


@pytest.mark.parametrize("seed", range(12))
def test_memory_and_log_agree_whenever_the_group_is_at_rest(seed: int) -> None:
    life = Life(seed)
    scene = life.scene
    rests = 0
    for _ in range(STEPS):
        life.step()
        group = life.group()
        if group is None:
            continue
        assert group.contradiction() is None
        if group.state is GroupState.STABLE and not scene.unsynced:
            rests += 1
            members = {one.member_id: (one.group_instance_id, one.assignment) for one in group.members.values()}
            generation = group.generation_id
            if rests % 10 == 0:
                scene.restart()
                loaded = life.group()
                assert (loaded.state, loaded.generation_id) == (GroupState.STABLE, generation)
                assert members == {m.member_id: (m.group_instance_id, m.assignment) for m in loaded.members.values()}
    assert rests
