"""What the controller decides on: the image, what follows from it, heartbeats, and its own settings.

`replay` is how the image changes, and with it the indexes; nothing else here changes anything. The modules beside this
one ask it and never each other's part of the state.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from fencepost.config import BROKER_DEFAULT_OF, COARSER_THAN, BrokerConfig, topic_settings
from fencepost.metadata.controller.heartbeats import Heartbeats
from fencepost.metadata.controller.partition_change import Election, PartitionChange, Wanted, is_reassigning
from fencepost.metadata.controller.placement import Candidate, Placer
from fencepost.metadata.controller.replica_index import ReplicaIndex
from fencepost.metadata.image import (
    BROKER_CONFIG,
    MIGRATING_DIRECTORY,
    NO_LEADER,
    TOPIC_CONFIG,
    UNASSIGNED_DIRECTORY,
    BrokerRegistration,
    MetadataDelta,
    MetadataImage,
    PartitionState,
)
from fencepost.metadata.records import MetadataRecord
from fencepost.ports import Randomness
from fencepost.wire.errors import ErrorCode, KafkaError

RESERVED_DIRECTORIES = frozenset(bytes(15) + bytes([number]) for number in range(100))
DIRECTORIES_SINCE = 17
CORDONED_SINCE = 30
_DASH = 62
"""The six bits that base64 writes as a dash."""
ELIGIBLE_LEADER_REPLICAS = "eligible.leader.replicas.version"
MIN_INSYNC_REPLICAS = "min.insync.replicas"
UNCLEAN_ELECTION = "unclean.leader.election.enable"
CONTROLLED_SHUTDOWN_VERSION = 1
DIRECTORY_CHANGE_VERSION = 2
CORDON_CHANGE_VERSION = 3


_AS_IT_IS = Wanted()
FROM_TOPIC, FROM_NODE, FROM_CLUSTER, FROM_START, FROM_DEFAULT = 1, 2, 3, 4, 5


class Call(NamedTuple):
    """What there is to know of a request besides what it says."""

    version: int
    now_ms: int
    is_forwarded: bool = False
    """A broker has checked it and passed it on."""


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    node_id: int
    cluster_id: str
    config: BrokerConfig = field(default_factory=BrokerConfig)
    static: Mapping[str, str] = field(default_factory=dict)
    """Settings as they were given at the start."""
    session_timeout_ms: int = 9_000
    elections_per_round_max: int = 1_000


@dataclass(slots=True)
class Decision:
    """An answer, and the records that must be durable before it is given."""

    answer: Any
    records: list[MetadataRecord] = field(default_factory=list)
    stopping_broker: int | None = None
    """It is in controlled shutdown: the others must have applied the log up to here before it may go."""


class ControllerState:
    def __init__(self, settings: ControllerSettings, randomness: Randomness, placer: Placer) -> None:
        self.settings = settings
        self.randomness = randomness
        self.placer = placer
        self.image = MetadataImage()
        self.heartbeats = Heartbeats(settings.session_timeout_ms)
        self.next_offset = 0
        self.registration_offsets: dict[int, int] = {}
        """Where the registration of each broker is in the log: it has caught up once it is there."""
        self.kraft_version = 0
        """In control records, which are no part of the image."""
        self.in_sync = ReplicaIndex()
        """Under NO_LEADER those without a leader."""
        self.leaders = ReplicaIndex()
        self.eligible = ReplicaIndex()
        self.reassigning: dict[bytes, dict[int, None]] = {}
        self.imbalanced: dict[tuple[bytes, int], None] = {}
        self._folded_names: dict[str, dict[str, None]] = {}
        """Topics with a dot or an underscore in their names, by the name that their metrics have."""

    def new_id(self) -> bytes:
        """A random UUID (version 4) that is not written with a dash at its beginning, as Kafka's are not."""
        while True:
            made = bytearray(self.randomness.random_bytes(16))
            made[6] = made[6] & 0x0F | 0x40
            made[8] = made[8] & 0x3F | 0x80
            if made[0] >> 2 != _DASH:
                return bytes(made)

    # Applying records

    def replay(self, records: Iterable[MetadataRecord], base_offset: int) -> None:
        for offset, record in enumerate(records, base_offset):
            delta = self.image.apply((record,))
            self._follow(delta)
            if record.name == "RegisterBrokerRecord":
                self.registration_offsets[record.message.broker_id] = offset
            self.next_offset = offset + 1

    def _follow(self, delta: MetadataDelta) -> None:
        for name in delta.topics_created.values():
            if has_collision_characters(name):
                self._folded_names.setdefault(folded(name), {})[name] = None
        for topic_id, topic in delta.topics_deleted.items():
            for index, partition in topic.partitions.items():
                self._follow_partition(topic_id, index, partition, None)
            if has_collision_characters(topic.name):
                alike = self._folded_names[folded(topic.name)]
                del alike[topic.name]
                if not alike:
                    del self._folded_names[folded(topic.name)]
        for (topic_id, index), (before, after) in delta.partitions.items():
            self._follow_partition(topic_id, index, before, after)
        for broker_id, (known, registered) in delta.brokers.items():
            if registered is None:
                self.registration_offsets.pop(broker_id, None)
                self.heartbeats.forget(broker_id)
                continue
            if known is not None and known.epoch != registered.epoch:
                self.heartbeats.forget(broker_id)
            self.heartbeats.register(broker_id, is_fenced=registered.is_fenced)

    def _follow_partition(
        self, topic_id: bytes, index: int, before: PartitionState | None, after: PartitionState | None
    ) -> None:
        self.in_sync.update(topic_id, index, _in_sync(before), _in_sync(after))
        self.leaders.update(topic_id, index, _leader(before), _leader(after))
        self.eligible.update(topic_id, index, before.elr if before else (), after.elr if after else ())
        key = (topic_id, index)
        if after is None or after.leader == after.replicas[0]:
            self.imbalanced.pop(key, None)
        else:
            self.imbalanced[key] = None
        is_moving = after is not None and is_reassigning(after)
        if is_moving:
            self.reassigning.setdefault(topic_id, {}).setdefault(index)
        elif topic_id in self.reassigning:
            self.reassigning[topic_id].pop(index, None)
            if not self.reassigning[topic_id]:
                del self.reassigning[topic_id]

    def colliding_name(self, name: str) -> str | None:
        """A topic whose metrics would have the same name."""
        return next(iter(self._folded_names.get(folded(name), ())), None) if has_collision_characters(name) else None

    # Brokers

    def checked_broker(self, broker_id: int, epoch: int) -> BrokerRegistration:
        known = self.image.brokers.get(broker_id)
        if known is None:
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"No broker registration found for broker id {broker_id}")
        if known.epoch != epoch:
            raise KafkaError(
                ErrorCode.STALE_BROKER_EPOCH, f"Expected broker epoch {known.epoch}, but got broker epoch {epoch}"
            )
        return known

    def is_active(self, broker_id: int) -> bool:
        known = self.image.brokers.get(broker_id)
        return known is not None and not known.is_fenced and not known.is_in_controlled_shutdown

    def default_directory(self, broker_id: int) -> bytes:
        if self.image.metadata_version < DIRECTORIES_SINCE:
            return MIGRATING_DIRECTORY
        known = self.image.brokers.get(broker_id)
        if known is None:
            return UNASSIGNED_DIRECTORY
        if not known.directories:
            return MIGRATING_DIRECTORY
        return known.directories[0] if len(known.directories) == 1 else UNASSIGNED_DIRECTORY

    def has_online_directory(self, broker_id: int, directory: bytes) -> bool:
        known = self.image.brokers.get(broker_id)
        return known is not None and is_online(directory, known.directories)

    def candidates(self) -> list[Candidate]:
        """Brokers that may take new replicas."""
        found = []
        for broker_id, life in self.heartbeats.lives.items():
            known = self.image.brokers[broker_id]
            if not life.is_shutting_down and _has_room(known):
                found.append(Candidate(broker_id, known.rack, life.is_fenced))
        return found

    # Settings of topics

    def effective_setting(self, name: str, topic_texts: Mapping[str, str]) -> tuple[str, int]:
        """A topic setting as it counts, and where it comes from: the topic, this controller, all nodes, the start."""
        if name in topic_texts:
            return topic_texts[name], FROM_TOPIC
        configs = self.image.configs
        layers = (
            (configs.get((BROKER_CONFIG, str(self.settings.node_id)), {}), FROM_NODE),
            (configs.get((BROKER_CONFIG, ""), {}), FROM_CLUSTER),
            (self.settings.static, FROM_START),
        )
        for texts, source in layers:
            for synonym, unit in _synonyms(name):
                if synonym in texts:
                    return texts[synonym] if unit == 1 else str(int(texts[synonym]) * unit), source
        setting = topic_settings()[name]
        return setting.render(setting.default), FROM_DEFAULT

    def topic_setting(self, topic: str, name: str) -> str:
        return self.effective_setting(name, self.image.configs.get((TOPIC_CONFIG, topic), {}))[0]

    def min_isr(self, topic: str) -> int:
        """Never more than the partitions have."""
        return min(
            int(self.topic_setting(topic, MIN_INSYNC_REPLICAS)), len(self.image.topics[topic].partitions[0].replicas)
        )

    def elects_uncleanly(self, topic: str) -> bool:
        return self.topic_setting(topic, UNCLEAN_ELECTION).lower() == "true"

    @property
    def keeps_elr(self) -> bool:
        return self.image.features.get(ELIGIBLE_LEADER_REPLICAS, 0) >= 1

    # Changes of partitions

    def change(
        self,
        topic_id: bytes,
        index: int,
        *,
        wanted: Wanted = _AS_IT_IS,
        election: Election | None = None,
        gone: Iterable[int] = (),
        here: int | None = None,
    ) -> MetadataRecord | None:
        """The record of a change, if there is one. `gone` cannot lead and `here` can, whatever the image says."""
        topic = self.image.topics_by_id[topic_id]
        partition = topic.partitions[index]
        directories = dict(zip(partition.replicas, partition.directories, strict=True))
        gone = frozenset(gone)

        def may_lead(broker_id: int) -> bool:
            if broker_id in gone or not (broker_id == here or self.is_active(broker_id)):
                return False
            # One that led once may be no replica any more.
            return broker_id in directories and self.has_online_directory(broker_id, directories[broker_id])

        if election is None:
            election = Election.UNCLEAN if self.elects_uncleanly(topic.name) else Election.ONLINE
        change = PartitionChange(
            partition,
            may_lead=may_lead,
            default_directory=self.default_directory,
            min_isr=self.min_isr(topic.name),
            keeps_elr=self.keeps_elr,
            metadata_version=self.image.metadata_version,
            election=election,
            wanted=wanted,
        )
        return change.record(topic_id, index)

    def without_broker(
        self,
        partitions: Iterator[tuple[bytes, int]],
        *,
        gone: int | None = None,
        here: int | None = None,
        stopped_uncleanly: int | None = None,
    ) -> list[MetadataRecord]:
        """The changes of these partitions when a broker is gone, or is there again."""
        lost = {broker_id for broker_id in (gone, stopped_uncleanly) if broker_id is not None}
        records = []
        for topic_id, index in partitions:
            isr = [replica for replica in self.image.partition(topic_id, index).isr if replica not in lost]
            wanted = Wanted(isr=isr, stopped_uncleanly=stopped_uncleanly)
            record = self.change(topic_id, index, wanted=wanted, gone=lost, here=here)
            if record is not None:
                records.append(record)
        return records


@cache
def _synonyms(name: str) -> tuple[tuple[str, int], ...]:
    """The settings of a node that a topic's falls back on, with the milliseconds in their unit, the first first."""
    fine = BROKER_DEFAULT_OF.get(name)
    return () if fine is None else ((fine, 1), *COARSER_THAN.get(fine, {}).items())


def has_collision_characters(name: str) -> bool:
    return "." in name or "_" in name


def folded(name: str) -> str:
    return name.replace(".", "_")


def is_online(directory: bytes, online: tuple[bytes, ...]) -> bool:
    """A replica whose directory nobody has named yet is taken to be there; one on a lost directory is not."""
    if directory in (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY) or not online:
        return True
    return directory in online


def _has_room(known: BrokerRegistration) -> bool:
    if not known.directories or known.cordoned_directories is None:
        return True
    return not set(known.directories) <= set(known.cordoned_directories)


def _in_sync(partition: PartitionState | None) -> tuple[int, ...]:
    if partition is None:
        return ()
    return (*partition.isr, NO_LEADER) if partition.leader == NO_LEADER else partition.isr


def _leader(partition: PartitionState | None) -> tuple[int, ...]:
    return () if partition is None or partition.leader == NO_LEADER else (partition.leader,)
