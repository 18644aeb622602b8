"""The table of transitions is Kafka's, nothing goes around it, and the picture of it is up to date."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from fencepost.coordinators.illegal_transition import IllegalTransition
from fencepost.coordinators.transactions.transaction_metadata import TransactionMetadata, TransactionRecord
from fencepost.coordinators.transactions.transaction_states import (
    TRANSITIONS,
    TransactionState,
)

ROOT = Path(__file__).parent.parent.parent.parent.parent

KAFKAS_PREDECESSORS = {
    "Empty": {"Empty", "CompleteCommit", "CompleteAbort"},
    "Ongoing": {"Ongoing", "Empty", "CompleteCommit", "CompleteAbort"},
    "PrepareCommit": {"Ongoing"},
    "PrepareAbort": {"Ongoing", "PrepareEpochFence", "Empty", "CompleteCommit", "CompleteAbort"},
    "CompleteCommit": {"PrepareCommit"},
    "CompleteAbort": {"PrepareAbort"},
    "Dead": {"Empty", "CompleteAbort", "CompleteCommit"},
    "PrepareEpochFence": {"Ongoing"},
}


def test_the_table_is_kafkas() -> None:
    ours = {state.wire_name: {before.wire_name for before in TRANSITIONS[state]} for state in TransactionState}
    assert ours == KAFKAS_PREDECESSORS


def test_a_step_that_the_table_does_not_have_is_a_mistake_of_ours() -> None:
    for target in TransactionState:
        for current in TransactionState:
            if current.wire_name not in KAFKAS_PREDECESSORS[target.wire_name]:
                record = TransactionRecord(1000, 5, 60_000, current, frozenset(), 1, 1)
                with pytest.raises(IllegalTransition, match="not in the table"):
                    TransactionMetadata("tx", 0, record).reserve(target)


def ongoing() -> TransactionMetadata:
    record = TransactionRecord(1000, 5, 60_000, TransactionState.ONGOING, frozenset({("out", 0)}), 1, 1)
    return TransactionMetadata("tx", 0, record)


def test_there_is_one_slot_for_a_change_under_way() -> None:
    metadata = ongoing()
    metadata.reserve(TransactionState.ONGOING)
    with pytest.raises(IllegalTransition, match="ONGOING is pending"):
        metadata.reserve(TransactionState.PREPARE_COMMIT)
    metadata.release()
    metadata.reserve(TransactionState.PREPARE_COMMIT)


def test_what_was_not_begun_cannot_be_applied() -> None:
    metadata = ongoing()
    with pytest.raises(IllegalTransition, match="nothing is pending"):
        metadata.apply(metadata.record._replace(state=TransactionState.PREPARE_COMMIT))
    metadata.reserve(TransactionState.PREPARE_ABORT)
    with pytest.raises(IllegalTransition, match="PREPARE_ABORT is pending"):
        metadata.apply(metadata.record._replace(state=TransactionState.PREPARE_COMMIT))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"state": TransactionState.PREPARE_COMMIT, "producer_epoch": 4}, "the epoch would fall"),
        ({"state": TransactionState.PREPARE_COMMIT, "producer_epoch": 32768}, "no producer has"),
        ({"state": TransactionState.PREPARE_COMMIT, "producer_id": -1}, "no producer has"),
        ({"state": TransactionState.PREPARE_ABORT, "partitions": frozenset()}, "do not change when it ends"),
        ({"partitions": frozenset({("out", 1)})}, "a partition left"),
        ({"producer_epoch": 6}, "of an open transaction does not change"),
        ({"state": TransactionState.COMPLETE_COMMIT}, "partitions outside of a transaction"),
        ({"state": TransactionState.EMPTY, "partitions": frozenset()}, "a start time only belongs"),
    ],
)
def test_no_record_may_contradict_the_one_before(changes: dict, problem: str) -> None:
    metadata = ongoing()
    with pytest.raises(IllegalTransition, match=problem):
        metadata.check(metadata.record._replace(**changes))


def diagram_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("write_state_diagram", ROOT / "scripts" / "write_state_diagram.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_picture_in_the_docs_is_drawn_from_the_table() -> None:
    script = diagram_script()
    document = script.DOCUMENT.read_text()
    assert script.updated(document) == document, "run scripts/write_state_diagram.py"
    for state in TransactionState:
        assert state.wire_name in document
