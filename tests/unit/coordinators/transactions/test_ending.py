"""EndTxn: every row of the decision tables of both protocols, and who has the last word."""

from collections.abc import Callable
from functools import partial

import pytest

from fencepost.coordinators.transactions.calls import ProducerPair
from fencepost.coordinators.transactions.decisions import (
    Refused,
    check_identity,
    ended_by_protocol_1,
    ended_by_protocol_2,
)
from fencepost.coordinators.transactions.transaction_metadata import TransactionMetadata, TransactionRecord
from fencepost.coordinators.transactions.transaction_states import STATE_OF_WIRE_NAME
from fencepost.ports import Now
from tests.unit.coordinators.transactions.scene import Scene

NOW = Now(0, 1_700_000_000_000)


def standing_at(
    state: str, epoch: int, previous: int = 1000, producer_id: int = 1000, ended_by: int = 2
) -> TransactionMetadata:
    is_empty = state == "Empty"
    record = TransactionRecord(
        producer_id,
        epoch,
        60_000,
        STATE_OF_WIRE_NAME[state],
        frozenset() if is_empty or state.startswith("Complete") else frozenset({("out", 0)}),
        -1 if is_empty else NOW.wall_ms,
        NOW.wall_ms,
        previous,
        client_transaction_version=ended_by,
    )
    return TransactionMetadata("tx", 0, record)


def verdict_of(decide: Callable[[], TransactionRecord | None]) -> tuple[str, TransactionRecord | None]:
    """The state that would be written, NONE for a yes without a write, or the error."""
    try:
        target = decide()
    except Refused as refusal:
        return refusal.code.name, None
    return (target.state.wire_name if target else "NONE"), target


@pytest.mark.parametrize(
    ("state", "result", "expected"),
    [
        ("Ongoing", "commit", "PrepareCommit"),
        ("Ongoing", "abort", "PrepareAbort"),
        ("CompleteCommit", "commit", "NONE"),
        ("CompleteCommit", "abort", "INVALID_TXN_STATE"),
        ("CompleteAbort", "abort", "NONE"),
        ("CompleteAbort", "commit", "INVALID_TXN_STATE"),
        ("PrepareCommit", "commit", "CONCURRENT_TRANSACTIONS"),
        ("PrepareCommit", "abort", "INVALID_TXN_STATE"),
        ("PrepareAbort", "abort", "CONCURRENT_TRANSACTIONS"),
        ("PrepareAbort", "commit", "INVALID_TXN_STATE"),
        ("Empty", "commit", "INVALID_TXN_STATE"),
        ("Empty", "abort", "INVALID_TXN_STATE"),
    ],
)
def test_protocol_1_row_by_row(state: str, result: str, expected: str) -> None:
    metadata = standing_at(state, 5)
    check_identity(metadata.record, ProducerPair(1000, 5))
    verdict, target = verdict_of(lambda: ended_by_protocol_1(metadata, result == "commit", NOW))
    assert verdict == expected
    if target:
        assert (target.producer_id, target.producer_epoch) == (1000, 5)
        assert target.client_transaction_version == 0


FENCED, STATE, BUSY = "PRODUCER_FENCED", "INVALID_TXN_STATE", "CONCURRENT_TRANSACTIONS"


@pytest.mark.parametrize(
    ("state", "abort_retry", "abort_current", "commit_retry", "commit_current"),
    [
        ("Empty", FENCED, "PrepareAbort", FENCED, STATE),
        ("CompleteAbort", "NONE", "PrepareAbort", STATE, STATE),
        ("CompleteCommit", STATE, "PrepareAbort", "NONE", STATE),
        ("Ongoing", FENCED, "PrepareAbort", FENCED, "PrepareCommit"),
        ("PrepareAbort", BUSY, FENCED, STATE, FENCED),
        ("PrepareCommit", STATE, FENCED, BUSY, FENCED),
    ],
)
def test_protocol_2_row_by_row(
    state: str, abort_retry: str, abort_current: str, commit_retry: str, commit_current: str
) -> None:
    cells = {(False, 4): abort_retry, (False, 5): abort_current, (True, 4): commit_retry, (True, 5): commit_current}
    for (is_commit, epoch), expected in cells.items():
        metadata = standing_at(state, 5)
        given = ProducerPair(1000, epoch)
        verdict, target = verdict_of(partial(ended_by_protocol_2, metadata, given, is_commit, NOW, 2000))
        assert verdict == expected, (is_commit, epoch)
        if target:
            assert (target.producer_epoch, target.last_producer_epoch) == (6, 5)


@pytest.mark.parametrize("state", ["PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"])
@pytest.mark.parametrize("is_commit", [True, False])
def test_the_epoch_before_is_no_retry_where_the_last_end_did_not_raise_it(state: str, is_commit: bool) -> None:
    metadata = standing_at(state, 5, ended_by=0)
    decide = partial(ended_by_protocol_2, metadata, ProducerPair(1000, 4), is_commit, NOW, 2000)
    assert verdict_of(decide) == (FENCED, None)


def test_a_zombie_of_protocol_2_never_gets_the_epoch_of_a_live_producer_of_protocol_1() -> None:
    Scene().play(
        """
        init tx                          # the one that will be a zombie
          = 1000/0
          log tx Empty 1000/0
        init tx                          # the live one
          = 1000/1
          log tx Empty 1000/1
          event ProducerFenced: 1000/0 by 1000/1, TAKEOVER
        add tx 1000/1 out-0
          = NONE
          log tx Ongoing 1000/1 [out-0]
        end tx 1000/1 commit v=4
          = NONE
          log tx PrepareCommit 1000/1 [out-0]
          markers commit 1000/1 TV0 [out-0]
          log tx CompleteCommit 1000/1
        end tx 1000/0 commit v=5
          = PRODUCER_FENCED
          event CallRefused: EndTxn 1000/0, STALE_EPOCH, fenced by TAKEOVER
        restart
        end tx 1000/0 commit v=5
          = PRODUCER_FENCED
          event CallRefused: EndTxn 1000/0, STALE_EPOCH
        end tx 1000/0 abort v=5
          = PRODUCER_FENCED
          event CallRefused: EndTxn 1000/0, STALE_EPOCH
        """
    )


@pytest.mark.parametrize("state", ["Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit"])
@pytest.mark.parametrize("epoch", [0, 3, 6, 7, 32766])
def test_protocol_2_any_other_epoch_is_fenced(state: str, epoch: int) -> None:
    for is_commit in (True, False):
        with pytest.raises(Refused) as refusal:
            ended_by_protocol_2(standing_at(state, 5), ProducerPair(1000, epoch), is_commit, NOW, 2000)
        assert refusal.value.code.name == FENCED


@pytest.mark.parametrize(("state", "expected"), [("CompleteCommit", "NONE"), ("Empty", FENCED), ("Ongoing", FENCED)])
def test_protocol_2_the_retry_over_a_rotation_is_known_by_the_previous_producer_id(state: str, expected: str) -> None:
    metadata = standing_at(state, 0, previous=999)
    verdict, _ = verdict_of(lambda: ended_by_protocol_2(metadata, ProducerPair(999, 32766), True, NOW, 2000))
    assert verdict == expected


def test_identity_comes_before_state_in_protocol_1() -> None:
    Scene().play(
        """
        end nobody 1000/0 commit
          = INVALID_PRODUCER_ID_MAPPING
          event CallRefused: EndTxn 1000/0, UNKNOWN_ID
        end '' 1000/0 commit
          = INVALID_REQUEST
          event CallRefused: EndTxn 1000/0, INVALID_REQUEST
        seed tx Ongoing 1000/5 out-0
        end tx 999/5 commit
          = INVALID_PRODUCER_ID_MAPPING
          event CallRefused: EndTxn 999/5, OTHER_PRODUCER_ID
        end tx 1000/6 commit v=2
          = PRODUCER_FENCED
          event CallRefused: EndTxn 1000/6, FUTURE_EPOCH
        end tx 1000/4 commit v=1
          = INVALID_PRODUCER_EPOCH
          event CallRefused: EndTxn 1000/4, STALE_EPOCH
        end tx 1000/5 commit v=0
          = NONE
          log tx PrepareCommit 1000/5 [out-0]
          markers commit 1000/5 TV0 [out-0]
          log tx CompleteCommit 1000/5
        """
    )


def test_an_end_is_answered_when_prepare_is_durable_and_not_before() -> None:
    Scene(markers_at_once=False).play(
        """
        seed tx Ongoing 1000/0 out-0 out-1
        slow disk
        end tx 1000/0 commit
          log tx PrepareCommit 1000/0 [out-0 out-1]
          (waits)
        end tx 1000/0 commit           # sent again meanwhile
          = CONCURRENT_TRANSACTIONS
        end tx 1000/0 abort v=5
          = CONCURRENT_TRANSACTIONS
        describe tx                    # nothing is decided before it is durable
          = Ongoing 1000/0 [out-0 out-1]
        sync
          -> end tx commit: NONE
          markers commit 1000/0 TV0 [out-0 out-1]
        end tx 1000/0 abort
          = CONCURRENT_TRANSACTIONS
        marked out-1
        marked out-0
          log tx CompleteCommit 1000/0
        describe tx
          = PrepareCommit 1000/0 []
        sync
        describe tx
          = CompleteCommit 1000/0 []
        """
    )


def test_a_decision_that_was_lost_leaves_the_transaction_open_for_another() -> None:
    Scene().play(
        """
        seed tx Ongoing 1000/0 out-0
        slow disk
        end tx 1000/0 commit v=5
          log tx PrepareCommit 1000/1 [out-0]
          (waits)
        lose NOT_ENOUGH_REPLICAS
          -> end tx commit: COORDINATOR_NOT_AVAILABLE
        describe tx
          = Ongoing 1000/0 [out-0]
        fast disk
        end tx 1000/0 abort v=5
          = NONE 1000/1
          log tx PrepareAbort 1000/1 [out-0]
          event TransactionAborted: 1000/0, CLIENT
          markers abort 1000/1 TV2 [out-0]
          log tx CompleteAbort 1000/1
        """
    )


def test_the_last_epoch_rolls_over_to_a_new_producer_id() -> None:
    Scene().play(
        """
        seed tx Ongoing 1000/32765 out-0
        end tx 1000/32765 commit v=5
          = NONE 1000/32766
          log tx PrepareCommit 1000/32766 [out-0]
          markers commit 1000/32766 TV2 [out-0]
          log tx CompleteCommit 1000/32766
        implicit tx 1000/32766 out-1
          = NONE
          log tx Ongoing 1000/32766 [out-1]
        end tx 1000/32766 commit v=5
          = NONE 1001/0
          log tx PrepareCommit 1000/32767 [out-1] next 1001/-1
          event ProducerIdRotated: 1000 to 1001
          markers commit 1000/32767 TV2 [out-1]
          log tx CompleteCommit 1001/0
        end tx 1000/32766 commit v=5   # the answer was lost
          = NONE 1001/0
        end tx 1000/32766 abort v=5
          = INVALID_TXN_STATE
          event CallRefused: EndTxn 1000/32766, OTHER_OUTCOME
        restart
        end tx 1000/32766 commit v=5   # known even over a restart
          = NONE 1001/0
        implicit tx 1000/32766 out-0
          = INVALID_PRODUCER_ID_MAPPING
          event CallRefused: implicit add 1000/32766, OTHER_PRODUCER_ID
        implicit tx 1001/0 out-0
          = NONE
          log tx Ongoing 1001/0 [out-0]
        end tx 1000/32766 commit v=5   # the next transaction has begun: too late
          = INVALID_PRODUCER_ID_MAPPING
          event CallRefused: EndTxn 1000/32766, OTHER_PRODUCER_ID
        """
    )


def test_aborting_nothing_at_the_last_epoch_rolls_over_as_well() -> None:
    Scene().play(
        """
        seed tx Empty 1000/32766
        end tx 1000/32766 abort v=5
          = NONE 1001/0
          log tx PrepareAbort 1000/32767 next 1001/-1
          event ProducerIdRotated: 1000 to 1001
          log tx CompleteAbort 1001/0
        """
    )


def test_a_partition_whose_marker_does_not_get_through_is_tried_again() -> None:
    Scene(markers_at_once=False).play(
        """
        seed tx Ongoing 1000/0 out-0 out-1
        end tx 1000/0 commit
          = NONE
          log tx PrepareCommit 1000/0 [out-0 out-1]
          markers commit 1000/0 TV0 [out-0 out-1]
        marked out-0 NOT_LEADER_OR_FOLLOWER
        marked out-1
        advance 99
        advance 1
          markers commit 1000/0 TV0 [out-0]
        marked out-0 UNKNOWN_TOPIC_OR_PARTITION   # the topic exists: a leader will be found
        advance 100
          markers commit 1000/0 TV0 [out-0]
        marked out-0
          log tx CompleteCommit 1000/0
        """
    )


def test_a_topic_that_was_deleted_needs_no_marker() -> None:
    scene = Scene(markers_at_once=False)
    scene.play(
        """
        seed tx Ongoing 1000/0 audit-1 out-0
        end tx 1000/0 commit
          = NONE
          log tx PrepareCommit 1000/0 [audit-1 out-0]
          markers commit 1000/0 TV0 [audit-1 out-0]
        """
    )
    del scene.topics.counts["audit"]
    scene.play(
        """
        marked audit-1 UNKNOWN_TOPIC_OR_PARTITION
        marked out-0
          log tx CompleteCommit 1000/0
        """
    )


def test_a_refused_marker_leaves_the_transaction_to_whoever_is_newer() -> None:
    Scene(markers_at_once=False).play(
        """
        seed tx Ongoing 1000/0 out-0 out-1
        end tx 1000/0 commit
          = NONE
          log tx PrepareCommit 1000/0 [out-0 out-1]
          markers commit 1000/0 TV0 [out-0 out-1]
        marked out-1
        marked out-0 TRANSACTION_COORDINATOR_FENCED
          event MarkerRefused: out-0, TRANSACTION_COORDINATOR_FENCED
        advance 100_000
        describe tx
          = PrepareCommit 1000/0 [out-0]
        """
    )


def test_complete_is_written_again_until_it_is() -> None:
    Scene(markers_at_once=False).play(
        """
        seed tx Ongoing 1000/0 out-0
        end tx 1000/0 commit
          = NONE
          log tx PrepareCommit 1000/0 [out-0]
          markers commit 1000/0 TV0 [out-0]
        fail NOT_ENOUGH_REPLICAS
        fail REQUEST_TIMED_OUT
        marked out-0
          write fails with NOT_ENOUGH_REPLICAS
        advance 100
          write fails with REQUEST_TIMED_OUT
        advance 100
          log tx CompleteCommit 1000/0
        """
    )


def test_markers_carry_the_epoch_of_their_coordinator() -> None:
    scene = Scene()
    scene.play(
        """
        seed tx Ongoing 1000/0 out-0
        end tx 1000/0 commit
          = NONE
          log tx PrepareCommit 1000/0 [out-0]
          markers commit 1000/0 TV0 [out-0]
          log tx CompleteCommit 1000/0
        """
    )
    assert [order.coordinator_epoch for order in scene.orders] == [7]
