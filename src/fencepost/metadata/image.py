"""The metadata image: what a cluster knows of itself, built by applying metadata records in the order of their log.

Everything that changes an image is in this file. `apply` takes records, changes the image and returns what changed as a
`MetadataDelta`; `to_records` gives the records of a snapshot, from which an equal image can be built. Records between
the begin and the end of a metadata transaction are kept back until it ends. Records that nobody here acts on
(delegation tokens, controllers) are kept as they are.
"""

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from fencepost.metadata.features import (
    KRAFT_VERSION,
    METADATA_VERSION,
    METADATA_VERSION_MAX,
    METADATA_VERSION_MIN,
    partition_record_version,
    register_broker_version,
)
from fencepost.metadata.records import MetadataRecord, UnknownRecord, UnreadableMetadata
from fencepost.wire.acls import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from fencepost.wire.messages import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from fencepost.wire.scram import MECHANISM_CODES, ScramCredential

NO_LEADER = -1
NO_LEADER_CHANGE = -2
NO_PRODUCER_ID = -1
MIGRATING_DIRECTORY = bytes(16)
"""Of a replica from before there were several directories."""
UNASSIGNED_DIRECTORY = bytes(15) + b"\x01"
"""Of a replica whose broker has not said yet in which of its directories it lies."""

ConfigResource = tuple[int, str]
"""Type and name; the name of a broker is its id, and empty for what all brokers share."""
TOPIC_CONFIG = 2
BROKER_CONFIG = 4

QuotaEntity = tuple[tuple[str, str | None], ...]
"""Type and name of each part, by type; no name is the default of that type."""

_MECHANISM_NAMES = {code: name for name, code in MECHANISM_CODES.items()}


class InconsistentMetadata(UnreadableMetadata):
    """A record that does not fit what came before it: Apache Kafka's controller would not have written it."""


@dataclass(frozen=True, slots=True)
class PartitionState:
    """Where one partition is, who leads it and who follows, as in Kafka's PartitionRegistration."""

    replicas: tuple[int, ...]
    directories: tuple[bytes, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    leader_recovery_state: int = 0
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()

    @classmethod
    def of_record(cls, record: PartitionRecord) -> "PartitionState":
        return _one_state(
            tuple(record.replicas),
            tuple(record.directories),
            tuple(record.isr),
            record.leader,
            record.leader_epoch,
            record.partition_epoch,
            tuple(record.removing_replicas),
            tuple(record.adding_replicas),
            record.leader_recovery_state,
            tuple(record.eligible_leader_replicas or ()),
            tuple(record.last_known_elr or ()),
        )

    def changed_by(self, record: Any) -> "PartitionState":
        """After a PartitionChangeRecord. The record names no epochs: they follow from its being there."""
        leads_anew = record.leader != NO_LEADER_CHANGE
        replicas = _taken(record.replicas, self.replicas)
        directories = self.directories if record.directories is None else tuple(record.directories)
        return PartitionState(
            replicas,
            _directories(directories, len(replicas)),
            _taken(record.isr, self.isr),
            record.leader if leads_anew else self.leader,
            self.leader_epoch + leads_anew,
            self.partition_epoch + 1,
            _taken(record.removing_replicas, self.removing_replicas),
            _taken(record.adding_replicas, self.adding_replicas),
            self.leader_recovery_state if record.leader_recovery_state < 0 else record.leader_recovery_state,
            _taken(record.eligible_leader_replicas, self.elr),
            _taken(record.last_known_elr, self.last_known_elr),
        )

    def without_elr(self) -> "PartitionState":
        return dataclasses.replace(self, elr=(), last_known_elr=(), partition_epoch=self.partition_epoch + 1)

    def to_record(self, topic_id: bytes, index: int, metadata_version: int) -> MetadataRecord:
        version = partition_record_version(metadata_version)
        record = PartitionRecord(
            partition_id=index,
            topic_id=topic_id,
            replicas=list(self.replicas),
            isr=list(self.isr),
            removing_replicas=list(self.removing_replicas),
            adding_replicas=list(self.adding_replicas),
            leader=self.leader,
            leader_recovery_state=self.leader_recovery_state,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
        )
        if version >= 1:
            record.directories = list(self.directories)
        if version >= 2:
            # Tags that are there only when they say something.
            record.eligible_leader_replicas = list(self.elr) or None
            record.last_known_elr = list(self.last_known_elr) or None
        return MetadataRecord(record, version)


@dataclass(slots=True)
class TopicImage:
    name: str
    topic_id: bytes
    partitions: dict[int, PartitionState] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Endpoint:
    name: str
    host: str
    port: int
    security_protocol: int


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    broker_id: int
    incarnation_id: bytes
    epoch: int
    endpoints: tuple[Endpoint, ...]
    features: dict[str, tuple[int, int]]
    rack: str | None
    is_fenced: bool
    is_in_controlled_shutdown: bool
    directories: tuple[bytes, ...]
    cordoned_directories: tuple[bytes, ...] | None
    """None until the broker has said."""

    @classmethod
    def of_record(cls, record: RegisterBrokerRecord) -> "BrokerRegistration":
        cordoned = record.cordoned_log_dirs
        return cls(
            record.broker_id,
            record.incarnation_id,
            record.broker_epoch,
            tuple(Endpoint(each.name, each.host, each.port, each.security_protocol) for each in record.end_points),
            {each.name: (each.min_supported_version, each.max_supported_version) for each in record.features},
            record.rack,
            record.fenced,
            record.in_controlled_shutdown,
            tuple(record.log_dirs),
            None if cordoned is None else tuple(cordoned),
        )

    def to_record(self, metadata_version: int) -> MetadataRecord:
        version = register_broker_version(metadata_version)
        record = RegisterBrokerRecord(
            broker_id=self.broker_id,
            incarnation_id=self.incarnation_id,
            broker_epoch=self.epoch,
            end_points=[
                RegisterBrokerRecord.BrokerEndpoint(
                    name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol
                )
                for each in self.endpoints
            ],
            features=[
                RegisterBrokerRecord.BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in self.features.items()
            ],
            rack=self.rack,
            fenced=self.is_fenced,
            in_controlled_shutdown=self.is_in_controlled_shutdown,
        )
        if version >= 3:
            record.log_dirs = list(self.directories)
        if version >= 4 and self.cordoned_directories is not None:
            record.cordoned_log_dirs = list(self.cordoned_directories)
        return MetadataRecord(record, version)


@dataclass(slots=True)
class MetadataDelta:
    """What a run of records has changed. Of things that changed more than once, from the first state to the last."""

    topics_created: dict[bytes, str] = field(default_factory=dict)
    topics_deleted: dict[bytes, TopicImage] = field(default_factory=dict)
    """As they were: those that were there before."""
    partitions: dict[tuple[bytes, int], tuple[PartitionState | None, PartitionState]] = field(default_factory=dict)
    """By topic id and index: before (None if it is new) and after. Those of deleted topics are not here."""
    configs: set[ConfigResource] = field(default_factory=set)
    features: set[str] = field(default_factory=set)
    brokers: dict[int, tuple[BrokerRegistration | None, BrokerRegistration | None]] = field(default_factory=dict)
    acls_added: dict[bytes, AclBinding] = field(default_factory=dict)
    acls_removed: dict[bytes, AclBinding] = field(default_factory=dict)
    scram_users: set[str] = field(default_factory=set)
    quotas: set[QuotaEntity] = field(default_factory=set)
    delegation_tokens: set[str] = field(default_factory=set)
    controllers: set[int] = field(default_factory=set)
    producer_ids: bool = False

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in self.__slots__)


class MetadataImage:
    def __init__(self) -> None:
        self.topics: dict[str, TopicImage] = {}
        self.topics_by_id: dict[bytes, TopicImage] = {}
        self.configs: dict[ConfigResource, dict[str, str]] = {}
        self.features: dict[str, int] = {}
        """Finalized levels above 0, `metadata.version` among them once a record has named it."""
        self.brokers: dict[int, BrokerRegistration] = {}
        self.controllers: dict[int, Any] = {}
        """Each the RegisterControllerRecord as it was written."""
        self.acls: dict[bytes, AclBinding] = {}
        """By the id that a record of removal names."""
        self.scram: dict[str, dict[str, ScramCredential]] = {}
        """By user and mechanism."""
        self.quotas: dict[QuotaEntity, dict[str, float]] = {}
        self.delegation_tokens: dict[str, Any] = {}
        """Each the DelegationTokenRecord as it was written, by token id."""
        self.next_producer_id = NO_PRODUCER_ID
        """Where the next block of producer ids begins."""
        self._transaction: list[MetadataRecord] | None = None

    @property
    def metadata_version(self) -> int:
        return self.features.get(METADATA_VERSION, METADATA_VERSION_MIN)

    @property
    def in_transaction(self) -> bool:
        """A metadata transaction has begun and not ended: the records since are not in the image."""
        return self._transaction is not None

    def partition(self, topic_id: bytes, index: int) -> PartitionState:
        try:
            return self.topics_by_id[topic_id].partitions[index]
        except KeyError:
            raise InconsistentMetadata(f"there is no partition {index} of topic {topic_id.hex()}") from None

    def apply(self, records: Iterable[MetadataRecord]) -> MetadataDelta:
        """Raises InconsistentMetadata for a record that does not fit; the image is not to be used any more then."""
        delta = MetadataDelta()
        for record in records:
            self._take(record, delta)
        return delta

    def _take(self, record: MetadataRecord, delta: MetadataDelta) -> None:
        name = record.name
        if name == "BeginTransactionRecord":
            if self._transaction is not None:
                raise InconsistentMetadata("a metadata transaction begins inside another")
            self._transaction = []
        elif name == "EndTransactionRecord":
            for kept in self._end_transaction():
                self._replay(kept, delta)
        elif name == "AbortTransactionRecord":
            self._end_transaction()
        elif self._transaction is not None:
            self._transaction.append(record)
        else:
            self._replay(record, delta)

    def _end_transaction(self) -> list[MetadataRecord]:
        if self._transaction is None:
            raise InconsistentMetadata("a metadata transaction ends that has not begun")
        records, self._transaction = self._transaction, None
        return records

    def _replay(self, record: MetadataRecord, delta: MetadataDelta) -> None:
        try:
            _REPLAY[record.name](self, record.message, delta)
        except (KeyError, ValueError) as error:
            # An enumeration or a name that is not there.
            raise InconsistentMetadata(f"{record.name}: {error!r} in {record.message!r}") from error

    # Topics

    def _topic(self, record: TopicRecord, delta: MetadataDelta) -> None:
        if record.name in self.topics:
            raise InconsistentMetadata(f"topic {record.name!r} is created, and it is there already")
        topic = TopicImage(record.name, record.topic_id)
        self.topics[record.name] = topic
        self.topics_by_id[record.topic_id] = topic
        delta.topics_created[record.topic_id] = record.name

    def _remove_topic(self, record: Any, delta: MetadataDelta) -> None:
        topic = self.topics_by_id.pop(record.topic_id)
        del self.topics[topic.name]
        if self.configs.pop((TOPIC_CONFIG, topic.name), None) is not None:
            delta.configs.add((TOPIC_CONFIG, topic.name))
        # As it was before: partitions that came or changed meanwhile go back.
        for index in list(topic.partitions):
            before, _ = delta.partitions.pop((record.topic_id, index), (topic.partitions[index], None))
            if before is None:
                del topic.partitions[index]
            else:
                topic.partitions[index] = before
        if delta.topics_created.pop(record.topic_id, None) is None:
            delta.topics_deleted[record.topic_id] = topic

    def _partition(self, record: PartitionRecord, delta: MetadataDelta) -> None:
        topic = self.topics_by_id[record.topic_id]
        before = topic.partitions.get(record.partition_id)
        self._set_partition(topic, record.partition_id, before, PartitionState.of_record(record), delta)

    def _change_partition(self, record: Any, delta: MetadataDelta) -> None:
        topic = self.topics_by_id[record.topic_id]
        before = topic.partitions[record.partition_id]
        self._set_partition(topic, record.partition_id, before, before.changed_by(record), delta)

    def _clear_elr(self, record: Any, delta: MetadataDelta) -> None:
        topics = [self.topics[record.topic_name]] if record.topic_name else list(self.topics.values())
        for topic in topics:
            for index, state in topic.partitions.items():
                if state.elr or state.last_known_elr:
                    self._set_partition(topic, index, state, state.without_elr(), delta)

    def _set_partition(
        self, topic: TopicImage, index: int, before: PartitionState | None, after: PartitionState, delta: MetadataDelta
    ) -> None:
        topic.partitions[index] = after
        first, _ = delta.partitions.get((topic.topic_id, index), (before, after))
        delta.partitions[topic.topic_id, index] = (first, after)

    # Settings and features

    def _config(self, record: ConfigRecord, delta: MetadataDelta) -> None:
        resource = (record.resource_type, record.resource_name)
        settings = self.configs.setdefault(resource, {})
        if record.value is None:
            settings.pop(record.name, None)
        else:
            settings[record.name] = record.value
        if not settings:
            del self.configs[resource]
        delta.configs.add(resource)

    def _feature(self, record: FeatureLevelRecord, delta: MetadataDelta) -> None:
        if record.name == KRAFT_VERSION:
            return  # a control record of the log tells that
        if record.name == METADATA_VERSION and not METADATA_VERSION_MIN <= record.feature_level <= METADATA_VERSION_MAX:
            raise UnknownRecord(
                f"{METADATA_VERSION} is {record.feature_level}; levels {METADATA_VERSION_MIN} to "
                f"{METADATA_VERSION_MAX}, those of Apache Kafka 4.3, can be read"
            )
        if record.feature_level:
            self.features[record.name] = record.feature_level
        else:
            self.features.pop(record.name, None)
        delta.features.add(record.name)

    # Brokers

    def _register(self, record: RegisterBrokerRecord, delta: MetadataDelta) -> None:
        self._set_broker(record.broker_id, BrokerRegistration.of_record(record), delta)

    def _unregister(self, record: Any, delta: MetadataDelta) -> None:
        self._registered(record.broker_id, record.broker_epoch)
        self._set_broker(record.broker_id, None, delta)

    def _fence(self, record: Any, delta: MetadataDelta) -> None:
        known = self._registered(record.id, record.epoch)
        self._set_broker(record.id, dataclasses.replace(known, is_fenced=True), delta)

    def _unfence(self, record: Any, delta: MetadataDelta) -> None:
        known = self._registered(record.id, record.epoch)
        self._set_broker(record.id, dataclasses.replace(known, is_fenced=False), delta)

    def _change_registration(self, record: Any, delta: MetadataDelta) -> None:
        known = self._registered(record.broker_id, record.broker_epoch)
        cordoned = record.cordoned_log_dirs
        changed = dataclasses.replace(
            known,
            is_fenced=known.is_fenced if record.fenced == 0 else record.fenced > 0,
            is_in_controlled_shutdown=known.is_in_controlled_shutdown or record.in_controlled_shutdown > 0,
            directories=tuple(record.log_dirs) or known.directories,
            cordoned_directories=known.cordoned_directories if cordoned is None else tuple(cordoned),
        )
        self._set_broker(record.broker_id, changed, delta)

    def _registered(self, broker_id: int, epoch: int) -> BrokerRegistration:
        known = self.brokers.get(broker_id)
        if known is None or known.epoch != epoch:
            found = "none" if known is None else f"epoch {known.epoch}"
            raise InconsistentMetadata(f"a change of broker {broker_id} in epoch {epoch}: {found} is registered")
        return known

    def _set_broker(self, broker_id: int, after: BrokerRegistration | None, delta: MetadataDelta) -> None:
        before = self.brokers.get(broker_id)
        if after is None:
            del self.brokers[broker_id]
        else:
            self.brokers[broker_id] = after
        first, _ = delta.brokers.get(broker_id, (before, after))
        delta.brokers[broker_id] = (first, after)

    def _controller(self, record: Any, delta: MetadataDelta) -> None:
        self.controllers[record.controller_id] = record
        delta.controllers.add(record.controller_id)

    # Rights and users

    def _acl(self, record: AccessControlEntryRecord, delta: MetadataDelta) -> None:
        if record.id in self.acls:
            raise InconsistentMetadata(f"the ACL {record.id.hex()} is created twice")
        binding = AclBinding(
            ResourcePattern(ResourceType(record.resource_type), record.resource_name, PatternType(record.pattern_type)),
            record.principal,
            record.host,
            AclOperation(record.operation),
            AclPermissionType(record.permission_type),
        )
        self.acls[record.id] = delta.acls_added[record.id] = binding

    def _remove_acl(self, record: Any, delta: MetadataDelta) -> None:
        binding = self.acls.pop(record.id)
        if delta.acls_added.pop(record.id, None) is None:
            delta.acls_removed[record.id] = binding

    def _scram(self, record: UserScramCredentialRecord, delta: MetadataDelta) -> None:
        mechanism = _MECHANISM_NAMES[record.mechanism]
        credential = ScramCredential(record.salt, record.iterations, record.stored_key, record.server_key)
        self.scram.setdefault(record.name, {})[mechanism] = credential
        delta.scram_users.add(record.name)

    def _remove_scram(self, record: Any, delta: MetadataDelta) -> None:
        known = self.scram[record.name]
        del known[_MECHANISM_NAMES[record.mechanism]]
        if not known:
            del self.scram[record.name]
        delta.scram_users.add(record.name)

    # What else there is

    def _quota(self, record: ClientQuotaRecord, delta: MetadataDelta) -> None:
        parts = {part.entity_type: part.entity_name for part in record.entity}
        entity = tuple(sorted(parts.items(), key=lambda part: part[0]))
        quotas = self.quotas.setdefault(entity, {})
        if record.remove:
            quotas.pop(record.key, None)
        else:
            quotas[record.key] = record.value
        if not quotas:
            del self.quotas[entity]
        delta.quotas.add(entity)

    def _producer_ids(self, record: ProducerIdsRecord, delta: MetadataDelta) -> None:
        if record.next_producer_id <= self.next_producer_id:
            # Apache Kafka's controller ends at such a record, for good.
            raise InconsistentMetadata(
                f"producer ids from {record.next_producer_id} on, and those below {self.next_producer_id} are given out"
            )
        self.next_producer_id = record.next_producer_id
        delta.producer_ids = True

    def _token(self, record: Any, delta: MetadataDelta) -> None:
        self.delegation_tokens[record.token_id] = record
        delta.delegation_tokens.add(record.token_id)

    def _remove_token(self, record: Any, delta: MetadataDelta) -> None:
        del self.delegation_tokens[record.token_id]
        delta.delegation_tokens.add(record.token_id)

    def _nothing(self, record: Any, delta: MetadataDelta) -> None:
        """A sign of life, and the state of a migration that Kafka 4 does not know any more."""

    # Snapshots

    def to_records(self) -> Iterator[MetadataRecord]:
        """Everything, in the order of Kafka's snapshots: `metadata.version` first, which tells how to read the rest."""
        level = self.metadata_version
        yield MetadataRecord(FeatureLevelRecord(name=METADATA_VERSION, feature_level=level))
        for name, feature_level in self.features.items():
            if name != METADATA_VERSION:
                yield MetadataRecord(FeatureLevelRecord(name=name, feature_level=feature_level))
        for broker in self.brokers.values():
            yield broker.to_record(level)
        for controller in self.controllers.values():
            yield MetadataRecord(controller)
        for topic in self.topics_by_id.values():
            yield MetadataRecord(TopicRecord(name=topic.name, topic_id=topic.topic_id))
            for index, partition in topic.partitions.items():
                yield partition.to_record(topic.topic_id, index, level)
        for (resource_type, resource_name), settings in self.configs.items():
            for name, value in settings.items():
                yield config_record((resource_type, resource_name), name, value)
        for entity, quotas in self.quotas.items():
            parts = [ClientQuotaRecord.EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
            for key, limit in quotas.items():
                yield MetadataRecord(ClientQuotaRecord(entity=parts, key=key, value=limit, remove=False))
        if self.next_producer_id != NO_PRODUCER_ID:
            yield MetadataRecord(ProducerIdsRecord(broker_id=-1, next_producer_id=self.next_producer_id))
        for acl_id, binding in self.acls.items():
            yield acl_record(acl_id, binding)
        for user, credentials in self.scram.items():
            for mechanism, credential in credentials.items():
                yield scram_record(user, mechanism, credential)
        for token in self.delegation_tokens.values():
            yield MetadataRecord(token)


_REPLAY = {
    "TopicRecord": MetadataImage._topic,
    "RemoveTopicRecord": MetadataImage._remove_topic,
    "PartitionRecord": MetadataImage._partition,
    "PartitionChangeRecord": MetadataImage._change_partition,
    "ClearElrRecord": MetadataImage._clear_elr,
    "ConfigRecord": MetadataImage._config,
    "FeatureLevelRecord": MetadataImage._feature,
    "RegisterBrokerRecord": MetadataImage._register,
    "UnregisterBrokerRecord": MetadataImage._unregister,
    "FenceBrokerRecord": MetadataImage._fence,
    "UnfenceBrokerRecord": MetadataImage._unfence,
    "BrokerRegistrationChangeRecord": MetadataImage._change_registration,
    "RegisterControllerRecord": MetadataImage._controller,
    "AccessControlEntryRecord": MetadataImage._acl,
    "RemoveAccessControlEntryRecord": MetadataImage._remove_acl,
    "UserScramCredentialRecord": MetadataImage._scram,
    "RemoveUserScramCredentialRecord": MetadataImage._remove_scram,
    "ClientQuotaRecord": MetadataImage._quota,
    "ProducerIdsRecord": MetadataImage._producer_ids,
    "DelegationTokenRecord": MetadataImage._token,
    "RemoveDelegationTokenRecord": MetadataImage._remove_token,
    "NoOpRecord": MetadataImage._nothing,
    "ZkMigrationStateRecord": MetadataImage._nothing,
}


def config_record(resource: ConfigResource, name: str, value: str | None) -> MetadataRecord:
    """None removes the setting."""
    return MetadataRecord(ConfigRecord(resource_type=resource[0], resource_name=resource[1], name=name, value=value))


def acl_record(acl_id: bytes, binding: AclBinding) -> MetadataRecord:
    pattern = binding.pattern
    return MetadataRecord(
        AccessControlEntryRecord(
            id=acl_id,
            resource_type=pattern.resource_type,
            resource_name=pattern.name,
            pattern_type=pattern.pattern_type,
            principal=binding.principal,
            host=binding.host,
            operation=binding.operation,
            permission_type=binding.permission_type,
        )
    )


def scram_record(user: str, mechanism: str, credential: ScramCredential) -> MetadataRecord:
    return MetadataRecord(
        UserScramCredentialRecord(
            name=user,
            mechanism=MECHANISM_CODES[mechanism],
            salt=credential.salt,
            stored_key=credential.stored_key,
            server_key=credential.server_key,
            iterations=credential.iterations,
        )
    )


def _shared(values: Iterable[Any]) -> tuple[Any, ...]:
    """Most partitions of a cluster share few sets of replicas: one tuple serves all that are equal."""
    return _one_for_all(tuple(values))


@lru_cache(maxsize=4096)
def _one_for_all(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return values


@lru_cache(maxsize=256)
def _one_state(replicas: tuple[int, ...], directories: tuple[bytes, ...], *rest: Any) -> PartitionState:
    """All partitions of a new topic are in the same state, where there are few brokers."""
    return PartitionState(_shared(replicas), _directories(directories, len(replicas)), *rest)


def _taken(changed: list[int] | None, known: tuple[int, ...]) -> tuple[int, ...]:
    return known if changed is None else _shared(changed)


def _directories(directories: Iterable[bytes], replica_count: int) -> tuple[bytes, ...]:
    """As Kafka reads them: where no replica has one, or the record is of a time without, they are being assigned."""
    given = _shared(directories)
    if all(directory == MIGRATING_DIRECTORY for directory in given):
        return _shared([MIGRATING_DIRECTORY] * replica_count)
    if len(given) != replica_count:
        raise ValueError(f"{len(given)} directories for {replica_count} replicas")
    return given
