"""Locks a data directory for one broker at a time, be it Fencepost or Apache Kafka.

Takes three locks, because no single one is checked by all: a record lock on `.lock`, as Apache Kafka uses; flock on
`.lock`, as earlier versions of Fencepost use; and flock on the directory itself, which remains if somebody deletes
`.lock`.
"""

import contextlib
import errno
import fcntl
import os
import struct
from pathlib import Path

from fencepost.broker.storage import LOCK_NAME

_HELD_BY_ANOTHER = (errno.EAGAIN, errno.EACCES)
# struct flock: type, whence, start, length (0 is the whole file), process.
_WHOLE_FILE = struct.pack("hhqqi0q", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)


class DirectoryInUse(Exception):
    """Another broker has the directory."""


class DirectoryLock:
    def __init__(self, directory: Path) -> None:
        """Raises DirectoryInUse, or OSError if the directory cannot be used at all."""
        self._directory = directory
        self._of_directory = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # Some network file systems cannot lock directories; the file is locked everywhere.
            with contextlib.suppress(OSError):
                _lock(fcntl.flock, self._of_directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._of_file = self._lock_file()
        except BaseException:
            os.close(self._of_directory)
            raise

    def _lock_file(self) -> int:
        descriptor = os.open(self._directory / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            _lock(fcntl.flock, descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if hasattr(fcntl, "F_OFD_SETLK"):
                # Excludes other processes like lockf, but is not lost when this process opens and closes the file
                # again.
                _lock(fcntl.fcntl, descriptor, fcntl.F_OFD_SETLK, _WHOLE_FILE)
            else:
                _lock(fcntl.lockf, descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def renew(self) -> None:
        """Locks the file again if it was deleted. Raises DirectoryInUse if another broker has locked it."""
        held = os.fstat(self._of_file)
        try:
            found = os.stat(self._directory / LOCK_NAME)
        except FileNotFoundError:
            found = None
        if found is None or (found.st_dev, found.st_ino) != (held.st_dev, held.st_ino):
            again = self._lock_file()
            os.close(self._of_file)
            self._of_file = again

    def release(self) -> None:
        """Once."""
        os.close(self._of_file)
        os.close(self._of_directory)


def _lock(take: object, *arguments: object) -> None:
    assert callable(take)
    try:
        take(*arguments)
    except OSError as error:
        if error.errno in _HELD_BY_ANOTHER:
            raise DirectoryInUse from None
        raise
