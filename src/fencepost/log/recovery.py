"""Opening a log: finding its segments, trusting them after a clean stop, checking them after any other.

After a clean stop only the batches behind the last index entry are stepped over. Otherwise every batch from the segment
of the recovery point on must have its CRC and its place: the log ends at the first that has not, later segments go, and
indexes, aborted transactions, leader epochs and producer state are built anew from the batches. What survives is synced
before anyone may read it.
"""

from collections import deque
from typing import TYPE_CHECKING

from fencepost.log import checking
from fencepost.log.batch_scans import read_headers
from fencepost.log.file_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    offset_name,
)
from fencepost.log.indexes import RELATIVE_OFFSET_MAX
from fencepost.log.leader_epochs import CorruptEpochCheckpoint, LeaderEpochs
from fencepost.log.producer_entries import BATCHES_REMEMBERED_MAX, CorruptSnapshot
from fencepost.log.segment import Segment
from fencepost.log.side_files import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, encode_partition_metadata
from fencepost.log.syncables import DirectoryEntries, WrittenFile
from fencepost.wire.batch import BatchHeader, verify_crc
from fencepost.wire.errors import MalformedMessage

if TYPE_CHECKING:
    from fencepost.log.log_files import LogFiles
    from fencepost.log.partition_log import PartitionLog

_OFFSET_DIGITS = 20
_LOG_NAME_LENGTH = _OFFSET_DIGITS + len(LOG_SUFFIX)
_NO_TOPIC_ID = bytes(16)
_RECENT_BATCHES_BYTES = 256 * 1024
_REWRITE_BYTES = 1 << 20


class DamagedLog(Exception):
    """Something that was synced, and perhaps acknowledged, is not there any more. The files are left as they are."""


def load(
    log: "PartitionLog",
    now_ms: int,
    *,
    clean: bool,
    recovery_point: int,
    log_start_offset: int,
    sync: bool,
    rewrite: bool = False,
) -> None:
    """Fill in a log that was just made."""
    names = _names(log)
    if any(name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX)) for name in names):
        names = _finish_interrupted(log, names, now_ms)
    base_offsets, snapshots = _offsets_of(names)
    if log.topic_id != _NO_TOPIC_ID and not (clean and PARTITION_METADATA in names):
        _write_partition_metadata(log, even_if_equal=rewrite)
    log.log_start_offset = log_start_offset
    if not base_offsets:
        _begin(log, now_ms)
        return
    disk, directory = log.disk, log.directory
    segments = [Segment(disk, directory, base_offset, now_ms) for base_offset in base_offsets]
    log._segments, log._base_offsets = segments, base_offsets
    log.log_start_offset = max(log_start_offset, base_offsets[0])
    if clean and 0 < recovery_point < log_start_offset:
        log.log_start_offset = base_offsets[0]  # behind the end of the log as the stop has left it
    epochs_known = _load_epochs(log, names)
    end_offset = _trusted_end_offset(segments[-1]) if clean else None
    if end_offset is not None and end_offset > recovery_point > base_offsets[-1]:
        end_offset = None  # a batch claims a place behind the end of the log as the stop has left it
    if end_offset is None:
        # A clean stop whose last segment ends in something else was none; what was flushed before may still be trusted.
        scan_from = base_offsets[-1] if clean else recovery_point
        _recover(log, scan_from, recovery_point, snapshots, epochs_known, now_ms, sync, rewrite)
    else:
        log.log_end_offset = end_offset
        if not epochs_known and end_offset > base_offsets[0]:
            _rebuild_epochs(log, segments)
        if end_offset > log.log_start_offset or snapshots:
            reload_producers(log, now_ms, snapshots)
        log._activate(segments[-1])
        segments[-1].unchecked_to = segments[-1].size
        checking.aborted_of(log, segments[-1])
    # Records below the log start are as good as deleted, whether or not they are all there.
    log.log_end_offset = max(log.log_end_offset, log.log_start_offset)
    if len(segments) > 1 and segments[1].base_offset <= log.log_start_offset:
        from fencepost.log.retention import delete_breached_segments

        delete_breached_segments(log)
    log.leader_epoch = log.epochs.latest
    log.synced_offset = log.high_watermark = log._sync_requested_offset = log.log_end_offset
    if not log.producers.transactions.is_empty:
        log._find_first_unstable_offset()


def _names(log: "PartitionLog") -> list[str]:
    try:
        return log.disk.list(log.directory)
    except FileNotFoundError:
        log.disk.make_directory(log.directory)
        log.note_dirty(DirectoryEntries(log.disk, log.directory.rpartition("/")[0]))
        log.note_new_names()
        return []


def _offsets_of(names: list[str]) -> tuple[list[int], list[int]]:
    base_offsets, snapshots = [], []
    for name in names:
        if name.endswith(LOG_SUFFIX):
            if len(name) == _LOG_NAME_LENGTH:
                base_offsets.append(int(name[:_OFFSET_DIGITS]))
        elif name.endswith(SNAPSHOT_SUFFIX):
            snapshots.append(int(name[:_OFFSET_DIGITS]))
    return base_offsets, snapshots


def _write_partition_metadata(log: "PartitionLog", *, even_if_equal: bool) -> None:
    path = f"{log.directory}/{PARTITION_METADATA}"
    content = encode_partition_metadata(log.topic_id)
    if even_if_equal or not log.disk.exists(path) or log.disk.read_bytes(path) != content:
        log.disk.write_bytes(path, content)
        log.note_dirty(WrittenFile(log.disk, path))
        log.note_new_names()


def _begin(log: "PartitionLog", now_ms: int) -> None:
    start = log.log_start_offset
    segment = Segment.create(log.disk, log.directory, start, now_ms)
    log._segments, log._base_offsets = [segment], [start]
    log.log_end_offset = log.high_watermark = log.synced_offset = log._sync_requested_offset = start
    log.producers.map_end_offset = start
    log._activate(segment)
    log.note_new_names()


def _trusted_end_offset(active: Segment) -> int | None:
    """The log end after a clean stop; None if the last segment does not end with a whole batch."""
    if active.size == 0:
        active.begin_empty()
        return active.base_offset
    return active.account_for_tail()


# Leader epochs


def _load_epochs(log: "PartitionLog", names: list[str]) -> bool:
    if LEADER_EPOCH_CHECKPOINT not in names:
        return False
    try:
        log.epochs = LeaderEpochs.decode(log.disk.read_bytes(f"{log.directory}/{LEADER_EPOCH_CHECKPOINT}"))
    except CorruptEpochCheckpoint:
        return False
    return True


def _rebuild_epochs(log: "PartitionLog", segments: list[Segment]) -> None:
    for segment in segments:
        for _, header in read_headers(segment.file, 0, segment.size):
            log.epochs.assign(header.partition_leader_epoch, header.base_offset)


# Producers


def reload_producers(log: "PartitionLog", now_ms: int, snapshots: list[int] | None = None) -> None:
    """Producer state as of the log end: the newest good snapshot, then the batches after it."""
    if snapshots is None:
        snapshots = _offsets_of(log.disk.list(log.directory))[1]
    start = _load_newest_snapshot(log, log.log_end_offset, snapshots, now_ms)
    if start < log.log_end_offset:
        _replay(log, start, log.log_end_offset)
    log.producers.map_end_offset = log.log_end_offset


def _load_newest_snapshot(log: "PartitionLog", limit: int, snapshots: list[int], now_ms: int) -> int:
    """Adopt the newest usable snapshot at or below `limit`; the offset from which the log must be replayed.

    One from before the first segment is of no use: batches that followed it are gone.
    """
    producers = log.producers
    start = log.segments[0].base_offset
    for offset in reversed(snapshots):
        if offset > limit or offset < start:
            continue
        try:
            data = log.disk.read_bytes(f"{log.directory}/{offset_name(offset, SNAPSHOT_SUFFIX)}")
            producers.load_snapshot(data, log.log_start_offset, now_ms)
        except (CorruptSnapshot, FileNotFoundError):
            continue
        producers.map_end_offset = producers.snapshot_offset = offset
        _remember_recent_batches(log, offset)
        return offset
    producers.truncate_fully_and_start_at(start)
    return start


def _remember_recent_batches(log: "PartitionLog", offset: int) -> None:
    """Give producers of a snapshot as of `offset` their last batches back: the snapshot has one, retries go back five.

    They are at the end of the log for any producer that may still retry, so only so much of it is looked at.
    """
    entries = {entry.producer_id: entry for entry in log.producers.producers.values() if entry.batches}
    recent: dict[int, deque[tuple[int, int, int, int]]] = {producer_id: deque() for producer_id in entries}
    budget = _RECENT_BATCHES_BYTES if entries else 0
    for segment in reversed(log.segments):
        if budget <= 0:
            break
        if segment.base_offset >= offset:
            continue
        found = segment.find(offset)
        end = segment.size if found is None else found[0]
        start = segment.offset_index.position_at_or_before(max(end - budget, 0))
        budget -= end - start
        for _, header in reversed(list(read_headers(segment.file, start, end))):
            entry = entries.get(header.producer_id)
            if entry is None or header.is_control or header.producer_epoch != entry.producer_epoch:
                continue
            batches = recent[header.producer_id]
            if len(batches) < BATCHES_REMEMBERED_MAX:
                batches.appendleft(
                    (header.last_sequence, header.last_offset, header.last_offset_delta, header.max_timestamp)
                )
    for producer_id, batches in recent.items():
        if batches and batches[-1][1] == entries[producer_id].batches[-1][1]:
            entries[producer_id].batches.clear()
            entries[producer_id].batches.extend(batches)


def _replay(log: "PartitionLog", start_offset: int, end_offset: int) -> None:
    """Follow batches that are trusted."""
    producers = log.producers
    for segment in log.segments:
        if segment.base_offset >= end_offset:
            break
        found = segment.find(start_offset)
        if found is None:
            continue
        for batch in segment.batches(found[0]):
            if batch.header.base_offset >= end_offset:
                return
            try:
                if verify_crc(batch.block, batch.start, batch.header):
                    producers.replay_batch(batch.block, batch.start, batch.header)
            except MalformedMessage:
                continue  # a marker nobody can read decides nothing; readers are told when they come to it


def remove_snapshots_above(log: "PartitionLog", offset: int) -> None:
    for snapshot in _offsets_of(log.disk.list(log.directory))[1]:
        if snapshot > offset:
            log.disk.remove(f"{log.directory}/{offset_name(snapshot, SNAPSHOT_SUFFIX)}")


def remove_stray_snapshots(log: "LogFiles") -> None:
    """Keep those at the base of a segment; the one of the last clean stop has done its duty."""
    kept = set(log._base_offsets)
    for snapshot in _offsets_of(log.disk.list(log.directory))[1]:
        if snapshot not in kept:
            log.disk.remove(f"{log.directory}/{offset_name(snapshot, SNAPSHOT_SUFFIX)}")


# After a crash


def _recover(
    log: "PartitionLog",
    recovery_point: int,
    synced_offset: int,
    snapshots: list[int],
    epochs_known: bool,
    now_ms: int,
    sync: bool,
    rewrite: bool,
) -> None:
    segments = log._segments
    # Not `<=`: a segment may have been sealed after the sync that reached its end, and then its indexes are not synced.
    first = max((at for at, segment in enumerate(segments) if segment.base_offset < recovery_point), default=0)
    scan_from = segments[first].base_offset
    if epochs_known:
        log.epochs.truncate_from_end(scan_from)
    else:
        log.epochs = LeaderEpochs()
        _rebuild_epochs(log, segments[:first])
    start = _load_newest_snapshot(log, scan_from, snapshots, now_ms)
    if start < scan_from:
        _replay(log, start, scan_from)
    for snapshot in snapshots:
        if snapshot > scan_from:
            log.disk.remove(f"{log.directory}/{offset_name(snapshot, SNAPSHOT_SUFFIX)}")
    end_offset = scan_from
    good = first
    for at in range(first, len(segments)):
        segment = segments[at]
        # A segment that overlaps what was read is no successor. One after a gap is none either, where the gap lies in
        # what was never synced: the end of its predecessor was lost. But compaction makes gaps, too.
        is_gap = segment.base_offset > max(end_offset, recovery_point) and not log.config.is_compacted
        if at > first and (segment.base_offset < end_offset or is_gap):
            _refuse_loss(log, segment.base_offset, synced_offset, f"{segment.log_path} does not follow {end_offset}")
            break
        if at > first:
            log.note_dirty(log.write_snapshot(segment.base_offset))
        end_offset, whole = _scan(log, segment, synced_offset)
        good = at
        if not whole:
            break
    removed = segments[good + 1 :]
    for segment in reversed(removed):
        log._drop_segment(segment)
    log.log_end_offset = end_offset
    log.producers.map_end_offset = end_offset
    log._activate(segments[-1])
    for segment in segments[first:]:
        if rewrite:
            _rewrite(segment)
        log.note_dirty(segment.file)
        if segment is not segments[-1]:
            log.note_dirty(*segment.write_indexes())
    log.note_new_names()
    log._unsaved = True
    if end_offset > recovery_point or rewrite:
        log.flush(sync=sync)


def _rewrite(segment: Segment) -> None:
    """A sync that failed has left pages that count as clean; written once more they are synced once more."""
    for position in range(0, segment.size, _REWRITE_BYTES):
        segment.file.write(position, segment.file.read(position, min(_REWRITE_BYTES, segment.size - position)))


def _refuse_loss(log: "PartitionLog", offset: int, synced_offset: int, reason: str) -> None:
    """A crash takes what was not synced. What is missing below the recovery point was lost in another way."""
    if offset < synced_offset:
        raise DamagedLog(f"{reason}, but {log.topic_partition} was synced up to {synced_offset}")


def _scan(log: "PartitionLog", segment: Segment, synced_offset: int) -> tuple[int, bool]:
    """Account for every good batch, cut the file behind the last; the offset after it, and whether all were good."""
    segment.reset_indexes()
    segment.unchecked_from = segment.unchecked_to = 0
    interval = log.config.index_interval_bytes
    next_offset, end = segment.base_offset, 0
    for found in segment.batches():
        header = found.header
        if not _is_good(header, next_offset, segment.base_offset) or not verify_crc(found.block, found.start, header):
            break
        if header.base_offset > max(next_offset, synced_offset, log.log_start_offset) and not log.config.is_compacted:
            break  # nothing makes a hole in what was just written; a batch's offset is not under its CRC
        try:
            completed = log.producers.replay_batch(found.block, found.start, header)
        except MalformedMessage:
            break
        if completed is not None:
            segment.aborted.append_completed(completed)
        log.epochs.assign(header.partition_leader_epoch, header.base_offset)
        size = header.size_bytes
        segment.index_batch(found.position, size, header.last_offset, header.max_timestamp, interval)
        next_offset, end = header.next_offset, found.position + size
    whole = end == segment.size
    if not whole:
        _refuse_loss(log, next_offset, synced_offset, f"{segment.log_path} is damaged at byte {end}")
        segment.cut_file(end)
    return next_offset, whole


def _is_good(header: BatchHeader, next_offset: int, segment_base_offset: int) -> bool:
    return (
        header.base_offset >= next_offset
        and header.last_offset_delta >= 0
        and header.last_offset - segment_base_offset <= RELATIVE_OFFSET_MAX
    )


# Interrupted compaction and deletion


def _finish_interrupted(log: "PartitionLog", names: list[str], now_ms: int) -> list[str]:
    """Segments being deleted go; compacted ones go if unfinished, and take their place if they were about to."""
    disk, directory = log.disk, log.directory
    for name in names:
        if name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX)):
            disk.remove(f"{directory}/{name}")
    swapped = [name for name in names if name.endswith(LOG_SUFFIX + SWAP_SUFFIX)]
    base_offsets = _offsets_of(names)[0]
    for name in swapped:
        base_offset = int(name[:_OFFSET_DIGITS])
        compacted = Segment(disk, directory, base_offset, now_ms, SWAP_SUFFIX)
        end_offset = base_offset
        for _, header in read_headers(compacted.file, 0, compacted.size):
            end_offset = header.next_offset
        for original in base_offsets:
            if base_offset <= original < end_offset or original == base_offset:
                Segment(disk, directory, original, now_ms).delete(keep_snapshot=original == base_offset)
        compacted.rename_files("")
        compacted.close()
    for name in disk.list(directory):
        if name.endswith(SWAP_SUFFIX):  # a side file whose log was not on its way yet: the log's rename comes last
            disk.remove(f"{directory}/{name}")
    disk.sync_directory(directory)
    return disk.list(directory)
