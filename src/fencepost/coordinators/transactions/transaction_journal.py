"""The records of __transaction_state, in Kafka's own schemas.

Owns what a key and a value look like as bytes, and which version is written: 1, with its tags, from
`transaction.version` 1 on, else 0. Both can be read; unknown versions raise UnknownRecordType and are skipped.

Three of these records are written for every transaction, so keys and values of version 1 are packed by hand.
"""

import struct
from collections.abc import Callable, Iterable
from functools import lru_cache

from fencepost.coordinators.journal import JournalRecord, UnknownRecordType
from fencepost.coordinators.transactions.transaction_metadata import TransactionEntry, TransactionRecord, impossible
from fencepost.coordinators.transactions.transaction_states import EMPTY, PERSISTED, TransactionState
from fencepost.topic_partition import TopicPartition
from fencepost.wire.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, encode_unsigned_varint
from fencepost.wire.codec import decode, encode, leading_version
from fencepost.wire.errors import MalformedMessage
from fencepost.wire.messages import TransactionLogKey, TransactionLogValue

KEY_VERSION = 0
VALUE_VERSION_MAX = 1
VALUE_VERSION_WITH_TAGS = 1

_VERSION = struct.Struct(">h")
_KEY = struct.Struct(">hh")
# Version, producer id, producer epoch, time-out, status.
_VALUE_HEAD = struct.Struct(">hqhib")
_TIMESTAMPS = struct.Struct(">qq")
# Timestamps and tags as they nearly always are: the previous producer id alone, or the client's version behind it.
_ENDING_PROTOCOL_1 = struct.Struct(">qqbbbq")
_ENDING_PROTOCOL_2 = struct.Struct(">qqbbbqbbh")
_TAGGED_ID = struct.Struct(">bbq")
_TAGGED_SHORT = struct.Struct(">bbh")
_TAG_COUNTS = [bytes((count,)) for count in range(5)]
PARTITION_SETS_CACHED_MAX = 1024
KEYS_CACHED_MAX = 16_384
_new_tuple = tuple.__new__


class TransactionJournal:
    def __init__(self, transaction_version: Callable[[], int]) -> None:
        self._transaction_version = transaction_version

    def encode_entry(self, entry: TransactionEntry) -> JournalRecord:
        transactional_id, record = entry
        if record is None:
            value = None
        elif self._transaction_version() >= 1:
            value = pack_value_with_tags(record)
        else:
            value = _VERSION.pack(0) + encode(_to_value(record), 0)
        return _new_tuple(JournalRecord, (_pack_key(transactional_id), value))

    def decode_entry(self, key: bytes, value: bytes | None) -> TransactionEntry:
        """What a record says. Raises UnknownRecordType, or MalformedMessage when its bytes are not what they claim."""
        if leading_version(key) != KEY_VERSION:
            raise UnknownRecordType(f"key version {leading_version(key)}")
        transactional_id = decode(TransactionLogKey, 0, key, _VERSION.size).transactional_id
        if value is None:
            return TransactionEntry(transactional_id, None)
        version = leading_version(value)
        if not 0 <= version <= VALUE_VERSION_MAX:
            raise UnknownRecordType(f"value version {version}")
        return TransactionEntry(transactional_id, _from_value(decode(TransactionLogValue, version, value, 2)))


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Sorted, so that the same state has the same bytes every time."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return topics


def pack_value_with_tags(record: TransactionRecord) -> bytes:
    """The same bytes as the schema's version 1, its own version in front."""
    head = _VALUE_HEAD.pack(
        VALUE_VERSION_WITH_TAGS, record.producer_id, record.producer_epoch, record.timeout_ms, record.state
    )
    partitions = b"\0" if record.state is EMPTY else _pack_partitions(record.partitions)
    return head + partitions + _pack_ending(record)


@lru_cache(maxsize=KEYS_CACHED_MAX)
def _pack_key(transactional_id: str) -> bytes:
    name = transactional_id.encode()
    return _KEY.pack(KEY_VERSION, len(name)) + name


@lru_cache(maxsize=PARTITION_SETS_CACHED_MAX)
def _pack_partitions(partitions: frozenset[TopicPartition]) -> bytes:
    parts = []
    topics = by_topic(partitions)
    parts.append(encode_unsigned_varint(len(topics) + 1))
    for topic, indexes in topics.items():
        name = topic.encode()
        parts += (encode_unsigned_varint(len(name) + 1), name, encode_unsigned_varint(len(indexes) + 1))
        parts += (struct.pack(f">{len(indexes)}i", *indexes), b"\0")
    return b"".join(parts)


def _pack_ending(record: TransactionRecord) -> bytes:
    updated_ms, started_ms = record.last_update_timestamp_ms, record.start_timestamp_ms
    previous_id, version = record.previous_producer_id, record.client_transaction_version
    if (
        previous_id == NO_PRODUCER_ID
        or record.next_producer_id != NO_PRODUCER_ID
        or record.next_producer_epoch != NO_PRODUCER_EPOCH
    ):
        return _TIMESTAMPS.pack(updated_ms, started_ms) + _pack_tags(record)
    if version:
        return _ENDING_PROTOCOL_2.pack(updated_ms, started_ms, 2, 0, 8, previous_id, 2, 2, version)
    return _ENDING_PROTOCOL_1.pack(updated_ms, started_ms, 1, 0, 8, previous_id)


def _pack_tags(record: TransactionRecord) -> bytes:
    """Only what differs from the schema's default, in the order of the tags."""
    tags = []
    if record.previous_producer_id != NO_PRODUCER_ID:
        tags.append(_TAGGED_ID.pack(0, 8, record.previous_producer_id))
    if record.next_producer_id != NO_PRODUCER_ID:
        tags.append(_TAGGED_ID.pack(1, 8, record.next_producer_id))
    if record.client_transaction_version:
        tags.append(_TAGGED_SHORT.pack(2, 2, record.client_transaction_version))
    if record.next_producer_epoch != NO_PRODUCER_EPOCH:
        tags.append(_TAGGED_SHORT.pack(3, 2, record.next_producer_epoch))
    return b"".join((_TAG_COUNTS[len(tags)], *tags))


def _to_value(record: TransactionRecord) -> TransactionLogValue:
    partitions = None
    if record.state is not EMPTY:
        partitions = [
            TransactionLogValue.PartitionsSchema(topic=topic, partition_ids=ids)
            for topic, ids in by_topic(record.partitions).items()
        ]
    return TransactionLogValue(
        producer_id=record.producer_id,
        producer_epoch=record.producer_epoch,
        transaction_timeout_ms=record.timeout_ms,
        transaction_status=record.state,
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=record.last_update_timestamp_ms,
        transaction_start_timestamp_ms=record.start_timestamp_ms,
    )


def _from_value(value: TransactionLogValue) -> TransactionRecord:
    if value.transaction_status not in PERSISTED:
        raise MalformedMessage(f"transaction status {value.transaction_status}")
    record = TransactionRecord(
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=TransactionState(value.transaction_status),
        partitions=frozenset(
            TopicPartition(topic.topic, partition)
            for topic in value.transaction_partitions or ()
            for partition in topic.partition_ids
        ),
        start_timestamp_ms=value.transaction_start_timestamp_ms,
        last_update_timestamp_ms=value.transaction_last_update_timestamp_ms,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        next_producer_epoch=value.next_producer_epoch,
        client_transaction_version=value.client_transaction_version,
    )
    problem = impossible(record)
    if problem is not None:
        raise MalformedMessage(problem)
    return record
