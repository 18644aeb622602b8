"""A disk on which the machine can die: just before any write, sync or change of a name, or later in cold data.

Owns the countdown to the next death and the flipped bits. What is lost with the power is `disk.PowerCut`'s business, and
what happens after the death is the world's: it catches `MachineDied` at the top, as nothing in the broker can.
"""

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

    def _count(self) -> None:
        self.operations += 1
        if self.left is not None:
            if self.left <= 0:
                self.left = None
                raise MachineDied
            self.left -= 1

    def write_to(self, *arguments: Any) -> None:
        self._count()
        super().write_to(*arguments)

    def sync_inode(self, *arguments: Any) -> None:
        self._count()
        super().sync_inode(*arguments)

    def sync_directory(self, path: str) -> None:
        self._count()
        super().sync_directory(path)

    def sync_file_system(self, path: str) -> None:
        self._count()
        super().sync_file_system(path)

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
