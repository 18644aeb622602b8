"""When written bytes count: group commit (one sync for everything that waits) or the page cache, as Kafka does.

`Syncing` is the one owner of syncs: group commit, the flush of page caches, compaction and the stop all go through it.
It knows what is under way, hears of every failure, and nothing that a continuation raises can break it. Under group
commit the high watermark is the synced offset: no client reads what a power cut could take back. A sync that fails
fails the whole log directory; it is never tried again into an acknowledgement.

A log hands over what is dirty as one request and nothing more before that is answered (`log.unsynced`), so a partition
that moves from one way to the other, or is flushed twice, cannot count as synced what is not.
"""

from collections.abc import Callable, Sequence

from fencepost.broker.partition import Partition
from fencepost.log.unsynced import SyncRequest
from fencepost.ports import Flusher, Scheduler, Syncable

PARTITIONS_PER_ROUND_MAX = 256
"""What one group takes; the rest comes with the next. Handing over takes a moment of the loop for each."""


class Syncing:
    """The only part that asks for syncs."""

    def __init__(
        self,
        flusher: Flusher,
        scheduler: Scheduler,
        on_failure: Callable[[OSError], None],
        on_error: Callable[[str, Exception], None],
    ) -> None:
        """`on_failure` hears of a disk that failed, `on_error` of a fault of ours and where it was."""
        self._flusher = flusher
        self.scheduler = scheduler
        self._on_failure = on_failure
        self.on_error = on_error
        self._under_way = 0
        self._is_stopped = False
        self._when_idle: Callable[[], None] | None = None
        self.has_failed = False

    @property
    def is_idle(self) -> bool:
        return not self._under_way

    @property
    def may_start(self) -> bool:
        """After a failure nothing can be made durable any more; during a stop the logs are synced as they close."""
        return not self.has_failed and not self._is_stopped

    def sync(self, files: Sequence[Syncable], then: Callable[[], None]) -> None:
        """Sync files in the background. `then` is called when all are durable, and never if any is not."""
        self._under_way += 1
        self._flusher.sync(files, lambda error: self._done(error, then))

    def _done(self, error: OSError | None, then: Callable[[], None]) -> None:
        self._under_way -= 1
        try:
            if error is not None:
                self.has_failed = True
                self._on_failure(error)
            elif not self.has_failed:
                then()
        except Exception as raised:
            self.on_error("what waited for a sync", raised)
        if self._when_idle is not None and not self._under_way:
            when_idle, self._when_idle = self._when_idle, None
            when_idle()

    def stop(self, then: Callable[[], None]) -> None:
        """Begin nothing more; `then` is called when nothing is under way and every failure has been heard."""
        self._is_stopped = True
        if self._under_way:
            self._when_idle = then
        else:
            then()


class PageCache:
    """`flush=os`: written is good enough, as with Kafka's defaults. Now and then it is flushed for recovery's sake."""

    def __init__(self, syncing: Syncing) -> None:
        self._syncing = syncing

    def appended(self, partition: Partition) -> None:
        partition.advance(partition.log.log_end_offset, partition.appended_bytes)

    def continuation_failed(self, error: Exception) -> None:
        self._syncing.on_error("an acknowledgement", error)

    def flush(self, partition: Partition) -> None:
        """Recovery after a crash should not have to start at zero."""
        log = partition.log
        if not self._syncing.may_start or not log.is_dirty:
            return
        request = log.take_unsynced()
        if request is None:
            return

        def synced() -> None:
            if log.is_usable:
                log.synced(request)
                # Its topic may want a sync before every acknowledgement by now.
                partition.durability.appended(partition)

        self._syncing.sync(request.files, synced)


class GroupCommit:
    """`flush=group`: while one sync runs, everything written meanwhile gathers for the next."""

    def __init__(self, syncing: Syncing) -> None:
        self._syncing = syncing
        self._dirty: dict[Partition, None] = {}
        self._is_busy = False
        self.syncs = 0

    def appended(self, partition: Partition) -> None:
        self._dirty[partition] = None
        if not self._is_busy:
            self._is_busy = True
            # After this event: all that it writes, by however many requests, shares the sync.
            self._syncing.scheduler.call_soon(self._start)

    def continuation_failed(self, error: Exception) -> None:
        self._syncing.on_error("an acknowledgement", error)

    def _start(self) -> None:
        targets: list[tuple[Partition, SyncRequest, int]] = []
        files: list[Syncable] = []
        if self._syncing.may_start:
            while self._dirty and len(targets) < PARTITIONS_PER_ROUND_MAX:
                partition = next(iter(self._dirty))
                del self._dirty[partition]
                # Not for a log that is being flushed: that flush ends by coming back here.
                request = partition.log.take_unsynced()
                if request is not None:
                    targets.append((partition, request, partition.appended_bytes))
                    files += request.files
        if targets:
            self.syncs += 1
            self._syncing.sync(files, lambda: self._synced(targets))
        else:
            self._is_busy = False

    def _synced(self, targets: list[tuple[Partition, SyncRequest, int]]) -> None:
        try:
            for partition, request, appended_bytes in targets:
                log = partition.log
                if log.is_usable:
                    log.synced(request)
                    # What was cut off while it was synced is not there any more.
                    partition.advance(min(request.end_offset, log.synced_offset), appended_bytes)
        finally:
            self._start_again()

    def _start_again(self) -> None:
        if self._dirty:
            self._start()
        else:
            self._is_busy = False
