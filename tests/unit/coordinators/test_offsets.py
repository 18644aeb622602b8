"""Committing, fetching and deleting offsets, in and out of transactions."""

import pytest

from fencepost.coordinators.journal import CommittedOffset, OffsetEntry
from fencepost.wire.errors import ErrorCode
from fencepost.wire.messages import OffsetFetchRequest
from tests.unit.coordinators.scene import GROUP, SESSION_MS, Scene

FIRST = ("orders", 0)
SECOND = ("orders", 1)
PRODUCER = 4_000


def test_a_consumer_without_membership_commits_into_a_simple_group() -> None:
    scene = Scene()
    assert scene.commit_error({FIRST: 7}) == ErrorCode.NONE
    assert scene.fetched(FIRST, SECOND) == {FIRST: 7, SECOND: -1}
    assert (scene.state(), scene.describe().protocol_type) == ("Empty", "")
    (entry,) = scene.journal()
    assert entry == OffsetEntry(
        GROUP, "orders", 0, CommittedOffset(7, -1, "", scene.wall_ms(), None, b"orders-topic-id!")
    )


def test_members_commit_and_fetch_what_they_committed() -> None:
    scene = Scene()
    (member,) = scene.stable_group()
    assert scene.commit_error({FIRST: 3, SECOND: 4}, member_id=member, generation=1) == ErrorCode.NONE
    assert scene.fetched() == {FIRST: 3, SECOND: 4}


def test_a_commit_is_answered_and_seen_when_it_is_durable() -> None:
    scene = Scene()
    scene.commit({FIRST: 1})
    scene.is_disk_slow = True
    committing = scene.commit({FIRST: 2})
    fetching = scene.fetch(FIRST)
    assert not committing.done
    assert not fetching.done
    scene.sync()
    assert committing.done
    assert fetching.value.groups[0].topics[0].partitions[0].committed_offset == 2


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_a_commit_that_cannot_be_stored_changes_nothing(error: ErrorCode, told: ErrorCode) -> None:
    scene = Scene()
    scene.commit({FIRST: 1})
    scene.failures.append(error)
    assert scene.commit_error({FIRST: 2}) == told
    assert scene.fetched(FIRST) == {FIRST: 1}


def test_commits_lost_by_a_failed_sync_are_rolled_back_newest_first() -> None:
    scene = Scene()
    scene.commit({FIRST: 1})
    scene.is_disk_slow = True
    lost = [scene.commit({FIRST: 2}), scene.commit({FIRST: 3, SECOND: 9}), scene.commit({FIRST: 4})]
    fetching = scene.fetch(FIRST)
    scene.fail_sync()
    for reply in lost:
        assert {p.error_code for p in reply.value.topics[0].partitions} == {ErrorCode.NOT_COORDINATOR}
    assert fetching.value.groups[0].error_code == ErrorCode.NOT_COORDINATOR
    scene.is_disk_slow = False
    assert scene.fetched() == {FIRST: 1}
    scene.restart()
    assert scene.fetched() == {FIRST: 1}


def test_a_simple_group_that_was_never_stored_is_gone_again() -> None:
    scene = Scene()
    scene.is_disk_slow = True
    scene.commit({FIRST: 1})
    assert scene.state() == "Empty"
    scene.fail_sync()
    assert scene.state() == "Dead"


def test_commits_of_strangers_are_refused() -> None:
    scene = Scene()
    offsets = {FIRST: 1}
    assert scene.commit_error(offsets, generation=1, member_id="m", version=8) == ErrorCode.ILLEGAL_GENERATION
    assert scene.commit_error(offsets, generation=1, member_id="m", version=9) == ErrorCode.GROUP_ID_NOT_FOUND
    (member,) = scene.stable_group()
    assert scene.commit_error(offsets) == ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.commit_error(offsets, generation=1, member_id="m") == ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.commit_error(offsets, generation=2, member_id=member) == ErrorCode.ILLEGAL_GENERATION
    assert scene.fetched() == {}


def test_during_a_rebalance_members_may_commit_until_the_new_generation_begins() -> None:
    scene = Scene()
    (member,) = scene.stable_group()
    newcomer = scene.new_id()
    scene.join(newcomer)
    assert scene.commit_error({FIRST: 1}, member_id=member, generation=1) == ErrorCode.NONE
    scene.join(member)
    assert scene.commit_error({FIRST: 2}, member_id=member, generation=1) == ErrorCode.ILLEGAL_GENERATION
    assert scene.commit_error({FIRST: 2}, member_id=member, generation=2) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_commit_is_as_good_as_a_heartbeat() -> None:
    scene = Scene()
    (member,) = scene.stable_group()
    for offset in range(5):
        scene.advance(SESSION_MS - 1)
        scene.commit({FIRST: offset}, member_id=member, generation=1)
    assert scene.state() == "Stable"


def test_an_administrator_may_set_offsets_of_an_empty_group() -> None:
    scene = Scene()
    (member,) = scene.stable_group()
    scene.leave(member)
    assert scene.commit_error({FIRST: 100}) == ErrorCode.NONE


def test_partitions_that_do_not_exist_are_refused_one_by_one() -> None:
    scene = Scene()
    answer = scene.commit({("nowhere", 0): 1, ("orders", 4): 2, FIRST: 3}).value
    errors = {(t.name, p.partition_index): p.error_code for t in answer.topics for p in t.partitions}
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert errors == {("nowhere", 0): unknown, ("orders", 4): unknown, FIRST: ErrorCode.NONE}
    assert scene.fetched() == {FIRST: 3}


def test_metadata_is_limited_in_java_characters() -> None:
    scene = Scene()
    assert scene.commit_error({FIRST: 1}, metadata="x" * 4_096) == ErrorCode.NONE
    assert scene.commit_error({FIRST: 2}, metadata="x" * 4_097) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert scene.commit_error({FIRST: 3}, metadata="\N{GRINNING FACE}" * 2_048) == ErrorCode.NONE
    assert scene.commit_error({FIRST: 4}, metadata="\N{GRINNING FACE}" * 2_049) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert scene.fetched(FIRST) == {FIRST: 3}


@pytest.mark.parametrize("version", range(2, 11))
def test_every_version_commits(version: int) -> None:
    scene = Scene()
    answer = scene.commit({FIRST: version}, version=version).value
    (topic,) = answer.topics
    if version >= 10:
        assert topic.topic_id == b"orders-topic-id!"
    else:
        assert topic.name == "orders"
    assert scene.fetched(FIRST) == {FIRST: version}


def test_from_version_10_topics_go_by_id() -> None:
    scene = Scene()
    assert scene.commit_error({FIRST: 1}, version=10, topic_id=b"?" * 16) == ErrorCode.UNKNOWN_TOPIC_ID
    scene.commit({FIRST: 1}, version=10)
    known, unknown = scene.fetch(FIRST, ("nowhere", 0), version=10).value.groups[0].topics
    assert (known.topic_id, known.partitions[0].committed_offset) == (b"orders-topic-id!", 1)
    assert unknown.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    (everything,) = scene.fetch(version=10).value.groups[0].topics
    assert everything.topic_id == b"orders-topic-id!"


@pytest.mark.parametrize("version", range(1, 11))
def test_every_version_fetches(version: int) -> None:
    scene = Scene()
    scene.commit({FIRST: 5}, metadata="note")
    answer = scene.fetch(FIRST, SECOND, version=version).value
    (topic,) = answer.groups[0].topics if version >= 8 else answer.topics
    assert [(p.committed_offset, p.metadata, p.error_code) for p in topic.partitions] == [(5, "note", 0), (-1, "", 0)]


def test_several_groups_are_fetched_in_one_request() -> None:
    scene = Scene()
    scene.commit({FIRST: 1}, group="one")
    scene.commit({SECOND: 2}, group="two")
    wanted = [OffsetFetchRequest.OffsetFetchRequestGroup(group_id=g, topics=None) for g in ("one", "two", "none")]
    groups = scene.call("offset_fetch", OffsetFetchRequest(groups=wanted), 8).value.groups
    assert [group.group_id for group in groups] == ["one", "two", "none"]
    assert [len(group.topics) for group in groups] == [1, 1, 0]


def test_a_fetch_from_a_coordinator_that_is_not_ours_says_so_in_every_version() -> None:
    scene = Scene()
    scene.coordinator.runtime.unload(0)
    (topic,) = scene.fetch(FIRST, version=1).value.topics
    assert topic.partitions[0].error_code == ErrorCode.NOT_COORDINATOR
    assert scene.fetch(FIRST, version=2).value.error_code == ErrorCode.NOT_COORDINATOR
    assert scene.fetch(FIRST, version=8).value.groups[0].error_code == ErrorCode.NOT_COORDINATOR


# Transactions


def test_offsets_of_a_transaction_count_when_it_commits() -> None:
    scene = Scene()
    scene.commit({FIRST: 1})
    assert scene.txn_commit(PRODUCER, {FIRST: 50}) == ErrorCode.NONE
    assert scene.fetched(FIRST) == {FIRST: 1}
    unstable = scene.fetch(FIRST, SECOND, stable=True).value.groups[0].topics[0].partitions
    assert [(p.committed_offset, p.error_code) for p in unstable] == [(-1, ErrorCode.UNSTABLE_OFFSET_COMMIT), (-1, 0)]
    scene.end_transaction(PRODUCER, commit=True)
    assert scene.fetched(FIRST, stable=True) == {FIRST: 50}
    scene.restart()
    assert scene.fetched(FIRST, stable=True) == {FIRST: 50}


def test_offsets_of_an_aborted_transaction_never_count() -> None:
    scene = Scene()
    scene.commit({FIRST: 1})
    scene.txn_commit(PRODUCER, {FIRST: 50})
    scene.end_transaction(PRODUCER, commit=False)
    assert scene.fetched(FIRST, stable=True) == {FIRST: 1}
    scene.restart()
    assert scene.fetched(FIRST, stable=True) == {FIRST: 1}


def test_an_open_transaction_is_still_open_after_a_restart() -> None:
    scene = Scene()
    scene.txn_commit(PRODUCER, {FIRST: 50})
    scene.restart()
    assert scene.fetch(FIRST, stable=True).value.groups[0].topics[0].partitions[0].error_code == (
        ErrorCode.UNSTABLE_OFFSET_COMMIT
    )
    scene.end_transaction(PRODUCER, commit=True)
    assert scene.fetched(FIRST, stable=True) == {FIRST: 50}


def test_a_plain_commit_after_the_transactional_one_wins() -> None:
    scene = Scene()
    scene.txn_commit(PRODUCER, {FIRST: 50})
    scene.commit({FIRST: 60})
    scene.end_transaction(PRODUCER, commit=True)
    assert scene.fetched(FIRST) == {FIRST: 60}
    scene.restart()
    assert scene.fetched(FIRST) == {FIRST: 60}


def test_transactional_commits_are_fenced_when_they_name_a_member() -> None:
    scene = Scene()
    assert scene.txn_commit(PRODUCER, {FIRST: 1}, member_id="m", generation=1) == ErrorCode.ILLEGAL_GENERATION
    assert scene.txn_commit(PRODUCER, {FIRST: 1}, group="") == ErrorCode.INVALID_GROUP_ID
    (member,) = scene.stable_group()
    assert scene.txn_commit(PRODUCER, {FIRST: 1}) == ErrorCode.NONE
    assert scene.txn_commit(PRODUCER, {FIRST: 2}, member_id="m", generation=1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.txn_commit(PRODUCER, {FIRST: 2}, member_id=member, generation=7) == ErrorCode.ILLEGAL_GENERATION
    scene.join(member)
    assert scene.state() == "CompletingRebalance"
    assert scene.txn_commit(PRODUCER, {FIRST: 3}, member_id=member, generation=2) == ErrorCode.NONE


def test_a_transactional_commit_that_fails_leaves_nothing_pending() -> None:
    scene = Scene()
    scene.commit({SECOND: 1})
    scene.failures.append(ErrorCode.INVALID_PRODUCER_EPOCH)
    assert scene.txn_commit(PRODUCER, {FIRST: 1}) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert scene.fetched(FIRST, stable=True) == {FIRST: -1}


# Deleting


def test_offsets_of_topics_nobody_reads_can_be_deleted() -> None:
    scene = Scene()
    (member,) = scene.stable_group(topics=["orders"])
    scene.commit({FIRST: 1, ("audit", 0): 2}, member_id=member, generation=1)
    answer = scene.delete_offsets(FIRST, ("audit", 0), ("audit", 1), ("nowhere", 0))
    errors = {(t.name, p.partition_index): p.error_code for t in answer.topics for p in t.partitions}
    assert errors == {
        FIRST: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        ("audit", 0): ErrorCode.NONE,
        ("audit", 1): ErrorCode.NONE,
        ("nowhere", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert scene.fetched() == {FIRST: 1}
    scene.restart()
    assert scene.fetched() == {FIRST: 1}


def test_deleting_offsets_asks_for_a_group_that_allows_it() -> None:
    scene = Scene()
    assert scene.delete_offsets(FIRST).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert scene.delete_offsets(FIRST, group="").error_code == ErrorCode.INVALID_GROUP_ID
    scene.stable_group(protocol_type="connect")
    assert scene.delete_offsets(FIRST).error_code == ErrorCode.NON_EMPTY_GROUP


def test_a_consumer_group_with_unreadable_subscriptions_counts_as_subscribed_to_everything() -> None:
    scene = Scene()
    scene.stable_group(metadata=b"?")
    assert scene.delete_offsets(FIRST).topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


def test_deleting_an_offset_also_forgets_what_a_transaction_would_make_of_it() -> None:
    scene = Scene()
    scene.txn_commit(PRODUCER, {FIRST: 50})
    assert scene.delete_offsets(FIRST).topics[0].partitions[0].error_code == ErrorCode.NONE
    scene.end_transaction(PRODUCER, commit=True)
    assert scene.fetched(FIRST, stable=True) == {FIRST: -1}
    scene.restart()
    assert scene.fetched(FIRST, stable=True) == {FIRST: -1}


def test_a_failed_deletion_brings_committed_and_pending_offsets_back() -> None:
    scene = Scene()
    scene.commit({FIRST: 1})
    scene.txn_commit(PRODUCER, {FIRST: 50})
    scene.is_disk_slow = True
    scene.coordinator.on_topics_deleted(["orders"])
    scene.fail_sync()
    scene.is_disk_slow = False
    assert scene.fetched(FIRST) == {FIRST: 1}
    scene.end_transaction(PRODUCER, commit=True)
    assert scene.fetched(FIRST) == {FIRST: 50}


def test_the_offsets_of_a_deleted_topic_go_with_it() -> None:
    scene = Scene()
    scene.commit({FIRST: 1, ("audit", 1): 2})
    scene.txn_commit(PRODUCER, {SECOND: 3}, group="other")
    scene.coordinator.on_topics_deleted(["orders"])
    assert scene.fetched() == {("audit", 1): 2}
    scene.end_transaction(PRODUCER, commit=True)
    assert scene.fetched(group="other") == {}
