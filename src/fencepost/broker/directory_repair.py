"""What a stopped data directory has lost, and the way back to one that a broker can serve.

Looks at the directory with the eyes of the next start: the same checkpoints, the same metadata log, the same
opening of each log, on a disk that only pretends to be written (`log.dry_run`). Nothing is given up unasked.

A transaction coordinator that lost part of its log forgets all ids whose newest record may have been lost: the next
producer of such an id gets a new producer id, since nobody knows the epochs that were handed out. What these ids had
open stays open, and is listed.
"""

import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from fencepost.broker.cluster_metadata import (
    PRODUCER_IDS_SKIPPED,
    ClusterMetadata,
    Topic,
    block_above,
    default_features,
)
from fencepost.broker.earlier_metadata import EarlierTopic
from fencepost.broker.internal_topics import internal_topic_settings
from fencepost.broker.storage import Storage
from fencepost.config import BrokerConfig, TopicConfig
from fencepost.coordinators.journal import UnknownRecordType
from fencepost.coordinators.transactions.transaction_journal import TransactionJournal
from fencepost.coordinators.transactions.transaction_metadata import TransactionEntry, TransactionRecord
from fencepost.coordinators.transactions.transaction_states import PREPARED, TransactionState
from fencepost.internal_topic_names import INTERNAL_TOPICS, TRANSACTION_STATE
from fencepost.log.batch_scans import FoundBatch, read_batches, read_headers
from fencepost.log.dry_run import DryRunDisk
from fencepost.log.file_names import LOG_SUFFIX, SNAPSHOT_SUFFIX
from fencepost.log.leader_epochs import CorruptEpochCheckpoint, LeaderEpochs
from fencepost.log.partition_log import LogLimits, PartitionLog
from fencepost.log.producers import CorruptSnapshot, ProducerStateManager
from fencepost.log.repair import CannotRepair, Loss, examine, repair
from fencepost.log.set_aside import DAMAGED_SUFFIX
from fencepost.log.side_files import (
    CLEAN_SHUTDOWN,
    LEADER_EPOCH_CHECKPOINT,
    CorruptSideFile,
    decode_uuid,
    parse_partition_directory_name,
    partition_directory_name,
    read_meta_properties,
    read_partition_metadata,
    take_clean_shutdown,
)
from fencepost.metadata.log_files import METADATA_DIRECTORY, MetadataLog
from fencepost.metadata.records import MetadataRecord
from fencepost.ports import Disk, Randomness
from fencepost.wire.batch import verify_crc
from fencepost.wire.errors import KafkaError, MalformedMessage
from fencepost.wire.messages import ProducerIdsRecord
from fencepost.wire.records import read_records

KEEP_EVERYTHING = {"retention.ms": "-1"}
"""Nobody knows how long a topic was to keep its records: nothing may go before somebody has said so again."""
_FAR_FUTURE_MS = 2**62
_RECORDS_BYTES_MAX = 1 << 30
_JOURNAL = TransactionJournal(lambda: 0)
"""To read with."""


@dataclass(frozen=True, slots=True)
class DamagedPartition:
    topic: str
    index: int
    losses: tuple[Loss, ...] = ()
    problem: str = ""
    """Why nothing can be done about it; empty if the losses can be accepted."""
    open_transactions: int = 0
    """What would be undecided afterwards."""
    forgotten_ids: tuple[str, ...] = ()
    """Transactional ids that the coordinator of this partition would not know any more, as far as they can be read."""

    @property
    def name(self) -> str:
        return partition_directory_name(self.topic, self.index)


@dataclass(frozen=True, slots=True)
class HangingTransaction:
    """Open in a partition, and no coordinator knows of it."""

    topic: str
    index: int
    first_offset: int
    producer_id: int
    producer_epoch: int
    transactional_id: str | None = None
    """Of its producer, if a record that was set aside names it."""


@dataclass(frozen=True, slots=True)
class RebuiltMetadata:
    """What can be told of a cluster without its metadata log."""

    topics: tuple[EarlierTopic, ...]
    """With the largest leader epoch that is in any log: the next start takes one above."""
    next_producer_id: int

    def records(self, node_id: int, directory_id: bytes) -> Iterator[MetadataRecord]:
        yield from default_features()
        for topic in self.topics:
            yield from topic.records(node_id, directory_id)
        following = block_above(self.next_producer_id - 1)
        yield MetadataRecord(ProducerIdsRecord(broker_id=-1, next_producer_id=following))


@dataclass(slots=True)
class Survey:
    partitions: int = 0
    damaged: list[DamagedPartition] = field(default_factory=list)
    metadata: RebuiltMetadata | None = None
    """There is no metadata log, and this would be in the new one."""
    hanging: list[HangingTransaction] = field(default_factory=list)
    """What nobody would end, with every loss accepted."""

    @property
    def is_whole(self) -> bool:
        return not self.damaged and self.metadata is None


class NotADataDirectory(Exception):
    """There is nothing to be looked at."""


class DirectoryRepair:
    def __init__(self, disk: Disk, directory: str, randomness: Randomness, now_ms: int) -> None:
        self._disk = disk
        self._directory = directory
        self._randomness = randomness
        self._now_ms = now_ms

    def survey(self) -> Survey:
        """Everything that is lost. Raises CorruptSideFile where the broker would not start for another reason."""
        storage, topics, rebuilt = self._look()
        found = Survey(metadata=rebuilt)
        opened: list[HangingTransaction] = []
        state = _CoordinatorState()
        for topic in topics:
            for index in range(topic.partition_count):
                found.partitions += 1
                damaged, log = self._examine(storage, topic, index)
                if damaged is not None:
                    found.damaged.append(damaged)
                if log is not None:
                    opened += _open_transactions(log)
                    if topic.name == TRANSACTION_STATE:
                        state.read(log)
                        state.read_set_aside(log)
        found.hanging = [
            replace(each, transactional_id=state.name_of(each.producer_id))
            for each in opened
            if not state.will_end(each)
        ]
        return found

    def accept(self, topic_name: str, index: int) -> tuple[Loss, ...]:
        """Give up what one partition has lost, for good."""
        storage, topics, _ = self._look()
        topic = next(topic for topic in topics if topic.name == topic_name)
        if self._disk.exists(f"{self._directory}/{CLEAN_SHUTDOWN}"):
            take_clean_shutdown(self._disk, self._directory)
            storage, topics, _ = self._look()
        path, recovery_point = self._path(topic, index), storage.checkpoints_of(topic.name, index).recovery_point
        return tuple(
            repair(
                self._disk,
                self._directory,
                path,
                lambda disk: self._open(disk, storage, topic, index),
                recovery_point,
                is_read_whole=topic.name in INTERNAL_TOPICS,
                forgets_earlier=topic.name == TRANSACTION_STATE,
            )
        )

    def accept_metadata(self) -> RebuiltMetadata:
        """Write a metadata log in place of the missing one."""
        _, _, rebuilt = self._look()
        assert rebuilt is not None
        properties = read_meta_properties(self._disk, self._directory)
        assert properties is not None
        records = rebuilt.records(properties.node_id, decode_uuid(properties.directory_id))
        log, token = MetadataLog(self._disk, self._directory), self._randomness.random_bytes(16)
        log.create(properties.node_id, properties.directory_id, self._now_ms, records, token)
        return rebuilt

    # Looking

    def _look(self) -> tuple[Storage, list[Topic], RebuiltMetadata | None]:
        """What the next start would know, without anything being changed."""
        properties = read_meta_properties(self._disk, self._directory)
        if properties is None:
            raise NotADataDirectory(f"{self._directory} has no meta.properties: it is no data directory of a broker")
        tried = DryRunDisk(self._disk, self._directory)
        storage = Storage(tried, self._directory, LogLimits())
        metadata = ClusterMetadata(tried, self._directory, self._randomness, _refusal, lambda: self._now_ms)
        metadata.examine(properties.node_id, properties.directory_id)
        properties = storage.start(properties.node_id, self._randomness, metadata.broker_epoch)
        if not metadata.exists() and storage.has_logs():
            rebuilt = self._rebuild(storage)
            return storage, [Topic(each.name, each.topic_id, each.partition_count) for each in rebuilt.topics], rebuilt
        metadata.load(properties)
        storage.set_strays_aside(metadata.topics)
        return storage, list(metadata.topics.values()), None

    def _path(self, topic: Topic, index: int) -> str:
        return f"{self._directory}/{partition_directory_name(topic.name, index)}"

    def _open(self, disk: Disk, storage: Storage, topic: Topic, index: int) -> PartitionLog:
        return PartitionLog.open(
            disk,
            self._path(topic, index),
            topic.name,
            index,
            topic.topic_id,
            TopicConfig(),
            self._now_ms,
            storage.checkpoints_of(topic.name, index),
        )

    def _examine(
        self, storage: Storage, topic: Topic, index: int
    ) -> tuple[DamagedPartition | None, PartitionLog | None]:
        """What a partition has lost, and its log without that."""
        opened: list[PartitionLog] = []

        def open_log(disk: Disk) -> PartitionLog:
            log = self._open(disk, storage, topic, index)
            opened.append(log)
            return log

        recovery_point = storage.checkpoints_of(topic.name, index).recovery_point
        try:
            losses = examine(
                self._disk,
                self._directory,
                self._path(topic, index),
                open_log,
                recovery_point,
                is_read_whole=topic.name in INTERNAL_TOPICS,
                forgets_earlier=topic.name == TRANSACTION_STATE,
            )
        except CannotRepair as error:
            return DamagedPartition(topic.name, index, problem=str(error)), None
        log = opened[-1]
        if not losses:
            return None, log
        forgotten: tuple[str, ...] = ()
        if topic.name == TRANSACTION_STATE:
            kept, earlier = _CoordinatorState(), _CoordinatorState()
            kept.read(log)
            earlier.read_set_aside(log)
            forgotten = tuple(sorted(earlier.names.keys() - kept.records.keys()))
        undecided = len(log.producers.transactions)
        return DamagedPartition(topic.name, index, tuple(losses), "", undecided, forgotten), log

    # Metadata from nothing

    def _rebuild(self, storage: Storage) -> RebuiltMetadata:
        counts: dict[str, int] = {}
        ids: dict[str, Counter[bytes]] = {}
        epoch, producer_id = 0, -1
        names = [name for name in self._disk.list(self._directory) if name != METADATA_DIRECTORY]
        partitions = map(parse_partition_directory_name, names)
        present = [each for each in partitions if each is not None]
        for name, index in (*present, *storage.known_partitions()):
            counts[name] = max(counts.get(name, 0), index + 1)
        for name, index in present:
            path = f"{self._directory}/{partition_directory_name(name, index)}"
            with contextlib.suppress(CorruptSideFile):
                topic_id = read_partition_metadata(self._disk, path)
                if topic_id is not None:
                    ids.setdefault(name, Counter())[topic_id] += 1
            epoch = max(epoch, self._largest_epoch(path))
            producer_id = max(producer_id, self._largest_producer_id(path, name))
        topics = []
        for name, count in sorted(counts.items()):
            found = ids.get(name)
            topic_id = found.most_common(1)[0][0] if found else self._randomness.random_bytes(16)
            is_internal = name in INTERNAL_TOPICS
            overrides = internal_topic_settings(name, BrokerConfig())[1] if is_internal else dict(KEEP_EVERYTHING)
            topics.append(EarlierTopic(name, topic_id, count, epoch, overrides))
        return RebuiltMetadata(tuple(topics), producer_id + 1 + PRODUCER_IDS_SKIPPED)

    def _largest_epoch(self, path: str) -> int:
        epoch = 0
        with contextlib.suppress(FileNotFoundError, CorruptEpochCheckpoint):
            epoch = LeaderEpochs.decode(self._disk.read_bytes(f"{path}/{LEADER_EPOCH_CHECKPOINT}")).latest
        for name in self._disk.list(path):
            if name.endswith(LOG_SUFFIX):
                file = self._disk.open(f"{path}/{name}")
                for _, header in read_headers(file, 0, file.size()):
                    epoch = max(epoch, header.partition_leader_epoch)
                file.close()
        return epoch

    def _largest_producer_id(self, path: str, topic: str) -> int:
        largest = -1
        for name in self._disk.list(path):
            if name.endswith(SNAPSHOT_SUFFIX):
                producers = ProducerStateManager(path, _FAR_FUTURE_MS)
                with contextlib.suppress(CorruptSnapshot):
                    producers.load_snapshot(self._disk.read_bytes(f"{path}/{name}"), 0, 0)
                largest = max([largest, *producers.producers])
            elif name.endswith(LOG_SUFFIX):
                file = self._disk.open(f"{path}/{name}")
                for found in read_batches(file, 0, file.size()):
                    largest = max(largest, found.header.producer_id)
                    for _, record in _entries_in(found) if topic == TRANSACTION_STATE else ():
                        if record is not None:
                            ids_of_record = record.producer_id, record.previous_producer_id, record.next_producer_id
                            largest = max(largest, *ids_of_record)
                file.close()
        return largest


class _CoordinatorState:
    """What transaction coordinators will know once they have loaded their logs."""

    def __init__(self) -> None:
        self.records: dict[str, TransactionRecord] = {}
        """By transactional id."""
        self.names: dict[str, set[int]] = {}
        """The same of what was set aside: producer ids by transactional id."""

    def read(self, log: PartitionLog) -> None:
        for segment in log.segments:
            for found in segment.batches():
                for transactional_id, record in _entries_in(found):
                    if record is None:
                        self.records.pop(transactional_id, None)
                    else:
                        self.records[transactional_id] = record

    def read_set_aside(self, log: PartitionLog) -> None:
        directory = log.directory
        for name in directory.names():
            if name.endswith(DAMAGED_SUFFIX):
                file = log.disk.open(directory.path_of(name))
                for found in read_batches(file, 0, file.size()):
                    for transactional_id, record in _entries_in(found):
                        if record is not None:
                            self.names.setdefault(transactional_id, set()).add(record.producer_id)
                file.close()

    def will_end(self, opened: HangingTransaction) -> bool:
        return any(
            record.producer_id == opened.producer_id
            and record.state in (TransactionState.ONGOING, *PREPARED)
            and (opened.topic, opened.index) in record.partitions
            for record in self.records.values()
        )

    def name_of(self, producer_id: int) -> str | None:
        return next((name for name, producer_ids in self.names.items() if producer_id in producer_ids), None)


def _open_transactions(log: PartitionLog) -> list[HangingTransaction]:
    found = []
    for first_offset, producer_id in log.producers.transactions.ongoing():
        entry = log.producers.last_entry(producer_id)
        epoch = -1 if entry is None else entry.producer_epoch
        found.append(HangingTransaction(log.topic, log.partition, first_offset, producer_id, epoch))
    return found


def _entries_in(found: FoundBatch) -> list[TransactionEntry]:
    """Of a batch of the transaction coordinator's, as far as it can be read."""
    entries: list[TransactionEntry] = []
    if found.header.is_control or not verify_crc(found.block, found.start, found.header):
        return entries
    batch = found.block[found.start : found.start + found.header.size_bytes]
    with contextlib.suppress(KafkaError, MalformedMessage):
        for record in read_records(batch, _RECORDS_BYTES_MAX):
            if record.key is not None:
                with contextlib.suppress(UnknownRecordType):
                    entries.append(_JOURNAL.decode_entry(record.key, record.value))
    return entries


def _refusal(error: OSError) -> KafkaError:
    raise error
