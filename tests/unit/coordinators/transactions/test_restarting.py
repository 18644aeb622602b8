"""A coordinator that starts again knows from its log what was decided, and finishes it."""

import pytest

from fencepost.coordinators.events import RecordSkipped
from fencepost.coordinators.journal import JournalRecord
from fencepost.coordinators.transactions.transaction_metadata import TransactionEntry, TransactionRecord
from fencepost.coordinators.transactions.transaction_states import PREPARED, TransactionState
from fencepost.wire.batch import build_batch
from fencepost.wire.errors import ErrorCode
from tests.unit.coordinators.transactions.scene import Scene


def durable_state(scene: Scene) -> dict[str, TransactionRecord]:
    """Everything that must survive: all but the epoch before the last bump, which Kafka's schema has no room for."""
    return {
        name: metadata.record._replace(last_producer_epoch=-1)
        for name, metadata in scene.coordinator.runtime.machine(0).transactions.items()
    }


def a_long_story(scene: Scene) -> None:
    scene.init("open")
    scene.add((1000, 0), ("out", 0), ("out", 1), transactional_id="open")
    scene.offsets((1000, 0), "shop", transactional_id="open")
    scene.init("busy")
    for _ in range(3):
        scene.add((1001, 0), ("out", 2), transactional_id="busy")
        scene.end((1001, 0), commit=True, transactional_id="busy")
    scene.init("modern")
    for epoch in range(4):
        scene.add((1002, epoch), ("out", 3), transactional_id="modern", version=4)
        scene.end((1002, epoch), commit=epoch % 2 == 0, transactional_id="modern", version=5)
    scene.init("taken")
    scene.add((1003, 0), ("out", 0), transactional_id="taken")
    scene.init("taken")
    scene.init("taken")
    scene.init("prepared", two_phase=True, version=6)
    scene.add((1004, 0), ("audit", 1), transactional_id="prepared")
    scene.init("prepared", two_phase=True, keep=True, version=6)


def test_the_state_after_a_restart_equals_the_state_before() -> None:
    scene = Scene(transaction_two_phase_commit_enable="true")
    a_long_story(scene)
    before = durable_state(scene)
    assert {name: record.state.wire_name for name, record in before.items()} == {
        "open": "Ongoing",
        "busy": "CompleteCommit",
        "modern": "CompleteAbort",
        "taken": "Empty",
        "prepared": "Ongoing",
    }
    scene.restart()
    assert durable_state(scene) == before
    scene.restart()
    assert durable_state(scene) == before


@pytest.mark.parametrize("cut", range(30))
def test_any_prefix_of_the_log_loads_and_every_decision_in_it_is_carried_out(cut: int) -> None:
    scene = Scene(transaction_two_phase_commit_enable="true")
    a_long_story(scene)
    del scene.log[cut:], scene.written[cut:]
    decided = {entry.transactional_id: entry.record for entry in scene.written if entry.record}
    scene.orders.clear()
    scene.restart()
    after = durable_state(scene)
    assert set(after) == set(decided)
    for name, record in decided.items():
        assert record is not None
        if record.state in PREPARED:
            assert after[name].state.wire_name == record.state.wire_name.replace("Prepare", "Complete")
            assert {p for order in scene.orders for p in order.partitions} >= record.partitions
        else:
            assert after[name] == record


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("marked", [0, 1, 2, 3])
def test_a_crash_at_every_point_of_the_two_phase_commit_has_one_outcome(
    marked: int, version: int, is_commit: bool
) -> None:
    scene = Scene(markers_at_once=False)
    scene.init()
    partitions = [("out", index) for index in range(3)]
    scene.add((1000, 0), *partitions)
    answer = scene.end((1000, 0), commit=is_commit, version=version).value
    assert answer.error_code == ErrorCode.NONE
    for partition in partitions[:marked]:
        scene.marked(partition)
    if marked == 3:
        assert scene.describe().transaction_state.startswith("Complete")
        del scene.log[-1]
    scene.markers_at_once = True
    scene.restart()
    # Every partition gets its marker again: those that had it take it as a repetition.
    assert scene.orders[-1] == scene.orders[0]
    assert scene.describe().transaction_state == ("CompleteCommit" if is_commit else "CompleteAbort")
    retried = scene.end((1000, 0), commit=is_commit, version=version).value
    assert retried == answer or (retried.error_code, retried.producer_epoch) == (0, answer.producer_epoch)


def test_a_decision_that_did_not_reach_the_disk_was_never_made() -> None:
    Scene().play(
        """
        init tx
          = 1000/0
          log tx Empty 1000/0
        add tx 1000/0 out-0
          = NONE
          log tx Ongoing 1000/0 [out-0]
        slow disk
        end tx 1000/0 commit
          log tx PrepareCommit 1000/0 [out-0]
          (waits)
        restart
        fast disk
        describe tx
          = Ongoing 1000/0 [out-0]
        end tx 1000/0 commit
          = NONE
          log tx PrepareCommit 1000/0 [out-0]
          markers commit 1000/0 TV0 [out-0]
          log tx CompleteCommit 1000/0
        """
    )


def test_while_loading_everybody_is_told_to_wait_and_nobody_gets_a_fresh_producer_id() -> None:
    scene = Scene()
    scene.init()
    scene.coordinator.runtime.start_loading(0)
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert scene.init().value.error_code == loading
    added = scene.add((1000, 0), ("out", 0)).value.results_by_topic_v3_and_below[0].results_by_partition[0]
    assert added.partition_error_code == loading
    assert scene.offsets((1000, 0), "shop").value.error_code == loading
    assert scene.end((1000, 0), commit=True).value.error_code == loading
    assert scene.coordinator.verify_or_add("tx", 1000, 0, [("out", 0)], add=True).value == {("out", 0): loading}
    assert scene.coordinator.verify_or_add("tx", 1000, 0, [("out", 0)], add=False).value == {("out", 0): loading}
    assert scene.describe().error_code == loading
    assert scene.list_transactions().error_code == loading
    assert scene.next_id == 1001
    for batch in scene.log:
        scene.coordinator.runtime.replay(0, bytes(batch))
    scene.coordinator.runtime.finish_loading(0, scene.now)
    assert scene.init().value.producer_epoch == 1


def test_giving_the_partition_up_answers_everybody_who_waits() -> None:
    scene = Scene(markers_at_once=False)
    scene.play(
        """
        seed tx Ongoing 1000/0 out-0
        end tx 1000/0 commit
          = NONE
          log tx PrepareCommit 1000/0 [out-0]
          markers commit 1000/0 TV0 [out-0]
        add tx 1000/0 out-1
          (waits)
        slow disk
        init other
          log other Empty 1001/0
          (waits)
        unload
          -> add tx out-1: NOT_COORDINATOR
          -> init other: NOT_COORDINATOR
        marked out-0                   # comes too late for this coordinator
        sync
        end tx 1000/0 commit
          = NOT_COORDINATOR
        """
    )
    scene.advance(10_000_000)


def test_records_that_nobody_here_understands_are_skipped_and_told() -> None:
    scene = Scene()
    scene.init()
    strange = [
        JournalRecord(b"\x00\x01\x00\x02tx", b""),
        JournalRecord(b"\x00\x00\x00\x02tx", b"\x00\x02"),
        JournalRecord(b"", b""),
    ]
    scene.log.append(build_batch([(0, key, value, ()) for key, value in strange], base_offset=1))
    scene.restart()
    assert [event.cause for event in scene.happened(RecordSkipped)] == [
        "key version 1",
        "value version 2",
        "a record of an internal topic without a version",
    ]
    assert scene.describe().transaction_state == "Empty"


def test_ten_thousand_open_and_a_thousand_prepared_transactions_are_loaded_and_finished() -> None:
    scene = Scene()
    start_ms = scene.wall_ms()
    for number in range(11_000):
        state = TransactionState.PREPARE_COMMIT if number % 11 == 0 else TransactionState.ONGOING
        partitions = frozenset({("out", number % 4), ("audit", number % 2)})
        record = TransactionRecord(1000 + number, 0, 60_000, state, partitions, start_ms, start_ms)
        entry = scene.journal.encode_entry(TransactionEntry(f"tx-{number}", record))
        scene.log.append(build_batch([(start_ms, *entry, ())], base_offset=number))
    scene.restart()
    states = [state.transaction_state for state in scene.list_transactions().transaction_states]
    assert (states.count("Ongoing"), states.count("CompleteCommit")) == (10_000, 1_000)
