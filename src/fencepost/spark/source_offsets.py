"""Offsets of the source: their JSON, how much of a backlog one batch takes, and how a range is cut into tasks.

Pure. The JSON is that of Spark's Kafka source, `{"topic":{"0":123}}`, so that checkpoints can be taken over. One thing
is added: the end of a query's first batch holds its start as well, under names that no topic can have. Spark does not
store where a query of a Python source began; without this, a first batch that is replayed with `latest` would begin
where the log ends by then. The same holds for partitions whose topic was made again: the batch does not begin where the
one before has ended.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from fencepost.topic_partition import TopicPartition

STARTS = "@start:"
"""Before the name of a topic: the offsets that the batch begins with, if not where the one before has ended."""

Offsets = Mapping[TopicPartition, int]


def offsets_of(stored: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """The offsets of one source in a checkpoint, of this source or of Spark's Kafka source."""
    return {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, by_partition in stored.items()
        if not topic.startswith(STARTS)
        for partition, offset in by_partition.items()
    }


def starts_of(stored: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """Where the batch of this end began, as far as it is not where the one before has ended."""
    return offsets_of({name.removeprefix(STARTS): of for name, of in stored.items() if name.startswith(STARTS)})


def to_json(offsets: Offsets, starts: Offsets | None = None) -> dict[str, dict[str, int]]:
    stored: dict[str, dict[str, int]] = {}
    for prefix, some in (("", offsets), (STARTS, starts or {})):
        for partition in sorted(some):
            stored.setdefault(prefix + partition.topic, {})[str(partition.partition)] = some[partition]
    return stored


def limited(start: Offsets, end: Offsets, most: int) -> dict[TopicPartition, int]:
    """The end of a batch of about `most` offsets: every partition in proportion to what is waiting, as in Spark."""
    waiting = {partition: until - start[partition] for partition, until in end.items() if until > start[partition]}
    total = sum(waiting.values())
    if total <= most:
        return dict(end)
    until = dict(end)
    for partition, size in waiting.items():
        share = most * (size / total)
        # Small partitions must not starve.
        count = math.ceil(share) if share < 1 else math.floor(share)
        until[partition] = min(end[partition], start[partition] + count)
    return until


class OffsetRange(NamedTuple):
    """Records of a partition from `start` up to, not including, `end`."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def cut(
    ranges: Iterable[OffsetRange], min_partitions: int | None = None, max_records: int | None = None
) -> list[OffsetRange]:
    """The tasks of a batch: one for each range, or about `min_partitions`, of at most `max_records`, as in Spark."""
    wanted = [one for one in ranges if one.size > 0]
    if max_records is not None:
        wanted = [part for one in wanted for part in _parts(one, math.ceil(one.size / max_records))]
    if min_partitions is None or min_partitions <= len(wanted):
        return wanted
    total = sum(one.size for one in wanted)
    large = [one for one in wanted if _share(one.size, total, min_partitions) > 1]
    tasks_for_large = max(min_partitions - (len(wanted) - len(large)), 1)
    large_total = sum(one.size for one in large)
    cuts: list[OffsetRange] = []
    for one in wanted:
        is_large = _share(one.size, total, min_partitions) > 1
        cuts += _parts(one, _share(one.size, large_total, tasks_for_large)) if is_large else [one]
    return cuts


def _share(size: int, total: int, tasks: int) -> int:
    return max(math.floor(size / total * tasks + 0.5), 1)


def _parts(whole: OffsetRange, count: int) -> list[OffsetRange]:
    parts, start = [], whole.start
    for remaining in range(count, 0, -1):
        end = start + (whole.end - start) // remaining
        parts.append(whole._replace(start=start, end=end))
        start = end
    return [part for part in parts if part.size > 0]
