"""Syncs files for group commit in helper threads, and reports back on the event loop.

Each file is synced by one thread; many files are distributed over all threads. Only the first error is reported.
"""

import asyncio
import errno
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue

from fencepost.ports import Syncable

_Job = tuple[Sequence[Syncable], Callable[[OSError | None], None]]


class ThreadedFlusher:
    def __init__(self, loop: asyncio.AbstractEventLoop, threads: int) -> None:
        self._loop = loop
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, name=f"sync-{number}", daemon=True) for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def sync(self, files: Sequence[Syncable], done: Callable[[OSError | None], None]) -> None:
        shares = min(len(self._threads), len(files))
        if shares <= 1:
            self._jobs.put((files, done))
            return
        left = shares
        first_error: OSError | None = None

        def finished(error: OSError | None) -> None:
            nonlocal left, first_error
            left -= 1
            first_error = first_error or error
            if not left:
                done(first_error)

        for index in range(shares):
            self._jobs.put((files[index::shares], finished))

    def close(self) -> None:
        """Waits for pending syncs, then ends the threads."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            files, finished = job
            error: OSError | None = None
            try:
                for file in files:
                    file.sync()
            except OSError as caught:
                error = caught
            except Exception as caught:
                # Whatever it was, it is unknown what is durable now, and the thread must continue.
                error = OSError(errno.EIO, f"a sync ended with {caught!r}")
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(finished, error)
