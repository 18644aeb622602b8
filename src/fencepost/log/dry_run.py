"""A disk for trying things: reads from another disk, and keeps everything written in memory.

With it, a log can be opened exactly as by a broker, with truncations and renames, without any effect on the other disk.
Names are copied when a directory is first read, bytes never: a file consists of the bytes of the other disk up to the
first change, and of what was written after that.
"""

import errno
import os.path
from collections.abc import Sequence

from fencepost.ports import Buffer, Disk


class _File:
    __slots__ = ("kept", "source", "written")

    def __init__(self, source: str | None, kept: int) -> None:
        self.source = source
        self.kept = kept
        """The number of bytes that are still those of the other disk."""
        self.written = bytearray()

    @property
    def size(self) -> int:
        return self.kept + len(self.written)


class _Directory:
    __slots__ = ("entries",)

    def __init__(self, entries: "dict[str, _Entry]") -> None:
        self.entries = entries


class _Unseen:
    """A name on the other disk whose kind is not known yet."""

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        self.path = path


_Entry = _File | _Directory | _Unseen


class DryRunFile:
    def __init__(self, disk: "DryRunDisk", path: str, file: _File) -> None:
        self.path = path
        self._disk = disk
        self._file = file

    def size(self) -> int:
        return self._file.size

    def read(self, position: int, count: int) -> bytes:
        return self._disk.read(self._file, position, count)

    def is_in_memory(self, position: int, count: int) -> bool:
        return True

    def load(self, position: int, count: int) -> None:
        pass

    def write(self, position: int, data: Buffer) -> None:
        file = self._file
        if position < file.kept:
            rest = self._disk.read(file, position, file.size - position)
            file.kept, file.written = position, bytearray(rest)
        start = position - file.kept
        if start > len(file.written):
            file.written += bytes(start - len(file.written))
        file.written[start : start + len(data)] = data

    def write_all(self, position: int, buffers: Sequence[Buffer]) -> None:
        self.write(position, b"".join(buffers))

    def truncate(self, size: int) -> None:
        file = self._file
        if size > file.size:
            self.write(size, b"")
        del file.written[max(size - file.kept, 0) :]
        file.kept = min(file.kept, size)

    def sync(self) -> None: ...

    def close(self) -> None: ...

    def retire(self) -> None: ...


class DryRunDisk:
    def __init__(self, disk: Disk, directory: str) -> None:
        """`directory` must exist; only paths in it can be used."""
        self._disk = disk
        self._directory = directory
        self._root = _Directory({name: _Unseen(f"{directory}/{name}") for name in disk.list(directory)})

    # Bytes

    def read(self, file: _File, position: int, count: int) -> bytes:
        front = b""
        if position < file.kept and file.source is not None:
            source = self._disk.open(file.source)
            try:
                front = source.read(position, min(count, file.kept - position))
            finally:
                source.close()
        start = position + len(front) - file.kept
        return front + bytes(file.written[max(start, 0) : max(start + count - len(front), 0)])

    def open(self, path: str, *, create: bool = False) -> DryRunFile:
        if create and not self.exists(path):
            parent, name = self._parent(path)
            parent.entries[name] = _File(None, 0)
        return DryRunFile(self, path, self._file(path))

    def read_bytes(self, path: str) -> bytes:
        file = self._file(path)
        return self.read(file, 0, file.size)

    def write_bytes(self, path: str, data: Buffer) -> None:
        file = self.open(path, create=True)
        file.truncate(0)
        file.write(0, data)

    def write_atomically(self, path: str, data: Buffer) -> None:
        self.write_bytes(path, data)

    # Names

    def _seen(self, directory: _Directory, name: str) -> "_File | _Directory | None":
        entry = directory.entries.get(name)
        if not isinstance(entry, _Unseen):
            return entry
        path = entry.path
        try:
            found: _File | _Directory = _File(path, self._disk.size(path))
            if self._is_directory(path):  # a real disk gives directories a size, too
                raise FileNotFoundError
        except FileNotFoundError:
            found = _Directory({each: _Unseen(f"{path}/{each}") for each in self._disk.list(path)})
        directory.entries[name] = found
        return found

    def _is_directory(self, path: str) -> bool:
        try:
            self._disk.list(path)
        except (NotADirectoryError, FileNotFoundError):
            return False
        return True

    def _entry(self, path: str) -> "_File | _Directory | None":
        if path != self._directory and not path.startswith(self._directory + "/"):
            raise ValueError(f"{path} is not in {self._directory}")
        entry: _File | _Directory | None = self._root
        for name in path[len(self._directory) :].split("/"):
            if name:
                entry = self._seen(entry, name) if isinstance(entry, _Directory) else None
        return entry

    def _file(self, path: str) -> _File:
        found = self._entry(path)
        if not isinstance(found, _File):
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return found

    def _directory_at(self, path: str) -> _Directory:
        found = self._entry(path)
        if not isinstance(found, _Directory):
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        return found

    def _parent(self, path: str) -> tuple[_Directory, str]:
        parent, name = os.path.split(path)
        return self._directory_at(parent), name

    def exists(self, path: str) -> bool:
        return self._entry(path) is not None

    def list(self, directory: str) -> list[str]:
        return sorted(self._directory_at(directory).entries)

    def size(self, path: str) -> int:
        return self._file(path).size

    def modified_ms(self, path: str) -> int:
        source = self._file(path).source
        return 0 if source is None else self._disk.modified_ms(source)

    def make_directory(self, path: str) -> None:
        if not self.exists(path):
            self.make_directory(os.path.dirname(path))
            parent, name = self._parent(path)
            parent.entries[name] = _Directory({})

    def rename(self, source: str, target: str) -> None:
        if not self.exists(source):
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        parent, name = self._parent(source)
        other, new_name = self._parent(target)
        other.entries[new_name] = parent.entries.pop(name)

    def remove(self, path: str) -> None:
        self._file(path)
        parent, name = self._parent(path)
        del parent.entries[name]

    def remove_tree(self, path: str) -> None:
        self._directory_at(path)
        parent, name = self._parent(path)
        del parent.entries[name]

    def sync_directory(self, path: str) -> None:
        self._directory_at(path)

    def sync_file_system(self, path: str) -> None: ...

    def free_bytes(self, path: str) -> int:
        return self._disk.free_bytes(self._directory)

    def total_bytes(self, path: str) -> int:
        return self._disk.total_bytes(self._directory)
