"""One partition's history: the one write path, reading, watermarks.

Owns the offsets that divide the log: start, last stable, high watermark, synced, end. They are distinct, and
`log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset` holds at all times. The log never moves the
high watermark up by itself: whoever owns the partition does, when a batch is as durable as promised. Its files are
`log.log_files`, opening is `log.recovery`, shortening is `log.retention`, time lookup is `log.lookup`, refusals are
`log.validation`. All disk access goes through `ports.Disk`; nothing here syncs on the append path.

A disk that is full refuses one append and leaves no trace. Any other error of the disk, a failed sync above all, fails
the log for good: every later call gets KAFKA_STORAGE_ERROR.
"""

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from fencepost.config import TopicConfig
from fencepost.log import invariants, lookup, marking, reading, recovery, retention
from fencepost.log.leader_epochs import EpochEnd
from fencepost.log.log_files import LogFiles, LogLimits
from fencepost.log.open_transactions import AbortedTransaction
from fencepost.log.producers import Marker, Origin, VerificationGuard
from fencepost.log.reading import ReadResult
from fencepost.log.segment import Segment
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
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    BatchHeader,
    iterate_headers,
    read_header,
    stamp,
    verify_crc,
)
from fencepost.wire.errors import ErrorCode, KafkaError

_CODEC_MAX = 4
_USUAL_ATTRIBUTES = frozenset({codec | kind for codec in range(_CODEC_MAX + 1) for kind in (0, TRANSACTIONAL_MASK)})
_STAMP = Struct(">qii")
__all__ = ["Appended", "LogLimits", "PartitionLog"]

_pack_stamp = _STAMP.pack_into
_new_tuple = tuple.__new__


class Appended(NamedTuple):
    first_offset: int
    last_offset: int
    log_append_time_ms: int
    """-1 under CreateTime. Of a duplicate: the original's largest timestamp, as Kafka answers."""
    log_start_offset: int
    duplicate: bool


class PartitionLog(LogFiles):
    __slots__ = (
        "__weakref__",
        "_first_unstable_offset",
        "_max_message_bytes",
        "_opens_batches",
        "_timestamp_after_max_ms",
        "_timestamp_before_max_ms",
        "high_watermark",
        "leader_epoch",
        "log_start_offset",
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
        super().__init__(disk, directory, topic, partition, topic_id, limits)
        self.log_start_offset = self.high_watermark = 0
        self.leader_epoch = -1
        """Of the newest batch."""
        self._first_unstable_offset: int | None = None
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
        super().update_config(config)
        self._opens_batches = needs_opening(config)
        self._max_message_bytes = config.max_message_bytes
        self._timestamp_after_max_ms = config.message_timestamp_after_max_ms
        self._timestamp_before_max_ms = config.message_timestamp_before_max_ms

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
        batch: Buffer,
        leader_epoch: int,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        verification_guard: VerificationGuard | None = None,
        header: BatchHeader | None = None,
    ) -> Appended:
        """Append one batch, stamping it in place (so it must be writable). KafkaError as Kafka would answer.

        `header` is the batch's own, from whoever has read it already.
        A batch already in the log is answered with its original offsets and `duplicate`; nothing is written.
        """
        if self._failure is not None:
            raise self.storage_error()
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
        self._write(batch, size, first_offset, last_offset, max_timestamp, now_ms)
        self.note_epoch(leader_epoch, first_offset)
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
        self.note_epoch(leader_epoch, offset)
        return offset

    def append_markers(self, markers: Sequence[Marker], *, leader_epoch: int, now_ms: int) -> marking.Refusals:
        """End transactions in this partition. Why each marker was refused, if it was; the others are written.

        What was unstable stays so until the marker is below the high watermark.
        """
        return marking.append_markers(self, markers, leader_epoch, now_ms)

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
            self.note_epoch(header.partition_leader_epoch, header.base_offset)
            completed = self.producers.replay_batch(view, position, header)
            if completed is not None and completed.is_aborted:
                marking.note_aborted(self, completed)
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

    def note_epoch(self, leader_epoch: int, offset: int) -> None:
        """A batch of this epoch was written at `offset`."""
        if leader_epoch != self.leader_epoch:
            self.epochs.assign(leader_epoch, offset)
            self.leader_epoch = leader_epoch

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
