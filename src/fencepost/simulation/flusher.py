"""Syncs that take virtual time.

A real sync keeps what was written before it began and may or may not keep what is written while it runs. Each sync here
does one or the other, as the random source says: code that counts on either fails.
"""

import random
from collections.abc import Callable, Sequence

from fencepost.ports import Scheduler, Syncable

SYNC_MS = 2


class SimulatedFlusher:
    def __init__(self, scheduler: Scheduler, source: random.Random, sync_ms: int = SYNC_MS) -> None:
        self._scheduler = scheduler
        self._source = source
        self.sync_ms = sync_ms
        self.requests = 0
        self.running = 0

    def set_sync_ms(self, sync_ms: int) -> None:
        self.sync_ms = sync_ms

    def sync(self, files: Sequence[Syncable], done: Callable[[OSError | None], None]) -> None:
        self.requests += 1
        self.running += 1
        files = list(files)
        is_early = self._source.random() < 0.5
        error = _sync_all(files) if is_early else None

        def finish() -> None:
            self.running -= 1
            done(error if is_early else _sync_all(files))

        self._scheduler.call_later(self.sync_ms, finish)


def _sync_all(files: Sequence[Syncable]) -> OSError | None:
    """The first error; what comes after it is not synced, as with one thread of the real flusher."""
    try:
        for file in files:
            file.sync()
    except OSError as error:
        return error
    return None
