"""The sparse indexes of one segment, held in memory as arrays and written as Kafka's `.index` and `.timeindex`.

Owns both file formats. Reading is lenient: a file with a zero tail (Kafka preallocates) or a torn end returns the
entries up to there; a lookup then only scans further. Touches no file: bytes in, bytes out.
"""

from array import array
from bisect import bisect_right
from operator import le, lt

OFFSET_ENTRY_BYTES = 8
TIME_ENTRY_BYTES = 12
RELATIVE_OFFSET_MAX = 2**31 - 1
NO_TIMESTAMP = -1


class OffsetIndex:
    """Maps the relative last offset of a batch to the position of the batch."""

    __slots__ = ("positions", "relative_offsets")

    def __init__(self) -> None:
        self.relative_offsets = array("i")
        self.positions = array("i")

    @classmethod
    def decode(cls, data: bytes, log_bytes: int) -> "OffsetIndex":
        index = cls()
        numbers = array("i", data[: len(data) // OFFSET_ENTRY_BYTES * OFFSET_ENTRY_BYTES])
        numbers.byteswap()
        offsets, positions = numbers[0::2], numbers[1::2]
        if offsets and not (
            offsets[0] > 0
            and positions[0] > 0
            and positions[-1] < log_bytes
            and all(map(lt, offsets, offsets[1:]))
            and all(map(lt, positions, positions[1:]))
        ):
            count = _valid_count(offsets, positions, log_bytes)
            offsets, positions = offsets[:count], positions[:count]
        index.relative_offsets, index.positions = offsets, positions
        return index

    def encode(self) -> bytes:
        numbers = array("i", bytes(OFFSET_ENTRY_BYTES * len(self.positions)))
        numbers[0::2] = self.relative_offsets
        numbers[1::2] = self.positions
        numbers.byteswap()
        return numbers.tobytes()

    def lookup(self, relative_offset: int) -> int:
        """A position at or before the batch that holds the offset."""
        return self.entry_at_or_before(relative_offset)[0]

    def entry_at_or_before(self, relative_offset: int) -> tuple[int, int | None]:
        """The same position, and the relative last offset of the batch there; None for the start of the file."""
        entry = bisect_right(self.relative_offsets, relative_offset)
        return (self.positions[entry - 1], self.relative_offsets[entry - 1]) if entry else (0, None)

    def position_at_or_before(self, position: int) -> int:
        """The last known start of a batch that is not beyond `position`."""
        entry = bisect_right(self.positions, position)
        return self.positions[entry - 1] if entry else 0

    def truncate(self, log_bytes: int) -> None:
        """Forgets batches that start at or after the new end of the log file."""
        count = bisect_right(self.positions, log_bytes - 1)
        del self.relative_offsets[count:]
        del self.positions[count:]

    def __len__(self) -> int:
        return len(self.positions)


def _valid_count(offsets: "array[int]", positions: "array[int]", log_bytes: int) -> int:
    last_offset = last_position = 0
    for count, (offset, position) in enumerate(zip(offsets, positions, strict=True)):
        if offset <= last_offset or position <= last_position or position >= log_bytes:
            return count
        last_offset, last_position = offset, position
    return len(offsets)


def _valid_time_count(timestamps: "array[int]", offsets: "array[int]") -> int:
    last_timestamp, last_offset = NO_TIMESTAMP, 0
    for count, (timestamp, offset) in enumerate(zip(timestamps, offsets, strict=True)):
        # Zeros are the preallocated tail, unless they are all that was written.
        is_tail = timestamp == 0 and offset == 0 and len(offsets) > 1
        if timestamp <= last_timestamp or offset < last_offset or is_tail:
            return count
        last_timestamp, last_offset = timestamp, offset
    return len(offsets)


class TimeIndex:
    """Maps the largest timestamp so far to the relative last offset of its batch. Timestamps increase strictly."""

    __slots__ = ("relative_offsets", "timestamps")

    def __init__(self) -> None:
        self.timestamps = array("q")
        self.relative_offsets = array("i")

    @classmethod
    def decode(cls, data: bytes) -> "TimeIndex":
        index = cls()
        words = array("i", data[: len(data) // TIME_ENTRY_BYTES * TIME_ENTRY_BYTES])
        count = len(words) // 3
        halves = array("i", bytes(8 * count))
        halves[0::2], halves[1::2] = words[0::3], words[1::3]
        timestamps, offsets = array("q", halves.tobytes()), words[2::3]
        timestamps.byteswap()
        offsets.byteswap()
        if count and not (
            timestamps[0] > 0 and all(map(lt, timestamps, timestamps[1:])) and all(map(le, offsets, offsets[1:]))
        ):
            count = _valid_time_count(timestamps, offsets)
            timestamps, offsets = timestamps[:count], offsets[:count]
        index.timestamps, index.relative_offsets = timestamps, offsets
        return index

    def encode(self) -> bytes:
        # Whole columns at a time: a full segment has a quarter of a million entries and a roll must not wait for them.
        timestamps, offsets = self.timestamps[:], self.relative_offsets[:]
        timestamps.byteswap()
        offsets.byteswap()
        halves = array("i", timestamps.tobytes())
        words = array("i", bytes(TIME_ENTRY_BYTES * len(offsets)))
        words[0::3], words[1::3], words[2::3] = halves[0::2], halves[1::2], offsets
        return words.tobytes()

    def copy(self) -> "TimeIndex":
        copied = TimeIndex()
        copied.timestamps, copied.relative_offsets = self.timestamps[:], self.relative_offsets[:]
        return copied

    def append(self, timestamp: int, relative_offset: int) -> None:
        """As in Kafka, adds an entry only for a timestamp above the last one."""
        if timestamp > (self.timestamps[-1] if self.timestamps else NO_TIMESTAMP):
            self.timestamps.append(timestamp)
            self.relative_offsets.append(relative_offset)

    def lookup(self, timestamp: int) -> int:
        """Relative offset of the last entry at or below the timestamp: nothing before it is later than `timestamp`."""
        entry = bisect_right(self.timestamps, timestamp)
        return self.relative_offsets[entry - 1] if entry else 0

    def last(self) -> tuple[int, int] | None:
        return (self.timestamps[-1], self.relative_offsets[-1]) if self.timestamps else None

    def truncate(self, relative_offset: int) -> None:
        """Forgets batches that end at or after the offset."""
        offsets = self.relative_offsets
        count = len(offsets)
        while count and offsets[count - 1] >= relative_offset:
            count -= 1
        del self.timestamps[count:]
        del offsets[count:]

    def __len__(self) -> int:
        return len(self.timestamps)
