"""What the passing of time does: open transactions time out, idle ids expire; wall clocks that jump do nothing."""

from typing import Any

import pytest

from fencepost.coordinators.transactions import coordinator
from fencepost.coordinators.transactions.decisions import decide_timer
from fencepost.coordinators.transactions.effects import Effects, TimerKind
from fencepost.coordinators.transactions.transaction_metadata import TransactionMetadata
from fencepost.wire.errors import ErrorCode
from tests.unit.coordinators.transactions.scene import Scene

WEEK_MS = 7 * 24 * 3_600_000
HOUR_MS = 3_600_000


def test_an_open_transaction_is_aborted_at_the_first_sweep_after_its_time() -> None:
    Scene().play(
        """
        init tx timeout=60000
          = 1000/0
          log tx Empty 1000/0
        add tx 1000/0 out-0            # at 1 second
          = NONE
          log tx Ongoing 1000/0 [out-0]
        advance 30_000
        add tx 1000/0 out-1            # does not move the deadline
          = NONE
          log tx Ongoing 1000/0 [out-0 out-1]
        advance 38_999
        advance 1
          log tx PrepareAbort 1000/1 [out-0 out-1]
          event TransactionAborted: 1000/0, TIMEOUT
          event ProducerFenced: 1000/0 by 1000/1, TIMEOUT
          event TransactionTimedOut: 1000/0 after 69000 ms
          markers abort 1000/1 TV2 [out-0 out-1]
          log tx CompleteAbort 1000/1
        end tx 1000/0 commit           # protocol 1 cannot recover
          = PRODUCER_FENCED
          event CallRefused: EndTxn 1000/0, STALE_EPOCH, fenced by TIMEOUT
        """
    )


def test_a_producer_of_protocol_2_recovers_from_a_time_out_by_aborting() -> None:
    Scene(transaction_abort_timed_out_transaction_cleanup_interval_ms=1).play(
        """
        init tx timeout=1000
          = 1000/0
          log tx Empty 1000/0
        implicit tx 1000/0 out-0
          = NONE
          log tx Ongoing 1000/0 [out-0]
        advance 1_000
        advance 1
          log tx PrepareAbort 1000/1 [out-0]
          event TransactionAborted: 1000/0, TIMEOUT
          event ProducerFenced: 1000/0 by 1000/1, TIMEOUT
          event TransactionTimedOut: 1000/0 after 1001 ms
          markers abort 1000/1 TV2 [out-0]
          log tx CompleteAbort 1000/1
        end tx 1000/0 commit v=5
          = INVALID_TXN_STATE
          event CallRefused: EndTxn 1000/0, OTHER_OUTCOME
        end tx 1000/0 abort v=5
          = NONE 1000/1
        """
    )


def test_a_commit_that_is_being_written_when_the_time_is_up_wins() -> None:
    Scene(transaction_abort_timed_out_transaction_cleanup_interval_ms=100).play(
        """
        init tx timeout=1000
          = 1000/0
          log tx Empty 1000/0
        add tx 1000/0 out-0
          = NONE
          log tx Ongoing 1000/0 [out-0]
        slow disk
        end tx 1000/0 commit
          log tx PrepareCommit 1000/0 [out-0]
          (waits)
        advance 5_000
        fast disk
          -> end tx commit: NONE
          markers commit 1000/0 TV0 [out-0]
          log tx CompleteCommit 1000/0
        advance 100_000
        """
    )


def test_a_commit_that_comes_while_the_abort_is_being_written_loses() -> None:
    Scene(transaction_abort_timed_out_transaction_cleanup_interval_ms=100).play(
        """
        init tx timeout=1000
          = 1000/0
          log tx Empty 1000/0
        add tx 1000/0 out-0
          = NONE
          log tx Ongoing 1000/0 [out-0]
        slow disk
        advance 1_100
          log tx PrepareAbort 1000/1 [out-0]
        end tx 1000/0 commit
          = CONCURRENT_TRANSACTIONS
        fast disk
          event TransactionAborted: 1000/0, TIMEOUT
          event ProducerFenced: 1000/0 by 1000/1, TIMEOUT
          event TransactionTimedOut: 1000/0 after 1100 ms
          markers abort 1000/1 TV2 [out-0]
          log tx CompleteAbort 1000/1
        end tx 1000/0 commit
          = PRODUCER_FENCED
          event CallRefused: EndTxn 1000/0, STALE_EPOCH, fenced by TIMEOUT
        """
    )


def test_when_the_commit_that_won_is_lost_the_next_sweep_aborts() -> None:
    Scene(transaction_abort_timed_out_transaction_cleanup_interval_ms=100).play(
        """
        init tx timeout=1000
          = 1000/0
          log tx Empty 1000/0
        add tx 1000/0 out-0
          = NONE
          log tx Ongoing 1000/0 [out-0]
        slow disk
        end tx 1000/0 commit
          log tx PrepareCommit 1000/0 [out-0]
          (waits)
        advance 1_150
        lose NOT_ENOUGH_REPLICAS
          -> end tx commit: COORDINATOR_NOT_AVAILABLE
        fast disk
        advance 50
          log tx PrepareAbort 1000/1 [out-0]
          event TransactionAborted: 1000/0, TIMEOUT
          event ProducerFenced: 1000/0 by 1000/1, TIMEOUT
          event TransactionTimedOut: 1000/0 after 1200 ms
          markers abort 1000/1 TV2 [out-0]
          log tx CompleteAbort 1000/1
        """
    )


def test_an_abort_that_cannot_be_written_is_tried_at_the_next_sweep() -> None:
    Scene(transaction_abort_timed_out_transaction_cleanup_interval_ms=100).play(
        """
        init tx timeout=1000
          = 1000/0
          log tx Empty 1000/0
        add tx 1000/0 out-0
          = NONE
          log tx Ongoing 1000/0 [out-0]
        fail NOT_ENOUGH_REPLICAS
        advance 1_100
          write fails with NOT_ENOUGH_REPLICAS
        advance 100
          log tx PrepareAbort 1000/1 [out-0]
          event TransactionAborted: 1000/0, TIMEOUT
          event ProducerFenced: 1000/0 by 1000/1, TIMEOUT
          event TransactionTimedOut: 1000/0 after 1200 ms
          markers abort 1000/1 TV2 [out-0]
          log tx CompleteAbort 1000/1
        """
    )


def test_a_wall_clock_that_jumps_ahead_aborts_nothing_early() -> None:
    scene = Scene()
    scene.play(
        """
        init tx timeout=60000
          = 1000/0
          log tx Empty 1000/0
        add tx 1000/0 out-0
          = NONE
          log tx Ongoing 1000/0 [out-0]
        jump 3_600_000
        advance 60_000
        describe tx
          = Ongoing 1000/0 [out-0]
        """
    )


def test_a_wall_clock_that_jumps_back_keeps_nothing_open_for_longer() -> None:
    scene = Scene()
    scene.play(
        """
        init tx timeout=60000
          = 1000/0
          log tx Empty 1000/0
        add tx 1000/0 out-0
          = NONE
          log tx Ongoing 1000/0 [out-0]
        jump -3_600_000
        restart                        # even when the record lies in the future
        advance 60_000
        describe tx
          = Ongoing 1000/0 [out-0]
        """
    )
    scene.advance(10_000)
    assert scene.describe().transaction_state == "CompleteAbort"


def test_after_a_restart_only_the_time_that_was_left_counts() -> None:
    scene = Scene(transaction_abort_timed_out_transaction_cleanup_interval_ms=1)
    scene.play(
        """
        init tx timeout=60000
          = 1000/0
          log tx Empty 1000/0
        add tx 1000/0 out-0
          = NONE
          log tx Ongoing 1000/0 [out-0]
        advance 50_000
        restart
        advance 10_000
        describe tx
          = Ongoing 1000/0 [out-0]
        """
    )
    scene.advance(1)
    assert scene.describe().transaction_state == "CompleteAbort"


def test_an_idle_id_expires_with_a_tombstone() -> None:
    scene = Scene()
    scene.play(
        """
        init tx
          = 1000/0
          log tx Empty 1000/0
        """
    )
    scene.advance(WEEK_MS - 1_000)
    assert scene.describe().transaction_state == "Empty"
    scene.play(
        f"""
        advance {HOUR_MS}
          log tombstone tx
          event TransactionalIdsExpired: tx
        describe tx
          = TRANSACTIONAL_ID_NOT_FOUND
        restart
        describe tx
          = TRANSACTIONAL_ID_NOT_FOUND
        end tx 1000/0 commit
          = INVALID_PRODUCER_ID_MAPPING
          event CallRefused: EndTxn 1000/0, UNKNOWN_ID
        init tx 1000/0                 # a fresh producer id: no pair is ever used twice
          = 1001/0
          log tx Empty 1001/0
        """
    )


def test_use_keeps_an_id_alive_and_an_open_transaction_never_expires() -> None:
    scene = Scene(transactional_id_expiration_ms=HOUR_MS, transaction_two_phase_commit_enable="true")
    scene.play(
        """
        init tx 2pc
          = 1000/0
          log tx Empty 1000/0
        """
    )
    for _ in range(5):
        scene.advance(HOUR_MS - 1)
        scene.add((1000, 0), ("out", 0))
        scene.end((1000, 0), commit=True)
    scene.add((1000, 0), ("out", 0))
    scene.advance(10 * HOUR_MS)
    assert scene.describe().transaction_state == "Ongoing"
    scene.end((1000, 0), commit=True)
    scene.advance(2 * HOUR_MS)
    assert scene.describe().error_code == 105


def test_ids_that_expire_together_share_their_writes() -> None:
    scene = Scene()
    for number in range(2_500):
        scene.init(f"tx-{number}")
    batches = len(scene.log)
    scene.advance(WEEK_MS + HOUR_MS)
    assert len(scene.log) - batches == 3
    assert scene.list_transactions().transaction_states == []


def test_an_id_that_is_being_expired_is_gone_for_everybody() -> None:
    scene = Scene()
    scene.play(
        """
        init tx
          = 1000/0
          log tx Empty 1000/0
        slow disk
        """
    )
    scene.advance(WEEK_MS + HOUR_MS)
    scene.play(
        """
        describe tx
          = TRANSACTIONAL_ID_NOT_FOUND
        init tx
          = CONCURRENT_TRANSACTIONS
        add tx 1000/0 out-0
          (waits)
        sync
          event CallRefused: AddPartitionsToTxn 1000/0, UNKNOWN_ID
          -> add tx out-0: INVALID_PRODUCER_ID_MAPPING
          event TransactionalIdsExpired: tx
        """
    )


def test_an_expiry_that_cannot_be_written_is_tried_again() -> None:
    scene = Scene()
    scene.init()
    scene.failures.append(ErrorCode.NOT_ENOUGH_REPLICAS)
    scene.advance(WEEK_MS + HOUR_MS)
    assert scene.describe().transaction_state == "Empty"
    scene.advance(HOUR_MS)
    assert scene.describe().error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_ten_thousand_idle_ids_cost_a_tick_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    for number in range(10_000):
        scene.init(f"tx-{number}")
    looked_at: list[TimerKind] = []

    def counted(metadata: TransactionMetadata, kind: TimerKind, *rest: Any) -> Effects:
        looked_at.append(kind)
        return decide_timer(metadata, kind, *rest)

    monkeypatch.setattr(coordinator, "decide_timer", counted)
    scene.add((1000, 0), ("out", 0), transactional_id="tx-0")
    scene.advance(100_000)
    assert scene.describe("tx-0").transaction_state == "CompleteAbort"
    assert looked_at == [TimerKind.TIMEOUT]


def test_a_time_out_at_the_last_epoch_does_not_hand_out_the_reserved_one() -> None:
    Scene(transaction_abort_timed_out_transaction_cleanup_interval_ms=1).play(
        """
        seed tx Ongoing 1000/32766 out-0
        advance 60_001
          log tx PrepareAbort 1000/32767 [out-0]
          event TransactionAborted: 1000/32766, TIMEOUT
          event ProducerFenced: 1000/32766 by 1000/32767, TIMEOUT
          event TransactionTimedOut: 1000/32766 after 60001 ms
          markers abort 1000/32767 TV2 [out-0]
          log tx CompleteAbort 1000/32767
        end tx 1000/32766 abort v=5
          = PRODUCER_FENCED
          event CallRefused: EndTxn 1000/32766, STALE_EPOCH, fenced by TIMEOUT
        init tx
          = 1001/0
          log tx Empty 1001/0
          event ProducerFenced: 1000/32767 by 1001/0, TAKEOVER
          event ProducerIdRotated: 1000 to 1001
        """
    )


def test_an_id_whose_change_fails_while_it_expires_is_still_found_by_the_next_sweep() -> None:
    """The sweep that found it busy was its last, although nothing had become of what it was busy with."""
    scene = Scene()
    scene.play(
        """
        init tx
          = 1000/0
          log tx Empty 1000/0
        """
    )
    scene.advance(WEEK_MS - HOUR_MS)
    scene.play(
        """
        slow disk
        init tx
          log tx Empty 1000/1
          (waits)
        """
    )
    scene.advance(2 * HOUR_MS)
    scene.play(
        """
        lose NOT_ENOUGH_REPLICAS
          -> init tx: COORDINATOR_NOT_AVAILABLE
        fast disk
        """
    )
    scene.advance(HOUR_MS)
    assert scene.describe().error_code == 105
