"""One broker, wired together from its parts over the ports it is given; no sockets, no clock of its own.

The shell (or the simulation) makes a `ServingNode` (`serving.py`), calls `start`, hands it connections and requests,
and calls `stop`. A node knows nothing of connections and handlers, which know it.
"""

import contextlib
import traceback
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from fencepost.broker.cause_journal import CauseJournal
from fencepost.broker.cleaning import Cleaning
from fencepost.broker.cluster_metadata import ClusterMetadata, DraftPartitions, Topic
from fencepost.broker.durability import GroupCommit, PageCache, Syncing
from fencepost.broker.events import (
    AclsChanged,
    BrokerStarted,
    BrokerStopped,
    DamageFound,
    EventFeed,
    InternalError,
    LogCut,
    SideFileDamaged,
    StorageFailed,
    StrayFound,
    TopicCreated,
    TopicDeleted,
)
from fencepost.broker.fetch_sessions import FetchSessions
from fencepost.broker.groups import Groups
from fencepost.broker.housekeeping import Housekeeping
from fencepost.broker.internal_topics import internal_topic_settings
from fencepost.broker.partition import Durability, Partition, find_partition
from fencepost.broker.processor_shares import ProcessorShares
from fencepost.broker.security.authorizer import Authorizer
from fencepost.broker.security.principal import Principal
from fencepost.broker.slices import Slices, Steps, finished
from fencepost.broker.storage import Storage, wrong_directory
from fencepost.broker.transactions import MarkerSender, Transactions
from fencepost.config import (
    BrokerConfig,
    TopicConfig,
    broker_config,
    broker_settings,
    check_served,
    super_users,
    topic_config,
)
from fencepost.internal_topic_names import CONSUMER_OFFSETS, INTERNAL_TOPICS
from fencepost.log.partition_log import LogLimits, PartitionLog
from fencepost.log.recovery import DamagedLog
from fencepost.log.side_files import CorruptSideFile, read_meta_properties
from fencepost.ports import FULL_DISK, Clock, Disk, Flusher, Randomness, Scheduler, Workers
from fencepost.settings import LONG_MAX
from fencepost.topic_names import check_topic_name, colliding_name
from fencepost.wire.acls import AclBinding
from fencepost.wire.catalog import spoken_versions
from fencepost.wire.errors import ErrorCode, KafkaError

DAMAGE_REPORTED_MAX = 1_000
STARTS_BELIEVED_MAX = 1_000_000
"""A leader epoch that far above what the journal knows is no epoch but damage: no CRC covers it."""
# One answer gets at most this share of the memory that is left for answers, and at least this many bytes.
ANSWER_SHARE = 16
ANSWER_BYTES_MIN = 65_536


@dataclass(frozen=True, slots=True)
class Ports:
    clock: Clock
    scheduler: Scheduler
    disk: Disk
    flusher: Flusher
    randomness: Randomness
    workers: Workers


class Node:
    def __init__(self, ports: Ports, data_directory: str, start_settings: Mapping[str, str]) -> None:
        self.clock = ports.clock
        self.scheduler = ports.scheduler
        self.randomness = ports.randomness
        self.disk = ports.disk
        self.workers = ports.workers
        self.data_directory = data_directory
        self.start_settings = dict(start_settings)
        self.config: BrokerConfig = broker_config(self.start_settings)
        check_served(broker_settings(), self.start_settings)
        self.events = EventFeed()
        self.metadata = ClusterMetadata(
            ports.disk, data_directory, ports.randomness, self.disk_refusal, ports.clock.wall_ms
        )
        limits = LogLimits(
            producer_id_expiration_ms=self.config.producer_id_expiration_ms,
            transaction_verification_enabled=self.config.transaction_partition_verification_enable,
            decompressed_batch_max_bytes=self.config.decompressed_batch_max_bytes,
        )
        self.storage = Storage(ports.disk, data_directory, limits)
        self.storage_failure: OSError | None = None
        self._damage_reported: set[str | None] = set()
        self.syncing = Syncing(ports.flusher, ports.scheduler, self.storage_failed, self._internal_error)
        self.group_commit = GroupCommit(self.syncing)
        self.page_cache = PageCache(self.syncing)
        self.partitions: dict[str, list[Partition]] = {}
        self._partitions_by_id: dict[bytes, list[Partition]] = {}
        self.partition_total = 0
        self._in_the_making: dict[str, int] = {}
        """Topics whose partitions are being created, and how many of them."""
        self.cluster_id = ""
        self.fetch_sessions = FetchSessions(self.config.max_incremental_fetch_session_cache_slots, ports.randomness)
        self.parked_requests = 0
        self.unread_bytes = 0
        """The size of answers that wait for their readers, counted by the owner of the sockets."""
        self.slices = Slices(ports.scheduler, ports.clock)
        percentage = self.config.expensive_request_percentage
        self.processor_shares: ProcessorShares | None = None
        if percentage < 100:
            self.processor_shares = ProcessorShares(percentage, self.config.expensive_request_burst_ms)
        self.causes = CauseJournal(
            ports.disk, data_directory, ports.clock, self.config.transaction_cause_journal_max_bytes
        )
        self.events.subscribe(self.causes.on_event)
        self.groups = Groups(self)
        self.markers = MarkerSender(self, self.groups.coordinator.runtime)
        self.transactions = Transactions(self, self.groups.coordinator, self.markers)
        self.api_versions = spoken_versions(
            with_unstable=self.config.unstable_api_versions_enable or self.config.transaction_two_phase_commit_enable
        )
        self.housekeeping = Housekeeping(self)
        self.cleaning = Cleaning(self)
        self.authorizer: Authorizer | None = None
        if self.config.authorizer_class_name:
            self.authorizer = Authorizer(
                map(Principal.parse, super_users(self.config)),
                allow_if_no_acl=self.config.allow_everyone_if_no_acl_found,
            )
        self._endpoints: dict[str, tuple[str, int]] = {}

    # Life

    def start(self) -> None:
        """Open every log and load the coordinators; a restart after a crash recovers here."""
        try:
            self._open_storage()
        except OSError as error:
            if error.errno not in FULL_DISK:
                self.storage.note_failure()
            raise
        self.groups.start()
        self.transactions.start()
        self.housekeeping.start()
        self.cleaning.start()
        self.events.emit(
            BrokerStarted(
                self.config.node_id,
                self.metadata.incarnation,
                len(self.metadata.topics),
                self.partition_total,
                self.storage.was_clean or self.storage.is_new,
            )
        )

    def _open_storage(self) -> None:
        self._examine_metadata()
        properties = self.storage.start(self.config.node_id, self.randomness, self.metadata.broker_epoch)
        self.cluster_id = properties.cluster_id
        for complaint in self.storage.complaints:
            self.events.emit(SideFileDamaged(complaint))
        if not self.storage.is_new and not self.metadata.exists() and self.storage.has_logs():
            raise CorruptSideFile(
                self.metadata.path,
                "it is missing, but there are logs of topics that it should name. Put it back from a backup, or "
                f"run `fencepost repair --data {self.data_directory}` to see what can be done without it",
            )
        self.metadata.load(properties, rewrite=self.storage.is_suspect)
        self._apply_broker_overrides()
        if self.authorizer is not None:
            self.authorizer.add(self.metadata.acls)
        self.causes.load()
        for report in self.storage.set_strays_aside(self.metadata.topics):
            self.events.emit(StrayFound(report))
        opened = [(topic, self._open_logs(topic)) for topic in self.metadata.topics.values()]
        self._check_leader_epochs(opened)
        for topic, logs in opened:
            self._register_opened(topic, logs)
        self.storage.trust_again()

    def _examine_metadata(self) -> None:
        """What cannot be served is refused here, before anything is written."""
        properties = read_meta_properties(self.disk, self.data_directory)
        if properties is not None and properties.node_id != self.config.node_id:
            raise wrong_directory(self.data_directory, properties.node_id, self.config.node_id)
        self.metadata.examine(self.config.node_id, "" if properties is None else properties.directory_id)
        self._apply_broker_overrides()
        for overrides in {tuple(topic.overrides.items()) for topic in self.metadata.topics.values()}:
            topic_config(dict(overrides), self.config)

    def stop(self) -> None:
        """Close every log so that the next start needs no recovery; on a full disk it does, and nothing is lost."""
        self.quiesce()
        try:
            self.metadata.stop()
            self.storage.close(self.logs(), self.metadata.broker_epoch)
        except OSError as error:
            if error.errno not in FULL_DISK:
                # What was not synced can be read until the next power cut, and must not be built upon.
                self.storage.note_failure()
            self.events.emit(StorageFailed(self.data_directory, str(error)))
        self.metadata.close()
        self.causes.close()
        self.events.emit(BrokerStopped(self.config.node_id))

    def quiesce(self) -> None:
        """Stop everything that runs by itself."""
        self.slices.stop()
        self.housekeeping.stop()
        self.cleaning.stop()
        self.groups.stop()
        self.transactions.stop()

    # Clients

    def set_endpoint(self, listener: str, host: str, port: int) -> None:
        """The address that clients of a listener get."""
        self._endpoints[listener] = (host, port)

    def advertised(self, listener: str) -> tuple[str, int]:
        return self._endpoints[listener]

    def request_parked(self) -> None:
        self.parked_requests += 1

    def request_resumed(self) -> None:
        self.parked_requests -= 1

    def count_unread(self, byte_count: int) -> None:
        """Answers wait for their readers (negative: not any more)."""
        self.unread_bytes += byte_count

    def may_park(self) -> bool:
        """Whether one more request may wait; otherwise it is answered with what there is."""
        return self.parked_requests < self.config.parked_requests_max

    def answer_max_bytes(self) -> int:
        """What one fetch may return now: less the more others leave unread, so that there is room for all of them."""
        config = self.config
        share = (config.response_buffers_max_bytes - self.unread_bytes) // ANSWER_SHARE
        if share < ANSWER_BYTES_MIN:
            share = ANSWER_BYTES_MIN
        return share if share < config.fetch_max_bytes else config.fetch_max_bytes

    # Partitions

    def partition(self, topic: str, index: int) -> Partition:
        return find_partition(self.partitions, topic, index)

    def partition_by_id(self, topic_id: bytes, index: int) -> Partition:
        partitions = self._partitions_by_id.get(topic_id)
        if partitions is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        if not 0 <= index < len(partitions):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return partitions[index]

    def all_partitions(self) -> Iterator[Partition]:
        for partitions in self.partitions.values():
            yield from partitions

    def logs(self) -> Iterator[PartitionLog]:
        return (partition.log for partition in self.all_partitions())

    def write_log_starts(self, logs: Iterable[PartitionLog]) -> None:
        """Make the starts of some logs durable."""
        try:
            self.storage.write_log_starts(logs)
        except OSError as error:
            raise self.disk_refusal(error) from error

    # Topics

    def create_topic(
        self, name: str, partition_count: int, overrides: dict[str, str], *, automatically: bool = False
    ) -> Topic:
        """Make a topic that has passed all checks."""
        return finished(self.create_topic_in_steps(name, partition_count, overrides, automatically=automatically))

    def create_topic_in_steps(
        self, name: str, partition_count: int, overrides: dict[str, str], *, automatically: bool = False
    ) -> Steps[Topic]:
        """The same, with others served between one partition and the next; none is visible before the last is there."""
        draft = self.metadata.draft_topic(name, partition_count, overrides, is_internal=name in INTERNAL_TOPICS)
        drafts = self.metadata.draft_partitions(draft.topic_id)
        logs = yield from self._create_logs(draft, range(partition_count), drafts)
        try:
            topic = self.metadata.add_topic(draft, drafts)
        except KafkaError:
            self._discard_logs(logs)
            raise
        self._register(topic, logs)
        self.events.emit(TopicCreated(name, partition_count, automatically))
        return topic

    def check_not_in_the_making(self, name: str) -> None:
        """Nothing else happens to a topic while its partitions are made: they are directories of that name."""
        if name in self._in_the_making:
            raise KafkaError(ErrorCode.REASSIGNMENT_IN_PROGRESS, f"Partitions of topic '{name}' are being created.")

    def create_topic_automatically(self, name: str) -> Topic:
        if name in INTERNAL_TOPICS:
            return self.create_internal_topic(name)
        check_topic_name(name)
        if name in self._in_the_making:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)
        if colliding_name(name, self.metadata.topics) is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        self.check_room_for(self.config.num_partitions)
        return self.create_topic(name, self.config.num_partitions, {}, automatically=True)

    def create_internal_topic(self, name: str) -> Topic:
        """Internal topics on one node have one replica without being asked."""
        self.check_not_in_the_making(name)
        partition_count, overrides = internal_topic_settings(name, self.config)
        topic = self.create_topic(name, partition_count, overrides, automatically=True)
        (self.groups if name == CONSUMER_OFFSETS else self.transactions).topic_created()
        return topic

    def add_partitions(self, name: str, partition_count: int) -> None:
        finished(self.add_partitions_in_steps(name, partition_count))

    def add_partitions_in_steps(self, name: str, partition_count: int) -> Steps[None]:
        topic = self.metadata.topics[name]
        drafts = self.metadata.draft_partitions(topic.topic_id)
        logs = yield from self._create_logs(topic, range(topic.partition_count, partition_count), drafts)
        try:
            self.metadata.set_partition_count(name, partition_count, drafts)
        except KafkaError:
            self._discard_logs(logs)
            raise
        self._register(topic, logs)

    def delete_topic(self, name: str) -> None:
        finished(self.delete_topic_in_steps(name))

    def delete_topic_in_steps(self, name: str) -> Steps[None]:
        """Gone at once for everybody; its directories follow, with others served between one and the next."""
        topic = self.metadata.topics[name]
        self.metadata.delete_topic(name)
        partitions = self.partitions.pop(name)
        del self._partitions_by_id[topic.topic_id]
        self.partition_total -= len(partitions)
        gone = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        for partition in partitions:
            partition.fail(gone)
            partition.log.retire()
        self.cleaning.forget([partition.log for partition in partitions])
        self.groups.topic_deleted(name)
        self.transactions.topic_deleted(name)
        self.events.emit(TopicDeleted(name))
        self._in_the_making[name] = 0
        paths: list[str] = []
        try:
            for partition in partitions:
                with contextlib.suppress(FileNotFoundError):  # it was missing, and so it was offline
                    paths.append(self.storage.delete_log(partition.log))
                yield None
        finally:
            del self._in_the_making[name]
        self.slices.run(self._remove_trees(paths), self._not_removed, starts_at_once=False)

    def _remove_trees(self, paths: list[str]) -> Steps[None]:
        for path in paths:
            self.disk.remove_tree(path)
            yield None

    def _not_removed(self, error: Exception) -> None:
        """They are called deleted: the next start removes them."""
        self.events.emit(StorageFailed(self.data_directory, str(error)))

    def check_room_for(self, partition_count: int) -> None:
        in_the_making = sum(self._in_the_making.values())
        if self.partition_total + in_the_making + partition_count > self.config.max_partitions_per_broker:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"{partition_count} more partitions would exceed "
                f"max.partitions.per.broker={self.config.max_partitions_per_broker}",
            )

    def set_topic_overrides(self, name: str, overrides: dict[str, str]) -> None:
        self.metadata.set_topic_overrides(name, overrides)
        topic = self.metadata.topics[name]
        self._apply_topic_config(topic, topic_config(topic.overrides, self.config))

    def set_broker_overrides(self, overrides: dict[str, str], *, of_all_brokers: bool) -> None:
        if of_all_brokers:
            self.metadata.set_cluster_overrides(overrides)
        else:
            self.metadata.set_broker_overrides(overrides)
        defaults = topic_config({}, self.config)
        self._apply_broker_overrides()
        # Most settings of a broker are no defaults of topics: then there is nothing to do for thousands of them.
        if topic_config({}, self.config) != defaults:
            made: dict[tuple[tuple[str, str], ...], TopicConfig] = {}
            for topic in self.metadata.topics.values():
                own = tuple(topic.overrides.items())
                if own not in made:
                    made[own] = topic_config(topic.overrides, self.config)
                self._apply_topic_config(topic, made[own])

    def create_acls(self, bindings: list[AclBinding], principal: Principal) -> None:
        """Rules count from when they are durable."""
        assert self.authorizer is not None
        self.metadata.add_acls(bindings)
        self.authorizer.add(bindings)
        self.events.emit(AclsChanged(str(principal), len(bindings), 0))

    def delete_acls(self, bindings: list[AclBinding], principal: Principal) -> None:
        assert self.authorizer is not None
        self.metadata.remove_acls(bindings)
        self.authorizer.remove(bindings)
        self.events.emit(AclsChanged(str(principal), 0, len(bindings)))

    def disk_space(self) -> tuple[int, int]:
        """Bytes in all and still free where the data lies."""
        return self.disk.total_bytes(self.data_directory), self.disk.free_bytes(self.data_directory)

    # Inside

    def _apply_broker_overrides(self) -> None:
        texts = {**self.start_settings, **self.metadata.cluster_overrides, **self.metadata.broker_overrides}
        self.config = broker_config(texts)

    def _apply_topic_config(self, topic: Topic, config: TopicConfig) -> None:
        for partition in self.partitions[topic.name]:
            partition.log.update_config(config)
            partition.make_durable_by(self._durability_for(config))

    def _durability_for(self, config: TopicConfig) -> Durability:
        # A topic that asks for a sync every so many records or milliseconds gets one before every acknowledgement.
        is_group = self.config.flush == "group" or config.flush_messages != LONG_MAX or config.flush_ms != LONG_MAX
        return self.group_commit if is_group else self.page_cache

    def _check_leader_epochs(self, opened: list[tuple[Topic, list[PartitionLog]]]) -> None:
        """Every start has leader epochs of its own. Logs with one that the metadata does not know are newer."""
        behind = {}
        for topic, logs in opened:
            for log in logs:
                known = self.metadata.leader_epoch(topic, log.partition)
                if known <= log.epochs.latest < known + STARTS_BELIEVED_MAX:
                    behind[topic.topic_id, log.partition] = log.epochs.latest + 1
        if behind:
            self.metadata.raise_leader_epochs(behind)
            self.events.emit(
                SideFileDamaged(
                    f"{self.metadata.path} is older than the logs, perhaps from a backup: topics, settings, ACLs and "
                    "users that came later are not in it. Leader epochs and producer ids go on above those in the logs"
                )
            )

    def _open_logs(self, topic: Topic) -> list[PartitionLog]:
        config = topic_config(topic.overrides, self.config)
        now_ms = self.clock.wall_ms()
        logs = []
        for index in range(topic.partition_count):
            try:
                log = self.storage.open_log(topic, index, config, now_ms)
                logs.append(log)
                missing = self.storage.missing_at_start(log)
                if missing:
                    reason = f"offsets {missing[0]} to {missing[-1]}, its beginning, are missing; nobody deleted them"
                    self.events.emit(DamageFound(topic.name, index, reason))
                for cut in log.cuts:
                    self.events.emit(LogCut(topic.name, index, cut))
            except (DamagedLog, KafkaError) as error:
                # One that cannot be opened must not keep all the others from being served.
                logs.append(self.storage.offline_log(topic, index, config, error))
                self.events.emit(DamageFound(topic.name, index, f"offline: {error}"))
        return logs

    def _register_opened(self, topic: Topic, logs: list[PartitionLog]) -> None:
        self._register(topic, logs)
        for partition in self.partitions[topic.name]:
            if not partition.log.is_usable:
                partition.fail(partition.log.refusal())

    def _create_logs(self, topic: Topic, indexes: range, drafts: DraftPartitions) -> Steps[list[PartitionLog]]:
        """The files come before the journal says that they exist, so that a full disk leaves no half-made topic."""
        if self.storage_failure is not None:
            raise self.disk_refusal(self.storage_failure)
        config = topic_config(topic.overrides, self.config)
        now_ms = self.clock.wall_ms()
        logs: list[PartitionLog] = []
        self._in_the_making[topic.name] = len(indexes)
        try:
            self.storage.forget(topic.name, indexes)
            for index in indexes:
                logs.append(self.storage.create_log(topic, index, config, now_ms))
                drafts.add(index)
                yield None
        except OSError as error:
            self._discard_logs(logs)
            raise self.disk_refusal(error) from error
        finally:
            del self._in_the_making[topic.name]
        if self.storage_failure is not None:
            raise self.disk_refusal(self.storage_failure)
        return logs

    def _discard_logs(self, logs: list[PartitionLog]) -> None:
        for log in logs:
            try:
                self.disk.remove_tree(self.storage.delete_log(log))
            except OSError as error:
                # The journal does not name it: the next start sets it aside.
                self.events.emit(StorageFailed(str(log.directory), str(error)))

    def _register(self, topic: Topic, logs: list[PartitionLog]) -> None:
        durability = self._durability_for(topic_config(topic.overrides, self.config))
        partitions = self.partitions.setdefault(topic.name, [])
        for log in logs:
            log.report_to(self._log_failed, self.housekeeping.segment_rolled)
        partitions += [
            Partition(topic.name, log.partition, log, self.metadata.leader_epoch(topic, log.partition), durability)
            for log in logs
        ]
        self._partitions_by_id[topic.topic_id] = partitions
        self.partition_total += len(logs)

    def disk_refusal(self, error: OSError) -> KafkaError:
        """What to answer when the disk refused: a full one may have room again, any other is not trusted any more."""
        if error.errno not in FULL_DISK:
            self.storage_failed(error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the data directory cannot be written: {error}")

    def _log_failed(self, error: OSError) -> None:
        """One log noticed that the disk fails: none is trusted any more, as soon as what noticed it is done."""
        self.scheduler.call_soon(lambda: self.storage_failed(error))

    def _internal_error(self, where: str, error: Exception) -> None:
        self.events.emit(InternalError(where, repr(error), "".join(traceback.format_exception(error))))

    def damage_found(self, topic: str, partition: int, error: KafkaError) -> None:
        """Reported once for each place: a reader comes back for it again and again."""
        if error.message not in self._damage_reported and len(self._damage_reported) < DAMAGE_REPORTED_MAX:
            self._damage_reported.add(error.message)
            self.events.emit(DamageFound(topic, partition, error.message or ""))

    def storage_failed(self, error: OSError) -> None:
        """The log directory cannot be trusted any more: refuse everything rather than acknowledge what may be lost."""
        if self.storage_failure is not None:
            return
        self.storage_failure = error
        self.storage.note_failure()
        self.metadata.fail(error)
        self.events.emit(StorageFailed(self.data_directory, str(error)))
        failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the data directory failed: {error}")
        for partition in self.all_partitions():
            partition.log.mark_failed(error)
            partition.fail(failure)
