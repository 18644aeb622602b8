"""Compaction in the background: one pass at a time, a short step between requests, syncs off the event loop."""

from collections.abc import Generator, Sequence

from fencepost.broker.events import CompactionFailed, PartitionCompacted
from fencepost.broker.surroundings import Surroundings
from fencepost.log.cleaner import Cleanable, CleaningAborted, CleanResult, LogCleaner, Step, UncleanableLog
from fencepost.log.partition_log import PartitionLog
from fencepost.ports import Timer
from fencepost.topic_partition import TopicPartition

# A step takes a millisecond or so; with this pause between two, requests keep most of the loop.
STEP_PAUSE_MS = 1


class Cleaning:
    def __init__(self, node: Surroundings) -> None:
        self._node = node
        self._cleaner: LogCleaner | None = None
        self._pass: Generator[Step, None, CleanResult] | None = None
        self._target: Cleanable | None = None
        self._timer: Timer | None = None

    def start(self) -> None:
        node = self._node
        self._cleaner = LogCleaner(
            node.disk,
            node.data_directory,
            keys_max=node.config.log_cleaner_dedupe_keys_max,
            decompressed_max_bytes=node.config.decompressed_batch_max_bytes,
        )
        self._look_later()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._pass is not None:
            self._pass.close()
            self._pass = None
        self._cleaner = None

    def forget(self, logs: Sequence[PartitionLog]) -> None:
        """Logs are retired: the pass over one of them, if there is one, ends here."""
        if self._target is not None and self._target.log in logs:
            self._finish(look_again=False)
        if self._cleaner is not None:
            try:
                self._cleaner.forget([TopicPartition(log.topic, log.partition) for log in logs])
            except OSError as error:
                self._node.disk_refusal(error)

    def _look_later(self) -> None:
        self._timer = self._node.scheduler.call_later(self._node.config.log_cleaner_backoff_ms, self._look)

    def _look(self) -> None:
        """Begin a pass over the log that needs it most."""
        if self._cleaner is None:
            return
        target = None
        if self._node.config.log_cleaner_enable and self._node.storage_failure is None:
            target = self._cleaner.filthiest(self._node.logs(), self._node.clock.wall_ms())
        if target is None:
            self._look_later()
            return
        self._target = target
        self._pass = self._cleaner.clean(target, self._node.clock.wall_ms())
        self._step()

    def _step(self) -> None:
        steps, target = self._pass, self._target
        if steps is None or target is None:
            return
        log = target.log
        try:
            files = next(steps)
        except StopIteration as stop:
            result: CleanResult = stop.value
            self._node.events.emit(
                PartitionCompacted(log.topic, log.partition, result.bytes_read, result.bytes_written)
            )
            self._finish(look_again=True)
        except CleaningAborted:
            self._finish(look_again=False)
        except (UncleanableLog, OSError) as error:
            self._node.events.emit(CompactionFailed(log.topic, log.partition, str(error)))
            self._finish(look_again=False)
        else:
            if files:
                self._node.syncing.sync(files, lambda: self._synced(steps))
            else:
                self._timer = self._node.scheduler.call_later(STEP_PAUSE_MS, self._step)

    def _synced(self, steps: Generator[Step, None, CleanResult]) -> None:
        if steps is self._pass:  # and not of one that was given up meanwhile
            self._step()

    def _finish(self, *, look_again: bool) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._pass is not None:
            self._pass.close()
        self._pass = self._target = None
        if look_again and self._cleaner is not None:
            self._timer = self._node.scheduler.call_later(STEP_PAUSE_MS, self._look)
        else:
            self._look_later()
