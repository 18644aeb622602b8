"""One segment: a `.log` file with its offset, time and transaction index.

Owns the file and the arrays that index it. Indexes of the active segment live in memory and reach the disk when the
segment is sealed; those of closed segments load on first use. Knows nothing of producers, epochs or watermarks.
"""

from collections.abc import Iterator, Sequence

from fencepost.log.batch_scans import (
    FORWARD_SCAN_BYTES,
    SKIM,
    FoundBatch,
    damaged,
    last_whole_batch,
    read_batches,
    read_headers,
)
from fencepost.log.directory import LogDirectory
from fencepost.log.file_names import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_CHECKSUM_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)
from fencepost.log.indexes import OFFSET_ENTRY_BYTES, RELATIVE_OFFSET_MAX, TIME_ENTRY_BYTES, OffsetIndex, TimeIndex
from fencepost.log.open_transactions import AbortedTransactions
from fencepost.ports import Buffer, File
from fencepost.wire.batch import (
    BATCH_LENGTH_MIN,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    NO_TIMESTAMP,
    BatchHeader,
    verify_crc,
)
from fencepost.wire.errors import KafkaError

_UNKNOWN = -1
_REBUILT_INDEX_INTERVAL_BYTES = 4096
_TAIL_BYTES_MAX = 4 << 20


class Segment:
    __slots__ = (
        "_aborted",
        "_directory",
        "_disk",
        "_file",
        "_first_timestamp",
        "_knows_timestamps",
        "_max_timestamp",
        "_offset_index",
        "_offset_of_max_timestamp",
        "_size",
        "_suffix",
        "_time_index",
        "base_offset",
        "bytes_since_index_entry",
        "created_ms",
        "indexes_dirty",
        "unchecked_from",
        "unchecked_to",
    )

    def __init__(self, directory: LogDirectory, base_offset: int, created_ms: int, suffix: str = "") -> None:
        self._disk = directory.disk
        self._directory = directory
        self._suffix = suffix
        self.base_offset = base_offset
        self.created_ms = created_ms
        self.bytes_since_index_entry = 0
        self.indexes_dirty = False
        """Whether the index files lack something that the arrays have."""
        self.unchecked_from = 0
        self.unchecked_to = RELATIVE_OFFSET_MAX
        """Bytes between the two were found on the disk, and nobody has checked them since. Readers do, once."""
        self._file: File | None = None
        self._size = _UNKNOWN
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._aborted: AbortedTransactions | None = None
        self._max_timestamp = NO_TIMESTAMP
        self._offset_of_max_timestamp = base_offset
        self._knows_timestamps = False
        self._first_timestamp: int | None = None

    @classmethod
    def create(cls, directory: LogDirectory, base_offset: int, now_ms: int, suffix: str = "") -> "Segment":
        """A new, empty segment. An old file of that name is emptied. `suffix` sets one in the making apart."""
        segment = cls(directory, base_offset, now_ms, suffix)
        segment._file = directory.disk.open(segment.log_path, create=True)
        if segment._file.size():
            segment._file.truncate(0)
        segment._size = segment.unchecked_to = 0
        segment.begin_empty()
        return segment

    def begin_empty(self) -> None:
        """There is nothing to index, so nothing to read either."""
        self._offset_index, self._time_index = OffsetIndex(), TimeIndex()
        self._knows_timestamps = True

    # What readers have to check

    def note_checked(self, start: int, end: int) -> None:
        """A reader from the start or at the end narrows what is left; one in between is checked again next time."""
        if start <= self.unchecked_from:
            self.unchecked_from = max(self.unchecked_from, end)
        elif end >= self.unchecked_to:
            self.unchecked_to = start
        if self.unchecked_from >= self.unchecked_to:
            self.note_all_checked()

    def note_all_checked(self) -> None:
        self.unchecked_from = self.unchecked_to = 0

    def bound_unchecked(self) -> None:
        """Only what the file has now was found on the disk; this process writes what follows."""
        self.unchecked_to = min(self.unchecked_to, self.size)

    # Files

    def path_of(self, suffix: str) -> str:
        return f"{self._directory.path}/{self.base_offset:020d}{suffix}{self._suffix}"

    @property
    def log_path(self) -> str:
        return f"{self._directory.path}/{self.base_offset:020d}.log{self._suffix}"

    @property
    def file(self) -> File:
        file = self._file
        if file is None:
            file = self._file = self._disk.open(self.log_path)
        return file

    @property
    def size(self) -> int:
        if self._size == _UNKNOWN:
            self._size = self._disk.size(self.log_path)
        return self._size

    @property
    def offset_index(self) -> OffsetIndex:
        index = self._offset_index
        if index is None:
            index = self._offset_index = OffsetIndex.decode(self._read_if_there(INDEX_SUFFIX), self.size)
        return index

    @property
    def time_index(self) -> TimeIndex:
        index = self._time_index
        if index is None:
            index = self._time_index = TimeIndex.decode(self._read_if_there(TIME_INDEX_SUFFIX))
            self._knows_timestamps = True
            last = index.last()
            if last is not None and last[0] > self._max_timestamp:
                self._max_timestamp, self._offset_of_max_timestamp = last[0], self.base_offset + last[1]
            if not self._ends_with_largest(last):
                self.rebuild_indexes()
                index = self._time_index
        return index

    def offset_before(self, timestamp: int) -> int:
        """An offset before which nothing is later than `timestamp`, from the time index once its entry is checked."""
        relative_offset = self.time_index.lookup(timestamp)
        if relative_offset and self._header_ending_at(relative_offset) is None:
            self.rebuild_indexes()
            relative_offset = self.time_index.lookup(timestamp)
        return self.base_offset + relative_offset

    def _ends_with_largest(self, last: tuple[int, int] | None) -> bool:
        """Whether the last entry of the time index names a batch that is there, and none behind it is later.

        Retention goes by this timestamp: a wrong one would delete what is to be kept.
        """
        position = 0
        if last is not None:
            found = self._header_ending_at(last[1])
            if found is None or found[1].max_timestamp != last[0]:
                return False
            position = found[0]
        elif self.size:
            return False
        return all(
            header.max_timestamp <= self._max_timestamp for _, header in read_headers(self.file, position, self.size)
        )

    def _header_ending_at(self, relative_offset: int) -> tuple[int, BatchHeader] | None:
        """Position and header of the batch whose last offset this is, if there is one."""
        try:
            found = self.find(self.base_offset + relative_offset)
        except KafkaError:
            return None  # not judged here: a reader of this place gets an error
        if found is None:
            return None
        header = BatchHeader._make(HEADER.unpack(self.file.read(found[0], HEADER_BYTES)))
        return (found[0], header) if header.last_offset == self.base_offset + relative_offset else None

    def rebuild_indexes(self) -> None:
        """The offset and time index anew from the batches. The files follow, if the disk has room."""
        self.begin_empty()
        self._max_timestamp, self._offset_of_max_timestamp = NO_TIMESTAMP, self.base_offset
        self.bytes_since_index_entry = 0
        for position, header in read_headers(self.file, 0, self.size):
            if not 0 <= header.last_offset - self.base_offset <= RELATIVE_OFFSET_MAX:
                continue  # damaged: its readers get an error
            self.index_batch(
                position, header.size_bytes, header.last_offset, header.max_timestamp, _REBUILT_INDEX_INTERVAL_BYTES
            )
        try:
            self.write_indexes()
        except OSError:
            pass  # they are right in memory, and will be found wrong again

    @property
    def aborted(self) -> AbortedTransactions:
        aborted = self._aborted
        if aborted is None:
            aborted = self._aborted = AbortedTransactions(self._disk, self.path_of(TRANSACTION_INDEX_SUFFIX))
        return aborted

    @property
    def max_timestamp(self) -> int:
        if not self._knows_timestamps:
            _ = self.time_index
        return self._max_timestamp

    @property
    def offset_of_max_timestamp(self) -> int:
        """Last offset of the batch with the largest timestamp."""
        if not self._knows_timestamps:
            _ = self.time_index
        return self._offset_of_max_timestamp

    def largest_timestamp(self) -> int:
        """What retention goes by: of the records, or of the file where they have none."""
        timestamp = self.max_timestamp
        return timestamp if timestamp >= 0 else self._disk.modified_ms(self.log_path)

    def first_timestamp(self) -> int:
        """Largest timestamp of the first batch, from which `segment.ms` counts; -1 if there is none."""
        if self._first_timestamp is None:
            if self.size < HEADER_BYTES:
                return NO_TIMESTAMP
            self._first_timestamp = BatchHeader._make(HEADER.unpack(self.file.read(0, HEADER_BYTES))).max_timestamp
        return self._first_timestamp

    def _read_if_there(self, suffix: str) -> bytes:
        try:
            return self._disk.read_bytes(self.path_of(suffix))
        except FileNotFoundError:
            return b""

    # Writing

    def append(self, batch: Buffer, size: int, last_offset: int, max_timestamp: int, index_interval_bytes: int) -> int:
        """Write one batch at the end; its position. OSError leaves everything as it was."""
        position = self._size
        (self._file or self.file).write(position, batch)
        self.index_batch(position, size, last_offset, max_timestamp, index_interval_bytes)
        self._size = position + size
        return position

    def append_all(
        self, batches: Sequence[Buffer], size: int, first_offset: int, timestamp: int, index_interval_bytes: int
    ) -> None:
        """Write batches of one record and `size` bytes each with one write. OSError leaves everything as it was."""
        position = self._size
        self.file.write(position, b"".join(batches))
        for offset in range(first_offset, first_offset + len(batches)):
            self.index_batch(position, size, offset, timestamp, index_interval_bytes)
            position += size
        self._size = position

    def index_batch(
        self, position: int, size: int, last_offset: int, max_timestamp: int, index_interval_bytes: int
    ) -> None:
        """Account for a batch that is in the file. The same rule serves appends and recovery, as in Kafka."""
        if max_timestamp > self._max_timestamp:
            self._max_timestamp = max_timestamp
            self._offset_of_max_timestamp = last_offset
        if self._first_timestamp is None and position == 0:
            self._first_timestamp = max_timestamp
        if self.bytes_since_index_entry > index_interval_bytes:
            index = self._offset_index
            assert index is not None
            index.relative_offsets.append(last_offset - self.base_offset)
            index.positions.append(position)
            self.time_index.append(self._max_timestamp, self._offset_of_max_timestamp - self.base_offset)
            self.bytes_since_index_entry = size
        else:
            self.bytes_since_index_entry += size
        self.indexes_dirty = True

    def is_index_full(self, segment_index_bytes: int) -> bool:
        index, times = self._offset_index, self._time_index
        return (index is not None and len(index) >= segment_index_bytes // OFFSET_ENTRY_BYTES) or (
            times is not None and len(times) >= segment_index_bytes // TIME_ENTRY_BYTES - 1
        )

    def write_indexes(self) -> list[str]:
        """Bring the index files up to date; paths of what must be synced for that to last. Seals nothing."""
        if not self.indexes_dirty:
            return []
        written: list[str] = []
        for suffix, data in ((INDEX_SUFFIX, self.offset_index.encode()), (TIME_INDEX_SUFFIX, self._times_with_last())):
            self._disk.write_bytes(self.path_of(suffix), data)
            written.append(self.path_of(suffix))
        if self._aborted is not None and self._aborted.file is not None:
            self._disk.write_bytes(self.path_of(TRANSACTION_CHECKSUM_SUFFIX), self._aborted.checksum())
            written.append(self._aborted.path)
            written.append(self.path_of(TRANSACTION_CHECKSUM_SUFFIX))
        self.indexes_dirty = False
        return written

    def _times_with_last(self) -> bytes:
        """The time index with the largest timestamp as its last entry, as Kafka leaves a closed segment."""
        if self.max_timestamp < 0:
            return self.time_index.encode()
        closing = self.time_index.copy()
        closing.append(self._max_timestamp, self._offset_of_max_timestamp - self.base_offset)
        return closing.encode()

    def note_indexes_lost(self) -> None:
        """What `write_indexes` wrote does not count: the step that it belongs to has failed."""
        self.indexes_dirty = True

    def release_indexes(self) -> None:
        """Forget what can be read again: the indexes of a full segment take five megabytes."""
        if not self.indexes_dirty:
            self._offset_index = self._time_index = None

    def reset_indexes(self) -> None:
        """Forget what the side files say, before recovery accounts for every batch anew."""
        self.begin_empty()
        self._max_timestamp = NO_TIMESTAMP
        self._offset_of_max_timestamp = self.base_offset
        self._first_timestamp = None
        self.bytes_since_index_entry = 0
        self.aborted.reset()
        self.indexes_dirty = True

    def cut_file(self, size: int) -> None:
        """Cut off what recovery found to be no batch; the indexes never knew it."""
        self.file.truncate(size)
        self._size = size

    def truncate_to_position(self, size: int, next_offset: int) -> None:
        """Cut the file at a batch boundary, where `next_offset` would come."""
        self.file.truncate(size)
        self._size = size
        self.unchecked_to = min(self.unchecked_to, size)
        index = self.offset_index
        index.truncate(size)
        self.time_index.truncate(next_offset - self.base_offset)
        self.aborted.truncate_to(next_offset)
        self._max_timestamp, self._offset_of_max_timestamp = NO_TIMESTAMP, self.base_offset
        last = self.time_index.last()
        if last is not None:
            self._max_timestamp, self._offset_of_max_timestamp = last[0], self.base_offset + last[1]
        if size == 0:
            self._first_timestamp = None
        self.account_for_tail()
        self.indexes_dirty = True

    def account_for_tail(self) -> int | None:
        """Take in the batches after the last index entry; the offset after the last, None if the tail is bad."""
        _ = self.time_index
        index = self.offset_index
        position = index.positions[-1] if index.positions else 0
        next_offset = self.base_offset
        end = self.size
        start = position
        for found, header in read_headers(self.file, position, end) if position < end else ():
            if header.max_timestamp > self._max_timestamp:
                self._max_timestamp, self._offset_of_max_timestamp = header.max_timestamp, header.last_offset
            next_offset = header.last_offset + 1
            position = found + header.size_bytes
        self.bytes_since_index_entry = position - start
        return next_offset if position == end else None

    def closed_end_offset(self) -> int | None:
        """The offset after the last batch of a segment that is not written any more, without loading its indexes.

        None if that takes more than a look behind the last index entry, or if what is there is damaged: then readers
        get an error when they come to it.
        """
        start = 0
        try:
            index = self._disk.open(self.path_of(INDEX_SUFFIX))
            try:
                size = index.size()
                if size >= OFFSET_ENTRY_BYTES:
                    last = OffsetIndex.decode(index.read(size - OFFSET_ENTRY_BYTES, OFFSET_ENTRY_BYTES), self.size)
                    start = last.position_at_or_before(self.size)
            finally:
                index.close()
        except FileNotFoundError:
            pass
        if self.size - start > _TAIL_BYTES_MAX:
            return None
        next_offset, position = self.base_offset, start
        for found in read_batches(self.file, start, self.size):
            if found.header.base_offset < next_offset or not verify_crc(found.block, found.start, found.header):
                return None
            next_offset, position = found.header.next_offset, found.position + found.header.size_bytes
        return next_offset if position == self.size else None

    # Reading

    def find(self, offset: int) -> tuple[int, int] | None:
        """Position and base offset of the first batch that ends at or after `offset`; None if all end before."""
        position, expected = self.offset_index.entry_at_or_before(offset - self.base_offset)
        end, file = self.size, self.file
        while position + HEADER_BYTES <= end:
            block = file.read(position, min(FORWARD_SCAN_BYTES, end - position))
            start, last_start = 0, len(block) - HEADER_BYTES
            if last_start < 0:
                return None
            while start <= last_start:
                base_offset, length, last_offset_delta = SKIM.unpack_from(block, start)
                if expected is not None:
                    if base_offset + last_offset_delta != self.base_offset + expected:
                        # The index names a place where no such batch begins.
                        self.rebuild_indexes()
                        return self._find_without_index(offset)
                    expected = None
                if base_offset + last_offset_delta >= offset:
                    return position + start, base_offset
                if length < BATCH_LENGTH_MIN:
                    raise damaged(self.log_path, position + start, f"a batch cannot have {length} bytes")
                start += LOG_OVERHEAD_BYTES + length
            position += start
        if position != end:
            raise damaged(self.log_path, min(position, end), "it does not end with a whole batch")
        return None

    def _find_without_index(self, offset: int) -> tuple[int, int] | None:
        position = 0
        for position, header in read_headers(self.file, 0, self.size):
            if header.last_offset >= offset:
                return position, header.base_offset
        if position + HEADER_BYTES <= self.size:
            header = BatchHeader._make(HEADER.unpack(self.file.read(position, HEADER_BYTES)))
            if position + header.size_bytes != self.size:
                raise damaged(self.log_path, position, "it does not end with a whole batch")
        return None

    def cut(self, block: Buffer, position: int) -> tuple[int, int]:
        """Where the last whole batch in `block`, read from `position`, ends, and the offset after it; (0, -1) if none.

        The index knows a batch start near the end, so that few headers have to be stepped over.
        """
        size = len(block)
        start = max(self.offset_index.position_at_or_before(position + size) - position, 0)
        next_offset = -1
        if start:
            # The entry may name the very end of the block; the batch before it then tells the next offset.
            first = last_whole_batch(block, start, size)
            if first[1] >= 0:
                return first
            start = max(self.offset_index.position_at_or_before(position + start - 1) - position, 0)
        end, next_offset = last_whole_batch(block, start, size)
        return (end, next_offset) if next_offset >= 0 else (0, -1)

    def batches(self, position: int = 0) -> Iterator[FoundBatch]:
        """Whole batches from a batch boundary on, CRC unchecked."""
        return read_batches(self.file, position, self.size)

    # The end

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        if self._aborted is not None:
            self._aborted.close()

    def retire(self) -> None:
        """Its files go, here or with their whole directory: give them up, even while they are being synced."""
        if self._file is not None:
            self._file.retire()
        if self._aborted is not None:
            self._aborted.retire()

    def rename_files(self, suffix: str) -> None:
        """Give every file another suffix: a compacted segment on its way into the log. The log file goes last."""
        self.close()
        old_suffix = self._suffix
        for kind in reversed(SEGMENT_SUFFIXES):
            self._suffix = old_suffix
            source = self.path_of(kind)
            self._suffix = suffix
            try:
                self._disk.rename(source, self.path_of(kind))
            except FileNotFoundError:
                continue
        self._aborted = None

    def delete(self, *, keep_snapshot: bool = False, set_aside: str | None = None) -> None:
        """Remove every file, the producer snapshot at its base too. The log goes first, under another name.

        `set_aside` is the path at which the log itself stays, out of use.
        """
        self.retire()
        disk = self._disk
        if set_aside is not None:
            disk.rename(self.log_path, set_aside)
        else:
            deleted = self.log_path + DELETED_SUFFIX
            disk.rename(self.log_path, deleted)
            disk.remove(deleted)
        for suffix in SEGMENT_SUFFIXES[1:] if keep_snapshot else (*SEGMENT_SUFFIXES[1:], SNAPSHOT_SUFFIX):
            try:
                disk.remove(self.path_of(suffix))
            except FileNotFoundError:
                continue

    def discard(self) -> None:
        """Remove the files of one that was never finished."""
        self.retire()
        for suffix in SEGMENT_SUFFIXES:
            try:
                self._disk.remove(self.path_of(suffix))
            except FileNotFoundError:
                continue
