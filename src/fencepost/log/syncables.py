"""What a log hands out to be synced: files written whole, names in a directory, a checkpoint still to be written.

Each is synced once, perhaps in a helper thread, and then forgotten. Owns nothing.
"""

from typing import Protocol

from fencepost.log.leader_epochs import LeaderEpochs
from fencepost.ports import FULL_DISK, Disk


class Syncable(Protocol):
    """Something whose `sync` makes it durable. May run in a helper thread; OSError means it may be lost."""

    @property
    def path(self) -> str: ...

    def sync(self) -> None: ...


class WrittenFile:
    """A small file that was written whole and is never touched again."""

    __slots__ = ("_disk", "path")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self.path = path

    def sync(self) -> None:
        file = self._disk.open(self.path)
        file.sync()
        file.close()


class DirectoryEntries:
    """Names created, renamed or removed in a directory."""

    __slots__ = ("_disk", "path")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self.path = path

    def sync(self) -> None:
        self._disk.sync_directory(self.path)


class CheckpointWrite:
    """A leader epoch checkpoint to be replaced at the next sync; until then recovery reads epochs from batches.

    So it can wait for one after that, where there is no room for it.
    """

    __slots__ = ("_data", "_disk", "_epochs", "path")

    def __init__(self, disk: Disk, path: str, epochs: LeaderEpochs) -> None:
        self._disk = disk
        self.path = path
        self._epochs = epochs
        self._data = epochs.encode()

    def write(self) -> None:
        """Without a sync, for whoever syncs the whole file system."""
        self._disk.write_bytes(self.path, self._data)

    def sync(self) -> None:
        try:
            self._disk.write_atomically(self.path, self._data)
        except FileNotFoundError:
            pass  # the partition was deleted
        except OSError as error:
            if error.errno not in FULL_DISK:
                raise
            self._epochs.dirty = True
