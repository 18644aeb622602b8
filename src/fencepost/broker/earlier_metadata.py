"""The journal of JSON lines in which earlier versions kept the metadata, read once to become metadata records.

A torn last line is dropped: it never counted. The journal stays in the directory under another name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from fencepost.broker.json_lines import DamagedLine, decode_line
from fencepost.log.side_files import CorruptSideFile
from fencepost.metadata.features import METADATA_VERSION_MAX
from fencepost.metadata.image import (
    BROKER_CONFIG,
    TOPIC_CONFIG,
    PartitionState,
    acl_record,
    config_record,
    scram_record,
)
from fencepost.metadata.records import MetadataRecord
from fencepost.ports import Disk, Randomness
from fencepost.wire.acls import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from fencepost.wire.messages import FeatureLevelRecord, ProducerIdsRecord, TopicRecord
from fencepost.wire.scram import ScramCredential

JOURNAL_NAME = "cluster-metadata.jsonl"
JOURNAL_BACKUP_NAME = "cluster-metadata.jsonl.converted"


@dataclass(slots=True)
class EarlierTopic:
    name: str
    topic_id: bytes
    partition_count: int
    leader_epoch: int
    """The last in which its partitions were led."""
    overrides: dict[str, str] = field(default_factory=dict)

    def records(self, node_id: int, directory_id: bytes) -> Iterator[MetadataRecord]:
        yield MetadataRecord(TopicRecord(name=self.name, topic_id=self.topic_id))
        for name, value in self.overrides.items():
            yield config_record((TOPIC_CONFIG, self.name), name, value)
        me = (node_id,)
        state = PartitionState(me, (directory_id,), me, node_id, self.leader_epoch, 0)
        for index in range(self.partition_count):
            yield state.to_record(self.topic_id, index, METADATA_VERSION_MAX)


class EarlierJournal:
    def __init__(self) -> None:
        self._incarnation = 0
        self._topics: dict[str, EarlierTopic] = {}
        self._created_in: dict[str, int] = {}
        self._broker_settings: dict[str, str] = {}
        self._cluster_settings: dict[str, str] = {}
        self._features: dict[str, int] = {}
        self._acls: dict[AclBinding, None] = {}
        self._scram: dict[str, dict[str, ScramCredential]] = {}
        self._next_producer_id = 0
        self.decoy_secret = b""

    @classmethod
    def read(cls, disk: Disk, directory: str) -> EarlierJournal:
        path = f"{directory}/{JOURNAL_NAME}"
        journal = cls()
        for number, change in enumerate(_parse(path, disk.read_bytes(path)), 1):
            try:
                journal._apply(change)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise CorruptSideFile(path, f"line {number} makes no sense: {error!r}") from error
        return journal

    def records(self, node_id: int, directory_id: bytes, randomness: Randomness) -> Iterator[MetadataRecord]:
        for feature, level in self._features.items():
            yield MetadataRecord(FeatureLevelRecord(name=feature, feature_level=level))
        for topic in self._topics.values():
            topic.leader_epoch = max(self._incarnation - self._created_in[topic.name], 0)
            yield from topic.records(node_id, directory_id)
        for name, settings in ((str(node_id), self._broker_settings), ("", self._cluster_settings)):
            for key, value in settings.items():
                yield config_record((BROKER_CONFIG, name), key, value)
        for binding in self._acls:
            yield acl_record(randomness.random_bytes(16), binding)
        for user, credentials in self._scram.items():
            for mechanism, credential in credentials.items():
                yield scram_record(user, mechanism, credential)
        if self._next_producer_id:
            yield MetadataRecord(ProducerIdsRecord(broker_id=-1, next_producer_id=self._next_producer_id))

    def _apply(self, change: dict[str, Any]) -> None:
        match change["op"]:
            case "start":
                self._incarnation = change["incarnation"]
            case "create_topic":
                topic_id = bytes.fromhex(change["id"])
                topic = EarlierTopic(change["name"], topic_id, change["partitions"], 0, dict(change["config"]))
                self._topics[topic.name] = topic
                self._created_in[topic.name] = change["created_in"]
            case "delete_topic":
                del self._topics[change["name"]]
            case "set_partitions":
                self._topics[change["name"]].partition_count = change["partitions"]
            case "set_config":
                self._topics[change["name"]].overrides = dict(change["config"])
            case "set_broker_config":
                self._broker_settings = dict(change["config"])
            case "set_cluster_config":
                self._cluster_settings = dict(change["config"])
            case "set_feature":
                self._features[change["name"]] = change["level"]
            case "add_acls":
                self._acls |= dict.fromkeys(map(_acl, change["acls"]))
            case "remove_acls":
                for binding in map(_acl, change["acls"]):
                    self._acls.pop(binding, None)
            case "set_scram":
                known = {**self._scram.pop(change["user"], {}), **_scram_rows(change["credentials"])}
                kept = {mechanism: credential for mechanism, credential in known.items() if credential is not None}
                if kept:
                    self._scram[change["user"]] = kept
            case "decoy_secret":
                self.decoy_secret = bytes.fromhex(change["secret"])
            case "producer_ids":
                self._next_producer_id = change["next"]
            case unknown:
                raise ValueError(f"unknown change {unknown!r}; was it written by a newer version?")


def _parse(path: str, data: bytes) -> list[dict[str, Any]]:
    """Of a line never synced, any part may be missing."""
    changes: list[dict[str, Any]] = []
    end = 0
    while end < len(data):
        stop = data.find(b"\n", end) + 1
        try:
            changes.append(decode_line(data[end:stop] if stop else b"", "op"))
        except DamagedLine as error:
            if stop and stop < len(data):
                reason = f"line {len(changes) + 1} is damaged and not the last: {error}"
                raise CorruptSideFile(path, reason) from None
            break
        end = stop
    return changes


def _acl(row: list[str]) -> AclBinding:
    resource_type, pattern_type, name, principal, host, operation, permission_type = row
    return AclBinding(
        ResourcePattern(ResourceType[resource_type], name, PatternType[pattern_type]),
        principal,
        host,
        AclOperation[operation],
        AclPermissionType[permission_type],
    )


def _scram_rows(rows: Mapping[str, Any]) -> dict[str, ScramCredential | None]:
    return {
        mechanism: row
        and ScramCredential(bytes.fromhex(row[0]), int(row[1]), bytes.fromhex(row[2]), bytes.fromhex(row[3]))
        for mechanism, row in rows.items()
    }
