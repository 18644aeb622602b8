"""The segments of one log: their list, the one that is written, and the positions of offsets in them.

Owns the list and every change of it (begin, drop, swap), the hints that save sequential readers and watermarks a
search, and which closed segments keep their indexes in memory. Knows only offsets and files, nothing of producers or
watermarks. Changes of the list that must be synced are recorded in `Unsynced`.

Data found on disk is checked once, before it is first returned: after a clean stop nothing has read the segments since
another process wrote them, and after a crash recovery has read only the last ones. A damaged batch is refused with
CORRUPT_MESSAGE and everything around it is served. Data written by this process is not checked again.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple, overload

from fencepost.log.batch_scans import damaged
from fencepost.log.directory import LogDirectory
from fencepost.log.file_names import SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX, SWAP_SUFFIX
from fencepost.log.segment import Segment
from fencepost.log.unsynced import Unsynced, WrittenFile
from fencepost.ports import Buffer, File
from fencepost.wire.batch import (
    BATCH_LENGTH_MIN,
    CURRENT_MAGIC,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    BatchHeader,
    verify_crc,
)
from fencepost.wire.errors import KafkaError

_HINTS_MAX = 128
_INDEXES_HELD_MAX = 4
EMPTY_RECORDS = b""
# Smaller reads are so quick that it is not checked whether they are in memory.
_QUICK_READ_BYTES_MAX = 65_536


class ReadResult(NamedTuple):
    records: Buffer
    """Whole batches; the first may begin before the offset asked for."""
    next_offset: int
    """The offset at which reading continues."""


class NotInMemory(Exception):
    """A read would have to wait for the disk, which the caller does not want. After loading, it can be repeated."""

    def __init__(self, file: File, position: int, count: int) -> None:
        super().__init__(f"{count} bytes at {position} of {file.path} are not in memory")
        self.size_bytes = count
        self.load = partial(file.load, position, count)


class Segments(Sequence[Segment]):
    __slots__ = ("_base_offsets", "_directory", "_hints", "_indexed", "_list", "_unsynced", "active")

    def __init__(self, directory: LogDirectory, unsynced: Unsynced) -> None:
        self._directory = directory
        self._unsynced = unsynced
        self._list: list[Segment] = []
        self._base_offsets: list[int] = []
        self._hints: dict[int, tuple[Segment, int]] = {}
        self._indexed: dict[Segment, None] = {}
        self.active: Segment
        """The last segment, which is being written."""

    @overload
    def __getitem__(self, at: int) -> Segment: ...
    @overload
    def __getitem__(self, at: slice) -> list[Segment]: ...
    def __getitem__(self, at: int | slice) -> Segment | list[Segment]:
        return self._list[at]

    def __len__(self) -> int:
        return len(self._list)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._list)

    @property
    def base_offsets(self) -> Sequence[int]:
        return self._base_offsets

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._list)

    def end_offset_of(self, segment: Segment, log_end_offset: int) -> int:
        """The base offset of the next segment, or the log end."""
        at = bisect_right(self._base_offsets, segment.base_offset)
        return self._base_offsets[at] if at < len(self._base_offsets) else log_end_offset

    def from_offset(self, offset: int) -> list[Segment]:
        """The segment that contains or would contain `offset`, and all later ones."""
        return self._list[max(bisect_right(self._base_offsets, offset) - 1, 0) :]

    # Changing the list

    def adopt(self, found: list[Segment]) -> None:
        """Sets the segments found on disk, in order."""
        self._list = found
        self._base_offsets = [segment.base_offset for segment in found]
        self.active = found[-1]

    def begin(self, base_offset: int, now_ms: int) -> Segment:
        """A new segment at the end, which is written from now on. OSError leaves everything as it was."""
        segment = Segment.create(self._directory, base_offset, now_ms)
        self._list.append(segment)
        self._base_offsets.append(base_offset)
        self.active = segment
        self._unsynced.note_names()
        return segment

    def seal(self, segment: Segment, log_end_offset: int) -> None:
        """Seals a segment: the next one begins at the current log end."""
        # A reader at the old end continues in the new segment.
        self._hints.pop(log_end_offset, None)
        self.hold_indexes(segment)

    def drop(self, segment: Segment, set_aside: str | None = None) -> None:
        """Take a segment out of the list and remove its files; its log may be set aside instead."""
        at = self._list.index(segment)
        del self._list[at]
        del self._base_offsets[at]
        if self._list:
            self.active = self._list[-1]
        self._hints.clear()
        self._indexed.pop(segment, None)
        for suffix in (*SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX):
            self._unsynced.forget(segment.path_of(suffix))
        segment.delete(set_aside=set_aside)
        self._unsynced.note_names()

    def swap(self, old: Sequence[Segment], cleaned: Sequence[Segment]) -> None:
        """Replaces segments by their compacted versions; none is the active one.

        The new ones are durable before the originals are deleted. A crash at any point leaves the old or the new ones:
        recovery completes an interrupted swap.
        """
        disk = self._directory.disk
        for segment in cleaned:
            segment.file.sync()
            for path in segment.write_indexes():
                WrittenFile(disk, path).sync()
        for segment in reversed(cleaned):
            segment.rename_files(SWAP_SUFFIX)
        self._directory.sync()
        at = self._list.index(old[0])
        self._list[at : at + len(old)] = list(cleaned)
        self._base_offsets = [segment.base_offset for segment in self._list]
        self._hints.clear()
        self._indexed.clear()
        kept = {segment.base_offset for segment in cleaned}
        for segment in old:
            for suffix in SEGMENT_SUFFIXES:
                self._unsynced.forget(segment.path_of(suffix))
            segment.delete(keep_snapshot=segment.base_offset in kept)
        for segment in cleaned:
            segment.rename_files("")
        self._directory.sync()

    def forget_hints(self) -> None:
        """Batches may have moved."""
        self._hints.clear()

    def retire(self) -> None:
        for segment in self._list:
            segment.retire()

    def close(self) -> None:
        for segment in self._list:
            segment.close()

    # Reading

    def read(
        self,
        offset: int,
        max_bytes: int,
        upper_bound: int,
        log_end_offset: int,
        at_least_one_batch: bool,
        waits_for_disk: bool = True,
    ) -> ReadResult:
        """Whole batches from the one that holds `offset` on, below `upper_bound`, as far as its segment goes."""
        hint = self._hints.get(offset)
        found = hint if hint is not None else self.find(offset)
        if found is None:
            return ReadResult(EMPTY_RECORDS, offset)
        segment, position = found
        is_active = segment is self.active
        if not is_active:
            self.hold_indexes(segment)
        limit = segment.size
        end_offset = log_end_offset if is_active else self.end_offset_of(segment, log_end_offset)
        if end_offset > upper_bound:
            limit, end_offset = self._position_of(upper_bound, segment), upper_bound
        count = limit - position
        if count <= 0:
            return ReadResult(EMPTY_RECORDS, offset)
        if not waits_for_disk and count > _QUICK_READ_BYTES_MAX < max_bytes:
            _check_in_memory(segment.file, position, min(count, max_bytes))
        if position < segment.unchecked_to:
            return self._read_unchecked(segment, position, count, max_bytes, offset, log_end_offset, at_least_one_batch)
        if count <= max_bytes:
            self.remember(end_offset, segment, position + count)
            return ReadResult(segment.file.read(position, count), end_offset)
        wanted = max(max_bytes, HEADER_BYTES) if at_least_one_batch else max_bytes
        block = segment.file.read(position, min(wanted, count))
        end, next_offset = segment.cut(block, position)
        if end == 0:
            if not at_least_one_batch or len(block) < HEADER_BYTES:
                return ReadResult(EMPTY_RECORDS, offset)
            header = BatchHeader._make(HEADER.unpack_from(block))
            end, next_offset = header.size_bytes, header.next_offset
            block = segment.file.read(position, end)
        self.remember(next_offset, segment, position + end)
        return ReadResult(block if end == len(block) else memoryview(block)[:end], next_offset)

    def _read_unchecked(
        self,
        segment: Segment,
        position: int,
        count: int,
        max_bytes: int,
        offset: int,
        log_end_offset: int,
        at_least_one_batch: bool,
    ) -> ReadResult:
        """The same for batches found on disk, as far as they are undamaged; KafkaError if none is."""
        segment.bound_unchecked()
        wanted = max(max_bytes, HEADER_BYTES) if at_least_one_batch else max_bytes
        block = segment.file.read(position, min(wanted, count))
        first = _header_at(block, 0)
        if first is not None and at_least_one_batch and len(block) < first.size_bytes <= count:
            block = segment.file.read(position, first.size_bytes)
        segment_end_offset = self.end_offset_of(segment, log_end_offset)
        end, next_offset, problem = _check(segment, segment_end_offset, memoryview(block), position, count)
        if problem is not None and end == 0:
            raise problem
        if end == 0:
            return ReadResult(EMPTY_RECORDS, offset)
        segment.note_checked(position, position + end)
        self.remember(next_offset, segment, position + end)
        return ReadResult(block if end == len(block) else memoryview(block)[:end], next_offset)

    def find(self, offset: int) -> tuple[Segment, int] | None:
        """Segment and position of the first batch that ends at or after `offset`."""
        for segment in self.from_offset(offset):
            found = segment.find(offset)
            if found is not None:
                return segment, found[0]
        return None

    def _position_of(self, offset: int, segment: Segment) -> int:
        """The position of a batch boundary in the segment; its end if the offset is later."""
        hint = self._hints.get(offset)
        if hint is not None and hint[0] is segment:
            return hint[1]
        if offset < segment.base_offset:
            return 0
        found = segment.find(offset)
        position = segment.size if found is None else found[0]
        self.remember(offset, segment, position)
        return position

    def remember(self, offset: int, segment: Segment, position: int) -> None:
        """Remembers a batch boundary to which a sequential reader returns, or at which a watermark is."""
        if segment is not self.active and position >= segment.size:
            return
        hints = self._hints
        if len(hints) >= _HINTS_MAX:
            del hints[next(iter(hints))]
        hints[offset] = (segment, position)

    def hold_indexes(self, segment: Segment) -> None:
        """Closed segments keep their indexes in memory while they are read, but only the few read last."""
        held = self._indexed
        if segment in held:
            return
        held[segment] = None
        if len(held) > _INDEXES_HELD_MAX:
            oldest = next(iter(held))
            del held[oldest]
            if oldest is not self.active:
                oldest.release_indexes()

    # For tests

    def check_invariants(self, log_start_offset: int, log_end_offset: int) -> None:
        """AssertionError if anything that must always hold does not. Reads every batch."""
        assert self._list, "a log has at least one segment"
        assert self.active is self._list[-1], "the last segment is the active one"
        assert self._base_offsets == [segment.base_offset for segment in self._list]
        assert self._base_offsets == sorted(set(self._base_offsets)), self._base_offsets
        assert self._base_offsets[0] <= log_start_offset, (self._base_offsets, log_start_offset)
        assert self._base_offsets[-1] <= log_end_offset, (self._base_offsets, log_end_offset)
        for segment in self._list:
            assert segment.size == segment.file.size(), f"{segment.log_path}: {segment.size} != {segment.file.size()}"
            position, next_offset = 0, segment.base_offset
            for found in segment.batches():
                assert found.header.base_offset >= next_offset, (segment.log_path, found.header)
                assert verify_crc(found.block, found.start, found.header), (segment.log_path, found.header)
                next_offset = found.header.next_offset
                position = found.position + found.header.size_bytes
            assert position == segment.size, f"{segment.log_path}: batches end at {position} of {segment.size}"
            end_offset = self.end_offset_of(segment, log_end_offset)
            assert next_offset <= end_offset, (segment.log_path, next_offset, end_offset)
        for offset, (segment, position) in self._hints.items():
            found_at = segment.find(offset)
            assert (segment.size if found_at is None else found_at[0]) == position, (offset, position, found_at)


def _check_in_memory(file: File, position: int, count: int) -> None:
    if not file.is_in_memory(position, count):
        raise NotInMemory(file, position, count)


def _check(
    segment: Segment, segment_end_offset: int, view: memoryview, position: int, count: int
) -> tuple[int, int, KafkaError | None]:
    """The size of the undamaged batches, the offset after them, and the damage of the next batch, if any.

    The CRC does not cover the base offset, so it is compared with the neighbouring batches: a batch whose offsets do
    not fit between them is not served, whichever of them is wrong.
    """
    end, next_offset = 0, segment.base_offset
    while end < len(view):
        header = _header_at(view, end)
        if header is None or end + header.size_bytes > len(view):
            is_cut = header is not None and end + header.size_bytes <= count
            if is_cut or (header is None and len(view) < count):
                return end, next_offset, None  # the rest lies behind the limit of this read
            return end, next_offset, damaged(segment.log_path, position + end, "no batch begins here")
        following = end + header.size_bytes
        limit = _base_offset_at(segment, position + following) or segment_end_offset
        if not next_offset <= header.base_offset <= header.last_offset < limit:
            reason = f"offsets {header.base_offset} to {header.last_offset} do not lie from {next_offset} to {limit}"
            return end, next_offset, damaged(segment.log_path, position + end, reason)
        if not verify_crc(view, end, header):
            reason = f"the batch at offset {header.base_offset} does not have its CRC"
            return end, next_offset, damaged(segment.log_path, position + end, reason)
        end, next_offset = following, header.next_offset
    return end, next_offset, None


def _header_at(view: memoryview | bytes, position: int) -> BatchHeader | None:
    if position + HEADER_BYTES > len(view):
        return None
    header = BatchHeader._make(HEADER.unpack_from(view, position))
    if header.batch_length < BATCH_LENGTH_MIN or header.magic != CURRENT_MAGIC:
        return None
    return header


def _base_offset_at(segment: Segment, position: int) -> int | None:
    """Base offset of the next batch in the segment, if there is one and it looks like a batch."""
    if position + LOG_OVERHEAD_BYTES > segment.size:
        return None
    header = _header_at(segment.file.read(position, HEADER_BYTES), 0)
    return None if header is None else header.base_offset
