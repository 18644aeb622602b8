"""Markers: the control batches that end a transaction in each of its partitions.

They enter through the same write path as everything else. In the offsets topic a marker also decides the group offsets
that wait for it, once it is durable. The one sender that could be remote: with several brokers, markers for partitions
led elsewhere leave here as WriteTxnMarkers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fencepost.broker.topic_names import OFFSETS_TOPIC
from fencepost.coordinators.transactions.ledger import MarkerDone, MarkerOrder
from fencepost.coordinators.transactions.metadata import TopicPartition
from fencepost.wire.batch import ControlType
from fencepost.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from fencepost.broker.node import Node


def send_markers(node: Node, order: MarkerOrder, done: MarkerDone) -> None:
    """Have a marker written to each partition of a transaction; `done` is called for each when it is durable."""
    now_ms = node.clock.wall_ms()
    for partition in order.partitions:
        write_marker(node, order, partition, now_ms, done)


def write_marker(
    node: Node, order: MarkerOrder, topic_partition: TopicPartition, now_ms: int, done: MarkerDone
) -> None:
    """One marker in one partition; `done` is called when it is durable and what waits for it is decided."""
    topic, index = topic_partition
    try:
        partition = node.partition(topic, index)
        appended = partition.append_marker(
            ControlType.COMMIT if order.is_commit else ControlType.ABORT,
            order.producer_id,
            order.producer_epoch,
            order.coordinator_epoch,
            transaction_version=order.transaction_version,
            now_ms=now_ms,
        )
    except KafkaError as error:
        done(topic_partition, error.code)
        return

    def durable(error: KafkaError | None) -> None:
        if error is None and topic == OFFSETS_TOPIC:
            node.groups.end_transaction(index, order.producer_id, committed=order.is_commit)
        done(topic_partition, ErrorCode.NONE if error is None else error.code)

    partition.when_durable(appended.last_offset, durable)
