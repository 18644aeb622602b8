"""A file system in memory that forgets, on a power cut, whatever was not synced: bytes, names, renames, removals.

Owns the difference between what a process sees and what would survive. Faults are chosen by the caller or drawn from a
random source it gives, so that a failure repeats under its seed. Stricter than most real file systems: a synced file whose
directory was not synced is gone.
"""

import dataclasses
import enum
import errno
import os.path
import random
from collections.abc import Sequence

from fencepost.ports import Buffer

SECTOR_BYTES = 512


class PowerCut(enum.Enum):
    LOSE_ALL = "everything unsynced is lost"
    LOSE_NOTHING = "everything unsynced happened to reach the disk"
    PREFIX = "of each file and directory, the first few unsynced operations survive, the last of them in part"
    TORN = "of each unsynced write, some sectors survive and others do not"


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


@dataclasses.dataclass(slots=True)
class _NameChange:
    """A name that now stands for `inode`; for nothing, if None. A rename is one change of two names."""

    path: str
    inode: _Inode | None
    renamed_from: str | None = None
    is_directory: bool = False


class SimulatedFile:
    __slots__ = ("_disk", "_generation", "_inode", "path")

    def __init__(self, disk: "SimulatedDisk", path: str) -> None:
        self._disk = disk
        self.path = path
        self._inode: _Inode | None = None
        self._generation = disk.generation

    def _opened(self) -> _Inode:
        assert self._generation == self._disk.generation, f"{self.path}: used after the power cut"
        if self._inode is None:
            self._inode = self._disk.inode(self.path)
        return self._inode

    def size(self) -> int:
        return len(self._opened().content)

    def read(self, position: int, count: int) -> bytes:
        return bytes(self._opened().content[position : position + count])

    def write(self, position: int, data: Buffer) -> None:
        self._disk.write_to(self._opened(), self.path, position, bytes(data))

    def write_all(self, position: int, buffers: Sequence[Buffer]) -> None:
        self.write(position, b"".join(buffers))

    def truncate(self, size: int) -> None:
        self._opened().truncate(size)

    def sync(self) -> None:
        self._disk.sync_inode(self._opened(), self.path)

    def close(self) -> None:
        self._inode = None


class SimulatedDisk:
    def __init__(self, *, capacity_bytes: int | None = None) -> None:
        self.capacity_bytes = capacity_bytes
        self.generation = 0
        self.now_ms = 0
        self.syncs = 0
        self._inodes: dict[str, _Inode] = {}
        self._durable_inodes: dict[str, _Inode] = {}
        self._directories: set[str] = {"/"}
        self._durable_directories: set[str] = {"/"}
        self._changes: dict[str, list[_NameChange]] = {}
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
        """Start over with what survived. Every file handed out before is dead."""
        source = source or random.Random(0)
        self.generation += 1
        for directory in sorted(self._changes):
            changes = self._changes[directory]
            for change in changes[: _surviving(len(changes), mode, source)]:
                self._make_name_durable(change)
        self._changes.clear()
        self._directories = {path for path in self._durable_directories if self._reachable(path)}
        self._durable_directories = set(self._directories)
        self._durable_inodes = {
            path: inode
            for path, inode in self._durable_inodes.items()
            if os.path.dirname(path) in self._durable_directories
        }
        self._inodes = dict(self._durable_inodes)
        for path in sorted(self._inodes):
            inode = self._inodes[path]
            _cut(inode, mode, source)
            inode.content = bytearray(inode.durable)
        self._failing_syncs.clear()
        self._failing_writes.clear()

    def _reachable(self, path: str) -> bool:
        while path != "/":
            if path not in self._durable_directories:
                return False
            path = os.path.dirname(path)
        return True

    # Content

    def inode(self, path: str) -> _Inode:
        if path not in self._inodes:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return self._inodes[path]

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

    def _change(self, change: _NameChange) -> None:
        self._changes.setdefault(os.path.dirname(change.path), []).append(change)

    def _make_name_durable(self, change: _NameChange) -> None:
        if change.is_directory:
            if change.inode is None and change.renamed_from == change.path:
                self._durable_directories.discard(change.path)
            else:
                self._durable_directories.add(change.path)
            return
        if change.renamed_from is not None:
            self._durable_inodes.pop(change.renamed_from, None)
        if change.inode is None:
            self._durable_inodes.pop(change.path, None)
        else:
            self._durable_inodes[change.path] = change.inode

    def open(self, path: str, *, create: bool = False) -> SimulatedFile:
        if create:
            self._create(path)
        return SimulatedFile(self, path)

    def _create(self, path: str) -> _Inode:
        if path not in self._inodes:
            if os.path.dirname(path) not in self._directories:
                raise FileNotFoundError(errno.ENOENT, "no such directory", path)
            inode = self._inodes[path] = _Inode()
            inode.modified_ms = self.now_ms
            self._change(_NameChange(path, inode))
        return self._inodes[path]

    def exists(self, path: str) -> bool:
        return path in self._inodes or path in self._directories

    def list(self, directory: str) -> list[str]:
        if directory not in self._directories:
            raise FileNotFoundError(errno.ENOENT, "no such directory", directory)
        prefix = directory.rstrip("/") + "/"
        paths = [*self._inodes, *self._directories]
        return sorted(
            path[len(prefix) :]
            for path in paths
            if path.startswith(prefix) and len(path) > len(prefix) and "/" not in path[len(prefix) :]
        )

    def size(self, path: str) -> int:
        return len(self.inode(path).content)

    def modified_ms(self, path: str) -> int:
        return self.inode(path).modified_ms

    def make_directory(self, path: str) -> None:
        missing = []
        while path not in self._directories:
            missing.append(path)
            path = os.path.dirname(path)
        for directory in reversed(missing):
            self._directories.add(directory)
            self._change(_NameChange(directory, None, is_directory=True))

    def read_bytes(self, path: str) -> bytes:
        return bytes(self.inode(path).content)

    def write_atomically(self, path: str, data: Buffer) -> None:
        temporary = path + ".tmp"
        self.write_bytes(temporary, data)
        self.sync_inode(self.inode(temporary), temporary)
        self.rename(temporary, path)
        self.sync_directory(os.path.dirname(path))

    def write_bytes(self, path: str, data: Buffer) -> None:
        inode = self._create(path)
        if inode.content:
            inode.truncate(0)
        self.write_to(inode, path, 0, bytes(data))

    def rename(self, source: str, target: str) -> None:
        inode = self.inode(source)
        del self._inodes[source]
        self._inodes[target] = inode
        self._change(_NameChange(target, inode, renamed_from=source))

    def remove(self, path: str) -> None:
        self.inode(path)
        del self._inodes[path]
        self._change(_NameChange(path, None))

    def remove_tree(self, path: str) -> None:
        for name in self.list(path):
            below = f"{path}/{name}"
            if below in self._directories:
                self.remove_tree(below)
            else:
                self.remove(below)
        self._directories.discard(path)
        self._change(_NameChange(path, None, renamed_from=path, is_directory=True))

    def sync_directory(self, path: str) -> None:
        self.syncs += 1
        changes = self._changes.pop(path, [])
        if self._takes_fault(path):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        for change in changes:
            self._make_name_durable(change)

    def free_bytes(self, path: str) -> int:
        if self.capacity_bytes is None:
            return 2**63 - 1
        return max(self.capacity_bytes - sum(len(inode.content) for inode in self._inodes.values()), 0)


def _surviving(count: int, mode: PowerCut, source: random.Random) -> int:
    match mode:
        case PowerCut.LOSE_ALL:
            return 0
        case PowerCut.LOSE_NOTHING:
            return count
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
