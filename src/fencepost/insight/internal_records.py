"""The records of __transaction_state and __consumer_offsets, decoded. They are the same on disk and over the wire.

A record that cannot be decoded is replaced by a problem, in the words of Kafka's dump tool; it never stops a dump.
"""

import base64
import json
import struct
from functools import cache
from typing import Any, NamedTuple

from fencepost.insight.message_json import to_json
from fencepost.internal_topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from fencepost.wire.codec import decode, decode_prefix
from fencepost.wire.errors import MalformedMessage
from fencepost.wire.messages import message_class, message_names, schema_of
from fencepost.wire.records import Record

DELETED = "<DELETE>"
CONSUMER_PROTOCOL_TYPE = "consumer"
GROUP_METADATA_TYPE = 2

_VERSION = struct.Struct(">h")
_KEY_VERSION = 0


class DecodedRecord(NamedTuple):
    """`value` is None for a tombstone. `problem` replaces key and value if they cannot be decoded."""

    key_type: int
    key: dict[str, Any] | None
    value_version: int | None
    value: dict[str, Any] | None
    problem: str | None = None

    @property
    def key_text(self) -> str:
        if self.problem is not None:
            return self.problem
        return _compact({"type": str(self.key_type), "data": self.key})

    @property
    def payload_text(self) -> str | None:
        if self.problem is not None:
            return None
        if self.value is None:
            return DELETED
        return _compact({"version": str(self.value_version), "data": self.value})


def is_decodable(topic: str) -> bool:
    return topic in (TRANSACTION_STATE, CONSUMER_OFFSETS)


def decode_record(topic: str, record: Record) -> DecodedRecord:
    """Never raises: a record that cannot be decoded has a `problem`."""
    names = _names(topic)
    if record.key is None or len(record.key) < _VERSION.size:
        return _problem(-1, f"Error at offset {record.offset}, skipping. the record has no key")
    (key_type,) = _VERSION.unpack_from(record.key)
    if key_type not in names:
        return _problem(key_type, f"Unknown record type {key_type} at offset {record.offset}, skipping.")
    key_name, value_name = names[key_type]
    try:
        key = to_json(decode(message_class(key_name), _KEY_VERSION, record.key, _VERSION.size), _KEY_VERSION)
        if record.value is None:
            return DecodedRecord(key_type, key, None, None)
        if len(record.value) < _VERSION.size:
            raise MalformedMessage("the value has no version")
        (version,) = _VERSION.unpack_from(record.value)
        first, last = schema_of(value_name)["valid"]
        if not first <= version <= last:
            raise MalformedMessage(f"value version {version} is not known")
        value = to_json(decode(message_class(value_name), version, record.value, _VERSION.size), version)
    except MalformedMessage as error:
        return _problem(key_type, f"Error at offset {record.offset}, skipping. {error}")
    if topic == CONSUMER_OFFSETS and key_type == GROUP_METADATA_TYPE:
        _open_members(value)
    return DecodedRecord(key_type, key, version, value)


def _problem(key_type: int, text: str) -> DecodedRecord:
    return DecodedRecord(key_type, None, None, None, text)


@cache
def _names(topic: str) -> dict[int, tuple[str, str]]:
    """Key type -> names of the schemas of key and value."""
    is_transaction = topic == TRANSACTION_STATE
    keys: dict[int, str] = {}
    values: dict[int, str] = {}
    for name in message_names():
        schema = schema_of(name)
        if schema["type"] in ("coordinator-key", "coordinator-value") and (
            name.startswith("TransactionLog") == is_transaction
        ):
            (keys if schema["type"] == "coordinator-key" else values)[schema["key"]] = name
    return {number: (keys[number], values[number]) for number in keys}


def _open_members(value: dict[str, Any]) -> None:
    """Decodes the subscriptions and assignments of classic groups, which are a format of the clients inside the
    record."""
    if value.get("protocolType") != CONSUMER_PROTOCOL_TYPE:
        return
    for member in value.get("members", ()):
        for field, schema in (
            ("subscription", "ConsumerProtocolSubscription"),
            ("assignment", "ConsumerProtocolAssignment"),
        ):
            opened = _client_message(schema, base64.b64decode(member[field]))
            if opened is not None:
                member[field] = opened


def _client_message(name: str, data: bytes) -> dict[str, Any] | None:
    """Returns None if a client wrote something else; then the bytes stay undecoded."""
    if len(data) < _VERSION.size:
        return None
    (version,) = _VERSION.unpack_from(data)
    first, last = schema_of(name)["valid"]
    if not first <= version <= last:
        return None
    try:
        message, _ = decode_prefix(message_class(name), version, data, _VERSION.size)
    except MalformedMessage:
        return None
    return to_json(message, version)


def _compact(document: Any) -> str:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)
