"""The cluster as a client sees it: bootstrap, cached metadata, leaders, coordinators, and bounded retries.

Owns the connections. Admin, producers and readers ask it for the right broker, and report stale metadata with
`forget_topic` and `forget_coordinator`.
"""

import asyncio
import dataclasses
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Self, TypeVar

from fencepost.client import apis
from fencepost.client.apis import Api
from fencepost.client.connection import Connection, connect
from fencepost.client.errors import (
    BrokerError,
    BrokerUnreachable,
    ClientClosed,
    ClientError,
    InvalidAddress,
    NoLeader,
    UnknownPartition,
    UnknownTopic,
    check,
)
from fencepost.client.kafka_types import (
    BrokerAddress,
    CoordinatorKind,
    PartitionMetadata,
    TopicMetadata,
    format_address,
)
from fencepost.client.options import parse_options
from fencepost.wire import messages
from fencepost.wire.errors import ErrorCode

Q = TypeVar("Q")
R = TypeVar("R")
T = TypeVar("T")

BACKOFF_MIN_MS = 50
BACKOFF_MAX_MS = 1_000
CONCURRENT_BACKOFF_MS = 20
"""Between attempts to begin a transaction while the previous one is still being completed."""
DEFAULT_PORT = 9092

# A long-polling fetch delays every later answer on its connection, so fetches have a separate one.
# So do calls that wait for the other members of a group.
GENERAL, FETCHING, MEMBERSHIP = "general", "fetching", "membership"


def parse_addresses(bootstrap_servers: str | Iterable[str]) -> list[tuple[str, int]]:
    """`host:port,[::1]:port` or a sequence of such; a missing port is Kafka's 9092."""
    texts = bootstrap_servers.split(",") if isinstance(bootstrap_servers, str) else list(bootstrap_servers)
    addresses = []
    for text in (text.strip() for text in texts):
        if not text:
            continue
        host, separator, port = text.rpartition(":")
        if not separator or text.endswith("]"):
            host, port = text, str(DEFAULT_PORT)
        host = host.removeprefix("[").removesuffix("]")
        if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            raise InvalidAddress(text)
        addresses.append((host, int(port)))
    if not addresses:
        raise InvalidAddress(bootstrap_servers if isinstance(bootstrap_servers, str) else ",".join(texts))
    return addresses


class Backoff:
    """Exponential backoff with 20 % jitter, up to a maximum delay and a deadline."""

    def __init__(self, timeout_ms: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.time() + timeout_ms / 1000
        self._next_ms = float(BACKOFF_MIN_MS)

    async def wait(self) -> bool:
        """Waits once. Returns False immediately if the deadline would pass."""
        delay = self._next_ms * random.uniform(0.8, 1.2) / 1000
        if self._loop.time() + delay > self._deadline:
            return False
        self._next_ms = min(self._next_ms * 2, BACKOFF_MAX_MS)
        await asyncio.sleep(delay)
        return True


class Cluster:
    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        **kafka: Any,
    ) -> None:
        self._bootstrap = parse_addresses(bootstrap_servers)
        self.bootstrap_servers = tuple(format_address(host, port) for host, port in self._bootstrap)
        self.given_options = dict(kafka)
        """The options for another client of the same cluster, perhaps in another process. They contain secrets."""
        self._options = parse_options(kafka)
        self.request_timeout_ms = self._options.request_timeout_ms
        self.retry_timeout_ms = self._options.retry_timeout_ms
        self.metadata_max_age_ms = self._options.metadata_max_age_ms
        self.cluster_id = ""
        self.controller_id = -1
        self.features: dict[str, int] = {}
        """Finalized features, according to the newest connection."""
        self._features_epoch = -1
        self.brokers: dict[int, BrokerAddress] = {}
        self._topics: dict[str, tuple[TopicMetadata, float]] = {}
        self._coordinators: dict[tuple[CoordinatorKind, str], int] = {}
        self._connections: dict[tuple[str, int, str], Connection] = {}
        self._connecting: dict[tuple[str, int, str], asyncio.Task[Connection]] = {}
        self._is_closed = False

    # Connecting and closing

    async def connect(self) -> None:
        """Connect to a bootstrap address and learn the brokers. Tries each address once, so that it fails fast."""
        if not self.brokers:
            await self._learn([])

    async def close(self) -> None:
        self._is_closed = True
        for task in list(self._connecting.values()):
            task.cancel()
        connections = list(self._connections.values())
        self._connections.clear()
        await asyncio.gather(*(connection.close() for connection in connections), return_exceptions=True)

    def rename(self, client_id: str) -> None:
        """Use this client id in all further requests, so that the operator of the broker sees what the client works
        on."""
        self._options = dataclasses.replace(self._options, client_id=client_id)
        for connection in self._connections.values():
            connection.rename(client_id)

    # Connections

    async def _connection_at(self, host: str, port: int, purpose: str = GENERAL) -> Connection:
        if self._is_closed:
            raise ClientClosed
        key = (host, port, purpose)
        open_one = self._connections.get(key)
        if open_one is not None and open_one.is_usable:
            return open_one
        task = self._connecting.get(key)
        if task is None:
            options = self._options
            connecting = connect(host, port, options.client_id, options.connect_timeout_ms, options.security)
            task = asyncio.create_task(connecting)
            self._connecting[key] = task
            task.add_done_callback(lambda done: self._connected(key, done))
        return await asyncio.shield(task)

    def _connected(self, key: tuple[str, int, str], done: "asyncio.Task[Connection]") -> None:
        self._connecting.pop(key, None)
        if done.cancelled() or done.exception() is not None:
            return
        if self._is_closed:
            done.result().abort("the client is closed")
        else:
            before = self._connections.get(key)
            if before is not None:
                before.retire()
            made = self._connections[key] = done.result()
            if made.features_epoch >= self._features_epoch:
                self.features, self._features_epoch = dict(made.features), made.features_epoch

    async def connection_to(self, node_id: int, purpose: str = GENERAL) -> Connection:
        address = self.brokers.get(node_id)
        if address is None:
            raise BrokerUnreachable(f"broker {node_id}", "it is not in the cluster's metadata")
        return await self._connection_at(address.host, address.port, purpose)

    def open_connection_to(self, node_id: int) -> Connection | None:
        """The connection to a broker if there is an open one, otherwise None."""
        address = self.brokers.get(node_id)
        found = None if address is None else self._connections.get((address.host, address.port, GENERAL))
        return found if found is not None and found.is_usable else None

    async def any_connection(self) -> Connection:
        for (_, _, purpose), connection in self._connections.items():
            if connection.is_usable and purpose == GENERAL:
                return connection
        known = [(broker.host, broker.port) for broker in self.brokers.values()]
        failure: ClientError | None = None
        for host, port in dict.fromkeys([*known, *self._bootstrap]):
            try:
                return await self._connection_at(host, port)
            except ClientClosed:
                raise
            except ClientError as error:
                failure = failure or error
        assert failure is not None
        raise failure

    # Retries

    async def retrying(
        self, attempt: Callable[[], Awaitable[T]], *, fatal: frozenset[ErrorCode] = frozenset(), timeout_ms: int = -1
    ) -> T:
        """Repeats an attempt that fails with a retriable error until the time is up. Codes in `fatal` are not
        retried."""
        backoff = Backoff(self.retry_timeout_ms if timeout_ms < 0 else timeout_ms)
        while True:
            try:
                return await attempt()
            except ClientError as error:
                is_fatal = isinstance(error, BrokerError) and error.code in fatal
                if not error.is_retriable or is_fatal or not await backoff.wait():
                    raise

    async def call_any(self, api: Api[Q, R], request: Q) -> R:
        connection = await self.any_connection()
        return await connection.call(api, request, self.request_timeout_ms)

    async def call_node(
        self, node_id: int, api: Api[Q, R], request: Q, *, purpose: str = GENERAL, timeout_ms: int | None = None
    ) -> R:
        connection = await self.connection_to(node_id, purpose)
        return await connection.call(api, request, self.request_timeout_ms if timeout_ms is None else timeout_ms)

    async def call_controller(self, api: Api[Q, R], request: Q) -> R:
        """Calls the controller, as older clusters require. In KRaft mode any broker is returned as the controller and
        forwards the request."""
        if self.controller_id not in self.brokers:
            return await self.call_any(api, request)
        return await self.call_node(self.controller_id, api, request)

    async def call_coordinator(
        self,
        kind: CoordinatorKind,
        key: str,
        api: Api[Q, R],
        request: Q,
        *,
        purpose: str = GENERAL,
        timeout_ms: int | None = None,
    ) -> R:
        node_id = await self.coordinator(kind, key)
        try:
            return await self.call_node(node_id, api, request, purpose=purpose, timeout_ms=timeout_ms)
        except BrokerUnreachable:
            self.forget_coordinator(kind, key)
            raise

    # Metadata

    async def _learn(self, topics: Sequence[str] | None) -> messages.MetadataResponse:
        """One Metadata call; None asks for every topic."""
        wanted = (
            None if topics is None else [messages.MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
        )
        request = messages.MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        answer = await self.call_any(apis.METADATA, request)
        check(answer.error_code, "metadata")
        self.brokers = {
            broker.node_id: BrokerAddress(broker.node_id, broker.host, broker.port, broker.rack)
            for broker in answer.brokers
        }
        self.cluster_id = answer.cluster_id or ""
        self.controller_id = answer.controller_id
        return answer

    async def topics(self) -> Mapping[str, TopicMetadata]:
        """Every topic of the cluster, not from the cache."""
        answer = await self.retrying(lambda: self._learn(None))
        known = [self._remember(topic) for topic in answer.topics if topic.error_code == ErrorCode.NONE]
        return {topic.name: topic for topic in known}

    async def topic(self, name: str) -> TopicMetadata:
        """One topic, from the cache if the entry is fresh. Raises UnknownTopic."""
        return self.cached_topic(name) or await self.refresh_topic(name)

    async def refresh_topic(self, name: str) -> TopicMetadata:
        return await self.retrying(
            lambda: self._topic_once(name), fatal=frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
        )

    async def _topic_once(self, name: str) -> TopicMetadata:
        answer = await self._learn([name])
        for topic in answer.topics:
            if topic.name == name:
                if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    self._topics.pop(name, None)
                    raise UnknownTopic(name)
                check(topic.error_code, f"topic {name!r}")
                return self._remember(topic)
        raise UnknownTopic(name)

    def _remember(self, topic: Any) -> TopicMetadata:
        partitions = {
            partition.partition_index: PartitionMetadata(
                partition=partition.partition_index,
                leader=partition.leader_id,
                leader_epoch=partition.leader_epoch,
                replicas=tuple(partition.replica_nodes),
                in_sync_replicas=tuple(partition.isr_nodes),
                offline_replicas=tuple(partition.offline_replicas),
            )
            for partition in sorted(topic.partitions, key=lambda partition: partition.partition_index)
        }
        metadata = TopicMetadata(topic.name, topic.topic_id, topic.is_internal, partitions)
        fresh_until = asyncio.get_running_loop().time() + self.metadata_max_age_ms / 1000
        self._topics[topic.name] = (metadata, fresh_until)
        return metadata

    def cached_topic(self, name: str) -> TopicMetadata | None:
        """The cached metadata; None if there is none or it is too old."""
        cached = self._topics.get(name)
        return cached[0] if cached is not None and cached[1] > asyncio.get_running_loop().time() else None

    def forget_topic(self, name: str) -> None:
        self._topics.pop(name, None)

    async def leader(self, topic: str, partition: int) -> PartitionMetadata:
        """The partition with its leader. Raises UnknownPartition, or NoLeader if it currently has none."""
        metadata = await self.topic(topic)
        found = metadata.partitions.get(partition)
        if found is None:
            metadata = await self.refresh_topic(topic)
            found = metadata.partitions.get(partition)
            if found is None:
                raise UnknownPartition(topic, partition, len(metadata.partitions))
        if found.leader < 0:
            self.forget_topic(topic)
            raise NoLeader(topic, partition)
        return found

    # Coordinators

    async def coordinator(self, kind: CoordinatorKind, key: str) -> int:
        node_id = self._coordinators.get((kind, key))
        if node_id is not None and node_id in self.brokers:
            return node_id
        return await self.retrying(lambda: self._coordinator_once(kind, key))

    async def _coordinator_once(self, kind: CoordinatorKind, key: str) -> int:
        answer = await self.call_any(
            apis.FIND_COORDINATOR, messages.FindCoordinatorRequest(key=key, key_type=int(kind))
        )
        check(answer.error_code, f"coordinator of {kind.name.lower()} {key!r}", answer.error_message)
        self.brokers.setdefault(answer.node_id, BrokerAddress(answer.node_id, answer.host, answer.port))
        self._coordinators[kind, key] = answer.node_id
        return answer.node_id

    def forget_coordinator(self, kind: CoordinatorKind, key: str) -> None:
        self._coordinators.pop((kind, key), None)


class ClusterCalls:
    """Sends its requests through the given cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        """For requests that no method offers."""


class ClusterSession(ClusterCalls):
    """Owns its cluster: connected by `start` and closed by `close`, or by an `async with` block."""

    async def start(self) -> None:
        await self.cluster.connect()

    async def close(self) -> None:
        await self.cluster.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await self.close()
