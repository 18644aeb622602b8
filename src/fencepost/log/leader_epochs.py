"""The leader epochs of a log and their start offsets: `leader-epoch-checkpoint`.

Owns the entries (epoch, first offset) and the answers to OffsetsForLeaderEpoch. Touches no file: text in, text out.
"""

from bisect import bisect_left, bisect_right
from itertools import pairwise
from typing import NamedTuple

CHECKPOINT_VERSION = 0
UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class EpochEntry(NamedTuple):
    epoch: int
    start_offset: int


class EpochEnd(NamedTuple):
    leader_epoch: int
    end_offset: int


class CorruptEpochCheckpoint(Exception):
    """A leader epoch checkpoint that cannot be parsed. It can be rebuilt from the batches."""


class LeaderEpochs:
    __slots__ = ("_begun", "_entries", "dirty")

    def __init__(self, entries: list[EpochEntry] | None = None) -> None:
        self._entries = entries if entries is not None else []
        self._begun: int | None = None
        """The newest epoch, until a batch of it is written."""
        self.dirty = False
        """Whether the checkpoint file is out of date."""

    @classmethod
    def decode(cls, data: bytes) -> "LeaderEpochs":
        if not data.endswith(b"\n"):
            raise CorruptEpochCheckpoint("empty, or cut off")
        try:
            version, count, *lines = data.decode("ascii").split("\n")
            entries = [EpochEntry(*map(int, line.split(" "))) for line in lines if line]
            if int(version) != CHECKPOINT_VERSION or int(count) != len(entries):
                raise ValueError("version or count")
            if any(a.epoch >= b.epoch or a.start_offset > b.start_offset for a, b in pairwise(entries)):
                raise ValueError("out of order")
        except (ValueError, TypeError) as error:
            raise CorruptEpochCheckpoint(str(error)) from None
        return cls(entries)

    def encode(self) -> bytes:
        lines = [str(CHECKPOINT_VERSION), str(len(self._entries))]
        lines += [f"{epoch} {start_offset}" for epoch, start_offset in self._entries]
        return ("\n".join(lines) + "\n").encode()

    def note_written(self) -> None:
        """The checkpoint file is up to date."""
        self.dirty = False

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        return tuple(self._entries)

    @property
    def latest(self) -> int:
        return self._entries[-1].epoch if self._entries else UNDEFINED_EPOCH

    def begin(self, epoch: int, start_offset: int) -> None:
        """A leader takes over at `start_offset`. An epoch already known changes nothing.

        The checkpoint does not need the entry until a batch of it is written, because the next leader would replace it.
        """
        if epoch <= self.latest:
            return
        del self._entries[bisect_left(self._entries, start_offset, key=_start_offset) :]
        self._entries.append(EpochEntry(epoch, start_offset))
        self._begun = epoch

    def assign(self, epoch: int, start_offset: int) -> None:
        """A batch of this epoch is appended at `start_offset`."""
        self.begin(epoch, start_offset)
        if epoch == self._begun:
            self._begun = None
            self.dirty = True

    def epoch_of(self, offset: int) -> int:
        entry = bisect_right(self._entries, offset, key=_start_offset)
        return self._entries[entry - 1].epoch if entry else UNDEFINED_EPOCH

    def end_offset_for(self, requested_epoch: int, log_end_offset: int) -> EpochEnd:
        """The largest epoch up to the requested one, and the offset at which it ends; (-1, -1) if unknown."""
        if requested_epoch == UNDEFINED_EPOCH:
            return EpochEnd(UNDEFINED_EPOCH, UNDEFINED_OFFSET)
        if requested_epoch == self.latest:
            return EpochEnd(requested_epoch, log_end_offset)
        higher = bisect_right(self._entries, requested_epoch, key=lambda entry: entry.epoch)
        if higher == len(self._entries):
            return EpochEnd(UNDEFINED_EPOCH, UNDEFINED_OFFSET)
        end_offset = self._entries[higher].start_offset
        return EpochEnd(self._entries[higher - 1].epoch if higher else requested_epoch, end_offset)

    def truncate_from_end(self, end_offset: int) -> None:
        keep = bisect_left(self._entries, end_offset, key=_start_offset)
        if keep < len(self._entries):
            del self._entries[keep:]
            self.dirty = True

    def truncate_from_start(self, start_offset: int) -> None:
        """The start of the log has moved; its epoch begins there."""
        passed = bisect_right(self._entries, start_offset, key=_start_offset)
        if passed > 1 or (passed and self._entries[0].start_offset < start_offset):
            self._entries[:passed] = [EpochEntry(self._entries[passed - 1].epoch, start_offset)]
            self.dirty = True

    def clear(self) -> None:
        if self._entries:
            self._entries.clear()
            self.dirty = True


def _start_offset(entry: EpochEntry) -> int:
    return entry.start_offset
