"""The two controllers that are asked the same: Apache Kafka's in its own process, ours behind a socket in a thread.

What Apache Kafka draws at random is given to ours: ids of topics and ACLs, and where replicas go. A placement is taken
over only after both have been checked against what every placement must keep.
"""

import asyncio
import contextlib
import socket
import threading
import uuid
from collections import deque
from collections.abc import Sequence
from itertools import groupby
from types import TracebackType
from typing import Any, Self

from fencepost.config import BrokerConfig
from fencepost.metadata.controller.features import SUPPORTED
from fencepost.metadata.controller.machine import Controller
from fencepost.metadata.controller.placement import Candidate, StripedPlacer
from fencepost.metadata.controller.service import ControllerService, Endpoint, MemoryLog, bootstrap_records
from fencepost.metadata.controller.state import ControllerSettings
from fencepost.metadata.records import MetadataRecord, decode_record
from fencepost.shell.controller_server import ControllerServer
from fencepost.shell.ports import RealRandomness
from fencepost.wire.batch import iterate_headers
from fencepost.wire.records import read_records
from tests.peers.kafka_controller import NODE_ID, ApacheController
from tests.peers.raw import RawClient
from tests.peers.schemas import Message

METADATA_TOPIC_ID = str(uuid.UUID(int=1))
OBSERVER_ID = 1_000
FETCH_VERSION = 17
EPOCH = 1
LATEST_LEVELS = [(name, high) for name, (_, high) in SUPPORTED.items() if name != "kraft.version"]


class Side:
    """One of the two, asked over the wire."""

    def __init__(self, address: tuple[str, int], cluster_id: str) -> None:
        self.cluster_id = cluster_id
        self._client = RawClient(address)
        self._reader = RawClient(address)
        self.end_offset = 0
        self._epoch = 0

    def call(self, api: str, version: int, message: Message) -> Message:
        return self._client.call(api, version, message)

    def new_records(self) -> list[tuple[int, MetadataRecord]]:
        """What was written since the last time, as an observer of the quorum is given it."""
        found: list[tuple[int, MetadataRecord]] = []
        while True:
            partition = self.fetch(self.end_offset, self._epoch)["Responses"][0]["Partitions"][0]
            assert partition["ErrorCode"] == 0, partition
            content = partition["Records"]
            if not content:
                assert partition["HighWatermark"] == self.end_offset, partition
                return found
            for position, header in iterate_headers(content):
                if not header.is_control:
                    for record in read_records(content, 8 << 20, position):
                        assert record.value is not None
                        found.append((record.offset, decode_record(record.value)))
                self.end_offset, self._epoch = header.next_offset, header.partition_leader_epoch

    def fetch(self, offset: int, last_epoch: int, leader_epoch: int = EPOCH) -> Message:
        partition = {
            "Partition": 0, "CurrentLeaderEpoch": leader_epoch, "FetchOffset": offset, "LastFetchedEpoch": last_epoch,
            "LogStartOffset": 0, "PartitionMaxBytes": 0,
        }  # fmt: skip
        request = {
            "ClusterId": self.cluster_id, "ReplicaState": {"ReplicaId": OBSERVER_ID, "ReplicaEpoch": -1},
            "MaxWaitMs": 0, "MinBytes": 0, "MaxBytes": 8 << 20,
            "Topics": [{"TopicId": METADATA_TOPIC_ID, "Partitions": [partition]}],
        }  # fmt: skip
        return self._reader.call("Fetch", FETCH_VERSION, request)

    def close(self) -> None:
        self._client.close()
        self._reader.close()


class GivenRandomness:
    """Gives the ids that it was told, and random bytes after them."""

    def __init__(self) -> None:
        self.ids: deque[bytes] = deque()

    def random_bytes(self, count: int) -> bytes:
        if count == 16 and self.ids:
            return self.ids.popleft()
        return RealRandomness().random_bytes(count)


class GivenPlacements:
    """Places as ours does, checks that, and then takes what Apache Kafka chose, after the same check."""

    def __init__(self) -> None:
        self._own = StripedPlacer(RealRandomness())
        self.given: deque[list[tuple[int, ...]]] = deque()
        self.complaints: list[str] = []
        self.checked = 0

    def place(
        self, partition_count: int, replication_factor: int, candidates: Sequence[Candidate]
    ) -> list[tuple[int, ...]]:
        own = self._own.place(partition_count, replication_factor, candidates)
        self._check("ours", own, replication_factor, candidates)
        if not self.given:
            return own
        given = self.given.popleft()
        self._check("Apache's", given, replication_factor, candidates)
        if len(given) != partition_count:
            self.complaints.append(f"{len(given)} placements for {partition_count} partitions")
        return given

    def _check(
        self, whose: str, placement: Sequence[Sequence[int]], factor: int, candidates: Sequence[Candidate]
    ) -> None:
        self.checked += 1
        by_id = {each.broker_id: each for each in candidates}
        racks = {each.rack for each in candidates}
        unfenced = [each.broker_id for each in candidates if not each.is_fenced]
        for replicas in placement:
            if not set(replicas) <= set(by_id) or len(set(replicas)) != len(replicas) or len(replicas) != factor:
                self.complaints.append(f"{whose}: {replicas} of {candidates} with {factor} replicas")
            elif by_id[replicas[0]].is_fenced:
                self.complaints.append(f"{whose}: the first of {replicas} is fenced: {candidates}")
            elif len({by_id[each].rack for each in replicas}) < min(factor, len(racks)) and len(racks) == len(by_id):
                self.complaints.append(f"{whose}: {replicas} share racks: {candidates}")
        # Whoever is there leads once before anybody leads twice.
        for _, part in groupby(enumerate(placement), lambda each: each[0] // max(1, len(unfenced))):
            leaders = [replicas[0] for _, replicas in part]
            if len(racks) == 1 and len(set(leaders)) != len(leaders):
                self.complaints.append(f"{whose}: leaders {leaders} of {unfenced}")


class OurController:
    """Ours, on an event loop in a thread, with a clock that stands still until it is moved."""

    def __init__(self, cluster_id: str, session_timeout_ms: int, config: BrokerConfig | None = None) -> None:
        self.randomness = GivenRandomness()
        self.placements = GivenPlacements()
        self.now_ms = 1_000_000
        self.session_timeout_ms = session_timeout_ms
        settings = ControllerSettings(
            NODE_ID, cluster_id, config or BrokerConfig(), session_timeout_ms=session_timeout_ms
        )
        self._controller = Controller(settings, self.randomness, self.placements)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._cluster_id = cluster_id
        self._server: ControllerServer | None = None
        self.address = ("127.0.0.1", 0)

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result()
        return self

    async def _start(self) -> None:
        bound = socket.create_server(("127.0.0.1", 0))
        self.address = bound.getsockname()[:2]
        service = ControllerService(
            self._controller,
            MemoryLog(),
            node_id=NODE_ID,
            cluster_id=self._cluster_id,
            epoch=EPOCH,
            endpoint=Endpoint(*self.address),
        )
        service.begin(bootstrap_records(LATEST_LEVELS, 1), self.now_ms)
        self._server = ControllerServer(service, lambda: self.now_ms)
        await self._server.start(bound, ticks=False)

    def tick(self) -> None:
        async def once() -> None:
            assert self._server is not None
            self._server.service.tick(self.now_ms)

        asyncio.run_coroutine_threadsafe(once(), self._loop).result()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        with contextlib.suppress(ConnectionError):
            asyncio.run_coroutine_threadsafe(self._server.stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def apache_controller(session_timeout_ms: int) -> ApacheController:
    """Without what happens at times of its own: signs of life and elections in the background."""
    return ApacheController({
        "broker.session.timeout.ms": str(session_timeout_ms),
        "broker.heartbeat.interval.ms": str(session_timeout_ms // 2),
        "metadata.max.idle.interval.ms": "0",
        "auto.leader.rebalance.enable": "false",
        "unclean.leader.election.interval.ms": str(10**9),
        "controller.quorum.append.linger.ms": "0",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    })  # fmt: skip


def registration_of(record: MetadataRecord) -> dict[str, Any]:
    """The request by which a controller was registered: ours is registered the same."""
    message = record.message
    return {
        "ControllerId": message.controller_id,
        "IncarnationId": str(uuid.UUID(bytes=message.incarnation_id)),
        "ZkMigrationReady": False,
        "Listeners": [
            {"Name": each.name, "Host": each.host, "Port": each.port, "SecurityProtocol": each.security_protocol}
            for each in message.end_points
        ],
        "Features": [
            {
                "Name": each.name,
                "MinSupportedVersion": each.min_supported_version,
                "MaxSupportedVersion": each.max_supported_version,
            }
            for each in message.features
        ],
    }
