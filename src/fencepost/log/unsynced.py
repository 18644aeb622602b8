"""What a log has written but not synced: files, directory entries, and the offsets they contain.

A log passes all of it on as one `SyncRequest`, and the next one only after that is answered: so syncs of one log never
overlap, and the synced offset never passes unsynced data. A request that was overtaken by a truncation does not move
the synced offset. Owns the synced offset; does not sync itself.
"""

from dataclasses import dataclass

from fencepost.log.directory import LogDirectory
from fencepost.ports import Disk, Syncable


class WrittenFile:
    """A small file that was written completely and is never changed.

    A missing one was removed with its segment. Recovery can rebuild all of them.
    """

    __slots__ = ("_disk", "path")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self.path = path

    def sync(self) -> None:
        file = self._disk.open(self.path)
        try:
            file.sync()
        except FileNotFoundError:
            pass
        finally:
            file.close()


@dataclass(frozen=True, slots=True)
class SyncRequest:
    """Once `files` are synced, everything below `end_offset` survives a power failure."""

    files: tuple[Syncable, ...]
    end_offset: int
    generation: int


class Unsynced:
    __slots__ = (
        "_directory",
        "_files",
        "_generation",
        "_names_changed",
        "_requested_offset",
        "in_flight",
        "synced_offset",
    )

    def __init__(self, directory: LogDirectory) -> None:
        self._directory = directory
        self._files: dict[str, Syncable] = {}
        self._names_changed = False
        self._requested_offset = 0
        self._generation = 0
        self.synced_offset = 0
        self.in_flight = False
        """Whether a request was handed over and not answered yet."""

    def is_empty(self, log_end_offset: int) -> bool:
        return log_end_offset <= self._requested_offset and not self._files and not self._names_changed

    def note(self, path: str, file: Syncable) -> None:
        self._files[path] = file

    def note_written(self, path: str) -> None:
        self._files[path] = WrittenFile(self._directory.disk, path)

    def note_names(self) -> None:
        """Directory entries have changed: data in new files is not durable before the directory is synced."""
        self._names_changed = True

    def forget(self, path: str) -> None:
        """The file is removed."""
        self._files.pop(path, None)

    def take_one(self, path: str) -> Syncable | None:
        """Takes one file that must be synced before the others."""
        return self._files.pop(path, None)

    def take(self, log_end_offset: int, active_file: Syncable) -> SyncRequest | None:
        """All of it; None while an earlier request is under way. `active_file` has what was appended last."""
        if self.in_flight:
            return None
        files = list(self._files.values())
        self._files.clear()
        if log_end_offset > self._requested_offset:
            self._requested_offset = log_end_offset
            files.append(active_file)
        if self._names_changed:
            self._names_changed = False
            files.append(self._directory)
        self.in_flight = True
        return SyncRequest(tuple(files), log_end_offset, self._generation)

    def synced(self, request: SyncRequest) -> None:
        """The request was carried out."""
        self.in_flight = False
        if request.generation == self._generation and request.end_offset > self.synced_offset:
            self.synced_offset = request.end_offset

    def start_at(self, offset: int) -> None:
        """Everything below `offset` is durable, and there is nothing behind it."""
        self._generation += 1
        self.synced_offset = self._requested_offset = offset

    def cut_at(self, offset: int) -> None:
        """The log was truncated: data after `offset` is no longer what was there."""
        self._generation += 1
        self.synced_offset = min(self.synced_offset, offset)
        self._requested_offset = min(self._requested_offset, offset)
