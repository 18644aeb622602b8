"""Before a transaction opens in a partition, its coordinator is asked whether the partition is part of it (KIP-890).

Old clients have added the partition themselves and it is verified; new ones rely on it being added now. The guard that
the log hands out must still be the current one when the batch is appended, so that an answer which a marker has
overtaken opens nothing. The log remembers the transactional id that the coordinator agreed to: a batch that names
another one with the same producer id and epoch is asked about too, and refused.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING

from fencepost.broker.connection import Call
from fencepost.broker.partition import Partition
from fencepost.log.producers import VerificationGuard
from fencepost.promise import Promise
from fencepost.topic_partition import TopicPartition
from fencepost.wire.errors import ErrorCode

if TYPE_CHECKING:
    from fencepost.broker.node import Node


def is_verified(node: "Node", *, adds: bool) -> bool:
    """Whether the coordinator is asked at all. Who relies on it to add partitions has no other way."""
    return adds or node.config.transaction_partition_verification_enable


def begin_verification(
    node: "Node",
    partition: Partition,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    sequence: int,
    *,
    adds: bool,
) -> VerificationGuard | None:
    """The guard to append with after the coordinator has agreed; None if there is nothing to ask."""
    if not is_verified(node, adds=adds):
        return None
    return partition.log.producers.maybe_start_verification(
        transactional_id, producer_id, sequence, producer_epoch, adds, node.clock.wall_ms()
    )


def ask_coordinator(
    node: "Node",
    call: Call,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    partitions: Collection[TopicPartition],
    *,
    adds: bool,
) -> Promise[dict[TopicPartition, ErrorCode]]:
    """The coordinator's word on each partition, in the codes that partition leaders pass on."""
    asked = node.transactions.coordinator.verify_or_add(
        transactional_id, producer_id, producer_epoch, partitions, add=adds, caller=call.caller
    )
    if asked.done and ErrorCode.PRODUCER_FENCED not in asked.value.values():
        return asked
    answer: Promise[dict[TopicPartition, ErrorCode]] = Promise()
    asked.then(lambda errors: answer.resolve({key: _passed_on(code) for key, code in errors.items()}))
    return answer


def _passed_on(code: ErrorCode) -> ErrorCode:
    return ErrorCode.INVALID_PRODUCER_EPOCH if code is ErrorCode.PRODUCER_FENCED else code
