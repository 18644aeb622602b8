"""The undecided transactions of a partition, and the index of aborted ones.

`OpenTransactions` owns the order of undecided transactions (which determines the last stable offset);
`AbortedTransactions` owns one segment's `.txnindex`. Neither knows epochs or sequences: that is `log.producers`.
"""

import struct
from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import NamedTuple

from crc32c import crc32c

from fencepost.ports import Disk, File

_ENTRY = struct.Struct(">hqqqq")
_OFFSET = struct.Struct(">q")
ENTRY_BYTES = _ENTRY.size
ENTRY_VERSION = 0
PACKED_BYTES = 16
"""The producer id and first offset in a fetch response."""
_PRODUCER_ID_POSITION = 2
_LAST_OFFSET_POSITION = 18
_LAST_STABLE_OFFSET_POSITION = 26
_BLOCK_ENTRIES = 256
_BLOCK_BYTES = _BLOCK_ENTRIES * ENTRY_BYTES


class CompletedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    """The offset of the marker."""
    is_aborted: bool
    last_stable_offset: int
    """First offset of the earliest other open transaction, else the offset after the marker."""


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int

    def encode(self) -> bytes:
        return _ENTRY.pack(ENTRY_VERSION, *self)


class CorruptTransactionIndex(Exception):
    """A `.txnindex` that must be rebuilt from its segment."""


class OpenTransactions:
    """Undecided transactions: open ones, and completed ones whose marker is not below the high watermark yet.

    Both are in log order, so the first and the next one are found without a search.
    """

    __slots__ = ("_completed", "_ongoing")

    def __init__(self) -> None:
        self._ongoing: OrderedDict[int, int] = OrderedDict()  # first offset -> producer id, ascending
        # (marker offset, first offset), both ascending. A completed transaction that begins later and ends earlier than
        # another can never decide the minimum, so it is not kept.
        self._completed: deque[tuple[int, int]] = deque()

    def begin(self, first_offset: int, producer_id: int) -> None:
        ongoing = self._ongoing
        in_order = not ongoing or first_offset > next(reversed(ongoing))
        ongoing[first_offset] = producer_id
        if not in_order:  # only a snapshot lists them in another order
            self._ongoing = OrderedDict(sorted(ongoing.items()))

    def complete(self, first_offset: int, marker_offset: int) -> int:
        """Moves a transaction from open to completed. Returns the last stable offset for its index entry."""
        completed = self._completed
        self._ongoing.pop(first_offset, None)
        while completed and completed[-1][1] >= first_offset:
            completed.pop()
        completed.append((marker_offset, first_offset))
        first = self.first_undecided_offset()
        return marker_offset + 1 if first is None else first

    def on_high_watermark(self, high_watermark: int) -> None:
        completed = self._completed
        while completed and completed[0][0] < high_watermark:
            completed.popleft()

    def first_undecided_offset(self) -> int | None:
        """The first offset of the earliest open transaction, regardless of the high watermark."""
        return next(iter(self._ongoing), None)

    def first_unstable_offset(self) -> int | None:
        first = next(iter(self._ongoing), None)
        if self._completed:
            completed_first = self._completed[0][1]
            return completed_first if first is None or completed_first < first else first
        return first

    def oldest(self) -> tuple[int, int] | None:
        """First offset and producer id of the earliest open transaction."""
        return next(iter(self._ongoing.items()), None)

    def ongoing(self) -> Iterator[tuple[int, int]]:
        """First offset and producer id of every open transaction, in log order."""
        return iter(self._ongoing.items())

    def __len__(self) -> int:
        return len(self._ongoing)

    @property
    def awaits_high_watermark(self) -> bool:
        """Whether an increase of the high watermark could decide a transaction."""
        return bool(self._completed)

    @property
    def is_empty(self) -> bool:
        return not self._ongoing and not self._completed

    def clear(self) -> None:
        self._ongoing.clear()
        self._completed.clear()


class AbortedTransactions:
    """One segment's `.txnindex`: 34-byte entries in order of their marker. The file exists only once there is an entry.

    Entries stay packed in memory, with the smallest first offset of every block, so that a query among a hundred
    thousand entries reads few of them even when long transactions overlap many short ones.
    """

    __slots__ = ("_block_firsts", "_data", "_disk", "_file", "_path")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._file: File | None = None
        self._data: bytearray | None = None
        self._block_firsts: list[int] = []

    @property
    def path(self) -> str:
        return self._path

    @property
    def file(self) -> File | None:
        """The file, if this object has written to it: to be synced with its segment."""
        return self._file

    def __len__(self) -> int:
        return len(self._loaded()) // ENTRY_BYTES

    def append(self, entry: AbortedTransaction) -> None:
        """Changes nothing if it raises OSError."""
        data = self._loaded()
        if data and entry.last_offset <= self._last_offset_at(len(data) - ENTRY_BYTES):
            raise ValueError(f"{entry} does not follow the last entry of {self._path}")
        if self._file is None:
            self._file = self._disk.open(self._path, create=True)
        encoded = entry.encode()
        self._file.write(len(data), encoded)
        if len(data) % _BLOCK_BYTES == 0:
            self._block_firsts.append(entry.first_offset)
        elif entry.first_offset < self._block_firsts[-1]:
            self._block_firsts[-1] = entry.first_offset
        data += encoded

    def append_completed(self, completed: CompletedTransaction) -> None:
        """Adds a transaction ended by a marker, if it was aborted."""
        if completed.is_aborted:
            self.append(
                AbortedTransaction(
                    completed.producer_id, completed.first_offset, completed.last_offset, completed.last_stable_offset
                )
            )

    def collect(self, from_offset: int, to_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """Aborted transactions that touch [from, to), and whether later segments can be left unsearched."""
        spans, complete = self._touching(from_offset, to_offset)
        data = self._loaded()
        found = [
            AbortedTransaction(*fields[1:])
            for start, end in spans
            for fields in _ENTRY.iter_unpack(memoryview(data)[start:end])
        ]
        return found, complete

    def pack(self, from_offset: int, to_offset: int, packed: bytearray) -> bool:
        """Add producer id and first offset of the same transactions to `packed`, as the file has them.

        Copies bytes of all entries at once: a fetch may list thousands, and must not create an object for each.
        """
        spans, complete = self._touching(from_offset, to_offset)
        data = self._loaded()
        for start, end in spans:
            pairs = bytearray((end - start) // ENTRY_BYTES * PACKED_BYTES)
            for place in range(PACKED_BYTES):
                pairs[place::PACKED_BYTES] = data[start + _PRODUCER_ID_POSITION + place : end : ENTRY_BYTES]
            packed += pairs
        return complete

    def _touching(self, from_offset: int, to_offset: int) -> tuple[list[tuple[int, int]], bool]:
        """Byte ranges of the entries that touch [from, to), and whether later segments can be left unsearched."""
        data = self._loaded()
        spans: list[tuple[int, int]] = []
        first = self._first_with_last_offset(from_offset)
        # What ended before `to` began before it, too. What ends later may have: an older one may hold up many.
        position = self._first_with_last_offset(to_offset)
        if position > first:
            spans.append((first, position))
            if self._last_stable_offset_at(position - ENTRY_BYTES) >= to_offset:
                return spans, True
        block_firsts = self._block_firsts
        end = len(data)
        while position < end:
            block = position // _BLOCK_BYTES
            block_end = min(end, (block + 1) * _BLOCK_BYTES)
            if block_firsts[block] >= to_offset:
                # Nothing here begins early enough. Only the last entry can tell whether the search is over: last
                # stable offsets never fall.
                if self._last_stable_offset_at(block_end - ENTRY_BYTES) >= to_offset:
                    return spans, True
                position = block_end
                continue
            while position < block_end:
                _, _, first_offset, _, last_stable_offset = _ENTRY.unpack_from(data, position)
                if first_offset < to_offset:
                    spans.append((position, position + ENTRY_BYTES))
                if last_stable_offset >= to_offset:
                    return spans, True
                position += ENTRY_BYTES
        return spans, False

    def entries(self) -> list[AbortedTransaction]:
        return [AbortedTransaction(*fields[1:]) for fields in _ENTRY.iter_unpack(self._loaded())]

    def truncate_to(self, offset: int) -> None:
        """Forgets every transaction whose marker is at or above `offset`."""
        self._cut(self._first_with_last_offset(offset))

    def reset(self) -> None:
        """Forgets everything, even if the file cannot be read."""
        self._data = bytearray()
        self._block_firsts = []
        if self._file is not None or self._disk.exists(self._path):
            self._opened().truncate(0)

    def check(self, base_offset: int) -> None:
        """Raises CorruptTransactionIndex for a file that no writer could have written."""
        previous = -1
        for entry in self.entries():
            if entry.last_offset < base_offset or entry.last_offset <= previous:
                raise CorruptTransactionIndex(f"{self._path}: {entry} is out of order (base offset {base_offset})")
            if not 0 <= entry.first_offset <= entry.last_offset or entry.producer_id < 0:
                raise CorruptTransactionIndex(f"{self._path}: {entry} is no transaction")
            previous = entry.last_offset

    @property
    def is_loaded(self) -> bool:
        return self._data is not None

    def checksum(self) -> bytes:
        """The content of the file beside the index of a sealed segment: Kafka's format has no checksum."""
        data = self._loaded()
        return b"0 %d %08x\n" % (len(data), crc32c(data))

    def replace(self, entries: list[AbortedTransaction]) -> None:
        """Replaces the whole content, in memory immediately and on disk if there is room."""
        self._data = bytearray(b"".join(entry.encode() for entry in entries))
        self._index_blocks()
        try:
            if self._data or self._disk.exists(self._path):
                self._disk.write_bytes(self._path, self._data)
        except OSError:
            pass  # it will be found wrong again

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def retire(self) -> None:
        """Deletes the file with its segment."""
        if self._file is not None:
            self._file.retire()

    def _cut(self, position: int) -> None:
        data = self._loaded()
        if position >= len(data):
            return
        self._opened().truncate(position)
        del data[position:]
        self._index_blocks()

    def _opened(self) -> File:
        if self._file is None:
            self._file = self._disk.open(self._path)
        return self._file

    def _loaded(self) -> bytearray:
        if self._data is None:
            content = bytearray(self._disk.read_bytes(self._path)) if self._disk.exists(self._path) else bytearray()
            if len(content) % ENTRY_BYTES:
                raise CorruptTransactionIndex(f"{self._path}: {len(content)} bytes are not whole entries")
            for position in range(0, len(content), ENTRY_BYTES):
                if content[position] or content[position + 1]:
                    raise CorruptTransactionIndex(f"{self._path}: unknown entry version at byte {position}")
            self._data = content
            self._index_blocks()
        return self._data

    def _index_blocks(self) -> None:
        data = self._data
        assert data is not None
        self._block_firsts = [
            min(fields[2] for fields in _ENTRY.iter_unpack(data[start : start + _BLOCK_BYTES]))
            for start in range(0, len(data), _BLOCK_BYTES)
        ]

    def _last_offset_at(self, position: int) -> int:
        data = self._data
        assert data is not None
        return int(_OFFSET.unpack_from(data, position + _LAST_OFFSET_POSITION)[0])

    def _last_stable_offset_at(self, position: int) -> int:
        data = self._data
        assert data is not None
        return int(_OFFSET.unpack_from(data, position + _LAST_STABLE_OFFSET_POSITION)[0])

    def _first_with_last_offset(self, offset: int) -> int:
        """Position of the first entry whose marker is at or above `offset`."""
        low, high = 0, len(self._loaded()) // ENTRY_BYTES
        while low < high:
            middle = (low + high) // 2
            if self._last_offset_at(middle * ENTRY_BYTES) < offset:
                low = middle + 1
            else:
                high = middle
        return low * ENTRY_BYTES
