"""The producer state of one partition: epochs, sequences, the last five batches, open transactions.

Everything that checks or changes this state is in this file. Checks and effects are separate: `check_append` and
`check_marker` accept, recognize duplicates or refuse in Kafka's order and change nothing, so that a failed write has
no side effects; `update` and the `apply_` methods record what was written. The format of producer snapshots is here,
too. Touches no file.
"""

import enum
import struct
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol

from crc32c import crc32c

from fencepost.log.open_transactions import CompletedTransaction, OpenTransactions
from fencepost.ports import Buffer
from fencepost.wire.batch import (
    CONTROL_MASK,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    PRODUCER_EPOCH_MAX,
    SEQUENCE_MAX,
    TRANSACTIONAL_MASK,
    BatchHeader,
    ControlType,
    read_marker,
)
from fencepost.wire.errors import ErrorCode, KafkaError

BATCHES_REMEMBERED_MAX = 5
NO_OFFSET = -1

SNAPSHOT_VERSION = 1
_SNAPSHOT_HEADER = struct.Struct(">hIi")
_SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")
_SNAPSHOT_COVERED = 6
"""Where the part begins that the snapshot's CRC covers."""
LATE_TRANSACTION_BUFFER_MS = 5 * 60 * 1000


class Origin(enum.Enum):
    CLIENT = "client"
    COORDINATOR = "coordinator"
    """Offset commits and markers: no sequences."""
    REPLICATION = "replication"
    """Already checked by a leader: followed, never refused."""


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


class BatchMetadata(NamedTuple):
    """A remembered batch. `timestamp` is its largest."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta

    @property
    def first_sequence(self) -> int:
        return first_sequence_of(self.last_sequence, self.offset_delta)


class CorruptSnapshot(Exception):
    """A producer snapshot that cannot be used; an older one or the log is used instead."""


class VerificationGuard:
    """Identity of one verification; nothing but `is` matters."""

    __slots__ = ()


class VerificationEntry:
    """A transaction that is being verified with the coordinator and has no data here yet."""

    __slots__ = ("epoch", "guard", "lowest_sequence", "supports_epoch_bump", "timestamp_ms")

    def __init__(self, timestamp_ms: int, sequence: int, epoch: int, supports_epoch_bump: bool) -> None:
        self.timestamp_ms = timestamp_ms
        self.guard = VerificationGuard()
        self.lowest_sequence = sequence
        self.epoch = epoch
        self.supports_epoch_bump = supports_epoch_bump

    def note(self, sequence: int, epoch: int) -> None:
        """Remembers the lowest sequence, which must be appended first; a higher epoch starts over."""
        if epoch > self.epoch:
            self.epoch = epoch
            self.lowest_sequence = sequence
        elif epoch == self.epoch and sequence < self.lowest_sequence:
            self.lowest_sequence = sequence


class ProducerEntry:
    """The state of one producer id. Read it freely (DescribeProducers does); only the manager writes."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_txn_first_offset",
        "last_timestamp",
        "next_sequence",
        "producer_epoch",
        "producer_id",
        "transactional_id",
    )

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.transactional_id: str | None = None
        """The transactional id of the producer id, as verified by the coordinator. Not stored: verified again after a
        restart."""
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.coordinator_epoch = -1
        self.last_timestamp = NO_TIMESTAMP
        self.current_txn_first_offset = NO_OFFSET
        self.next_sequence = 0
        # Plain tuples in the order of BatchMetadata: one is made per append.
        self.batches: deque[tuple[int, int, int, int]] = deque(maxlen=BATCHES_REMEMBERED_MAX)

    @property
    def last_sequence(self) -> int:
        return self.batches[-1][0] if self.batches else NO_SEQUENCE

    @property
    def last_data_offset(self) -> int:
        return self.batches[-1][1] if self.batches else NO_OFFSET

    @property
    def last_offset_delta(self) -> int:
        return self.batches[-1][2] if self.batches else 0

    @property
    def has_open_transaction(self) -> bool:
        return self.current_txn_first_offset >= 0

    def batch_metadata(self) -> list[BatchMetadata]:
        return [BatchMetadata(*batch) for batch in self.batches]


def first_sequence_of(last_sequence: int, offset_delta: int) -> int:
    """Sequences count from 0 to 2^31-1 and then from 0 again."""
    if last_sequence < 0:
        return NO_SEQUENCE
    return (last_sequence - offset_delta) & SEQUENCE_MAX


def find_duplicate(entry: ProducerEntry, first_sequence: int, last_sequence: int) -> BatchMetadata | None:
    for batch in entry.batches:
        if batch[0] == last_sequence and first_sequence_of(last_sequence, batch[2]) == first_sequence:
            return BatchMetadata(*batch)
    return None


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
        """The offset at which read_committed consumers stop; None if nothing is undecided."""
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
        return self._check_carefully(header, entry, origin, verification_guard)

    def check_marker(self, marker: Marker) -> None:
        """Whether a coordinator may end this producer's transaction here; KafkaError if not."""
        entry = self.last_entry(marker.producer_id)
        if entry is None:
            return
        current, producer_epoch = entry.producer_epoch, marker.producer_epoch
        if marker.transaction_version >= 2:
            # The coordinator raised the epoch for this marker. The same epoch again is a marker sent twice, or one of a
            # producer whose epoch cannot rise any more.
            repeated = producer_epoch == current and (
                not entry.has_open_transaction or producer_epoch == PRODUCER_EPOCH_MAX
            )
            stale = producer_epoch <= current and not repeated
        else:
            stale = producer_epoch < current
        if stale:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"marker epoch {producer_epoch} of producer {marker.producer_id} in {self.topic_partition} is not above"
                f" the last seen epoch {current} (transaction version {marker.transaction_version})",
            )
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"coordinator epoch {marker.coordinator_epoch} (zombie) of a marker for producer {marker.producer_id}"
                f" in {self.topic_partition} is older than {entry.coordinator_epoch} (current)",
            )

    def _check_carefully(
        self,
        header: BatchHeader,
        entry: ProducerEntry | None,
        origin: Origin,
        guard: VerificationGuard | None,
    ) -> BatchMetadata | None:
        """A batch that is not simply the next one. Returns and raises as `check_append` does."""
        if origin is Origin.CLIENT and entry is not None and entry.producer_epoch == header.producer_epoch:
            duplicate = find_duplicate(entry, header.base_sequence, header.last_sequence)
            if duplicate is not None:
                return duplicate
        if header.is_transactional and not self.has_open_transaction(header.producer_id, header.producer_epoch):
            self._check_epoch(header, entry)
            self._check_verified(header, guard)
        self._check_epoch(header, entry)
        if origin is Origin.CLIENT:
            self._check_sequence(header, entry)
        if entry is not None and entry.current_txn_first_offset >= 0 and not header.is_transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} has a transaction open in {self.topic_partition} since offset "
                f"{entry.current_txn_first_offset}, but sent a batch that is not transactional",
            )
        return None

    def _check_epoch(self, header: BatchHeader, entry: ProducerEntry | None) -> None:
        last_seen = NO_PRODUCER_EPOCH if entry is None else entry.producer_epoch
        if header.producer_epoch < last_seen:
            raise self._older_epoch(header.producer_id, header.producer_epoch, last_seen)

    def _older_epoch(self, producer_id: int, producer_epoch: int, last_seen: int) -> KafkaError:
        return KafkaError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"epoch {producer_epoch} of producer {producer_id} in {self.topic_partition} is older than the last seen "
            f"epoch {last_seen}",
        )

    def _check_verified(self, header: BatchHeader, guard: VerificationGuard | None) -> None:
        if not self.verification_enabled or header.is_control:
            return
        verification = self.verification_entry(header.producer_id)
        if guard is None or verification is None or verification.guard is not guard:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"Record was not part of an ongoing transaction: producer {header.producer_id} epoch "
                f"{header.producer_epoch} has none open in {self.topic_partition} and was not verified",
            )

    def _check_sequence(self, header: BatchHeader, entry: ProducerEntry | None) -> None:
        sequence = header.base_sequence
        verification = self.verification_entry(header.producer_id)
        if verification is not None:
            if verification.supports_epoch_bump and sequence != 0 and (entry is None or not entry.batches):
                raise self._out_of_order(header, "expected sequence 0, nothing of this producer is known")
            if sequence > verification.lowest_sequence:
                raise self._out_of_order(header, f"{verification.lowest_sequence} (earliest seen sequence)")
        if entry is None:
            return  # forgotten by retention or expiry, or new: any sequence will do
        if header.producer_epoch != entry.producer_epoch:
            if sequence != 0:
                raise self._out_of_order(header, f"new epoch, {entry.producer_epoch} (current producer epoch)")
        elif sequence != entry.next_sequence:
            raise self._out_of_order(header, f"{entry.last_sequence} (current end sequence number)")

    def _out_of_order(self, header: BatchHeader, reason: str) -> KafkaError:
        return KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"Out of order sequence number for producer {header.producer_id} epoch {header.producer_epoch} in "
            f"{self.topic_partition}: {header.base_sequence} (incoming seq. number), {reason}",
        )

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
                raise self._older_epoch(producer_id, producer_epoch, entry.producer_epoch)
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
        """Remember a data batch that was written. `timestamp` is its largest, as the log has it."""
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

    def adopt_snapshot(self, offset: int, data: bytes, log_start_offset: int, now_ms: int) -> None:
        """Begin anew with the snapshot of `offset`; the caller replays the log from there. Raises CorruptSnapshot."""
        self.load_snapshot(data, log_start_offset, now_ms)
        self.map_end_offset = self.snapshot_offset = offset

    def reach(self, offset: int) -> None:
        """The log goes on to `offset`, without a producer's batch that is not reflected here."""
        self.map_end_offset = offset

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


# Snapshots


def write_snapshot(entries: Collection[ProducerEntry]) -> bytes:
    """The content of a snapshot file. Only the newest batch of each producer goes into it."""
    content = bytearray(_SNAPSHOT_HEADER.size + len(entries) * _SNAPSHOT_ENTRY.size)
    position = _SNAPSHOT_HEADER.size
    for entry in entries:
        _SNAPSHOT_ENTRY.pack_into(
            content, position, entry.producer_id, entry.producer_epoch, entry.last_sequence, entry.last_data_offset,
            entry.last_offset_delta, entry.last_timestamp, entry.coordinator_epoch, entry.current_txn_first_offset,
        )  # fmt: skip
        position += _SNAPSHOT_ENTRY.size
    _SNAPSHOT_HEADER.pack_into(content, 0, SNAPSHOT_VERSION, 0, len(entries))
    crc = crc32c(memoryview(content)[_SNAPSHOT_COVERED:])
    _SNAPSHOT_HEADER.pack_into(content, 0, SNAPSHOT_VERSION, crc, len(entries))
    return bytes(content)


def read_snapshot(data: bytes) -> list[ProducerEntry]:
    """The entries of a snapshot file. Raises CorruptSnapshot."""
    if len(data) < _SNAPSHOT_HEADER.size:
        raise CorruptSnapshot(f"a producer snapshot of {len(data)} bytes is cut off")
    version, crc, count = _SNAPSHOT_HEADER.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        raise CorruptSnapshot(f"unknown producer snapshot version {version}")
    computed = crc32c(memoryview(data)[_SNAPSHOT_COVERED:])
    if crc != computed:
        raise CorruptSnapshot(f"producer snapshot CRC is {computed:#010x}, stored is {crc:#010x}")
    if count < 0 or len(data) < _SNAPSHOT_HEADER.size + count * _SNAPSHOT_ENTRY.size:
        raise CorruptSnapshot(f"a producer snapshot of {len(data)} bytes cannot hold {count} entries")
    entries = []
    for index in range(count):
        (
            producer_id, epoch, last_sequence, last_offset, offset_delta, timestamp, coordinator_epoch, first_offset,
        ) = _SNAPSHOT_ENTRY.unpack_from(data, _SNAPSHOT_HEADER.size + index * _SNAPSHOT_ENTRY.size)  # fmt: skip
        entry = ProducerEntry(producer_id)
        entry.producer_epoch = epoch
        entry.coordinator_epoch = coordinator_epoch
        entry.last_timestamp = timestamp
        entry.current_txn_first_offset = first_offset if first_offset >= 0 else NO_OFFSET
        if last_offset >= 0:
            entry.batches.append((last_sequence, last_offset, offset_delta, timestamp))
            entry.next_sequence = (last_sequence + 1) & SEQUENCE_MAX
        entries.append(entry)
    return entries
