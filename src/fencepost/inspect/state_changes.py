"""What __transaction_state says of a transactional id, record by record, from a file or from the wire."""

import dataclasses
from typing import Any

from fencepost.client.values import TopicPartition
from fencepost.inspect.internal_records import TRANSACTION_STATE_TOPIC, decode_record
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
    """None for a record that this version does not know."""
    decoded = decode_record(TRANSACTION_STATE_TOPIC, record)
    if decoded.key is None:
        return None
    transactional_id = str(decoded.key["transactionalId"])
    value = decoded.value
    if value is None:
        return StateChange(transactional_id, record.offset, record.timestamp, None)
    status = value["transactionStatus"]
    return StateChange(
        transactional_id,
        record.offset,
        record.timestamp,
        STATES[status] if 0 <= status < len(STATES) else f"unknown({status})",
        value["producerId"],
        value["producerEpoch"],
        value["transactionTimeoutMs"],
        value["transactionStartTimestampMs"],
        tuple(
            TopicPartition(topic["topic"], partition)
            for topic in value["transactionPartitions"] or ()
            for partition in topic["partitionIds"]
        ),
        value.get("previousProducerId", -1),
        value.get("nextProducerId", -1),
        value.get("clientTransactionVersion", 0),
    )
