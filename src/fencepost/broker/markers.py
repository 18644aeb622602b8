"""Markers: the control batches that end a transaction in each of its partitions.

They enter through the same write path as everything else. Nobody waits for them but the producer's next transaction: so
they gather while requests wait, and those of one partition are written together. In the offsets topic a marker also
decides the group offsets that wait for it, once it is durable. The one sender that could be remote: with several
brokers, markers for partitions led elsewhere leave here as WriteTxnMarkers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fencepost.coordinators.transactions.coordinator import MarkerDone
from fencepost.coordinators.transactions.effects import MarkerOrder
from fencepost.internal_topic_names import CONSUMER_OFFSETS
from fencepost.topic_partition import TopicPartition
from fencepost.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from fencepost.broker.node import Node

Ordered = tuple[MarkerOrder, MarkerDone]


class MarkerSender:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._gathered: dict[TopicPartition, list[Ordered]] = {}

    def send(self, order: MarkerOrder, done: MarkerDone) -> None:
        """Have a marker written to each partition of a transaction; `done` is called for each when it is durable."""
        gathered = self._gathered
        if not gathered:
            self._node.scheduler.call_when_quiet(self._write_gathered)
        ordered = order, done
        for topic_partition in order.partitions:
            waiting = gathered.get(topic_partition)
            if waiting is None:
                gathered[topic_partition] = [ordered]
            else:
                waiting.append(ordered)

    def _write_gathered(self) -> None:
        gathered, self._gathered = self._gathered, {}
        now_ms = self._node.clock.wall_ms()
        for topic_partition, group in gathered.items():
            write_markers(self._node, topic_partition, group, now_ms)


def write_markers(node: Node, topic_partition: TopicPartition, group: Sequence[Ordered], now_ms: int) -> None:
    """Markers of several producers in one partition; each is told when its own is durable and what waits is decided."""
    topic, index = topic_partition
    try:
        partition = node.partition(topic, index)
        refusals = partition.append_markers([order for order, _ in group], now_ms)
    except KafkaError as error:
        for _, done in group:
            done(topic_partition, error.code)
        return
    written = [ordered for ordered, refusal in zip(group, refusals, strict=True) if refusal is None]
    for (_, done), refusal in zip(group, refusals, strict=True):
        if refusal is not None:
            done(topic_partition, refusal.code)

    def durable(error: KafkaError | None) -> None:
        code = ErrorCode.NONE if error is None else error.code
        for order, done in written:
            if error is None and topic == CONSUMER_OFFSETS:
                node.groups.end_transaction(index, order.producer_id, committed=order.is_commit)
            done(topic_partition, code)

    if written:
        partition.when_durable(partition.log.log_end_offset - 1, durable)
