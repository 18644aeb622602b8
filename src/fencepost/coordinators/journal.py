"""The records of __consumer_offsets, in Kafka's own schemas.

Owns what a key and a value look like as bytes, in which version Apache Kafka 4.3 writes them, and which versions can
be read. Record types of other group protocols raise UnknownRecordType and are skipped.
"""

import dataclasses
import struct
from typing import NamedTuple

from fencepost.wire.codec import decode, encode, leading_version
from fencepost.wire.messages import GroupMetadataKey, GroupMetadataValue, OffsetCommitKey, OffsetCommitValue

LEGACY_OFFSET_COMMIT_KEY_TYPE = 0
OFFSET_COMMIT_KEY_TYPE = 1
GROUP_METADATA_KEY_TYPE = 2

OFFSET_COMMIT_VALUE_VERSION = 4
# The only version with an expiry of its own: for commits of old clients that set a retention time.
OFFSET_COMMIT_VALUE_VERSION_WITH_EXPIRY = 1
GROUP_METADATA_VALUE_VERSION = 3

NO_TIMESTAMP = -1
NO_LEADER_EPOCH = -1
ZERO_TOPIC_ID = bytes(16)

_VERSION = struct.Struct(">h")


class UnknownRecordType(Exception):
    """A key type or a value version that this broker does not know."""


class JournalRecord(NamedTuple):
    key: bytes
    value: bytes | None


@dataclasses.dataclass(frozen=True, slots=True)
class CommittedOffset:
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int | None = None
    topic_id: bytes = ZERO_TOPIC_ID


@dataclasses.dataclass(frozen=True, slots=True)
class OffsetEntry:
    """An offset was committed, or (without a value) removed."""

    group_id: str
    topic: str
    partition: int
    value: CommittedOffset | None


@dataclasses.dataclass(frozen=True, slots=True)
class GroupEntry:
    """A generation of a classic group, or (without a value) the end of the group."""

    group_id: str
    value: GroupMetadataValue | None


Entry = OffsetEntry | GroupEntry


def encode_entry(entry: Entry) -> JournalRecord:
    if isinstance(entry, OffsetEntry):
        key = OffsetCommitKey(group=entry.group_id, topic=entry.topic, partition=entry.partition)
        value = None if entry.value is None else _encode_offset(entry.value)
        return JournalRecord(_VERSION.pack(OFFSET_COMMIT_KEY_TYPE) + encode(key, 0), value)
    group_key = _VERSION.pack(GROUP_METADATA_KEY_TYPE) + encode(GroupMetadataKey(group=entry.group_id), 0)
    if entry.value is None:
        return JournalRecord(group_key, None)
    version = GROUP_METADATA_VALUE_VERSION
    return JournalRecord(group_key, _VERSION.pack(version) + encode(entry.value, version))


def decode_entry(key: bytes, value: bytes | None) -> Entry:
    """What a record says. Raises UnknownRecordType, or MalformedMessage when its bytes are not what they claim."""
    key_type = leading_version(key)
    if key_type in (LEGACY_OFFSET_COMMIT_KEY_TYPE, OFFSET_COMMIT_KEY_TYPE):
        offset_key = decode(OffsetCommitKey, 0, key, _VERSION.size)
        committed = None if value is None else _decode_offset(value)
        return OffsetEntry(offset_key.group, offset_key.topic, offset_key.partition, committed)
    if key_type == GROUP_METADATA_KEY_TYPE:
        group_key = decode(GroupMetadataKey, 0, key, _VERSION.size)
        return GroupEntry(group_key.group, None if value is None else _decode_group(value))
    raise UnknownRecordType(f"key type {key_type}")


def _encode_offset(committed: CommittedOffset) -> bytes:
    version = OFFSET_COMMIT_VALUE_VERSION
    if committed.expire_timestamp_ms is not None:
        version = OFFSET_COMMIT_VALUE_VERSION_WITH_EXPIRY
    message = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        expire_timestamp=NO_TIMESTAMP if committed.expire_timestamp_ms is None else committed.expire_timestamp_ms,
        topic_id=committed.topic_id,
    )
    return _VERSION.pack(version) + encode(message, version)


def _decode_offset(value: bytes) -> CommittedOffset:
    version = _known_version(value, OFFSET_COMMIT_VALUE_VERSION)
    message = decode(OffsetCommitValue, version, value, _VERSION.size)
    return CommittedOffset(
        message.offset,
        message.leader_epoch,
        message.metadata,
        message.commit_timestamp,
        None if message.expire_timestamp == NO_TIMESTAMP else message.expire_timestamp,
        message.topic_id,
    )


# Version 4 of the group record is a flexible twin of version 3 that Kafka reads but does not write yet.
_GROUP_METADATA_VALUE_VERSION_MAX = 4


def _decode_group(value: bytes) -> GroupMetadataValue:
    version = _known_version(value, _GROUP_METADATA_VALUE_VERSION_MAX)
    return decode(GroupMetadataValue, version, value, _VERSION.size)


def _known_version(value: bytes, newest: int) -> int:
    version = leading_version(value)
    if not 0 <= version <= newest:
        raise UnknownRecordType(f"value version {version}")
    return version
