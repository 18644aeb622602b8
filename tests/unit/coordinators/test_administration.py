"""Describing, listing, deleting and expiring groups."""

import pytest

from fencepost.coordinators.events import GroupDeleted, OffsetsRemoved
from fencepost.coordinators.group import PREDECESSORS, Group, GroupState
from fencepost.coordinators.illegal_transition import IllegalTransition
from fencepost.coordinators.journal import GroupEntry, OffsetEntry
from fencepost.wire.errors import ErrorCode
from fencepost.wire.messages import DeleteGroupsRequest, DescribeGroupsRequest
from tests.unit.coordinators.scene import GROUP, RETENTION_MS, SESSION_MS, Scene, subscription

FIRST = ("orders", 0)
PRODUCER = 4_000
HOUR_MS = 3_600_000


def test_a_stable_group_is_described_with_metadata_and_assignment() -> None:
    scene = Scene()
    (member,) = scene.stable_group()
    group = scene.describe()
    assert (group.group_state, group.protocol_type, group.protocol_data) == ("Stable", "consumer", "range")
    (described,) = group.members
    assert (described.member_id, described.client_id, described.client_host) == (member, "app", "/127.0.0.1")
    assert (described.member_metadata, described.member_assignment) == (subscription(["orders"]), b"share-0")


def test_a_rebalancing_group_is_described_without_metadata() -> None:
    scene = Scene()
    (member,) = scene.stable_group()
    scene.join(member)
    group = scene.describe()
    assert (group.group_state, group.protocol_data) == ("CompletingRebalance", "")
    assert group.members[0].member_metadata == b""


def test_a_missing_group_is_dead_and_from_version_6_not_found() -> None:
    scene = Scene()
    old, new = scene.describe("none", version=5), scene.describe("none", version=6)
    assert (old.group_state, old.error_code) == ("Dead", ErrorCode.NONE)
    assert (new.group_state, new.error_code, new.error_message) == (
        "Dead",
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Group none not found.",
    )


def test_without_an_authorizer_everything_is_allowed() -> None:
    scene = Scene()
    scene.commit({FIRST: 1})
    request = DescribeGroupsRequest(groups=[GROUP, "none"], include_authorized_operations=True)
    found, missing = scene.call("describe_groups", request, 6).value.groups
    assert (found.authorized_operations, missing.authorized_operations) == (3_400, -(2**31))


def test_groups_are_listed_by_state_and_type() -> None:
    scene = Scene()
    scene.stable_group()
    scene.commit({FIRST: 1}, group="simple")
    assert scene.list_groups() == {GROUP: "Stable", "simple": "Empty"}
    assert scene.list_groups(states=["stable"]) == {GROUP: "Stable"}
    assert scene.list_groups(states=["Dead"]) == {}
    assert scene.list_groups(types=["Classic"]) == {GROUP: "Stable", "simple": "Empty"}
    assert scene.list_groups(types=["consumer"]) == {}


def test_only_empty_groups_can_be_deleted_and_they_stay_deleted() -> None:
    scene = Scene()
    scene.stable_group()
    scene.commit({FIRST: 1}, group="simple")
    assert scene.delete_groups(GROUP, "simple", "none") == {
        GROUP: ErrorCode.NON_EMPTY_GROUP,
        "simple": ErrorCode.NONE,
        "none": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    assert scene.journal()[-2:] == [OffsetEntry("simple", "orders", 0, None), GroupEntry("simple", None)]
    assert scene.happened(GroupDeleted) == [GroupDeleted("simple", "DeleteGroups")]
    scene.restart()
    assert scene.list_groups() == {GROUP: "Stable"}
    assert scene.fetched(group="simple") == {}


def test_a_deletion_that_cannot_be_stored_leaves_the_group_as_it_was() -> None:
    scene = Scene()
    (member,) = scene.stable_group()
    scene.commit({FIRST: 1}, member_id=member, generation=1)
    scene.leave(member)
    scene.is_disk_slow = True
    deleting = scene.call("delete_groups", DeleteGroupsRequest(groups_names=[GROUP]), 2)
    assert scene.state() == "Dead"
    scene.fail_sync(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert deleting.value.results[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    scene.is_disk_slow = False
    assert scene.state() == "Empty"
    assert scene.describe().protocol_type == "consumer"
    assert scene.fetched() == {FIRST: 1}


# Expiry


def test_offsets_of_a_simple_group_expire_a_week_after_their_commit_and_the_group_with_them() -> None:
    scene = Scene()
    scene.commit({FIRST: 1})
    scene.advance(RETENTION_MS // 2)
    scene.commit({("audit", 0): 2})
    scene.advance(RETENTION_MS // 2 + HOUR_MS)
    assert scene.fetched() == {("audit", 0): 2}
    scene.advance(RETENTION_MS // 2)
    assert scene.list_groups() == {}
    assert scene.happened(OffsetsRemoved) == [OffsetsRemoved(GROUP, 1, "offsets.retention.minutes")] * 2
    scene.restart()
    assert scene.list_groups() == {}


def test_offsets_of_a_consumer_group_count_from_when_it_became_empty() -> None:
    scene = Scene()
    (member,) = scene.stable_group()
    scene.commit({FIRST: 1}, member_id=member, generation=1)
    for _ in range(RETENTION_MS // SESSION_MS):
        scene.milliseconds += SESSION_MS - 1
        scene.heartbeat(member, 1)
        scene.coordinator.on_time(scene.now)
    scene.leave(member)
    scene.advance(RETENTION_MS - HOUR_MS)
    assert scene.fetched() == {FIRST: 1}
    scene.advance(2 * HOUR_MS)
    assert scene.list_groups() == {}


def test_while_members_read_a_topic_only_offsets_of_other_topics_expire() -> None:
    scene = Scene()
    (member,) = scene.stable_group(topics=["orders"], session_ms=1_800_000)
    scene.commit({FIRST: 1, ("audit", 0): 2}, member_id=member, generation=1)
    for _ in range(RETENTION_MS // HOUR_MS * 3):
        scene.advance(HOUR_MS // 3)
        scene.heartbeat(member, 1)
    scene.advance(HOUR_MS // 3)
    assert scene.fetched() == {FIRST: 1}


def test_offsets_of_other_protocols_do_not_expire_while_there_are_members() -> None:
    scene = Scene()
    (member,) = scene.stable_group(protocol_type="connect", session_ms=1_800_000)
    scene.commit({FIRST: 1}, member_id=member, generation=1)
    for _ in range(RETENTION_MS // HOUR_MS * 3):
        scene.advance(HOUR_MS // 3)
        scene.heartbeat(member, 1)
    scene.advance(HOUR_MS // 3)
    assert scene.fetched() == {FIRST: 1}


def test_old_clients_may_set_a_retention_of_their_own() -> None:
    scene = Scene()
    scene.commit({FIRST: 1}, version=4, retention_ms=HOUR_MS)
    scene.commit({("orders", 1): 1}, version=4, retention_ms=4 * RETENTION_MS)
    scene.restart()
    scene.advance(2 * HOUR_MS)
    assert scene.fetched() == {("orders", 1): 1}
    scene.advance(2 * RETENTION_MS)
    assert scene.fetched() == {("orders", 1): 1}


def test_nothing_expires_that_a_transaction_holds() -> None:
    scene = Scene()
    scene.commit({FIRST: 1})
    scene.txn_commit(PRODUCER, {FIRST: 2})
    scene.advance(2 * RETENTION_MS)
    assert scene.fetched() == {FIRST: 1}
    scene.end_transaction(PRODUCER, commit=False)
    scene.advance(HOUR_MS)
    assert scene.list_groups() == {}


def test_a_group_without_offsets_or_members_is_removed_at_the_next_round() -> None:
    scene = Scene()
    scene.leave(scene.new_id())
    assert scene.state() == "Empty"
    scene.advance(HOUR_MS)
    assert scene.state() == "Dead"
    assert scene.journal()[-1] == GroupEntry(GROUP, None)


# The table


@pytest.mark.parametrize("source", GroupState)
@pytest.mark.parametrize("target", GroupState)
def test_a_group_moves_only_as_the_table_says(source: GroupState, target: GroupState) -> None:
    group = Group(GROUP, 0, None)
    group.state = source
    if source in PREDECESSORS[target]:
        group.transition_to(target, 5)
        assert (group.state, group.previous_state, group.state_timestamp_ms) == (target, source, 5)
    else:
        with pytest.raises(IllegalTransition, match=f"{source.value} -> {target.value}"):
            group.transition_to(target, 5)
