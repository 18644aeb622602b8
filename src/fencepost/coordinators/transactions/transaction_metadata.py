"""What the coordinator knows of one transactional id, and how its log brings that about.

Everything that moves this state is in this file. `TransactionRecord` is what one record of __transaction_state says.
`TransactionMetadata` holds the current record, which is always the durable one, the one slot for a change that is under
way, and the rest that lives in memory alone. Its record changes only by replay: `TransactionShard.replay`, which the
runtime calls for every record that is loaded or has become durable. (One exception, when loading ends: `catch_up`.)

Nothing is decided here. `decisions` reads this state and returns effects; the coordinator carries them out with the
methods below.
"""

from collections.abc import Callable
from typing import NamedTuple

from fencepost.coordinators.illegal_transition import IllegalTransition
from fencepost.coordinators.transactions.calls import AddCall, ProducerPair
from fencepost.coordinators.transactions.events import FencingCause
from fencepost.coordinators.transactions.ghosts import NO_GHOSTS_SEEN, GhostGuard
from fencepost.coordinators.transactions.transaction_states import (
    AT_REST,
    EMPTY,
    ONGOING,
    PREPARED,
    TRANSITIONS,
    TransactionState,
)
from fencepost.ports import Now
from fencepost.topic_partition import TopicPartition
from fencepost.wire.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, PRODUCER_EPOCH_MAX

EPOCH_EXHAUSTED = PRODUCER_EPOCH_MAX - 1
"""The last epoch that is handed out: the one above it is kept, so that the coordinator can always fence."""
TIMEOUT_NEVER_MS = 2**31 - 1
"""The stored time-out of an id that takes part in an outer two-phase commit."""
NO_TIMESTAMP = -1
PROTOCOL_1 = 0
"""Clients that do not bump their epoch with every transaction; Kafka stores 0 for them."""
PROTOCOL_2 = 2

# A named tuple's own constructor is a Python function; these are made many times a transaction.
_new_tuple = tuple.__new__


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


class TransactionEntry(NamedTuple):
    """The state of a transactional id, or (without a record) its end: a record of the log with its key."""

    transactional_id: str
    record: TransactionRecord | None


class TransactionMetadata:
    __slots__ = (
        "awaiting_markers",
        "fenced_by",
        "guard",
        "is_abandoned",
        "partition",
        "pending_state",
        "record",
        "refused_markers",
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
        self.refused_markers: list[TopicPartition] = []
        """Of those awaited: to be sent again."""
        self.waiters: list[AddCall] = []
        """Adds that came while a change was under way."""
        self.guard = NO_GHOSTS_SEEN
        self.fenced_by: FencingCause | None = None
        """Why epochs before the current one are refused; None if that was before the coordinator started."""
        self.is_abandoned = False
        """The partition is not ours any more, or the id has expired: whatever still comes back for it is too late."""

    @property
    def is_busy(self) -> bool:
        return self.pending_state is not None or self.record.state in PREPARED

    # The slot for a change under way

    def reserve(self, target: TransactionState) -> None:
        """Take the one slot. A transaction that is to be completed waits for the markers of its partitions in it."""
        current = self.record.state
        if self.pending_state is not None:
            if self.pending_state is not TransactionState.PREPARE_EPOCH_FENCE:
                raise IllegalTransition(
                    self.transactional_id, current.name, target.name, f"{self.pending_state.name} is pending"
                )
            current = self.pending_state
        if current not in TRANSITIONS[target]:
            raise IllegalTransition(self.transactional_id, current.name, target.name)
        self.pending_state = target
        if current in PREPARED:
            self.awaiting_markers = set(self.record.partitions)

    def release(self) -> None:
        """The change did not become durable: everything is as it was."""
        self.pending_state = None

    # Replay

    def apply(self, record: TransactionRecord) -> None:
        """The change is durable."""
        if self.pending_state is not record.state:
            pending = "nothing" if self.pending_state is None else self.pending_state.name
            raise IllegalTransition(
                self.transactional_id, self.record.state.name, record.state.name, f"{pending} is pending"
            )
        self.pending_state = None
        self.record = record

    def catch_up(self, record: TransactionRecord) -> None:
        """Partitions have seen a larger epoch than the log contains: go on above it."""
        self.record = record

    # What lives in memory alone

    def count_marker(self, partition: TopicPartition) -> None:
        self.awaiting_markers.discard(partition)

    def note_refused_marker(self, partition: TopicPartition) -> None:
        self.refused_markers.append(partition)

    def forget_refused_markers(self) -> None:
        """They are being sent again."""
        self.refused_markers = []

    def note_fencing(self, cause: FencingCause) -> None:
        self.fenced_by = cause

    def keep_guard(self, guard: GhostGuard) -> None:
        self.guard = guard

    def wait(self, call: "AddCall") -> None:
        self.waiters.append(call)

    def take_waiters(self) -> list[AddCall]:
        waiters, self.waiters = self.waiters, []
        return waiters

    def abandon(self) -> None:
        self.is_abandoned = True

    def check(self, target: TransactionRecord) -> None:
        """What every record must respect, whatever decided it; looked at before it is written."""
        problem = _contradiction(self.record, target)
        if problem:
            raise IllegalTransition(self.transactional_id, self.record.state.name, target.state.name, problem)


def _nothing_to_undo() -> None:
    """What is applied is durable already."""


class TransactionShard:
    """The transactional ids of one partition of __transaction_state: what the runtime replays into."""

    def __init__(
        self,
        partition: int,
        on_loaded: Callable[["TransactionShard", Now], None],
        on_unloaded: Callable[["TransactionShard"], None],
    ) -> None:
        self.partition = partition
        self.transactions: dict[str, TransactionMetadata] = {}
        self._is_loaded = False
        self._on_loaded = on_loaded
        self._on_unloaded = on_unloaded

    def create(self, transactional_id: str, record: TransactionRecord) -> TransactionMetadata:
        """An id that was never used. It exists for others once its first record is durable."""
        metadata = TransactionMetadata(transactional_id, self.partition, record)
        self.transactions[transactional_id] = metadata
        return metadata

    def forget(self, metadata: TransactionMetadata) -> None:
        if self.transactions.get(metadata.transactional_id) is metadata:
            del self.transactions[metadata.transactional_id]

    def replay(self, position: int, producer_id: int, entry: TransactionEntry) -> Callable[[], None]:
        if entry.record is None:
            self.transactions.pop(entry.transactional_id, None)
        elif self._is_loaded:
            self.transactions[entry.transactional_id].apply(entry.record)
        else:
            # The last record of an id says everything: those before it may have been compacted away.
            self.create(entry.transactional_id, entry.record)
        return _nothing_to_undo

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """This topic is never written to in a transaction."""

    def loaded(self, now: Now) -> None:
        self._is_loaded = True
        self._on_loaded(self, now)

    def unloaded(self) -> None:
        self._on_unloaded(self)


def impossible(record: TransactionRecord) -> str | None:
    """Why no coordinator can have written this, if so: going on from it would end in a contradiction."""
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
    if new.producer_id < 0 or not 0 <= new.producer_epoch <= PRODUCER_EPOCH_MAX:
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
