"""What the coordinator knows of one transactional id.

`TransactionRecord` is what one record of __transaction_state says; decisions make the next one from the current one.
`TransactionMetadata` holds the current record, which is always the durable one, and the one change that may be under
way. Its record changes only by `apply`, which the runtime's replay calls.
"""

from typing import TYPE_CHECKING, NamedTuple

from fencepost.coordinators.transactions.errors import IllegalTransition
from fencepost.coordinators.transactions.ghosts import GhostGuard
from fencepost.coordinators.transactions.transaction_states import (
    AT_REST,
    EMPTY,
    ONGOING,
    PREPARED,
    TransactionState,
    check_transition,
)
from fencepost.wire.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

if TYPE_CHECKING:
    from fencepost.coordinators.transactions.add import AddCall
    from fencepost.coordinators.transactions.events import FencingCause

TopicPartition = tuple[str, int]

EPOCH_MAX = 32767
"""Never handed out, so that the coordinator can always fence."""
EPOCH_EXHAUSTED = EPOCH_MAX - 1
TIMEOUT_NEVER_MS = 2**31 - 1
"""The stored time-out of an id that takes part in an outer two-phase commit."""
NO_TIMESTAMP = -1
PROTOCOL_1 = 0
"""Clients that do not bump their epoch with every transaction; Kafka stores 0 for them."""
PROTOCOL_2 = 2

# A named tuple's own constructor is a Python function; these are made many times a transaction.
_new_tuple = tuple.__new__


class ProducerPair(NamedTuple):
    producer_id: int
    producer_epoch: int


NO_PAIR = ProducerPair(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


def is_exhausted(producer_epoch: int) -> bool:
    return producer_epoch >= EPOCH_EXHAUSTED


class TransactionRecord(NamedTuple):
    producer_id: int
    """With the epoch: the pair the open transaction is written and marked under."""
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition] = frozenset()
    start_timestamp_ms: int = NO_TIMESTAMP
    last_update_timestamp_ms: int = NO_TIMESTAMP
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    """Takes over when the transaction is complete: after the last epoch of the old one, or for a kept transaction."""
    next_producer_epoch: int = NO_PRODUCER_EPOCH
    """Set only while a prepared transaction is kept: then the client already uses the next pair."""
    client_transaction_version: int = PROTOCOL_1
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    """The epoch before the last bump, to know a retry by. Kafka's schema has no room for it: lost in a restart."""

    @property
    def client_pair(self) -> ProducerPair:
        """What the client must present."""
        if self.next_producer_epoch >= 0:
            return _new_tuple(ProducerPair, (self.next_producer_id, self.next_producer_epoch))
        return _new_tuple(ProducerPair, (self.producer_id, self.producer_epoch))

    @property
    def is_kept(self) -> bool:
        """A prepared transaction of an earlier client that the present one may only end."""
        return self.next_producer_epoch >= 0 and self.state is ONGOING

    @property
    def is_two_phase(self) -> bool:
        return self.timeout_ms == TIMEOUT_NEVER_MS


def transaction_record(
    *,
    producer_id: int,
    producer_epoch: int,
    timeout_ms: int,
    state: TransactionState,
    partitions: frozenset[TopicPartition],
    start_timestamp_ms: int,
    last_update_timestamp_ms: int,
    previous_producer_id: int,
    next_producer_id: int,
    next_producer_epoch: int,
    client_transaction_version: int,
    last_producer_epoch: int,
) -> TransactionRecord:
    """A record with every field given: for the three that each transaction writes, where `_replace` costs too much."""
    return _new_tuple(
        TransactionRecord,
        (
            producer_id,
            producer_epoch,
            timeout_ms,
            state,
            partitions,
            start_timestamp_ms,
            last_update_timestamp_ms,
            previous_producer_id,
            next_producer_id,
            next_producer_epoch,
            client_transaction_version,
            last_producer_epoch,
        ),
    )


class TransactionMetadata:
    __slots__ = (
        "awaiting_markers",
        "fenced_by",
        "guard",
        "is_abandoned",
        "partition",
        "pending_state",
        "record",
        "transactional_id",
        "waiters",
    )

    def __init__(self, transactional_id: str, partition: int, record: TransactionRecord) -> None:
        self.transactional_id = transactional_id
        self.partition = partition
        """Of __transaction_state."""
        self.record = record
        self.pending_state: TransactionState | None = None
        self.awaiting_markers: set[TopicPartition] = set()
        self.waiters: list[AddCall] = []
        """Adds that came while a change was under way."""
        self.guard = GhostGuard()
        self.fenced_by: FencingCause | None = None
        """Why epochs before the current one are refused; None if that was before the coordinator started."""
        self.is_abandoned = False
        """The partition is not ours any more: whatever still comes back for this id comes too late."""

    @property
    def is_busy(self) -> bool:
        return self.pending_state is not None or self.record.state in PREPARED

    def begin(self, target: TransactionState) -> None:
        """Take the one slot for a change under way."""
        current = self.record.state
        if self.pending_state is not None:
            if self.pending_state is not TransactionState.PREPARE_EPOCH_FENCE:
                raise IllegalTransition(
                    self.transactional_id, current.name, target.name, f"{self.pending_state.name} is pending"
                )
            current = self.pending_state
        check_transition(self.transactional_id, current, target)
        self.pending_state = target

    def cancel(self) -> None:
        """The change did not become durable: everything is as it was."""
        self.pending_state = None

    def apply(self, record: TransactionRecord) -> None:
        """The change is durable."""
        if self.pending_state is not record.state:
            pending = "nothing" if self.pending_state is None else self.pending_state.name
            raise IllegalTransition(
                self.transactional_id, self.record.state.name, record.state.name, f"{pending} is pending"
            )
        self.pending_state = None
        self.record = record

    def check(self, target: TransactionRecord) -> None:
        """What every record must respect, whatever decided it; looked at before it is written."""
        problem = _contradiction(self.record, target)
        if problem:
            raise IllegalTransition(self.transactional_id, self.record.state.name, target.state.name, problem)


def impossible(record: TransactionRecord) -> str | None:
    """Why no coordinator can have written this, if so: whoever went on from it would end in a contradiction."""
    if record.producer_id < 0 or record.producer_epoch < 0:
        return f"no producer has id {record.producer_id} and epoch {record.producer_epoch}"
    next_pair = ProducerPair(record.next_producer_id, max(record.next_producer_epoch, 0))
    if next_pair.producer_id < NO_PRODUCER_ID or (
        next_pair.producer_id == record.producer_id and next_pair.producer_epoch < record.producer_epoch
    ):
        return f"{next_pair} cannot come after producer {record.producer_id} epoch {record.producer_epoch}"
    if record.start_timestamp_ms < 0 and record.state not in AT_REST:
        return f"{record.state.name} without a start time"
    return None


def _contradiction(old: TransactionRecord, new: TransactionRecord) -> str | None:
    if new.producer_id < 0 or not 0 <= new.producer_epoch <= EPOCH_MAX:
        return f"no producer has id {new.producer_id} and epoch {new.producer_epoch}"
    if new.producer_id == old.producer_id and new.producer_epoch < old.producer_epoch:
        return f"the epoch would fall from {old.producer_epoch} to {new.producer_epoch}"
    if new.state in AT_REST:
        if new.partitions:
            return "partitions outside of a transaction"
        if (new.start_timestamp_ms == NO_TIMESTAMP) != (new.state is EMPTY):
            return "a start time only belongs to a transaction"
    elif new.state is ONGOING:
        if old.state is new.state and new.producer_epoch != old.producer_epoch:
            return "the epoch of an open transaction does not change"
        if not new.partitions >= old.partitions:
            return "a partition left an open transaction"
    elif new.partitions is not old.partitions and new.partitions != old.partitions:
        return "the partitions of a transaction do not change when it ends"
    return None
