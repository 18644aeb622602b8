"""Every decision about a transactional id: what it is, the call or the event, and the time in; effects out.

The functions here are pure. They read a `TransactionMetadata` and change nothing: what is to happen is in the list of
effects that they return, and the coordinator carries it out in that order. By family:

- InitProducerId: `check_init`, `decide_init`
- AddPartitionsToTxn, AddOffsetsToTxn, partition leaders: `decide_add`, `decide_adds`, `verify_partitions`
- EndTxn: `decide_end`
- the passing of time: `decide_timer` (time-out, expiry, retries), `decide_tombstone`, `decide_buried`
- what was decided is carried out: `decide_marker`, `complete`; what could not be written: `decide_lost`
- a restart: `decide_loaded`

A transaction ends in three steps with a barrier between each two: the Prepare record is durable (then the client is
answered), every marker is durable, the Complete record is durable. From the first to the last the id is busy.

Protocol 1 (EndTxn up to version 4) leaves the epoch alone, so only the state distinguishes a retry from a mistake.
Protocol 2 raises the epoch with every end: a call with the epoch before the current one is the retry of the last end,
one with the current epoch means the present transaction. Where protocol 1 ended the last transaction, the epoch before
the current one belongs to an earlier producer, which is fenced; Kafka takes its call for a retry and answers with the
live producer's epoch.
"""

from collections.abc import Sequence
from typing import NamedTuple

from fencepost.coordinators.context import Caller
from fencepost.coordinators.transactions.calls import (
    AGREED,
    NO_PAIR,
    AddCall,
    Call,
    EndCall,
    InitCall,
    Outcome,
    ProducerPair,
    VerifyCall,
)
from fencepost.coordinators.transactions.effects import (
    Answer,
    Append,
    CancelTimer,
    CatchUp,
    CountMarker,
    Create,
    DrawProducerId,
    Drop,
    Effects,
    Expire,
    Forget,
    KeepGuard,
    NoteFencing,
    Release,
    Report,
    Reserve,
    RetryMarker,
    SendMarkers,
    SetTimer,
    TimerKind,
    Wait,
)
from fencepost.coordinators.transactions.events import (
    AbortCause,
    CallRefused,
    CoordinatorBehindPartitions,
    FencingCause,
    GhostCallDropped,
    GhostProtectionSwitchedOff,
    MarkerRefused,
    ProducerFenced,
    ProducerIdRotated,
    ProducerInitialised,
    RefusalCause,
    TransactionAborted,
    TransactionKept,
    TransactionResumed,
    TransactionTimedOut,
)
from fencepost.coordinators.transactions.ghosts import GhostGuard, Signature
from fencepost.coordinators.transactions.transaction_metadata import (
    EPOCH_EXHAUSTED,
    NO_TIMESTAMP,
    PROTOCOL_1,
    PROTOCOL_2,
    TIMEOUT_NEVER_MS,
    TransactionMetadata,
    TransactionRecord,
    is_exhausted,
    transaction_record,
)
from fencepost.coordinators.transactions.transaction_states import (
    AT_REST,
    COMPLETED_BY,
    EMPTY,
    ONGOING,
    PREPARED,
    TransactionState,
)
from fencepost.coordinators.write_errors import error_for_transactions
from fencepost.ports import Now
from fencepost.topic_partition import TopicPartition
from fencepost.wire.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, PRODUCER_EPOCH_MAX
from fencepost.wire.errors import ErrorCode, KafkaError

# A named tuple's own constructor is a Python function: 3,100 instructions by callgrind, and 2,200 without it. The six
# effects that every transaction has are made like this.
_new_tuple = tuple.__new__

BROKER_ITSELF = Caller("", "")
RETRY_BACKOFF_MS = 100

_PREPARED_BY = {True: TransactionState.PREPARE_COMMIT, False: TransactionState.PREPARE_ABORT}
_COMPLETED_AS = {True: TransactionState.COMPLETE_COMMIT, False: TransactionState.COMPLETE_ABORT}
_NO_ERROR = ErrorCode.NONE

# The same in every list that has them.
_COMPLETION = {state: Reserve(completed) for state, completed in COMPLETED_BY.items()}
_FENCE = Reserve(TransactionState.PREPARE_EPOCH_FENCE)
_NO_TIMEOUT = CancelTimer(TimerKind.TIMEOUT)

_ABORTED_AS = {
    FencingCause.TAKEOVER: AbortCause.TAKEOVER,
    FencingCause.SELF: AbortCause.SELF,
    FencingCause.TIMEOUT: AbortCause.TIMEOUT,
    FencingCause.NEVER_PREPARED: AbortCause.NEVER_PREPARED,
}
# Clients repeat these by themselves; a journal full of them would hide what matters.
_NOT_REPORTED = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
_NO_MARKER_NEEDED = frozenset({ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION})
_NOT_OURS = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
"""A newer epoch or coordinator has taken over this transaction and completes it."""


class Rules(NamedTuple):
    """What the settings say."""

    timeout_max_ms: int
    is_two_phase_enabled: bool
    unprepared_timeout_ms: int
    """How long a two-phase transaction may stay unprepared; 0: for ever."""
    expiry: SetTimer
    """How long an id may be idle."""
    has_ghost_protection: bool


class Refused(KafkaError):
    """A call that changes nothing."""

    def __init__(self, code: ErrorCode, cause: RefusalCause) -> None:
        super().__init__(code, cause.value)
        self.cause = cause


class ProducerIdNeeded(Exception):
    """This decision needs a new producer id, and none was given."""


def refuse(metadata: TransactionMetadata | None, call: Call, refusal: KafkaError, now: Now) -> Effects:
    """What comes of a call that changes nothing: the error code to the client, the cause to the event feed."""
    return [*report_refusal(metadata, call, refusal, now), Answer(call, Outcome(refusal.code))]


def report_refusal(
    metadata: TransactionMetadata | None, call: Call | VerifyCall, refusal: KafkaError, now: Now
) -> list[Report]:
    if refusal.code in _NOT_REPORTED:
        return []
    cause = refusal.cause if isinstance(refusal, Refused) else RefusalCause.INVALID_REQUEST
    is_stale = cause in (RefusalCause.STALE_EPOCH, RefusalCause.OTHER_PRODUCER_ID)
    refused = CallRefused(
        call.transactional_id or "",
        call.operation,
        refusal.code,
        cause,
        *call.given,
        *(NO_PAIR if metadata is None else metadata.record.client_pair),
        "" if metadata is None else metadata.record.state.wire_name,
        metadata.fenced_by if metadata is not None and is_stale else None,
        call.caller.client_id,
        call.caller.client_host,
        now.wall_ms,
    )
    return [Report(refused)]


def check_identity(record: TransactionRecord, given: ProducerPair) -> None:
    current = record.client_pair
    if given == current:
        return
    if given.producer_id != current.producer_id:
        raise Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING, RefusalCause.OTHER_PRODUCER_ID)
    is_old = given.producer_epoch < current.producer_epoch
    raise Refused(ErrorCode.PRODUCER_FENCED, RefusalCause.STALE_EPOCH if is_old else RefusalCause.FUTURE_EPOCH)


# Ghosts


def _dropped(metadata: TransactionMetadata, guard: GhostGuard, call: Call, now: Now) -> Report:
    caller = call.caller
    return Report(
        GhostCallDropped(
            metadata.transactional_id,
            *call.given,
            call.operation,
            caller.connection_number,
            guard.newest_connection,
            caller.client_id,
            caller.client_host,
            now.wall_ms,
        )
    )


def _switched_off(metadata: TransactionMetadata, call: Call, now: Now) -> Report:
    caller = call.caller
    return Report(
        GhostProtectionSwitchedOff(
            metadata.transactional_id, call.operation, caller.client_id, caller.client_host, now.wall_ms
        )
    )


# InitProducerId: which producer id and epoch a client gets, and what becomes of the transaction it finds open.
#
# An open transaction is fenced and aborted, and the client has to come again (CONCURRENT_TRANSACTIONS): its second call
# gets an epoch of its own. With KeepPreparedTxn the transaction is left open instead: the client's pair moves on, the
# transaction's pair stays what its data and its token say (KIP-939).


def check_init(call: InitCall, rules: Rules, now: Now) -> Effects:
    """What is wrong with the call itself, whatever the id's state; empty if nothing is."""
    error: tuple[ErrorCode, RefusalCause] | None = None
    if (call.given.producer_id == NO_PRODUCER_ID) != (call.given.producer_epoch == NO_PRODUCER_EPOCH):
        error = ErrorCode.INVALID_REQUEST, RefusalCause.INVALID_REQUEST
    elif call.transactional_id is None:
        return []
    elif not call.transactional_id:
        error = ErrorCode.INVALID_REQUEST, RefusalCause.INVALID_REQUEST
    elif call.is_two_phase and not rules.is_two_phase_enabled:
        error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, RefusalCause.NOT_ENABLED
    elif call.keeps_prepared and not rules.is_two_phase_enabled:
        error = ErrorCode.UNSUPPORTED_VERSION, RefusalCause.NOT_ENABLED
    elif not call.is_two_phase and not 0 < call.timeout_ms <= rules.timeout_max_ms:
        error = ErrorCode.INVALID_TRANSACTION_TIMEOUT, RefusalCause.INVALID_TIMEOUT
    return [] if error is None else refuse(None, call, Refused(*error), now)


def decide_init(
    metadata: TransactionMetadata | None,
    call: InitCall,
    now: Now,
    rules: Rules,
    transaction_version: int,
    new_producer_id: int | None = None,
) -> Effects:
    """The call has passed `check_init`."""
    if metadata is None:
        if new_producer_id is None:
            return [DrawProducerId()]
        if call.transactional_id is None:
            return [Answer(call, Outcome(_NO_ERROR, ProducerPair(new_producer_id, 0)))]
        unused = _unused_record(new_producer_id, _timeout_ms(call), now)
        return [
            Create(call.transactional_id, unused),
            *_initialised(call.transactional_id, unused, call, now, rules, None),
        ]
    record = metadata.record
    try:
        if metadata.pending_state is not None:
            raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS, RefusalCause.BUSY)
        if call.given != NO_PAIR and not _may_hold(record, call.given):
            raise Refused(ErrorCode.PRODUCER_FENCED, RefusalCause.OTHER_PRODUCER_ID)
        if record.state in PREPARED:
            raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS, RefusalCause.COMPLETING)
        if record.state is not ONGOING:
            return _initialised(metadata.transactional_id, record, call, now, rules, new_producer_id)
        if call.keeps_prepared:
            return _kept(metadata.transactional_id, record, call, now, rules, new_producer_id)
    except Refused as refusal:
        return refuse(metadata, call, refusal, now)
    except ProducerIdNeeded:
        return [DrawProducerId()]
    target = fenced_record(record, now, transaction_version)
    return [
        *_fence(metadata.transactional_id, record, target, _cause(call), call.caller, (call,), now),
        # The caller's own epoch comes with its next try, when this transaction is out of the way.
        Answer(call, Outcome(ErrorCode.CONCURRENT_TRANSACTIONS)),
        SendMarkers(target.partitions),
    ]


def _unused_record(producer_id: int, timeout_ms: int, now: Now) -> TransactionRecord:
    """An id that was never used; it exists once an epoch has been written for it."""
    return TransactionRecord(producer_id, NO_PRODUCER_EPOCH, timeout_ms, EMPTY, last_update_timestamp_ms=now.wall_ms)


def _timeout_ms(call: InitCall) -> int:
    return TIMEOUT_NEVER_MS if call.is_two_phase else call.timeout_ms


def _may_hold(record: TransactionRecord, given: ProducerPair) -> bool:
    current = record.client_pair
    return (
        current.producer_epoch == NO_PRODUCER_EPOCH
        or given.producer_id == current.producer_id
        # A retry of the call that rotated the producer id.
        or (given.producer_id == record.previous_producer_id and is_exhausted(given.producer_epoch))
    )


def _initialised(
    transactional_id: str,
    record: TransactionRecord,
    call: InitCall,
    now: Now,
    rules: Rules,
    new_producer_id: int | None,
) -> Effects:
    new = initialised_record(record, call, now, new_producer_id)
    return [
        Append(new, (call,)),
        rules.expiry,
        *_report_init(transactional_id, record, new, _cause(call), call.caller, now),
        Answer(call, Outcome(_NO_ERROR, new.client_pair)),
    ]


def initialised_record(
    record: TransactionRecord, call: InitCall, now: Now, new_producer_id: int | None
) -> TransactionRecord:
    given = None if call.given == NO_PAIR else call.given.producer_epoch
    current = record.producer_epoch
    producer_id, epoch, last = record.producer_id, current, record.last_producer_epoch
    if is_exhausted(current) and given in (None, current):
        if new_producer_id is None:
            raise ProducerIdNeeded
        producer_id, epoch = new_producer_id, 0
        last = NO_PRODUCER_EPOCH if given is None else current
    elif given is None:
        epoch, last = current + 1, NO_PRODUCER_EPOCH
    elif current == NO_PRODUCER_EPOCH or given == current:
        epoch, last = current + 1, current
    elif given != last or current == PRODUCER_EPOCH_MAX:
        raise Refused(ErrorCode.PRODUCER_FENCED, RefusalCause.STALE_EPOCH)
    # Else it is the retry of a call whose answer was lost: the same epoch again.
    return record._replace(
        producer_id=producer_id,
        producer_epoch=epoch,
        last_producer_epoch=last,
        previous_producer_id=record.producer_id,
        timeout_ms=_timeout_ms(call),
        state=EMPTY,
        partitions=frozenset(),
        start_timestamp_ms=NO_TIMESTAMP,
        last_update_timestamp_ms=now.wall_ms,
        next_producer_id=NO_PRODUCER_ID,
        next_producer_epoch=NO_PRODUCER_EPOCH,
    )


def _kept(
    transactional_id: str,
    record: TransactionRecord,
    call: InitCall,
    now: Now,
    rules: Rules,
    new_producer_id: int | None,
) -> Effects:
    client = record.client_pair
    ongoing = ProducerPair(record.producer_id, record.producer_epoch)
    has_pair = call.given != NO_PAIR
    if has_pair and call.given.producer_epoch != client.producer_epoch:
        if record.is_kept and call.given.producer_epoch == record.last_producer_epoch:
            # A retry: nothing to write.
            return [Answer(call, Outcome(_NO_ERROR, client, ongoing))]
        raise Refused(ErrorCode.PRODUCER_FENCED, RefusalCause.STALE_EPOCH)
    if client.producer_epoch + 1 < EPOCH_EXHAUSTED:
        client_next = ProducerPair(client.producer_id, client.producer_epoch + 1)
    elif new_producer_id is None:
        raise ProducerIdNeeded
    else:
        # Rotated early enough that ending the kept transaction still has an epoch to go to.
        client_next = ProducerPair(new_producer_id, 0)
    kept = record._replace(
        next_producer_id=client_next.producer_id,
        next_producer_epoch=client_next.producer_epoch,
        last_producer_epoch=client.producer_epoch if has_pair else NO_PRODUCER_EPOCH,
        previous_producer_id=record.producer_id,
        timeout_ms=TIMEOUT_NEVER_MS if call.is_two_phase else record.timeout_ms,
        last_update_timestamp_ms=now.wall_ms,
    )
    effects: Effects = [Append(kept, (call,))]
    if time_limit_ms(kept, rules) is None:
        effects.append(_NO_TIMEOUT)
    effects += _report_init(transactional_id, record, kept, FencingCause.KEPT, call.caller, now)
    effects.append(Answer(call, Outcome(_NO_ERROR, client_next, ongoing)))
    return effects


def _cause(call: InitCall) -> FencingCause:
    return FencingCause.TAKEOVER if call.given == NO_PAIR else FencingCause.SELF


def _report_init(
    transactional_id: str,
    old: TransactionRecord,
    new: TransactionRecord,
    cause: FencingCause,
    caller: Caller,
    now: Now,
) -> Effects:
    client = new.client_pair
    if old.producer_epoch == NO_PRODUCER_EPOCH:
        return [
            Report(ProducerInitialised(transactional_id, *client, caller.client_id, caller.client_host, now.wall_ms))
        ]
    if old.client_pair == client:
        return []
    effects: Effects = [NoteFencing(cause), _report_fencing(transactional_id, old, new, cause, caller, now)]
    if old.client_pair.producer_id != client.producer_id:
        rotated = old.client_pair.producer_id, client.producer_id
        effects.append(Report(ProducerIdRotated(transactional_id, *rotated, now.wall_ms)))
    if cause is FencingCause.KEPT:
        ongoing = new.producer_id, new.producer_epoch
        who = caller.client_id, caller.client_host
        effects.append(Report(TransactionKept(transactional_id, *ongoing, *client, *who, now.wall_ms)))
    return effects


# Fencing: the coordinator itself aborts an open transaction, and shuts its client out.


def fenced_record(record: TransactionRecord, now: Now, transaction_version: int) -> TransactionRecord:
    """The coordinator's own abort of an open transaction: with an epoch above everything it has handed out."""
    client = record.client_pair
    raised = ProducerPair(client.producer_id, min(client.producer_epoch + 1, PRODUCER_EPOCH_MAX))
    protocol = PROTOCOL_2 if transaction_version >= PROTOCOL_2 else PROTOCOL_1
    last = client.producer_epoch if protocol == PROTOCOL_2 else NO_PRODUCER_EPOCH
    return _prepared(record, False, raised, NO_PRODUCER_ID, now, protocol, last)


def _fence(
    transactional_id: str,
    old: TransactionRecord,
    target: TransactionRecord,
    cause: FencingCause,
    caller: Caller,
    calls: tuple[Call, ...],
    now: Now,
) -> Effects:
    return [
        _FENCE,
        Append(target, calls),
        _COMPLETION[target.state],
        _NO_TIMEOUT,
        NoteFencing(cause),
        _report_abort(transactional_id, old, target, _ABORTED_AS[cause], caller, now),
        _report_fencing(transactional_id, old, target, cause, caller, now),
    ]


def _report_abort(
    transactional_id: str,
    old: TransactionRecord,
    new: TransactionRecord,
    cause: AbortCause,
    caller: Caller,
    now: Now,
) -> Report:
    aborted = TransactionAborted(
        transactional_id,
        old.producer_id,
        old.producer_epoch,
        new.producer_epoch,
        cause,
        len(old.partitions),
        max(0, now.wall_ms - old.start_timestamp_ms),
        caller.client_id,
        caller.client_host,
        now.wall_ms,
    )
    return Report(aborted, old.start_timestamp_ms)


def _report_fencing(
    transactional_id: str,
    old: TransactionRecord,
    new: TransactionRecord,
    cause: FencingCause,
    caller: Caller,
    now: Now,
) -> Report:
    who = caller.client_id, caller.client_host
    return Report(ProducerFenced(transactional_id, *old.client_pair, *new.client_pair, cause, *who, now.wall_ms))


# Adding: which partitions a transaction writes to.
#
# An add that finds the id busy (the transaction before it is still being completed, or another add is being written)
# waits for that, up to `add.partitions.to.txn.retry.backoff.max.ms`, before it gets CONCURRENT_TRANSACTIONS. Adds that
# waited together are written together.


def decide_add(metadata: TransactionMetadata | None, call: AddCall, now: Now, rules: Rules) -> Effects:
    if not call.transactional_id:
        return refuse(None, call, Refused(ErrorCode.INVALID_REQUEST, RefusalCause.INVALID_REQUEST), now)
    if metadata is None:
        return refuse(None, call, Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING, RefusalCause.UNKNOWN_ID), now)
    if metadata.is_busy and call.deadline_ms > now.monotonic_ms:
        return [Wait(call)]
    return decide_adds(metadata, (call,), now, rules)


def decide_adds(metadata: TransactionMetadata, calls: Sequence[AddCall], now: Now, rules: Rules) -> Effects:
    """Decide calls with the same identity at one go."""
    record, guard = metadata.record, metadata.guard
    target: TransactionRecord | None = None
    effects: Effects = []
    answers: list[Answer | Drop] = []
    admitted: list[AddCall] = []
    for call in calls:
        try:
            if metadata.pending_state is not None:
                raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS, RefusalCause.BUSY)
            check_identity(record, call.given)
            may_be_ghost = call.is_guarded and rules.has_ghost_protection
            if may_be_ghost and guard.is_ghost(call.given, call.caller.connection_number):
                effects.append(_dropped(metadata, guard, call, now))
                guard = guard.dropped(_signature(call))
                answers.append(Drop(call))
                continue
            added = added_record(record, call.partitions, call.transaction_version, now)
        except Refused as refusal:
            effects += report_refusal(metadata, call, refusal, now)
            answers.append(Answer(call, Outcome(refusal.code)))
            continue
        if call.is_guarded:
            known = guard
            guard = known.admitted(call.given, call.caller.connection_number, _signature(call))
            if guard.is_off and not known.is_off and rules.has_ghost_protection:
                effects.append(_switched_off(metadata, call, now))
        if added is None:
            answers.append(Answer(call, AGREED))
            continue
        admitted.append(call)
        target = added if target is None else target._replace(partitions=target.partitions | added.partitions)
    if target is not None and record.state is not ONGOING:
        guard = guard.transaction_began()
    if guard is not metadata.guard:
        effects.append(KeepGuard(guard))
    if target is None:
        return [*effects, *answers]
    effects.append(_new_tuple(Append, (target, tuple(admitted), tuple(answers))))
    if record.state is not ONGOING:
        limit_ms = time_limit_ms(target, rules)
        effects.append(_NO_TIMEOUT if limit_ms is None else SetTimer(TimerKind.TIMEOUT, limit_ms))
    effects += [_new_tuple(Answer, (call, AGREED)) for call in admitted]
    return effects


def _signature(call: AddCall) -> Signature:
    return call.operation, call.partitions


def added_record(
    record: TransactionRecord, partitions: frozenset[TopicPartition], transaction_version: int, now: Now
) -> TransactionRecord | None:
    """The record with the partitions added; None if they are all there. The caller's identity has been checked."""
    if record.state in PREPARED:
        raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS, RefusalCause.COMPLETING)
    if record.is_kept:
        raise Refused(ErrorCode.INVALID_TXN_STATE, RefusalCause.KEPT_PREPARED)
    is_open = record.state is ONGOING
    if is_open and partitions <= record.partitions:
        return None
    return transaction_record(
        producer_id=record.producer_id,
        producer_epoch=record.producer_epoch,
        timeout_ms=record.timeout_ms,
        state=ONGOING,
        partitions=record.partitions | partitions if record.partitions else partitions,
        start_timestamp_ms=record.start_timestamp_ms if is_open else now.wall_ms,
        last_update_timestamp_ms=now.wall_ms,
        previous_producer_id=record.producer_id,
        next_producer_id=record.next_producer_id,
        next_producer_epoch=record.next_producer_epoch,
        client_transaction_version=transaction_version,
        last_producer_epoch=record.last_producer_epoch,
    )


def verify_partitions(metadata: TransactionMetadata | None, call: VerifyCall) -> dict[TopicPartition, ErrorCode]:
    """Which partitions are part of the open transaction. A change under way does not matter: appends check again."""
    if not call.transactional_id:
        raise Refused(ErrorCode.INVALID_REQUEST, RefusalCause.INVALID_REQUEST)
    if metadata is None:
        raise Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING, RefusalCause.UNKNOWN_ID)
    record = metadata.record
    check_identity(record, call.given)
    if record.state in PREPARED:
        raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS, RefusalCause.COMPLETING)
    if record.is_kept:
        raise Refused(ErrorCode.INVALID_TXN_STATE, RefusalCause.KEPT_PREPARED)
    verified = dict.fromkeys(call.partitions, _NO_ERROR)
    if not record.partitions.issuperset(verified):
        for partition in verified.keys() - record.partitions:
            verified[partition] = ErrorCode.TRANSACTION_ABORTABLE
    return verified


# EndTxn: whether a transaction commits or aborts, under both protocols.


def decide_end(
    metadata: TransactionMetadata | None, call: EndCall, now: Now, rules: Rules, new_producer_id: int | None = None
) -> Effects:
    effects: Effects = []
    try:
        if not call.transactional_id:
            raise Refused(ErrorCode.INVALID_REQUEST, RefusalCause.INVALID_REQUEST)
        if metadata is None:
            raise Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING, RefusalCause.UNKNOWN_ID)
        if call.is_protocol_2:
            target = ended_by_protocol_2(metadata, call.given, call.is_commit, now, new_producer_id)
        else:
            check_identity(metadata.record, call.given)
            guard, connection = metadata.guard, call.caller.connection_number
            signature = call.operation, call.is_commit
            if rules.has_ghost_protection and guard.is_ghost(call.given, connection):
                return [_dropped(metadata, guard, call, now), KeepGuard(guard.dropped(signature)), Drop(call)]
            target = ended_by_protocol_1(metadata, call.is_commit, now)
            known = guard.admitted(call.given, connection, signature)
            if known is not guard:
                effects.append(KeepGuard(known))
                if known.is_off and not guard.is_off and rules.has_ghost_protection:
                    effects.append(_switched_off(metadata, call, now))
    except Refused as refusal:
        return refuse(metadata, call, refusal, now)
    except ProducerIdNeeded:
        return [DrawProducerId()]
    old = metadata.record
    if target is None:
        effects.append(Answer(call, Outcome(_NO_ERROR, old.client_pair)))
        return effects
    effects += (
        _new_tuple(Append, (target, (call,), ())),
        _COMPLETION[target.state],
        _NO_TIMEOUT,
        _new_tuple(Answer, (call, _new_tuple(Outcome, (_NO_ERROR, pair_after(target), NO_PAIR)))),
    )
    if old.state is ONGOING and not call.is_commit:
        effects.append(_report_abort(metadata.transactional_id, old, target, AbortCause.CLIENT, call.caller, now))
    if target.next_producer_id not in (NO_PRODUCER_ID, old.next_producer_id):
        rotated = old.producer_id, target.next_producer_id
        effects.append(Report(ProducerIdRotated(metadata.transactional_id, *rotated, now.wall_ms)))
    effects.append(SendMarkers(target.partitions))
    return effects


def ended_by_protocol_1(metadata: TransactionMetadata, is_commit: bool, now: Now) -> TransactionRecord | None:
    """The record to write; None if there is nothing to write. The caller's identity has been checked."""
    record = metadata.record
    if metadata.pending_state is not None:
        raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS, RefusalCause.BUSY)
    if record.state is ONGOING:
        last = record.last_producer_epoch
        return _prepared(record, is_commit, record.client_pair, NO_PRODUCER_ID, now, PROTOCOL_1, last)
    if record.state is _COMPLETED_AS[is_commit]:
        return None
    if record.state is _PREPARED_BY[is_commit]:
        raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS, RefusalCause.COMPLETING)
    cause = RefusalCause.NOTHING_OPEN if record.state is EMPTY else RefusalCause.OTHER_OUTCOME
    raise Refused(ErrorCode.INVALID_TXN_STATE, cause)


def ended_by_protocol_2(
    metadata: TransactionMetadata,
    given: ProducerPair,
    is_commit: bool,
    now: Now,
    new_producer_id: int | None,
) -> TransactionRecord | None:
    """The record to write; None if there is nothing to write."""
    record = metadata.record
    if metadata.pending_state is not None:
        raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS, RefusalCause.BUSY)
    is_retry = is_retry_of_last_end(record, given)
    if record.state is ONGOING:
        return _raised(record, is_commit, now, new_producer_id)
    if record.state in PREPARED:
        if record.state is _PREPARED_BY[is_commit]:
            raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS, RefusalCause.COMPLETING)
        raise Refused(ErrorCode.INVALID_TXN_STATE, RefusalCause.OTHER_OUTCOME)
    if is_retry:
        if record.state is _COMPLETED_AS[is_commit]:
            return None
        raise Refused(ErrorCode.INVALID_TXN_STATE, RefusalCause.OTHER_OUTCOME)
    if is_commit:
        raise Refused(ErrorCode.INVALID_TXN_STATE, RefusalCause.NOTHING_OPEN)
    return _raised(record, is_commit, now, new_producer_id)


def is_retry_of_last_end(record: TransactionRecord, given: ProducerPair) -> bool:
    """Whether a call of protocol 2 repeats the last end; refused if it is neither that nor about the present one."""
    current = record.client_pair
    has_raised = record.client_transaction_version >= PROTOCOL_2
    is_overflow_retry = given == (record.previous_producer_id, EPOCH_EXHAUSTED) and current.producer_epoch == 0
    if given.producer_id != current.producer_id and not is_overflow_retry:
        raise Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING, RefusalCause.OTHER_PRODUCER_ID)
    is_current = given == current
    is_retry = has_raised and (is_overflow_retry or current.producer_epoch == given.producer_epoch + 1)
    if record.state in PREPARED:
        is_valid = is_retry and not is_overflow_retry
    elif record.state in (ONGOING, EMPTY):
        is_valid, is_retry = is_current, False
    else:
        # The coordinator's own abort may have used the reserved epoch, which no client may have.
        is_valid = (is_retry or is_current) and current.producer_epoch < PRODUCER_EPOCH_MAX
    if not is_valid:
        if is_overflow_retry:
            raise Refused(ErrorCode.PRODUCER_FENCED, RefusalCause.OTHER_PRODUCER_ID)
        is_old = given.producer_epoch <= current.producer_epoch
        cause = RefusalCause.STALE_EPOCH if is_old else RefusalCause.FUTURE_EPOCH
        raise Refused(ErrorCode.PRODUCER_FENCED, cause)
    return is_retry


def _raised(record: TransactionRecord, is_commit: bool, now: Now, new_producer_id: int | None) -> TransactionRecord:
    client = record.client_pair
    rotated_to = NO_PRODUCER_ID
    # A kept transaction never meets the last epoch: keeping rotates before that.
    if is_exhausted(client.producer_epoch):
        if new_producer_id is None:
            raise ProducerIdNeeded
        rotated_to = new_producer_id
    raised = ProducerPair(client.producer_id, min(client.producer_epoch + 1, PRODUCER_EPOCH_MAX))
    return _prepared(record, is_commit, raised, rotated_to, now, PROTOCOL_2, client.producer_epoch)


def _prepared(
    record: TransactionRecord,
    is_commit: bool,
    client: ProducerPair,
    rotated_to: int,
    now: Now,
    client_transaction_version: int,
    last_producer_epoch: int,
) -> TransactionRecord:
    """The decision, as it will be written. `client` is the client's pair after it."""
    if client.producer_id == record.producer_id:
        marker_epoch = client.producer_epoch
        next_id, next_epoch = rotated_to, NO_PRODUCER_EPOCH
    else:
        # Kept over a rotation: the data lies under the old producer id, whose own epoch fences its writer.
        marker_epoch = min(record.producer_epoch + 1, PRODUCER_EPOCH_MAX)
        next_id, next_epoch = client
    return transaction_record(
        producer_id=record.producer_id,
        producer_epoch=marker_epoch,
        timeout_ms=record.timeout_ms,
        state=_PREPARED_BY[is_commit],
        partitions=record.partitions,
        # A transaction that nothing was added to begins as it ends.
        start_timestamp_ms=now.wall_ms if record.state in AT_REST else record.start_timestamp_ms,
        last_update_timestamp_ms=now.wall_ms,
        previous_producer_id=record.producer_id,
        next_producer_id=next_id,
        next_producer_epoch=next_epoch,
        client_transaction_version=client_transaction_version,
        last_producer_epoch=last_producer_epoch,
    )


def pair_after(record: TransactionRecord) -> ProducerPair:
    """What the client goes on with after a decision that is durable, whether or not it is complete."""
    if record.next_producer_id != NO_PRODUCER_ID:
        return ProducerPair(record.next_producer_id, max(record.next_producer_epoch, 0))
    return ProducerPair(record.producer_id, record.producer_epoch)


# Markers, and the end


def decide_marker(
    metadata: TransactionMetadata,
    partition: TopicPartition,
    error: ErrorCode,
    is_gone: bool,
    now: Now,
    rules: Rules,
) -> Effects:
    """A marker of the transaction is durable, or was refused. `is_gone`: there is no such partition any more."""
    awaited = metadata.awaiting_markers
    if partition not in awaited:
        return []
    if error is _NO_ERROR or is_gone or error in _NO_MARKER_NEEDED:
        if len(awaited) > 1:
            return [CountMarker(partition)]
        return [CountMarker(partition), *complete(metadata, now, rules)]
    if error in _NOT_OURS:
        # It stays prepared until it is loaded again.
        pair = metadata.record.producer_id, metadata.record.producer_epoch
        return [Report(MarkerRefused(metadata.transactional_id, *pair, *partition, error, now.wall_ms))]
    return [RetryMarker(partition), SetTimer(TimerKind.MARKERS, RETRY_BACKOFF_MS)]


def complete(metadata: TransactionMetadata, now: Now, rules: Rules) -> Effects:
    """Every marker is durable."""
    return [_new_tuple(Append, (completed_record(metadata.record, now), (), ())), rules.expiry]


def completed_record(record: TransactionRecord, now: Now) -> TransactionRecord:
    """The transaction is over, and a waiting producer id takes its turn."""
    producer_id, producer_epoch = pair_after(record)
    # After a rotation the old id is remembered, to know a retry by. A client that kept a transaction had the new one
    # before, so a call that still comes with the old one is a zombie's.
    previous_producer_id = producer_id if record.next_producer_epoch >= 0 else record.producer_id
    return transaction_record(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        timeout_ms=record.timeout_ms,
        state=COMPLETED_BY[record.state],
        partitions=frozenset(),
        start_timestamp_ms=record.start_timestamp_ms,
        last_update_timestamp_ms=now.wall_ms,
        previous_producer_id=previous_producer_id,
        next_producer_id=NO_PRODUCER_ID,
        next_producer_epoch=NO_PRODUCER_EPOCH,
        client_transaction_version=record.client_transaction_version,
        last_producer_epoch=record.last_producer_epoch,
    )


def decide_lost(metadata: TransactionMetadata, append: Append, error: ErrorCode) -> Effects:
    """The record could not be written: what happens instead of the effects that were to follow it."""
    if append.record.state in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT):
        # Whatever the reason, a full disk above all: every marker is there, so it ends as it was decided.
        return [SetTimer(TimerKind.COMPLETE, RETRY_BACKOFF_MS)]
    error = error_for_transactions(error)
    effects: Effects = [Release()]
    effects += [Answer(call, Outcome(error)) for call in append.calls]
    if not append.calls:
        # The coordinator's own abort: the transaction is still open, and the next sweep tries again.
        effects.append(SetTimer(TimerKind.TIMEOUT, 0))
    if metadata.record.producer_epoch == NO_PRODUCER_EPOCH:
        # An id none of whose epochs was ever written does not exist.
        effects.append(Forget())
    return effects


# The passing of time: open transactions time out, idle ids expire.
#
# Records carry wall-clock times, as Kafka's do, but a wall clock may jump. Timers therefore run on the monotonic clock,
# from when a transaction began here, or with what was left of its time when it was loaded.


def decide_timer(
    metadata: TransactionMetadata, kind: TimerKind, now: Now, rules: Rules, transaction_version: int
) -> Effects:
    if metadata.is_abandoned:
        return []
    if kind is TimerKind.TIMEOUT:
        return _timed_out(metadata, now, rules, transaction_version)
    if kind is TimerKind.EXPIRY:
        if metadata.record.state not in AT_REST:
            return []  # its timer is set again when the transaction is over
        # A change that is under way may fail, and would leave the id as idle as it was.
        return [Expire() if metadata.pending_state is None else SetTimer(TimerKind.EXPIRY, 1)]
    if kind is TimerKind.MARKERS:
        return [SendMarkers(metadata.refused_markers)]
    return complete(metadata, now, rules)


def _timed_out(metadata: TransactionMetadata, now: Now, rules: Rules, transaction_version: int) -> Effects:
    record = metadata.record
    if record.state is not ONGOING:
        return []
    if metadata.pending_state is not None:
        # The change that is under way may end it; if not, the next sweep looks again.
        return [SetTimer(TimerKind.TIMEOUT, 0)]
    target = fenced_record(record, now, transaction_version)
    cause = FencingCause.NEVER_PREPARED if record.is_two_phase else FencingCause.TIMEOUT
    timed_out = TransactionTimedOut(
        metadata.transactional_id,
        record.producer_id,
        record.producer_epoch,
        time_limit_ms(record, rules) or record.timeout_ms,
        max(0, now.wall_ms - record.start_timestamp_ms),
        record.is_two_phase,
        now.wall_ms,
    )
    return [
        *_fence(metadata.transactional_id, record, target, cause, BROKER_ITSELF, (), now),
        Report(timed_out, record.start_timestamp_ms),
        SendMarkers(target.partitions),
    ]


def time_limit_ms(record: TransactionRecord, rules: Rules) -> int | None:
    """How long this transaction may be open; None: for ever."""
    if not record.is_two_phase:
        return record.timeout_ms
    if record.is_kept or not rules.unprepared_timeout_ms:
        return None
    return rules.unprepared_timeout_ms


def decide_tombstone(metadata: TransactionMetadata) -> Effects:
    """Its tombstone is about to be written, if it is still idle."""
    return [SetTimer(TimerKind.EXPIRY, 1) if metadata.is_busy else Reserve(TransactionState.DEAD)]


def decide_buried(error: ErrorCode) -> Effects:
    """Its tombstone is durable, or could not be written."""
    return [Forget()] if error is _NO_ERROR else [Release(), SetTimer(TimerKind.EXPIRY, 1)]


# A restart: what was decided is carried out, what is open is left to its client or its time-out.


def decide_loaded(metadata: TransactionMetadata, partition_epoch: int, now: Now, rules: Rules) -> Effects:
    """`partition_epoch` is the largest epoch that any partition has seen of the id's producer."""
    record = caught_up(metadata.record, partition_epoch)
    effects: Effects = []
    if record is not metadata.record:
        behind = CoordinatorBehindPartitions(
            metadata.transactional_id,
            metadata.record.producer_id,
            metadata.record.producer_epoch,
            partition_epoch,
            record is None,
            now.wall_ms,
        )
        effects += [Forget() if record is None else CatchUp(record), Report(behind)]
    if record is None:
        return effects
    if record.state in PREPARED:
        return effects + resume(metadata, now)
    if record.state is ONGOING:
        limit_ms = time_limit_ms(record, rules)
        if limit_ms is not None:
            left_ms = record.start_timestamp_ms + limit_ms - now.wall_ms
            effects.append(SetTimer(TimerKind.TIMEOUT, min(max(left_ms, 0), limit_ms)))
    else:
        # Counted from the time in the record, but never longer than the full time from now.
        limit_ms = rules.expiry.delay_ms
        left_ms = record.last_update_timestamp_ms + limit_ms - now.wall_ms
        effects.append(SetTimer(TimerKind.EXPIRY, min(max(left_ms, 0), limit_ms)))
    return effects


def resume(metadata: TransactionMetadata, now: Now) -> Effects:
    """Go on with a decided transaction that was loaded from the log."""
    record = metadata.record
    resumed = TransactionResumed(
        metadata.transactional_id,
        record.producer_id,
        record.producer_epoch,
        record.state is TransactionState.PREPARE_COMMIT,
        len(record.partitions),
        now.wall_ms,
    )
    return [Report(resumed), _COMPLETION[record.state], SendMarkers(record.partitions)]


def caught_up(record: TransactionRecord, partition_epoch: int) -> TransactionRecord | None:
    """A loaded record whose producer's epoch is at least the one that partitions have seen; None: better forget the id.

    Epochs above the record's were handed out by records that are lost. What it decided may then be about an earlier
    transaction than the one that is open now, so a decision must not be carried out.
    """
    newest = record.producer_epoch
    if record.next_producer_id == record.producer_id:
        newest = max(newest, record.next_producer_epoch)
    if partition_epoch <= newest:
        return record
    if record.state in PREPARED or record.is_kept or is_exhausted(partition_epoch):
        return None
    return record._replace(producer_epoch=partition_epoch, last_producer_epoch=NO_PRODUCER_EPOCH)
