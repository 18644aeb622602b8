"""AddPartitionsToTxn, AddOffsetsToTxn and the partition leaders' questions: what becomes part of a transaction."""

import pytest

from fencepost.broker.slices import finished
from fencepost.coordinators.context import Caller
from fencepost.coordinators.transactions.add_requests import ENTRIES_PER_STEP
from fencepost.wire.codec import decode, encode
from fencepost.wire.messages import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from tests.unit.coordinators.transactions.scene import Scene, error_code


@pytest.mark.parametrize(
    ("version", "fenced"),
    [
        (0, "INVALID_PRODUCER_EPOCH"),
        (1, "INVALID_PRODUCER_EPOCH"),
        (2, "PRODUCER_FENCED"),
        (3, "PRODUCER_FENCED"),
        (5, "PRODUCER_FENCED"),
    ],
)
def test_identity_is_checked_and_told_in_the_terms_of_the_version(version: int, fenced: str) -> None:
    Scene().play(
        f"""
        add nobody 1000/0 out-0 v={version}
          = INVALID_PRODUCER_ID_MAPPING
          event CallRefused: AddPartitionsToTxn 1000/0, UNKNOWN_ID
        add '' 1000/0 out-0 v={version}
          = INVALID_REQUEST
          event CallRefused: AddPartitionsToTxn 1000/0, INVALID_REQUEST
        seed tx Empty 1000/5
        add tx 999/5 out-0 v={version}
          = INVALID_PRODUCER_ID_MAPPING
          event CallRefused: AddPartitionsToTxn 999/5, OTHER_PRODUCER_ID
        add tx 1000/4 out-0 v={version}
          = {fenced}
          event CallRefused: AddPartitionsToTxn 1000/4, STALE_EPOCH
        add tx 1000/6 out-0 v={version}
          = {fenced}
          event CallRefused: AddPartitionsToTxn 1000/6, FUTURE_EPOCH
        add tx 1000/5 out-0 v={version}
          = NONE
          log tx Ongoing 1000/5 [out-0]
        """
    )


@pytest.mark.parametrize(("version", "fenced"), [(1, "INVALID_PRODUCER_EPOCH"), (2, "PRODUCER_FENCED")])
def test_offsets_are_added_as_the_groups_partition(version: int, fenced: str) -> None:
    Scene().play(
        f"""
        seed tx CompleteAbort 1000/5
        offsets tx 1000/4 shop v={version}
          = {fenced}
          event CallRefused: AddOffsetsToTxn 1000/4, STALE_EPOCH
        offsets tx 1000/5 shop v={version}
          = NONE
          log tx Ongoing 1000/5 [__consumer_offsets-4]
        offsets tx 1000/5 shop v={version}
          = NONE
        offsets tx 1000/5 supermarket v={version}
          = NONE
          log tx Ongoing 1000/5 [__consumer_offsets-4 __consumer_offsets-11]
        """
    )


def test_one_bad_partition_spoils_the_call() -> None:
    Scene().play(
        """
        seed tx Empty 1000/0
        add tx 1000/0 out-0 nowhere-0 out-4
          = nowhere-0:UNKNOWN_TOPIC_OR_PARTITION out-0:OPERATION_NOT_ATTEMPTED out-4:UNKNOWN_TOPIC_OR_PARTITION
        add tx 1000/0 out-0 __consumer_offsets-3
          = __consumer_offsets-3:TOPIC_AUTHORIZATION_FAILED out-0:OPERATION_NOT_ATTEMPTED
        describe tx
          = Empty 1000/0 []
        add tx 1000/0 out-0 __consumer_offsets-3 v=4   # a broker may
          = NONE
          log tx Ongoing 1000/0 [__consumer_offsets-3 out-0]
        """
    )


def test_the_clock_of_a_transaction_starts_with_its_first_partition() -> None:
    scene = Scene()
    scene.play(
        """
        init tx
          = 1000/0
          log tx Empty 1000/0
        advance 5_000
        add tx 1000/0 out-0
          = NONE
          log tx Ongoing 1000/0 [out-0]
        """
    )
    start = scene.metadata().record.start_timestamp_ms
    assert start == scene.wall_ms()
    scene.advance(5_000)
    scene.add((1000, 0), ("out", 1))
    record = scene.metadata().record
    assert (record.start_timestamp_ms, record.last_update_timestamp_ms) == (start, start + 5_000)


def test_a_partition_leader_verifies_what_old_clients_have_added() -> None:
    Scene().play(
        """
        verify nobody 1000/0 out-0
          = INVALID_PRODUCER_ID_MAPPING
          event CallRefused: verify 1000/0, UNKNOWN_ID
        seed tx Ongoing 1000/5 out-0
        verify tx 1000/5 out-0
          = NONE
        verify tx 1000/5 out-0 out-1
          = out-0:NONE out-1:TRANSACTION_ABORTABLE
        verify tx 1000/4 out-0
          = PRODUCER_FENCED
          event CallRefused: verify 1000/4, STALE_EPOCH
        verify tx 999/5 out-0
          = INVALID_PRODUCER_ID_MAPPING
          event CallRefused: verify 999/5, OTHER_PRODUCER_ID
        slow disk
        end tx 1000/5 commit
          log tx PrepareCommit 1000/5 [out-0]
          (waits)
        verify tx 1000/5 out-0          # a change under way does not matter
          = NONE
        sync
          -> end tx commit: NONE
          markers commit 1000/5 TV0 [out-0]
          log tx CompleteCommit 1000/5
        verify tx 1000/5 out-0
          = CONCURRENT_TRANSACTIONS
        fast disk
        verify tx 1000/5 out-0          # a late Produce after the end
          = TRANSACTION_ABORTABLE
        """
    )


def test_an_add_that_meets_the_completion_of_the_last_transaction_waits_for_it() -> None:
    Scene(markers_at_once=False).play(
        """
        seed tx Ongoing 1000/0 out-0
        end tx 1000/0 commit
          = NONE
          log tx PrepareCommit 1000/0 [out-0]
          markers commit 1000/0 TV0 [out-0]
        add tx 1000/0 out-1
          (waits)
        advance 99
        marked out-0
          log tx CompleteCommit 1000/0
          log tx Ongoing 1000/0 [out-1]
          -> add tx out-1: NONE
        """
    )


def test_an_add_waits_so_long_and_no_longer() -> None:
    Scene(markers_at_once=False).play(
        """
        seed tx Ongoing 1000/0 out-0
        end tx 1000/0 commit v=5
          = NONE 1000/1
          log tx PrepareCommit 1000/1 [out-0]
          markers commit 1000/1 TV2 [out-0]
        implicit tx 1000/1 out-1
          (waits)
        advance 60
        offsets tx 1000/1 shop
          (waits)
        advance 40
          -> implicit tx out-1: CONCURRENT_TRANSACTIONS
        advance 59
        advance 1
          -> offsets tx shop: CONCURRENT_TRANSACTIONS
        marked out-0
          log tx CompleteCommit 1000/1
        """
    )


def test_adds_that_waited_together_are_written_together() -> None:
    Scene().play(
        """
        seed tx Empty 1000/0
        slow disk
        implicit tx 1000/0 out-0
          log tx Ongoing 1000/0 [out-0]
          (waits)
        implicit tx 1000/0 out-1
          (waits)
        implicit tx 1000/0 out-0       # part of what is being written
          (waits)
        implicit tx 1000/0 out-2
          (waits)
        implicit tx 999/0 out-3
          (waits)
        sync
          -> implicit tx out-0: NONE
          log tx Ongoing 1000/0 [out-0 out-1 out-2]
          -> implicit tx out-0: NONE
        sync
          -> implicit tx out-1: NONE
          -> implicit tx out-2: NONE
          event CallRefused: implicit add 999/0, OTHER_PRODUCER_ID
          -> implicit tx out-3: INVALID_PRODUCER_ID_MAPPING
        """
    )


def test_a_lost_add_takes_nobody_with_it_who_still_waits() -> None:
    Scene().play(
        """
        seed tx Empty 1000/0
        slow disk
        add tx 1000/0 out-0
          log tx Ongoing 1000/0 [out-0]
          (waits)
        add tx 1000/0 out-1
          (waits)
        lose NOT_ENOUGH_REPLICAS
          -> add tx out-0: COORDINATOR_NOT_AVAILABLE
          log tx Ongoing 1000/0 [out-1]
        fast disk
          -> add tx out-1: NONE
        """
    )


def test_an_add_that_waits_for_a_takeover_learns_that_it_was_fenced() -> None:
    Scene(markers_at_once=False).play(
        """
        seed tx Ongoing 1000/0 out-0
        init tx
          = CONCURRENT_TRANSACTIONS
          log tx PrepareAbort 1000/1 [out-0]
          event TransactionAborted: 1000/0, TAKEOVER
          event ProducerFenced: 1000/0 by 1000/1, TAKEOVER
          markers abort 1000/1 TV2 [out-0]
        add tx 1000/0 out-1
          (waits)
        marked out-0
          log tx CompleteAbort 1000/1
          event CallRefused: AddPartitionsToTxn 1000/0, STALE_EPOCH, fenced by TAKEOVER
          -> add tx out-1: PRODUCER_FENCED
        """
    )


def test_brokers_ask_for_many_transactions_in_one_request() -> None:
    scene = Scene(markers_at_once=False)
    scene.play(
        """
        seed first Ongoing 1000/0 out-0
        seed second Empty 1001/0
        seed third Ongoing 1002/0 out-0
        end third 1002/0 commit
          = NONE
          log third PrepareCommit 1002/0 [out-0]
          markers commit 1002/0 TV0 [out-0]
        """
    )
    topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="out", partitions=[0, 1])

    def asked(
        name: str, producer_id: int, verify_only: bool
    ) -> AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction:
        return AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
            transactional_id=name, producer_id=producer_id, producer_epoch=0, verify_only=verify_only, topics=[topic]
        )

    request = AddPartitionsToTxnRequest(
        transactions=[
            asked("third", 1002, False),
            asked("first", 1000, True),
            asked("second", 1001, False),
            asked("nobody", 1003, False),
        ]
    )
    reply = scene.call("add_partitions_to_txn", request, 5)
    assert not reply.done
    scene.play(
        """
        marked out-0
          log third CompleteCommit 1002/0
          log third Ongoing 1002/0 [out-0 out-1]
        """
    )
    response = decode(AddPartitionsToTxnResponse, 5, encode(reply.value, 5))
    assert {
        result.transactional_id: [
            error_code(partition.partition_error_code).name
            for topic_result in result.topic_results
            for partition in topic_result.results_by_partition
        ]
        for result in response.results_by_transaction
    } == {
        "third": ["NONE", "NONE"],
        "first": ["NONE", "TRANSACTION_ABORTABLE"],
        "second": ["NONE", "NONE"],
        "nobody": ["INVALID_PRODUCER_ID_MAPPING"] * 2,
    }
    assert scene.metadata("second").record.client_transaction_version == 2
    assert scene.call("add_partitions_to_txn", AddPartitionsToTxnRequest(), 5).value.results_by_transaction == []


@pytest.mark.parametrize("is_known", [True, False], ids=["known", "unknown"])
def test_a_topic_of_many_partitions_is_answered_in_pieces_as_at_once(is_known: bool) -> None:
    scene = Scene()
    scene.play("seed tx Empty 1000/5")
    index = 0 if is_known else 99
    topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
        transactional_id="tx",
        producer_id=1000,
        producer_epoch=5,
        verify_only=False,
        topics=[
            topic(name="out", partitions=[index] * (3 * ENTRIES_PER_STEP + 1)),
            topic(name="out", partitions=[0]),
            topic(name="out", partitions=[]),
        ],
    )
    request = AddPartitionsToTxnRequest(transactions=[transaction])
    caller = Caller("app", "127.0.0.1", 1)
    coordinator = scene.coordinator
    steps = coordinator.add_partitions_to_txn_in_steps(request, 5, caller, scene.now)
    # Not even the first look at a few partitions is all of the work.
    assert sum(1 for _ in coordinator.add_partitions_to_txn_in_steps(request, 5, caller, scene.now)) > 6
    at_once = coordinator.add_partitions_to_txn(request, 5, caller, scene.now).value
    assert encode(finished(steps), 5) == encode(at_once, 5)
