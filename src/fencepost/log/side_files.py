"""The small text files of a data directory, in Kafka's own formats.

`meta.properties`, `.kafka_cleanshutdown` and the offset checkpoints are in the data directory itself,
`partition.metadata` in each partition's. Owns their syntax; the disk port does the writing, always atomically.
"""

import base64
import dataclasses
import json
import os.path
from collections.abc import Mapping

from fencepost.ports import Disk
from fencepost.topic_partition import TopicPartition

META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
PARTITION_METADATA = "partition.metadata"
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
REPLICATION_OFFSET_CHECKPOINT = "replication-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT = "cleaner-offset-checkpoint"
GAPLESS_OFFSET_CHECKPOINT = "gapless-offset-checkpoint"
"""Specific to Fencepost. If its offset of a log equals that in the cleaner's checkpoint, the segments below had no
holes."""

UNKNOWN_BROKER_EPOCH = -1
_CHECKPOINT_VERSION = 0


class CorruptSideFile(Exception):
    """A side file that cannot be parsed; the text names the file and the error."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


@dataclasses.dataclass(frozen=True, slots=True)
class MetaProperties:
    """The identity of a data directory."""

    cluster_id: str
    node_id: int
    directory_id: str
    version: int = 1


def read_meta_properties(disk: Disk, directory: str) -> MetaProperties | None:
    """Returns None if the directory is not formatted yet."""
    path = os.path.join(directory, META_PROPERTIES)
    if not disk.exists(path):
        return None
    fields: dict[str, str] = {}
    for line in disk.read_bytes(path).decode("utf-8", "replace").splitlines():
        if line.strip() and not line.lstrip().startswith(("#", "!")):
            name, _, value = line.partition("=")
            fields[name.strip()] = value.strip()
    try:
        version = int(fields["version"])
        if version not in (0, 1):
            raise CorruptSideFile(path, f"version {version} is not known")
        node_id = int(fields["node.id"] if "node.id" in fields else fields["broker.id"])
        return MetaProperties(fields["cluster.id"], node_id, fields.get("directory.id", ""), version)
    except (KeyError, ValueError) as error:
        raise CorruptSideFile(path, f"missing or malformed {error}") from None


def write_meta_properties(disk: Disk, directory: str, properties: MetaProperties) -> None:
    lines = [
        "#",
        f"cluster.id={properties.cluster_id}",
        f"directory.id={properties.directory_id}",
        f"node.id={properties.node_id}",
        f"version={properties.version}",
    ]
    disk.write_atomically(os.path.join(directory, META_PROPERTIES), ("\n".join(lines) + "\n").encode())


def write_clean_shutdown(disk: Disk, directory: str, broker_epoch: int) -> None:
    content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    disk.write_atomically(os.path.join(directory, CLEAN_SHUTDOWN), content.encode())


def was_stopped_by_us(disk: Disk, directory: str, broker_epoch: int) -> bool:
    """Whether Fencepost wrote the marker of a clean stop: it has the epoch of our run. Earlier versions had none."""
    try:
        content = json.loads(disk.read_bytes(os.path.join(directory, CLEAN_SHUTDOWN)))
        return bool(content["brokerEpoch"] in (UNKNOWN_BROKER_EPOCH, broker_epoch))
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return False


def take_clean_shutdown(disk: Disk, directory: str) -> bool:
    """Whether the last stop was clean. Removes the marker durably, so that a later crash is recognized."""
    path = os.path.join(directory, CLEAN_SHUTDOWN)
    if not disk.exists(path):
        return False
    disk.remove(path)
    disk.sync_directory(directory)
    return True


def encode_uuid(topic_id: bytes) -> str:
    return base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode()


def decode_uuid(text: str) -> bytes:
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if len(raw) != 16:
        raise ValueError(f"{text} is not a topic id")
    return raw


def encode_partition_metadata(topic_id: bytes) -> bytes:
    return f"version: 0\ntopic_id: {encode_uuid(topic_id)}".encode()


def decode_partition_metadata(path: str, data: bytes) -> bytes:
    fields = dict(line.partition(": ")[::2] for line in data.decode("ascii", "replace").splitlines())
    try:
        if int(fields["version"]) != 0:
            raise CorruptSideFile(path, f"version {fields['version']} is not known")
        return decode_uuid(fields["topic_id"].strip())
    except (KeyError, ValueError) as error:
        raise CorruptSideFile(path, f"missing or malformed {error}") from None


def read_partition_metadata(disk: Disk, partition_directory: str) -> bytes | None:
    """The topic id a partition directory belongs to; None if it is unknown."""
    path = os.path.join(partition_directory, PARTITION_METADATA)
    try:
        data = disk.read_bytes(path)
    except FileNotFoundError:
        return None
    # A power failure soon after the creation of a partition can leave it empty; it is written again when the log is
    # opened.
    return decode_partition_metadata(path, data) if data else None


def encode_offset_checkpoint(offsets: Mapping[TopicPartition, int]) -> bytes:
    lines = [str(_CHECKPOINT_VERSION), str(len(offsets))]
    lines += [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    return ("\n".join(lines) + "\n").encode()


def decode_offset_checkpoint(path: str, data: bytes) -> dict[TopicPartition, int]:
    if not data:
        return {}  # Kafka creates the file before it has any entries
    try:
        version, count, *lines = data.decode().split("\n")
        if int(version) != _CHECKPOINT_VERSION:
            raise CorruptSideFile(path, f"version {version} is not known")
        offsets = {}
        for line in lines:
            if line:
                topic, partition, offset = line.split(" ")
                offsets[TopicPartition(topic, int(partition))] = int(offset)
        if int(count) != len(offsets):
            raise CorruptSideFile(path, f"{count} entries announced, {len(offsets)} found")
    except ValueError as error:
        raise CorruptSideFile(path, str(error)) from None
    return offsets


def read_offset_checkpoint(disk: Disk, directory: str, name: str) -> dict[TopicPartition, int]:
    """Offsets by topic and partition; empty if the file does not exist."""
    path = os.path.join(directory, name)
    try:
        data = disk.read_bytes(path)
    except FileNotFoundError:
        return {}
    return decode_offset_checkpoint(path, data)


def write_offset_checkpoint(disk: Disk, directory: str, name: str, offsets: Mapping[TopicPartition, int]) -> None:
    disk.write_atomically(os.path.join(directory, name), encode_offset_checkpoint(offsets))


def partition_directory_name(topic: str, partition: int) -> str:
    return str(TopicPartition(topic, partition))


def parse_partition_directory_name(name: str) -> TopicPartition | None:
    """Topic and partition a directory is for; None if its name is not one of a partition."""
    topic, dash, partition = name.rpartition("-")
    if not dash or not topic or not (partition.isascii() and partition.isdigit()):
        return None
    return TopicPartition(topic, int(partition))
