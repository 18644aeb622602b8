"""Finds the offset for a timestamp (ListOffsets): by the time index, then headers, then the records of one batch.

Only reads segments.
"""

from collections.abc import Sequence
from typing import NamedTuple

from fencepost.log.segment import Segment
from fencepost.wire.records import read_records


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int
    """-1 if the batch has none."""


def offset_for_timestamp(
    segments: Sequence[Segment], log_start_offset: int, timestamp: int, decompressed_max_bytes: int
) -> TimestampOffset | None:
    for segment in segments:
        if segment.max_timestamp >= timestamp:
            found = _search(segment, timestamp, log_start_offset, decompressed_max_bytes)
            if found is not None:
                return found
    return None


def _search(
    segment: Segment, timestamp: int, log_start_offset: int, decompressed_max_bytes: int
) -> TimestampOffset | None:
    # The entry names a batch no later than `timestamp`; every batch before it is no later either. An entry at exactly
    # this timestamp is the first batch to reach it, so the search may begin with that batch.
    first_offset = max(segment.offset_before(timestamp), log_start_offset)
    start = segment.find(first_offset)
    if start is None:
        return None
    position = start[0]
    for found in segment.batches(position):
        header = found.header
        if header.max_timestamp < timestamp or header.last_offset < log_start_offset:
            continue
        for record in read_records(found.block, decompressed_max_bytes, found.start):
            if record.timestamp >= timestamp and record.offset >= log_start_offset:
                return TimestampOffset(record.timestamp, record.offset, header.partition_leader_epoch)
    return None


def offset_of_max_timestamp(segments: Sequence[Segment], decompressed_max_bytes: int) -> TimestampOffset | None:
    segment = max(segments, key=lambda segment: segment.max_timestamp)
    timestamp = segment.max_timestamp
    if timestamp < 0:
        return None
    found = segment.find(segment.offset_of_max_timestamp)
    if found is None:
        return None
    for batch in segment.batches(found[0]):
        if batch.header.max_timestamp == timestamp:
            for record in read_records(batch.block, decompressed_max_bytes, batch.start):
                if record.timestamp == timestamp:
                    return TimestampOffset(timestamp, record.offset, batch.header.partition_leader_epoch)
    return None
