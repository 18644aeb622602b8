"""Transactions that an outside coordinator commits (KIP-939): kept over restarts, ended by their token."""

from fencepost.coordinators.transactions.transaction_metadata import TIMEOUT_NEVER_MS
from tests.unit.coordinators.transactions.scene import Scene

YEAR_MS = 365 * 24 * 3_600_000


def two_phase_scene(**settings: object) -> Scene:
    return Scene(transaction_two_phase_commit_enable="true", **settings)


def test_a_prepared_transaction_outlives_its_client_and_its_broker() -> None:
    scene = two_phase_scene()
    scene.play(
        """
        init tx 2pc
          = 1000/0
          log tx Empty 1000/0
        implicit tx 1000/0 out-0
          = NONE
          log tx Ongoing 1000/0 [out-0]
        restart
        """
    )
    assert scene.metadata().record.timeout_ms == TIMEOUT_NEVER_MS
    scene.advance(YEAR_MS)
    scene.play(
        """
        init tx 2pc keep
          = 1000/1 ongoing 1000/0
          log tx Ongoing 1000/0 [out-0] next 1000/1
          event ProducerFenced: 1000/0 by 1000/1, KEPT
          event TransactionKept: 1000/0 for 1000/1
        restart
        end tx 1000/0 commit v=5       # its first client is a zombie
          = PRODUCER_FENCED
          event CallRefused: EndTxn 1000/0, STALE_EPOCH
        implicit tx 1000/1 out-1       # the new one may only end it
          = INVALID_TXN_STATE
          event CallRefused: implicit add 1000/1, KEPT_PREPARED
        verify tx 1000/1 out-0
          = INVALID_TXN_STATE
          event CallRefused: verify 1000/1, KEPT_PREPARED
        describe tx                    # people see the transaction's own pair, the token
          = Ongoing 1000/0 [out-0]
        end tx 1000/1 commit v=5
          = NONE 1000/2
          log tx PrepareCommit 1000/2 [out-0]
          markers commit 1000/2 TV2 [out-0]
          log tx CompleteCommit 1000/2
        end tx 1000/1 commit v=5       # the answer was lost
          = NONE 1000/2
        implicit tx 1000/2 out-1
          = NONE
          log tx Ongoing 1000/2 [out-1]
        """
    )


def test_a_kept_transaction_may_be_aborted_and_ended_in_protocol_1() -> None:
    two_phase_scene().play(
        """
        seed tx Ongoing 1000/0 out-0
        init tx keep
          = 1000/1 ongoing 1000/0
          log tx Ongoing 1000/0 [out-0] next 1000/1
          event ProducerFenced: 1000/0 by 1000/1, KEPT
          event TransactionKept: 1000/0 for 1000/1
        end tx 1000/1 abort v=4
          = NONE
          log tx PrepareAbort 1000/1 [out-0]
          event TransactionAborted: 1000/0, CLIENT
          markers abort 1000/1 TV0 [out-0]
          log tx CompleteAbort 1000/1
        """
    )


def test_with_nothing_open_keeping_is_like_any_other_start() -> None:
    two_phase_scene().play(
        """
        init tx 2pc keep
          = 1000/0
          log tx Empty 1000/0
        seed tx CompleteCommit 1000/4
        init tx 2pc keep
          = 1000/5
          log tx Empty 1000/5
          event ProducerFenced: 1000/4 by 1000/5, TAKEOVER
        """
    )


def test_keeping_again_fences_the_one_who_kept_before() -> None:
    two_phase_scene().play(
        """
        seed tx Ongoing 1000/0 out-0
        init tx keep
          = 1000/1 ongoing 1000/0
          log tx Ongoing 1000/0 [out-0] next 1000/1
          event ProducerFenced: 1000/0 by 1000/1, KEPT
          event TransactionKept: 1000/0 for 1000/1
        init tx keep
          = 1000/2 ongoing 1000/0
          log tx Ongoing 1000/0 [out-0] next 1000/2
          event ProducerFenced: 1000/1 by 1000/2, KEPT
          event TransactionKept: 1000/0 for 1000/2
        end tx 1000/1 commit v=5
          = PRODUCER_FENCED
          event CallRefused: EndTxn 1000/1, STALE_EPOCH, fenced by KEPT
        init tx 1000/2 keep            # its own new epoch
          = 1000/3 ongoing 1000/0
          log tx Ongoing 1000/0 [out-0] next 1000/3
          event ProducerFenced: 1000/2 by 1000/3, KEPT
          event TransactionKept: 1000/0 for 1000/3
        init tx 1000/2 keep            # whose answer was lost
          = 1000/3 ongoing 1000/0
        init tx 1000/1 keep
          = PRODUCER_FENCED
          event CallRefused: InitProducerId 1000/1, STALE_EPOCH, fenced by KEPT
        """
    )


def test_forced_termination_aborts_a_kept_transaction_with_an_epoch_above_all() -> None:
    two_phase_scene().play(
        """
        seed tx Ongoing 1000/0 out-0
        init tx 2pc keep
          = 1000/1 ongoing 1000/0
          log tx Ongoing 1000/0 [out-0] next 1000/1
          event ProducerFenced: 1000/0 by 1000/1, KEPT
          event TransactionKept: 1000/0 for 1000/1
        init tx
          = CONCURRENT_TRANSACTIONS
          log tx PrepareAbort 1000/2 [out-0]
          event TransactionAborted: 1000/0, TAKEOVER
          event ProducerFenced: 1000/1 by 1000/2, TAKEOVER
          markers abort 1000/2 TV2 [out-0]
          log tx CompleteAbort 1000/2
        init tx
          = 1000/3
          log tx Empty 1000/3
          event ProducerFenced: 1000/2 by 1000/3, TAKEOVER
        """
    )


def test_keeping_at_the_last_epoch_gives_the_client_a_new_producer_id_of_its_own() -> None:
    scene = two_phase_scene(markers_at_once=False)
    scene.play(
        """
        seed tx Ongoing 1000/32766 out-0
        init tx 2pc keep
          = 1001/0 ongoing 1000/32766
          log tx Ongoing 1000/32766 [out-0] next 1001/0
          event ProducerFenced: 1000/32766 by 1001/0, KEPT
          event ProducerIdRotated: 1000 to 1001
          event TransactionKept: 1000/32766 for 1001/0
        restart
        end tx 1000/32766 commit v=5
          = PRODUCER_FENCED
          event CallRefused: EndTxn 1000/32766, OTHER_PRODUCER_ID
        end tx 1001/0 commit v=5       # the data lies under 1000, and so do its markers
          = NONE 1001/1
          log tx PrepareCommit 1000/32767 [out-0] next 1001/1
          markers commit 1000/32767 TV2 [out-0]
        restart                        # in the middle of it
          event TransactionResumed: 1000/32767 commit
          markers commit 1000/32767 TV2 [out-0]
        marked out-0
          log tx CompleteCommit 1001/1
        end tx 1001/0 commit v=5
          = NONE 1001/1
        """
    )


def test_a_zombie_of_a_kept_transaction_does_not_learn_the_pair_of_its_successor() -> None:
    two_phase_scene().play(
        """
        seed tx Ongoing 1000/32766 out-0
        init tx 2pc keep
          = 1001/0 ongoing 1000/32766
          log tx Ongoing 1000/32766 [out-0] next 1001/0
          event ProducerFenced: 1000/32766 by 1001/0, KEPT
          event ProducerIdRotated: 1000 to 1001
          event TransactionKept: 1000/32766 for 1001/0
        end tx 1001/0 commit v=4       # protocol 1 leaves the epoch alone
          = NONE
          log tx PrepareCommit 1000/32767 [out-0] next 1001/0
          markers commit 1000/32767 TV0 [out-0]
          log tx CompleteCommit 1001/0
        end tx 1000/32766 commit v=5   # looks like the retry of a rotation, and is none
          = INVALID_PRODUCER_ID_MAPPING
          event CallRefused: EndTxn 1000/32766, OTHER_PRODUCER_ID, fenced by KEPT
        """
    )


def test_a_kept_transaction_that_is_forced_out_over_a_rotation_leaves_the_client_fenced_too() -> None:
    two_phase_scene().play(
        """
        seed tx Ongoing 1000/32766 out-0
        init tx 2pc keep
          = 1001/0 ongoing 1000/32766
          log tx Ongoing 1000/32766 [out-0] next 1001/0
          event ProducerFenced: 1000/32766 by 1001/0, KEPT
          event ProducerIdRotated: 1000 to 1001
          event TransactionKept: 1000/32766 for 1001/0
        init tx
          = CONCURRENT_TRANSACTIONS
          log tx PrepareAbort 1000/32767 [out-0] next 1001/1
          event TransactionAborted: 1000/32766, TAKEOVER
          event ProducerFenced: 1001/0 by 1001/1, TAKEOVER
          markers abort 1000/32767 TV2 [out-0]
          log tx CompleteAbort 1001/1
        """
    )


def test_a_two_phase_transaction_that_nobody_prepared_has_a_time_limit_of_its_own() -> None:
    scene = two_phase_scene(transaction_two_phase_commit_unprepared_timeout_ms=3_600_000)
    scene.play(
        """
        init tx 2pc
          = 1000/0
          log tx Empty 1000/0
        implicit tx 1000/0 out-0
          = NONE
          log tx Ongoing 1000/0 [out-0]
        advance 3_600_000
        advance 10_000
          log tx PrepareAbort 1000/1 [out-0]
          event TransactionAborted: 1000/0, NEVER_PREPARED
          event ProducerFenced: 1000/0 by 1000/1, NEVER_PREPARED
          event TransactionTimedOut: 1000/0 after 3609000 ms
          markers abort 1000/1 TV2 [out-0]
          log tx CompleteAbort 1000/1
        """
    )


def test_keeping_a_transaction_says_that_it_was_prepared_and_lifts_the_limit() -> None:
    scene = two_phase_scene(transaction_two_phase_commit_unprepared_timeout_ms=3_600_000)
    scene.init(two_phase=True, version=6)
    scene.coordinator.verify_or_add("tx", 1000, 0, [("out", 0)], add=True)
    scene.init(two_phase=True, keep=True, version=6)
    scene.advance(YEAR_MS)
    scene.restart()
    scene.advance(YEAR_MS)
    assert scene.describe().transaction_state == "Ongoing"


def test_a_transaction_with_a_time_out_keeps_it_when_it_is_kept() -> None:
    scene = two_phase_scene()
    scene.init(version=6)
    scene.add((1000, 0), ("out", 0))
    scene.init(keep=True, version=6)
    scene.advance(60_000 + 10_000)
    assert scene.describe().transaction_state == "CompleteAbort"
    assert scene.end((1000, 1), commit=True).value.error_code == 90
