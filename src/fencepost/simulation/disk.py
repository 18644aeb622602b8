"""A file system in memory that loses unsynced changes in a power failure: bytes, names, renames, removals.

Keeps both what a process sees and what would survive. The caller chooses faults, or passes a random source, so that
failures are reproducible by their seed. Stricter than most real file systems: a synced file
whose directory was not synced is gone.
"""

import dataclasses
import enum
import errno
import os.path
import random
from collections.abc import Callable, Sequence

from fencepost.ports import Buffer

SECTOR_BYTES = 512


class PowerCut(enum.Enum):
    LOSE_ALL = "everything unsynced is lost"
    LOSE_NOTHING = "everything unsynced happened to reach the disk"
    PREFIX = "of each file and directory, the first few unsynced operations survive, the last of them in part"
    TORN = "of each unsynced write, some sectors survive and others do not"
    REORDERED = "of each file and directory, everything unsynced survives or nothing, whichever was written first"


@dataclasses.dataclass(slots=True)
class _Operation:
    """A write, or a truncation if `data` is None."""

    position: int
    data: bytes | None


class _Inode:
    __slots__ = ("content", "durable", "modified_ms", "pending")

    def __init__(self) -> None:
        self.content = bytearray()
        self.durable = bytearray()
        self.pending: list[_Operation] = []
        self.modified_ms = 0

    def write(self, position: int, data: bytes) -> None:
        _apply(self.content, _Operation(position, data))
        self.pending.append(_Operation(position, data))

    def truncate(self, size: int) -> None:
        _apply(self.content, _Operation(size, None))
        self.pending.append(_Operation(size, None))

    def sync(self) -> None:
        for operation in self.pending:
            _apply(self.durable, operation)
        self.pending.clear()


def _apply(content: bytearray, operation: _Operation) -> None:
    position, data = operation.position, operation.data
    if len(content) < position:
        content.extend(bytes(position - len(content)))
    if data is None:
        del content[position:]
    else:
        content[position : position + len(data)] = data


class _Directory:
    """Names and what they refer to; a change of names is one step, and so is a rename."""

    __slots__ = ("durable", "entries", "pending")

    def __init__(self) -> None:
        self.entries: dict[str, _Inode | _Directory] = {}
        self.durable: dict[str, _Inode | _Directory] = {}
        self.pending: list[dict[str, _Inode | _Directory | None]] = []

    def change(self, **names: "_Inode | _Directory | None") -> None:
        _apply_names(self.entries, names)
        self.pending.append(names)

    def sync(self) -> None:
        for names in self.pending:
            _apply_names(self.durable, names)
        self.pending.clear()


def _apply_names(entries: "dict[str, _Inode | _Directory]", names: "dict[str, _Inode | _Directory | None]") -> None:
    for name, entry in names.items():
        if entry is None:
            entries.pop(name, None)
        else:
            entries[name] = entry


class SimulatedFile:
    __slots__ = ("_disk", "_generation", "_inode", "_is_retired", "path")

    def __init__(self, disk: "SimulatedDisk", path: str) -> None:
        self._disk = disk
        self.path = path
        self._inode: _Inode | None = None
        self._generation = disk.generation
        self._is_retired = False

    def _opened(self) -> _Inode:
        assert self._generation == self._disk.generation, f"{self.path}: used after the power cut"
        if self._is_retired:
            raise OSError(errno.ESTALE, "the file was given up", self.path)
        if self._inode is None:
            self._inode = self._disk.inode(self.path)
        return self._inode

    def size(self) -> int:
        return len(self._opened().content)

    def read(self, position: int, count: int) -> bytes:
        return bytes(self._opened().content[position : position + count])

    def is_in_memory(self, position: int, count: int) -> bool:
        return self.path not in self._disk.cold_paths

    def load(self, position: int, count: int) -> None:
        self._disk.cold_paths.discard(self.path)

    def write(self, position: int, data: Buffer) -> None:
        self._disk.write_to(self._opened(), self.path, position, bytes(data))

    def write_all(self, position: int, buffers: Sequence[Buffer]) -> None:
        self.write(position, b"".join(buffers))

    def truncate(self, size: int) -> None:
        self._opened().truncate(size)

    def sync(self) -> None:
        if not self._is_retired:
            self._disk.sync_inode(self._opened(), self.path)

    def close(self) -> None:
        self._inode = None

    def retire(self) -> None:
        self._is_retired = True


class SimulatedDisk:
    def __init__(self, *, capacity_bytes: int | None = None) -> None:
        self.capacity_bytes = capacity_bytes
        self.generation = 0
        self.now_ms = 0
        self.syncs = 0
        self.cold_paths: set[str] = set()
        """Files of which nothing is in memory until it is loaded."""
        self._root = _Directory()
        self._failing_syncs: list[str] = []
        self._failing_writes: list[tuple[str, int]] = []

    # Faults

    def fail_sync(self, path_part: str = "") -> None:
        """The next sync of such a path fails with EIO, and what it should have kept is never durable."""
        self._failing_syncs.append(path_part)

    def fail_write(self, path_part: str = "", error: int = errno.EIO) -> None:
        """The next write to such a path fails and changes nothing."""
        self._failing_writes.append((path_part, error))

    def power_cut(self, mode: PowerCut, source: random.Random | None = None) -> None:
        """Starts again with what survived. All files opened before are invalid."""
        source = source or random.Random(0)
        self.generation += 1
        for directory in self._all_directories():
            for names in directory.pending[: _surviving(len(directory.pending), mode, source)]:
                _apply_names(directory.durable, names)
            directory.pending.clear()
        self._restart_from_durable(self._root, mode, source)
        self._failing_syncs.clear()
        self._failing_writes.clear()

    def _all_directories(self) -> list[_Directory]:
        """Those that can be reached, by what is seen or by what would survive, in an order that repeats."""
        found = [self._root]
        for directory in found:
            for entries in (directory.entries, directory.durable):
                for _, entry in sorted(entries.items()):
                    if isinstance(entry, _Directory) and entry not in found:
                        found.append(entry)
        return found

    def _restart_from_durable(self, directory: _Directory, mode: PowerCut, source: random.Random) -> None:
        directory.entries = dict(directory.durable)
        for _, entry in sorted(directory.entries.items()):
            if isinstance(entry, _Directory):
                self._restart_from_durable(entry, mode, source)
            else:
                _cut(entry, mode, source)
                entry.content = bytearray(entry.durable)

    def durable_bytes(self, path: str) -> int:
        """How many bytes at the front of a file survive every power cut; 0 if its name does not."""
        seen: _Inode | _Directory | None = self._root
        kept: _Inode | _Directory | None = self._root
        for name in filter(None, path.split("/")):
            seen = seen.entries.get(name) if isinstance(seen, _Directory) else None
            kept = kept.durable.get(name) if isinstance(kept, _Directory) else None
        if seen is not kept or not isinstance(kept, _Inode):
            return 0
        # What is written anew as it was already cannot be lost.
        changed = [operation.position for operation in kept.pending if _changes(kept.durable, operation)]
        return min([len(kept.durable), *changed])

    # Content

    def inode(self, path: str) -> _Inode:
        found = self._entry(path)
        if not isinstance(found, _Inode):
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return found

    def write_to(self, inode: _Inode, path: str, position: int, data: bytes) -> None:
        for at, (path_part, error) in enumerate(self._failing_writes):
            if path_part in path:
                del self._failing_writes[at]
                raise OSError(error, os.strerror(error), path)
        grown = max(position + len(data) - len(inode.content), 0)
        if self.capacity_bytes is not None and grown > self.free_bytes(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        inode.write(position, data)
        inode.modified_ms = self.now_ms

    def sync_inode(self, inode: _Inode, path: str) -> None:
        self.syncs += 1
        if self._takes_fault(path):
            inode.pending.clear()  # as Linux does: the pages count as clean and are not written again
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        inode.sync()

    def _takes_fault(self, path: str) -> bool:
        for at, path_part in enumerate(self._failing_syncs):
            if path_part in path:
                del self._failing_syncs[at]
                return True
        return False

    # Names

    def _entry(self, path: str) -> _Inode | _Directory | None:
        entry: _Inode | _Directory | None = self._root
        for name in path.split("/"):
            if name:
                entry = entry.entries.get(name) if isinstance(entry, _Directory) else None
        return entry

    def _directory(self, path: str) -> _Directory:
        found = self._entry(path)
        if not isinstance(found, _Directory):
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        return found

    # Faults

    def leave_room(self, room_bytes: int) -> None:
        """The disk is full after so many bytes more."""
        self.capacity_bytes = self.used_bytes() + room_bytes

    def make_room(self) -> None:
        self.capacity_bytes = None

    def call_off_faults(self) -> None:
        """No write and no sync fails, and there is room."""
        self.make_room()
        self._failing_syncs.clear()
        self._failing_writes.clear()

    def set_time(self, now_ms: int) -> None:
        self.now_ms = now_ms

    def take_away(self, path: str) -> Callable[[], None]:
        """Remove a file or a whole directory, as somebody else would, for good. The call that is returned undoes it."""
        parent, name = self._parent(path)
        entry, durable = parent.entries.pop(name), parent.durable.pop(name, None)
        parent.pending = [names for names in parent.pending if name not in names]

        def put_back() -> None:
            parent.entries[name] = entry
            if durable is not None:
                parent.durable[name] = durable

        return put_back

    # Names

    def _parent(self, path: str) -> tuple[_Directory, str]:
        parent, name = os.path.split(path)
        return self._directory(parent), name

    def open(self, path: str, *, create: bool = False) -> SimulatedFile:
        if create:
            self._create(path)
        return SimulatedFile(self, path)

    def _create(self, path: str) -> _Inode:
        parent, name = self._parent(path)
        if name not in parent.entries:
            inode = _Inode()
            inode.modified_ms = self.now_ms
            parent.change(**{name: inode})
        return self.inode(path)

    def exists(self, path: str) -> bool:
        return self._entry(path) is not None

    def list(self, directory: str) -> list[str]:
        return sorted(self._directory(directory).entries)

    def size(self, path: str) -> int:
        return len(self.inode(path).content)

    def modified_ms(self, path: str) -> int:
        return self.inode(path).modified_ms

    def make_directory(self, path: str) -> None:
        if self._entry(path) is None:
            self.make_directory(os.path.dirname(path))
            parent, name = self._parent(path)
            parent.change(**{name: _Directory()})

    def read_bytes(self, path: str) -> bytes:
        return bytes(self.inode(path).content)

    def write_atomically(self, path: str, data: Buffer) -> None:
        temporary = path + ".tmp"
        try:
            self.write_bytes(temporary, data)
            self.sync_inode(self.inode(temporary), temporary)
            self.rename(temporary, path)
        except OSError:
            if self.exists(temporary):
                self.remove(temporary)
            raise
        self.sync_directory(os.path.dirname(path))

    def write_bytes(self, path: str, data: Buffer) -> None:
        inode = self._create(path)
        if inode.content:
            inode.truncate(0)
        self.write_to(inode, path, 0, bytes(data))

    def rename(self, source: str, target: str) -> None:
        """A file or a whole directory, within one directory: one change of two names."""
        parent, name = self._parent(source)
        other, new_name = self._parent(target)
        assert parent is other, "a rename from one directory to another is two changes here"
        if name not in parent.entries:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        parent.change(**{name: None, new_name: parent.entries[name]})

    def remove(self, path: str) -> None:
        self.inode(path)
        parent, name = self._parent(path)
        parent.change(**{name: None})

    def remove_tree(self, path: str) -> None:
        directory = self._directory(path)
        for name, entry in sorted(directory.entries.items()):
            if isinstance(entry, _Directory):
                self.remove_tree(f"{path}/{name}")
            else:
                self.remove(f"{path}/{name}")
        parent, name = self._parent(path)
        parent.change(**{name: None})

    def sync_directory(self, path: str) -> None:
        self.syncs += 1
        directory = self._directory(path)
        if self._takes_fault(path):
            # Unlike pages, names stay dirty: file systems keep them in a journal, and give up altogether if that fails.
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        directory.sync()

    def sync_file_system(self, path: str) -> None:
        self.syncs += 1
        if self._takes_fault(path):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        waiting = [self._root]
        while waiting:
            directory = waiting.pop()
            directory.sync()
            for entry in directory.entries.values():
                if isinstance(entry, _Directory):
                    waiting.append(entry)
                else:
                    entry.sync()

    def free_bytes(self, path: str) -> int:
        return max(self.total_bytes(path) - self.used_bytes(), 0)

    def used_bytes(self) -> int:
        return self._used_bytes(self._root)

    def total_bytes(self, path: str) -> int:
        return 2**63 - 1 if self.capacity_bytes is None else self.capacity_bytes

    def _used_bytes(self, directory: _Directory) -> int:
        return sum(
            self._used_bytes(entry) if isinstance(entry, _Directory) else len(entry.content)
            for entry in directory.entries.values()
        )


def _changes(content: bytearray, operation: _Operation) -> bool:
    position, data = operation.position, operation.data
    return data is None or content[position : position + len(data)] != data


def _surviving(count: int, mode: PowerCut, source: random.Random) -> int:
    match mode:
        case PowerCut.LOSE_ALL:
            return 0
        case PowerCut.LOSE_NOTHING:
            return count
        case PowerCut.REORDERED:
            return source.choice((0, count))
        case _:
            return source.randint(0, count)


def _cut(inode: _Inode, mode: PowerCut, source: random.Random) -> None:
    pending, inode.pending = inode.pending, []
    if mode is PowerCut.TORN:
        for operation in pending:
            for piece in _sectors(operation):
                if source.random() < 0.7:
                    _apply(inode.durable, piece)
        return
    kept = _surviving(len(pending), mode, source)
    for operation in pending[:kept]:
        _apply(inode.durable, operation)
    if mode is PowerCut.PREFIX and kept < len(pending) and pending[kept].data is not None:
        pieces = _sectors(pending[kept])
        for piece in pieces[: source.randint(0, len(pieces))]:
            _apply(inode.durable, piece)


def _sectors(operation: _Operation) -> list[_Operation]:
    """The parts of a write that a disk takes or loses as one."""
    data = operation.data
    if data is None:
        return [operation]
    pieces = []
    start = 0
    while start < len(data):
        position = operation.position + start
        end = min(start + SECTOR_BYTES - position % SECTOR_BYTES, len(data))
        pieces.append(_Operation(position, data[start:end]))
        start = end
    return pieces
