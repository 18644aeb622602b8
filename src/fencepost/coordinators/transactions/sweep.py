"""What happens to transactional ids by the passing of time: open transactions time out, idle ids expire.

Records carry wall-clock times, as Kafka's do, but a wall clock may jump. Deadlines are therefore kept in memory on the
monotonic clock, counted from when a transaction began here, or from what was left of its time when it was loaded. They
lie in a heap and are met at Kafka's two sweep intervals: ten thousand ids that do nothing cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from fencepost.config import BrokerConfig
from fencepost.coordinators.context import Caller, Now
from fencepost.coordinators.runtime import Written
from fencepost.coordinators.transactions.end import fenced_record
from fencepost.coordinators.transactions.events import (
    AbortCause,
    FencingCause,
    ProducerFenced,
    TransactionAborted,
    TransactionalIdsExpired,
    TransactionTimedOut,
)
from fencepost.coordinators.transactions.ledger import Ledger
from fencepost.coordinators.transactions.metadata import TransactionMetadata, TransactionRecord
from fencepost.coordinators.transactions.transaction_journal import TransactionEntry
from fencepost.coordinators.transactions.transaction_states import AT_REST, ONGOING, TransactionState
from fencepost.wire.errors import ErrorCode

TIMEOUT_TIMER = "timeout"
EXPIRY_TIMER = "expiry"
_TOMBSTONES_TIMER = ("tombstones",)
TOMBSTONES_PER_WRITE_MAX = 1_000

BROKER_ITSELF = Caller("", "")

_ABORTED_AS = {
    FencingCause.TAKEOVER: AbortCause.TAKEOVER,
    FencingCause.SELF: AbortCause.SELF,
    FencingCause.TIMEOUT: AbortCause.TIMEOUT,
    FencingCause.NEVER_PREPARED: AbortCause.NEVER_PREPARED,
}


def fence_and_abort(
    ledger: Ledger,
    metadata: TransactionMetadata,
    target: TransactionRecord,
    cause: FencingCause,
    caller: Caller,
    done: Callable[[ErrorCode, Now], None],
    now: Now,
) -> None:
    """Abort an open transaction without its client, and shut that client out."""
    old = metadata.record

    def prepared(error: ErrorCode, now: Now) -> None:
        if error is ErrorCode.NONE:
            metadata.fenced_by = cause
            tell_abort(ledger, metadata.transactional_id, old, target, _ABORTED_AS[cause], caller, now)
            tell_fencing(ledger, metadata.transactional_id, old, target, cause, caller, now)
        done(error, now)

    ledger.write_decision(metadata, target, prepared, now, is_fence=True)


def tell_abort(
    ledger: Ledger,
    transactional_id: str,
    old: TransactionRecord,
    new: TransactionRecord,
    cause: AbortCause,
    caller: Caller,
    now: Now,
) -> None:
    ledger.events(
        TransactionAborted(
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
    )


def tell_fencing(
    ledger: Ledger,
    transactional_id: str,
    old: TransactionRecord,
    new: TransactionRecord,
    cause: FencingCause,
    caller: Caller,
    now: Now,
) -> None:
    ledger.events(
        ProducerFenced(
            transactional_id,
            *old.client_pair,
            *new.client_pair,
            cause,
            caller.client_id,
            caller.client_host,
            now.wall_ms,
        )
    )


class Sweep:
    def __init__(self, config: BrokerConfig, ledger: Ledger, transaction_version: Callable[[], int]) -> None:
        self._ledger = ledger
        self._timers = ledger.timers
        self._transaction_version = transaction_version
        self._timeout_interval_ms = config.transaction_abort_timed_out_transaction_cleanup_interval_ms
        self._expiry_interval_ms = config.transaction_remove_expired_transaction_cleanup_interval_ms
        self._expiration_ms = config.transactional_id_expiration_ms
        self._unprepared_timeout_ms = config.transaction_two_phase_commit_unprepared_timeout_ms
        self._expired: list[TransactionMetadata] = []
        ledger.when_applied = self.applied

    def applied(self, metadata: TransactionMetadata, now: Now) -> None:
        """A record became durable: what is its id waiting for now?"""
        record = metadata.record
        if record.state is ONGOING:
            key = (TIMEOUT_TIMER, metadata.transactional_id)
            limit_ms = self._time_limit_ms(record)
            if limit_ms is None:
                self._timers.cancel(key)
            elif key not in self._timers:
                self._schedule_timeout(metadata, now.monotonic_ms + limit_ms)
        elif record.state in AT_REST:
            self._schedule_expiry(metadata, now.monotonic_ms + self._expiration_ms)
        else:
            self._timers.cancel((TIMEOUT_TIMER, metadata.transactional_id))

    def loaded(self, metadata: TransactionMetadata, now: Now) -> None:
        """Count from the times in the record, but never longer than the full time from now."""
        record = metadata.record
        if record.state is ONGOING:
            limit_ms = self._time_limit_ms(record)
            if limit_ms is not None:
                left_ms = record.start_timestamp_ms + limit_ms - now.wall_ms
                self._schedule_timeout(metadata, now.monotonic_ms + min(max(left_ms, 0), limit_ms))
        elif record.state in AT_REST:
            left_ms = record.last_update_timestamp_ms + self._expiration_ms - now.wall_ms
            self._schedule_expiry(metadata, now.monotonic_ms + min(max(left_ms, 0), self._expiration_ms))

    # Time-outs

    def _time_limit_ms(self, record: TransactionRecord) -> int | None:
        if not record.is_two_phase:
            return record.timeout_ms
        if record.is_kept or not self._unprepared_timeout_ms:
            return None
        return self._unprepared_timeout_ms

    def _schedule_timeout(self, metadata: TransactionMetadata, deadline_ms: int) -> None:
        # Not at the deadline itself: a transaction as old as its time-out has not outlived it yet.
        due_ms = _next_sweep(deadline_ms + 1, self._timeout_interval_ms)
        key = (TIMEOUT_TIMER, metadata.transactional_id)
        self._timers.schedule(key, due_ms, lambda now: self._time_out(metadata, now))

    def _time_out(self, metadata: TransactionMetadata, now: Now) -> None:
        record = metadata.record
        if metadata.is_abandoned or record.state is not ONGOING:
            return
        if metadata.pending_state is not None:
            # Whoever is at it may end it; if not, the next sweep looks again.
            self._schedule_timeout(metadata, now.monotonic_ms)
            return
        target = fenced_record(record, now, self._transaction_version())
        cause = FencingCause.NEVER_PREPARED if record.is_two_phase else FencingCause.TIMEOUT

        def done(error: ErrorCode, now: Now) -> None:
            if error is ErrorCode.NONE:
                self._tell_timeout(metadata, record, now)
            elif not metadata.is_abandoned and metadata.record.state is ONGOING:
                self._schedule_timeout(metadata, now.monotonic_ms)

        fence_and_abort(self._ledger, metadata, target, cause, BROKER_ITSELF, done, now)

    def _tell_timeout(self, metadata: TransactionMetadata, record: TransactionRecord, now: Now) -> None:
        self._ledger.events(
            TransactionTimedOut(
                metadata.transactional_id,
                record.producer_id,
                record.producer_epoch,
                self._time_limit_ms(record) or record.timeout_ms,
                max(0, now.wall_ms - record.start_timestamp_ms),
                record.is_two_phase,
                now.wall_ms,
            )
        )

    # Expiry

    def _schedule_expiry(self, metadata: TransactionMetadata, deadline_ms: int) -> None:
        due_ms = _next_sweep(deadline_ms, self._expiry_interval_ms)
        key = (EXPIRY_TIMER, metadata.transactional_id)
        self._timers.schedule(key, due_ms, lambda now: self._idle_for_too_long(metadata, now))

    def _idle_for_too_long(self, metadata: TransactionMetadata, now: Now) -> None:
        if metadata.is_abandoned or metadata.record.state not in AT_REST:
            return  # it comes back here after its transaction
        if metadata.pending_state is not None:
            # The change that is under way may fail, and would leave the id as idle as it was.
            self._schedule_expiry(metadata, now.monotonic_ms + 1)
            return
        self._expired.append(metadata)
        self._timers.schedule(_TOMBSTONES_TIMER, now.monotonic_ms, self._write_tombstones)

    def _write_tombstones(self, now: Now) -> None:
        expired, self._expired = self._expired, []
        by_partition: dict[int, list[TransactionMetadata]] = {}
        for metadata in expired:
            if metadata.is_abandoned:
                continue
            if metadata.is_busy:
                self._schedule_expiry(metadata, now.monotonic_ms + 1)
            else:
                by_partition.setdefault(metadata.partition, []).append(metadata)
        for partition, ids in by_partition.items():
            for first in range(0, len(ids), TOMBSTONES_PER_WRITE_MAX):
                self._bury(partition, ids[first : first + TOMBSTONES_PER_WRITE_MAX])

    def _bury(self, partition: int, ids: list[TransactionMetadata]) -> None:
        for metadata in ids:
            metadata.begin(TransactionState.DEAD)

        def written(outcome: Written) -> None:
            for metadata in ids:
                if outcome.error is ErrorCode.NONE:
                    self._ledger.abandon(metadata)
                else:
                    metadata.cancel()
                    if not metadata.is_abandoned:
                        self._schedule_expiry(metadata, outcome.now.monotonic_ms + 1)
                        self._ledger.when_idle(metadata, outcome.now)
            if outcome.error is ErrorCode.NONE:
                names = tuple(metadata.transactional_id for metadata in ids)
                self._ledger.events(TransactionalIdsExpired(partition, names, outcome.now.wall_ms))

        entries = [TransactionEntry(metadata.transactional_id, None) for metadata in ids]
        self._ledger.runtime.schedule_write(partition, entries).then(written)


def _next_sweep(deadline_ms: int, interval_ms: int) -> int:
    return -(-deadline_ms // interval_ms) * interval_ms
