"""How a decision about a transactional id becomes durable, and how a decided transaction is brought to its end.

Owns the three barriers of a commit, which are never merged: Prepare is durable (then the client is answered), every
marker is durable, Complete is durable. Also what every call needs: finding an id, telling refusals, telling ghosts. It
decides nothing about the protocol; decisions come from init, add and end as the record to be written.
"""

from __future__ import annotations

from collections.abc import Callable

from fencepost.coordinators.context import Caller, Now, Topics
from fencepost.coordinators.runtime import CoordinatorRuntime, Done, Events
from fencepost.coordinators.timers import Timers
from fencepost.coordinators.transactions.end import completed_record
from fencepost.coordinators.transactions.errors import RefusalCause, Refused
from fencepost.coordinators.transactions.events import (
    CallRefused,
    GhostCallDropped,
    GhostProtectionSwitchedOff,
    TransactionResumed,
)
from fencepost.coordinators.transactions.ghosts import Signature
from fencepost.coordinators.transactions.markers import RETRY_BACKOFF_MS, Markers, SendMarkers
from fencepost.coordinators.transactions.metadata import (
    ProducerPair,
    TransactionMetadata,
    TransactionRecord,
)
from fencepost.coordinators.transactions.shard import TransactionShard
from fencepost.coordinators.transactions.transaction_journal import TransactionEntry
from fencepost.coordinators.transactions.transaction_states import COMPLETED_BY, TransactionState
from fencepost.wire.errors import ErrorCode, KafkaError

TransactionRuntime = CoordinatorRuntime[TransactionShard, TransactionEntry]

# A named tuple's own constructor is a Python function; entries are made for every write.
_new_tuple = tuple.__new__

_WRITE_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
# Clients repeat these by themselves; a journal full of them would hide what matters.
_NOT_TOLD = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class Ledger:
    def __init__(
        self,
        runtime: TransactionRuntime,
        partition_for: Callable[[str], int],
        timers: Timers,
        events: Events,
        now: Callable[[], Now],
        topics: Topics,
        send_markers: SendMarkers,
        coordinator_epoch: Callable[[int], int],
        *,
        ghost_protection: bool,
    ) -> None:
        self.runtime = runtime
        self.partition_for = partition_for
        self.timers = timers
        self.events = events
        self.now = now
        self.topics = topics
        self.send_markers = send_markers
        self.coordinator_epoch = coordinator_epoch
        self._ghost_protection = ghost_protection
        self.when_idle: Callable[[TransactionMetadata, Now], None] = lambda metadata, now: None
        self.when_applied: Callable[[TransactionMetadata, Now], None] = lambda metadata, now: None

    # Finding

    def find(self, transactional_id: str) -> TransactionMetadata | None:
        """Raises NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS."""
        shard = self.runtime.machine(self.partition_for(transactional_id))
        return shard.transactions.get(transactional_id)

    def create(self, transactional_id: str, record: TransactionRecord) -> TransactionMetadata:
        partition = self.partition_for(transactional_id)
        metadata = TransactionMetadata(transactional_id, partition, record)
        self.runtime.machine(partition).transactions[transactional_id] = metadata
        return metadata

    def forget(self, metadata: TransactionMetadata) -> None:
        """An id whose first record could not be written."""
        if not metadata.is_abandoned:
            del self.runtime.machine(metadata.partition).transactions[metadata.transactional_id]
            self.abandon(metadata)

    # Writing

    def write(self, metadata: TransactionMetadata, target: TransactionRecord, done: Done, now: Now) -> None:
        """Write the next record of an id; `done` is called when it is durable and applied, or has failed."""
        metadata.begin(target.state)
        self._write_begun(metadata, target, done, now)

    def write_decision(
        self, metadata: TransactionMetadata, target: TransactionRecord, done: Done, now: Now, *, is_fence: bool = False
    ) -> None:
        """Write Prepare*, tell `done` once that is durable, then see the transaction through to its end."""
        if is_fence:
            metadata.begin(TransactionState.PREPARE_EPOCH_FENCE)
        metadata.begin(target.state)

        def prepared(error: ErrorCode, now: Now) -> None:
            if error is not ErrorCode.NONE:
                done(error, now)
                return
            self._begin_completion(metadata)
            done(error, now)
            if not metadata.is_abandoned:
                self._order_markers(metadata, now)

        self._write_begun(metadata, target, prepared, now)

    def _write_begun(self, metadata: TransactionMetadata, target: TransactionRecord, done: Done, now: Now) -> None:
        metadata.check(target)

        def written(error: ErrorCode, now: Now) -> None:
            if error is ErrorCode.NONE:
                self.when_applied(metadata, now)
            else:
                error = _WRITE_ERRORS.get(error, error)
                metadata.cancel()
            done(error, now)
            if metadata.waiters and not metadata.is_busy:
                self.when_idle(metadata, now)

        entry = _new_tuple(TransactionEntry, (metadata.transactional_id, target))
        self.runtime.write(metadata.partition, entry, written, now)

    # Completing

    def resume(self, metadata: TransactionMetadata, now: Now) -> None:
        """Go on with a decided transaction that was loaded from the log."""
        record = metadata.record
        self.events(
            TransactionResumed(
                metadata.transactional_id,
                record.producer_id,
                record.producer_epoch,
                record.state is TransactionState.PREPARE_COMMIT,
                len(record.partitions),
                now.wall_ms,
            )
        )
        self._begin_completion(metadata)
        self._order_markers(metadata, now)

    def _begin_completion(self, metadata: TransactionMetadata) -> None:
        metadata.begin(COMPLETED_BY[metadata.record.state])
        metadata.awaiting_markers = set(metadata.record.partitions)

    def _order_markers(self, metadata: TransactionMetadata, now: Now) -> None:
        if metadata.awaiting_markers:
            Markers(self, metadata).order(metadata.awaiting_markers)
        else:
            self._complete(metadata, now)

    def complete(self, metadata: TransactionMetadata) -> None:
        """Every marker is durable."""
        self._complete(metadata, self.now())

    def _complete(self, metadata: TransactionMetadata, now: Now) -> None:
        target = completed_record(metadata.record, now)
        metadata.check(target)

        def written(error: ErrorCode, now: Now) -> None:
            if error is ErrorCode.NONE:
                self.when_applied(metadata, now)
                if metadata.waiters:
                    self.when_idle(metadata, now)
            elif not metadata.is_abandoned:
                # Whatever the reason, a full disk above all: every marker is there, so it ends as it was decided.
                due_ms = now.monotonic_ms + RETRY_BACKOFF_MS
                self.timers.schedule(
                    ("complete", metadata.transactional_id), due_ms, lambda now: self._complete(metadata, now)
                )

        self.runtime.write(metadata.partition, TransactionEntry(metadata.transactional_id, target), written, now)

    # Giving up

    def abandon(self, metadata: TransactionMetadata) -> None:
        metadata.is_abandoned = True
        for kind in ("markers", "complete", "timeout", "expiry"):
            self.timers.cancel((kind, metadata.transactional_id))
        if metadata.waiters:
            self.when_idle(metadata, self.now())

    # Telling

    def refused(
        self,
        operation: str,
        transactional_id: str,
        metadata: TransactionMetadata | None,
        given: ProducerPair,
        refusal: KafkaError,
        caller: Caller,
        now: Now,
    ) -> None:
        if refusal.code in _NOT_TOLD:
            return
        current = ProducerPair(-1, -1) if metadata is None else metadata.record.client_pair
        is_stale = isinstance(refusal, Refused) and refusal.cause in (
            RefusalCause.STALE_EPOCH,
            RefusalCause.OTHER_PRODUCER_ID,
        )
        self.events(
            CallRefused(
                transactional_id,
                operation,
                refusal.code,
                refusal.cause if isinstance(refusal, Refused) else RefusalCause.INVALID_REQUEST,
                *given,
                *current,
                "" if metadata is None else metadata.record.state.wire_name,
                metadata.fenced_by if metadata is not None and is_stale else None,
                caller.client_id,
                caller.client_host,
                now.wall_ms,
            )
        )

    # Ghosts

    def is_ghost(
        self, metadata: TransactionMetadata, operation: str, given: ProducerPair, caller: Caller, now: Now
    ) -> bool:
        """Whether a call of protocol 1 comes from a connection that its client has replaced; then that is told."""
        guard = metadata.guard
        if not self._ghost_protection or not guard.is_ghost(given, caller.connection_number):
            return False
        self.events(
            GhostCallDropped(
                metadata.transactional_id,
                *given,
                operation,
                caller.connection_number,
                guard.newest_connection,
                caller.client_id,
                caller.client_host,
                now.wall_ms,
            )
        )
        return True

    def admitted(
        self,
        metadata: TransactionMetadata,
        operation: str,
        given: ProducerPair,
        caller: Caller,
        signature: Signature,
        now: Now,
    ) -> None:
        if metadata.guard.admitted(given, caller.connection_number, signature) and self._ghost_protection:
            self.events(
                GhostProtectionSwitchedOff(
                    metadata.transactional_id, operation, caller.client_id, caller.client_host, now.wall_ms
                )
            )
