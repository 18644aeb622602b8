"""What the cluster knows of itself: topics, settings, features, producer id blocks.

A journal of JSON lines in the data directory, synced before a change counts; a torn last line is dropped. This is the
small port behind which another store stands once there are several brokers: everything else asks `ClusterMetadata`.
"""

import json
from dataclasses import dataclass, field
from typing import Any

from fencepost.ports import Disk, File, Randomness

JOURNAL_NAME = "cluster-metadata.jsonl"
PRODUCER_ID_BLOCK = 1000
# A journal this many times longer than what is alive is rewritten at the next start.
JOURNAL_SLACK = 4

TRANSACTION_VERSION = "transaction.version"
SUPPORTED_FEATURES = {TRANSACTION_VERSION: (0, 2)}
DEFAULT_FEATURES = {TRANSACTION_VERSION: 2}


@dataclass(slots=True)
class Topic:
    name: str
    topic_id: bytes
    partition_count: int
    created_in: int
    """Incarnation of the broker that created it: its leader epoch counts the starts since."""
    is_internal: bool = False
    overrides: dict[str, str] = field(default_factory=dict)


class ClusterMetadata:
    def __init__(self, disk: Disk, directory: str, randomness: Randomness) -> None:
        self._disk = disk
        self._path = f"{directory}/{JOURNAL_NAME}"
        self._directory = directory
        self._randomness = randomness
        self._file: File | None = None
        self._end = 0
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[bytes, Topic] = {}
        self.broker_overrides: dict[str, str] = {}
        self.cluster_overrides: dict[str, str] = {}
        """Settings of all brokers at once; a broker's own go before them."""
        self.features: dict[str, int] = dict(DEFAULT_FEATURES)
        self.features_epoch = 0
        self.incarnation = 0
        self._next_producer_id_block = 0
        self._producer_ids = range(0)
        self.version = 0
        """Grows with every change, for whoever caches what is made from this."""

    def load(self) -> None:
        """Replay the journal and begin a new incarnation."""
        lines = 0
        if self._disk.exists(self._path):
            data = self._disk.read_bytes(self._path)
            for line in data[: data.rfind(b"\n") + 1].splitlines():
                self._apply(json.loads(line))
                lines += 1
        self._apply({"op": "start", "incarnation": self.incarnation + 1})
        if lines > JOURNAL_SLACK * (len(self.topics) + 10):
            self._disk.write_atomically(self._path, self._snapshot())
            self._open()
        else:
            self._open()
            self._file_end_at_last_line()
            self._write({"op": "start", "incarnation": self.incarnation})

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def create_topic(
        self, name: str, partition_count: int, overrides: dict[str, str], *, is_internal: bool = False
    ) -> Topic:
        topic_id = self._randomness.random_bytes(16)
        self._commit(
            {
                "op": "create_topic",
                "name": name,
                "id": topic_id.hex(),
                "partitions": partition_count,
                "created_in": self.incarnation,
                "internal": is_internal,
                "config": overrides,
            }
        )
        return self.topics[name]

    def delete_topic(self, name: str) -> None:
        self._commit({"op": "delete_topic", "name": name})

    def set_partition_count(self, name: str, partition_count: int) -> None:
        self._commit({"op": "set_partitions", "name": name, "partitions": partition_count})

    def set_topic_overrides(self, name: str, overrides: dict[str, str]) -> None:
        self._commit({"op": "set_config", "name": name, "config": overrides})

    def set_broker_overrides(self, overrides: dict[str, str]) -> None:
        self._commit({"op": "set_broker_config", "config": overrides})

    def set_cluster_overrides(self, overrides: dict[str, str]) -> None:
        self._commit({"op": "set_cluster_config", "config": overrides})

    def set_feature(self, name: str, level: int) -> None:
        self._commit({"op": "set_feature", "name": name, "level": level})

    def leader_epoch(self, topic: Topic) -> int:
        return self.incarnation - topic.created_in

    def next_producer_id(self) -> int:
        if not self._producer_ids:
            start = self._next_producer_id_block
            self._commit({"op": "producer_ids", "next": start + PRODUCER_ID_BLOCK})
            self._producer_ids = range(start, start + PRODUCER_ID_BLOCK)
        first, self._producer_ids = self._producer_ids[0], self._producer_ids[1:]
        return first

    def _commit(self, change: dict[str, Any]) -> None:
        self._write(change)
        self._apply(change)

    def _write(self, change: dict[str, Any]) -> None:
        assert self._file is not None, "metadata changed before it was loaded"
        data = (json.dumps(change, separators=(",", ":")) + "\n").encode()
        self._file.write(self._end, data)
        self._file.sync()
        self._end += len(data)

    def _open(self) -> None:
        is_new = not self._disk.exists(self._path)
        self._file = self._disk.open(self._path, create=True)
        self._end = self._file.size()
        if is_new:
            self._file.sync()
            self._disk.sync_directory(self._directory)

    def _file_end_at_last_line(self) -> None:
        assert self._file is not None
        end = self._file.read(0, self._end).rfind(b"\n") + 1
        if end != self._end:
            self._file.truncate(end)
            self._end = end

    def _apply(self, change: dict[str, Any]) -> None:
        self.version += 1
        match change["op"]:
            case "start":
                self.incarnation = change["incarnation"]
            case "create_topic":
                topic = Topic(
                    change["name"],
                    bytes.fromhex(change["id"]),
                    change["partitions"],
                    change["created_in"],
                    change["internal"],
                    dict(change["config"]),
                )
                self.topics[topic.name] = topic
                self.topics_by_id[topic.topic_id] = topic
            case "delete_topic":
                del self.topics_by_id[self.topics.pop(change["name"]).topic_id]
            case "set_partitions":
                self.topics[change["name"]].partition_count = change["partitions"]
            case "set_config":
                self.topics[change["name"]].overrides = dict(change["config"])
            case "set_broker_config":
                self.broker_overrides = dict(change["config"])
            case "set_cluster_config":
                self.cluster_overrides = dict(change["config"])
            case "set_feature":
                self.features[change["name"]] = change["level"]
                self.features_epoch += 1
            case "producer_ids":
                self._next_producer_id_block = change["next"]
            case unknown:
                raise ValueError(f"{self._path}: unknown change {unknown!r}; was it written by a newer version?")

    def _snapshot(self) -> bytes:
        changes: list[dict[str, Any]] = [{"op": "start", "incarnation": self.incarnation}]
        changes += [
            {
                "op": "create_topic",
                "name": topic.name,
                "id": topic.topic_id.hex(),
                "partitions": topic.partition_count,
                "created_in": topic.created_in,
                "internal": topic.is_internal,
                "config": topic.overrides,
            }
            for topic in self.topics.values()
        ]
        changes += [{"op": "set_feature", "name": name, "level": level} for name, level in self.features.items()]
        changes.append({"op": "set_broker_config", "config": self.broker_overrides})
        changes.append({"op": "set_cluster_config", "config": self.cluster_overrides})
        changes.append({"op": "producer_ids", "next": self._next_producer_id_block})
        return b"".join((json.dumps(change, separators=(",", ":")) + "\n").encode() for change in changes)
