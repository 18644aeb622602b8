"""A disk on which the machine can die: just before any write, sync or change of a name, or later in cold data.

Owns the countdown to the next death and the flipped bits. What is lost with the power is `disk.PowerCut`'s business,
and what happens after the death is the world's: it catches `MachineDied` at the top, as nothing in the broker can.
"""

import errno
import random
from typing import Any

from fencepost.simulation.disk import SimulatedDisk


class MachineDied(BaseException):
    """Not an error that anyone handles: nothing runs any more."""


class FragileDisk(SimulatedDisk):
    def __init__(self, *, capacity_bytes: int | None = None) -> None:
        super().__init__(capacity_bytes=capacity_bytes)
        self.left: int | None = None
        """So many more operations, then the machine dies; None: it does not."""
        self.operations = 0
        self.refusals: dict[int, int] = {}
        """Errors given, by their number."""
        self.failed_syncs = 0

    def _count(self) -> None:
        self.operations += 1
        if self.left is not None:
            if self.left <= 0:
                self.left = None
                raise MachineDied
            self.left -= 1

    def _refused(self, error: OSError) -> OSError:
        number = error.errno or 0
        self.refusals[number] = self.refusals.get(number, 0) + 1
        return error

    def write_to(self, *arguments: Any) -> None:
        self._count()
        try:
            super().write_to(*arguments)
        except OSError as error:
            raise self._refused(error) from None

    def sync_inode(self, *arguments: Any) -> None:
        self._count()
        try:
            super().sync_inode(*arguments)
        except OSError as error:
            raise self._refused(error) from None

    def sync_directory(self, path: str) -> None:
        self._count()
        try:
            super().sync_directory(path)
        except OSError as error:
            raise self._refused(error) from None

    def sync_file_system(self, path: str) -> None:
        self._count()
        try:
            super().sync_file_system(path)
        except OSError as error:
            raise self._refused(error) from None

    def _takes_fault(self, path: str) -> bool:
        is_taken = super()._takes_fault(path)
        self.failed_syncs += is_taken
        return is_taken

    @property
    def failed_writes(self) -> int:
        return self.refusals.get(errno.EIO, 0) - self.failed_syncs

    def mend(self) -> None:
        """Every fault that is armed and has not happened is called off."""
        self.left = None
        self.capacity_bytes = None
        self._failing_syncs.clear()
        self._failing_writes.clear()

    def rename(self, source: str, target: str) -> None:
        self._count()
        super().rename(source, target)

    def remove(self, path: str) -> None:
        self._count()
        super().remove(path)

    def make_directory(self, path: str) -> None:
        if not self.exists(path):
            self._count()
        super().make_directory(path)

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
