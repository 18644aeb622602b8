"""What a broker does without a request: retention, checkpoints, expiry of producers. Compaction is `cleaning`.

Every job runs in slices of a bounded number of partitions, so that thousands of idle ones cost next to nothing and
never hold up a request.
"""

from collections.abc import Callable, Iterator

from fencepost.broker.durability import PageCache
from fencepost.broker.events import SegmentsDeleted
from fencepost.broker.partition import Partition
from fencepost.broker.surroundings import Surroundings
from fencepost.ports import Timer
from fencepost.wire.errors import KafkaError

PARTITIONS_PER_SLICE = 64
SLICE_PAUSE_MS = 5
ROLLS_PER_CHECKPOINT_MS = 1_000
"""Recovery points are written so long after a segment was rolled, for all that are rolled meanwhile."""


class Housekeeping:
    def __init__(self, node: Surroundings) -> None:
        self._node = node
        self._timers: dict[str, Timer] = {}
        self._is_stopped = False

    def start(self) -> None:
        config = self._node.config
        self._every("retention", config.log_retention_check_interval_ms, self._apply_retention)
        self._every("producers", config.producer_id_expiration_check_interval_ms, self._expire_producers)
        self._every("flush", config.log_flush_offset_checkpoint_interval_ms, self._flush_page_cache)
        # All checkpoints are written together, so often that each is written as often as asked.
        checkpoints_ms = min(
            config.log_flush_offset_checkpoint_interval_ms, config.log_flush_start_offset_checkpoint_interval_ms
        )
        self._every("checkpoints", checkpoints_ms, None, after=self._write_checkpoints)

    def stop(self) -> None:
        self._is_stopped = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def segment_rolled(self) -> None:
        """Soon a checkpoint has to say that the segment was synced: without that, a file that is missing later could
        be taken for one that a crash took."""
        if not self._is_stopped and "roll" not in self._timers:
            self._timers["roll"] = self._node.scheduler.call_later(ROLLS_PER_CHECKPOINT_MS, self._write_recovery_points)

    def _write_recovery_points(self) -> None:
        del self._timers["roll"]
        if self._node.storage_failure is None:
            self._try(lambda: self._node.storage.write_recovery_points(self._node.logs()))

    def _every(
        self,
        name: str,
        interval_ms: int,
        visit: Callable[[Partition], None] | None,
        after: Callable[[], None] | None = None,
    ) -> None:
        """Visit every partition each interval, a slice at a time."""

        def begin() -> None:
            # Those there are now: topics that come and go meanwhile do not end the round, or the last would starve.
            go_on(iter(list(self._node.all_partitions())) if visit is not None else iter(()))

        def go_on(partitions: Iterator[Partition]) -> None:
            if self._is_stopped:
                return
            for _ in range(PARTITIONS_PER_SLICE):
                try:
                    partition = next(partitions)
                except StopIteration:
                    if after is not None:
                        self._try(after)
                    self._timers[name] = self._node.scheduler.call_later(interval_ms, begin)
                    return
                if partition.failure is None and visit is not None:
                    self._try(lambda partition=partition: visit(partition))  # type: ignore[misc]
            self._timers[name] = self._node.scheduler.call_later(SLICE_PAUSE_MS, lambda: go_on(partitions))

        self._timers[name] = self._node.scheduler.call_later(interval_ms, begin)

    def _try(self, job: Callable[[], None]) -> None:
        """A full disk must not end the jobs, least of all the one that makes room."""
        try:
            job()
        except OSError as error:
            self._node.disk_refusal(error)
        except KafkaError:
            pass  # the log has reported its own failure

    def _apply_retention(self, partition: Partition) -> None:
        log = partition.log
        now_ms = self._node.clock.wall_ms()
        log.roll_if_needed(now_ms)
        if not log.config.is_deleted:
            return
        deleted = log.apply_retention(now_ms)
        if deleted:
            self._node.events.emit(
                SegmentsDeleted(partition.topic, partition.index, deleted, log.log_start_offset, "retention")
            )

    def _expire_producers(self, partition: Partition) -> None:
        partition.log.producers.remove_expired(self._node.clock.wall_ms())

    def _flush_page_cache(self, partition: Partition) -> None:
        """Under flush=os nothing waits for a sync, but recovery after a crash should not have to start at zero."""
        partition.log.flush_side_files()
        if isinstance(partition.durability, PageCache):
            partition.durability.flush(partition)

    def _write_checkpoints(self) -> None:
        if self._node.storage_failure is None:
            self._node.storage.write_checkpoints(self._node.logs())
