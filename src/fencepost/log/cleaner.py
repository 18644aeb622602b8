"""The log cleaner: chooses a dirty compacted log and rewrites its segments while readers continue.

A pass reads the dirty part of a log to learn the newest offset of each key, then rewrites everything from the log start
into `.cleaned` segments, which `PartitionLog.replace_segments` swaps in; a crash at any point leaves the old segments
or the new ones. Only whole segments below the last stable offset are touched, never the active one. Passes are
generators: each step is short, and what it yields must be synced before the next, so that an event loop can serve
requests in between. `log.compaction` decides what is kept of a batch.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeVar

from fencepost.log.batch_scans import FoundBatch
from fencepost.log.compaction import BatchFilter, CleanedTransactions, KeyMap, last_records_of_producers
from fencepost.log.file_names import CLEANED_SUFFIX
from fencepost.log.indexes import OFFSET_ENTRY_BYTES, RELATIVE_OFFSET_MAX, TIME_ENTRY_BYTES
from fencepost.log.partition_log import PartitionLog
from fencepost.log.segment import Segment
from fencepost.log.side_files import (
    CLEANER_OFFSET_CHECKPOINT,
    GAPLESS_OFFSET_CHECKPOINT,
    CorruptSideFile,
    read_offset_checkpoint,
    write_offset_checkpoint,
)
from fencepost.log.unsynced import WrittenFile
from fencepost.ports import Disk, Syncable
from fencepost.topic_partition import TopicPartition
from fencepost.wire.batch import HEADER, BatchHeader, verify_crc
from fencepost.wire.errors import KafkaError, MalformedMessage
from fencepost.wire.records import payload_of, scan_records

SLICE_RECORDS_MAX = 1_000
SLICE_BYTES_MAX = 256 * 1024
KEYS_MAX_DEFAULT = 5_000_000
DECOMPRESSED_MAX_BYTES_DEFAULT = 67_108_864

Step = tuple[Syncable, ...]
"""What to sync before the pass continues; usually nothing."""
Result = TypeVar("Result")


class CleaningAborted(Exception):
    """The log changed during the pass (segments deleted, log closed or failed). Nothing was lost; a later pass will
    try again."""


class UncleanableLog(Exception):
    """The log contains something unreadable. It is not cleaned any more."""

    def __init__(self, topic_partition: str, reason: str) -> None:
        super().__init__(f"{topic_partition} cannot be compacted: {reason}")
        self.topic_partition = topic_partition
        self.reason = reason


class Cleanable(NamedTuple):
    """The dirty part of a log."""

    log: PartitionLog
    first_dirty_offset: int
    first_uncleanable_offset: int
    """A segment boundary."""
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool
    """A record is older than max.compaction.lag.ms."""

    @property
    def dirty_ratio(self) -> float:
        total_bytes = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total_bytes if total_bytes else 0.0

    @property
    def is_due(self) -> bool:
        if not self.dirty_bytes:
            return False
        return self.is_overdue or self.dirty_ratio > self.log.config.min_cleanable_dirty_ratio


class CleanResult(NamedTuple):
    first_dirty_offset: int
    """The offset at which the next pass begins."""
    keys: int
    bytes_read: int
    bytes_written: int
    segments_before: int
    segments_after: int


def cleanable(log: PartitionLog, last_clean_offset: int | None, now_ms: int) -> Cleanable:
    """The dirty part of a log whose last pass, if any, ended at `last_clean_offset`."""
    config, segments = log.config, log.segments
    first_dirty_offset = log.log_start_offset
    if last_clean_offset is not None and log.log_start_offset <= last_clean_offset <= log.log_end_offset:
        first_dirty_offset = last_clean_offset
    limit = min(log.last_stable_offset, segments.active.base_offset)
    first_uncleanable_offset = segments[0].base_offset
    clean_bytes = dirty_bytes = 0
    oldest_dirty_ms: int | None = None
    for segment, following in pairwise(segments):
        is_dirty = following.base_offset > first_dirty_offset
        if following.base_offset > limit or (
            is_dirty
            and config.min_compaction_lag_ms > 0
            and segment.largest_timestamp() > now_ms - config.min_compaction_lag_ms
        ):
            break
        first_uncleanable_offset = following.base_offset
        if segment.base_offset < first_dirty_offset:
            clean_bytes += segment.size
        if is_dirty:
            dirty_bytes += segment.size
            first_ms = segment.first_timestamp()
            if first_ms > 0 and (oldest_dirty_ms is None or first_ms < oldest_dirty_ms):
                oldest_dirty_ms = first_ms
    is_overdue = oldest_dirty_ms is not None and now_ms - oldest_dirty_ms > config.max_compaction_lag_ms
    return Cleanable(
        log,
        first_dirty_offset,
        max(first_dirty_offset, first_uncleanable_offset),
        clean_bytes,
        dirty_bytes,
        is_overdue,
    )


def compact(
    target: Cleanable,
    now_ms: int,
    *,
    keys_max: int = KEYS_MAX_DEFAULT,
    decompressed_max_bytes: int = DECOMPRESSED_MAX_BYTES_DEFAULT,
) -> Generator[Step, None, CleanResult]:
    """One pass. Raises CleaningAborted, UncleanableLog or the OSError of a full disk; the log stays whole each time."""
    return _Pass(target, now_ms, keys_max, decompressed_max_bytes).run()


def run_to_end(steps: Generator[Step, None, Result]) -> Result:
    """Runs a pass to its end, with the syncs it requests."""
    try:
        while True:
            for file in next(steps):
                file.sync()
    except StopIteration as stop:
        result: Result = stop.value
        return result
    finally:
        steps.close()


class LogCleaner:
    """The cleaner of one data directory: its checkpoint, and the choice of what to clean next."""

    def __init__(
        self,
        disk: Disk,
        data_directory: str,
        *,
        keys_max: int = KEYS_MAX_DEFAULT,
        decompressed_max_bytes: int = DECOMPRESSED_MAX_BYTES_DEFAULT,
    ) -> None:
        self._disk = disk
        self._data_directory = data_directory
        self._keys_max = keys_max
        self._decompressed_max_bytes = decompressed_max_bytes
        self.uncleanable: dict[TopicPartition, str] = {}
        """Logs that are not cleaned, with the reasons."""
        # Without the first one everything is dirty again, which only costs work.
        self._clean_offsets = self._read_checkpoint(CLEANER_OFFSET_CHECKPOINT)
        self._gapless_offsets = self._read_checkpoint(GAPLESS_OFFSET_CHECKPOINT)

    def _read_checkpoint(self, name: str) -> dict[TopicPartition, int]:
        try:
            return read_offset_checkpoint(self._disk, self._data_directory, name)
        except CorruptSideFile:
            return {}

    def last_clean_offset(self, log: PartitionLog) -> int | None:
        return self._clean_offsets.get(_partition_of(log))

    def filthiest(self, logs: Iterable[PartitionLog], now_ms: int) -> Cleanable | None:
        """The log that needs a pass most; None if there is none."""
        due = [
            candidate
            for log in logs
            if log.config.is_compacted and log.is_usable and _partition_of(log) not in self.uncleanable
            if (candidate := cleanable(log, self.last_clean_offset(log), now_ms)).is_due
        ]
        return max(due, key=lambda candidate: candidate.dirty_ratio, default=None)

    def clean(self, target: Cleanable, now_ms: int) -> Generator[Step, None, CleanResult]:
        """Cleans a log once and updates the checkpoint."""
        log = target.log
        try:
            result = yield from compact(
                target, now_ms, keys_max=self._keys_max, decompressed_max_bytes=self._decompressed_max_bytes
            )
        except UncleanableLog as error:
            self.uncleanable[_partition_of(log)] = error.reason
            raise
        self._note_clean(_partition_of(log), result.first_dirty_offset, is_gapless=_is_gapless(log, result))
        return result

    def truncated(self, log: PartitionLog, offset: int) -> None:
        """A log was truncated at `offset`: later records have not been cleaned."""
        clean_offset = self.last_clean_offset(log)
        if clean_offset is not None and clean_offset > offset:
            self._note_clean(_partition_of(log), offset, is_gapless=False)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Partitions were deleted."""
        was_known = False
        for partition in partitions:
            self.uncleanable.pop(partition, None)
            was_known |= self._clean_offsets.pop(partition, None) is not None
            was_known |= self._gapless_offsets.pop(partition, None) is not None
        if was_known:
            self._write_checkpoints()

    def _note_clean(self, partition: TopicPartition, offset: int, *, is_gapless: bool) -> None:
        self._clean_offsets[partition] = offset
        self._gapless_offsets.pop(partition, None)
        if is_gapless:
            self._gapless_offsets[partition] = offset
        self._write_checkpoints()

    def _write_checkpoints(self) -> None:
        for name, offsets in (
            (GAPLESS_OFFSET_CHECKPOINT, self._gapless_offsets),
            (CLEANER_OFFSET_CHECKPOINT, self._clean_offsets),
        ):
            write_offset_checkpoint(self._disk, self._data_directory, name, offsets)


def _is_gapless(log: PartitionLog, result: CleanResult) -> bool:
    """Whether each segment below the end of a pass begins where the one before it ends."""
    return all(
        segment.closed_end_offset() == following.base_offset
        for segment, following in pairwise(log.segments)
        if log.log_start_offset < following.base_offset <= result.first_dirty_offset
    )


def group_segments(
    segments: Sequence[Segment], end_offset: int, segment_bytes: int, segment_index_bytes: int
) -> Iterator[list[Segment]]:
    """Groups of consecutive segments that fit into one, so that segments do not become ever smaller."""
    group: list[Segment] = []
    size = offsets = times = 0
    for place, segment in enumerate(segments):
        following = segments[place + 1].base_offset if place + 1 < len(segments) else end_offset
        segment_offsets = len(segment.offset_index) * OFFSET_ENTRY_BYTES
        segment_times = len(segment.time_index) * TIME_ENTRY_BYTES
        if group and (
            size + segment.size > segment_bytes
            or offsets + segment_offsets > segment_index_bytes
            or times + segment_times > segment_index_bytes
            or (segment.size and following - 1 - group[0].base_offset > RELATIVE_OFFSET_MAX)
        ):
            yield group
            group = []
            size = offsets = times = 0
        group.append(segment)
        size += segment.size
        offsets += segment_offsets
        times += segment_times
    if group:
        yield group


class _Pass:
    def __init__(self, target: Cleanable, now_ms: int, keys_max: int, decompressed_max_bytes: int) -> None:
        self._log = target.log
        self._first_dirty_offset = target.first_dirty_offset
        self._end_offset = target.first_uncleanable_offset
        self._now_ms = now_ms
        self._decompressed_max_bytes = decompressed_max_bytes
        self._keys = KeyMap(keys_max)
        self._bytes_read = self._bytes_written = 0
        self._slice_records = self._slice_bytes = 0

    def run(self) -> Generator[Step, None, CleanResult]:
        log = self._log
        try:
            segments = [segment for segment in log.segments[:-1] if segment.base_offset < self._end_offset]
            yield from self._learn_keys(segments)
            if self._keys.latest_offset < self._first_dirty_offset:
                return CleanResult(self._first_dirty_offset, 0, self._bytes_read, 0, 0, 0)
            segments = [segment for segment in segments if segment.base_offset <= self._keys.latest_offset]
            transactions = CleanedTransactions()
            batches = BatchFilter(
                self._keys,
                transactions,
                last_records_of_producers(log.producers),
                now_ms=self._now_ms,
                delete_retention_ms=log.config.delete_retention_ms,
                decompressed_max_bytes=self._decompressed_max_bytes,
            )
            groups = list(
                group_segments(segments, self._end_offset, log.config.segment_bytes, log.config.segment_index_bytes)
            )
            for group in groups:
                # Each compacted segment ends where the next begins: so a hole between two segments is always damage.
                batches.begin_segment(_end_of(log, group[-1]))
                yield from self._rewrite(group, batches, transactions)
        except (KafkaError, MalformedMessage) as error:
            if not log.is_usable:
                raise CleaningAborted(f"{log.topic_partition}: {error}") from error
            raise UncleanableLog(log.topic_partition, str(error)) from error
        return CleanResult(
            self._keys.latest_offset + 1,
            len(self._keys),
            self._bytes_read,
            self._bytes_written,
            len(segments),
            len(groups),
        )

    def _learn_keys(self, segments: Sequence[Segment]) -> Iterator[Step]:
        log, keys = self._log, self._keys
        transactions = CleanedTransactions()
        transactions.add_aborted(log.aborted_transactions(self._first_dirty_offset, self._end_offset))
        for place, segment in enumerate(segments):
            following = segments[place + 1].base_offset if place + 1 < len(segments) else self._end_offset
            if following <= self._first_dirty_offset:
                continue
            for found in self._batches_of(segment):
                header = found.header
                if header.is_control:
                    transactions.on_control(header, found.block, found.start)
                elif not transactions.on_data(header) and header.last_offset >= self._first_dirty_offset:
                    payload = payload_of(found.block, header, self._decompressed_max_bytes, found.start)
                    spans = scan_records(payload, header.record_count)
                    if not keys.take(spans, header.base_offset, self._first_dirty_offset):
                        return
                if header.last_offset >= self._first_dirty_offset:
                    keys.reach(header.last_offset)
                if self._slice_is_full(header):
                    yield ()
                    self._check_unchanged(segments)
            keys.reach(following - 1)

    def _rewrite(self, group: list[Segment], batches: BatchFilter, transactions: CleanedTransactions) -> Iterator[Step]:
        log = self._log
        cleaned = Segment.create(log.directory, group[0].base_offset, group[0].created_ms, CLEANED_SUFFIX)
        transactions.record_in(cleaned.aborted)
        try:
            for place, segment in enumerate(group):
                following = group[place + 1].base_offset if place + 1 < len(group) else _end_of(log, segment)
                transactions.add_aborted(log.aborted_transactions(segment.base_offset, following))
                for found in self._batches_of(segment):
                    kept = batches.apply(found.header, found.block, found.start)
                    if kept is not None:
                        self._write(cleaned, kept)
                    if self._slice_is_full(found.header):
                        yield ()
                        self._check_unchanged(group)
            yield (cleaned.file, *(WrittenFile(log.disk, path) for path in cleaned.write_indexes()))
            self._check_unchanged(group)
            log.replace_segments(group, [cleaned])
        except BaseException:
            # A pass that was given up, or whose disk is full, leaves no file behind; a crash does, and recovery
            # removes it. The files of a deleted log no longer exist.
            if not log.is_usable:
                cleaned.retire()
            elif cleaned not in log.segments:
                cleaned.discard()
            raise

    def _write(self, cleaned: Segment, batch: bytes | bytearray | memoryview) -> None:
        header = BatchHeader._make(HEADER.unpack_from(batch))
        size = header.size_bytes
        interval_bytes = self._log.config.index_interval_bytes
        cleaned.append(batch, size, header.last_offset, header.max_timestamp, interval_bytes)
        self._bytes_written += size

    def _batches_of(self, segment: Segment) -> Iterator[FoundBatch]:
        """Every batch; a segment with incomplete or damaged batches is not rewritten."""
        position = 0
        for found in segment.batches():
            if not verify_crc(found.block, found.start, found.header):
                raise MalformedMessage(f"a bad CRC in {segment.log_path} at byte {found.position}")
            yield found
            position = found.position + found.header.size_bytes
        if position != segment.size:
            raise MalformedMessage(f"no batch in {segment.log_path} at byte {position} of {segment.size}")

    def _slice_is_full(self, header: BatchHeader) -> bool:
        self._bytes_read += header.size_bytes
        self._slice_bytes += header.size_bytes
        self._slice_records += header.record_count
        if self._slice_bytes < SLICE_BYTES_MAX and self._slice_records < SLICE_RECORDS_MAX:
            return False
        self._slice_bytes = self._slice_records = 0
        return True

    def _check_unchanged(self, segments: Sequence[Segment]) -> None:
        """Other code has run since the last step."""
        log = self._log
        if not log.is_usable or not set(map(id, segments)) <= set(map(id, log.segments)):
            raise CleaningAborted(f"{log.topic_partition} changed while it was compacted")


def _end_of(log: PartitionLog, segment: Segment) -> int:
    at = log.segments.index(segment)
    return log.segments[at + 1].base_offset


def _partition_of(log: PartitionLog) -> TopicPartition:
    return TopicPartition(log.topic, log.partition)
