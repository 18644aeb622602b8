"""InitProducerId: every branch of who gets which producer id and epoch (KIP-98, KIP-360, KIP-588)."""

import pytest

from fencepost.wire.errors import ErrorCode, KafkaError
from tests.unit.coordinators.transactions.scene import Scene


def test_without_a_transactional_id_everybody_gets_a_new_producer_id_and_nothing_is_stored() -> None:
    scene = Scene()
    answers = [scene.init(None).value for _ in range(2)]
    assert [(answer.producer_id, answer.producer_epoch) for answer in answers] == [(1000, 0), (1001, 0)]
    assert scene.written == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"held": (1000, -1)}, ErrorCode.INVALID_REQUEST),
        ({"held": (-1, 3)}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": None, "held": (-1, 3)}, ErrorCode.INVALID_REQUEST),
        ({"timeout_ms": 0}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"timeout_ms": -1}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"timeout_ms": 900_001}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"two_phase": True, "version": 6}, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ({"keep": True, "version": 6}, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_what_is_refused_before_the_id_is_even_looked_up(changes: dict, expected: ErrorCode) -> None:
    scene = Scene()
    answer = scene.init(**changes).value
    assert answer.error_code == expected
    assert (answer.producer_id, answer.producer_epoch) == (-1, -1)
    assert scene.written == []


def test_the_longest_time_out_is_allowed() -> None:
    scene = Scene()
    assert scene.init(timeout_ms=900_000).value.error_code == ErrorCode.NONE
    assert scene.metadata().record.timeout_ms == 900_000


def test_a_new_owner_gets_the_next_epoch_and_the_old_one_is_fenced() -> None:
    Scene().play(
        """
        init tx
          = 1000/0
          log tx Empty 1000/0
        init tx
          = 1000/1
          log tx Empty 1000/1
          event ProducerFenced: 1000/0 by 1000/1, TAKEOVER
        add tx 1000/0 out-0
          = PRODUCER_FENCED
          event CallRefused: AddPartitionsToTxn 1000/0, STALE_EPOCH, fenced by TAKEOVER
        end tx 1000/0 commit
          = PRODUCER_FENCED
          event CallRefused: EndTxn 1000/0, STALE_EPOCH, fenced by TAKEOVER
        """
    )


def test_the_takeover_of_an_open_transaction_ends_two_epochs_up() -> None:
    Scene(markers_at_once=False).play(
        """
        init tx
          = 1000/0
          log tx Empty 1000/0
        add tx 1000/0 out-0
          = NONE
          log tx Ongoing 1000/0 [out-0]
        init tx
          = CONCURRENT_TRANSACTIONS
          log tx PrepareAbort 1000/1 [out-0]
          event TransactionAborted: 1000/0, TAKEOVER
          event ProducerFenced: 1000/0 by 1000/1, TAKEOVER
          markers abort 1000/1 TV2 [out-0]
        init tx
          = CONCURRENT_TRANSACTIONS
        marked out-0
          log tx CompleteAbort 1000/1
        init tx
          = 1000/2
          log tx Empty 1000/2
          event ProducerFenced: 1000/1 by 1000/2, TAKEOVER
        """
    )


def test_with_an_old_finalized_feature_level_the_takeover_speaks_protocol_1() -> None:
    scene = Scene(transaction_version=0)
    scene.play(
        """
        init tx
          = 1000/0
          log tx Empty 1000/0
        add tx 1000/0 out-0
          = NONE
          log tx Ongoing 1000/0 [out-0]
        init tx
          = CONCURRENT_TRANSACTIONS
          log tx PrepareAbort 1000/1 [out-0]
          event TransactionAborted: 1000/0, TAKEOVER
          event ProducerFenced: 1000/0 by 1000/1, TAKEOVER
          markers abort 1000/1 TV0 [out-0]
          log tx CompleteAbort 1000/1
        """
    )
    assert scene.metadata().record.last_producer_epoch == -1


def test_a_producer_bumps_its_own_epoch_after_an_error_and_may_ask_again() -> None:
    Scene().play(
        """
        init tx
          = 1000/0
          log tx Empty 1000/0
        init tx 1000/0
          = 1000/1
          log tx Empty 1000/1
          event ProducerFenced: 1000/0 by 1000/1, SELF
        init tx 1000/0                 # the answer was lost
          = 1000/1
          log tx Empty 1000/1
        init tx 1000/1
          = 1000/2
          log tx Empty 1000/2
          event ProducerFenced: 1000/1 by 1000/2, SELF
        init tx 1000/0                 # two behind: somebody else
          = PRODUCER_FENCED
          event CallRefused: InitProducerId 1000/0, STALE_EPOCH, fenced by SELF
        init tx 77/2
          = PRODUCER_FENCED
          event CallRefused: InitProducerId 77/2, OTHER_PRODUCER_ID, fenced by SELF
        """
    )


def test_a_takeover_in_between_makes_the_retry_of_the_old_owner_a_zombie() -> None:
    Scene().play(
        """
        init tx
          = 1000/0
          log tx Empty 1000/0
        init tx
          = 1000/1
          log tx Empty 1000/1
          event ProducerFenced: 1000/0 by 1000/1, TAKEOVER
        init tx 1000/0
          = PRODUCER_FENCED
          event CallRefused: InitProducerId 1000/0, STALE_EPOCH, fenced by TAKEOVER
        init tx 1000/0 v=3
          = INVALID_PRODUCER_EPOCH
          event CallRefused: InitProducerId 1000/0, STALE_EPOCH, fenced by TAKEOVER
        """
    )


def test_the_retry_of_a_bump_does_not_survive_a_restart() -> None:
    Scene().play(
        """
        init tx
          = 1000/0
          log tx Empty 1000/0
        init tx 1000/0
          = 1000/1
          log tx Empty 1000/1
          event ProducerFenced: 1000/0 by 1000/1, SELF
        restart
        init tx 1000/0
          = PRODUCER_FENCED
          event CallRefused: InitProducerId 1000/0, STALE_EPOCH
        """
    )


def test_a_producer_of_an_id_that_expired_gets_a_fresh_start() -> None:
    Scene().play(
        """
        init tx 555/7
          = 1000/0
          log tx Empty 1000/0
        """
    )


def test_the_last_epoch_is_followed_by_a_new_producer_id() -> None:
    Scene().play(
        """
        seed tx Empty 1000/32765
        init tx
          = 1000/32766
          log tx Empty 1000/32766
          event ProducerFenced: 1000/32765 by 1000/32766, TAKEOVER
        init tx
          = 1001/0
          log tx Empty 1001/0
          event ProducerFenced: 1000/32766 by 1001/0, TAKEOVER
          event ProducerIdRotated: 1000 to 1001
        """
    )


def test_a_rotation_that_its_producer_asked_for_can_be_retried() -> None:
    Scene().play(
        """
        seed tx CompleteCommit 1000/32766
        init tx 1000/32766
          = 1001/0
          log tx Empty 1001/0
          event ProducerFenced: 1000/32766 by 1001/0, SELF
          event ProducerIdRotated: 1000 to 1001
        init tx 1000/32766
          = 1001/0
          log tx Empty 1001/0
        init tx 1000/32765
          = PRODUCER_FENCED
          event CallRefused: InitProducerId 1000/32765, OTHER_PRODUCER_ID, fenced by SELF
        """
    )


def test_the_retry_of_the_bump_to_the_last_epoch_is_answered_and_not_rotated() -> None:
    Scene().play(
        """
        seed tx Empty 1000/32765
        init tx 1000/32765
          = 1000/32766
          log tx Empty 1000/32766
          event ProducerFenced: 1000/32765 by 1000/32766, SELF
        init tx 1000/32765
          = 1000/32766
          log tx Empty 1000/32766
        """
    )


def test_a_takeover_at_the_last_epoch_uses_the_reserved_one_and_never_hands_it_out() -> None:
    Scene().play(
        """
        seed tx Ongoing 1000/32766 out-0
        init tx
          = CONCURRENT_TRANSACTIONS
          log tx PrepareAbort 1000/32767 [out-0]
          event TransactionAborted: 1000/32766, TAKEOVER
          event ProducerFenced: 1000/32766 by 1000/32767, TAKEOVER
          markers abort 1000/32767 TV2 [out-0]
          log tx CompleteAbort 1000/32767
        init tx 1000/32766             # the old owner, with the epoch before
          = PRODUCER_FENCED
          event CallRefused: InitProducerId 1000/32766, STALE_EPOCH, fenced by TAKEOVER
        init tx
          = 1001/0
          log tx Empty 1001/0
          event ProducerFenced: 1000/32767 by 1001/0, TAKEOVER
          event ProducerIdRotated: 1000 to 1001
        """
    )


def test_while_one_call_is_being_written_others_are_told_to_come_again() -> None:
    Scene().play(
        """
        slow disk
        init tx
          log tx Empty 1000/0
          (waits)
        init tx
          = CONCURRENT_TRANSACTIONS
        end tx 1000/0 commit v=5
          = CONCURRENT_TRANSACTIONS
        sync
          -> init tx: 1000/0
        """
    )


def test_a_first_call_that_cannot_be_written_leaves_no_id_behind() -> None:
    scene = Scene()
    scene.play(
        """
        fail NOT_ENOUGH_REPLICAS
        init tx
          = COORDINATOR_NOT_AVAILABLE
          write fails with NOT_ENOUGH_REPLICAS
        describe tx
          = TRANSACTIONAL_ID_NOT_FOUND
        """
    )
    assert scene.list_transactions().transaction_states == []


def test_a_takeover_that_cannot_be_written_does_not_use_up_an_epoch() -> None:
    Scene().play(
        """
        seed tx Ongoing 1000/4 out-0
        fail KAFKA_STORAGE_ERROR
        init tx
          = NOT_COORDINATOR
          write fails with KAFKA_STORAGE_ERROR
        describe tx
          = Ongoing 1000/4 [out-0]
        init tx
          = CONCURRENT_TRANSACTIONS
          log tx PrepareAbort 1000/5 [out-0]
          event TransactionAborted: 1000/4, TAKEOVER
          event ProducerFenced: 1000/4 by 1000/5, TAKEOVER
          markers abort 1000/5 TV2 [out-0]
          log tx CompleteAbort 1000/5
        """
    )


@pytest.mark.parametrize(
    ("failure", "answer"),
    [
        ("UNKNOWN_TOPIC_OR_PARTITION", "COORDINATOR_NOT_AVAILABLE"),
        ("NOT_ENOUGH_REPLICAS_AFTER_APPEND", "COORDINATOR_NOT_AVAILABLE"),
        ("REQUEST_TIMED_OUT", "COORDINATOR_NOT_AVAILABLE"),
        ("NOT_LEADER_OR_FOLLOWER", "NOT_COORDINATOR"),
        ("MESSAGE_TOO_LARGE", "UNKNOWN_SERVER_ERROR"),
        ("RECORD_LIST_TOO_LARGE", "UNKNOWN_SERVER_ERROR"),
    ],
)
def test_a_failed_write_is_told_in_the_coordinators_terms(failure: str, answer: str) -> None:
    scene = Scene()
    scene.failures.append(ErrorCode[failure])
    assert scene.init().value.error_code == ErrorCode[answer]
    assert scene.init().value.error_code == ErrorCode.NONE


def test_producer_ids_that_have_run_out_are_the_brokers_problem() -> None:
    def none_left() -> int:
        raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    scene = Scene()
    scene._next_producer_id = none_left  # type: ignore[method-assign]
    scene.restart()
    assert scene.init().value.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert scene.init(None).value.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
