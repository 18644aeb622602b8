"""Group commit's hands: syncs files in helper threads and reports back on the event loop.

One file is synced by one thread; many are shared out over the pool. A failure is reported once, with the first error.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from fencepost.ports import Syncable


class ThreadedFlusher:
    def __init__(self, loop: asyncio.AbstractEventLoop, threads: int) -> None:
        self._loop = loop
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="sync")

    def sync(self, files: Sequence[Syncable], done: Callable[[OSError | None], None]) -> None:
        shares = min(self._threads, len(files)) or 1
        left = shares
        first_error: OSError | None = None

        def finished(error: OSError | None) -> None:
            nonlocal left, first_error
            left -= 1
            first_error = first_error or error
            if not left:
                done(first_error)

        def run(share: Sequence[Syncable]) -> None:
            error: OSError | None = None
            try:
                for file in share:
                    file.sync()
            except OSError as caught:
                error = caught
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(finished, error)

        for index in range(shares):
            self._pool.submit(run, files[index::shares])

    def close(self) -> None:
        self._pool.shutdown(wait=True)
