"""EndTxn 0-5 as a request: which protocol it speaks, the writing, and the answer in each version."""

from __future__ import annotations

from collections.abc import Callable

from fencepost.coordinators.context import Caller, Now
from fencepost.coordinators.transactions.end import (
    check_identity,
    decide_end_protocol_1,
    decide_end_protocol_2,
    pair_after,
)
from fencepost.coordinators.transactions.errors import RefusalCause, Refused
from fencepost.coordinators.transactions.events import AbortCause, ProducerIdRotated
from fencepost.coordinators.transactions.ghosts import DROP_CONNECTION, DropConnection
from fencepost.coordinators.transactions.ledger import Ledger
from fencepost.coordinators.transactions.metadata import ProducerPair, TransactionMetadata, TransactionRecord
from fencepost.coordinators.transactions.sweep import tell_abort
from fencepost.coordinators.transactions.transaction_states import TransactionState
from fencepost.promise import Promise
from fencepost.wire.batch import NO_PRODUCER_ID
from fencepost.wire.errors import ErrorCode, KafkaError
from fencepost.wire.messages import EndTxnRequest, EndTxnResponse

PRODUCER_FENCED_VERSION = 2
PROTOCOL_2_VERSION = 5
_OPERATION = "EndTxn"

EndReply = Promise[EndTxnResponse | DropConnection]


class EndRequests:
    def __init__(self, ledger: Ledger, next_producer_id: Callable[[], int]) -> None:
        self._ledger = ledger
        self._next_producer_id = next_producer_id

    def end(self, request: EndTxnRequest, version: int, caller: Caller, now: Now) -> EndReply:
        given = ProducerPair(request.producer_id, request.producer_epoch)
        metadata: TransactionMetadata | None = None
        try:
            if not request.transactional_id:
                raise Refused(ErrorCode.INVALID_REQUEST, RefusalCause.INVALID_REQUEST)
            metadata = self._ledger.find(request.transactional_id)
            if metadata is None:
                raise Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING, RefusalCause.UNKNOWN_ID)
            if version >= PROTOCOL_2_VERSION:
                target = decide_end_protocol_2(metadata, given, request.committed, now, self._next_producer_id)
            else:
                check_identity(metadata.record, given)
                signature = _OPERATION, request.committed
                if self._ledger.is_ghost(metadata, _OPERATION, given, caller, now):
                    metadata.guard.dropped(signature)
                    return Promise.resolved(DROP_CONNECTION)
                target = decide_end_protocol_1(metadata, request.committed, now)
                self._ledger.admitted(metadata, _OPERATION, given, caller, signature, now)
        except KafkaError as refusal:
            self._ledger.refused(_OPERATION, request.transactional_id, metadata, given, refusal, caller, now)
            return Promise.resolved(_refusal(refusal.code, version))
        if target is None:
            return Promise.resolved(_answer(metadata.record.client_pair, version))
        return self._write(metadata, target, version, caller, now)

    def _write(
        self, metadata: TransactionMetadata, target: TransactionRecord, version: int, caller: Caller, now: Now
    ) -> EndReply:
        reply: EndReply = Promise()
        old = metadata.record

        def prepared(error: ErrorCode, now: Now) -> None:
            if error is not ErrorCode.NONE:
                reply.resolve(_refusal(error, version))
                return
            reply.resolve(_answer(pair_after(target), version))
            if target.state is TransactionState.PREPARE_ABORT and old.state is TransactionState.ONGOING:
                tell_abort(self._ledger, metadata.transactional_id, old, target, AbortCause.CLIENT, caller, now)
            if target.next_producer_id not in (NO_PRODUCER_ID, old.next_producer_id):
                rotated = ProducerIdRotated(
                    metadata.transactional_id, old.producer_id, target.next_producer_id, now.wall_ms
                )
                self._ledger.events(rotated)

        self._ledger.write_decision(metadata, target, prepared, now)
        return reply


def _answer(client: ProducerPair, version: int) -> EndTxnResponse:
    if version < PROTOCOL_2_VERSION:
        return EndTxnResponse()
    return EndTxnResponse(producer_id=client.producer_id, producer_epoch=client.producer_epoch)


def _refusal(error: ErrorCode, version: int) -> EndTxnResponse:
    if error is ErrorCode.PRODUCER_FENCED and version < PRODUCER_FENCED_VERSION:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return EndTxnResponse(error_code=error)
