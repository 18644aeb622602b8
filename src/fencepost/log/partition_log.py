"""One partition's history: the one write path, reading, watermarks, rolling.

Owns the list of segments and the offsets that divide the log: start, last stable, high watermark, synced, end. They are
distinct, and `log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset` holds at all times. The log
never moves the high watermark up by itself: whoever owns the partition does, when a batch is as durable as promised.
Opening is `log.recovery`, shortening is `log.retention`, time lookup is `log.lookup`, refusals are
`log.validation`. All disk access goes through `ports.Disk`; nothing here syncs on the append path.

A disk that is full refuses one append and leaves no trace. Any other error of the disk, a failed sync above all, fails
the log for good: every later call gets KAFKA_STORAGE_ERROR.
"""

import dataclasses
import errno
from collections.abc import Callable, Sequence
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from fencepost.config import TopicConfig
from fencepost.log import invariants, lookup, reading, recovery, retention
from fencepost.log.leader_epochs import EpochEnd, LeaderEpochs
from fencepost.log.open_transactions import AbortedTransaction
from fencepost.log.producers import Origin, ProducerStateManager, VerificationGuard
from fencepost.log.reading import ReadResult
from fencepost.log.segment import RELATIVE_OFFSET_MAX, SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX, Segment, offset_name
from fencepost.log.side_files import LEADER_EPOCH_CHECKPOINT
from fencepost.log.syncables import CheckpointWrite, DirectoryEntries, Syncable, WrittenFile
from fencepost.log.validation import (
    check_batch,
    check_timestamps,
    needs_opening,
    open_batch,
    refuse_crc,
    refuse_short_batch,
)
from fencepost.ports import Buffer, Disk
from fencepost.wire.batch import (
    ATTRIBUTES_POSITION,
    COMPRESSION_MASK,
    CONTROL_MASK,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    BatchHeader,
    ControlType,
    control_batch,
    iterate_headers,
    stamp,
    verify_crc,
)
from fencepost.wire.errors import ErrorCode, KafkaError

_UNUSUAL_ATTRIBUTES = CONTROL_MASK | TIMESTAMP_TYPE_MASK
_CODEC_MAX = 4
_STAMP = Struct(">qii")
_FULL_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_ROLL_TIMESTAMP = 2**63
_ASK_ROLL_TIMESTAMP = -2
"""Below every timestamp: the segment's first timestamp is not known yet, or is none."""

_unpack_header = HEADER.unpack_from
_pack_stamp = _STAMP.pack_into
_new_tuple = tuple.__new__


@dataclasses.dataclass(frozen=True, slots=True)
class LogLimits:
    """What all logs of a broker share."""

    producer_id_expiration_ms: int = 86_400_000
    decompressed_batch_max_bytes: int = 67_108_864
    transaction_verification_enabled: bool = True


class Appended(NamedTuple):
    first_offset: int
    last_offset: int
    log_append_time_ms: int
    """-1 under CreateTime. Of a duplicate: the original's largest timestamp, as Kafka answers."""
    log_start_offset: int
    duplicate: bool


class PartitionLog:
    __slots__ = (
        "__weakref__",
        "_active",
        "_base_offsets",
        "_dirty",
        "_failure",
        "_first_unstable_offset",
        "_hints",
        "_index_interval_bytes",
        "_indexed",
        "_limits",
        "_max_message_bytes",
        "_opens_batches",
        "_roll_timestamp",
        "_segment_bytes",
        "_segments",
        "_sync_requested_offset",
        "_timestamp_after_max_ms",
        "_timestamp_before_max_ms",
        "_unsaved",
        "config",
        "directory",
        "disk",
        "epochs",
        "high_watermark",
        "leader_epoch",
        "log_end_offset",
        "log_start_offset",
        "on_failure",
        "partition",
        "producers",
        "synced_offset",
        "topic",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        topic: str,
        partition: int,
        topic_id: bytes,
        config: TopicConfig,
        limits: LogLimits,
    ) -> None:
        """Only `open` calls this."""
        self.disk = disk
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.topic_partition = f"{topic}-{partition}"
        self._limits = limits
        self.producers = ProducerStateManager(
            self.topic_partition,
            limits.producer_id_expiration_ms,
            verification_enabled=limits.transaction_verification_enabled,
        )
        self.epochs = LeaderEpochs()
        self.log_start_offset = self.log_end_offset = self.high_watermark = self.synced_offset = 0
        self.leader_epoch = -1
        """Of the newest batch."""
        self._segments: list[Segment] = []
        self._base_offsets: list[int] = []
        self._active: Segment
        self._dirty: dict[str, Syncable] = {}
        self._sync_requested_offset = 0
        self._unsaved = False
        """Whether a clean close has anything to write."""
        self._first_unstable_offset: int | None = None
        self._hints: dict[int, tuple[Segment, int]] = {}
        self._indexed: dict[Segment, None] = {}
        self._failure: OSError | None = None
        self.on_failure: Callable[[OSError], None] = lambda error: None
        """Told once, from the midst of whatever noticed."""
        self._roll_timestamp = _NO_ROLL_TIMESTAMP
        self.update_config(config)

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: str,
        topic: str,
        partition: int,
        topic_id: bytes,
        config: TopicConfig,
        now_ms: int,
        *,
        clean: bool,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        limits: LogLimits | None = None,
        sync: bool = True,
        rewrite: bool = False,
    ) -> "PartitionLog":
        """Open or create the log in `directory` (the partition's own).

        `clean`: the last stop was clean, so files are trusted and only the tail behind the last index entry is looked
        at. Otherwise every batch from the segment of `recovery_point` on is checked, the log is cut at the first bad
        one and what survives is synced. Afterwards `synced_offset` and `high_watermark` are the log end; one that
        replicates lowers its high watermark with `set_high_watermark`. Who opens thousands of logs passes
        `sync=False` and syncs the file system once before anyone may read. After a failed sync the page cache shows
        what the disk may never get: `rewrite` writes everything from the recovery point on anew before it is synced.
        """
        log = cls(disk, directory, topic, partition, topic_id, config, limits or LogLimits())
        recovery.load(
            log,
            now_ms,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            sync=sync,
            rewrite=rewrite,
        )
        return log

    # Settings

    def update_config(self, config: TopicConfig) -> None:
        self.config = config
        self._opens_batches = needs_opening(config)
        self._max_message_bytes = config.max_message_bytes
        self._segment_bytes = config.segment_bytes
        self._index_interval_bytes = config.index_interval_bytes
        self._timestamp_after_max_ms = config.message_timestamp_after_max_ms
        self._timestamp_before_max_ms = config.message_timestamp_before_max_ms
        if self._segments:
            self._roll_timestamp = _ASK_ROLL_TIMESTAMP

    # Offsets

    @property
    def last_stable_offset(self) -> int:
        unstable = self._first_unstable_offset
        if unstable is None or unstable > self.high_watermark:
            return self.high_watermark
        return unstable

    @property
    def first_unstable_offset(self) -> int | None:
        return self._first_unstable_offset

    @property
    def segments(self) -> Sequence[Segment]:
        return self._segments

    @property
    def active_segment(self) -> Segment:
        return self._active

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    @property
    def failure(self) -> OSError | None:
        return self._failure

    def advance_high_watermark(self, offset: int) -> bool:
        """Readers may see everything below `offset`. Never goes back nor beyond the end; whether it moved."""
        if offset > self.log_end_offset:
            offset = self.log_end_offset
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        if self._first_unstable_offset is not None and self.producers.transactions.awaits_high_watermark:
            self._find_first_unstable_offset()
        return True

    def set_high_watermark(self, offset: int) -> None:
        """Where a replica begins, from its checkpoint; may go back."""
        self.high_watermark = max(min(offset, self.log_end_offset), self.log_start_offset)
        self._find_first_unstable_offset()

    def _find_first_unstable_offset(self) -> None:
        self._first_unstable_offset = self.producers.first_unstable_offset(self.high_watermark, self.log_start_offset)

    # Appending

    def lead(self, leader_epoch: int) -> None:
        """This replica writes from here on, in this epoch."""
        self.epochs.begin(leader_epoch, self.log_end_offset)

    def append_as_leader(
        self,
        batch: bytearray | memoryview,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        verification_guard: VerificationGuard | None = None,
    ) -> Appended:
        """Append one batch, stamping it in place (so it must be writable). KafkaError as Kafka would answer.

        A batch already in the log is answered with its original offsets and `duplicate`; nothing is written.
        """
        if self._failure is not None:
            raise self.storage_error()
        if type(batch) is not memoryview:
            batch = memoryview(batch)
        size = len(batch)
        if size < HEADER_BYTES:
            refuse_short_batch(size)
        header: BatchHeader = _new_tuple(BatchHeader, _unpack_header(batch, 0))
        (
            base_offset, batch_length, _, magic, crc, attributes, last_offset_delta, base_timestamp, max_timestamp,
            producer_id, _, base_sequence, record_count,
        ) = header  # fmt: skip
        if (
            batch_length + LOG_OVERHEAD_BYTES != size
            or magic != 2
            or record_count != last_offset_delta + 1
            or record_count <= 0
            or base_offset
            or size > self._max_message_bytes
            or attributes & _UNUSUAL_ATTRIBUTES
            or attributes & COMPRESSION_MASK > _CODEC_MAX
            or (base_sequence < 0 <= producer_id)
        ):
            check_batch(batch, header, origin, self._max_message_bytes, self.topic_partition)
        elif crc32c(batch[ATTRIBUTES_POSITION:]) != crc:
            refuse_crc(batch, header, self.topic_partition)
        if (
            max_timestamp - now_ms > self._timestamp_after_max_ms
            or now_ms - base_timestamp > self._timestamp_before_max_ms
            or attributes & TIMESTAMP_TYPE_MASK
        ):
            check_timestamps(batch, header, now_ms, self.config, self._limits.decompressed_batch_max_bytes)
        log_append_time_ms = -1
        if self._opens_batches or attributes & TIMESTAMP_TYPE_MASK:
            batch, header, log_append_time_ms = self._open_batch(batch, header, origin, now_ms)
            size, max_timestamp, batch_length = len(batch), header.max_timestamp, header.batch_length
        producers = self.producers
        if producer_id >= 0:
            duplicate = producers.check_append(header, origin, verification_guard)
            if duplicate is not None:
                return Appended(
                    duplicate.first_offset, duplicate.last_offset, duplicate.timestamp, self.log_start_offset, True
                )
        first_offset = self.log_end_offset
        last_offset = first_offset + last_offset_delta
        _pack_stamp(batch, 0, first_offset, batch_length, leader_epoch)
        self._write(batch, size, first_offset, last_offset, max_timestamp, now_ms)
        if leader_epoch != self.leader_epoch:
            self._assign_epoch(leader_epoch, first_offset)
        if producer_id >= 0:
            producers.update(header, first_offset, last_offset, max_timestamp)
            if attributes & TRANSACTIONAL_MASK and self._first_unstable_offset is None:
                self._first_unstable_offset = first_offset
        return _new_tuple(Appended, (first_offset, last_offset, log_append_time_ms, self.log_start_offset, False))

    def append_record(self, batch: bytearray, *, leader_epoch: int, now_ms: int) -> int:
        """Append a record that a coordinator of this broker has built for the end of this log; its offset.

        There is nothing to check but its size, and nothing to open unless the topic wants another time in it.
        """
        if self._failure is not None:
            raise self.storage_error()
        offset = self.log_end_offset
        size = len(batch)
        if size > self._max_message_bytes or self.config.message_timestamp_type != "CreateTime":
            stamp(batch, 0, 0, leader_epoch)
            return self.append_as_leader(
                batch, leader_epoch=leader_epoch, now_ms=now_ms, origin=Origin.COORDINATOR
            ).last_offset
        self._write(batch, size, offset, offset, now_ms, now_ms)
        if leader_epoch != self.leader_epoch:
            self._assign_epoch(leader_epoch, offset)
        return offset

    def append_marker(
        self,
        kind: ControlType,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        *,
        transaction_version: int,
        leader_epoch: int,
        now_ms: int,
    ) -> Appended:
        """End a producer's transaction in this partition. KafkaError for a stale producer or coordinator epoch."""
        if self._failure is not None:
            raise self.storage_error()
        self.producers.check_marker(producer_id, producer_epoch, coordinator_epoch, transaction_version)
        offset = self.log_end_offset
        batch = control_batch(kind, coordinator_epoch, producer_id, producer_epoch, now_ms, offset, leader_epoch)
        self._write(batch, len(batch), offset, offset, now_ms, now_ms)
        if leader_epoch != self.leader_epoch:
            self._assign_epoch(leader_epoch, offset)
        completed = self.producers.apply_marker(kind, producer_id, producer_epoch, coordinator_epoch, offset, now_ms)
        if completed is not None and completed.is_aborted:
            aborted = self._active.aborted
            try:
                is_new = aborted.file is None
                aborted.append_completed(completed)
                self.note_dirty(WrittenFile(self.disk, aborted.path))
                if is_new:
                    self.note_new_names()
            except OSError as error:
                # Without its index entry the marker must not stay: readers would be given aborted records.
                self.truncate_to(offset, now_ms)
                raise self._write_error(error) from error
        # What was unstable stays so until the marker is below the high watermark.
        return Appended(offset, offset, -1, self.log_start_offset, False)

    def append_as_follower(self, records: Buffer, now_ms: int) -> int:
        """Append a leader's batches as they are; the new log end. Offsets must follow the log end, holes allowed."""
        if self._failure is not None:
            raise self.storage_error()
        view = memoryview(records)
        for position, header in iterate_headers(view):
            if not verify_crc(view, position, header):
                refuse_crc(view[position:], header, self.topic_partition)
            if header.base_offset < self.log_end_offset:
                raise KafkaError(
                    ErrorCode.INVALID_RECORD,
                    f"a replicated batch at {header.base_offset} is below the log end {self.log_end_offset} "
                    f"of {self.topic_partition}",
                )
            size = header.size_bytes
            batch = view[position : position + size]
            self._write(batch, size, header.base_offset, header.last_offset, header.max_timestamp, now_ms)
            if header.partition_leader_epoch != self.leader_epoch:
                self._assign_epoch(header.partition_leader_epoch, header.base_offset)
            completed = self.producers.replay_batch(view, position, header)
            if completed is not None and completed.is_aborted:
                self._active.aborted.append_completed(completed)
                self.note_dirty(WrittenFile(self.disk, self._active.aborted.path))
                self.note_new_names()
            if header.producer_id >= 0:
                self._find_first_unstable_offset()
        return self.log_end_offset

    def _open_batch(
        self, batch: memoryview, header: BatchHeader, origin: Origin, now_ms: int
    ) -> tuple[memoryview, BatchHeader, int]:
        batch, header = open_batch(
            batch, header, origin, now_ms, self.config, self._limits.decompressed_batch_max_bytes
        )
        if len(batch) > self._max_message_bytes:
            check_batch(batch, header, origin, self._max_message_bytes, self.topic_partition)
        return batch, header, now_ms if self.config.message_timestamp_type == "LogAppendTime" else -1

    def _write(
        self, batch: Buffer, size: int, first_offset: int, last_offset: int, max_timestamp: int, now_ms: int
    ) -> None:
        """Put a stamped batch at the end of the active segment, or of a new one. All or nothing."""
        segment = self._active
        if (
            segment._size + size > self._segment_bytes
            or max_timestamp > self._roll_timestamp
            or last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
            or (
                segment.bytes_since_index_entry > self._index_interval_bytes
                and segment.is_index_full(self.config.segment_index_bytes)
            )
        ) and self._must_roll(size, last_offset, max_timestamp, now_ms):
            segment = self.roll(now_ms, first_offset)
        try:
            position = segment.append(batch, size, last_offset, max_timestamp, self._index_interval_bytes)
        except OSError as error:
            raise self._write_error(error) from error
        if position == 0:
            self._set_roll_timestamp(segment)
        self.log_end_offset = last_offset + 1
        self._unsaved = True

    def _assign_epoch(self, leader_epoch: int, start_offset: int) -> None:
        self.epochs.assign(leader_epoch, start_offset)
        self.leader_epoch = leader_epoch

    # Rolling

    def _must_roll(self, size: int, last_offset: int, max_timestamp: int, now_ms: int) -> bool:
        if size > self._segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"Message batch size is {size} bytes in append to partition {self.topic_partition} which exceeds the "
                f"maximum configured segment size of {self._segment_bytes}.",
            )
        segment = self._active
        if segment.size == 0:
            return last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
        self._set_roll_timestamp(segment)
        first_timestamp = segment.first_timestamp()
        waited_ms = max_timestamp - first_timestamp if first_timestamp >= 0 else now_ms - segment.created_ms
        return (
            segment.size + size > self._segment_bytes
            or waited_ms > self.config.segment_ms
            or last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
            or segment.is_index_full(self.config.segment_index_bytes)
        )

    def _set_roll_timestamp(self, segment: Segment) -> None:
        """Appends compare with one number; without a first timestamp, each has to ask the clock."""
        first_timestamp = segment.first_timestamp()
        self._roll_timestamp = first_timestamp + self.config.segment_ms if first_timestamp >= 0 else _ASK_ROLL_TIMESTAMP

    def roll_if_needed(self, now_ms: int) -> bool:
        """Roll a segment that has no timestamps and has grown old; others roll as records arrive."""
        segment = self._active
        if self._failure is not None or segment.size == 0 or segment.first_timestamp() >= 0:
            return False
        if now_ms - segment.created_ms <= self.config.segment_ms:
            return False
        self.roll(now_ms)
        return True

    def roll(self, now_ms: int, base_offset: int | None = None) -> Segment:
        """Seal the active segment and begin the next. With a full disk nothing changes."""
        if self._failure is not None:
            raise self.storage_error()
        old = self._active
        new_base_offset = self.log_end_offset if base_offset is None else base_offset
        if old.size == 0 and old.base_offset == new_base_offset:
            return old
        try:
            written = old.write_indexes()
            written.append(self.write_snapshot(new_base_offset))
            segment = Segment.create(self.disk, self.directory, new_base_offset, now_ms)
        except OSError as error:
            old.indexes_dirty = True
            raise self._write_error(error) from error
        if old.size == 0:
            self._drop_segment(old)
        else:
            self.note_dirty(old.file, *written)
        # A reader at the old end goes on in the new segment.
        self._hints.pop(self.log_end_offset, None)
        self._hints.pop(new_base_offset, None)
        reading.hold_indexes(self, old)
        self._segments.append(segment)
        self._base_offsets.append(new_base_offset)
        self._activate(segment)
        self.note_new_names()
        return segment

    def _activate(self, segment: Segment) -> None:
        self._active = segment
        self._roll_timestamp = _ASK_ROLL_TIMESTAMP if segment.size else _NO_ROLL_TIMESTAMP

    def _drop_segment(self, segment: Segment) -> None:
        """Take a segment out of the list and remove its files."""
        at = self._segments.index(segment)
        del self._segments[at]
        del self._base_offsets[at]
        self._hints.clear()
        self._indexed.pop(segment, None)
        for suffix in (*SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX):
            self._dirty.pop(segment.path_of(suffix), None)
        segment.delete()
        self.note_new_names()

    def write_snapshot(self, offset: int) -> Syncable:
        """Keep what is known of producers as of `offset`, which is the log end."""
        self.producers.map_end_offset = offset
        path = f"{self.directory}/{offset_name(offset, SNAPSHOT_SUFFIX)}"
        self.disk.write_bytes(path, self.producers.take_snapshot())
        return WrittenFile(self.disk, path)

    # Durability

    def dirty_files(self) -> list[Syncable]:
        """What has to be synced so that everything up to the log end, as it is now, survives a power cut.

        Each call hands over what has become dirty since the last, so a failed sync cannot be made good: call
        `mark_failed`. After success call `mark_synced` with the log end as it was at this call.
        """
        files = list(self._dirty.values())
        self._dirty.clear()
        if self.epochs.dirty:
            self.epochs.dirty = False
            path = f"{self.directory}/{LEADER_EPOCH_CHECKPOINT}"
            files.append(CheckpointWrite(self.disk, path, self.epochs.encode()))
        end = self.log_end_offset
        if end > self._sync_requested_offset:
            self._sync_requested_offset = end
            files.append(self._active.file)
            reading.remember(self, end, self._active, self._active.size)
        return files

    @property
    def is_dirty(self) -> bool:
        return self.log_end_offset > self._sync_requested_offset or bool(self._dirty) or self.epochs.dirty

    def mark_synced(self, offset: int) -> None:
        """Everything below `offset` is durable. Not to be called for a sync that a truncation has overtaken."""
        self.synced_offset = max(self.synced_offset, min(offset, self.log_end_offset))

    def mark_failed(self, error: OSError) -> None:
        """The disk failed this log; nothing more is read or written until it is opened anew."""
        if self._failure is None:
            self._failure = error
            self.on_failure(error)

    def storage_error(self) -> KafkaError:
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log {self.topic_partition} is offline: {self._failure}")

    def _write_error(self, error: OSError) -> KafkaError:
        if error.errno in _FULL_DISK:
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"no room to append to {self.topic_partition}: {error}")
        self.mark_failed(error)
        return self.storage_error()

    def note_dirty(self, *files: Syncable) -> None:
        for file in files:
            self._dirty[file.path] = file

    def note_new_names(self) -> None:
        """Names in the directory have changed: nothing behind a new one counts as durable before the directory is."""
        if self.directory not in self._dirty:
            self._dirty[self.directory] = DirectoryEntries(self.disk, self.directory)

    def flush_side_files(self) -> None:
        """Bring the active segment's index files up to date, for tools that read a live directory. Not synced."""
        if self._failure is None and self._active.indexes_dirty:
            self.note_dirty(*self._active.write_indexes())
            self.note_new_names()

    def flush(self, *, sync: bool = True) -> None:
        """Sync everything here and now. Without `sync`, only write what waited for one. OSError fails the log."""
        end_offset = self.log_end_offset
        try:
            for file in self.dirty_files():
                if sync:
                    file.sync()
                elif isinstance(file, CheckpointWrite):
                    file.write()
        except OSError as error:
            self.mark_failed(error)
            raise
        self.mark_synced(end_offset)

    def close(self, now_ms: int) -> None:
        """Stop cleanly: everything written and synced, so that opening needs no scan. Raises OSError."""
        try:
            for file in self.write_out():
                file.sync()
        except OSError as error:
            self.mark_failed(error)
            raise
        self.written_out()

    def write_out(self) -> list[Syncable]:
        """The first half of a clean stop: write what opening will want to find; what has to be synced now."""
        if self._failure is not None:
            return []
        if self._unsaved:
            recovery.remove_stray_snapshots(self)
            self.note_dirty(*self._active.write_indexes(), self.write_snapshot(self.log_end_offset))
            self.note_new_names()
        return self.dirty_files()

    def written_out(self) -> None:
        """The second half: all of that is durable."""
        if self._failure is None:
            self.mark_synced(self.log_end_offset)
            self._unsaved = False
        for segment in self._segments:
            segment.close()

    # Reading

    def read(
        self, offset: int, max_bytes: int, *, upper_bound: int | None = None, at_least_one_batch: bool = True
    ) -> ReadResult:
        """Whole batches from the one that holds `offset` on, ending before `upper_bound` (default: the log end).

        `upper_bound` is a high watermark or last stable offset, so always a batch boundary. Nothing is returned when
        the first batch exceeds `max_bytes`, unless `at_least_one_batch`. Ends at the end of a segment.
        """
        return reading.read(self, offset, max_bytes, upper_bound, at_least_one_batch)

    def aborted_transactions(self, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
        """What a reader of committed records in [from, to) must skip, in the order of their markers."""
        return reading.aborted_transactions(self, from_offset, to_offset)

    def packed_aborted_transactions(self, from_offset: int, to_offset: int) -> bytearray:
        """The same as the wire has it: producer id and first offset of each."""
        return reading.packed_aborted_transactions(self, from_offset, to_offset)

    # Looking up

    def offset_for_timestamp(self, timestamp: int) -> lookup.TimestampOffset | None:
        """The first record at or after a timestamp. The caller compares it with what its reader may see."""
        return lookup.offset_for_timestamp(self, timestamp, self._limits.decompressed_batch_max_bytes)

    def offset_of_max_timestamp(self) -> lookup.TimestampOffset | None:
        """The first record with the largest timestamp; None for an empty log or one without timestamps."""
        return lookup.offset_of_max_timestamp(self, self._limits.decompressed_batch_max_bytes)

    def end_offset_for_epoch(self, leader_epoch: int) -> EpochEnd:
        return self.epochs.end_offset_for(leader_epoch, self.log_end_offset)

    # Shortening

    def delete_records_before(self, offset: int) -> int:
        """DeleteRecords: raise the log start, -1 for the high watermark; the new log start (low watermark)."""
        return retention.delete_records_before(self, offset)

    def apply_retention(self, now_ms: int) -> int:
        """Delete segments that are too old, too many bytes or below the log start; how many."""
        return retention.apply_retention(self, now_ms)

    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Cut everything from the batch that holds `offset` on."""
        retention.truncate_to(self, offset, now_ms)

    def truncate_fully_and_start_at(self, offset: int, now_ms: int) -> None:
        """Empty the log; the next batch gets `offset`."""
        retention.truncate_fully_and_start_at(self, offset, now_ms)

    def replace_segments(self, old: Sequence[Segment], cleaned: Sequence[Segment]) -> None:
        """Put compacted segments in the place of those they were made from."""
        retention.replace_segments(self, old, cleaned)

    # For tests

    def check_invariants(self) -> None:
        """AssertionError if anything that must always hold does not."""
        invariants.check(self)

    def __repr__(self) -> str:
        return (
            f"PartitionLog({self.topic_partition}, start {self.log_start_offset}, stable {self.last_stable_offset}, "
            f"high watermark {self.high_watermark}, synced {self.synced_offset}, end {self.log_end_offset}, "
            f"epoch {self.leader_epoch}, {len(self._segments)} segments)"
        )
