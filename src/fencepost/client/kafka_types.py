"""The values that the client takes and returns: frozen dataclasses with Kafka's names."""

import dataclasses
import datetime
import enum
from collections.abc import Iterable, Mapping, Sequence

from fencepost.topic_partition import TopicPartition

NO_TOPIC_ID = bytes(16)


class IsolationLevel(enum.IntEnum):
    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class ResourceType(enum.IntEnum):
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(enum.IntEnum):
    UNKNOWN = 0
    TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


class CoordinatorKind(enum.IntEnum):
    GROUP = 0
    TRANSACTION = 1


class Reset(enum.IntEnum):
    """Special timestamps of ListOffsets."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3


def format_address(host: str, port: int) -> str:
    """HOST:PORT; an IPv6 address is in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partition numbers by topic, as requests want them."""
    grouped: dict[str, list[int]] = {}
    for topic, partition in partitions:
        grouped.setdefault(topic, []).append(partition)
    return grouped


@dataclasses.dataclass(frozen=True, slots=True)
class BrokerAddress:
    node_id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        return format_address(self.host, self.port)


@dataclasses.dataclass(frozen=True, slots=True)
class PartitionMetadata:
    partition: int
    leader: int
    leader_epoch: int
    replicas: Sequence[int]
    in_sync_replicas: Sequence[int]
    offline_replicas: Sequence[int] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class TopicMetadata:
    name: str
    topic_id: bytes
    is_internal: bool
    partitions: Mapping[int, PartitionMetadata]

    @property
    def replication_factor(self) -> int:
        return len(self.partitions[0].replicas) if 0 in self.partitions else 0


@dataclasses.dataclass(frozen=True, slots=True)
class NewTopic:
    """Partitions and replication factor of -1 leave the choice to the broker."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class CreatedTopic:
    name: str
    topic_id: bytes
    partitions: int
    replication_factor: int


@dataclasses.dataclass(frozen=True, slots=True)
class ClusterDescription:
    cluster_id: str
    controller_id: int
    brokers: Sequence[BrokerAddress]


@dataclasses.dataclass(frozen=True, slots=True)
class Features:
    finalized: Mapping[str, int]
    supported: Mapping[str, tuple[int, int]]
    epoch: int


@dataclasses.dataclass(frozen=True, slots=True)
class LogDirectory:
    node_id: int
    path: str
    total_bytes: int
    usable_bytes: int
    partition_size_bytes: Mapping[TopicPartition, int]
    error: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class ListedOffset:
    offset: int
    timestamp_ms: int
    leader_epoch: int


@dataclasses.dataclass(frozen=True, slots=True)
class ConfigEntry:
    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    documentation: str | None = None
    synonyms: Sequence[tuple[str, str | None, ConfigSource]] = ()

    @property
    def is_default(self) -> bool:
        return self.source == ConfigSource.DEFAULT_CONFIG


@dataclasses.dataclass(frozen=True, slots=True)
class GroupListing:
    group_id: str
    protocol_type: str
    state: str
    type: str


@dataclasses.dataclass(frozen=True, slots=True)
class GroupMember:
    member_id: str
    client_id: str
    client_host: str
    group_instance_id: str | None
    assignment: Sequence[TopicPartition]


@dataclasses.dataclass(frozen=True, slots=True)
class GroupDescription:
    group_id: str
    type: str
    state: str
    protocol_type: str
    assignor: str
    coordinator: BrokerAddress
    members: Sequence[GroupMember]


@dataclasses.dataclass(frozen=True, slots=True)
class CommittedOffset:
    offset: int
    leader_epoch: int = -1
    metadata: str = ""

    @classmethod
    def of(cls, offset: "CommittedOffset | int") -> "CommittedOffset":
        """A plain offset as a committed one."""
        return cls(offset) if isinstance(offset, int) else offset


@dataclasses.dataclass(frozen=True, slots=True)
class TransactionListing:
    transactional_id: str
    producer_id: int
    state: str
    coordinator_id: int


@dataclasses.dataclass(frozen=True, slots=True)
class TransactionDescription:
    """While a transaction is ending, `partitions` are those that still lack their marker."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int
    coordinator_id: int
    partitions: Sequence[TopicPartition]


@dataclasses.dataclass(frozen=True, slots=True)
class ProducerState:
    """A producer as a partition's leader knows it. `transaction_start_offset` is -1 outside of transactions."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start_offset: int


@dataclasses.dataclass(frozen=True, slots=True)
class RecordMetadata:
    """The place of an acknowledged record. The offset is -1 if the broker only recognized a duplicate."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


@dataclasses.dataclass(frozen=True, slots=True)
class ConsumedRecord:
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: str
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]

    @property
    def timestamp(self) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(self.timestamp_ms / 1000, tz=datetime.UTC)


@dataclasses.dataclass(frozen=True, slots=True)
class ProducerIdentity:
    producer_id: int
    producer_epoch: int


@dataclasses.dataclass(frozen=True, slots=True)
class GroupMetadata:
    """The member of a group whose offsets are committed; without a member the commit is not fenced (KIP-447)."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
