"""Markers: the control batches that end a transaction in each of its partitions.

They enter through the same write path as everything else. In the offsets topic a marker also decides the group offsets
that wait for it, once it is durable. The one sender that could be remote: with several brokers, markers for partitions
led elsewhere leave here as WriteTxnMarkers.
"""

from typing import TYPE_CHECKING

from fencepost.broker.topic_names import OFFSETS_TOPIC
from fencepost.coordinators.transactions.ledger import MarkerDone, MarkerOrder
from fencepost.promise import Promise
from fencepost.wire.batch import ControlType
from fencepost.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from fencepost.broker.node import Node


def send_markers(node: "Node", order: MarkerOrder, done: MarkerDone) -> None:
    """Have a marker written to each partition of a transaction; `done` is called for each when it is durable."""
    for partition in order.partitions:
        written = write_marker(
            node,
            *partition,
            producer_id=order.producer_id,
            producer_epoch=order.producer_epoch,
            coordinator_epoch=order.coordinator_epoch,
            is_commit=order.is_commit,
            transaction_version=order.transaction_version,
        )
        written.then(lambda error, partition=partition: done(partition, error))  # type: ignore[misc]


def write_marker(
    node: "Node",
    topic: str,
    index: int,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    is_commit: bool,
    transaction_version: int,
) -> Promise[ErrorCode]:
    """One marker in one partition; resolved when it is durable and what waits for it is decided."""
    promise: Promise[ErrorCode] = Promise()
    try:
        partition = node.partition(topic, index)
        appended = partition.append_marker(
            ControlType.COMMIT if is_commit else ControlType.ABORT,
            producer_id,
            producer_epoch,
            coordinator_epoch,
            transaction_version=transaction_version,
            now_ms=node.clock.wall_ms(),
        )
    except KafkaError as error:
        promise.resolve(error.code)
        return promise

    def durable(error: KafkaError | None) -> None:
        if error is None and topic == OFFSETS_TOPIC:
            node.groups.end_transaction(index, producer_id, committed=is_commit)
        promise.resolve(ErrorCode.NONE if error is None else error.code)

    partition.when_durable(appended.last_offset, durable)
    return promise
