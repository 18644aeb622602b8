"""What the parts of a node may ask of it: coordinators, markers, housekeeping, cleaning. They do not import it."""

from collections.abc import Iterator
from typing import Protocol

from fencepost.broker.cluster_metadata import ClusterMetadata
from fencepost.broker.durability import Syncing
from fencepost.broker.events import EventFeed
from fencepost.broker.partition import Partition
from fencepost.broker.storage import Storage
from fencepost.config import BrokerConfig
from fencepost.log.partition_log import PartitionLog
from fencepost.ports import Clock, Disk, Randomness, Scheduler
from fencepost.wire.errors import KafkaError


class Surroundings(Protocol):
    clock: Clock
    scheduler: Scheduler
    disk: Disk
    randomness: Randomness
    data_directory: str
    config: BrokerConfig
    events: EventFeed
    metadata: ClusterMetadata
    storage: Storage
    storage_failure: OSError | None
    syncing: Syncing
    partitions: dict[str, list[Partition]]

    def all_partitions(self) -> Iterator[Partition]: ...

    def logs(self) -> Iterator[PartitionLog]: ...

    def disk_refusal(self, error: OSError) -> KafkaError:
        """What to answer when the disk refused."""
