"""Why a kafka-python producer can wait for ever: it drops a call when its coordinator's connection fails too early.

No broker is needed to show it. If this test fails, the client has been mended: take `loses_calls` out of run.py.
"""

import warnings
from typing import Any

with warnings.catch_warnings(action="ignore"):
    from kafka.errors import KafkaConnectionError
    from kafka.producer.sender import Sender
    from kafka.producer.transaction_manager import ProducerIdAndEpoch, TransactionManager, TransactionState
    from kafka.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

COORDINATOR = "coordinator-0"


class FailingClient:
    """A network whose connection to the coordinator breaks while it is made ready."""

    cluster: Any = None

    def await_ready(self, node: str, timeout_ms: int) -> bool:
        raise KafkaConnectionError(f"{node}: reset by peer")


class EmptyAccumulator:
    has_incomplete = False


def test_a_call_is_forgotten_when_the_connection_fails_while_it_is_made_ready() -> None:
    transactions = TransactionManager(transactional_id="t", transaction_timeout_ms=1000, api_version=(2, 8))
    transactions._transaction_coordinator = COORDINATOR
    transactions._producer_id_and_epoch = ProducerIdAndEpoch(1, 0)
    transactions._current_state = TransactionState.IN_TRANSACTION
    sender = Sender(
        FailingClient(), None, EmptyAccumulator(), transaction_manager=transactions, client_id="t", metrics=None
    )
    offsets = {TopicPartition("input", 0): OffsetAndMetadata(1, "", -1)}
    result = transactions.send_offsets_to_transaction(offsets, ConsumerGroupMetadata("g"))

    with warnings.catch_warnings(action="ignore"):
        assert sender._maybe_send_pending_request()

    waiting = [type(handler).__name__ for _, _, handler in transactions._pending_requests]
    assert waiting == ["FindCoordinatorHandler"], "the call itself is in no queue"
    assert not result.is_done
