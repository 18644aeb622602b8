"""InitProducerId 0-6 as a request: the checks that need no state, the writing, and the answer in each version."""

from __future__ import annotations

from collections.abc import Callable

from fencepost.config import BrokerConfig
from fencepost.coordinators.context import Caller, Now
from fencepost.coordinators.transactions.errors import RefusalCause, Refused
from fencepost.coordinators.transactions.events import (
    FencingCause,
    ProducerIdRotated,
    ProducerInitialised,
    TransactionKept,
)
from fencepost.coordinators.transactions.init import InitCall, InitDecision, InitOutcome, decide_init, new_record
from fencepost.coordinators.transactions.ledger import Ledger
from fencepost.coordinators.transactions.metadata import (
    NO_PAIR,
    TIMEOUT_NEVER_MS,
    ProducerPair,
    TransactionMetadata,
    TransactionRecord,
)
from fencepost.coordinators.transactions.sweep import fence_and_abort, tell_fencing
from fencepost.promise import Promise
from fencepost.wire.batch import NO_PRODUCER_EPOCH
from fencepost.wire.errors import ErrorCode, KafkaError
from fencepost.wire.messages import InitProducerIdRequest, InitProducerIdResponse

PRODUCER_FENCED_VERSION = 4
"""Older clients know only INVALID_PRODUCER_EPOCH."""
_OPERATION = "InitProducerId"


class InitRequests:
    def __init__(
        self,
        config: BrokerConfig,
        ledger: Ledger,
        next_producer_id: Callable[[], int],
        transaction_version: Callable[[], int],
    ) -> None:
        self._config = config
        self._ledger = ledger
        self._next_producer_id = next_producer_id
        self._transaction_version = transaction_version

    def init(
        self, request: InitProducerIdRequest, version: int, caller: Caller, now: Now
    ) -> Promise[InitProducerIdResponse]:
        reply: Promise[InitProducerIdResponse] = Promise()
        given = ProducerPair(request.producer_id, request.producer_epoch)
        metadata: TransactionMetadata | None = None
        try:
            if (request.producer_id == NO_PAIR.producer_id) != (request.producer_epoch == NO_PAIR.producer_epoch):
                raise Refused(ErrorCode.INVALID_REQUEST, RefusalCause.INVALID_REQUEST)
            if request.transactional_id is None:
                return Promise.resolved(_answer(ProducerPair(self._next_producer_id(), 0)))
            call = self._check(request)
            metadata = self._find_or_create(request.transactional_id, call, now)
            decision = decide_init(metadata, call, now, self._transaction_version(), self._next_producer_id)
        except KafkaError as refusal:
            transactional_id = request.transactional_id or ""
            self._ledger.refused(_OPERATION, transactional_id, metadata, given, refusal, caller, now)
            self._forget_if_new(metadata)
            return Promise.resolved(_refusal(refusal.code, version))
        self._carry_out(metadata, decision, call, version, caller, now, reply)
        return reply

    def _check(self, request: InitProducerIdRequest) -> InitCall:
        if not request.transactional_id:
            raise Refused(ErrorCode.INVALID_REQUEST, RefusalCause.INVALID_REQUEST)
        is_allowed = self._config.transaction_two_phase_commit_enable
        if request.enable2_pc and not is_allowed:
            raise Refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, RefusalCause.NOT_ENABLED)
        if request.keep_prepared_txn and not is_allowed:
            raise Refused(ErrorCode.UNSUPPORTED_VERSION, RefusalCause.NOT_ENABLED)
        timeout_ms = TIMEOUT_NEVER_MS if request.enable2_pc else request.transaction_timeout_ms
        if not request.enable2_pc and not 0 < timeout_ms <= self._config.transaction_max_timeout_ms:
            raise Refused(ErrorCode.INVALID_TRANSACTION_TIMEOUT, RefusalCause.INVALID_TIMEOUT)
        given = ProducerPair(request.producer_id, request.producer_epoch)
        expected = None if given == NO_PAIR else given
        return InitCall(expected, timeout_ms, request.enable2_pc, request.keep_prepared_txn)

    def _find_or_create(self, transactional_id: str, call: InitCall, now: Now) -> TransactionMetadata:
        metadata = self._ledger.find(transactional_id)
        if metadata is not None:
            return metadata
        return self._ledger.create(transactional_id, new_record(self._next_producer_id(), call.timeout_ms, now))

    def _forget_if_new(self, metadata: TransactionMetadata | None) -> None:
        """An id none of whose epochs was ever written does not exist."""
        is_new = metadata is not None and metadata.record.producer_epoch == NO_PRODUCER_EPOCH
        if metadata is not None and is_new and metadata.pending_state is None:
            self._ledger.forget(metadata)

    def _carry_out(
        self,
        metadata: TransactionMetadata,
        decision: InitDecision,
        call: InitCall,
        version: int,
        caller: Caller,
        now: Now,
        reply: Promise[InitProducerIdResponse],
    ) -> None:
        old, new = metadata.record, decision.record
        if decision.outcome is InitOutcome.KEPT_BEFORE:
            reply.resolve(_answer(new.client_pair, ProducerPair(new.producer_id, new.producer_epoch)))
        elif decision.outcome is InitOutcome.FENCE:

            def aborted(error: ErrorCode, now: Now) -> None:
                # The caller's own epoch comes with its next try, when this transaction is out of the way.
                again = ErrorCode.CONCURRENT_TRANSACTIONS
                reply.resolve(_refusal(again if error is ErrorCode.NONE else error, version))

            fence_and_abort(self._ledger, metadata, new, _cause(call), caller, aborted, now)
        else:

            def written(error: ErrorCode, now: Now) -> None:
                if error is not ErrorCode.NONE:
                    reply.resolve(_refusal(error, version))
                    self._forget_if_new(metadata)
                    return
                is_kept = decision.outcome is InitOutcome.KEPT
                self._tell(metadata, old, new, FencingCause.KEPT if is_kept else _cause(call), caller, now)
                ongoing = ProducerPair(new.producer_id, new.producer_epoch) if is_kept else NO_PAIR
                reply.resolve(_answer(new.client_pair, ongoing))

            self._ledger.write(metadata, new, written, now)

    def _tell(
        self,
        metadata: TransactionMetadata,
        old: TransactionRecord,
        new: TransactionRecord,
        cause: FencingCause,
        caller: Caller,
        now: Now,
    ) -> None:
        transactional_id = metadata.transactional_id
        if old.producer_epoch == NO_PRODUCER_EPOCH:
            self._ledger.events(
                ProducerInitialised(
                    transactional_id, *new.client_pair, caller.client_id, caller.client_host, now.wall_ms
                )
            )
            return
        if old.client_pair == new.client_pair:
            return
        metadata.fenced_by = cause
        tell_fencing(self._ledger, transactional_id, old, new, cause, caller, now)
        if old.client_pair.producer_id != new.client_pair.producer_id:
            rotated = old.client_pair.producer_id, new.client_pair.producer_id
            self._ledger.events(ProducerIdRotated(transactional_id, *rotated, now.wall_ms))
        if cause is FencingCause.KEPT:
            self._ledger.events(
                TransactionKept(
                    transactional_id,
                    new.producer_id,
                    new.producer_epoch,
                    *new.client_pair,
                    caller.client_id,
                    caller.client_host,
                    now.wall_ms,
                )
            )


def _cause(call: InitCall) -> FencingCause:
    return FencingCause.TAKEOVER if call.expected is None else FencingCause.SELF


def _answer(client: ProducerPair, ongoing: ProducerPair = NO_PAIR) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        producer_id=client.producer_id,
        producer_epoch=client.producer_epoch,
        ongoing_txn_producer_id=ongoing.producer_id,
        ongoing_txn_producer_epoch=ongoing.producer_epoch,
    )


def _refusal(error: ErrorCode, version: int) -> InitProducerIdResponse:
    if error is ErrorCode.PRODUCER_FENCED and version < PRODUCER_FENCED_VERSION:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    answer = _answer(NO_PAIR)
    answer.error_code = error
    return answer
