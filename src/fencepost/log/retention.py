"""Making a log shorter: retention by age and size, DeleteRecords, truncation, and compacted segments taking a place.

Works on the segment list of one `PartitionLog`, for which it is the other half. Never touches records above the high
watermark, but for truncation, which is how a replica gives up what its leader does not have.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from fencepost.log import recovery
from fencepost.log.file_names import SNAPSHOT_SUFFIX, SWAP_SUFFIX, offset_name
from fencepost.log.segment import Segment
from fencepost.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from fencepost.log.partition_log import PartitionLog

HIGH_WATERMARK = -1
"""What DeleteRecords sends for "all that readers can see"."""


def delete_records_before(log: "PartitionLog", offset: int) -> int:
    if log.failure is not None:
        raise log.storage_error()
    if offset == HIGH_WATERMARK:
        offset = log.high_watermark
    if offset < 0 or offset > log.high_watermark:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"Cannot increment the log start offset of {log.topic_partition} to {offset} "
            f"since it is larger than the high watermark {log.high_watermark}",
        )
    if offset > log.log_start_offset:
        _raise_log_start_offset(log, offset)
        delete_breached_segments(log)
    return log.log_start_offset


def apply_retention(log: "PartitionLog", now_ms: int) -> int:
    if log.failure is not None:
        return 0
    deleted = delete_breached_segments(log)
    config = log.config
    if not config.is_deleted:
        return deleted
    if config.retention_bytes >= 0:
        excess = log.size_bytes - config.retention_bytes

        def is_too_much(segment: Segment) -> bool:
            nonlocal excess
            if excess < segment.size:
                return False
            excess -= segment.size
            return True

        deleted += _delete_oldest_while(log, is_too_much, now_ms) if excess > 0 else 0
    if config.retention_ms >= 0:
        oldest_ms = now_ms - config.retention_ms
        deleted += _delete_oldest_while(log, lambda segment: segment.largest_timestamp() < oldest_ms, now_ms)
    return deleted


def _delete_oldest_while(log: "PartitionLog", predicate: Callable[[Segment], bool], now_ms: int) -> int:
    """Delete the longest run of oldest segments that are below the high watermark and fit."""
    segments = log.segments
    count = 0
    for segment in segments:
        is_active = segment is log.active_segment
        end_offset = log.log_end_offset if is_active else segments[count + 1].base_offset
        if end_offset > log.high_watermark or (is_active and segment.size == 0) or not predicate(segment):
            break
        count += 1
    if not count:
        return 0
    if count == len(segments):
        log.roll(now_ms)  # the log goes on in an empty segment
    first_kept = log.segments[count].base_offset
    if first_kept > log.log_start_offset:
        _raise_log_start_offset(log, first_kept)
    _delete_oldest(log, count)
    return count


def delete_breached_segments(log: "PartitionLog") -> int:
    """Segments that lie below the log start altogether."""
    count = 0
    while count + 1 < len(log.segments) and log.segments[count + 1].base_offset <= log.log_start_offset:
        count += 1
    if count:
        _delete_oldest(log, count)
    return count


def _delete_oldest(log: "PartitionLog", count: int) -> None:
    try:
        # What is known of producers must not go with the batches it came from.
        snapshot = f"{log.directory}/{offset_name(log.segments[count].base_offset, SNAPSHOT_SUFFIX)}"
        unsynced = log._dirty.pop(snapshot, None)
        if unsynced is not None:
            unsynced.sync()
            log.disk.sync_directory(log.directory)
        for segment in list(log.segments[:count]):
            log._drop_segment(segment)
    except OSError as error:
        log.mark_failed(error)
        raise log.storage_error() from error


def _raise_log_start_offset(log: "PartitionLog", offset: int) -> None:
    log.log_start_offset = offset
    log.epochs.truncate_from_start(offset)
    log.producers.map_end_offset = log.log_end_offset
    log.producers.on_log_start_offset(offset)
    log._find_first_unstable_offset()


def truncate_to(log: "PartitionLog", offset: int, now_ms: int) -> None:
    if log.failure is not None:
        raise log.storage_error()
    if offset >= log.log_end_offset:
        return
    if offset < log.log_start_offset or offset < log.segments[0].base_offset:
        truncate_fully_and_start_at(log, offset, now_ms)
        return
    try:
        while log.segments[-1].base_offset > offset:
            log._drop_segment(log.segments[-1])
        segment = log.segments[-1]
        found = segment.find(offset)
        if found is None:
            segment.account_for_tail()
            end_offset = offset
        else:
            position, base_offset = found
            end_offset = max(min(offset, base_offset), log.log_start_offset)
            segment.truncate_to_position(position, end_offset)
        _begin_again(log, segment, end_offset)
        recovery.remove_snapshots_above(log, end_offset)
        recovery.reload_producers(log, now_ms)
        _make_cut_durable(log, segment)
    except OSError as error:
        log.mark_failed(error)
        raise log.storage_error() from error
    log._find_first_unstable_offset()


def truncate_fully_and_start_at(log: "PartitionLog", offset: int, now_ms: int) -> None:
    if log.failure is not None:
        raise log.storage_error()
    try:
        while log.segments:
            log._drop_segment(log.segments[-1])
        recovery.remove_snapshots_above(log, -1)
        segment = Segment.create(log.disk, log.directory, offset, now_ms)
        log._segments.append(segment)
        log._base_offsets.append(offset)
        _begin_again(log, segment, offset)
        log.log_start_offset = log.high_watermark = offset
        log.epochs.clear()
        log.leader_epoch = log.epochs.latest
        log.producers.truncate_fully_and_start_at(offset)
        _make_cut_durable(log, segment)
    except OSError as error:
        log.mark_failed(error)
        raise log.storage_error() from error
    log._find_first_unstable_offset()


def _begin_again(log: "PartitionLog", segment: Segment, end_offset: int) -> None:
    log._hints.clear()
    log._activate(segment)
    log.log_end_offset = end_offset
    log.high_watermark = min(log.high_watermark, end_offset)
    log.synced_offset = min(log.synced_offset, end_offset)
    log._sync_requested_offset = min(log._sync_requested_offset, end_offset)
    log.epochs.truncate_from_end(end_offset)
    log.leader_epoch = log.epochs.latest
    log._unsaved = True


def _make_cut_durable(log: "PartitionLog", segment: Segment) -> None:
    """Else a power cut could bring back what was cut, after other records have taken its offsets."""
    segment.file.sync()
    for suffix_file in segment.write_indexes():
        suffix_file.sync()
    log.disk.sync_directory(log.directory)


def replace_segments(log: "PartitionLog", old: Sequence[Segment], cleaned: Sequence[Segment]) -> None:
    """Swap compacted segments in. Durable before the originals go; recovery finishes what a crash interrupts.

    `cleaned` were made with the suffix `.cleaned` and have been filled; none overlaps the active segment.
    """
    if log.failure is not None:
        raise log.storage_error()
    try:
        for segment in cleaned:
            segment.file.sync()
            for written in segment.write_indexes():
                written.sync()
        for segment in reversed(cleaned):
            segment.rename_files(SWAP_SUFFIX)
        log.disk.sync_directory(log.directory)
        at = log._segments.index(old[0])
        log._segments[at : at + len(old)] = list(cleaned)
        log._base_offsets[:] = [segment.base_offset for segment in log._segments]
        log._hints.clear()
        log._indexed.clear()
        kept = {segment.base_offset for segment in cleaned}
        for segment in old:
            segment.delete(keep_snapshot=segment.base_offset in kept)
        for segment in cleaned:
            segment.rename_files("")
        log.disk.sync_directory(log.directory)
    except OSError as error:
        log.mark_failed(error)
        raise log.storage_error() from error
