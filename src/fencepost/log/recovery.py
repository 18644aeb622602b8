"""Opening a log: finding its segments, trusting them after a clean stop, checking them after any other.

After a clean stop only the batches behind each segment's last index entry are stepped over. Otherwise every batch from
the segment of the recovery point on must have its CRC and its place: the log ends at the first that has not, later
segments go, and indexes, aborted transactions, leader epochs and producer state are built anew from the batches. What
survives is synced before anyone may read it. Whole batches that are cut off are set aside, and reported (`cuts`).

A crash takes what was never synced. What the recovery point or a neighbouring segment proves to have been there, and
is not, was lost in another way: then the log is not opened (DamagedLog), and its files stay as they are. Holes that
compaction made are recognised by what the log itself records, never by the topic's settings, which may have changed: a
compacted segment has holes or emptied batches inside, or lies below the cleaner's checkpoint. Our own cleaner leaves no
holes between segments, and says so in a checkpoint; Apache Kafka's does.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from fencepost.log.batch_scans import FoundBatch, read_headers
from fencepost.log.directory import LogDirectory
from fencepost.log.file_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
)
from fencepost.log.indexes import RELATIVE_OFFSET_MAX
from fencepost.log.leader_epochs import CorruptEpochCheckpoint, LeaderEpochs
from fencepost.log.open_transactions import AbortedTransaction
from fencepost.log.producers import BATCHES_REMEMBERED_MAX, CorruptSnapshot, ProducerStateManager
from fencepost.log.segment import Segment
from fencepost.log.segments import Segments
from fencepost.log.set_aside import ends_of_batches, free_name, set_bytes_aside
from fencepost.log.side_files import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, encode_partition_metadata
from fencepost.log.unsynced import Unsynced
from fencepost.wire.batch import NO_TIMESTAMP, BatchHeader, verify_crc
from fencepost.wire.errors import MalformedMessage

_OFFSET_DIGITS = 20
_NO_TOPIC_ID = bytes(16)
_RECENT_BATCHES_BYTES = 256 * 1024
_REWRITE_BYTES = 1 << 20


class DamagedLog(Exception):
    """Something that was synced, and perhaps acknowledged, is not there any more. The files are left as they are."""

    def __init__(
        self,
        topic_partition: str,
        reason: str,
        first_offset: int,
        next_offset: int | None,
        segment: int | None = None,
        position: int = 0,
    ) -> None:
        super().__init__(f"{topic_partition}: {reason}")
        self.reason = reason
        self.first_offset = first_offset
        """The first offset that is missing."""
        self.next_offset = next_offset
        """The first that is known to come behind the hole; None if nobody knows."""
        self.segment = segment
        """Base offset of the segment that is not what was written; None where something is not there at all."""
        self.position = position
        """Up to which byte that segment is good."""


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """What the data directory's checkpoints say of one log."""

    is_clean: bool = False
    """The last stop was clean, so files are trusted."""
    recovery_point: int | None = 0
    """Everything below it was synced. None: the checkpoint could not be read."""
    log_start_offset: int = 0
    clean_offset: int = 0
    """Everything below it was compacted once."""
    gapless_offset: int = 0
    """Below it each segment began where the one before it ended, compacted or not."""


@dataclass(slots=True)
class LogLoader:
    """Opens one log. `load` fills in segments, producers, epochs and offsets, or raises DamagedLog."""

    directory: LogDirectory
    segments: Segments
    producers: ProducerStateManager
    unsynced: Unsynced
    topic_id: bytes
    checkpoints: Checkpoints
    now_ms: int
    index_interval_bytes: int
    rewrites: bool = False
    """After a failed sync the page cache shows what the disk may never get: everything is written once more."""
    epochs: LeaderEpochs = field(default_factory=LeaderEpochs)
    log_start_offset: int = 0
    log_end_offset: int = 0
    is_recovered: bool = False
    """The log was checked and may have been cut: what is found on the disk is to be synced, and written at a stop."""
    cuts: list[str] = field(default_factory=list)
    """What was cut off and was no torn end of the log."""
    unindexed: list[Segment] = field(default_factory=list)
    """Trusted segments without an `.index`. The `.txnindex` may have been removed with it, and nothing else tells that
    one is missing: a segment without aborted transactions has none."""

    def load(self) -> None:
        self.log_start_offset = self.checkpoints.log_start_offset
        names = self._names()
        if any(name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX)) for name in names):
            names = finish_interrupted(self.directory, names, self.now_ms)
        base_offsets, snapshots = offsets_of(names)
        is_clean, recovery_point = self.checkpoints.is_clean, self.checkpoints.recovery_point or 0
        if not base_offsets and recovery_point > 0:
            raise self._damaged("its segments are missing", 0, recovery_point)
        if self.topic_id != _NO_TOPIC_ID and not (is_clean and PARTITION_METADATA in names):
            self._write_partition_metadata()
        if not base_offsets:
            self._begin()
            return
        self.segments.adopt([Segment(self.directory, base_offset, self.now_ms) for base_offset in base_offsets])
        active = self.segments.active
        if is_clean and 0 < recovery_point < self.log_start_offset:
            self.log_start_offset = 0  # behind the end of the log as the stop has left it
        self.log_start_offset = max(self.log_start_offset, base_offsets[0])
        epochs_known = self._load_epochs(names)
        end_offset = _trusted_end_offset(active) if is_clean else None
        if end_offset is not None and end_offset > recovery_point > base_offsets[-1]:
            end_offset = None  # a batch claims a place behind the end of the log as the stop has left it
        if end_offset is None:
            # A clean stop whose last segment ends in something else was none; what was flushed before may still be
            # trusted.
            trusted = self._recover(base_offsets[-1] if is_clean else recovery_point, snapshots, epochs_known)
            self._find_unindexed(names, self.segments[:trusted])
        else:
            self._find_unindexed(names, self.segments[:])
            self._check_neighbours(len(base_offsets))
            self.log_end_offset = end_offset
            if not epochs_known and end_offset > base_offsets[0]:
                self._read_epochs(self.segments[:])
            active.bound_unchecked()
        # Records below the log start are as good as deleted, whether or not they are all there.
        self.log_end_offset = max(self.log_end_offset, self.log_start_offset)
        if self.log_end_offset < recovery_point:
            raise self._damaged("the end of the log is missing", self.log_end_offset, recovery_point)
        if end_offset is not None and (self.log_end_offset > self.log_start_offset or snapshots):
            reload_producers(
                self.directory, self.segments, self.producers, self.log_start_offset, self.log_end_offset, self.now_ms,
                snapshots,
            )  # fmt: skip

    def _damaged(
        self, reason: str, first_offset: int, next_offset: int | None, segment: int | None = None, position: int = 0
    ) -> DamagedLog:
        synced = self.checkpoints.recovery_point
        known = "" if synced is None else f"; it was synced up to {synced}"
        up_to = "" if next_offset is None else f" to {next_offset - 1}"
        return DamagedLog(
            str(self.directory),
            f"{reason}: offsets {first_offset}{up_to}{known}",
            first_offset,
            next_offset,
            segment,
            position,
        )

    # Files

    def _names(self) -> list[str]:
        try:
            return self.directory.names()
        except FileNotFoundError:
            if self.checkpoints.recovery_point:
                raise self._damaged("its directory is missing", 0, self.checkpoints.recovery_point) from None
        disk, path = self.directory.disk, self.directory.path
        disk.make_directory(path)
        parent = LogDirectory(disk, path.rpartition("/")[0])
        self.unsynced.note(parent.path, parent)
        self.unsynced.note_names()
        return []

    def _find_unindexed(self, names: list[str], trusted: list[Segment]) -> None:
        there = set(names)
        self.unindexed = [
            segment for segment in trusted if f"{segment.base_offset:020d}{INDEX_SUFFIX}" not in there and segment.size
        ]

    def _write_partition_metadata(self) -> None:
        disk, path = self.directory.disk, self.directory.path_of(PARTITION_METADATA)
        content = encode_partition_metadata(self.topic_id)
        if self.rewrites or not disk.exists(path) or disk.read_bytes(path) != content:
            disk.write_bytes(path, content)
        # Even if it is there: a process that was killed may have written it and never synced it, and without it nobody
        # could tell this log from one of another topic of that name.
        self.unsynced.note_written(path)
        self.unsynced.note_names()

    def _begin(self) -> None:
        start = self.log_start_offset
        self.segments.begin(start, self.now_ms)
        self.log_end_offset = start
        self.producers.reach(start)

    # Leader epochs

    def _load_epochs(self, names: list[str]) -> bool:
        if LEADER_EPOCH_CHECKPOINT not in names:
            return False
        try:
            data = self.directory.disk.read_bytes(self.directory.path_of(LEADER_EPOCH_CHECKPOINT))
            self.epochs = LeaderEpochs.decode(data)
        except CorruptEpochCheckpoint:
            return False
        return True

    def _read_epochs(self, segments: list[Segment]) -> None:
        for segment in segments:
            for _, header in read_headers(segment.file, 0, segment.size):
                self.epochs.assign(header.partition_leader_epoch, header.base_offset)

    # What is missing

    def _check_neighbours(self, count: int) -> None:
        """Each of the first `count` segments must begin where the one before it ends, but for what compaction took."""
        for segment, following in pairwise(self.segments[:count]):
            if following.base_offset > self.log_start_offset:
                end_offset = segment.closed_end_offset()
                if end_offset is not None and following.base_offset > max(end_offset, self.log_start_offset):
                    self._judge_hole(segment, following, end_offset, was_synced=True)

    def _judge_hole(self, segment: Segment, following: Segment, end_offset: int, *, was_synced: bool) -> bool:
        """Whether compaction made the hole between two segments. If not: was it synced, it is damage; else the end."""
        is_gapless = following.base_offset <= self.checkpoints.gapless_offset
        if not is_gapless:
            if following.base_offset <= self.checkpoints.clean_offset:
                return True
            later = [each for each in self.segments if each.base_offset >= following.base_offset]
            if any(map(_was_compacted, (segment, *later))):
                return True
        if was_synced or is_gapless:
            reason = f"between {segment.log_path} and {following.log_path} something is missing"
            raise self._damaged(reason, max(end_offset, self.log_start_offset), following.base_offset)
        return False

    def _refuse_loss(self, segment: Segment, end_offset: int, reason: str, damaged: int, position: int) -> None:
        """What is to be cut off must never have been synced. `damaged` is the base of the segment that is cut."""
        recovery_point = self.checkpoints.recovery_point
        if recovery_point is None:
            # Nobody knows. The tail of the last segment may be torn; anything else is no trace of a crash.
            if segment is not self.segments.active:
                raise self._damaged(reason, end_offset, None, damaged, position)
        elif end_offset < recovery_point:
            raise self._damaged(reason, end_offset, None, damaged, position)

    # After a crash

    def _recover(self, recovery_point: int, snapshots: list[int], epochs_known: bool) -> int:
        """How many of the first segments are trusted as they are."""
        segments = self.segments
        # Not `<=`: a segment may have been sealed after the sync that reached its end, and then its indexes are not
        # synced.
        first = max((at for at, segment in enumerate(segments) if segment.base_offset < recovery_point), default=0)
        self._check_neighbours(first + 1)
        scan_from = segments[first].base_offset
        if epochs_known:
            self.epochs.truncate_from_end(scan_from)
        else:
            self.epochs = LeaderEpochs()
            self._read_epochs(segments[:first])
        start = _load_newest_snapshot(
            self.directory, segments, self.producers, self.log_start_offset, scan_from, self.now_ms, snapshots
        )
        if start < scan_from:
            _replay(segments, self.producers, start, scan_from)
        for snapshot in snapshots:
            if snapshot > scan_from:
                self.directory.disk.remove(self.directory.path_at(snapshot, SNAPSHOT_SUFFIX))
        end_offset, good = self._scan_from(first)
        for segment in reversed(segments[good + 1 :]):
            self._drop(segment, end_offset)
        self.log_end_offset = end_offset
        self.producers.reach(end_offset)
        for segment in segments[first:]:
            if self.rewrites:
                _rewrite(segment)
            self.unsynced.note(segment.log_path, segment.file)
            if segment is not segments.active:
                for path in segment.write_indexes():
                    self.unsynced.note_written(path)
        self.unsynced.note_names()
        self.is_recovered = True
        return first

    def _drop(self, segment: Segment, end_offset: int) -> None:
        """A crash took something in front of it that was never synced. Its batches cannot be used, but are kept."""
        end = self._end_behind(segment, 0)
        if end is None:
            self.segments.drop(segment)
            return
        name = free_name(self.directory, segment.base_offset)
        self.segments.drop(segment, set_aside=self.directory.path_of(name))
        self._tell_cut(end_offset, end, name)

    def _end_behind(self, segment: Segment, position: int) -> int | None:
        """The offset behind the last whole batch that comes after a place in a segment; None if there is none."""
        tail = segment.file.read(position, segment.size - position)
        return max(ends_of_batches(tail, segment.base_offset), default=None)

    def _tell_cut(self, end_offset: int, end: int, name: str) -> None:
        self.cuts.append(
            f"recovery cut {self.directory} at offset {end_offset}; there were whole batches behind that, up to offset "
            f"{end - 1}. No checkpoint says that they were synced, and a crash may leave such holes. They are kept in "
            f"{name}"
        )

    def _scan_from(self, first: int) -> tuple[int, int]:
        """Where the log ends, and which segment is its last good one."""
        segments = self.segments
        end_offset = segments[first].base_offset
        good = first
        for at in range(first, len(segments)):
            segment = segments[at]
            if at > first:
                if segment.base_offset < end_offset:
                    # It overlaps what was read, so it is no successor.
                    reason = f"{segment.log_path} does not follow {end_offset}"
                    self._refuse_loss(segments[at - 1], segment.base_offset, reason, segment.base_offset, 0)
                    break
                if segment.base_offset > max(end_offset, self.log_start_offset):
                    recovery_point = self.checkpoints.recovery_point
                    was_synced = recovery_point is None or segment.base_offset <= recovery_point
                    if not self._judge_hole(segments[at - 1], segment, end_offset, was_synced=was_synced):
                        break  # the end of its predecessor was lost, which was never synced
                path = self.directory.path_at(segment.base_offset, SNAPSHOT_SUFFIX)
                self.producers.reach(segment.base_offset)
                self.directory.disk.write_bytes(path, self.producers.take_snapshot())
                self.unsynced.note_written(path)
            following = segments[at + 1] if at + 1 < len(segments) else None
            end_offset, whole = self._scan(segment, following)
            good = at
            if not whole:
                break
        return end_offset, good

    def _scan(self, segment: Segment, following: Segment | None) -> tuple[int, bool]:
        """Account for every good batch, cut the file behind the last; the offset after it, whether all were good."""
        segment.reset_indexes()
        segment.note_all_checked()
        next_offset, end = segment.base_offset, 0
        has_holes = False
        batches = segment.batches()
        found = next(batches, None)
        while found is not None:
            header, upcoming = found.header, next(batches, None)
            if not is_good(header, next_offset, segment.base_offset) or not verify_crc(
                found.block, found.start, header
            ):
                break
            if header.base_offset > next_offset:
                if not has_holes and not self._is_place(header, upcoming, following):
                    break
                has_holes = True
            try:
                completed = self.producers.replay_batch(found.block, found.start, header)
            except MalformedMessage:
                break
            if completed is not None:
                segment.aborted.append_completed(completed)
            self.epochs.assign(header.partition_leader_epoch, header.base_offset)
            size = header.size_bytes
            segment.index_batch(
                found.position, size, header.last_offset, header.max_timestamp, self.index_interval_bytes
            )
            next_offset, end = header.next_offset, found.position + size
            found = upcoming
        whole = end == segment.size
        if not whole:
            reason = f"{segment.log_path} is damaged at byte {end}"
            self._refuse_loss(segment, next_offset, reason, segment.base_offset, end)
            end_behind = self._end_behind(segment, end)
            if end_behind is not None:
                tail = segment.file.read(end, segment.size - end)
                self._tell_cut(next_offset, end_behind, set_bytes_aside(self.directory, segment.base_offset, tail))
            segment.cut_file(end)
        return next_offset, whole

    def _is_place(self, header: BatchHeader, upcoming: FoundBatch | None, following: Segment | None) -> bool:
        """Whether a batch behind a hole is where it was written: its offset is not under its CRC.

        What was just written has no holes, and a wrong offset contradicts the batch that comes next.
        """
        known = self.checkpoints
        if header.base_offset <= max(known.recovery_point or 0, known.clean_offset, self.log_start_offset):
            return True
        if upcoming is not None:
            return upcoming.header.base_offset >= header.next_offset
        return following is not None and following.base_offset >= header.next_offset


def finish_interrupted(directory: LogDirectory, names: list[str], now_ms: int) -> list[str]:
    """Segments being deleted go; compacted ones go if unfinished, and take their place if they were about to."""
    disk = directory.disk
    names = [name for name in names if name[:_OFFSET_DIGITS].isascii() and name[:_OFFSET_DIGITS].isdigit()]
    for name in names:
        if name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX)):
            disk.remove(directory.path_of(name))
    swapped = [name for name in names if name.endswith(LOG_SUFFIX + SWAP_SUFFIX)]
    base_offsets = offsets_of(names)[0]
    for name in swapped:
        base_offset = int(name[:_OFFSET_DIGITS])
        compacted = Segment(directory, base_offset, now_ms, SWAP_SUFFIX)
        end_offset = base_offset
        for _, header in read_headers(compacted.file, 0, compacted.size):
            end_offset = header.next_offset
        for original in base_offsets:
            if base_offset <= original < end_offset or original == base_offset:
                Segment(directory, original, now_ms).delete(keep_snapshot=original == base_offset)
        compacted.rename_files("")
        compacted.close()
    for name in names:
        # A side file whose log was not on its way yet: the log's rename comes last.
        if name.endswith(SWAP_SUFFIX) and disk.exists(directory.path_of(name)):
            disk.remove(directory.path_of(name))
    directory.sync()
    return directory.names()


def offsets_of(names: list[str]) -> tuple[list[int], list[int]]:
    """Base offsets of segments, and offsets of producer snapshots, that a directory's names tell."""
    base_offsets, snapshots = [], []
    for name in names:
        digits, dot, suffix = name.partition(".")
        if len(digits) != _OFFSET_DIGITS or not (digits.isascii() and digits.isdigit()):
            continue  # somebody else's
        if dot + suffix == LOG_SUFFIX:
            base_offsets.append(int(digits))
        elif dot + suffix == SNAPSHOT_SUFFIX:
            snapshots.append(int(digits))
    return base_offsets, snapshots


def _trusted_end_offset(active: Segment) -> int | None:
    """The log end after a clean stop; None if the last segment does not end with a whole batch."""
    if active.size == 0:
        active.begin_empty()
        return active.base_offset
    return active.account_for_tail()


def is_filler(header: BatchHeader) -> bool:
    """Whether a batch represents offsets that were given up (`log.repair`). Compaction leaves producer or time."""
    return header.record_count == 0 and header.max_timestamp == NO_TIMESTAMP and not header.has_producer_id


def _was_compacted(segment: Segment) -> bool:
    """Whether a segment shows traces of compaction: holes, emptied batches, times at which tombstones go."""
    next_offset = segment.base_offset
    for _, header in read_headers(segment.file, 0, segment.size):
        is_emptied = header.record_count == 0 and not is_filler(header)
        if header.base_offset > next_offset or is_emptied or header.has_delete_horizon:
            return True
        next_offset = header.next_offset
    return False


def is_good(header: BatchHeader, next_offset: int, segment_base_offset: int) -> bool:
    return (
        header.base_offset >= next_offset
        and header.last_offset_delta >= 0
        and header.last_offset - segment_base_offset <= RELATIVE_OFFSET_MAX
    )


def _rewrite(segment: Segment) -> None:
    """A sync that failed has left pages that count as clean; written once more they are synced once more."""
    for position in range(0, segment.size, _REWRITE_BYTES):
        segment.file.write(position, segment.file.read(position, min(_REWRITE_BYTES, segment.size - position)))


# Producers


def reload_producers(
    directory: LogDirectory,
    segments: Segments,
    producers: ProducerStateManager,
    log_start_offset: int,
    log_end_offset: int,
    now_ms: int,
    snapshots: list[int] | None = None,
) -> None:
    """Producer state as of the log end: the newest good snapshot, then the batches after it."""
    if snapshots is None:
        snapshots = offsets_of(directory.names())[1]
    start = _load_newest_snapshot(directory, segments, producers, log_start_offset, log_end_offset, now_ms, snapshots)
    if start < log_end_offset:
        _replay(segments, producers, start, log_end_offset)
    producers.reach(log_end_offset)


def _load_newest_snapshot(
    directory: LogDirectory,
    segments: Segments,
    producers: ProducerStateManager,
    log_start_offset: int,
    limit: int,
    now_ms: int,
    snapshots: list[int],
) -> int:
    """Adopt the newest usable snapshot at or below `limit`; the offset from which the log must be replayed.

    One from before the first segment is of no use: batches that followed it are gone.
    """
    start = segments[0].base_offset
    for offset in reversed(snapshots):
        if offset > limit or offset < start:
            continue
        try:
            data = directory.disk.read_bytes(directory.path_at(offset, SNAPSHOT_SUFFIX))
            producers.adopt_snapshot(offset, data, log_start_offset, now_ms)
        except (CorruptSnapshot, FileNotFoundError):
            continue
        _remember_recent_batches(segments, producers, offset)
        return offset
    producers.truncate_fully_and_start_at(start)
    return start


def _remember_recent_batches(segments: Segments, producers: ProducerStateManager, offset: int) -> None:
    """Give producers of a snapshot as of `offset` their last batches back: the snapshot has one, retries go back five.

    They are at the end of the log for any producer that may still retry, so only so much of it is looked at.
    """
    entries = {entry.producer_id: entry for entry in producers.producers.values() if entry.batches}
    recent: dict[int, deque[tuple[int, int, int, int]]] = {producer_id: deque() for producer_id in entries}
    budget = _RECENT_BATCHES_BYTES if entries else 0
    for segment in reversed(segments[:]):
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


def _replay(segments: Segments, producers: ProducerStateManager, start_offset: int, end_offset: int) -> None:
    """Follow batches that are trusted."""
    for segment in segments:
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
                continue  # an unreadable marker decides nothing; readers get an error when they come to it


def remove_snapshots(directory: LogDirectory, *, above: int = -1, kept: frozenset[int] = frozenset()) -> None:
    """Those above an offset, but for the ones that are kept."""
    for snapshot in offsets_of(directory.names())[1]:
        if snapshot > above and snapshot not in kept:
            directory.disk.remove(directory.path_at(snapshot, SNAPSHOT_SUFFIX))


def rescan_aborted(
    directory: LogDirectory,
    segments: Segments,
    wanted: Sequence[Segment],
    producers: ProducerStateManager,
    log_start_offset: int,
) -> dict[Segment, list[AbortedTransaction]]:
    """The aborted transactions of some segments, in order, as the batches tell them: the producers before the first,
    then all markers up to the end of the last.

    `producers` is empty and is filled on the way.
    """
    start = _load_snapshot_before(directory, segments, wanted[0], producers, log_start_offset)
    found: dict[Segment, list[AbortedTransaction]] = {segment: [] for segment in wanted}
    for each in segments:
        if each.base_offset < start:
            continue
        for batch in each.batches():
            if not verify_crc(batch.block, batch.start, batch.header):
                continue
            try:
                completed = producers.replay_batch(batch.block, batch.start, batch.header)
            except MalformedMessage:
                continue
            if each in found and completed is not None and completed.is_aborted:
                found[each].append(
                    AbortedTransaction(
                        completed.producer_id,
                        completed.first_offset,
                        completed.last_offset,
                        completed.last_stable_offset,
                    )
                )
        if each is wanted[-1]:
            break
    return found


def _load_snapshot_before(
    directory: LogDirectory,
    segments: Segments,
    segment: Segment,
    producers: ProducerStateManager,
    log_start_offset: int,
) -> int:
    """Begin with the newest good snapshot at the base of a segment; the base offset of that segment."""
    earlier = [each.base_offset for each in segments if each.base_offset <= segment.base_offset]
    for base_offset in reversed(earlier[1:]):
        try:
            data = directory.disk.read_bytes(directory.path_at(base_offset, SNAPSHOT_SUFFIX))
            # As of a time before all timestamps: a producer that has expired since had its transactions all the same.
            producers.load_snapshot(data, log_start_offset, 0)
        except (CorruptSnapshot, FileNotFoundError):
            continue
        return base_offset
    return earlier[0]
