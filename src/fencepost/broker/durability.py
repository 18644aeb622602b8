"""When written bytes count: group commit (one sync for everything that waits) or the page cache, as Kafka does.

Under group commit the high watermark is the synced offset: nobody reads what a power cut could take back. A sync that
fails fails the whole log directory; it is never tried again into an acknowledgement.
"""

from collections.abc import Callable

from fencepost.broker.partition import Partition
from fencepost.ports import Flusher, Scheduler, Syncable


class PageCache:
    """`flush=os`: written is good enough, as with Kafka's defaults."""

    def appended(self, partition: Partition) -> None:
        partition.advance(partition.log.log_end_offset, partition.appended_bytes)


class _UnlessDeleted:
    """A topic may be deleted, or a segment by retention, while the sync of its files is on its way."""

    __slots__ = ("_file",)

    def __init__(self, file: Syncable) -> None:
        self._file = file

    def sync(self) -> None:
        try:
            self._file.sync()
        except FileNotFoundError:
            pass


class GroupCommit:
    """`flush=group`: while one sync runs, everything written meanwhile gathers for the next."""

    def __init__(self, flusher: Flusher, scheduler: Scheduler, on_failure: Callable[[OSError], None]) -> None:
        self._flusher = flusher
        self._scheduler = scheduler
        self._on_failure = on_failure
        self._dirty: dict[Partition, None] = {}
        self._is_busy = False
        self._has_failed = False
        self.syncs = 0

    def appended(self, partition: Partition) -> None:
        self._dirty[partition] = None
        if not self._is_busy:
            self._is_busy = True
            # After this event: all that it writes, by however many requests, shares the sync.
            self._scheduler.call_soon(self._start)

    def _start(self) -> None:
        targets: list[tuple[Partition, int, int]] = []
        files: list[Syncable] = []
        for partition in self._dirty:
            log = partition.log
            if partition.failure is None:
                targets.append((partition, log.log_end_offset, partition.appended_bytes))
                files += [_UnlessDeleted(file) for file in log.dirty_files()]
        self._dirty.clear()
        self.syncs += 1
        self._flusher.sync(files, lambda error: self._done(targets, error))

    def _done(self, targets: list[tuple[Partition, int, int]], error: OSError | None) -> None:
        if error is not None:
            self._has_failed = True
            self._on_failure(error)
        if not self._has_failed:
            for partition, offset, appended_bytes in targets:
                if partition.failure is None:
                    partition.log.mark_synced(offset)
                    partition.advance(offset, appended_bytes)
        if self._dirty and not self._has_failed:
            self._start()
        else:
            self._is_busy = False
