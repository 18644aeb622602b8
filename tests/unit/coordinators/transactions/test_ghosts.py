"""Delayed calls of protocol 1 do nothing to the next transaction, and live clients are not hurt (KAFKA-17754)."""

import pytest

from fencepost.coordinators.transactions.events import GhostCallDropped, GhostProtectionSwitchedOff
from tests.unit.coordinators.transactions.scene import Scene


@pytest.mark.parametrize("held", ["commit", "abort"])
def test_an_end_held_up_on_an_old_connection_does_not_end_the_next_transaction(held: str) -> None:
    Scene().play(
        f"""
        seed tx Ongoing 1000/0 out-0
        add tx 1000/0 out-1 connection=3
          = NONE
          log tx Ongoing 1000/0 [out-0 out-1]
        end tx 1000/0 commit connection=4          # the first try on 3 was held up, the client reconnected
          = NONE
          log tx PrepareCommit 1000/0 [out-0 out-1]
          markers commit 1000/0 TV0 [out-0 out-1]
          log tx CompleteCommit 1000/0
        add tx 1000/0 out-2 connection=4           # the next transaction
          = NONE
          log tx Ongoing 1000/0 [out-2]
        end tx 1000/0 {held} connection=3          # the first try arrives
          = connection dropped
          event GhostCallDropped: EndTxn on 3, newest is 4
        describe tx
          = Ongoing 1000/0 [out-2]
        end tx 1000/0 commit connection=4
          = NONE
          log tx PrepareCommit 1000/0 [out-2]
          markers commit 1000/0 TV0 [out-2]
          log tx CompleteCommit 1000/0
        """
    )


def test_late_adds_do_not_begin_a_transaction_that_nobody_knows_of() -> None:
    Scene().play(
        """
        seed tx Empty 1000/0
        add tx 1000/0 out-0 connection=2
          = NONE
          log tx Ongoing 1000/0 [out-0]
        end tx 1000/0 commit connection=2
          = NONE
          log tx PrepareCommit 1000/0 [out-0]
          markers commit 1000/0 TV0 [out-0]
          log tx CompleteCommit 1000/0
        add tx 1000/0 out-1 connection=1
          = connection dropped
          event GhostCallDropped: AddPartitionsToTxn on 1, newest is 2
        offsets tx 1000/0 shop connection=1
          = connection dropped
          event GhostCallDropped: AddOffsetsToTxn on 1, newest is 2
        describe tx
          = CompleteCommit 1000/0 []
        """
    )


def test_a_client_that_reconnects_goes_on_undisturbed() -> None:
    scene = Scene()
    scene.init()
    for connection in range(1, 20):
        assert scene.add((1000, 0), ("out", 0), connection=connection).value.results_by_topic_v3_and_below
        assert scene.end((1000, 0), commit=True, connection=connection).value.error_code == 0
    assert scene.happened(GhostCallDropped) == []


def test_a_new_epoch_begins_with_a_clean_slate() -> None:
    Scene().play(
        """
        seed tx Empty 1000/0
        add tx 1000/0 out-0 connection=9
          = NONE
          log tx Ongoing 1000/0 [out-0]
        end tx 1000/0 commit connection=9
          = NONE
          log tx PrepareCommit 1000/0 [out-0]
          markers commit 1000/0 TV0 [out-0]
          log tx CompleteCommit 1000/0
        init tx 1000/0
          = 1000/1
          log tx Empty 1000/1
          event ProducerFenced: 1000/0 by 1000/1, SELF
        add tx 1000/1 out-0 connection=2           # an older connection, but a new epoch tells ghosts apart
          = NONE
          log tx Ongoing 1000/1 [out-0]
        """
    )


def test_a_restart_forgets_who_came_on_which_connection() -> None:
    Scene().play(
        """
        seed tx Ongoing 1000/0 out-0
        add tx 1000/0 out-1 connection=9
          = NONE
          log tx Ongoing 1000/0 [out-0 out-1]
        restart
        end tx 1000/0 commit connection=2
          = NONE
          log tx PrepareCommit 1000/0 [out-0 out-1]
          markers commit 1000/0 TV0 [out-0 out-1]
          log tx CompleteCommit 1000/0
        """
    )


def test_fenced_calls_get_their_error_however_they_came() -> None:
    """Never the connection of somebody whom an error code tells more."""
    Scene().play(
        """
        seed tx Ongoing 1000/5 out-0
        add tx 1000/5 out-1 connection=9
          = NONE
          log tx Ongoing 1000/5 [out-0 out-1]
        end tx 1000/4 commit connection=1
          = PRODUCER_FENCED
          event CallRefused: EndTxn 1000/4, STALE_EPOCH
        """
    )


def test_protocol_2_and_what_comes_from_brokers_is_exempt() -> None:
    Scene().play(
        """
        seed tx Ongoing 1000/0 out-0
        add tx 1000/0 out-1 connection=9
          = NONE
          log tx Ongoing 1000/0 [out-0 out-1]
        add tx 1000/0 out-2 v=4 connection=1
          = NONE
          log tx Ongoing 1000/0 [out-0 out-1 out-2]
        implicit tx 1000/0 out-3
          = NONE
          log tx Ongoing 1000/0 [out-0 out-1 out-2 out-3]
        end tx 1000/0 commit v=5 connection=1
          = NONE 1000/1
          log tx PrepareCommit 1000/1 [out-0 out-1 out-2 out-3]
          markers commit 1000/1 TV2 [out-0 out-1 out-2 out-3]
          log tx CompleteCommit 1000/1
        """
    )


def test_a_call_that_became_a_ghost_while_it_waited_is_dropped() -> None:
    Scene(markers_at_once=False).play(
        """
        seed tx Ongoing 1000/0 out-0
        end tx 1000/0 commit connection=5
          = NONE
          log tx PrepareCommit 1000/0 [out-0]
          markers commit 1000/0 TV0 [out-0]
        add tx 1000/0 out-1 connection=4
          (waits)
        marked out-0
          log tx CompleteCommit 1000/0
          event GhostCallDropped: AddPartitionsToTxn on 4, newest is 5
          -> add tx out-1: connection dropped
        """
    )


def test_the_rule_gives_way_to_a_client_whose_dropped_calls_keep_coming_back() -> None:
    Scene().play(
        """
        seed tx Ongoing 1000/0 out-0
        add tx 1000/0 out-1 connection=5
          = NONE
          log tx Ongoing 1000/0 [out-0 out-1]
        add tx 1000/0 out-2 connection=4
          = connection dropped
          event GhostCallDropped: AddPartitionsToTxn on 4, newest is 5
        add tx 1000/0 out-2 connection=6           # back on a new connection: once may be chance
          = NONE
          log tx Ongoing 1000/0 [out-0 out-1 out-2]
        add tx 1000/0 out-3 connection=5
          = connection dropped
          event GhostCallDropped: AddPartitionsToTxn on 5, newest is 6
        add tx 1000/0 out-3 connection=7           # twice in one transaction is not
          = NONE
          event GhostProtectionSwitchedOff: tx
          log tx Ongoing 1000/0 [out-0 out-1 out-2 out-3]
        end tx 1000/0 commit connection=6
          = NONE
          log tx PrepareCommit 1000/0 [out-0 out-1 out-2 out-3]
          markers commit 1000/0 TV0 [out-0 out-1 out-2 out-3]
          log tx CompleteCommit 1000/0
        """
    )


def test_one_return_in_each_of_many_transactions_is_no_reason() -> None:
    scene = Scene()
    scene.init()
    for round_number in range(5):
        newest = 10 * (round_number + 1)
        scene.add((1000, 0), ("out", 0), connection=newest)
        scene.end((1000, 0), commit=True, connection=newest - 1)
        scene.end((1000, 0), commit=True, connection=newest + 1)
    assert len(scene.happened(GhostCallDropped)) == 5
    assert scene.happened(GhostProtectionSwitchedOff) == []


def test_the_rule_can_be_switched_off() -> None:
    Scene(transaction_ghost_protection_enable="false").play(
        """
        seed tx Ongoing 1000/0 out-0
        add tx 1000/0 out-1 connection=9
          = NONE
          log tx Ongoing 1000/0 [out-0 out-1]
        end tx 1000/0 commit connection=1
          = NONE
          log tx PrepareCommit 1000/0 [out-0 out-1]
          markers commit 1000/0 TV0 [out-0 out-1]
          log tx CompleteCommit 1000/0
        """
    )
