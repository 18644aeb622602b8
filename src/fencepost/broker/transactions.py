"""The transaction coordinator in its broker: where its producer ids and epochs come from, and its markers go to.

Markers are the control batches that end a transaction in each of its partitions. They enter through the same write path
as everything else. Nobody waits for them but the producer's next transaction: so they gather while requests wait, and
those of one partition are written together. Those of the offsets topic go through the runtime of the group coordinator,
whose state they change. `MarkerSender` is the one part that could be remote: with several brokers, markers for
partitions led elsewhere leave here as WriteTxnMarkers.
"""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.broker.cluster_metadata import TRANSACTION_VERSION
from fencepost.broker.coordinator_host import CoordinatorHost, InternalTopic, TopicView, append_markers
from fencepost.broker.partition import find_partition
from fencepost.broker.surroundings import Surroundings
from fencepost.coordinators.group_coordinator import GroupCoordinator
from fencepost.coordinators.rebalance import GroupRuntime
from fencepost.coordinators.runtime import AppendOutcome
from fencepost.coordinators.transactions.coordinator import MarkerDone, TransactionCoordinator
from fencepost.coordinators.transactions.effects import MarkerOrder
from fencepost.internal_topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from fencepost.topic_partition import TopicPartition
from fencepost.wire.batch import NO_PRODUCER_EPOCH
from fencepost.wire.errors import KafkaError


class Transactions(CoordinatorHost[TransactionCoordinator]):
    def __init__(self, node: Surroundings, groups: GroupCoordinator, markers: MarkerSender) -> None:
        super().__init__(node, TRANSACTION_STATE)
        states = InternalTopic(node, TRANSACTION_STATE)
        self._logs = node.logs
        self._skip_producer_ids = node.metadata.skip_producer_ids
        self.coordinator = TransactionCoordinator(
            node.config,
            states.append,
            node.clock,
            node.events.emit,
            TopicView(node),
            next_producer_id=node.metadata.next_producer_id,
            send_markers=markers.send,
            group_partition=groups.partition_for,
            coordinator_epoch=states.leader_epoch,
            transaction_version=lambda: node.metadata.features.get(TRANSACTION_VERSION, 0),
            partition_epoch=lambda producer_id: self._partition_epochs.get(producer_id, NO_PRODUCER_EPOCH),
            producer_ids_loaded=node.metadata.skip_producer_ids,
            deadline_moved=self.schedule,
        )
        self._partition_epochs: dict[int, int] = {}

    def start(self) -> None:
        epochs = self._partition_epochs
        for log in self._logs():
            for producer_id, entry in log.producers.producers.items():
                epochs[producer_id] = max(entry.producer_epoch, epochs.get(producer_id, NO_PRODUCER_EPOCH))
        self._skip_producer_ids(epochs)
        super().start()

    def all_loaded(self) -> None:
        self._partition_epochs.clear()

    def topic_deleted(self, name: str) -> None:
        if name == TRANSACTION_STATE:
            self.unload()


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
                refusals, outcome = append_markers(find_partition(self._node.partitions, topic, index), orders, now_ms)
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
