"""The logs of one data directory: opening, checkpointing, deleting and closing them.

Owns the directory's side files (who it belongs to, how far each log was synced, whether the last stop was clean). What
is in a log is the log's business; which topics there are is `ClusterMetadata`'s.
"""

import errno
import os.path
import re
from collections.abc import Iterable

from fencepost.broker.cluster_metadata import Topic
from fencepost.config import TopicConfig
from fencepost.log.file_names import LOG_SUFFIX
from fencepost.log.partition_log import Checkpoints, LogLimits, PartitionLog
from fencepost.log.recovery import offsets_of
from fencepost.log.side_files import (
    CLEANER_OFFSET_CHECKPOINT,
    GAPLESS_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    UNKNOWN_BROKER_EPOCH,
    CorruptSideFile,
    MetaProperties,
    encode_uuid,
    parse_partition_directory_name,
    partition_directory_name,
    read_meta_properties,
    read_offset_checkpoint,
    read_partition_metadata,
    take_clean_shutdown,
    was_stopped_by_us,
    write_clean_shutdown,
    write_meta_properties,
    write_offset_checkpoint,
)
from fencepost.metadata.log_files import METADATA_DIRECTORY
from fencepost.ports import Disk, Randomness
from fencepost.topic_partition import TopicPartition

LOCK_NAME = ".lock"
DELETED_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
SYNC_ONE_BY_ONE_MAX = 16
DAMAGED_ID_BITS_MAX = 16
FAILURE_MARK = ".storage-failed"
"""Left behind when the disk failed. Never synced: it is for a restart on the same page cache, which may lie."""

_LOST_WITH_RECOVERY_POINTS = "how far each log was synced is not known, so all of them are checked"
_LOST_WITH_LOG_STARTS = (
    "each log begins with its first segment, so records that were deleted (DeleteRecords) may be there again"
)
_DELETED_DIRECTORY = re.compile(r".+-[0-9]+\.[0-9a-f]{32}-delete")
_FILE_OF_A_LOG = re.compile(
    r"[0-9]{20}\.(log|index|timeindex|txnindex|txnindex\.crc|snapshot)(\.deleted|\.cleaned|\.swap)?"
    r"|partition\.metadata|leader-epoch-checkpoint(\.tmp)?"
)


class WrongDirectory(Exception):
    """A data directory that belongs to another broker."""


def wrong_directory(directory: str, owner: int, node_id: int) -> WrongDirectory:
    return WrongDirectory(
        f"{directory} belongs to node.id={owner}, not {node_id}: set node.id or use another directory"
    )


def make_directory_durably(disk: Disk, path: str) -> None:
    """With its parents. A directory whose own name was never synced is gone after a power cut, with all in it."""
    if disk.exists(path):
        return
    parent = os.path.dirname(path)
    make_directory_durably(disk, parent)
    disk.make_directory(path)
    disk.sync_directory(parent)


class Storage:
    def __init__(self, disk: Disk, directory: str, limits: LogLimits) -> None:
        self.disk = disk
        self.directory = directory
        self.limits = limits
        self.was_clean = False
        self.is_new = False
        """There was nothing in the directory: nothing to stop cleanly before, either."""
        self.is_suspect = False
        """The disk has failed before: the page cache may show what is not on it and will not be written again."""
        self.complaints: list[str] = []
        """What was damaged and could be done without."""
        self._recovery_points: dict[TopicPartition, int] = {}
        self._knows_recovery_points = True
        self._clean_offsets: dict[TopicPartition, int] = {}
        self._gapless_offsets: dict[TopicPartition, int] = {}
        self._log_starts: dict[TopicPartition, int] = {}
        self._knows_log_starts = False
        """The checkpoint of log starts is ours, and newer than anything that was deleted."""
        self._checkpointed: dict[str, dict[TopicPartition, int]] = {}
        """Each checkpoint as the disk has it, by its name."""

    def start(self, node_id: int, randomness: Randomness, broker_epoch: int = UNKNOWN_BROKER_EPOCH) -> MetaProperties:
        """Claim the directory and read its checkpoints. `broker_epoch`: in which a broker of ours ran last."""
        make_directory_durably(self.disk, self.directory)
        properties = read_meta_properties(self.disk, self.directory)
        self.is_new = properties is None and not set(self.disk.list(self.directory)) - {LOCK_NAME}
        if properties is None:
            properties = MetaProperties(
                encode_uuid(randomness.random_bytes(16)), node_id, encode_uuid(randomness.random_bytes(16))
            )
            if self.is_new:
                # Written first: if one of them is missing later, it has been removed.
                for name in (RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT):
                    write_offset_checkpoint(self.disk, self.directory, name, {})
            write_meta_properties(self.disk, self.directory, properties)
        elif properties.node_id != node_id:
            raise wrong_directory(self.directory, properties.node_id, node_id)
        elif not properties.directory_id:
            directory_id = encode_uuid(randomness.random_bytes(16))
            properties = MetaProperties(properties.cluster_id, node_id, directory_id)
            write_meta_properties(self.disk, self.directory, properties)
        self.is_suspect = self.disk.exists(f"{self.directory}/{FAILURE_MARK}")
        was_stopped = was_stopped_by_us(self.disk, self.directory, broker_epoch)
        self.was_clean = take_clean_shutdown(self.disk, self.directory) and not self.is_suspect
        recovery_points = self._read_checkpoint(RECOVERY_POINT_CHECKPOINT, _LOST_WITH_RECOVERY_POINTS)
        self._knows_recovery_points = recovery_points is not None
        self._recovery_points = recovery_points or {}
        self._log_starts = self._read_checkpoint(LOG_START_OFFSET_CHECKPOINT, _LOST_WITH_LOG_STARTS) or {}
        self._knows_log_starts = was_stopped and self.was_clean
        self._clean_offsets = self._read_checkpoint(CLEANER_OFFSET_CHECKPOINT) or {}
        self._gapless_offsets = self._read_checkpoint(GAPLESS_OFFSET_CHECKPOINT) or {}
        self._checkpointed = {
            RECOVERY_POINT_CHECKPOINT: dict(self._recovery_points),
            LOG_START_OFFSET_CHECKPOINT: dict(self._log_starts),
        }
        return properties

    def _read_checkpoint(self, name: str, lost_with_it: str = "") -> dict[TopicPartition, int] | None:
        """As Kafka does with one it cannot read: nothing is known, so everything is looked at.

        `lost_with_it`: a directory with logs always has this one, with something in it, and that is what it costs if
        not.
        """
        path = f"{self.directory}/{name}"
        try:
            if lost_with_it and self.has_logs() and not self._has_content(path):
                raise CorruptSideFile(path, f"the file is missing or empty: {lost_with_it}")
            return read_offset_checkpoint(self.disk, self.directory, name)
        except CorruptSideFile as error:
            self.complaints.append(str(error))
            self.was_clean = False
            return None

    def _has_content(self, path: str) -> bool:
        return self.disk.exists(path) and self.disk.size(path) > 0

    def has_logs(self) -> bool:
        """Whether any partition's directory has records in it."""
        for name in self.disk.list(self.directory):
            if parse_partition_directory_name(name) is not None and name != METADATA_DIRECTORY:
                path = f"{self.directory}/{name}"
                try:
                    files = self.disk.list(path)
                except (NotADirectoryError, FileNotFoundError):
                    continue
                if any(self.disk.size(f"{path}/{file}") for file in files if file.endswith(LOG_SUFFIX)):
                    return True
        return False

    def note_failure(self) -> None:
        try:
            self.disk.write_bytes(f"{self.directory}/{FAILURE_MARK}", b"see the event log\n")
        except OSError:
            pass  # then only a reboot helps

    def trust_again(self) -> None:
        """Everything that counts was written anew and synced."""
        if self.is_suspect:
            self.is_suspect = False
            self.disk.remove(f"{self.directory}/{FAILURE_MARK}")

    def set_strays_aside(self, topics: dict[str, Topic]) -> list[str]:
        """Finish deletions that a crash cut short; never delete a log without a request. Returns what to report.

        Other files in the data directory are not the broker's and stay as they are.
        """
        reports: list[str] = []
        for name in self.disk.list(self.directory):
            path = f"{self.directory}/{name}"
            if _DELETED_DIRECTORY.fullmatch(name):
                try:
                    self.disk.remove_tree(path)
                except OSError as error:
                    reports.append(f"{path} is left of a deleted topic and cannot be removed: {error}")
                continue
            parsed = parse_partition_directory_name(name)
            if parsed is None or name == METADATA_DIRECTORY:
                continue
            topic = topics.get(parsed[0])
            if topic is None or parsed[1] >= topic.partition_count or self._is_of_another_topic(path, topic):
                stray = self._set_aside(path)
                if stray is not None:
                    reports.append(f"{path} belongs to no topic; it was set aside as {stray}")
        # A process killed before its first sync leaves directories that only the page cache knows; logs opened from now
        # on take an existing directory for a durable one.
        self.disk.sync_directory(self.directory)
        return reports

    def _is_of_another_topic(self, path: str, topic: Topic) -> bool:
        """Of a deleted topic whose name a new one has: back after a power cut, or put there by an operator."""
        topic_id = self._topic_id_of(path)
        if topic_id is None:
            return False
        # Ids are random: two that differ in a few bits are the same one, damaged.
        difference = int.from_bytes(topic_id, "big") ^ int.from_bytes(topic.topic_id, "big")
        return difference.bit_count() > DAMAGED_ID_BITS_MAX

    def _topic_id_of(self, path: str) -> bytes | None:
        try:
            return read_partition_metadata(self.disk, path)
        except CorruptSideFile:
            return None

    def _set_aside(self, path: str) -> str | None:
        """Where a log is from now on; None if it was empty, or is none at all."""
        try:
            names = self.disk.list(path)
        except (NotADirectoryError, FileNotFoundError):
            return None
        ours = [name for name in names if _FILE_OF_A_LOG.fullmatch(name)]
        if not ours:
            return None
        if len(ours) == len(names) and not any(
            self.disk.size(f"{path}/{name}") for name in names if name.endswith(LOG_SUFFIX)
        ):
            self.disk.remove_tree(path)  # of a topic that was never announced, or never written to
            return None
        number = 1
        while self.disk.exists(f"{path}.{number}{STRAY_SUFFIX}"):
            number += 1
        stray = f"{path}.{number}{STRAY_SUFFIX}"
        self.disk.rename(path, stray)
        return stray

    def open_log(self, topic: Topic, index: int, config: TopicConfig, now_ms: int) -> PartitionLog:
        key = TopicPartition(topic.name, index)
        path = f"{self.directory}/{partition_directory_name(*key)}"
        return PartitionLog.open(
            self.disk,
            path,
            topic.name,
            index,
            topic.topic_id,
            config,
            now_ms,
            self.checkpoints_of(*key),
            limits=self.limits,
            rewrite=self.is_suspect,
        )

    def missing_at_start(self, log: PartitionLog) -> range:
        """Offsets at the beginning of a log that are missing although they were not deleted."""
        known = self._log_starts.get(TopicPartition(log.topic, log.partition), 0)
        return range(known, log.log_start_offset) if self._knows_log_starts else range(0)

    def checkpoints_of(self, topic: str, index: int) -> Checkpoints:
        key = TopicPartition(topic, index)
        clean_offset = self._clean_offsets.get(key, 0)
        return Checkpoints(
            self.was_clean,
            self._recovery_points.get(key, 0 if self._knows_recovery_points else None),
            self._log_starts.get(key, 0),
            clean_offset,
            # Where they differ, another cleaner was at work since, and that of Apache Kafka leaves holes.
            clean_offset if self._gapless_offsets.get(key) == clean_offset else 0,
        )

    def known_partitions(self) -> list[TopicPartition]:
        """All logs that the checkpoint of recovery points names."""
        return list(self._recovery_points)

    def offline_log(self, topic: Topic, index: int, config: TopicConfig, reason: Exception) -> PartitionLog:
        """A log whose files cannot be read: it refuses everything, and its files stay as they are."""
        key = TopicPartition(topic.name, index)
        path = f"{self.directory}/{partition_directory_name(*key)}"
        if not self._knows_recovery_points and self.disk.exists(path):
            # The next checkpoint must not say that nothing of it was synced, or it would be cut tomorrow.
            self._recovery_points[key] = max(offsets_of(self.disk.list(path))[0], default=0)
        error = reason if isinstance(reason, OSError) else OSError(errno.EIO, str(reason), path)
        return PartitionLog.offline(self.disk, path, topic.name, index, topic.topic_id, config, self.limits, error)

    def create_log(self, topic: Topic, index: int, config: TopicConfig, now_ms: int) -> PartitionLog:
        """A new partition's log. What a topic of the same name left behind is set aside."""
        path = f"{self.directory}/{partition_directory_name(topic.name, index)}"
        if self.disk.exists(path) and self._topic_id_of(path) != topic.topic_id:
            self.disk.rename(path, f"{path}.{topic.topic_id.hex()}{STRAY_SUFFIX}")
        return self.open_log(topic, index, config, now_ms)

    def forget(self, topic: str, indexes: Iterable[int]) -> None:
        """What the checkpoints say of an older topic of that name must not be taken for the one that is made now."""
        keys = [TopicPartition(topic, index) for index in indexes]
        for key in keys:
            for known in (self._recovery_points, self._log_starts, self._clean_offsets, self._gapless_offsets):
                known.pop(key, None)
        for name, on_disk in self._checkpointed.items():
            if not on_disk.keys().isdisjoint(keys):
                kept = {key: offset for key, offset in on_disk.items() if key not in keys}
                self._write_checkpoint(name, kept)

    def _write_checkpoint(self, name: str, offsets: dict[TopicPartition, int]) -> None:
        write_offset_checkpoint(self.disk, self.directory, name, offsets)
        self._checkpointed[name] = offsets

    def delete_log(self, log: PartitionLog) -> str:
        """Take a log out of the directory at once; the path whose tree is then to be removed."""
        log.retire()
        path = f"{log.directory}.{log.topic_id.hex()}{DELETED_SUFFIX}"
        self.disk.rename(str(log.directory), path)
        return path

    def write_recovery_points(self, logs: Iterable[PartitionLog]) -> None:
        recovery_points = {}
        for log in logs:
            key = TopicPartition(log.topic, log.partition)
            if not log.segments:  # never opened: what was known of it must still be known at the next start
                recovery_points[key] = self._recovery_points.get(key, 0)
                continue
            recovery_points[key] = log.synced_offset
            if log.epochs.dirty:
                # What the epoch checkpoint lacks has to be read again from the batches.
                checkpointed = self._checkpointed[RECOVERY_POINT_CHECKPOINT]
                recovery_points[key] = min(log.synced_offset, checkpointed.get(key, 0))
        self._write_checkpoint(RECOVERY_POINT_CHECKPOINT, recovery_points)

    def write_checkpoints(self, logs: Iterable[PartitionLog]) -> None:
        logs = list(logs)
        self.write_recovery_points(logs)
        log_starts, high_watermarks = {}, {}
        for log in logs:
            key = TopicPartition(log.topic, log.partition)
            if not log.segments:
                log_starts[key] = self._log_starts.get(key, 0)
                continue
            high_watermarks[key] = log.high_watermark
            if log.log_start_offset > 0:
                # Even where a segment begins there: the names of those before it may come back with a power cut.
                log_starts[key] = log.log_start_offset
        for name, offsets in (
            (LOG_START_OFFSET_CHECKPOINT, log_starts),
            (REPLICATION_OFFSET_CHECKPOINT, high_watermarks),
        ):
            self._write_checkpoint(name, offsets)

    def write_log_starts(self, logs: Iterable[PartitionLog]) -> None:
        """The checkpoint keeps what it holds of other logs. Those that begin at 0 are not in it."""
        raised = {TopicPartition(log.topic, log.partition): log.log_start_offset for log in logs}
        self._write_checkpoint(
            LOG_START_OFFSET_CHECKPOINT, {**self._checkpointed[LOG_START_OFFSET_CHECKPOINT], **raised}
        )

    def close(self, logs: Iterable[PartitionLog], broker_epoch: int) -> None:
        """Leave nothing to recover."""
        logs = list(logs)
        # A sync whose result is not known may have failed.
        settled = [log for log in logs if not log.unsynced.in_flight]
        files = [file for log in settled for file in log.write_out()]
        if len(files) > SYNC_ONE_BY_ONE_MAX:
            # Thousands of small files: one sync of the whole file system is far quicker than one of each.
            self.disk.sync_file_system(self.directory)
        else:
            for file in files:
                file.sync()
        for log in settled:
            log.written_out()
        self.write_checkpoints(logs)
        if len(settled) == len(logs) and all(log.is_usable and not log.epochs.dirty for log in logs):
            write_clean_shutdown(self.disk, self.directory, broker_epoch)
