"""Reading a log: whole batches up to a watermark, found by index or by remembering where the last read ended.

Works on the segments of one `PartitionLog` and keeps its hints: offsets of batch boundaries and where they lie, so that
neither a sequential reader nor a watermark costs a search.
"""

from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from fencepost.log import checking
from fencepost.log.open_transactions import AbortedTransaction
from fencepost.log.segment import Segment
from fencepost.ports import NO_DESCRIPTORS, Buffer
from fencepost.wire.batch import HEADER, HEADER_BYTES, BatchHeader
from fencepost.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from fencepost.log.log_files import LogFiles
    from fencepost.log.partition_log import PartitionLog

_HINTS_MAX = 128
_INDEXES_HELD_MAX = 4
EMPTY_RECORDS = b""


class ReadResult(NamedTuple):
    records: Buffer
    """Whole batches; the first may begin before the offset asked for."""
    next_offset: int
    """Where reading goes on."""


def read(
    log: "PartitionLog", offset: int, max_bytes: int, upper_bound: int | None, at_least_one_batch: bool
) -> ReadResult:
    if log._failure is not None:
        raise log.storage_error()
    log_end_offset = log.log_end_offset
    if not log.log_start_offset <= offset <= log_end_offset:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {offset} of {log.topic_partition} is not between the log start {log.log_start_offset} and "
            f"the log end {log_end_offset}",
        )
    if upper_bound is None or upper_bound > log_end_offset:
        upper_bound = log_end_offset
    if offset >= upper_bound:
        return ReadResult(EMPTY_RECORDS, offset)
    try:
        return _read(log, offset, max_bytes, upper_bound, at_least_one_batch)
    except OSError as error:
        if error.errno in NO_DESCRIPTORS:
            reason = f"{log.topic_partition} cannot be read now: {error}"
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, reason) from error
        log.mark_failed(error)
        raise log.storage_error() from error


def _read(log: "PartitionLog", offset: int, max_bytes: int, upper_bound: int, at_least_one_batch: bool) -> ReadResult:
    hint = log._hints.get(offset)
    if hint is not None:
        segment, position = hint
    else:
        found = _find(log, offset)
        if found is None:
            return ReadResult(EMPTY_RECORDS, offset)
        segment, position = found
    if segment is not log._active:
        hold_indexes(log, segment)
    log_end_offset = log.log_end_offset
    if upper_bound == log_end_offset or segment is not log._active:
        limit = segment.size
        end_offset = log_end_offset if segment is log._active else _end_offset_of(log, segment)
        if end_offset > upper_bound:
            limit, end_offset = _position_of(log, upper_bound, segment), upper_bound
    else:
        limit, end_offset = _position_of(log, upper_bound, segment), upper_bound
    count = limit - position
    if count <= 0:
        return ReadResult(EMPTY_RECORDS, offset)
    return _read_from(log, segment, position, count, max_bytes, end_offset, offset, at_least_one_batch)


def _read_from(
    log: "PartitionLog",
    segment: Segment,
    position: int,
    count: int,
    max_bytes: int,
    end_offset: int,
    offset: int,
    at_least_one_batch: bool,
) -> ReadResult:
    if position < segment.unchecked_to:
        return checking.read(log, segment, position, count, max_bytes, offset, at_least_one_batch)
    if count <= max_bytes:
        remember(log, end_offset, segment, position + count)
        return ReadResult(segment.file.read(position, count), end_offset)
    wanted = max(max_bytes, HEADER_BYTES) if at_least_one_batch else max_bytes
    block = segment.file.read(position, min(wanted, count))
    end, next_offset = segment.cut(block, position)
    if end == 0:
        if not at_least_one_batch or len(block) < HEADER_BYTES:
            return ReadResult(EMPTY_RECORDS, offset)
        header = BatchHeader._make(HEADER.unpack_from(block))
        end, next_offset = header.size_bytes, header.next_offset
        block = segment.file.read(position, end)
    remember(log, next_offset, segment, position + end)
    return ReadResult(block if end == len(block) else memoryview(block)[:end], next_offset)


def aborted_transactions(log: "PartitionLog", from_offset: int, to_offset: int) -> list[AbortedTransaction]:
    """What a reader of committed records in [from, to) must skip, in the order of their markers."""
    aborted: list[AbortedTransaction] = []
    first = max(bisect_right(log._base_offsets, from_offset) - 1, 0)
    for segment in log._segments[first:]:
        found, complete = checking.aborted_of(log, segment).collect(from_offset, to_offset)
        aborted += found
        if complete:
            break
    return aborted


def packed_aborted_transactions(log: "PartitionLog", from_offset: int, to_offset: int) -> bytearray:
    packed = bytearray()
    if to_offset <= from_offset:
        return packed
    first = max(bisect_right(log._base_offsets, from_offset) - 1, 0)
    for segment in log._segments[first:]:
        if checking.aborted_of(log, segment).pack(from_offset, to_offset, packed):
            break
    return packed


def _find(log: "PartitionLog", offset: int) -> tuple[Segment, int] | None:
    """Segment and position of the first batch that ends at or after `offset`."""
    at = max(bisect_right(log._base_offsets, offset) - 1, 0)
    for segment in log._segments[at:]:
        found = segment.find(offset)
        if found is not None:
            return segment, found[0]
    return None


def _position_of(log: "PartitionLog", offset: int, segment: Segment) -> int:
    """Where in the segment a batch boundary lies; its end if the offset comes later."""
    hint = log._hints.get(offset)
    if hint is not None and hint[0] is segment:
        return hint[1]
    if offset < segment.base_offset:
        return 0
    found = segment.find(offset)
    position = segment.size if found is None else found[0]
    remember(log, offset, segment, position)
    return position


def _end_offset_of(log: "PartitionLog", segment: Segment) -> int:
    at = bisect_right(log._base_offsets, segment.base_offset)
    return log._base_offsets[at] if at < len(log._base_offsets) else log.log_end_offset


def hold_indexes(log: "LogFiles", segment: Segment) -> None:
    """Closed segments keep their indexes in memory while they are read, but only the few read last."""
    held = log._indexed
    if segment in held:
        return
    held[segment] = None
    if len(held) > _INDEXES_HELD_MAX:
        oldest = next(iter(held))
        del held[oldest]
        if oldest is not log._active:
            oldest.release_indexes()


def remember(log: "LogFiles", offset: int, segment: Segment, position: int) -> None:
    """Remember a batch boundary: where a sequential reader comes back to, or a watermark stands."""
    if segment is not log._active and position >= segment.size:
        return
    hints = log._hints
    if len(hints) >= _HINTS_MAX:
        del hints[next(iter(hints))]
    hints[offset] = (segment, position)
