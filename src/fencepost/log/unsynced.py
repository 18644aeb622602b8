"""What a log has written and a power cut could still take: files, names in its directory, the offsets behind them.

A log hands all of it over as one `SyncRequest`, and hands nothing more over before that one is answered: so no two
syncs of one log overlap, and the synced offset never passes what is not synced. A request that a truncation has
overtaken moves no offset. Owns the synced offset; does not sync by itself.
"""

from dataclasses import dataclass

from fencepost.log.directory import LogDirectory
from fencepost.ports import Disk, Syncable


class WrittenFile:
    """A small file that was written whole and is never touched again.

    One that is gone was removed with its segment. Recovery can make any of them anew.
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
    """Once `files` are synced, everything below `end_offset` survives a power cut."""

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
        """Names in the directory have changed: nothing behind a new one counts as durable before the directory is."""
        self._names_changed = True

    def forget(self, path: str) -> None:
        """The file goes."""
        self._files.pop(path, None)

    def take_one(self, path: str) -> Syncable | None:
        """What must be synced ahead of the rest."""
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
        """The log was cut: what comes behind `offset` from now on is not what was there."""
        self._generation += 1
        self.synced_offset = min(self.synced_offset, offset)
        self._requested_offset = min(self._requested_offset, offset)
