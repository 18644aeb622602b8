"""What one partition remembers of its producers: epochs, sequences, the last five batches, open transactions.

Checks and effects are apart: `check_append` and `producer_checks.check_marker` change nothing, so that a write that
fails leaves no trace; `update` and `apply_control` record what was written. Touches no file.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from fencepost.log.open_transactions import CompletedTransaction, OpenTransactions
from fencepost.log.producer_checks import Origin, check_carefully, older_epoch
from fencepost.log.producer_entries import (
    NO_OFFSET,
    BatchMetadata,
    CorruptSnapshot,
    ProducerEntry,
    VerificationEntry,
    VerificationGuard,
    read_snapshot,
    write_snapshot,
)
from fencepost.ports import Buffer
from fencepost.wire.batch import (
    CONTROL_MASK,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    SEQUENCE_MAX,
    TRANSACTIONAL_MASK,
    BatchHeader,
    ControlType,
    read_marker,
)

__all__ = [
    "BatchMetadata",
    "CompletedTransaction",
    "CorruptSnapshot",
    "Marker",
    "Origin",
    "ProducerEntry",
    "ProducerStateManager",
    "VerificationEntry",
    "VerificationGuard",
    "read_snapshot",
]

LATE_TRANSACTION_BUFFER_MS = 5 * 60 * 1000


class Marker(Protocol):
    """What ends a producer's transaction in a partition."""

    @property
    def producer_id(self) -> int: ...
    @property
    def producer_epoch(self) -> int: ...
    @property
    def coordinator_epoch(self) -> int: ...
    @property
    def is_commit(self) -> bool: ...
    @property
    def transaction_version(self) -> int: ...


class ProducerStateManager:
    __slots__ = (
        "_producers",
        "_verifications",
        "map_end_offset",
        "producer_id_expiration_ms",
        "snapshot_offset",
        "topic_partition",
        "transactions",
        "verification_enabled",
    )

    def __init__(
        self, topic_partition: str, producer_id_expiration_ms: int, *, verification_enabled: bool = True
    ) -> None:
        self.topic_partition = topic_partition
        self.producer_id_expiration_ms = producer_id_expiration_ms
        self.verification_enabled = verification_enabled
        self.transactions = OpenTransactions()
        self.map_end_offset = 0
        """Everything below is reflected here."""
        self.snapshot_offset = 0
        """Offset of the newest snapshot taken or loaded; one at the same offset would say nothing new."""
        self._producers: dict[int, ProducerEntry] = {}
        self._verifications: dict[int, VerificationEntry] = {}

    # Reading

    @property
    def producers(self) -> Mapping[int, ProducerEntry]:
        return MappingProxyType(self._producers)

    @property
    def is_empty(self) -> bool:
        return not self._producers and self.transactions.is_empty

    def last_entry(self, producer_id: int) -> ProducerEntry | None:
        return self._producers.get(producer_id)

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        entry = self._producers.get(producer_id)
        return entry is not None and entry.current_txn_first_offset >= 0 and entry.producer_epoch == producer_epoch

    def first_unstable_offset(self, high_watermark: int, log_start_offset: int) -> int | None:
        """Readers of committed data stop here; None if nothing is undecided."""
        transactions = self.transactions
        if transactions.is_empty:
            return None
        transactions.on_high_watermark(high_watermark)
        first = transactions.first_unstable_offset()
        return first if first is None or first > log_start_offset else log_start_offset

    def first_undecided_offset(self) -> int | None:
        """Compaction stops here."""
        return self.transactions.first_undecided_offset()

    def has_late_transaction(self, now_ms: int, max_transaction_timeout_ms: int) -> bool:
        oldest = self.transactions.oldest()
        entry = None if oldest is None else self._producers.get(oldest[1])
        if entry is None or entry.last_timestamp <= 0:
            return False
        return now_ms - entry.last_timestamp > max_transaction_timeout_ms + LATE_TRANSACTION_BUFFER_MS

    # Before a write

    def check_append(
        self, header: BatchHeader, origin: Origin, verification_guard: VerificationGuard | None = None
    ) -> BatchMetadata | None:
        """None: write it. A value: it was written before, answer with that. KafkaError: refuse it."""
        producer_id = header.producer_id
        entry = self._producers.get(producer_id)
        if (
            entry is not None
            and entry.next_sequence == header.base_sequence
            and entry.producer_epoch == header.producer_epoch
        ):
            is_transactional = header.attributes & TRANSACTIONAL_MASK != 0
            verification = self._verifications.get(producer_id)
            if verification is None:
                if is_transactional == (entry.current_txn_first_offset >= 0):
                    return None
            elif (
                is_transactional
                and (entry.batches or header.base_sequence == 0)
                and verification.guard is verification_guard
                and header.base_sequence <= verification.lowest_sequence
            ):
                return None
        if producer_id == NO_PRODUCER_ID or origin is Origin.REPLICATION:
            return None
        return check_carefully(self, header, entry, origin, verification_guard)

    # Verification

    def maybe_start_verification(
        self,
        transactional_id: str,
        producer_id: int,
        sequence: int,
        producer_epoch: int,
        supports_epoch_bump: bool,
        now_ms: int,
    ) -> VerificationGuard | None:
        """The guard to hold while the coordinator is asked; None if this id's transaction is known to be open here.

        A transaction that is open is no answer to whose it is: a batch that names another transactional id than the
        one that was verified, or the first one after a restart, is asked about again.
        """
        entry = self._producers.get(producer_id)
        if entry is not None:
            if producer_epoch < entry.producer_epoch:
                raise older_epoch(self, producer_id, producer_epoch, entry)
            if entry.current_txn_first_offset >= 0 and entry.producer_epoch == producer_epoch:
                return None if entry.transactional_id == transactional_id else VerificationGuard()
        verification = self._verifications.get(producer_id)
        if verification is None:
            verification = VerificationEntry(now_ms, sequence, producer_epoch, supports_epoch_bump)
            self._verifications[producer_id] = verification
        else:
            verification.note(sequence, producer_epoch)
        return verification.guard

    def verified(self, producer_id: int, transactional_id: str) -> None:
        """The coordinator has agreed and the batch was taken: the producer id is this transactional id's."""
        entry = self._producers.get(producer_id)
        if entry is not None:
            entry.transactional_id = transactional_id

    def verification_entry(self, producer_id: int) -> VerificationEntry | None:
        return self._verifications.get(producer_id)

    # After a write

    def update(self, header: BatchHeader, first_offset: int, last_offset: int, timestamp: int) -> None:
        """Remember a data batch that was written. `timestamp` is its largest, as it stands in the log."""
        self.map_end_offset = last_offset + 1
        producer_id = header.producer_id
        if producer_id == NO_PRODUCER_ID:
            return
        entry = self._producers.get(producer_id)
        if entry is None:
            entry = self._producers[producer_id] = ProducerEntry(producer_id)
        if entry.producer_epoch != header.producer_epoch:
            entry.batches.clear()
            entry.producer_epoch = header.producer_epoch
        sequence = header.base_sequence
        last_sequence = NO_SEQUENCE if sequence < 0 else (sequence + header.last_offset_delta) & SEQUENCE_MAX
        entry.batches.append((last_sequence, last_offset, last_offset - first_offset, timestamp))
        entry.next_sequence = (last_sequence + 1) & SEQUENCE_MAX
        entry.last_timestamp = timestamp
        if header.attributes & TRANSACTIONAL_MASK:
            self._verifications.pop(producer_id, None)
            if entry.current_txn_first_offset < 0:
                entry.current_txn_first_offset = first_offset
                self.transactions.begin(first_offset, producer_id)

    def apply_control(
        self, header: BatchHeader, control_type: int, coordinator_epoch: int, offset: int
    ) -> CompletedTransaction | None:
        """Record a marker that was written at `offset`; the transaction it ended, if one was open."""
        return self.apply_marker(
            control_type, header.producer_id, header.producer_epoch, coordinator_epoch, offset, header.max_timestamp
        )

    def apply_marker(
        self,
        control_type: int,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        offset: int,
        timestamp: int,
    ) -> CompletedTransaction | None:
        self.map_end_offset = offset + 1
        first_offset = self._end_transaction(producer_id, producer_epoch, coordinator_epoch, timestamp)
        if first_offset < 0:
            return None
        last_stable_offset = self.transactions.complete(first_offset, offset)
        return CompletedTransaction(
            producer_id, first_offset, offset, control_type == ControlType.ABORT, last_stable_offset
        )

    def apply_commits(self, markers: Sequence[Marker], first_marker_offset: int, timestamp: int) -> None:
        """Record commits of several producers that were written one after the other."""
        self.map_end_offset = first_marker_offset + len(markers)
        complete = self.transactions.complete
        for offset, marker in enumerate(markers, first_marker_offset):
            first_offset = self._end_transaction(
                marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, timestamp
            )
            if first_offset >= 0:
                complete(first_offset, offset)

    def _end_transaction(self, producer_id: int, producer_epoch: int, coordinator_epoch: int, timestamp: int) -> int:
        """What a marker of either kind changes of its producer; where the transaction began, -1 if none was open."""
        verification = self._verifications.get(producer_id)
        # With a raised epoch in the marker, an entry of that epoch belongs to the transaction that follows.
        if verification is not None and not (verification.supports_epoch_bump and verification.epoch == producer_epoch):
            del self._verifications[producer_id]
        entry = self._producers.get(producer_id)
        if entry is None:
            entry = self._producers[producer_id] = ProducerEntry(producer_id)
        first_offset = entry.current_txn_first_offset
        if entry.producer_epoch != producer_epoch:
            entry.batches.clear()
            entry.next_sequence = 0
            entry.producer_epoch = producer_epoch
        entry.coordinator_epoch = coordinator_epoch
        entry.last_timestamp = timestamp
        entry.current_txn_first_offset = NO_OFFSET
        return first_offset

    def replay_batch(self, buffer: Buffer, position: int, header: BatchHeader) -> CompletedTransaction | None:
        """Follow a batch that is in the log already (recovery, replication): nothing is refused."""
        self.map_end_offset = header.last_offset + 1
        if header.producer_id == NO_PRODUCER_ID:
            return None
        if not header.attributes & CONTROL_MASK:
            self.update(header, header.base_offset, header.last_offset, header.max_timestamp)
            return None
        # Compaction empties the marker of a transaction that has left the log.
        marker = read_marker(buffer, position) if header.record_count else None
        if marker is None:
            return None
        return self.apply_control(header, marker.control_type, marker.coordinator_epoch, header.base_offset)

    def on_high_watermark(self, high_watermark: int) -> None:
        self.transactions.on_high_watermark(high_watermark)

    # Forgetting

    def remove_expired(self, now_ms: int) -> int:
        """Forget producers and verifications idle for too long, never one with an open transaction; how many."""
        limit_ms = now_ms - self.producer_id_expiration_ms
        expired = [entry.producer_id for entry in self._producers.values() if _is_expired(entry, limit_ms)]
        for producer_id in expired:
            del self._producers[producer_id]
        lingering = [
            producer_id for producer_id, entry in self._verifications.items() if entry.timestamp_ms <= limit_ms
        ]
        for producer_id in lingering:
            del self._verifications[producer_id]
        return len(expired)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Forget everything; the log begins anew at `offset`. The caller deletes the snapshots."""
        self._clear()
        self.snapshot_offset = 0
        self.map_end_offset = offset

    def truncate_and_reload(
        self, log_start_offset: int, log_end_offset: int, now_ms: int, snapshot: tuple[int, bytes] | None
    ) -> bool:
        """Adopt the newest good snapshot at or below `log_end_offset`, given with its offset; None if there is none.

        True: the state was rebuilt and the caller replays the log from `map_end_offset` on. False: the state reaches
        exactly to `log_end_offset` and was kept. Raises CorruptSnapshot; then call again with an older one.
        """
        if log_end_offset == self.map_end_offset:
            self.on_log_start_offset(log_start_offset)
            return False
        if snapshot is None:
            self._clear()
            self.map_end_offset = self.snapshot_offset = log_start_offset
        else:
            self.load_snapshot(snapshot[1], log_start_offset, now_ms)
            self.map_end_offset = self.snapshot_offset = snapshot[0]
        return True

    def on_log_start_offset(self, log_start_offset: int) -> None:
        """Records below are gone. Producers stay known; transactions completed below are decided."""
        self.transactions.on_high_watermark(log_start_offset)
        if self.map_end_offset < log_start_offset:
            self.map_end_offset = log_start_offset

    def _clear(self) -> None:
        self._producers.clear()
        self._verifications.clear()
        self.transactions.clear()

    # Snapshots

    def take_snapshot(self) -> bytes:
        """The content of `<map_end_offset>.snapshot`. Only the newest batch of each producer survives in it."""
        self.snapshot_offset = self.map_end_offset
        return write_snapshot(self._producers.values())

    def load_snapshot(self, data: bytes, log_start_offset: int, now_ms: int) -> None:
        """Replace the state by a snapshot's, without producers that have expired. Raises CorruptSnapshot, unchanged."""
        entries = read_snapshot(data)
        self._clear()
        limit_ms = now_ms - self.producer_id_expiration_ms
        for entry in sorted(entries, key=_first_offset):
            if _is_expired(entry, limit_ms):
                continue
            self._producers[entry.producer_id] = entry
            if entry.has_open_transaction:
                self.transactions.begin(entry.current_txn_first_offset, entry.producer_id)
        self.on_log_start_offset(log_start_offset)


def _is_expired(entry: ProducerEntry, limit_ms: int) -> bool:
    return entry.current_txn_first_offset < 0 and entry.last_timestamp <= limit_ms


def _first_offset(entry: ProducerEntry) -> int:
    return entry.current_txn_first_offset
