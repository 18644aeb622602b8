"""How far a streaming query may read: the end of its next batch, and what became of partitions since the last one."""

import logging
import time
from collections.abc import Callable, Iterable

from fencepost.client.errors import NOT_THERE, BrokerError, UnknownPartition, UnknownTopic
from fencepost.spark.source_cluster import SourceCluster
from fencepost.spark.source_errors import DataLoss
from fencepost.spark.source_offsets import OffsetRange, limited
from fencepost.spark.source_options import SourceOptions
from fencepost.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

SHRUNK_LOG_TRIES = 10
SHRUNK_LOG_PAUSE_SECONDS = 0.2
VANISHED_TOPIC_TRIES = 50
VANISHED_TOPIC_PAUSE_SECONDS = 0.1

Offsets = dict[TopicPartition, int]


class SourceProgress:
    def __init__(
        self, options: SourceOptions, cluster: SourceCluster, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._options = options
        self._cluster = cluster
        self._clock = clock
        self._last_batch_at: float | None = None
        self._target: Offsets | None = None
        self._topic_ids: dict[str, bytes] = {}
        self.latest: Offsets = {}
        """Where the logs ended when they were last looked at."""

    def initial(self) -> Offsets:
        return self._cluster.at(self._options.starting)

    def stop_at_what_is_there(self) -> None:
        """Trigger.AvailableNow: what comes later is for the next run."""
        self._target = self._cluster.latest(self._cluster.partitions())

    def end_of_batch(self, start: Offsets, max_offsets: int | None) -> tuple[Offsets, Offsets]:
        """Where the batch after `start` ends, `start` itself if there is nothing to do; and where it begins in
        partitions that are others than before. `max_offsets` None: all there is."""
        until, new, anew = self._available(start)
        begin = {**new, **start, **anew}
        if max_offsets is None:
            return until, anew
        if self._target is None and self._is_too_little(begin, until):
            return dict(start), {}
        return limited(begin, until, max_offsets), anew

    def _available(self, start: Offsets) -> tuple[Offsets, Offsets, Offsets]:
        """The ends of all partitions, the beginnings of those that are new, and of those whose topic was made again."""
        if self._target is None:
            self.latest = self._ends({partition.topic for partition in start})
        else:
            self.latest = dict(self._target)
        gone = set(start) - set(self.latest)
        if gone:
            self._report(f"Partitions {_names(gone)} have been deleted")
        until = dict(self.latest)
        others = self._of_other_topics(start, until)
        until.update(self._not_before({at: offset for at, offset in start.items() if at not in others}, until))
        shorter = {at for at, offset in start.items() if at in until and until[at] < offset} - others
        for partition in sorted(shorter):
            self._report_shrunk(partition, start[partition], until[partition])
        return (
            until,
            self._cluster.earliest(set(until) - set(start)),
            self._cluster.earliest(others | shorter),
        )

    def _ends(self, may_lack: set[str]) -> Offsets:
        """A topic may be deleted after it was found, and the leaders of a new one hear of it a little later."""
        for _ in range(VANISHED_TOPIC_TRIES):
            there = self._cluster.partitions(may_lack=may_lack)
            try:
                return self._cluster.latest(there)
            except (UnknownTopic, UnknownPartition, BrokerError) as error:
                if isinstance(error, BrokerError) and error.code not in NOT_THERE:
                    raise
                time.sleep(VANISHED_TOPIC_PAUSE_SECONDS)
        return self._cluster.latest(self._cluster.partitions(may_lack=may_lack))

    def _of_other_topics(self, start: Offsets, until: Offsets) -> set[TopicPartition]:
        """Partitions whose topic was deleted and made again since this query has last looked, however long the new log
        is. The ids of topics are not in Spark's checkpoint: a query that starts only sees that a log is shorter."""
        before, self._topic_ids = self._topic_ids, dict(self._cluster.topic_ids)
        changed = {topic for topic, known in before.items() if self._topic_ids.get(topic, known) != known}
        for topic in sorted(changed):
            self._report(f"Topic {topic} has been deleted and created again")
        return {partition for partition in start if partition.topic in changed and partition in until}

    def _not_before(self, start: Offsets, until: Offsets) -> Offsets:
        """Ends that lie before the starts, put right where that is harmless.

        A checkpoint of a query that read uncommitted is ahead of the last stable offset, and a new leader may not know
        yet how far its log is safe. A log that stays shorter is another one.
        """
        behind = {partition for partition in start if until.get(partition, start[partition]) < start[partition]}
        fixed: Offsets = {}
        for tried in range(SHRUNK_LOG_TRIES):
            if not behind:
                break
            if tried:
                time.sleep(SHRUNK_LOG_PAUSE_SECONDS)
            marks = self._cluster.high_watermarks(behind)
            fixed.update({at: start[at] for at in behind if marks[at] >= start[at]})
            behind -= set(fixed)
        return fixed

    def _is_too_little(self, begin: Offsets, until: Offsets) -> bool:
        """`minOffsetsPerTrigger`: wait for more, but no longer than `maxTriggerDelay`."""
        least = self._options.min_offsets_per_trigger
        if least is None:
            return False
        now = self._clock()
        is_late = (
            self._last_batch_at is None or (now - self._last_batch_at) * 1000 >= self._options.max_trigger_delay_ms
        )
        if not is_late and sum(end - begin[partition] for partition, end in until.items()) < least:
            return True
        self._last_batch_at = now
        return False

    def ranges(self, start: Offsets, end: Offsets) -> list[OffsetRange]:
        """What a batch has to read."""
        new = set(end) - set(start)
        begin = {**start, **self._cluster.earliest(new)}
        for partition in sorted(new):
            if begin[partition] > 0:
                self._report(f"Added partition {partition} starts from {begin[partition]} instead of 0")
        is_replayed = not self.latest
        of_others = self._of_shorter_logs(end) if is_replayed else set()
        found = []
        for partition in sorted(end):
            first, until = begin[partition], end[partition]
            if first > until:
                self._report_shrunk(partition, first, until)
                first = min(self._cluster.earliest([partition])[partition], until)
            if partition in of_others:
                first = until
            found.append(OffsetRange(partition.topic, partition.partition, first, until))
        return found

    def _of_shorter_logs(self, end: Offsets) -> set[TopicPartition]:
        """Partitions whose log ends before what an earlier run has planned: those of a topic that was made again. What
        they hold is for the next batch, which begins there anew."""
        there = self._cluster.partitions(may_lack={partition.topic for partition in end})
        known = {at: offset for at, offset in end.items() if at in there}
        latest = self._cluster.latest(known)
        shorter = {at for at in known if latest[at] < known[at]} - set(self._not_before(known, latest))
        for partition in sorted(shorter):
            self._report_shrunk(partition, known[partition], latest[partition])
        return shorter

    def _report_shrunk(self, partition: TopicPartition, start: int, end: int) -> None:
        self._report(
            f"Partition {partition} offset was changed from {start} to {end}; either the start offset is set "
            "beyond the end of the log, or the topic was deleted and created again"
        )

    def _report(self, reason: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLoss(reason)
        logger.warning("some data may have been lost: %s", reason)


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(str(partition) for partition in sorted(partitions))
