"""Lag in records: how many records a group still has to read, rather than the difference of two offsets.

Control records, aborted records and compacted records occupy offsets but will never be read. Records of open
transactions may or may not be read, so while there are any the result is a range.

Without a committed offset, consumers start according to their `auto.offset.reset`, which no broker knows. Then the lag
is counted from the start of the log (`earliest`), the worst case. Consumers with `latest` read less.

All of it is one snapshot: the log up to the high watermark that was queried first.
"""

import dataclasses
from collections.abc import Iterable
from typing import Any

from fencepost.client import apis
from fencepost.client.errors import check
from fencepost.client.fetching import VisibleBatches
from fencepost.client.kafka_types import CoordinatorKind, IsolationLevel
from fencepost.insight.cluster_view import ClusterView, PartitionOffsets, records_from
from fencepost.insight.pending_offsets import PendingOffset, pending_of_group
from fencepost.topic_partition import TopicPartition
from fencepost.wire import messages
from fencepost.wire.errors import ErrorCode

COUNTED_OFFSETS_MAX = 100_000
"""Per partition: a larger distance is counted only on request, because every record has to be fetched."""


@dataclasses.dataclass(frozen=True, slots=True)
class RecordCount:
    certain: int
    """Records that are readable now, or decided but after the last stable offset."""
    possible: int
    """Records of open transactions, which are read if they commit."""
    readable: int
    """Those of the certain ones that are readable now."""


@dataclasses.dataclass(frozen=True, slots=True)
class PartitionLag:
    partition: TopicPartition
    committed_offset: int | None
    offsets: PartitionOffsets
    count: RecordCount | None
    """None if there are too many to count."""
    is_unstable: bool
    """An open transaction will change the committed offset."""
    pending: tuple[PendingOffset, ...] = ()
    member_id: str | None = None

    @property
    def start_offset(self) -> int:
        """Where the group continues reading; the start of the log if nothing is committed."""
        return start_of(self.committed_offset, self.offsets)

    @property
    def lag_min(self) -> int:
        return 0 if self.count is None else self.count.certain

    @property
    def lag_max(self) -> int:
        if self.count is None:
            return max(self.offsets.high_watermark - self.start_offset, 0)
        return self.count.certain + self.count.possible

    @property
    def needs_attention(self) -> bool:
        """Whether records were deleted unread, or there are records but no committed offset."""
        return self.lost_offsets > 0 or (self.committed_offset is None and self.lag_max > 0)

    @property
    def lost_offsets(self) -> int:
        """The number of offsets between the committed offset and the start of the log: their records were deleted."""
        if self.committed_offset is None:
            return 0
        return max(self.offsets.log_start_offset - self.committed_offset, 0)

    def document(self) -> dict[str, Any]:
        return {
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "committed_offset": self.committed_offset,
            "start_offset": self.start_offset,
            "log_start_offset": self.offsets.log_start_offset,
            "last_stable_offset": self.offsets.last_stable_offset,
            "high_watermark": self.offsets.high_watermark,
            "lag_min": self.lag_min,
            "lag_max": self.lag_max,
            "readable": None if self.count is None else self.count.readable,
            "is_counted": self.count is not None,
            "open_records": None if self.count is None else self.count.possible,
            "lost_offsets": self.lost_offsets,
            "has_pending_offset": self.is_unstable,
            "pending_offsets": [each.document() for each in self.pending],
            "member_id": self.member_id,
        }


def start_of(committed_offset: int | None, offsets: PartitionOffsets) -> int:
    if committed_offset is None:
        return offsets.log_start_offset
    return max(committed_offset, offsets.log_start_offset)


async def group_lag(
    view: ClusterView,
    group_id: str,
    *,
    topics: Iterable[str] = (),
    isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED,
    is_exact: bool = False,
) -> list[PartitionLag]:
    description = await view.describe_group(group_id)
    committed = await view.committed_offsets(group_id)
    owners = {at: member.member_id for member in description.members for at in member.assignment}
    pending = [each for each in await pending_of_group(view, group_id) or () if each.offset >= 0]
    there = {topic.name: topic for topic in await view.list_topics()}
    wanted = set(topics)
    partitions = [
        at
        for at in sorted({*committed, *owners, *(each.partition for each in pending)})
        if at.topic in there and at.partition in there[at.topic].partitions and (not wanted or at.topic in wanted)
    ]
    unstable = await unstable_partitions(view, group_id, partitions)
    offsets = await view.offsets(partitions)
    found = []
    for at in partitions:
        offset = committed[at].offset if at in committed else None
        found.append(
            PartitionLag(
                at,
                offset,
                offsets[at],
                await _count_if_near(view, at, offset, offsets[at], isolation_level, is_exact),
                at in unstable,
                tuple(each for each in pending if each.partition == at),
                owners.get(at),
            )
        )
    return found


async def _count_if_near(
    view: ClusterView,
    partition: TopicPartition,
    committed_offset: int | None,
    offsets: PartitionOffsets,
    isolation_level: IsolationLevel,
    is_exact: bool,
) -> RecordCount | None:
    start = start_of(committed_offset, offsets)
    if not is_exact and offsets.high_watermark - start > COUNTED_OFFSETS_MAX:
        return None
    return await count_records(view, partition, start, offsets, isolation_level)


async def count_records(
    view: ClusterView,
    partition: TopicPartition,
    start: int,
    offsets: PartitionOffsets,
    isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED,
) -> RecordCount:
    """The records from `start` to the high watermark in `offsets`."""
    if isolation_level == IsolationLevel.READ_UNCOMMITTED:
        scan = await view.scan(partition, start, offsets.high_watermark)
        everything = sum(count for _, count, _ in scan.pieces)
        return RecordCount(everything, 0, everything)
    readable = await _count_readable(view, partition, start, offsets.last_stable_offset)
    scan = await view.scan(partition, max(start, offsets.last_stable_offset), offsets.high_watermark)
    waiting = scan.records_decided_below(offsets.high_watermark)
    return RecordCount(readable + waiting, scan.open_record_count, readable)


async def _count_readable(view: ClusterView, partition: TopicPartition, start: int, end: int) -> int:
    """The number of records that a read_committed consumer gets from [start, end), by the rules of such a consumer."""
    count, position = 0, start
    while position < end:
        stretch = await view.fetch(partition, position, IsolationLevel.READ_COMMITTED)
        visible = VisibleBatches(
            partition, position, stretch.view, IsolationLevel.READ_COMMITTED, stretch.aborted
        )  # fmt: skip
        for at, header in visible:
            if header.base_offset < end:
                count += records_from(stretch.view[at : at + header.size_bytes], header, position)
        if visible.next_offset <= position:
            break
        position = visible.next_offset
    return count


async def unstable_partitions(
    view: ClusterView, group_id: str, partitions: Iterable[TopicPartition]
) -> set[TopicPartition]:
    """The partitions with a pending offset in an open transaction: a consumer that starts now must wait."""
    by_topic: dict[str, list[int]] = {}
    for at in partitions:
        by_topic.setdefault(at.topic, []).append(at.partition)
    if not by_topic:
        return set()
    topic_type = messages.OffsetFetchRequest.OffsetFetchRequestTopic
    request = messages.OffsetFetchRequest(
        group_id=group_id,
        topics=[topic_type(name=name, partition_indexes=indexes) for name, indexes in by_topic.items()],
        require_stable=True,
    )

    async def attempt() -> set[TopicPartition]:
        answer = await view.cluster.call_coordinator(CoordinatorKind.GROUP, group_id, apis.OFFSET_FETCH, request)
        check(answer.error_code, f"group {group_id!r}")
        return {
            TopicPartition(topic.name, partition.partition_index)
            for topic in answer.topics
            for partition in topic.partitions
            if partition.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
        }

    return await view.cluster.retrying(attempt)
