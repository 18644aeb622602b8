"""The life of a transaction, told as transcripts: what comes in, what is answered, what is written, what is told."""

from tests.unit.coordinators.transactions.scene import Scene


def test_a_transaction_of_protocol_1_from_its_first_call_to_its_last_marker() -> None:
    Scene(markers_at_once=False).play(
        """
        init tx
          = 1000/0
          log tx Empty 1000/0
        add tx 1000/0 out-0 out-1
          = NONE
          log tx Ongoing 1000/0 [out-0 out-1]
        offsets tx 1000/0 shop
          = NONE
          log tx Ongoing 1000/0 [__consumer_offsets-4 out-0 out-1]
        add tx 1000/0 out-1            # there already: nothing to write
          = NONE
        end tx 1000/0 commit
          = NONE
          log tx PrepareCommit 1000/0 [__consumer_offsets-4 out-0 out-1]
          markers commit 1000/0 TV0 [__consumer_offsets-4 out-0 out-1]
        marked out-0
        describe tx
          = PrepareCommit 1000/0 [__consumer_offsets-4 out-1]
        marked out-1
        marked __consumer_offsets-4
          log tx CompleteCommit 1000/0
        add tx 1000/0 out-3            # the next one, under the same epoch
          = NONE
          log tx Ongoing 1000/0 [out-3]
        end tx 1000/0 abort
          = NONE
          log tx PrepareAbort 1000/0 [out-3]
          event TransactionAborted: 1000/0, CLIENT
          markers abort 1000/0 TV0 [out-3]
        marked out-3
          log tx CompleteAbort 1000/0
        """
    )


def test_a_transaction_of_protocol_2_changes_its_epoch_with_every_end() -> None:
    Scene().play(
        """
        init tx
          = 1000/0
          log tx Empty 1000/0
        implicit tx 1000/0 out-0
          = NONE
          log tx Ongoing 1000/0 [out-0]
        implicit tx 1000/0 out-1
          = NONE
          log tx Ongoing 1000/0 [out-0 out-1]
        end tx 1000/0 commit v=5
          = NONE 1000/1
          log tx PrepareCommit 1000/1 [out-0 out-1]
          markers commit 1000/1 TV2 [out-0 out-1]
          log tx CompleteCommit 1000/1
        end tx 1000/0 commit v=5       # the answer was lost: the same again
          = NONE 1000/1
        end tx 1000/0 abort v=5        # not what was decided
          = INVALID_TXN_STATE
          event CallRefused: EndTxn 1000/0, OTHER_OUTCOME
        implicit tx 1000/0 out-0       # a late Produce of the transaction before
          = PRODUCER_FENCED
          event CallRefused: implicit add 1000/0, STALE_EPOCH
        end tx 1000/1 abort v=5        # nothing was sent: that may be aborted
          = NONE 1000/2
          log tx PrepareAbort 1000/2
          log tx CompleteAbort 1000/2
        """
    )
