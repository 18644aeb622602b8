"""Kafka's metadata records as bytes: a frame version, the record's type, its version, and the message itself.

Knows the types and versions of Apache Kafka 4.3. A record that 4.3 does not have is an error with its name: going on
without it would give another image of the cluster than the controller had that wrote it.
"""

from typing import Any, NamedTuple

from fencepost.ports import Buffer
from fencepost.wire.batch import encode_unsigned_varint
from fencepost.wire.codec import decode, encode
from fencepost.wire.errors import MalformedMessage
from fencepost.wire.messages import message_class, schema_of

METADATA_TOPIC_ID = bytes(15) + b"\x01"
FRAME_VERSION = 1
_HEAD_BYTES_MAX = 15

RECORD_NAMES = {
    0: "RegisterBrokerRecord",
    1: "UnregisterBrokerRecord",
    2: "TopicRecord",
    3: "PartitionRecord",
    4: "ConfigRecord",
    5: "PartitionChangeRecord",
    7: "FenceBrokerRecord",
    8: "UnfenceBrokerRecord",
    9: "RemoveTopicRecord",
    10: "DelegationTokenRecord",
    11: "UserScramCredentialRecord",
    12: "FeatureLevelRecord",
    14: "ClientQuotaRecord",
    15: "ProducerIdsRecord",
    17: "BrokerRegistrationChangeRecord",
    18: "AccessControlEntryRecord",
    19: "RemoveAccessControlEntryRecord",
    20: "NoOpRecord",
    21: "ZkMigrationStateRecord",
    22: "RemoveUserScramCredentialRecord",
    23: "BeginTransactionRecord",
    24: "EndTransactionRecord",
    25: "AbortTransactionRecord",
    26: "RemoveDelegationTokenRecord",
    27: "RegisterControllerRecord",
    28: "ClearElrRecord",
}
"""By the number that is in the frame. `tests/unit/metadata` compares them with the schemas."""
RECORD_TYPES = {name: number for number, name in RECORD_NAMES.items()}


class UnreadableMetadata(Exception):
    """A metadata record that cannot be taken: of a newer Kafka, or damaged."""


class UnknownRecord(UnreadableMetadata):
    """A record of a type or version that Apache Kafka 4.3 does not have."""


class MetadataRecord(NamedTuple):
    message: Any
    version: int = 0

    @property
    def name(self) -> str:
        return str(self.message.schema_name)


def encode_record(record: MetadataRecord) -> bytes:
    return b"".join((
        encode_unsigned_varint(FRAME_VERSION),
        encode_unsigned_varint(RECORD_TYPES[record.name]),
        encode_unsigned_varint(record.version),
        encode(record.message, record.version),
    ))  # fmt: skip


def decode_record(value: Buffer) -> MetadataRecord:
    """Raises UnknownRecord for one that Kafka 4.3 does not have, UnreadableMetadata for one that makes no sense."""
    frame, position = _unsigned(value, 0)
    if frame != FRAME_VERSION:
        raise UnknownRecord(f"a metadata record in a frame of version {frame}; version {FRAME_VERSION} is known")
    number, position = _unsigned(value, position)
    version, position = _unsigned(value, position)
    name = RECORD_NAMES.get(number)
    if name is None:
        raise UnknownRecord(f"a metadata record of type {number}, which Apache Kafka 4.3 does not have")
    low, high = schema_of(name)["valid"]
    if not low <= version <= high:
        raise UnknownRecord(f"{name} in version {version}; Apache Kafka 4.3 has versions {low} to {high}")
    try:
        return MetadataRecord(decode(message_class(name), version, value, position), version)
    except MalformedMessage as error:
        raise UnreadableMetadata(f"{name}: {error}") from None


def _unsigned(value: Buffer, position: int) -> tuple[int, int]:
    number = shift = 0
    for at in range(position, min(len(value), position + _HEAD_BYTES_MAX)):
        number |= (value[at] & 0x7F) << shift
        if value[at] < 0x80:
            return number, at + 1
        shift += 7
    raise UnreadableMetadata("a metadata record whose frame is cut off")
