"""A coordinator that starts again knows from its log what the one before it knew."""

from typing import Any

import pytest

from fencepost.coordinators.events import CoordinatorLoaded, CoordinatorUnloaded, RecordSkipped
from fencepost.coordinators.journal import JournalRecord
from fencepost.coordinators.runtime import ShardState
from fencepost.wire.errors import ErrorCode
from tests.unit.coordinators.scene import GROUP, SESSION_MS, Scene

FIRST = ("orders", 0)


def durable_state(scene: Scene) -> dict[str, Any]:
    """Everything that must survive: groups with their members, committed and pending offsets."""
    shard = scene.coordinator.runtime.machine(0)
    groups = {
        group.group_id: (
            group.state,
            group.generation_id,
            group.protocol_type,
            group.protocol,
            group.leader_id,
            group.subscribed_topics,
            dict(group.static_member_ids),
            [
                (m.member_id, m.group_instance_id, m.client_id, m.client_host, m.assignment, m.session_timeout_ms)
                for m in group.members.values()
            ],
        )
        for group in shard.groups.values()
    }
    offsets = {group_id: {key: o.value for key, o in found.items()} for group_id, found in shard.offsets.groups()}
    pending = {group_id: shard.offsets.pending_of_group(group_id) for group_id in shard.offsets.pending_group_ids()}
    return {"groups": groups, "offsets": offsets, "pending": pending}


def a_long_story(scene: Scene) -> None:
    leader, follower = scene.stable_group(2)
    scene.commit({FIRST: 10, ("audit", 1): 3}, member_id=leader, generation=1)
    scene.leave(follower)
    scene.join(leader)
    scene.sync_group(leader, 2, {leader: b"everything"})
    scene.commit({FIRST: 11}, member_id=leader, generation=2, metadata="later")
    scene.stable_group(3, group="wide", topics=["audit"])
    static = scene.join(group="shop", instance="till-1")
    scene.advance(0)
    scene.sync_group(static.value.member_id, 1, {static.value.member_id: b"x"}, group="shop", instance="till-1")
    scene.join(group="shop", instance="till-1")
    scene.commit({FIRST: 1}, group="simple", version=3, retention_ms=5_000)
    scene.commit({FIRST: 1}, group="doomed")
    scene.delete_groups("doomed")
    scene.txn_commit(1, {FIRST: 70}, group="tx")
    scene.end_transaction(1, commit=True)
    scene.txn_commit(2, {FIRST: 80}, group="tx")
    scene.end_transaction(2, commit=False)
    scene.txn_commit(3, {("orders", 2): 90}, group="tx")
    (gone,) = scene.stable_group(group="emptied")
    scene.leave(gone, group="emptied")


def test_the_state_after_a_restart_equals_the_state_before() -> None:
    scene = Scene()
    a_long_story(scene)
    before = durable_state(scene)
    assert {"wide", "shop", "simple", "tx", "emptied", GROUP} == set(before["groups"])
    for batches_per_read in (1, 2, 3, 7, 1_000):
        scene.restart(batches_per_read)
        assert durable_state(scene) == before


def test_members_go_on_after_a_restart_with_sessions_that_start_anew() -> None:
    scene = Scene()
    leader, follower = scene.stable_group(2)
    scene.advance(SESSION_MS - 1)
    scene.restart()
    scene.advance(SESSION_MS - 1)
    assert scene.heartbeat(leader, 1) == ErrorCode.NONE
    scene.advance(1)
    assert scene.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert scene.heartbeat(follower, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_restart_in_the_middle_of_a_rebalance_brings_the_last_generation_back() -> None:
    scene = Scene()
    leader, _ = scene.stable_group(2)
    scene.join(leader)
    scene.restart()
    assert scene.state() == "Stable"
    assert scene.sync_group(leader, 1).value.assignment == b"share-0"


def test_a_loaded_group_that_is_too_large_rebalances() -> None:
    scene = Scene()
    scene.stable_group(3)
    smaller = Scene(group_max_size=2)
    smaller.log = scene.log
    smaller.restart()
    assert smaller.state() == "PreparingRebalance"


def test_while_loading_clients_are_told_to_wait_and_heartbeats_are_taken() -> None:
    scene = Scene()
    (member,) = scene.stable_group()
    scene.coordinator.runtime.start_loading(0)
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert scene.join().value.error_code == loading
    assert scene.sync_group(member, 1).value.error_code == loading
    assert scene.leave(member).value.error_code == loading
    assert scene.commit_error({FIRST: 1}) == loading
    assert scene.fetch(FIRST).value.groups[0].error_code == loading
    assert scene.describe().error_code == loading
    assert scene.delete_groups(GROUP) == {GROUP: loading}
    assert scene.delete_offsets(FIRST).error_code == loading
    assert scene.heartbeat(member, 1) == ErrorCode.NONE
    for batch in scene.log:
        scene.coordinator.runtime.replay(0, bytes(batch))
    scene.coordinator.runtime.finish_loading(0, scene.now)
    assert scene.heartbeat(member, 1) == ErrorCode.NONE
    assert scene.state() == "Stable"


def test_giving_a_partition_up_answers_everybody_who_waits() -> None:
    scene = Scene()
    leader, _ = scene.stable_group(2)
    parked_join = scene.join(leader)
    first, second = scene.new_id(group="other"), scene.new_id(group="other")
    scene.join(first, group="other")
    scene.join(second, group="other")
    scene.advance(0)
    parked_sync = scene.sync_group(second, 1, group="other")
    scene.is_disk_slow = True
    parked_commit = scene.commit({FIRST: 1}, group="simple")
    assert [parked_join.done, parked_sync.done, parked_commit.done] == [False] * 3

    scene.coordinator.runtime.unload(0)
    moved = ErrorCode.NOT_COORDINATOR
    assert parked_join.value.error_code == parked_sync.value.error_code == moved
    assert parked_commit.value.topics[0].partitions[0].error_code == moved
    assert scene.heartbeat(leader, 1) == moved
    assert scene.coordinator.runtime.state_of(0) is ShardState.NOT_OWNER
    assert scene.happened(CoordinatorUnloaded)
    scene.sync()
    scene.advance(10 * SESSION_MS)


def test_records_that_nobody_here_understands_are_skipped_and_told() -> None:
    scene = Scene()
    scene.commit({FIRST: 1})
    strange = [
        JournalRecord(b"\x00\x03\x00\x01g", b"\x00\x00\x00\x00\x00\x01\x00"),
        JournalRecord(b"\x00\x01\x00\x01", b"\x00\x04"),
        JournalRecord(b"\x00\x02\x00\x01g", b"\x00\x09"),
        JournalRecord(b"", b""),
    ]
    scene._append(0, strange)
    scene.commit({FIRST: 2})
    scene.events.clear()
    scene.restart()
    assert scene.fetched() == {FIRST: 2}
    assert [event.offset for event in scene.happened(RecordSkipped)] == [1, 2, 3, 4]
    assert scene.happened(RecordSkipped)[0].cause == "key type 3"
    assert scene.happened(CoordinatorLoaded) == [CoordinatorLoaded("__consumer_offsets", 0, 6, 4)]


@pytest.mark.parametrize("cut", range(0, 40, 3))
def test_any_prefix_of_the_log_is_a_state_that_loads(cut: int) -> None:
    scene = Scene()
    a_long_story(scene)
    del scene.log[cut:]
    scene.restart()
    scene.advance(10 * SESSION_MS)
    members = [m for group in scene.coordinator.runtime.machine(0).groups.values() for m in group.members]
    assert members == []


def test_thousands_of_idle_groups_need_one_timer_each_and_no_work() -> None:
    scene = Scene()
    for index in range(2_000):
        scene.commit({FIRST: index}, group=f"group-{index}")
    deadline = scene.coordinator.next_deadline_ms()
    assert deadline is not None
    assert deadline - scene.milliseconds > 500_000


def test_a_new_group_whose_record_is_lost_is_forgotten_with_everybody_in_it() -> None:
    scene = Scene()
    scene.is_disk_slow = True
    parked = scene.join(version=3)
    scene.fail_sync()
    assert parked.value.error_code == ErrorCode.NOT_COORDINATOR
    assert scene.state() == "Dead"
    scene.is_disk_slow = False
    scene.advance(10 * SESSION_MS)
    assert scene.stable_group(2)


def test_a_new_group_that_cannot_be_stored_at_all_is_refused() -> None:
    scene = Scene()
    scene.failures.append(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert scene.join(version=3).value.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert scene.list_groups() == {}
