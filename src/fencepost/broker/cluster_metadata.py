"""What the cluster knows of itself: topics, settings, features, producer id blocks, ACLs.

Kept as Apache Kafka keeps it: the metadata image (`fencepost.metadata.image`) is built from the metadata log, and every
change is a batch of records, synced before it counts. A full disk refuses a change; a sync that fails ends all changes,
since the content of the log is not known any more. On one node the only voter is this process. This is the small port
that another store will implement once there are several brokers: everything else asks `ClusterMetadata`.

`examine` reads and judges, and changes nothing; `load` begins a new epoch of the log, registers the broker and raises
the leader epoch of every partition. A directory with the journal of earlier versions is converted then.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from fencepost.broker.earlier_metadata import JOURNAL_BACKUP_NAME, JOURNAL_NAME, EarlierJournal
from fencepost.config import COARSE_SETTINGS, broker_settings, topic_settings
from fencepost.internal_topic_names import INTERNAL_TOPICS
from fencepost.log.side_files import MetaProperties, decode_uuid
from fencepost.metadata.features import METADATA_VERSION, METADATA_VERSION_MAX, partition_record_version
from fencepost.metadata.image import (
    BROKER_CONFIG,
    MIGRATING_DIRECTORY,
    TOPIC_CONFIG,
    UNASSIGNED_DIRECTORY,
    BrokerRegistration,
    ConfigResource,
    Endpoint,
    MetadataDelta,
    MetadataImage,
    PartitionState,
    acl_record,
    config_record,
    scram_record,
)
from fencepost.metadata.log_files import MetadataLog, MetadataNotSynced, StoredMetadata
from fencepost.metadata.records import MetadataRecord, encode_record
from fencepost.ports import Disk, Randomness
from fencepost.wire.acls import AclBinding
from fencepost.wire.errors import KafkaError
from fencepost.wire.messages import (
    AbortTransactionRecord,
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    ProducerIdsRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
)
from fencepost.wire.scram import MECHANISM_CODES, ScramCredential

DECOY_SECRET_NAME = "scram-decoy-secret"
"""Ours alone: Apache Kafka leaves files that it does not know as they are."""
PRODUCER_ID_BLOCK = 1000
PRODUCER_IDS_SKIPPED = 1_000_000
"""Ids may have been given out that are in no log: this many above the largest one found are not used."""
PRODUCER_ID_BELIEVED_MAX = 2**62
"""A client may write any producer id into its batches; one as large as this was never handed out."""
DECOY_SECRET_BYTES = 32
# A log this many times larger than what is alive is put into a snapshot at the next start.
LOG_SLACK = 2
LOG_BYTES_MIN = 1 << 16

LISTENER_PREFIX = "listener.name."
TRANSACTION_VERSION = "transaction.version"
SUPPORTED_FEATURES = {TRANSACTION_VERSION: (0, 2)}
DEFAULT_FEATURES = {METADATA_VERSION: METADATA_VERSION_MAX, TRANSACTION_VERSION: 2}
OFFERED_FEATURES = {"kraft.version": (0, 1), METADATA_VERSION: (7, METADATA_VERSION_MAX), **SUPPORTED_FEATURES}
"""What the broker's registration says. Apache Kafka offers more: that is how the two are told apart."""


class ForeignMetadata(Exception):
    """Metadata of Apache Kafka's that this broker cannot serve; says what, and the way out."""


@dataclass(slots=True)
class Topic:
    name: str
    topic_id: bytes
    partition_count: int
    is_internal: bool = False
    overrides: dict[str, str] = field(default_factory=dict)


class DraftPartitions:
    """Records of new partitions, made and encoded one by one: for thousands that takes longer than others may wait."""

    def __init__(self, topic_id: bytes, state: PartitionState, metadata_version: int) -> None:
        self._topic_id = topic_id
        self._state = state
        self._metadata_version = metadata_version
        self.records: list[MetadataRecord] = []
        self.values: list[bytes] = []

    def add(self, index: int) -> None:
        record = self._state.to_record(self._topic_id, index, self._metadata_version)
        self.records.append(record)
        self.values.append(encode_record(record))


class ClusterMetadata:
    def __init__(
        self,
        disk: Disk,
        directory: str,
        randomness: Randomness,
        refusal: Callable[[OSError], KafkaError],
        wall_ms: Callable[[], int],
    ) -> None:
        """`refusal` makes the error that a caller gets from an error of the disk."""
        self._disk = disk
        self._directory = directory
        self._randomness = randomness
        self._refusal = refusal
        self._wall_ms = wall_ms
        self._failure: OSError | None = None
        self._log = MetadataLog(disk, directory)
        self._image = MetadataImage()
        self._stored: StoredMetadata | None = None
        self._journal: EarlierJournal | None = None
        self._node_id = 0
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[bytes, Topic] = {}
        self.broker_overrides: dict[str, str] = {}
        self.cluster_overrides: dict[str, str] = {}
        """Settings of all brokers at once; a broker's own go before them."""
        self.features: dict[str, int] = {}
        """Those that this broker knows, as with settings. The image has them all."""
        self.acls: dict[AclBinding, bytes] = {}
        """Each with its id in the log."""
        self._decoy_secret = b""
        self._producer_ids = range(0)
        self._producer_ids_from = 0
        """No id below is handed out from now on, whatever the log says."""
        self.version = 0
        """Grows with every change, for caches of what is made from the metadata."""

    @property
    def path(self) -> str:
        return self._log.path

    @property
    def incarnation(self) -> int:
        """How often the cluster's only controller was started, here or by Apache Kafka."""
        return self._log.epoch

    @property
    def features_epoch(self) -> int:
        """The offset of the newest record, as Kafka counts it."""
        return self._log.end_offset - 1

    @property
    def scram_credentials(self) -> dict[str, dict[str, ScramCredential]]:
        """By user and mechanism."""
        return self._image.scram

    @property
    def broker_epoch(self) -> int:
        """Of the last registration, if it was ours; -1 if there is none, or Apache Kafka has been here since."""
        registration = self._image.brokers.get(self._node_id)
        return registration.epoch if registration is not None and registration.features == OFFERED_FEATURES else -1

    def exists(self) -> bool:
        """Whether there is metadata, of this version or an earlier one."""
        return self._log.exists() or self._disk.exists(f"{self._directory}/{JOURNAL_NAME}")

    # Starting

    def examine(self, node_id: int, directory_id: str) -> None:
        """Read what there is. Raises where this broker must not go on with it, before anything is written.

        CorruptSideFile, UnreadableMetadata or ForeignMetadata.
        """
        self._node_id = node_id
        if self._log.exists():
            self._stored = self._log.read()
            self._apply(self._stored.records)
            self._stored.records.clear()
            self._check_served(decode_uuid(directory_id) if directory_id else UNASSIGNED_DIRECTORY)
        elif self.exists():
            self._journal = EarlierJournal.read(self._disk, self._directory)

    def load(self, properties: MetaProperties, *, rewrite: bool = False) -> None:
        """Begin to serve. `rewrite`: what was read may never have reached the disk."""
        now_ms = self._wall_ms()
        if self._stored is None:
            self._create(properties, now_ms)
        self._forget_journal()
        stored = self._stored
        assert stored is not None
        if rewrite or stored.log_bytes > max(LOG_BYTES_MIN, LOG_SLACK * stored.snapshot_bytes):
            stored = self._log.write_snapshot(stored, self._image.to_records(), now_ms)
        self._log.begin(stored, self._node_id, now_ms)
        self._stored = None
        self._append([*self._abortion(), self._registration(properties), *self._elections()])
        secret_path = f"{self._directory}/{DECOY_SECRET_NAME}"
        if self._disk.exists(secret_path):
            self._decoy_secret = self._disk.read_bytes(secret_path)

    def _create(self, properties: MetaProperties, now_ms: int) -> None:
        records = default_features()
        if self._journal is not None:
            records += self._journal.records(self._node_id, decode_uuid(properties.directory_id), self._randomness)
            if self._journal.decoy_secret:
                self._disk.write_atomically(f"{self._directory}/{DECOY_SECRET_NAME}", self._journal.decoy_secret)
        token = self._randomness.random_bytes(16)
        self._log.create(self._node_id, properties.directory_id, now_ms, records, token)
        self._stored = self._log.read()
        self._apply(self._stored.records)
        self._stored.records.clear()

    def _forget_journal(self) -> None:
        """It is in the log: an earlier version that is started again must not take it for what there is."""
        path = f"{self._directory}/{JOURNAL_NAME}"
        if self._disk.exists(path):
            self._disk.rename(path, f"{self._directory}/{JOURNAL_BACKUP_NAME}")
            self._disk.sync_directory(self._directory)

    def _abortion(self) -> list[MetadataRecord]:
        """Of a change in many batches that a crash has cut short."""
        if not self._image.in_transaction:
            return []
        return [MetadataRecord(AbortTransactionRecord(reason="the controller was started again"))]

    def _registration(self, properties: MetaProperties) -> MetadataRecord:
        registration = BrokerRegistration(
            self._node_id,
            self._randomness.random_bytes(16),
            # That of the batch which this record is in, as Apache Kafka counts.
            self._log.end_offset,
            (Endpoint("PLAINTEXT", "localhost", 9092, 0),),
            OFFERED_FEATURES,
            None,
            is_fenced=False,
            is_in_controlled_shutdown=False,
            directories=(decode_uuid(properties.directory_id),),
            cordoned_directories=None,
        )
        return registration.to_record(self._image.metadata_version)

    def _elections(self) -> list[MetadataRecord]:
        """This process leads every partition, in an epoch in which no other did."""
        version = partition_record_version(self._image.metadata_version)
        isr = [self._node_id]
        records = []
        for topic in self._image.topics_by_id.values():
            for index, state in topic.partitions.items():
                change = PartitionChangeRecord(partition_id=index, topic_id=topic.topic_id, leader=self._node_id)
                if state.isr != (self._node_id,):
                    change.isr = isr
                if state.leader_recovery_state:
                    change.leader_recovery_state = 0
                if version >= 2 and (state.elr or state.last_known_elr):
                    change.eligible_leader_replicas, change.last_known_elr = [], []
                records.append(MetadataRecord(change, version))
        return records

    def _check_served(self, directory_id: bytes) -> None:
        stored = self._stored
        assert stored is not None
        others = [voter.voter_id for voter in stored.voters if voter.voter_id != self._node_id]
        if others:
            raise ForeignMetadata(
                f"{self.path}: controllers with the ids {', '.join(map(str, others))} vote on this metadata. Fencepost "
                "can go on with the directory of a single node (process.roles=broker,controller) alone"
            )
        ours = (directory_id, UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY)
        for topic in self._image.topics.values():
            for index, state in topic.partitions.items():
                if state.replicas != (self._node_id,):
                    raise ForeignMetadata(
                        f"{self.path}: {topic.name}-{index} has replicas on the brokers "
                        f"{', '.join(map(str, state.replicas))}, and this is {self._node_id}. Move it with "
                        "kafka-reassign-partitions before Fencepost goes on with this directory"
                    )
                if state.directories[0] not in ours:
                    raise ForeignMetadata(
                        f"{self.path}: {topic.name}-{index} is in another log directory than this one. Move it here "
                        "with kafka-reassign-partitions (log_dirs): Fencepost has one log directory"
                    )
        for entity in self._image.quotas:
            name = ", ".join(f"{kind} {name or '(default)'}" for kind, name in entity)
            raise ForeignMetadata(
                f"{self.path}: there are client quotas for {name}, which Fencepost does not enforce. Remove them with "
                "kafka-configs on Apache Kafka before Fencepost goes on with this directory"
            )

    # Stopping

    def fail(self, error: OSError) -> None:
        """The disk cannot be trusted any more: refuse every change."""
        self._failure = error

    def stop(self) -> None:
        """Say that this broker is gone. Raises OSError: then the next one waits until its session is over."""
        if self._failure is None and self.broker_epoch >= 0:
            gone = BrokerRegistrationChangeRecord(broker_id=self._node_id, broker_epoch=self.broker_epoch, fenced=1)
            self._append([MetadataRecord(gone)])

    def close(self) -> None:
        self._log.close()

    # Changes

    def draft_topic(
        self, name: str, partition_count: int, overrides: dict[str, str], *, is_internal: bool = False
    ) -> Topic:
        """A topic with an id of its own that nobody knows yet."""
        return Topic(name, self._randomness.random_bytes(16), partition_count, is_internal, dict(overrides))

    def add_topic(self, topic: Topic, partitions: "DraftPartitions | None" = None) -> Topic:
        if partitions is None:
            partitions = self.draft_partitions(topic.topic_id, range(topic.partition_count))
        records = [
            MetadataRecord(TopicRecord(name=topic.name, topic_id=topic.topic_id)),
            *(config_record((TOPIC_CONFIG, topic.name), name, value) for name, value in topic.overrides.items()),
        ]
        self._commit(records, partitions)
        return self.topics[topic.name]

    def delete_topic(self, name: str) -> None:
        self._commit([MetadataRecord(RemoveTopicRecord(topic_id=self.topics[name].topic_id))])

    def set_partition_count(self, name: str, partition_count: int, partitions: "DraftPartitions | None" = None) -> None:
        topic = self.topics[name]
        if partitions is None:
            partitions = self.draft_partitions(topic.topic_id, range(topic.partition_count, partition_count))
        self._commit([], partitions)

    def draft_partitions(self, topic_id: bytes, indexes: Iterable[int] = ()) -> "DraftPartitions":
        """New partitions, to which others may be added one by one before they are committed."""
        directories = self._image.brokers[self._node_id].directories[:1]
        me = (self._node_id,)
        state = PartitionState(me, directories, me, self._node_id, 0, 0)
        draft = DraftPartitions(topic_id, state, self._image.metadata_version)
        for index in indexes:
            draft.add(index)
        return draft

    def set_topic_overrides(self, name: str, overrides: dict[str, str]) -> None:
        self._set_configs((TOPIC_CONFIG, name), overrides)

    def set_broker_overrides(self, overrides: dict[str, str]) -> None:
        self._set_configs((BROKER_CONFIG, str(self._node_id)), overrides)

    def set_cluster_overrides(self, overrides: dict[str, str]) -> None:
        self._set_configs((BROKER_CONFIG, ""), overrides)

    def _set_configs(self, resource: ConfigResource, overrides: dict[str, str]) -> None:
        known = self._known_settings(resource)
        changes = [config_record(resource, name, None) for name in known if name not in overrides]
        changes += [config_record(resource, name, text) for name, text in overrides.items() if known.get(name) != text]
        self._commit(changes)

    def _known_settings(self, resource: ConfigResource) -> dict[str, str]:
        """Apache Kafka may have left others, which stay where they are."""
        is_known = _is_topic_setting if resource[0] == TOPIC_CONFIG else _is_broker_setting
        return {name: text for name, text in self._image.configs.get(resource, {}).items() if is_known(name)}

    def set_feature(self, name: str, level: int) -> None:
        self._commit([_feature_record(name, level)])

    def add_acls(self, bindings: Iterable[AclBinding]) -> None:
        new = dict.fromkeys(binding for binding in bindings if binding not in self.acls)
        self._commit([acl_record(self._randomness.random_bytes(16), binding) for binding in new])

    def remove_acls(self, bindings: Iterable[AclBinding]) -> None:
        ids = dict.fromkeys(self.acls[binding] for binding in bindings if binding in self.acls)
        self._commit([MetadataRecord(RemoveAccessControlEntryRecord(id=acl_id)) for acl_id in ids])

    def set_scram_credentials(self, user: str, credentials: Mapping[str, ScramCredential | None]) -> None:
        """By mechanism; None removes one."""
        known = self.scram_credentials.get(user, {})
        records = []
        for mechanism, credential in credentials.items():
            if credential is not None:
                records.append(scram_record(user, mechanism, credential))
            elif mechanism in known:
                code = MECHANISM_CODES[mechanism]
                records.append(MetadataRecord(RemoveUserScramCredentialRecord(name=user, mechanism=code)))
        self._commit(records)

    def decoy_secret(self) -> bytes:
        """What logins of users who do not exist are made from: made once, and kept, so that they never change."""
        if not self._decoy_secret:
            secret = self._randomness.random_bytes(DECOY_SECRET_BYTES)
            self._decoy_secret = secret
            try:
                self._disk.write_atomically(f"{self._directory}/{DECOY_SECRET_NAME}", secret)
            except OSError:
                pass  # the disk fails, which is reported elsewhere; logins go on
        return self._decoy_secret

    def name_by_id(self, topic_id: bytes) -> str | None:
        topic = self.topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    def leader_epoch(self, topic: Topic, index: int) -> int:
        return self._image.partition(topic.topic_id, index).leader_epoch

    def next_producer_id(self) -> int:
        if not self._producer_ids:
            start = max(self._image.next_producer_id, self._producer_ids_from, 0)
            following = ProducerIdsRecord(
                broker_id=self._node_id, broker_epoch=self.broker_epoch, next_producer_id=start + PRODUCER_ID_BLOCK
            )
            self._commit([MetadataRecord(following)])
            self._producer_ids = range(start, start + PRODUCER_ID_BLOCK)
        first, self._producer_ids = self._producer_ids[0], self._producer_ids[1:]
        return first

    def skip_producer_ids(self, found: Iterable[int]) -> None:
        """Logs have these ids. One that was never handed out as far as the metadata knows means: it is an older copy.

        Nothing is written before the next id is handed out.
        """
        largest = max((each for each in found if each < PRODUCER_ID_BELIEVED_MAX), default=-1)
        if largest >= max(self._image.next_producer_id, self._producer_ids_from, 0):
            self._producer_ids_from = block_above(largest + PRODUCER_IDS_SKIPPED)
            self._producer_ids = range(0)

    def raise_leader_epochs(self, epochs: Mapping[tuple[bytes, int], int]) -> None:
        """Logs have leader epochs above what the metadata knows, which is an older copy. By topic id and index."""
        records = []
        for (topic_id, index), epoch in epochs.items():
            state = self._image.partition(topic_id, index)
            raised = PartitionState(
                state.replicas, state.directories, state.isr, state.leader, epoch, state.partition_epoch + 1
            )
            records.append(raised.to_record(topic_id, index, self._image.metadata_version))
        self._commit(records)

    def _commit(self, records: list[MetadataRecord], partitions: "DraftPartitions | None" = None) -> None:
        if self._failure is not None:
            raise self._refusal(self._failure)
        try:
            self._append(records, partitions)
        except OSError as error:
            raise self._refusal(error) from error

    def _append(self, records: list[MetadataRecord], partitions: "DraftPartitions | None" = None) -> None:
        values = list(map(encode_record, records))
        if partitions is not None:
            records, values = records + partitions.records, values + partitions.values
        if records:
            try:
                self._log.append(values, self._wall_ms())
            except MetadataNotSynced as error:
                self._failure = error
                raise
            self._apply(records)

    def _apply(self, records: Iterable[MetadataRecord]) -> None:
        self.version += 1
        delta = self._image.apply(records)
        self._follow_topics(delta)
        for resource in delta.configs:
            resource_type, name = resource
            if resource_type == TOPIC_CONFIG and name in self.topics:
                self.topics[name].overrides = self._known_settings(resource)
            elif resource == (BROKER_CONFIG, ""):
                self.cluster_overrides = self._known_settings(resource)
            elif resource == (BROKER_CONFIG, str(self._node_id)):
                self.broker_overrides = self._known_settings(resource)
        if delta.features:
            known = self._image.features
            self.features = {name: known[name] for name in SUPPORTED_FEATURES if name in known}
        for binding in delta.acls_removed.values():
            self.acls.pop(binding, None)
        for acl_id, binding in delta.acls_added.items():
            self.acls[binding] = acl_id

    def _follow_topics(self, delta: MetadataDelta) -> None:
        for topic_id in delta.topics_deleted:
            del self.topics[self.topics_by_id.pop(topic_id).name]
        for topic_id, name in delta.topics_created.items():
            topic = Topic(name, topic_id, 0, name in INTERNAL_TOPICS)
            self.topics[name] = self.topics_by_id[topic_id] = topic
        for (topic_id, _), (before, _) in delta.partitions.items():
            if before is None:
                self.topics_by_id[topic_id].partition_count += 1


def _is_topic_setting(name: str) -> bool:
    return name in topic_settings()


def _is_broker_setting(name: str) -> bool:
    return name in broker_settings() or name in COARSE_SETTINGS or name.startswith(LISTENER_PREFIX)


def default_features() -> list[MetadataRecord]:
    """Of a new cluster."""
    return [_feature_record(name, level) for name, level in DEFAULT_FEATURES.items()]


def block_above(producer_id: int) -> int:
    """Where the next block of producer ids begins."""
    return (producer_id // PRODUCER_ID_BLOCK + 1) * PRODUCER_ID_BLOCK


def _feature_record(name: str, level: int) -> MetadataRecord:
    return MetadataRecord(FeatureLevelRecord(name=name, feature_level=level))
