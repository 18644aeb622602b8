"""What the pure core needs from the world: time, disk, timers, randomness and background syncs.

Two shells provide these: `fencepost.shell` (the real machine) and `fencepost.simulation` (virtual time, seeded
faults). Nothing in the core may reach around them.
"""

import errno
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

Buffer = bytes | bytearray | memoryview
T = TypeVar("T")


class Clock(Protocol):
    def wall_ms(self) -> int:
        """Milliseconds since 1970; may jump. Only for timestamps that people or Kafka's formats see."""

    def monotonic_ms(self) -> int:
        """Milliseconds that never go back. Every time-out is measured with this."""

    def work_ns(self) -> int:
        """Nanoseconds that never go back, to see how long a piece of work takes. Simulated, every look takes some."""

    def cpu_ns(self) -> int:
        """Processor time of the calling thread. Simulated, looks at `work_ns` are the only work there is."""


# A named tuple's own constructor is a Python function; moments are made with every call of a coordinator.
_new_tuple = tuple.__new__


class Now(NamedTuple):
    """One moment on two clocks: time-outs are measured on the first, records are stamped with the second."""

    monotonic_ms: int
    wall_ms: int

    @staticmethod
    def of(clock: Clock) -> "Now":
        return _new_tuple(Now, (clock.monotonic_ms(), clock.wall_ms()))


class Timer(Protocol):
    def cancel(self) -> None: ...


class Scheduler(Protocol):
    def call_later(self, delay_ms: int, callback: Callable[[], None], /) -> Timer: ...

    def call_soon(self, callback: Callable[[], None], /) -> object:
        """Run after the event that is being handled now, before anything waits again."""

    def call_when_quiet(self, callback: Callable[[], None], /) -> object:
        """Run when no request waits to be served, and within milliseconds anyway: for what is cheaper in bulk."""


NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})
"""Too many files and connections are open. That is no fault of the disk and passes."""
FULL_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG}) | NO_DESCRIPTORS
"""What says that there is no room: there may be some again, where any other failure of a disk is for good."""


class Randomness(Protocol):
    def random_bytes(self, count: int) -> bytes: ...


class File(Protocol):
    """One file, addressed by position. Not thread safe, but for `sync`."""

    path: str

    def size(self) -> int: ...

    def read(self, position: int, count: int) -> bytes:
        """Up to `count` bytes; fewer only at the end of the file."""

    def is_in_memory(self, position: int, count: int) -> bool:
        """Whether a read there would not wait for the disk, as far as can be told."""

    def load(self, position: int, count: int) -> None:
        """Have the disk read it into memory, in a helper thread. Says nothing of failures: a read will."""

    def write(self, position: int, data: Buffer) -> None:
        """All of `data` at `position`, or OSError with the file cut back to what it was (nothing torn)."""

    def write_all(self, position: int, buffers: Sequence[Buffer]) -> None:
        """Like `write`, for several buffers in a row."""

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Make what was written durable (fdatasync). May run in a helper thread. OSError means the data may be lost.

        FileNotFoundError: somebody else has removed it.
        """

    def close(self) -> None: ...

    def retire(self) -> None:
        """Its name goes, or belongs to another file soon: close it, as soon as no sync uses it.

        A sync from now on has nothing left to keep and does nothing; anything else raises OSError.
        """


class Disk(Protocol):
    """A file system below one data directory. Paths are absolute strings."""

    def open(self, path: str, *, create: bool = False) -> File: ...

    def exists(self, path: str) -> bool: ...

    def list(self, directory: str) -> list[str]:
        """Sorted names."""

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def make_directory(self, path: str) -> None:
        """With parents; an existing one is fine."""

    def read_bytes(self, path: str) -> bytes: ...

    def write_atomically(self, path: str, data: Buffer) -> None:
        """Replace a small file: write aside, sync, rename, sync the directory."""

    def write_bytes(self, path: str, data: Buffer) -> None:
        """Replace a small file without syncing: for what recovery can rebuild."""

    def rename(self, source: str, target: str) -> None: ...

    def remove(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None: ...

    def sync_directory(self, path: str) -> None: ...

    def sync_file_system(self, path: str) -> None:
        """Make everything written to the file system that holds `path` durable, in one go."""

    def free_bytes(self, path: str) -> int: ...

    def total_bytes(self, path: str) -> int: ...


class Workers(Protocol):
    """Helper threads, for long work that lets the interpreter go on: compressing and decompressing."""

    def run(self, function: Callable[[], T], done: Callable[[T | Exception], None], /) -> None:
        """Then call back on the event loop with what it returned or raised."""


class Syncable(Protocol):
    """Something written that is not durable yet: a file, a directory's entries, a checkpoint to be replaced."""

    def sync(self) -> None: ...


class Flusher(Protocol):
    """Syncs in the background, then calls back on the event loop with None or the first OSError."""

    def sync(self, files: Sequence[Syncable], done: Callable[[OSError | None], None]) -> None: ...
