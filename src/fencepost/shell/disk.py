"""The real file system as a `ports.Disk`, with a limit on open files.

Files are opened on first use, and the least recently used are closed when too many are open; only reads and writes
close files this way, that is, only the thread of the event loop. `sync` may run in a helper thread: it pins the
descriptor meanwhile. A partial write is truncated again, so that a full disk leaves nothing torn.

If the process has no descriptor left, the disk uses one of its spare ones, then that of an idle file; a helper thread,
which must not close those, waits. Only then it raises OSError with an errno of NO_DESCRIPTORS.
"""

import contextlib
import errno
import os
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from fencepost.broker import cause_journal, cluster_metadata, earlier_metadata
from fencepost.metadata.log_files import METADATA_DIRECTORY
from fencepost.ports import NO_DESCRIPTORS, Buffer

_TEMPORARY_SUFFIX = ".tmp"
PRIVATE_FILES = frozenset({
    cluster_metadata.DECOY_SECRET_NAME, earlier_metadata.JOURNAL_NAME, earlier_metadata.JOURNAL_BACKUP_NAME,
    cause_journal.JOURNAL_NAME,
})  # fmt: skip
"""They contain password verifiers, and which client did what from where."""
PRIVATE_MODE = 0o600
_VECTOR_MAX = 1024
_SMALL_READ_BYTES = 1 << 16
_LARGE_READ_BYTES = 1 << 20
_QUICK_REMOVAL_BYTES_MAX = 16 << 20
_SPARE_DESCRIPTORS_MAX = 8
_DESCRIPTOR_WAIT_SECONDS = 0.02
_CLOSED: Final = -1
_NO_WAIT: Final[int | None] = getattr(os, "RWF_NOWAIT", None)  # Linux
_PROBED_BYTES = 131_072
_sync_data: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync


def _mode_of(path: str) -> int:
    """The mode of a new file; the umask of the process may restrict it further."""
    directory, name = os.path.split(path)
    is_private = name.removesuffix(_TEMPORARY_SUFFIX) in PRIVATE_FILES
    # Verifiers of passwords are in the metadata, too.
    return PRIVATE_MODE if is_private or os.path.basename(directory).startswith(METADATA_DIRECTORY) else 0o644


def make_private(directory: str) -> None:
    """Restricts files that an earlier version created readable for everybody."""
    metadata = os.path.join(directory, METADATA_DIRECTORY)
    names = [
        os.path.join(METADATA_DIRECTORY, name) for name in (os.listdir(metadata) if os.path.isdir(metadata) else ())
    ]
    for name in (*PRIVATE_FILES, *names):
        for path in (os.path.join(directory, name), os.path.join(directory, name + _TEMPORARY_SUFFIX)):
            # The file has another owner.
            with contextlib.suppress(FileNotFoundError, PermissionError):
                os.chmod(path, PRIVATE_MODE)


class RealFile:
    __slots__ = ("_closes_unpinned", "_descriptor", "_disk", "_is_retired", "_pins", "_recently_used", "path")

    def __init__(self, disk: "RealDisk", path: str) -> None:
        self._disk = disk
        self.path = path
        self._descriptor = _CLOSED
        self._pins = 0
        self._recently_used = False
        self._closes_unpinned = False
        """A sync is using the descriptor, and closes it at the end."""
        self._is_retired = False

    def size(self) -> int:
        if self._descriptor == _CLOSED:
            return os.stat(self.path).st_size
        return os.fstat(self._descriptor).st_size

    def read(self, position: int, count: int) -> bytes:
        descriptor = self._descriptor
        if descriptor == _CLOSED:
            descriptor = self._disk.acquire(self)
        self._recently_used = True
        data = os.pread(descriptor, count, position)
        if len(data) == count or not data:
            return data
        parts = [data]
        missing = count - len(data)
        while missing > 0:
            position += len(data)
            data = os.pread(descriptor, missing, position)
            if not data:
                break
            parts.append(data)
            missing -= len(data)
        return b"".join(parts)

    def is_in_memory(self, position: int, count: int) -> bool:
        if _NO_WAIT is None or self._disk.cannot_tell_memory:
            return True
        descriptor = self._descriptor
        if descriptor == _CLOSED:
            descriptor = self._disk.acquire(self)
        probe = (bytearray(1),)
        try:
            # Reads single bytes: the system reads whole pages ahead.
            for at in range(position, position + count, _PROBED_BYTES):
                os.preadv(descriptor, probe, at, _NO_WAIT)
            os.preadv(descriptor, probe, position + count - 1, _NO_WAIT)
        except BlockingIOError:
            return False
        except OSError:
            # Not every file system supports it.
            self._disk.cannot_tell_memory = True
        return True

    def load(self, position: int, count: int) -> None:
        descriptor = self._disk.pin(self)
        if descriptor == _CLOSED:
            return
        try:
            with contextlib.suppress(OSError):
                for at in range(position, position + count, _PROBED_BYTES):
                    os.pread(descriptor, min(_PROBED_BYTES, position + count - at), at)
        finally:
            self._disk.unpin(self)

    def write(self, position: int, data: Buffer) -> None:
        descriptor = self._descriptor
        if descriptor == _CLOSED:
            descriptor = self._disk.acquire(self)
        self._recently_used = True
        written = os.pwrite(descriptor, data, position)
        if written != len(data):
            self._write_rest(descriptor, position, memoryview(data), written)

    def _write_rest(self, descriptor: int, position: int, data: memoryview, written: int) -> None:
        """Continues after a short write; on a full disk the next write raises the error."""
        try:
            while written < len(data):
                count = os.pwrite(descriptor, data[written:], position + written)
                if count == 0:
                    raise OSError(5, "write made no progress", self.path)
                written += count
        except OSError:
            os.ftruncate(descriptor, position)
            raise

    def write_all(self, position: int, buffers: Sequence[Buffer]) -> None:
        if len(buffers) > _VECTOR_MAX:
            self.write(position, b"".join(buffers))
            return
        descriptor = self._descriptor
        if descriptor == _CLOSED:
            descriptor = self._disk.acquire(self)
        self._recently_used = True
        written = os.pwritev(descriptor, buffers, position)
        if written != sum(map(len, buffers)):
            self._write_rest(descriptor, position, memoryview(b"".join(buffers)), written)

    def truncate(self, size: int) -> None:
        descriptor = self._descriptor
        if descriptor == _CLOSED:
            descriptor = self._disk.acquire(self)
        os.ftruncate(descriptor, size)

    def sync(self) -> None:
        descriptor = self._disk.pin(self)
        if descriptor == _CLOSED:
            return  # retired: nothing must be kept
        try:
            _sync_data(descriptor)
        finally:
            self._disk.unpin(self)

    def close(self) -> None:
        self._disk.release(self)

    def retire(self) -> None:
        self._disk.retire(self)


class RealDisk:
    """Paths are absolute. `open_files_max` bounds the descriptors this object keeps, not those in a sync right now."""

    def __init__(self, open_files_max: int = 512) -> None:
        self._open_files_max = max(open_files_max, 8)
        self._lock = threading.Lock()
        self._open: dict[RealFile, None] = {}
        self._loop_thread = threading.get_ident()
        self.cannot_tell_memory = False
        """Whether the file system does not tell which part of a file is in memory."""
        self._spares: list[int] = []
        self._spares_wanted = min(_SPARE_DESCRIPTORS_MAX, open_files_max // 16)

    @property
    def open_files(self) -> int:
        return len(self._open)

    def open(self, path: str, *, create: bool = False) -> RealFile:
        file = RealFile(self, path)
        if create:
            self._acquire(file, os.O_RDWR | os.O_CREAT)
        return file

    # Descriptors

    def acquire(self, file: RealFile) -> int:
        return self._acquire(file, os.O_RDWR)

    def _acquire(self, file: RealFile, flags: int) -> int:
        with self._lock:
            if file._is_retired:
                raise OSError(errno.ESTALE, "the file was retired", file.path)
            if file._descriptor == _CLOSED:
                # Only reads and writes make room, which the event loop alone does: a sync in a helper thread must not
                # close what the loop may be using.
                if len(self._open) >= self._open_files_max:
                    self._make_room()
                file._descriptor = self._open_descriptor(file.path, flags, self._close_idle_file)
                self._open[file] = None
                if len(self._spares) < self._spares_wanted:
                    self._keep_spare()
            return file._descriptor

    def _open_descriptor(self, path: str, flags: int, give_way: "Callable[[], bool] | None" = None) -> int:
        """Like os.open, but makes sure that a descriptor is available."""
        while True:
            try:
                return os.open(path, flags | os.O_CLOEXEC, _mode_of(path))
            except OSError as error:
                if error.errno not in NO_DESCRIPTORS:
                    raise
                if not self._give_up_spare() and not (give_way or self._wait)():
                    raise

    def _keep_spare(self) -> None:
        with contextlib.suppress(OSError):
            self._spares.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def _give_up_spare(self) -> bool:
        try:
            os.close(self._spares.pop())
        except IndexError:
            return False
        return True

    def _wait(self) -> bool:
        """In a helper thread, waits until connections or files are closed. The event loop does not wait, but may close
        files."""
        if threading.get_ident() == self._loop_thread:
            with self._lock:
                return self._close_idle_file()
        time.sleep(_DESCRIPTOR_WAIT_SECONDS)
        return True

    def _close_idle_file(self) -> bool:
        idle = next((file for file in self._open if not file._pins), None)
        if idle is not None:
            self._close(idle)
        return idle is not None

    def _make_room(self) -> None:
        """Closes the oldest file that was not used since it was last considered."""
        wanted = self._open_files_max - 1
        for _ in range(2):
            for file in list(self._open):
                if len(self._open) <= wanted:
                    return
                if file._pins:
                    continue
                if file._recently_used:
                    file._recently_used = False
                    del self._open[file]
                    self._open[file] = None
                else:
                    self._close(file)

    def _close(self, file: RealFile) -> None:
        del self._open[file]
        file._closes_unpinned = False
        descriptor, file._descriptor = file._descriptor, _CLOSED
        os.close(descriptor)

    def pin(self, file: RealFile) -> int:
        """The descriptor to sync, until `unpin`; _CLOSED if the file is retired."""
        while True:
            with self._lock:
                if file._is_retired:
                    return _CLOSED
                if file._descriptor == _CLOSED:
                    file._descriptor = self._open_for_sync(file.path)
                if file._descriptor != _CLOSED:
                    self._open[file] = None
                    file._pins += 1
                    return file._descriptor
            # Without the lock, which is needed to free a descriptor.
            time.sleep(_DESCRIPTOR_WAIT_SECONDS)

    def _open_for_sync(self, path: str) -> int:
        """Returns _CLOSED if there is no descriptor now. Written data must be synced, so the caller tries again."""
        give_way = self._close_idle_file if threading.get_ident() == self._loop_thread else None
        try:
            return self._open_descriptor(path, os.O_RDWR, give_way or (lambda: False))
        except OSError as error:
            if error.errno in NO_DESCRIPTORS and give_way is None:
                return _CLOSED
            raise

    def unpin(self, file: RealFile) -> None:
        with self._lock:
            file._pins -= 1
            if file._closes_unpinned and not file._pins:
                self._close(file)

    def release(self, file: RealFile) -> None:
        with self._lock:
            self._release(file)

    def retire(self, file: RealFile) -> None:
        with self._lock:
            file._is_retired = True
            self._release(file)

    def _release(self, file: RealFile) -> None:
        if file._descriptor != _CLOSED:
            if file._pins:
                file._closes_unpinned = True
            else:
                self._close(file)

    def close_all(self) -> None:
        """At shutdown, when no sync runs any more."""
        with self._lock:
            for file in list(self._open):
                self._close(file)
            while self._give_up_spare():
                pass

    # The name space

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def list(self, directory: str) -> list[str]:
        return sorted(os.listdir(directory))

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def make_directory(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def read_bytes(self, path: str) -> bytes:
        descriptor = self._open_descriptor(path, os.O_RDONLY)
        try:
            data = os.read(descriptor, _SMALL_READ_BYTES)
            if len(data) < _SMALL_READ_BYTES:
                return data
            parts = [data]
            while part := os.read(descriptor, _LARGE_READ_BYTES):
                parts.append(part)
            return b"".join(parts)
        finally:
            os.close(descriptor)

    def write_atomically(self, path: str, data: Buffer) -> None:
        temporary = path + _TEMPORARY_SUFFIX
        try:
            self._write_whole(temporary, data, sync=True)
            os.replace(temporary, path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        self.sync_directory(os.path.dirname(path))

    def write_bytes(self, path: str, data: Buffer) -> None:
        self._write_whole(path, data, sync=False)

    def _write_whole(self, path: str, data: Buffer, *, sync: bool) -> None:
        descriptor = self._open_descriptor(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            if sync:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        if os.stat(path).st_size < _QUICK_REMOVAL_BYTES_MAX:
            os.unlink(path)
            return
        # Dropping a gigabyte from the page cache takes a tenth of a second. The name goes now; the pages go with the
        # last descriptor, which a thread closes.
        descriptor = self._open_descriptor(path, os.O_RDONLY)
        os.unlink(path)
        threading.Thread(target=os.close, args=(descriptor,), name="fencepost-remove", daemon=True).start()

    def remove_tree(self, path: str) -> None:
        if os.path.islink(path):
            os.unlink(path)  # the target of a symbolic link is not removed
        else:
            shutil.rmtree(path, ignore_errors=False)

    def sync_directory(self, path: str) -> None:
        descriptor = self._open_descriptor(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def sync_file_system(self, path: str) -> None:
        import ctypes  # only here, and slow to import

        syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
        if syncfs is None:  # not Linux: sync everything
            os.sync()
            return
        descriptor = self._open_descriptor(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            if syncfs(descriptor) != 0:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), path)
        finally:
            os.close(descriptor)

    def free_bytes(self, path: str) -> int:
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize

    def total_bytes(self, path: str) -> int:
        status = os.statvfs(path)
        return status.f_blocks * status.f_frsize
