"""Markers: the control batches that end a transaction in each of its partitions.

They enter through the same write path as everything else. Nobody waits for them but the producer's next transaction: so
they gather while requests wait, and those of one partition are written together, some at a time: a commit should not
wait for many others to be completed. In the offsets topic a marker also
decides the group offsets that wait for it, once it is durable. The one sender that could be remote: with several
brokers, markers for partitions led elsewhere leave here as WriteTxnMarkers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fencepost.broker.topic_names import OFFSETS_TOPIC
from fencepost.coordinators.transactions.markers import MarkerDone, MarkerOrder
from fencepost.coordinators.transactions.metadata import TopicPartition
from fencepost.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from fencepost.broker.node import Node

MARKERS_AT_ONCE = 12

Ordered = tuple[MarkerOrder, MarkerDone]


class MarkerSender:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._gathered: dict[TopicPartition, list[Ordered]] = {}
        self._is_scheduled = False

    def send(self, order: MarkerOrder, done: MarkerDone) -> None:
        """Have a marker written to each partition of a transaction; `done` is called for each when it is durable."""
        gathered = self._gathered
        self._schedule()
        ordered = order, done
        for topic_partition in order.partitions:
            waiting = gathered.get(topic_partition)
            if waiting is None:
                gathered[topic_partition] = [ordered]
            else:
                waiting.append(ordered)

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._node.scheduler.call_when_quiet(self._write_some)

    def _write_some(self) -> None:
        self._is_scheduled = False
        gathered = self._gathered
        now_ms = self._node.clock.wall_ms()
        room = MARKERS_AT_ONCE
        while gathered and room > 0:
            topic_partition = next(iter(gathered))
            group = gathered.pop(topic_partition)
            if len(group) > MARKERS_AT_ONCE:
                gathered[topic_partition] = group[MARKERS_AT_ONCE:]
                del group[MARKERS_AT_ONCE:]
            room -= len(group)
            write_markers(self._node, topic_partition, group, now_ms)
        if gathered:
            self._schedule()


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
            if error is None and topic == OFFSETS_TOPIC:
                node.groups.end_transaction(index, order.producer_id, committed=order.is_commit)
            done(topic_partition, code)

    if written:
        partition.when_durable(partition.log.log_end_offset - 1, durable)
