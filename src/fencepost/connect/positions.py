"""Positions of sources in a compacted topic, as Kafka Connect keeps them.

The key is `["name",{partition}]`, the value the position; both are JSON, which Kafka's own tools read.

Headers tell which process wrote a position, so that a task that was fenced can name the one that took over.
"""

import json
import os
import socket
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fencepost.client import PartitionReader, Reset, TopicPartition
from fencepost.client.kafka_types import ConsumedRecord, IsolationLevel
from fencepost.client.partitioner import partition_of_key
from fencepost.connect.cluster import ClusterAddress, ensure_offsets_topic
from fencepost.connect.records import Headers, Position, compact_json
from fencepost.connect.sources import SourcePartition

_WORKER, _INSTANCE, _SINCE = "fencepost.worker", "fencepost.instance", "fencepost.since"


def position_key(name: str, partition: SourcePartition) -> bytes:
    return compact_json([name, dict(partition)])


def task_name(name: str, partition: SourcePartition) -> str:
    """Also the end of the task's transactional id: made of what it reads, so that each id stays with its positions."""
    return name if not partition else f"{name}-{compact_json(dict(partition)).decode()}"


def transactional_id(name: str, partition: SourcePartition) -> str:
    return f"connect-{task_name(name, partition)}"


@dataclass(frozen=True, slots=True)
class Claimant:
    """A process that runs tasks."""

    worker: str
    """Host and process."""
    instance: str
    """Made up at its start."""
    since_ms: int

    @classmethod
    def this_process(cls, role: str = "") -> "Claimant":
        worker = f"{socket.gethostname()}:{os.getpid()}" + (f" ({role})" if role else "")
        return cls(worker, uuid.uuid4().hex, int(time.time() * 1000))

    def headers(self) -> Headers:
        return (
            (_WORKER, self.worker.encode()),
            (_INSTANCE, self.instance.encode()),
            (_SINCE, str(self.since_ms).encode()),
        )

    def __str__(self) -> str:
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.since_ms / 1000))
        return f"{self.worker}, since {since}"


def _claimant(headers: Headers) -> Claimant | None:
    known = {name: content for name, content in headers if content is not None}
    try:
        return Claimant(known[_WORKER].decode(), known[_INSTANCE].decode(), int(known[_SINCE]))
    except (KeyError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class Held:
    """What the topic holds for one task."""

    position: Position | None = None
    claimant: Claimant | None = None
    written_ms: int = -1


@dataclass(slots=True)
class Positions:
    """The topic as one process sees it."""

    cluster: ClusterAddress
    _partitions: int | None = field(default=None, init=False)

    def partition_of(self, key: bytes) -> int:
        if self._partitions is None:
            with self.cluster.admin() as admin:
                self._partitions = ensure_offsets_topic(admin, self.cluster.offsets_topic)
        return partition_of_key(key, self._partitions)

    def read(self, key: bytes, waiting: Callable[[], None] | None = None) -> Held:
        """The last committed position. Waits for the end of every transaction that was open in its partition.

        Up to the high watermark, not the last stable offset: while another task's transaction is open, a position
        behind it is committed but not yet readable.
        """
        partition = TopicPartition(self.cluster.offsets_topic, self.partition_of(key))
        found = Held()
        for record in self._records([partition], waiting):
            if record.key == key:
                found = _held(record)
        return found

    def read_all(self) -> dict[tuple[str, bytes], Held]:
        """By name of the source and JSON of the partition; those that were reset are left out."""
        with self.cluster.admin() as admin:
            partitions = list(admin.describe_topic(self.cluster.offsets_topic).partitions)
        found: dict[tuple[str, bytes], Held] = {}
        for record in self._records([TopicPartition(self.cluster.offsets_topic, each) for each in partitions], None):
            name = _parsed_key(record.key)
            if name is not None:
                found[name] = _held(record)
        return {name: held for name, held in found.items() if held.position is not None}

    def _records(self, partitions: list[TopicPartition], waiting: Callable[[], None] | None) -> list[ConsumedRecord]:
        with self.cluster.admin() as admin:
            ends = {
                partition: found.offset
                for partition, found in admin.list_offsets(
                    dict.fromkeys(partitions, int(Reset.LATEST)), IsolationLevel.READ_UNCOMMITTED
                ).items()
            }
        records: list[ConsumedRecord] = []
        with self.cluster.committed_reader() as reader:
            reader.assign(dict.fromkeys(partitions, Reset.EARLIEST))
            while _is_behind(reader, ends):
                portion = reader.poll()
                records += portion
                if not portion and waiting is not None:
                    waiting()
        return records


def _is_behind(reader: PartitionReader, ends: dict[TopicPartition, int]) -> bool:
    positions = reader.positions
    return any(positions[partition] < end for partition, end in ends.items())


def _held(record: ConsumedRecord) -> Held:
    position = json.loads(record.value) if record.value is not None else None
    return Held(position, _claimant(record.headers), record.timestamp_ms)


def _parsed_key(key: bytes | None) -> tuple[str, bytes] | None:
    """The topic may be one of Kafka Connect's, and hold what is not ours."""
    try:
        parsed: Any = json.loads(key or b"")
    except ValueError:
        return None
    if isinstance(parsed, list) and len(parsed) == 2 and isinstance(parsed[0], str):
        return parsed[0], compact_json(parsed[1])
    return None
