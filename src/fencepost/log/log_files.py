"""The files of one partition's log: its segments, when a new one begins, and what a sync must cover.

Owns the list of segments and whatever has to reach the disk: the active segment, side files that were written, names in
the directory, the leader epochs. Knows offsets only as places in files; what they mean is `log.partition_log`.
"""

import dataclasses
from collections.abc import Callable, Sequence

from crc32c import crc32c

from fencepost.config import TopicConfig
from fencepost.log import reading, recovery
from fencepost.log.file_names import SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX, offset_name
from fencepost.log.indexes import RELATIVE_OFFSET_MAX, TIME_ENTRY_BYTES
from fencepost.log.leader_epochs import LeaderEpochs
from fencepost.log.producers import ProducerStateManager
from fencepost.log.segment import Segment
from fencepost.log.side_files import LEADER_EPOCH_CHECKPOINT
from fencepost.log.syncables import CheckpointWrite, DirectoryEntries, Syncable, WrittenFile
from fencepost.ports import FULL_DISK, Buffer, Disk
from fencepost.wire.errors import ErrorCode, KafkaError

_NO_ROLL_TIMESTAMP = 2**63
_ASK_ROLL_TIMESTAMP = -2
"""Below every timestamp: the segment's first timestamp is not known yet, or is none."""


@dataclasses.dataclass(frozen=True, slots=True)
class LogLimits:
    """What all logs of a broker share."""

    producer_id_expiration_ms: int = 86_400_000
    decompressed_batch_max_bytes: int = 67_108_864
    transaction_verification_enabled: bool = True


class LogFiles:
    __slots__ = (
        "_active",
        "_base_offsets",
        "_dirty",
        "_failure",
        "_hints",
        "_index_interval_bytes",
        "_indexed",
        "_limits",
        "_roll_timestamp",
        "_segment_bytes",
        "_segments",
        "_sync_requested_offset",
        "_unsaved",
        "config",
        "directory",
        "disk",
        "epochs",
        "log_end_offset",
        "on_failure",
        "partition",
        "producers",
        "synced_offset",
        "topic",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self, disk: Disk, directory: str, topic: str, partition: int, topic_id: bytes, limits: LogLimits
    ) -> None:
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
        self.log_end_offset = self.synced_offset = 0
        self._segments: list[Segment] = []
        self._base_offsets: list[int] = []
        self._active: Segment
        self._dirty: dict[str, Syncable] = {}
        self._sync_requested_offset = 0
        self._unsaved = False
        """Whether a clean close has anything to write."""
        self._hints: dict[int, tuple[Segment, int]] = {}
        self._indexed: dict[Segment, None] = {}
        self._failure: OSError | None = None
        self.on_failure: Callable[[OSError], None] = lambda error: None
        self._roll_timestamp = _NO_ROLL_TIMESTAMP

    def update_config(self, config: TopicConfig) -> None:
        self.config = config
        self._segment_bytes = config.segment_bytes
        self._index_interval_bytes = config.index_interval_bytes
        if self._segments:
            self._roll_timestamp = _ASK_ROLL_TIMESTAMP

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

    # Writing

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

    def _write_in_segment(self, batches: Sequence[Buffer], size: int, first_offset: int, timestamp: int) -> None:
        """Put stamped batches of one record and one size each at the end of the active segment. All or nothing."""
        segment = self._active
        try:
            segment.append_all(batches, size, first_offset, timestamp, self._index_interval_bytes)
        except OSError as error:
            raise self._write_error(error) from error
        self.log_end_offset = first_offset + len(batches)
        self._unsaved = True

    # Rolling

    def _has_room_for(self, batches: int, size: int, max_timestamp: int) -> bool:
        """Whether so many batches of `size` bytes and one record each surely fit into the active segment."""
        segment = self._active
        return (
            segment._size > 0
            and segment._size + batches * size <= self._segment_bytes
            and max_timestamp <= self._roll_timestamp
            and self.log_end_offset + batches - segment.base_offset <= RELATIVE_OFFSET_MAX
            and not segment.is_index_full(self.config.segment_index_bytes - batches * TIME_ENTRY_BYTES)
        )

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
            or waited_ms > self._age_max_ms(segment)
            or last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
            or segment.is_index_full(self.config.segment_index_bytes)
        )

    def _set_roll_timestamp(self, segment: Segment) -> None:
        """Appends compare with one number; without a first timestamp, each has to ask the clock."""
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

    def roll_if_needed(self, now_ms: int) -> bool:
        """Roll a segment that has no timestamps and has grown old; others roll as records arrive."""
        segment = self._active
        if self._failure is not None or segment.size == 0 or segment.first_timestamp() >= 0:
            return False
        if now_ms - segment.created_ms <= self._age_max_ms(segment):
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
            path = f"{self.directory}/{LEADER_EPOCH_CHECKPOINT}"
            files.append(CheckpointWrite(self.disk, path, self.epochs))
            self.epochs.dirty = False
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
        if error.errno in FULL_DISK:
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
