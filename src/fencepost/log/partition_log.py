"""The log of one partition: appending, reading, watermarks, truncation and deletion of records, opening and closing.

Owns the offsets that divide the log: start, last stable, high watermark, end. They are distinct, and `log_start_offset
<= last_stable_offset <= high_watermark <= log_end_offset` holds at all times. The log never raises the high watermark
itself: the owner of the partition does, when a batch is as durable as promised.

It has four parts with separate states: `segments` (files and the positions of offsets in them), `producers` (epochs,
sequences, open transactions), `epochs` (leader epochs), `unsynced` (what a power failure could still lose). Opening is
`log.recovery`, time lookup is `log.lookup`, refusals of batches are `log.validation`. All disk access goes through
`ports.Disk`; nothing here syncs on the append path.

A full disk only fails the current append, without side effects. Any other disk error, in particular a failed sync,
fails the log permanently: every later call raises KAFKA_STORAGE_ERROR. A log whose topic is deleted is retired: every
later call raises LogRetired, and pending work for it ends without touching a file.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from fencepost.config import TopicConfig
from fencepost.log import lookup, recovery
from fencepost.log.directory import LogDirectory, LogRetired
from fencepost.log.file_names import SNAPSHOT_SUFFIX, TRANSACTION_CHECKSUM_SUFFIX
from fencepost.log.indexes import RELATIVE_OFFSET_MAX, TIME_ENTRY_BYTES
from fencepost.log.leader_epochs import EpochEnd, LeaderEpochs
from fencepost.log.open_transactions import (
    AbortedTransaction,
    AbortedTransactions,
    CompletedTransaction,
    CorruptTransactionIndex,
)
from fencepost.log.producers import Marker, Origin, ProducerStateManager, VerificationGuard
from fencepost.log.recovery import Checkpoints, LogLoader
from fencepost.log.segment import Segment
from fencepost.log.segments import EMPTY_RECORDS, ReadResult, Segments
from fencepost.log.side_files import LEADER_EPOCH_CHECKPOINT
from fencepost.log.unsynced import SyncRequest, Unsynced, WrittenFile
from fencepost.log.validation import (
    check_batch,
    check_timestamps,
    needs_opening,
    open_batch,
    refuse_crc,
    refuse_short_batch,
)
from fencepost.ports import FULL_DISK, NO_DESCRIPTORS, Buffer, Disk, Syncable
from fencepost.wire.batch import (
    ATTRIBUTES_POSITION,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MARKER_BYTES,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    BatchHeader,
    ControlType,
    control_batch,
    iterate_headers,
    read_header,
    stamp,
    verify_crc,
)
from fencepost.wire.errors import ErrorCode, KafkaError

__all__ = ["Appended", "Checkpoints", "LogLimits", "PartitionLog", "ReadResult"]

HIGH_WATERMARK = -1
"""The offset in DeleteRecords that means the high watermark."""
_CODEC_MAX = 4
_USUAL_ATTRIBUTES = frozenset({codec | kind for codec in range(_CODEC_MAX + 1) for kind in (0, TRANSACTIONAL_MASK)})
_NO_ROLL_TIMESTAMP = 2**63
_ASK_ROLL_TIMESTAMP = -2
"""Below every timestamp: the first timestamp of the segment is unknown or missing."""
_TEMPORARY_SUFFIX = ".tmp"

_pack_stamp = Struct(">qii").pack_into
_new_tuple = tuple.__new__

Refusals = list[KafkaError | None]
"""For each marker: why it was not written, or None."""


def _nothing() -> None: ...


@dataclass(frozen=True, slots=True)
class LogLimits:
    """Limits shared by all logs of a broker."""

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
        "_first_unstable_offset",
        "_index_interval_bytes",
        "_is_closed_to_calls",
        "_is_unsaved",
        "_limits",
        "_max_message_bytes",
        "_on_failure",
        "_on_roll",
        "_opens_batches",
        "_roll_timestamp",
        "_segment_bytes",
        "_timestamp_after_max_ms",
        "_timestamp_before_max_ms",
        "config",
        "cuts",
        "directory",
        "disk",
        "epochs",
        "failure",
        "high_watermark",
        "leader_epoch",
        "log_end_offset",
        "log_start_offset",
        "partition",
        "producers",
        "segments",
        "topic",
        "topic_id",
        "topic_partition",
        "unsynced",
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
        """Only `open` and `offline` call this."""
        self.disk = disk
        self.directory = LogDirectory(disk, directory)
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.topic_partition = f"{topic}-{partition}"
        self._limits = limits
        self.unsynced = Unsynced(self.directory)
        self.segments = Segments(self.directory, self.unsynced)
        self.producers = self._new_producers()
        self.epochs = LeaderEpochs()
        self.log_start_offset = self.high_watermark = self.log_end_offset = 0
        self.leader_epoch = -1
        """Of the newest batch."""
        self._first_unstable_offset: int | None = None
        self._is_unsaved = False
        """Whether a clean close has anything to write."""
        self.cuts: tuple[str, ...] = ()
        """What recovery cut off, except for a torn end."""
        self.failure: OSError | None = None
        """The disk error that failed this log, if any."""
        self._is_closed_to_calls = False
        """Failed or retired: every call raises."""
        self._on_failure: Callable[[OSError], None] = lambda error: None
        self._on_roll: Callable[[], None] = _nothing
        self._roll_timestamp = _NO_ROLL_TIMESTAMP
        self.update_config(config)

    def _new_producers(self) -> ProducerStateManager:
        return ProducerStateManager(
            self.topic_partition,
            self._limits.producer_id_expiration_ms,
            verification_enabled=self._limits.transaction_verification_enabled,
        )

    def report_to(self, on_failure: Callable[[OSError], None], on_roll: Callable[[], None]) -> None:
        """Who hears of a disk that fails, and of a segment that is full."""
        self._on_failure = on_failure
        self._on_roll = on_roll

    # Opening and closing

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
        checkpoints: Checkpoints,
        *,
        limits: LogLimits | None = None,
        rewrite: bool = False,
    ) -> "PartitionLog":
        """Open or create the log in `directory` (the partition's own). Raises DamagedLog.

        After a clean stop files are trusted. Otherwise every batch from the segment of the recovery point on is
        checked, the log is cut at the first bad one and what survives is synced. Afterwards the synced offset and the
        high watermark are the log end; one that replicates lowers its high watermark with `set_high_watermark`. After a
        failed sync the page cache shows what the disk may never get: `rewrite` writes everything from the recovery
        point on anew before it is synced.
        """
        log = cls(disk, directory, topic, partition, topic_id, config, limits or LogLimits())
        loader = LogLoader(
            log.directory,
            log.segments,
            log.producers,
            log.unsynced,
            topic_id,
            checkpoints,
            now_ms,
            config.index_interval_bytes,
            rewrite,
        )
        loader.load()
        log._adopt(loader, checkpoints.recovery_point or 0, is_rewritten=rewrite)
        return log

    def _adopt(self, loader: LogLoader, recovery_point: int, *, is_rewritten: bool) -> None:
        self.epochs = loader.epochs
        self.cuts = tuple(loader.cuts)
        self.log_start_offset = loader.log_start_offset
        self.log_end_offset = loader.log_end_offset
        self.leader_epoch = self.epochs.latest
        self._is_unsaved = loader.is_recovered
        self._set_active(self.segments.active)
        if loader.unindexed:
            self._rescan_aborted(loader.unindexed)
            for segment in loader.unindexed:
                segment.rebuild_indexes()
        if not loader.is_recovered:
            self.unsynced.start_at(self.log_end_offset)
            self.aborted_index_of(self.segments.active)
        elif self.log_end_offset > recovery_point or is_rewritten:
            self.flush()
        else:
            self.unsynced.start_at(self.log_end_offset)
        self._delete_below_log_start()
        self.high_watermark = self.log_end_offset
        if not self.producers.transactions.is_empty:
            self._find_first_unstable_offset()

    @classmethod
    def offline(
        cls,
        disk: Disk,
        directory: str,
        topic: str,
        partition: int,
        topic_id: bytes,
        config: TopicConfig,
        limits: LogLimits,
        reason: OSError,
    ) -> "PartitionLog":
        """A log with unusable files: refuses every call and leaves its files unchanged."""
        log = cls(disk, directory, topic, partition, topic_id, config, limits)
        log.mark_failed(reason)
        return log

    def retire(self) -> None:
        """The topic was deleted: from now on every call raises, and pending work does not touch its files.

        To be called before the directory is renamed or removed.
        """
        self._is_closed_to_calls = True
        self.segments.retire()
        self.directory.retire()

    @property
    def is_usable(self) -> bool:
        """Neither failed nor retired."""
        return not self._is_closed_to_calls

    def mark_failed(self, error: OSError) -> None:
        """Called after a disk error: nothing more is read or written until the log is opened again."""
        if not self._is_closed_to_calls:
            self._is_closed_to_calls = True
            self.failure = error
            self._on_failure(error)

    def refusal(self) -> KafkaError:
        """The error of every call after the log has failed or is retired."""
        if self.directory.is_retired:
            return LogRetired(str(self.directory))
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log {self.topic_partition} is offline: {self.failure}")

    def _check_usable(self) -> None:
        if self._is_closed_to_calls:
            raise self.refusal()

    def _write_error(self, error: OSError) -> KafkaError:
        if error.errno in FULL_DISK:
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"no room to append to {self.topic_partition}: {error}")
        self.mark_failed(error)
        return self.refusal()

    def close(self) -> None:
        """Closes cleanly: writes and syncs everything, so that opening needs no scan. Raises OSError."""
        try:
            for file in self.write_out():
                file.sync()
        except OSError as error:
            self.mark_failed(error)
            raise
        self.written_out()

    def write_out(self) -> tuple[Syncable, ...]:
        """First half of a clean stop: writes what opening needs. Returns what has to be synced."""
        if self._is_closed_to_calls:
            return ()
        assert not self.unsynced.in_flight, f"{self.topic_partition} is closed while it is being synced"
        if self._is_unsaved:
            # Snapshots at the base of a segment stay; the one of the last clean stop has done its duty.
            recovery.remove_snapshots(self.directory, kept=frozenset(self.segments.base_offsets))
            self._note_indexes(self.segments.active)
            self._write_snapshot(self.log_end_offset)
            self.unsynced.note_names()
        request = self.take_unsynced()
        assert request is not None
        return request.files

    def written_out(self) -> None:
        """Second half of a clean stop, after everything was synced."""
        if not self._is_closed_to_calls:
            self.unsynced.start_at(self.log_end_offset)
            self._is_unsaved = False
        self.segments.close()

    # Settings

    def update_config(self, config: TopicConfig) -> None:
        self.config = config
        self._segment_bytes = config.segment_bytes
        self._index_interval_bytes = config.index_interval_bytes
        self._opens_batches = needs_opening(config)
        self._max_message_bytes = config.max_message_bytes
        self._timestamp_after_max_ms = config.message_timestamp_after_max_ms
        self._timestamp_before_max_ms = config.message_timestamp_before_max_ms
        if self.segments:
            self._roll_timestamp = _ASK_ROLL_TIMESTAMP

    # Offsets

    @property
    def synced_offset(self) -> int:
        """Everything below it survives a power failure."""
        return self.unsynced.synced_offset

    @property
    def last_stable_offset(self) -> int:
        unstable = self._first_unstable_offset
        if unstable is None or unstable > self.high_watermark:
            return self.high_watermark
        return unstable

    @property
    def first_unstable_offset(self) -> int | None:
        return self._first_unstable_offset

    def advance_high_watermark(self, offset: int) -> bool:
        """Makes everything below `offset` visible to readers. Never goes back or beyond the end. Returns whether it
        moved."""
        if offset > self.log_end_offset:
            offset = self.log_end_offset
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        if self._first_unstable_offset is not None and self.producers.transactions.awaits_high_watermark:
            self._find_first_unstable_offset()
        return True

    def set_high_watermark(self, offset: int) -> None:
        """Sets the high watermark of a replica from its checkpoint. May go back."""
        self.high_watermark = max(min(offset, self.log_end_offset), self.log_start_offset)
        self._find_first_unstable_offset()

    def _find_first_unstable_offset(self) -> None:
        self._first_unstable_offset = self.producers.first_unstable_offset(self.high_watermark, self.log_start_offset)

    # Appending

    def lead(self, leader_epoch: int) -> None:
        """This replica becomes the leader in this epoch."""
        self.epochs.begin(leader_epoch, self.log_end_offset)

    def append_as_leader(
        self,
        batch: Buffer,
        leader_epoch: int,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        verification_guard: VerificationGuard | None = None,
        header: BatchHeader | None = None,
    ) -> Appended:
        """Append one batch, stamping it in place (so it must be writable). KafkaError as Kafka would answer.

        `header` is the batch's own, which the caller has read already.
        A batch already in the log is answered with its original offsets and `duplicate`; nothing is written.
        """
        if self._is_closed_to_calls:
            raise self.refusal()
        if type(batch) is not memoryview:
            batch = memoryview(batch)
        size = len(batch)
        if header is None:
            if size < HEADER_BYTES:
                refuse_short_batch(size)
            header = read_header(batch)
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
            or attributes not in _USUAL_ATTRIBUTES
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
        self._write(batch, size, first_offset, last_offset, max_timestamp, leader_epoch, now_ms)
        if producer_id >= 0:
            producers.update(header, first_offset, last_offset, max_timestamp)
            if attributes & TRANSACTIONAL_MASK and self._first_unstable_offset is None:
                self._first_unstable_offset = first_offset
        return _new_tuple(Appended, (first_offset, last_offset, log_append_time_ms, self.log_start_offset, False))

    def _open_batch(
        self, batch: memoryview, header: BatchHeader, origin: Origin, now_ms: int
    ) -> tuple[memoryview, BatchHeader, int]:
        batch, header = open_batch(
            batch, header, origin, now_ms, self.config, self._limits.decompressed_batch_max_bytes
        )
        if len(batch) > self._max_message_bytes:
            check_batch(batch, header, origin, self._max_message_bytes, self.topic_partition)
        return batch, header, now_ms if self.config.message_timestamp_type == "LogAppendTime" else -1

    def append_record(self, batch: bytearray, *, leader_epoch: int, now_ms: int) -> int:
        """Append a record that a coordinator of this broker has built for the end of this log; its offset.

        Only its size is checked, and it is opened only if the topic requires LogAppendTime.
        """
        if self._is_closed_to_calls:
            raise self.refusal()
        offset = self.log_end_offset
        size = len(batch)
        if size > self._max_message_bytes or self.config.message_timestamp_type != "CreateTime":
            stamp(batch, 0, 0, leader_epoch)
            return self.append_as_leader(
                batch, leader_epoch=leader_epoch, now_ms=now_ms, origin=Origin.COORDINATOR
            ).last_offset
        self._write(batch, size, offset, offset, now_ms, leader_epoch, now_ms)
        return offset

    def append_as_follower(self, records: Buffer, now_ms: int) -> int:
        """Append a leader's batches as they are; the new log end. Offsets must follow the log end, holes allowed."""
        self._check_usable()
        view = memoryview(records)
        for position, header in iterate_headers(view):
            if not verify_crc(view, position, header):
                refuse_crc(view[position:], header, self.topic_partition)
            if header.base_offset < self.log_end_offset:
                if self.log_start_offset != self.log_end_offset or header.last_offset < self.log_end_offset:
                    raise KafkaError(
                        ErrorCode.INVALID_RECORD,
                        f"a replicated batch at {header.base_offset} is below the log end {self.log_end_offset} "
                        f"of {self.topic_partition}",
                    )
                # The leader's log starts within this batch, and this log is empty: begin with the batch.
                self.truncate_fully_and_start_at(header.base_offset, now_ms)
            size = header.size_bytes
            batch = view[position : position + size]
            self._write(
                batch,
                size,
                header.base_offset,
                header.last_offset,
                header.max_timestamp,
                header.partition_leader_epoch,
                now_ms,
            )
            completed = self.producers.replay_batch(view, position, header)
            if completed is not None and completed.is_aborted:
                self._note_aborted(completed)
            if header.producer_id >= 0:
                self._find_first_unstable_offset()
        return self.log_end_offset

    def append_markers(self, markers: Sequence[Marker], *, leader_epoch: int, now_ms: int) -> Refusals:
        """Ends transactions in this partition. Returns why markers were refused; the others are written.

        Records stay unstable until the marker is below the high watermark. Consecutive commits are written together.
        """
        refusals: Refusals = []
        for is_commit, run in groupby(markers, lambda marker: marker.is_commit):
            group = list(run)
            if is_commit and len(group) > 1 and self._fit_together(group, now_ms):
                refusals += self._append_commits(group, leader_epoch, now_ms)
            else:
                refusals += [self._append_marker(marker, leader_epoch, now_ms) for marker in group]
        return refusals

    def _append_marker(self, marker: Marker, leader_epoch: int, now_ms: int) -> KafkaError | None:
        try:
            self._check_usable()
            self.producers.check_marker(marker)
            kind = ControlType.COMMIT if marker.is_commit else ControlType.ABORT
            identity = marker.producer_id, marker.producer_epoch
            offset = self.log_end_offset
            batch = control_batch(kind, marker.coordinator_epoch, *identity, now_ms, offset, leader_epoch)
            self._write(batch, len(batch), offset, offset, now_ms, leader_epoch, now_ms)
            completed = self.producers.apply_marker(kind, *identity, marker.coordinator_epoch, offset, now_ms)
            if completed is not None and completed.is_aborted:
                try:
                    self._note_aborted(completed)
                except OSError as error:
                    # Without its index entry the marker must not stay: readers would be given aborted records.
                    self.truncate_to(offset, now_ms)
                    raise self._write_error(error) from error
        except KafkaError as refusal:
            return refusal
        return None

    def _fit_together(self, markers: Sequence[Marker], now_ms: int) -> bool:
        """Whether none decides about another, and no new segment can begin among them."""
        if self._is_closed_to_calls or len({marker.producer_id for marker in markers}) != len(markers):
            return False
        segment, count = self.segments.active, len(markers)
        return (
            segment.size > 0
            and segment.size + count * MARKER_BYTES <= self._segment_bytes
            and now_ms <= self._roll_timestamp
            and self.log_end_offset + count - segment.base_offset <= RELATIVE_OFFSET_MAX
            and not segment.is_index_full(self.config.segment_index_bytes - count * TIME_ENTRY_BYTES)
        )

    def _append_commits(self, markers: Sequence[Marker], leader_epoch: int, now_ms: int) -> Refusals:
        refusals: Refusals = []
        accepted: list[Marker] = []
        for marker in markers:
            try:
                self.producers.check_marker(marker)
            except KafkaError as refusal:
                refusals.append(refusal)
            else:
                refusals.append(None)
                accepted.append(marker)
        if not accepted:
            return refusals
        first_offset = self.log_end_offset
        batches = [
            control_batch(
                ControlType.COMMIT,
                marker.coordinator_epoch,
                marker.producer_id,
                marker.producer_epoch,
                now_ms,
                offset,
                leader_epoch,
            )
            for offset, marker in enumerate(accepted, first_offset)
        ]
        try:
            self.segments.active.append_all(batches, MARKER_BYTES, first_offset, now_ms, self._index_interval_bytes)
        except OSError as error:
            failed = self._write_error(error)
            return [refusal or failed for refusal in refusals]
        self._written(first_offset, first_offset + len(batches), leader_epoch)
        self.producers.apply_commits(accepted, first_offset, now_ms)
        return refusals

    def _note_aborted(self, completed: CompletedTransaction) -> None:
        """Raises OSError with nothing changed."""
        aborted = self.segments.active.aborted
        is_new = aborted.file is None
        aborted.append_completed(completed)
        self.unsynced.note_written(aborted.path)
        if is_new:
            self.unsynced.note_names()

    def _write(
        self,
        batch: Buffer,
        size: int,
        first_offset: int,
        last_offset: int,
        max_timestamp: int,
        leader_epoch: int,
        now_ms: int,
    ) -> None:
        """Writes a stamped batch at the end of the active segment, or of a new one. All or nothing."""
        segment = self.segments.active
        if (
            segment.size + size > self._segment_bytes
            or max_timestamp > self._roll_timestamp
            or last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
            or (
                segment.bytes_since_index_entry > self._index_interval_bytes
                and segment.is_index_full(self.config.segment_index_bytes)
            )
        ) and self._must_roll(size, last_offset, max_timestamp, now_ms):
            # Where a hole lies between two batches of a leader, it is inside the segment, so that each begins where the
            # one before it ends.
            is_near = last_offset - self.log_end_offset <= RELATIVE_OFFSET_MAX
            segment = self.roll(now_ms, self.log_end_offset if is_near else first_offset)
        try:
            position = segment.append(batch, size, last_offset, max_timestamp, self._index_interval_bytes)
        except OSError as error:
            raise self._write_error(error) from error
        if position == 0:
            self._set_roll_timestamp(segment)
        self.log_end_offset = last_offset + 1
        self._is_unsaved = True
        if leader_epoch != self.leader_epoch:
            self.epochs.assign(leader_epoch, first_offset)
            self.leader_epoch = leader_epoch

    def _written(self, first_offset: int, end_offset: int, leader_epoch: int) -> None:
        self.log_end_offset = end_offset
        self._is_unsaved = True
        if leader_epoch != self.leader_epoch:
            self.epochs.assign(leader_epoch, first_offset)
            self.leader_epoch = leader_epoch

    # Rolling

    def _must_roll(self, size: int, last_offset: int, max_timestamp: int, now_ms: int) -> bool:
        if size > self._segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"Message batch size is {size} bytes in append to partition {self.topic_partition} which exceeds the "
                f"maximum configured segment size of {self._segment_bytes}.",
            )
        segment = self.segments.active
        if segment.size == 0:
            return last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
        self._set_roll_timestamp(segment)
        first_timestamp = segment.first_timestamp()
        waited_ms = max_timestamp - first_timestamp if first_timestamp >= 0 else now_ms - segment.created_ms
        return (
            segment.size + size > self._segment_bytes
            or waited_ms > self._age_max_ms(segment)
            or last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
            or segment.is_index_full(self.config.segment_index_bytes)
        )

    def _set_roll_timestamp(self, segment: Segment) -> None:
        """Precomputes when to roll, so that appends compare with one number; without a first timestamp each reads the
        clock."""
        first_timestamp = segment.first_timestamp()
        age_max_ms = self._age_max_ms(segment)
        self._roll_timestamp = first_timestamp + age_max_ms if first_timestamp >= 0 else _ASK_ROLL_TIMESTAMP

    def _age_max_ms(self, segment: Segment) -> int:
        """segment.ms less the segment's own jitter, which is the same after a restart."""
        config = self.config
        if not config.segment_jitter_ms:
            return config.segment_ms
        jitter = crc32c(b"%s %d %d" % (self.topic_id, self.partition, segment.base_offset))
        return config.segment_ms - jitter % min(config.segment_jitter_ms, config.segment_ms)

    def _set_active(self, segment: Segment) -> None:
        self._roll_timestamp = _ASK_ROLL_TIMESTAMP if segment.size else _NO_ROLL_TIMESTAMP

    def roll_if_needed(self, now_ms: int) -> bool:
        """Roll a segment that has no timestamps and has grown old; others roll as records arrive."""
        self._check_usable()
        segment = self.segments.active
        if segment.size == 0 or segment.first_timestamp() >= 0:
            return False
        if now_ms - segment.created_ms <= self._age_max_ms(segment):
            return False
        self.roll(now_ms)
        return True

    def roll(self, now_ms: int, base_offset: int | None = None) -> Segment:
        """Seals the active segment and begins the next. Changes nothing if the disk is full."""
        self._check_usable()
        old = self.segments.active
        new_base_offset = self.log_end_offset if base_offset is None else base_offset
        if old.size == 0 and old.base_offset == new_base_offset:
            return old
        try:
            written = old.write_indexes()
            self._write_snapshot(new_base_offset)
            segment = self.segments.begin(new_base_offset, now_ms)
        except OSError as error:
            old.note_indexes_lost()
            raise self._write_error(error) from error
        if old.size == 0:
            self.segments.drop(old)
        else:
            self.unsynced.note(old.log_path, old.file)
            for path in written:
                self.unsynced.note_written(path)
        self.segments.seal(old, self.log_end_offset)
        self._set_active(segment)
        self._on_roll()
        return segment

    def _write_snapshot(self, offset: int) -> None:
        """Keep what is known of producers as of `offset`, which is the log end."""
        self.producers.reach(offset)
        path = self.directory.path_at(offset, SNAPSHOT_SUFFIX)
        self.disk.write_bytes(path, self.producers.take_snapshot())
        self.unsynced.note_written(path)

    def _note_indexes(self, segment: Segment) -> None:
        for path in segment.write_indexes():
            self.unsynced.note_written(path)

    # Reading

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        upper_bound: int | None = None,
        at_least_one_batch: bool = True,
        waits_for_disk: bool = True,
    ) -> ReadResult:
        """Whole batches from the one that holds `offset` on, ending before `upper_bound` (default: the log end).

        `upper_bound` is a high watermark or last stable offset, so always a batch boundary. Nothing is returned when
        the first batch exceeds `max_bytes`, unless `at_least_one_batch`. Ends at the end of a segment. Raises
        NotInMemory instead of waiting for the disk for long, unless `waits_for_disk`.
        """
        if self._is_closed_to_calls:
            raise self.refusal()
        log_end_offset = self.log_end_offset
        if not self.log_start_offset <= offset <= log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} of {self.topic_partition} is not between the log start {self.log_start_offset} and "
                f"the log end {log_end_offset}",
            )
        if upper_bound is None or upper_bound > log_end_offset:
            upper_bound = log_end_offset
        if offset >= upper_bound:
            return ReadResult(EMPTY_RECORDS, offset)
        try:
            return self.segments.read(
                offset, max_bytes, upper_bound, log_end_offset, at_least_one_batch, waits_for_disk
            )
        except OSError as error:
            if error.errno in NO_DESCRIPTORS:
                reason = f"{self.topic_partition} cannot be read now: {error}"
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, reason) from error
            self.mark_failed(error)
            raise self.refusal() from error

    def aborted_transactions(self, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions that a read_committed consumer of [from, to) must skip, in the order of their
        markers."""
        self._check_usable()
        aborted: list[AbortedTransaction] = []
        for segment in self.segments.from_offset(from_offset):
            found, complete = self.aborted_index_of(segment).collect(from_offset, to_offset)
            aborted += found
            if complete:
                break
        return aborted

    def packed_aborted_transactions(self, from_offset: int, to_offset: int) -> bytearray:
        """The same as the wire has it: producer id and first offset of each."""
        packed = bytearray()
        if to_offset > from_offset:
            for segment in self.segments.from_offset(from_offset):
                if self.aborted_index_of(segment).pack(from_offset, to_offset, packed):
                    break
        return packed

    def aborted_index_of(self, segment: Segment) -> AbortedTransactions:
        """A segment's index of aborted transactions, checked when it is first loaded, and rebuilt if it is damaged."""
        aborted = segment.aborted
        if not aborted.is_loaded:
            try:
                aborted.check(segment.base_offset)
                is_good = self._stored_checksum(segment) in (None, aborted.checksum())
            except CorruptTransactionIndex:
                is_good = False
            if not is_good:
                self._rescan_aborted([segment])
        return aborted

    def _rescan_aborted(self, segments: Sequence[Segment]) -> None:
        found = recovery.rescan_aborted(
            self.directory, self.segments, segments, self._new_producers(), self.log_start_offset
        )
        for segment, transactions in found.items():
            segment.aborted.replace(transactions)

    def _stored_checksum(self, segment: Segment) -> bytes | None:
        """None where the segment was sealed by a broker that keeps none, or was not sealed."""
        try:
            return self.disk.read_bytes(segment.path_of(TRANSACTION_CHECKSUM_SUFFIX))
        except FileNotFoundError:
            return None

    # Looking up

    @property
    def size_bytes(self) -> int:
        return self.segments.size_bytes

    def offset_for_timestamp(self, timestamp: int) -> lookup.TimestampOffset | None:
        """The first record at or after a timestamp. The caller compares it with what its reader may see."""
        self._check_usable()
        return lookup.offset_for_timestamp(
            self.segments, self.log_start_offset, timestamp, self._limits.decompressed_batch_max_bytes
        )

    def offset_of_max_timestamp(self) -> lookup.TimestampOffset | None:
        """The first record with the largest timestamp; None for an empty log or one without timestamps."""
        self._check_usable()
        return lookup.offset_of_max_timestamp(self.segments, self._limits.decompressed_batch_max_bytes)

    def end_offset_for_epoch(self, leader_epoch: int) -> EpochEnd:
        return self.epochs.end_offset_for(leader_epoch, self.log_end_offset)

    # Shortening. Never touches records above the high watermark, but for truncation, which is how a replica gives up
    # what its leader does not have.

    def delete_records_before(self, offset: int) -> int:
        """DeleteRecords: raises the log start, -1 for the high watermark. Returns the new log start (low watermark)."""
        self._check_usable()
        if offset == HIGH_WATERMARK:
            offset = self.high_watermark
        if offset < 0 or offset > self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Cannot increment the log start offset of {self.topic_partition} to {offset} "
                f"since it is larger than the high watermark {self.high_watermark}",
            )
        if offset > self.log_start_offset:
            self._raise_log_start_offset(offset)
            self._delete_below_log_start()
        return self.log_start_offset

    def apply_retention(self, now_ms: int) -> int:
        """Deletes segments beyond retention.ms or retention.bytes, or below the log start. Returns how many."""
        self._check_usable()
        deleted = self._delete_below_log_start()
        config = self.config
        if not config.is_deleted:
            return deleted
        if config.retention_bytes >= 0:
            excess = self.size_bytes - config.retention_bytes

            def is_too_much(segment: Segment) -> bool:
                nonlocal excess
                if excess < segment.size:
                    return False
                excess -= segment.size
                return True

            deleted += self._delete_oldest_while(is_too_much, now_ms) if excess > 0 else 0
        if config.retention_ms >= 0:
            oldest_ms = now_ms - config.retention_ms
            deleted += self._delete_oldest_while(lambda segment: segment.largest_timestamp() < oldest_ms, now_ms)
        return deleted

    def _delete_oldest_while(self, predicate: Callable[[Segment], bool], now_ms: int) -> int:
        """Delete the longest run of oldest segments that are below the high watermark and fit."""
        segments = self.segments
        count = 0
        for segment in segments:
            is_active = segment is segments.active
            end_offset = self.log_end_offset if is_active else segments[count + 1].base_offset
            if end_offset > self.high_watermark or (is_active and segment.size == 0) or not predicate(segment):
                break
            count += 1
        if not count:
            return 0
        if count == len(segments):
            self.roll(now_ms)  # the log continues in an empty segment
        first_kept = segments[count].base_offset
        if first_kept > self.log_start_offset:
            self._raise_log_start_offset(first_kept)
        self._delete_oldest(count)
        return count

    def _delete_below_log_start(self) -> int:
        """Segments that lie below the log start altogether; how many."""
        segments, count = self.segments, 0
        while count + 1 < len(segments) and segments[count + 1].base_offset <= self.log_start_offset:
            count += 1
        if count:
            self._delete_oldest(count)
        return count

    def _delete_oldest(self, count: int) -> None:
        try:
            # What is known of producers must not go with the batches it came from.
            path = self.directory.path_at(self.segments[count].base_offset, SNAPSHOT_SUFFIX)
            unsynced = self.unsynced.take_one(path)
            if unsynced is not None:
                unsynced.sync()
                self.directory.sync()
            for segment in self.segments[:count]:
                self.segments.drop(segment)
        except OSError as error:
            self.mark_failed(error)
            raise self.refusal() from error

    def _raise_log_start_offset(self, offset: int) -> None:
        self.log_start_offset = offset
        self.epochs.truncate_from_start(offset)
        self.producers.reach(self.log_end_offset)
        self.producers.on_log_start_offset(offset)
        self._find_first_unstable_offset()

    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Truncates the log, beginning with the batch that contains `offset`.

        A recovery point that was written before may lie behind the cut: a caller that cuts what was synced writes the
        checkpoint first.
        """
        self._check_usable()
        if offset >= self.log_end_offset:
            # This replica may have become the leader without writing: that epoch is dropped.
            self.epochs.truncate_from_end(self.log_end_offset)
            self.leader_epoch = self.epochs.latest
            return
        segments = self.segments
        if offset < self.log_start_offset or offset < segments[0].base_offset:
            self.truncate_fully_and_start_at(offset, now_ms)
            return
        try:
            while segments.active.base_offset > offset:
                segments.drop(segments.active)
            segment = segments.active
            found = segment.find(offset)
            if found is None:
                segment.account_for_tail()
                end_offset = offset
            else:
                position, base_offset = found
                end_offset = max(min(offset, base_offset), self.log_start_offset)
                segment.truncate_to_position(position, end_offset)
            self._go_on_from(segment, end_offset)
            recovery.remove_snapshots(self.directory, above=end_offset)
            recovery.reload_producers(
                self.directory, segments, self.producers, self.log_start_offset, self.log_end_offset, now_ms
            )
            self._make_cut_durable(segment)
        except OSError as error:
            self.mark_failed(error)
            raise self.refusal() from error
        self._find_first_unstable_offset()

    def truncate_fully_and_start_at(self, offset: int, now_ms: int) -> None:
        """Empty the log; the next batch gets `offset`."""
        self._check_usable()
        try:
            while self.segments:
                self.segments.drop(self.segments[-1])
            recovery.remove_snapshots(self.directory)
            segment = self.segments.begin(offset, now_ms)
            self._go_on_from(segment, offset)
            self.log_start_offset = self.high_watermark = offset
            self.epochs.clear()
            self.leader_epoch = self.epochs.latest
            self.producers.truncate_fully_and_start_at(offset)
            self._make_cut_durable(segment)
        except OSError as error:
            self.mark_failed(error)
            raise self.refusal() from error
        self._find_first_unstable_offset()

    def _go_on_from(self, segment: Segment, end_offset: int) -> None:
        self.segments.forget_hints()
        self._set_active(segment)
        self.log_end_offset = end_offset
        self.high_watermark = min(self.high_watermark, end_offset)
        self.unsynced.cut_at(end_offset)
        self.epochs.truncate_from_end(end_offset)
        self.leader_epoch = self.epochs.latest
        self._is_unsaved = True

    def _make_cut_durable(self, segment: Segment) -> None:
        """Otherwise a power failure could restore truncated records after others have taken their offsets."""
        segment.file.sync()
        try:
            for path in segment.write_indexes():
                WrittenFile(self.disk, path).sync()
        except OSError as error:
            if error.errno not in FULL_DISK:
                raise  # and without room they are made anew when they are wanted
        self.directory.sync()

    def replace_segments(self, old: Sequence[Segment], cleaned: Sequence[Segment]) -> None:
        """Replaces segments by their compacted versions.

        `cleaned` were made with the suffix `.cleaned` and have been filled; none overlaps the active segment.
        """
        self._check_usable()
        try:
            self.segments.swap(old, cleaned)
        except OSError as error:
            self.mark_failed(error)
            raise self.refusal() from error

    # Durability

    def take_unsynced(self) -> SyncRequest | None:
        """What must be synced so that everything up to the current log end survives a power failure.

        None while an earlier request is under way, or if the log is failed or retired. Each request hands over what has
        become dirty since the last, so a failed sync cannot be made good: call `mark_failed`. After success call
        `synced`.
        """
        if self._is_closed_to_calls or self.unsynced.in_flight:
            return None
        if self.epochs.dirty:
            try:
                self._write_epochs()
            except OSError as error:
                self.mark_failed(error)
                return None
        active, end_offset = self.segments.active, self.log_end_offset
        # The high watermark will be at this batch.
        self.segments.remember(end_offset, active, active.size)
        return self.unsynced.take(end_offset, active.file)

    def _write_epochs(self) -> None:
        """A torn checkpoint is detected and rebuilt from the batches, so it needs no sync before the rename.

        For the same reason it can wait for a later sync if the disk is full.
        """
        path = self.directory.path_of(LEADER_EPOCH_CHECKPOINT)
        try:
            self.disk.write_bytes(path + _TEMPORARY_SUFFIX, self.epochs.encode())
            self.disk.rename(path + _TEMPORARY_SUFFIX, path)
        except OSError as error:
            if error.errno not in FULL_DISK:
                raise
            return
        self.epochs.note_written()
        self.unsynced.note_written(path)
        self.unsynced.note_names()

    def synced(self, request: SyncRequest) -> None:
        """The request was carried out."""
        self.unsynced.synced(request)

    @property
    def is_dirty(self) -> bool:
        return self.epochs.dirty or not self.unsynced.is_empty(self.log_end_offset)

    def flush_side_files(self) -> None:
        """Bring the active segment's index files up to date, for tools that read a live directory. Not synced."""
        self._check_usable()
        if self.segments.active.indexes_dirty:
            self._note_indexes(self.segments.active)
            self.unsynced.note_names()

    def flush(self) -> None:
        """Syncs everything immediately. An OSError fails the log."""
        request = self.take_unsynced()
        if request is None:
            self._check_usable()
            raise AssertionError(f"{self.topic_partition} is flushed while it is being synced")
        try:
            for file in request.files:
                file.sync()
        except OSError as error:
            self.mark_failed(error)
            raise
        self.synced(request)

    # For tests

    def check_invariants(self) -> None:
        """AssertionError if anything that must always hold does not. Reads every batch."""
        assert self.log_start_offset <= self.last_stable_offset <= self.high_watermark <= self.log_end_offset, repr(
            self
        )
        assert self.synced_offset <= self.log_end_offset, repr(self)
        assert self.leader_epoch <= self.epochs.latest or self.epochs.latest == -1, (self.leader_epoch, self.epochs)
        self.segments.check_invariants(self.log_start_offset, self.log_end_offset)

    def __repr__(self) -> str:
        return (
            f"PartitionLog({self.topic_partition}, start {self.log_start_offset}, stable {self.last_stable_offset}, "
            f"high watermark {self.high_watermark}, synced {self.synced_offset}, end {self.log_end_offset}, "
            f"epoch {self.leader_epoch}, {len(self.segments)} segments)"
        )
