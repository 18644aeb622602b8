"""A disk on which the machine can die: just before any write, sync or change of a name, or later in cold data.

Owns the countdown to the next death and the flipped bits. What is lost with the power is `disk.PowerCut`'s business,
and what happens after the death is the world's: it catches `MachineDied` at the top, as nothing in the broker can.
"""

import errno
import random
from collections.abc import Callable
from typing import Any

from fencepost.simulation.disk import SimulatedDisk


class MachineDied(BaseException):
    """Not an error that anyone handles: nothing runs any more."""


class FragileDisk(SimulatedDisk):
    def __init__(self, *, capacity_bytes: int | None = None) -> None:
        super().__init__(capacity_bytes=capacity_bytes)
        self.left: int | None = None
        """So many more operations, then the machine dies; None: it does not."""
        self.fatal_parts: tuple[str, ...] = ()
        """Only operations on paths with one of these count; none: all do."""
        self._watched: tuple[str, Callable[[], None]] | None = None
        self.operations = 0
        self.refusals: dict[int, int] = {}
        """Errors given, by their number."""
        self.failed_syncs = 0

    def watch(self, path_part: str, notify: Callable[[], None]) -> None:
        """Call back after the next write to such a path."""
        self._watched = (path_part, notify)

    def die_after(self, operations: int | None, path_parts: tuple[str, ...] = ()) -> None:
        """Have the machine die after so many operations, or after so many on paths with one of these parts."""
        self.left, self.fatal_parts = operations, path_parts

    def live_on(self) -> None:
        """A death that was planned is called off."""
        self.left, self.fatal_parts = None, ()

    def _count(self, path: str) -> None:
        self.operations += 1
        if self.left is not None and (not self.fatal_parts or any(part in path for part in self.fatal_parts)):
            if self.left <= 0:
                self.left = None
                raise MachineDied
            self.left -= 1

    def _refused(self, error: OSError) -> OSError:
        number = error.errno or 0
        self.refusals[number] = self.refusals.get(number, 0) + 1
        return error

    def write_to(self, *arguments: Any) -> None:
        path: str = arguments[1]
        self._count(path)
        try:
            super().write_to(*arguments)
        except OSError as error:
            raise self._refused(error) from None
        if self._watched is not None and self._watched[0] in path:
            _, notify = self._watched
            self._watched = None
            notify()

    def sync_inode(self, *arguments: Any) -> None:
        self._count(arguments[1])
        try:
            super().sync_inode(*arguments)
        except OSError as error:
            raise self._refused(error) from None

    def sync_directory(self, path: str) -> None:
        self._count(path)
        try:
            super().sync_directory(path)
        except OSError as error:
            raise self._refused(error) from None

    def sync_file_system(self, path: str) -> None:
        self._count(path)
        try:
            super().sync_file_system(path)
        except OSError as error:
            raise self._refused(error) from None

    def _takes_fault(self, path: str) -> bool:
        is_taken = super()._takes_fault(path)
        self.failed_syncs += is_taken
        return is_taken

    @property
    def failures(self) -> int:
        """Operations that were refused, for whatever reason."""
        return sum(self.refusals.values())

    @property
    def failed_writes(self) -> int:
        return self.refusals.get(errno.EIO, 0) - self.failed_syncs

    def mend(self) -> None:
        """Every fault that is armed and has not happened is called off."""
        self.live_on()
        self._watched = None
        self.call_off_faults()

    def rename(self, source: str, target: str) -> None:
        self._count(source)
        super().rename(source, target)

    def remove(self, path: str) -> None:
        self._count(path)
        super().remove(path)

    def make_directory(self, path: str) -> None:
        if not self.exists(path):
            self._count(path)
        super().make_directory(path)

    # Files that shrink

    def cut_short(self, path: str, size: int) -> None:
        """In what is seen and in what would survive."""
        inode = self.inode(path)
        del inode.content[size:], inode.durable[size:]
        inode.pending.clear()

    # Bits

    def flip_bit(self, path: str, position: int, bit: int) -> None:
        """In what is seen and in what would survive, as a bad sector does. The same call flips it back."""
        inode = self.inode(path)
        for content in (inode.content, inode.durable):
            if position < len(content):
                content[position] ^= 1 << bit

    def flip_some_bit(self, path: str, source: random.Random) -> tuple[int, int]:
        position, bit = source.randrange(self.size(path)), source.randrange(8)
        self.flip_bit(path, position, bit)
        return position, bit
