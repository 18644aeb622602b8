"""A coordinator that knows less of its producers than the partitions they wrote to."""

import pytest

from fencepost.coordinators.transactions.decisions import caught_up
from fencepost.coordinators.transactions.transaction_metadata import EPOCH_EXHAUSTED, TransactionRecord
from fencepost.coordinators.transactions.transaction_states import TransactionState

DECIDED = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
OTHERS = (
    TransactionState.EMPTY,
    TransactionState.ONGOING,
    TransactionState.COMPLETE_COMMIT,
    TransactionState.COMPLETE_ABORT,
)


def record_of(state: TransactionState) -> TransactionRecord:
    return TransactionRecord(7, 3, 60_000, state, last_producer_epoch=2)


@pytest.mark.parametrize("state", [*DECIDED, *OTHERS])
@pytest.mark.parametrize("partition_epoch", [-1, 0, 3])
def test_an_epoch_that_the_coordinator_knows_changes_nothing(state: TransactionState, partition_epoch: int) -> None:
    record = record_of(state)
    assert caught_up(record, partition_epoch) is record


@pytest.mark.parametrize("state", OTHERS)
def test_an_id_goes_on_above_the_epochs_that_partitions_have_seen(state: TransactionState) -> None:
    assert caught_up(record_of(state), 5) == record_of(state)._replace(producer_epoch=5, last_producer_epoch=-1)


@pytest.mark.parametrize("state", DECIDED)
def test_an_outdated_decision_is_not_carried_out(state: TransactionState) -> None:
    assert caught_up(record_of(state), 4) is None


def test_an_id_whose_epochs_are_used_up_is_forgotten() -> None:
    assert caught_up(record_of(TransactionState.EMPTY), EPOCH_EXHAUSTED) is None
    assert caught_up(record_of(TransactionState.EMPTY), EPOCH_EXHAUSTED - 1) is not None


def test_the_pair_of_a_client_that_took_charge_of_a_prepared_transaction_counts() -> None:
    kept = record_of(TransactionState.ONGOING)._replace(next_producer_id=7, next_producer_epoch=4)
    assert caught_up(kept, 4) is kept
    assert caught_up(kept, 5) is None
