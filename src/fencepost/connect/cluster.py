"""The cluster that sources write to: its address, its topics, and the blocking clients of one task."""

import time
from collections.abc import Mapping
from typing import Any

from fencepost.client import Admin, BrokerError, NewTopic, PartitionReader, UnknownTopic
from fencepost.client.kafka_types import IsolationLevel, ResourceType
from fencepost.connect.errors import ConnectError
from fencepost.wire.errors import ErrorCode

OFFSETS_TOPIC = "fencepost-connect-offsets"
OFFSETS_TOPIC_PARTITIONS = 25
"""As Kafka Connect makes it: the open transaction of one task then holds few others up."""
OFFSETS_TOPIC_CONFIGS = {
    "cleanup.policy": "compact",
    # A start reads a partition from its beginning, and only segments that are closed are compacted.
    "segment.bytes": str(4 * 1024 * 1024),
    "min.cleanable.dirty.ratio": "0.1",
}
TOPIC_KNOWN_SECONDS = 300.0
"""How long the number of a topic's partitions is taken to be right, as in Java's client."""
DEFAULT_MAX_TIMEOUT_MS = 900_000


class ClusterAddress:
    """Where the brokers are, and the client's settings. The settings may hold credentials and are never shown."""

    def __init__(
        self, bootstrap_servers: str, options: Mapping[str, Any] | None = None, offsets_topic: str = OFFSETS_TOPIC
    ) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.options = dict(options or {})
        self.offsets_topic = offsets_topic

    @property
    def state_topic(self) -> str:
        """Which sources are paused."""
        return f"{self.offsets_topic}.state"

    def admin(self) -> Admin:
        return Admin(self.bootstrap_servers, **self.options)

    def committed_reader(self) -> PartitionReader:
        """Read committed, always: what a zombie has not committed was never a position."""
        return PartitionReader(
            self.bootstrap_servers, isolation_level=IsolationLevel.READ_COMMITTED, max_wait_ms=100, **self.options
        )


def ensure_topic(admin: Admin, name: str, partitions: int, configs: Mapping[str, str] | None = None) -> int:
    """Make a topic if it is missing. Returns its number of partitions."""
    try:
        return len(admin.describe_topic(name).partitions)
    except UnknownTopic:
        pass
    try:
        admin.create_topic(NewTopic(name, partitions, configs=dict(configs or {})))
    except BrokerError as error:
        # Another task was quicker.
        if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
    return _partitions_of_new(admin, name)


def _partitions_of_new(admin: Admin, name: str) -> int:
    deadline = time.monotonic() + 30
    while True:
        try:
            return len(admin.describe_topic(name).partitions)
        except UnknownTopic:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def ensure_offsets_topic(admin: Admin, name: str) -> int:
    """Compacted, or positions would be deleted with time."""
    partitions = ensure_topic(admin, name, OFFSETS_TOPIC_PARTITIONS, OFFSETS_TOPIC_CONFIGS)
    (policy,) = admin.describe_configs(ResourceType.TOPIC, name, keys=["cleanup.policy"])
    if policy.value != "compact":
        raise ConnectError(
            f"the topic {name} has cleanup.policy={policy.value}: positions in it would be deleted with time",
            f"fencepost configs set topic {name} cleanup.policy=compact, or name another with --offsets-topic",
        )
    return partitions


def max_transaction_timeout_ms(admin: Admin) -> int:
    """The longest transaction that the brokers allow; Kafka's default where they do not say."""
    try:
        broker = str(admin.describe_cluster().brokers[0].node_id)
        entries = admin.describe_configs(ResourceType.BROKER, broker, keys=["transaction.max.timeout.ms"])
        return int(next(entry.value for entry in entries if entry.value))
    except (BrokerError, StopIteration, ValueError):
        return DEFAULT_MAX_TIMEOUT_MS
