"""EndTxn 0-5: whether a transaction commits or aborts, under both protocols.

Protocol 1 (up to version 4) leaves the epoch alone, so only state tells a retry from a mistake. Protocol 2 bumps the
epoch with every end: a call with the epoch before the current one is the retry of the last end, one with the current
epoch means the present transaction. Where protocol 1 ended the last transaction, the epoch before the current one
belongs to an earlier producer, which is fenced; Kafka takes its call for a retry and answers with the live producer's
epoch. The functions here only decide; None means that there is nothing to write.
"""

from collections.abc import Callable

from fencepost.coordinators.context import Now
from fencepost.coordinators.transactions.errors import RefusalCause, Refused
from fencepost.coordinators.transactions.metadata import (
    EPOCH_EXHAUSTED,
    EPOCH_MAX,
    PROTOCOL_1,
    PROTOCOL_2,
    ProducerPair,
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
from fencepost.wire.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from fencepost.wire.errors import ErrorCode

_PREPARED_BY = {True: TransactionState.PREPARE_COMMIT, False: TransactionState.PREPARE_ABORT}
_COMPLETED_AS = {True: TransactionState.COMPLETE_COMMIT, False: TransactionState.COMPLETE_ABORT}


def check_identity(record: TransactionRecord, given: ProducerPair) -> None:
    current = record.client_pair
    if given == current:
        return
    if given.producer_id != current.producer_id:
        raise Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING, RefusalCause.OTHER_PRODUCER_ID)
    is_old = given.producer_epoch < current.producer_epoch
    raise Refused(ErrorCode.PRODUCER_FENCED, RefusalCause.STALE_EPOCH if is_old else RefusalCause.FUTURE_EPOCH)


def decide_end_protocol_1(metadata: TransactionMetadata, is_commit: bool, now: Now) -> TransactionRecord | None:
    """The caller's identity has been checked."""
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
    is_empty = record.state is EMPTY
    cause = RefusalCause.NOTHING_OPEN if is_empty else RefusalCause.OTHER_OUTCOME
    raise Refused(ErrorCode.INVALID_TXN_STATE, cause)


def decide_end_protocol_2(
    metadata: TransactionMetadata,
    given: ProducerPair,
    is_commit: bool,
    now: Now,
    next_producer_id: Callable[[], int],
) -> TransactionRecord | None:
    record = metadata.record
    if metadata.pending_state is not None:
        raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS, RefusalCause.BUSY)
    is_retry = _check_identity_protocol_2(record, given)
    if record.state is ONGOING:
        return _bumped(record, is_commit, now, next_producer_id)
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
    return _bumped(record, is_commit, now, next_producer_id)


def _check_identity_protocol_2(record: TransactionRecord, given: ProducerPair) -> bool:
    """Whether it is a retry of the end before."""
    current = record.client_pair
    has_bumped = record.client_transaction_version >= PROTOCOL_2
    is_overflow_retry = given == (record.previous_producer_id, EPOCH_EXHAUSTED) and current.producer_epoch == 0
    if given.producer_id != current.producer_id and not is_overflow_retry:
        raise Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING, RefusalCause.OTHER_PRODUCER_ID)
    is_current = given == current
    is_retry = has_bumped and (is_overflow_retry or current.producer_epoch == given.producer_epoch + 1)
    if record.state in PREPARED:
        is_valid = is_retry and not is_overflow_retry
    elif record.state in (ONGOING, EMPTY):
        is_valid, is_retry = is_current, False
    else:
        # The coordinator's own abort may have used the reserved epoch, which no client may have.
        is_valid = (is_retry or is_current) and current.producer_epoch < EPOCH_MAX
    if not is_valid:
        if is_overflow_retry:
            raise Refused(ErrorCode.PRODUCER_FENCED, RefusalCause.OTHER_PRODUCER_ID)
        is_old = given.producer_epoch <= current.producer_epoch
        cause = RefusalCause.STALE_EPOCH if is_old else RefusalCause.FUTURE_EPOCH
        raise Refused(ErrorCode.PRODUCER_FENCED, cause)
    return is_retry


def _bumped(
    record: TransactionRecord, is_commit: bool, now: Now, next_producer_id: Callable[[], int]
) -> TransactionRecord:
    client = record.client_pair
    # A kept transaction never meets the last epoch: keeping rotates before that.
    rotated_to = next_producer_id() if is_exhausted(client.producer_epoch) else NO_PRODUCER_ID
    bumped = ProducerPair(client.producer_id, min(client.producer_epoch + 1, EPOCH_MAX))
    return _prepared(record, is_commit, bumped, rotated_to, now, PROTOCOL_2, client.producer_epoch)


def fenced_record(record: TransactionRecord, now: Now, transaction_version: int) -> TransactionRecord:
    """The coordinator's own abort of an open transaction: with an epoch above everything it has handed out."""
    client = record.client_pair
    bumped = ProducerPair(client.producer_id, min(client.producer_epoch + 1, EPOCH_MAX))
    protocol = PROTOCOL_2 if transaction_version >= PROTOCOL_2 else PROTOCOL_1
    last = client.producer_epoch if protocol == PROTOCOL_2 else NO_PRODUCER_EPOCH
    return _prepared(record, False, bumped, NO_PRODUCER_ID, now, protocol, last)


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
        marker_epoch = min(record.producer_epoch + 1, EPOCH_MAX)
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


def completed_record(record: TransactionRecord, now: Now) -> TransactionRecord:
    """Every marker is durable: the transaction is over, and a waiting producer id takes its turn."""
    producer_id, producer_epoch = pair_after(record)
    # After a rotation the old id is remembered, to know a retry by. A client that kept a transaction had the new one
    # before, and whoever still comes with the old one is a zombie.
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


def pair_after(record: TransactionRecord) -> ProducerPair:
    """What the client goes on with after a decision that is durable, whether or not it is complete."""
    if record.next_producer_id != NO_PRODUCER_ID:
        return ProducerPair(record.next_producer_id, max(record.next_producer_epoch, 0))
    return ProducerPair(record.producer_id, record.producer_epoch)
