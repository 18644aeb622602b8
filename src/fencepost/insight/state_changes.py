"""The records of a transactional id in __transaction_state, from a file or over the wire."""

import dataclasses
import struct
from typing import Any

from fencepost.topic_partition import TopicPartition
from fencepost.wire.codec import decode
from fencepost.wire.errors import MalformedMessage
from fencepost.wire.messages import TransactionLogKey, TransactionLogValue, schema_of
from fencepost.wire.records import Record

STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)
ONGOING = "Ongoing"
PREPARED = ("PrepareCommit", "PrepareAbort")
COMPLETE = ("CompleteCommit", "CompleteAbort")
NO_TIMESTAMP = -1
_VERSION = struct.Struct(">h")
_KEY_TYPE, _KEY_VERSION = 0, 0
_VALUE_VERSIONS = schema_of("TransactionLogValue")["valid"]


@dataclasses.dataclass(frozen=True, slots=True)
class StateChange:
    """One record. `state` is None for the tombstone of an id that expired."""

    transactional_id: str
    offset: int
    timestamp_ms: int
    state: str | None
    producer_id: int = -1
    producer_epoch: int = -1
    timeout_ms: int = -1
    start_ms: int = NO_TIMESTAMP
    partitions: tuple[TopicPartition, ...] = ()
    previous_producer_id: int = -1
    next_producer_id: int = -1
    client_transaction_version: int = 0

    @property
    def is_commit(self) -> bool:
        return self.state in ("PrepareCommit", "CompleteCommit")

    def document(self) -> dict[str, Any]:
        return {
            "time_ms": self.timestamp_ms,
            "offset": self.offset,
            "transactional_id": self.transactional_id,
            "state": self.state,
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
            "timeout_ms": self.timeout_ms,
            "start_ms": self.start_ms,
            "partitions": [str(partition) for partition in self.partitions],
        }


def read_state_change(record: Record) -> StateChange | None:
    """Returns None for an unknown type of record.

    The dashboard reads thousands of these per second, so the decoded messages are used directly.
    """
    if record.key is None or len(record.key) < _VERSION.size or _VERSION.unpack_from(record.key)[0] != _KEY_TYPE:
        return None
    try:
        transactional_id = decode(TransactionLogKey, _KEY_VERSION, record.key, _VERSION.size).transactional_id
        if record.value is None:
            return StateChange(transactional_id, record.offset, record.timestamp, None)
        if len(record.value) < _VERSION.size:
            return None
        (version,) = _VERSION.unpack_from(record.value)
        if not _VALUE_VERSIONS[0] <= version <= _VALUE_VERSIONS[1]:
            return None
        value = decode(TransactionLogValue, version, record.value, _VERSION.size)
    except MalformedMessage:
        return None
    status = value.transaction_status
    return StateChange(
        transactional_id,
        record.offset,
        record.timestamp,
        STATES[status] if 0 <= status < len(STATES) else f"unknown({status})",
        value.producer_id,
        value.producer_epoch,
        value.transaction_timeout_ms,
        value.transaction_start_timestamp_ms,
        tuple(
            TopicPartition(topic.topic, partition)
            for topic in value.transaction_partitions or ()
            for partition in topic.partition_ids
        ),
        value.previous_producer_id,
        value.next_producer_id,
        value.client_transaction_version,
    )
