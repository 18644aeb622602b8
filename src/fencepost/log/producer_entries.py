"""The state of one producer id in one partition, and the producer snapshot file that keeps it.

Values and their format only: what may change them, and when, is `log.producers`.
"""

import struct
from collections import deque
from collections.abc import Collection
from typing import NamedTuple

from crc32c import crc32c

from fencepost.wire.batch import NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP, SEQUENCE_MAX

BATCHES_REMEMBERED_MAX = 5
NO_OFFSET = -1

SNAPSHOT_VERSION = 1
_SNAPSHOT_HEADER = struct.Struct(">hIi")
_SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")
_SNAPSHOT_COVERED = 6
"""Where the part begins that the snapshot's CRC covers."""


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
    """A producer snapshot that cannot be used; an older one, or the log alone, must do."""


class VerificationGuard:
    """Identity of one verification; nothing but `is` matters."""

    __slots__ = ()


class VerificationEntry:
    """A transaction that the coordinator was asked about and that has no data here yet."""

    __slots__ = ("epoch", "guard", "lowest_sequence", "supports_epoch_bump", "timestamp_ms")

    def __init__(self, timestamp_ms: int, sequence: int, epoch: int, supports_epoch_bump: bool) -> None:
        self.timestamp_ms = timestamp_ms
        self.guard = VerificationGuard()
        self.lowest_sequence = sequence
        self.epoch = epoch
        self.supports_epoch_bump = supports_epoch_bump

    def note(self, sequence: int, epoch: int) -> None:
        """A lower sequence must still get in first; a higher epoch starts over."""
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
        """Whose producer id it is, by the coordinator's word. In no file: after a restart it is asked again."""
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
