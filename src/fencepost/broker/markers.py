"""Markers: the control batches that end a transaction in each of its partitions.

They enter through the same write path as everything else. Nobody waits for them but the producer's next transaction: so
they gather while requests wait, and those of one partition are written together. Those of the offsets topic go through
the runtime of the group coordinator, whose state they change. The one sender that could be remote: with several
brokers, markers for partitions led elsewhere leave here as WriteTxnMarkers.
"""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.broker.internal_topics import append_markers
from fencepost.broker.surroundings import Surroundings
from fencepost.coordinators.rebalance import GroupRuntime
from fencepost.coordinators.runtime import AppendOutcome
from fencepost.coordinators.transactions.coordinator import MarkerDone
from fencepost.coordinators.transactions.effects import MarkerOrder
from fencepost.internal_topic_names import CONSUMER_OFFSETS
from fencepost.topic_partition import TopicPartition
from fencepost.wire.errors import KafkaError

Ordered = tuple[MarkerOrder, MarkerDone]


class MarkerSender:
    def __init__(self, node: Surroundings, groups: GroupRuntime) -> None:
        self._node = node
        self._groups = groups
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
            self.write(topic_partition, group, now_ms)

    def write(self, topic_partition: TopicPartition, group: Sequence[Ordered], now_ms: int) -> None:
        """Markers of several producers in one partition; `done` is called for each when its own is durable."""
        topic, index = topic_partition
        orders = [order for order, _ in group]
        try:
            if topic == CONSUMER_OFFSETS:
                # The groups' coordinator writes them, since they decide the offsets that wait for them.
                refusals, outcome = self._groups.write_markers(index, orders, now_ms)
            else:
                refusals, outcome = append_markers(self._node.partition(topic, index), orders, now_ms)
        except KafkaError as error:
            for _, done in group:
                done(topic_partition, error.code)
            return
        for (_, done), refusal in zip(group, refusals, strict=True):
            if refusal is not None:
                done(topic_partition, refusal.code)

        def durable(appended: AppendOutcome) -> None:
            for (_, done), refusal in zip(group, refusals, strict=True):
                if refusal is None:
                    done(topic_partition, appended.error_code)

        outcome.then(durable)
