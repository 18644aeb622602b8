"""What the cluster knows of itself: topics, settings, features, producer id blocks, ACLs.

A journal of JSON lines in the data directory, synced before a change counts; a torn last line is dropped. A full disk
refuses a change; a sync that fails ends all changes, since the content of the journal is not known any more. This is
the small port that another store will implement once there are several brokers: everything else asks `ClusterMetadata`.
"""

import errno
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fencepost.broker.json_lines import DamagedLine, decode_line, encode_line
from fencepost.log.side_files import CorruptSideFile
from fencepost.ports import Disk, File, Randomness
from fencepost.wire.acls import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from fencepost.wire.errors import KafkaError
from fencepost.wire.scram import ScramCredential

JOURNAL_NAME = "cluster-metadata.jsonl"
PRODUCER_ID_BLOCK = 1000
PRODUCER_IDS_SKIPPED = 1_000_000
"""Ids may have been given out that are in no log: this many above the largest one found are not used."""
PRODUCER_ID_BELIEVED_MAX = 2**62
"""A client may write any producer id into its batches; one as large as this was never handed out."""
DECOY_SECRET_BYTES = 32
# A journal this many times longer than what is alive is rewritten at the next start.
JOURNAL_SLACK = 4
ACLS_PER_LINE = 1_000

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
    def __init__(
        self, disk: Disk, directory: str, randomness: Randomness, refusal: Callable[[OSError], KafkaError]
    ) -> None:
        """`refusal` makes the error that a caller gets from an error of the disk."""
        self._disk = disk
        self._path = f"{directory}/{JOURNAL_NAME}"
        self._directory = directory
        self._randomness = randomness
        self._refusal = refusal
        self._failure: OSError | None = None
        self._file: File | None = None
        self._end = 0
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[bytes, Topic] = {}
        self.broker_overrides: dict[str, str] = {}
        self.cluster_overrides: dict[str, str] = {}
        """Settings of all brokers at once; a broker's own go before them."""
        self.features: dict[str, int] = dict(DEFAULT_FEATURES)
        self.features_epoch = 0
        self.acls: dict[AclBinding, None] = {}
        self.scram_credentials: dict[str, dict[str, ScramCredential]] = {}
        """By user and mechanism."""
        self._decoy_secret = b""
        self.incarnation = 0
        self._next_producer_id_block = 0
        self._producer_ids = range(0)
        self.version = 0
        """Grows with every change, for caches of what is made from the metadata."""

    @property
    def path(self) -> str:
        return self._path

    def exists(self) -> bool:
        """Whether the journal was begun."""
        return self._disk.exists(self._path)

    def load(self, *, rewrite: bool = False) -> None:
        """Replay the journal and begin a new incarnation. `rewrite`: what is read may never have reached the disk."""
        lines, end = 0, 0
        if self._disk.exists(self._path):
            changes, end = self._parse(self._disk.read_bytes(self._path))
            for number, change in enumerate(changes, 1):
                try:
                    self._apply(change)
                except (KeyError, TypeError, ValueError, AttributeError) as error:
                    raise CorruptSideFile(self._path, f"line {number} makes no sense: {error!r}") from error
            lines = len(changes)
        self._apply({"op": "start", "incarnation": self.incarnation + 1})
        if rewrite or lines > JOURNAL_SLACK * (len(self.topics) + 10):
            self._disk.write_atomically(self._path, self._snapshot())
            self._open()
        else:
            self._open()
            if end != self._end:
                assert self._file is not None
                self._file.truncate(end)
                self._end = end
            self._append({"op": "start", "incarnation": self.incarnation})

    def _parse(self, data: bytes) -> tuple[list[dict[str, Any]], int]:
        """The changes, and where the last whole one ends. Of a line never synced, any part may be missing."""
        changes: list[dict[str, Any]] = []
        end = 0
        while end < len(data):
            stop = data.find(b"\n", end) + 1
            try:
                changes.append(decode_line(data[end:stop] if stop else b"", "op"))
            except DamagedLine as error:
                if stop and stop < len(data):
                    reason = f"line {len(changes) + 1} is damaged and not the last: {error}"
                    raise CorruptSideFile(self._path, reason) from None
                break
            end = stop
        return changes, end

    def fail(self, error: OSError) -> None:
        """The disk cannot be trusted any more: refuse every change."""
        self._failure = error

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def draft_topic(
        self, name: str, partition_count: int, overrides: dict[str, str], *, is_internal: bool = False
    ) -> Topic:
        """A topic with an id of its own that nobody knows yet."""
        topic_id = self._randomness.random_bytes(16)
        return Topic(name, topic_id, partition_count, self.incarnation, is_internal, dict(overrides))

    def add_topic(self, topic: Topic) -> Topic:
        self._commit(_creation(topic))
        return self.topics[topic.name]

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

    def add_acls(self, bindings: Iterable[AclBinding]) -> None:
        self._commit({"op": "add_acls", "acls": list(map(_acl_row, bindings))})

    def remove_acls(self, bindings: Iterable[AclBinding]) -> None:
        self._commit({"op": "remove_acls", "acls": list(map(_acl_row, bindings))})

    def set_scram_credentials(self, user: str, credentials: Mapping[str, ScramCredential | None]) -> None:
        """By mechanism; None removes one."""
        self._commit(_scram_change(user, credentials))

    def decoy_secret(self) -> bytes:
        """What logins of users who do not exist are made from: made once, and kept, so that they never change."""
        if not self._decoy_secret:
            secret = self._randomness.random_bytes(DECOY_SECRET_BYTES)
            try:
                self._commit({"op": "decoy_secret", "secret": secret.hex()})
            except KafkaError:
                self._decoy_secret = secret  # the disk fails, which is reported elsewhere; logins go on
        return self._decoy_secret

    def name_by_id(self, topic_id: bytes) -> str | None:
        topic = self.topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    def leader_epoch(self, topic: Topic) -> int:
        return self.incarnation - topic.created_in

    def next_producer_id(self) -> int:
        if not self._producer_ids:
            start = self._next_producer_id_block
            self._commit({"op": "producer_ids", "next": start + PRODUCER_ID_BLOCK})
            self._producer_ids = range(start, start + PRODUCER_ID_BLOCK)
        first, self._producer_ids = self._producer_ids[0], self._producer_ids[1:]
        return first

    def skip_producer_ids(self, found: Iterable[int]) -> None:
        """Logs have these ids. One that was never handed out as far as the journal knows means: it is an older copy.

        Nothing is written before the next id is handed out.
        """
        largest = max((each for each in found if each < PRODUCER_ID_BELIEVED_MAX), default=-1)
        if largest >= self._next_producer_id_block:
            self._next_producer_id_block = _block_above(largest + PRODUCER_IDS_SKIPPED)
            self._producer_ids = range(0)

    def skip_leader_epochs(self, count: int) -> None:
        """Logs have leader epochs so far above what the journal knows: it is an older copy."""
        self._commit({"op": "start", "incarnation": self.incarnation + count})

    def _commit(self, change: dict[str, Any]) -> None:
        if self._failure is not None:
            raise self._refusal(self._failure)
        try:
            self._append(change)
        except OSError as error:
            raise self._refusal(error) from error
        self._apply(change)

    def _append(self, change: dict[str, Any]) -> None:
        assert self._file is not None, "metadata changed before it was loaded"
        data = encode_line(change)
        self._file.write(self._end, data)
        try:
            self._file.sync()
        except OSError as error:
            self._failure = error
            raise OSError(errno.EIO, f"the journal could not be synced: {error}", self._path) from error
        self._end += len(data)

    def _open(self) -> None:
        is_new = not self._disk.exists(self._path)
        self._file = self._disk.open(self._path, create=True)
        self._end = self._file.size()
        if is_new:
            self._file.sync()
            self._disk.sync_directory(self._directory)

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
            case "add_acls":
                self.acls |= dict.fromkeys(map(_acl, change["acls"]))
            case "remove_acls":
                for binding in map(_acl, change["acls"]):
                    self.acls.pop(binding, None)
            case "set_scram":
                known = {**self.scram_credentials.pop(change["user"], {}), **_scram_rows(change["credentials"])}
                kept = {mechanism: credential for mechanism, credential in known.items() if credential is not None}
                if kept:
                    self.scram_credentials[change["user"]] = kept
            case "decoy_secret":
                self._decoy_secret = bytes.fromhex(change["secret"])
            case "producer_ids":
                self._next_producer_id_block = change["next"]
            case unknown:
                raise ValueError(f"{self._path}: unknown change {unknown!r}; was it written by a newer version?")

    def _snapshot(self) -> bytes:
        changes: list[dict[str, Any]] = [{"op": "start", "incarnation": self.incarnation}]
        changes += [_creation(topic) for topic in self.topics.values()]
        changes += [{"op": "set_feature", "name": name, "level": level} for name, level in self.features.items()]
        changes.append({"op": "set_broker_config", "config": self.broker_overrides})
        changes.append({"op": "set_cluster_config", "config": self.cluster_overrides})
        acls = list(map(_acl_row, self.acls))
        changes += [
            {"op": "add_acls", "acls": acls[start : start + ACLS_PER_LINE]}
            for start in range(0, len(acls), ACLS_PER_LINE)
        ]
        changes += [_scram_change(user, credentials) for user, credentials in self.scram_credentials.items()]
        if self._decoy_secret:
            changes.append({"op": "decoy_secret", "secret": self._decoy_secret.hex()})
        changes.append({"op": "producer_ids", "next": self._next_producer_id_block})
        return b"".join(map(encode_line, changes))


def rebuilt_journal(topics: Iterable[Topic], incarnation: int, next_producer_id: int) -> bytes:
    """A journal in place of one that was lost. Producer ids below the next one are never handed out."""
    changes: list[dict[str, Any]] = [{"op": "start", "incarnation": incarnation}]
    changes += map(_creation, topics)
    changes.append({"op": "producer_ids", "next": _block_above(next_producer_id - 1)})
    return b"".join(map(encode_line, changes))


def _block_above(producer_id: int) -> int:
    """Where the next block of producer ids begins."""
    return (producer_id // PRODUCER_ID_BLOCK + 1) * PRODUCER_ID_BLOCK


def _creation(topic: Topic) -> dict[str, Any]:
    return {
        "op": "create_topic",
        "name": topic.name,
        "id": topic.topic_id.hex(),
        "partitions": topic.partition_count,
        "created_in": topic.created_in,
        "internal": topic.is_internal,
        "config": topic.overrides,
    }


def _acl_row(binding: AclBinding) -> list[str]:
    (resource_type, name, pattern_type), principal, host, operation, permission_type = binding
    return [resource_type.name, pattern_type.name, name, principal, host, operation.name, permission_type.name]


def _acl(row: list[str]) -> AclBinding:
    resource_type, pattern_type, name, principal, host, operation, permission_type = row
    return AclBinding(
        ResourcePattern(ResourceType[resource_type], name, PatternType[pattern_type]),
        principal,
        host,
        AclOperation[operation],
        AclPermissionType[permission_type],
    )


def _scram_change(user: str, credentials: Mapping[str, ScramCredential | None]) -> dict[str, Any]:
    rows = {
        mechanism: one and [one.salt.hex(), one.iterations, one.stored_key.hex(), one.server_key.hex()]
        for mechanism, one in credentials.items()
    }
    return {"op": "set_scram", "user": user, "credentials": rows}


def _scram_rows(rows: Mapping[str, Any]) -> dict[str, ScramCredential | None]:
    return {
        mechanism: row
        and ScramCredential(bytes.fromhex(row[0]), int(row[1]), bytes.fromhex(row[2]), bytes.fromhex(row[3]))
        for mechanism, row in rows.items()
    }
