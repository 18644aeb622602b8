"""A marker as a coordinator orders it, and one written by itself."""

from typing import NamedTuple

from fencepost.log.partition_log import PartitionLog
from fencepost.wire.batch import ControlType


class Ends(NamedTuple):
    producer_id: int
    producer_epoch: int = 0
    coordinator_epoch: int = 1
    is_commit: bool = True
    transaction_version: int = 1


def append_marker(
    log: PartitionLog,
    kind: ControlType,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    *,
    transaction_version: int,
    leader_epoch: int,
    now_ms: int,
) -> int:
    """Its offset, or KafkaError."""
    is_commit = kind is ControlType.COMMIT
    marker = Ends(producer_id, producer_epoch, coordinator_epoch, is_commit, transaction_version)
    offset = log.log_end_offset
    (refusal,) = log.append_markers([marker], leader_epoch=leader_epoch, now_ms=now_ms)
    if refusal is not None:
        raise refusal
    return offset
