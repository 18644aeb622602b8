"""InitProducerId 0-6: which producer id and epoch a client gets, and what becomes of the transaction it finds open.

`decide_init` only decides; it makes the next record from the current one. An open transaction is fenced and aborted,
and its finder told to come again (CONCURRENT_TRANSACTIONS): the second call then gets an epoch of its own. With
KeepPreparedTxn it is left open instead: the client's pair moves on, the transaction's pair stays what its data and its
token say (KIP-939).
"""

import dataclasses
import enum
from collections.abc import Callable

from fencepost.coordinators.context import Now
from fencepost.coordinators.transactions.end import fenced_record
from fencepost.coordinators.transactions.errors import RefusalCause, Refused
from fencepost.coordinators.transactions.metadata import (
    EPOCH_EXHAUSTED,
    EPOCH_MAX,
    NO_TIMESTAMP,
    TIMEOUT_NEVER_MS,
    ProducerPair,
    TransactionMetadata,
    TransactionRecord,
    is_exhausted,
)
from fencepost.coordinators.transactions.transaction_states import PREPARED, TransactionState
from fencepost.wire.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from fencepost.wire.errors import ErrorCode


@dataclasses.dataclass(frozen=True, slots=True)
class InitCall:
    """What a client asks for, after the checks that need no state."""

    expected: ProducerPair | None
    """The pair it holds, if it only wants a new epoch after an error (KIP-360)."""
    timeout_ms: int
    is_two_phase: bool
    keeps_prepared: bool


class InitOutcome(enum.Enum):
    INITIALISED = enum.auto()
    FENCE = enum.auto()
    KEPT = enum.auto()
    KEPT_BEFORE = enum.auto()
    """A retry: nothing to write."""


@dataclasses.dataclass(frozen=True, slots=True)
class InitDecision:
    outcome: InitOutcome
    record: TransactionRecord


def new_record(producer_id: int, timeout_ms: int, now: Now) -> TransactionRecord:
    """An id that nobody has used yet; it exists once an epoch has been written for it."""
    return TransactionRecord(
        producer_id, NO_PRODUCER_EPOCH, timeout_ms, TransactionState.EMPTY, last_update_timestamp_ms=now.wall_ms
    )


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


def decide_init(
    metadata: TransactionMetadata,
    call: InitCall,
    now: Now,
    transaction_version: int,
    next_producer_id: Callable[[], int],
) -> InitDecision:
    record = metadata.record
    if metadata.pending_state is not None:
        raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS, RefusalCause.BUSY)
    if call.expected is not None and not _may_expect(record, call.expected):
        raise Refused(ErrorCode.PRODUCER_FENCED, RefusalCause.OTHER_PRODUCER_ID)
    if record.state in PREPARED:
        raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS, RefusalCause.COMPLETING)
    if record.state is TransactionState.ONGOING:
        if call.keeps_prepared:
            return _keep(record, call, now, next_producer_id)
        return InitDecision(InitOutcome.FENCE, fenced_record(record, now, transaction_version))
    return InitDecision(InitOutcome.INITIALISED, _initialise(record, call, now, next_producer_id))


def _may_expect(record: TransactionRecord, expected: ProducerPair) -> bool:
    current = record.client_pair
    return (
        current.producer_epoch == NO_PRODUCER_EPOCH
        or expected.producer_id == current.producer_id
        # A retry of the call that rotated the producer id.
        or (expected.producer_id == record.previous_producer_id and is_exhausted(expected.producer_epoch))
    )


def _initialise(
    record: TransactionRecord, call: InitCall, now: Now, next_producer_id: Callable[[], int]
) -> TransactionRecord:
    expected = None if call.expected is None else call.expected.producer_epoch
    current = record.producer_epoch
    producer_id, epoch, last = record.producer_id, current, record.last_producer_epoch
    if is_exhausted(current) and expected in (None, current):
        producer_id, epoch = next_producer_id(), 0
        last = NO_PRODUCER_EPOCH if expected is None else current
    elif expected is None:
        epoch, last = current + 1, NO_PRODUCER_EPOCH
    elif current == NO_PRODUCER_EPOCH or expected == current:
        epoch, last = current + 1, current
    elif expected != last or current == EPOCH_MAX:
        raise Refused(ErrorCode.PRODUCER_FENCED, RefusalCause.STALE_EPOCH)
    # Else it is the retry of a call whose answer was lost: the same epoch again.
    return record._replace(
        producer_id=producer_id,
        producer_epoch=epoch,
        last_producer_epoch=last,
        previous_producer_id=record.producer_id,
        timeout_ms=call.timeout_ms,
        state=TransactionState.EMPTY,
        partitions=frozenset(),
        start_timestamp_ms=NO_TIMESTAMP,
        last_update_timestamp_ms=now.wall_ms,
        next_producer_id=NO_PRODUCER_ID,
        next_producer_epoch=NO_PRODUCER_EPOCH,
    )


def _keep(record: TransactionRecord, call: InitCall, now: Now, next_producer_id: Callable[[], int]) -> InitDecision:
    client = record.client_pair
    if call.expected is not None and call.expected.producer_epoch != client.producer_epoch:
        if record.is_kept and call.expected.producer_epoch == record.last_producer_epoch:
            return InitDecision(InitOutcome.KEPT_BEFORE, record)
        raise Refused(ErrorCode.PRODUCER_FENCED, RefusalCause.STALE_EPOCH)
    if client.producer_epoch + 1 < EPOCH_EXHAUSTED:
        client_next = ProducerPair(client.producer_id, client.producer_epoch + 1)
    else:
        # Rotated early enough that ending the kept transaction still has an epoch to bump to.
        client_next = ProducerPair(next_producer_id(), 0)
    kept = record._replace(
        next_producer_id=client_next.producer_id,
        next_producer_epoch=client_next.producer_epoch,
        last_producer_epoch=NO_PRODUCER_EPOCH if call.expected is None else client.producer_epoch,
        previous_producer_id=record.producer_id,
        timeout_ms=TIMEOUT_NEVER_MS if call.is_two_phase else record.timeout_ms,
        last_update_timestamp_ms=now.wall_ms,
    )
    return InitDecision(InitOutcome.KEPT, kept)
