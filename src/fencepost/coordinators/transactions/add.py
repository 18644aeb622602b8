"""Which partitions a transaction writes to: AddPartitionsToTxn 0-5, AddOffsetsToTxn 0-4, partition leaders' questions.

An add that finds the id busy (the transaction before it is still being completed, or another add is being written)
waits for that, up to `add.partitions.to.txn.retry.backoff.max.ms`, before it is told CONCURRENT_TRANSACTIONS. Adds that
waited together are written together.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable

from fencepost.coordinators.context import Caller, Now
from fencepost.coordinators.transactions.end import check_identity
from fencepost.coordinators.transactions.errors import RefusalCause, Refused
from fencepost.coordinators.transactions.ghosts import DROP_CONNECTION, DropConnection
from fencepost.coordinators.transactions.ledger import Ledger
from fencepost.coordinators.transactions.metadata import (
    ProducerPair,
    TopicPartition,
    TransactionMetadata,
    TransactionRecord,
    transaction_record,
)
from fencepost.coordinators.transactions.transaction_states import AT_REST, ONGOING, PREPARED
from fencepost.promise import Promise
from fencepost.wire.errors import ErrorCode, KafkaError

_WAIT_TIMER = "add"


@dataclasses.dataclass(slots=True, eq=False)
class AddCall:
    operation: str
    transactional_id: str
    given: ProducerPair
    partitions: frozenset[TopicPartition]
    transaction_version: int
    caller: Caller
    deadline_ms: int
    is_guarded: bool = False
    """Sent by a client of protocol 1: may be a ghost."""
    reply: Promise[ErrorCode | DropConnection] = dataclasses.field(default_factory=Promise)


def decide_add(
    metadata: TransactionMetadata, partitions: frozenset[TopicPartition], transaction_version: int, now: Now
) -> TransactionRecord | None:
    """The record with the partitions added; None if they are all there. The caller's identity has been checked."""
    record = metadata.record
    if record.state in PREPARED:
        raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS, RefusalCause.COMPLETING)
    if record.is_kept:
        raise Refused(ErrorCode.INVALID_TXN_STATE, RefusalCause.KEPT_PREPARED)
    if record.state is ONGOING and partitions <= record.partitions:
        return None
    return transaction_record(
        producer_id=record.producer_id,
        producer_epoch=record.producer_epoch,
        timeout_ms=record.timeout_ms,
        state=ONGOING,
        partitions=record.partitions | partitions if record.partitions else partitions,
        start_timestamp_ms=now.wall_ms if record.state in AT_REST else record.start_timestamp_ms,
        last_update_timestamp_ms=now.wall_ms,
        previous_producer_id=record.producer_id,
        next_producer_id=record.next_producer_id,
        next_producer_epoch=record.next_producer_epoch,
        client_transaction_version=transaction_version,
        last_producer_epoch=record.last_producer_epoch,
    )


def decide_verify(
    metadata: TransactionMetadata | None, given: ProducerPair, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Which partitions are part of the open transaction. A change under way does not matter: appends check again."""
    if metadata is None:
        raise Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING, RefusalCause.UNKNOWN_ID)
    record = metadata.record
    check_identity(record, given)
    if record.state in PREPARED:
        raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS, RefusalCause.COMPLETING)
    if record.is_kept:
        raise Refused(ErrorCode.INVALID_TXN_STATE, RefusalCause.KEPT_PREPARED)
    verified = dict.fromkeys(partitions, ErrorCode.NONE)
    if not record.partitions.issuperset(verified):
        for partition in verified.keys() - record.partitions:
            verified[partition] = ErrorCode.TRANSACTION_ABORTABLE
    return verified


class Adds:
    def __init__(self, ledger: Ledger, now: Callable[[], Now]) -> None:
        self._ledger = ledger
        self._now = now
        ledger.when_idle = self._wake

    def add(self, call: AddCall, now: Now) -> Promise[ErrorCode | DropConnection]:
        metadata = None
        try:
            if not call.transactional_id:
                raise Refused(ErrorCode.INVALID_REQUEST, RefusalCause.INVALID_REQUEST)
            metadata = self._ledger.find(call.transactional_id)
            if metadata is None:
                raise Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING, RefusalCause.UNKNOWN_ID)
        except KafkaError as refusal:
            self._tell_refusal(call, metadata, refusal, now)
            call.reply.resolve(refusal.code)
            return call.reply
        if metadata.is_busy and call.deadline_ms > now.monotonic_ms:
            self._wait(metadata, call)
            return call.reply
        decided = self._decide_one(metadata, call, now)
        if isinstance(decided, TransactionRecord):
            self._write(metadata, decided, (call,), now)
        else:
            call.reply.resolve(decided)
        return call.reply

    def verify(
        self,
        transactional_id: str,
        given: ProducerPair,
        partitions: Collection[TopicPartition],
        caller: Caller,
    ) -> dict[TopicPartition, ErrorCode]:
        metadata = None
        try:
            if not transactional_id:
                raise Refused(ErrorCode.INVALID_REQUEST, RefusalCause.INVALID_REQUEST)
            metadata = self._ledger.find(transactional_id)
            return decide_verify(metadata, given, partitions)
        except KafkaError as refusal:
            self._ledger.refused("verify", transactional_id, metadata, given, refusal, caller, self._now())
            return dict.fromkeys(partitions, refusal.code)

    def _decide(self, metadata: TransactionMetadata, calls: list[AddCall], now: Now) -> None:
        """Decide calls with the same identity at one go.

        Whoever gets an answer may call again at once, so nobody gets one before the write has taken its slot.
        """
        admitted: list[AddCall] = []
        answers: list[tuple[AddCall, ErrorCode | DropConnection]] = []
        target: TransactionRecord | None = None
        for call in calls:
            decided = self._decide_one(metadata, call, now)
            if not isinstance(decided, TransactionRecord):
                answers.append((call, decided))
                continue
            admitted.append(call)
            if target is None:
                target = decided
            else:
                target = target._replace(partitions=target.partitions | decided.partitions)
        if target is not None:
            self._write(metadata, target, admitted, now)
        for call, answer in answers:
            call.reply.resolve(answer)

    def _decide_one(
        self, metadata: TransactionMetadata, call: AddCall, now: Now
    ) -> TransactionRecord | ErrorCode | DropConnection:
        """The record that a call wants written, or its answer if there is nothing to write."""
        try:
            if metadata.pending_state is not None:
                raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS, RefusalCause.BUSY)
            check_identity(metadata.record, call.given)
            if call.is_guarded and self._ledger.is_ghost(metadata, call.operation, call.given, call.caller, now):
                metadata.guard.dropped(_signature(call))
                return DROP_CONNECTION
            target = decide_add(metadata, call.partitions, call.transaction_version, now)
        except KafkaError as refusal:
            self._tell_refusal(call, metadata, refusal, now)
            return refusal.code
        if call.is_guarded:
            self._ledger.admitted(metadata, call.operation, call.given, call.caller, _signature(call), now)
        return ErrorCode.NONE if target is None else target

    def _write(
        self, metadata: TransactionMetadata, target: TransactionRecord, calls: Iterable[AddCall], now: Now
    ) -> None:
        if metadata.record.state in AT_REST:
            metadata.guard.transaction_began()

        def written(error: ErrorCode, now: Now) -> None:
            for call in calls:
                call.reply.resolve(error)

        self._ledger.write(metadata, target, written, now)

    def _tell_refusal(self, call: AddCall, metadata: TransactionMetadata | None, refusal: KafkaError, now: Now) -> None:
        ledger = self._ledger
        ledger.refused(call.operation, call.transactional_id, metadata, call.given, refusal, call.caller, now)

    # Waiting

    def _wait(self, metadata: TransactionMetadata, call: AddCall) -> None:
        metadata.waiters.append(call)
        if len(metadata.waiters) == 1:
            self._await_deadline(metadata)

    def _await_deadline(self, metadata: TransactionMetadata) -> None:
        """Calls wait equally long, so the first in line is the first whose time is up."""
        self._ledger.timers.schedule(
            (_WAIT_TIMER, metadata.transactional_id),
            metadata.waiters[0].deadline_ms,
            lambda now: self._time_is_up(metadata, now),
        )

    def _time_is_up(self, metadata: TransactionMetadata, now: Now) -> None:
        while metadata.waiters and metadata.waiters[0].deadline_ms <= now.monotonic_ms:
            self._decide(metadata, [metadata.waiters.pop(0)], now)
        if metadata.waiters:
            self._await_deadline(metadata)

    def _wake(self, metadata: TransactionMetadata, now: Now) -> None:
        """Whatever held up the waiting adds is over."""
        waiters, metadata.waiters = metadata.waiters, []
        self._ledger.timers.cancel((_WAIT_TIMER, metadata.transactional_id))
        if metadata.is_abandoned:
            for call in waiters:
                self.add(call, now)
            return
        groups: dict[tuple[ProducerPair, int], list[AddCall]] = {}
        for call in waiters:
            groups.setdefault((call.given, call.transaction_version), []).append(call)
        for calls in groups.values():
            if metadata.is_busy:
                for call in calls:
                    self._wait(metadata, call)
            else:
                self._decide(metadata, calls, now)


def _signature(call: AddCall) -> tuple[object, ...]:
    return call.operation, call.partitions
