"""The transaction coordinator in its broker: where its producer ids, epochs and markers come from and go to."""

from typing import TYPE_CHECKING

from fencepost.broker.cluster_metadata import TRANSACTION_VERSION
from fencepost.broker.coordinator_host import CoordinatorHost, TopicView
from fencepost.broker.internal_topics import appender
from fencepost.broker.markers import MarkerSender
from fencepost.coordinators.transactions.coordinator import TransactionCoordinator
from fencepost.internal_topic_names import TRANSACTIONS_TOPIC
from fencepost.wire.batch import NO_PRODUCER_EPOCH

if TYPE_CHECKING:
    from fencepost.broker.node import Node


class Transactions(CoordinatorHost[TransactionCoordinator]):
    def __init__(self, node: "Node") -> None:
        super().__init__(node, TRANSACTIONS_TOPIC)
        self.coordinator = TransactionCoordinator(
            node.config,
            appender(node, TRANSACTIONS_TOPIC),
            node.clock,
            node.events.emit,
            TopicView(node),
            next_producer_id=node.metadata.next_producer_id,
            send_markers=MarkerSender(node).send,
            group_partition=lambda group_id: node.groups.coordinator.partition_for(group_id),
            coordinator_epoch=lambda partition: node.partition(TRANSACTIONS_TOPIC, partition).leader_epoch,
            transaction_version=lambda: node.metadata.features.get(TRANSACTION_VERSION, 0),
            partition_epoch=lambda producer_id: self._partition_epochs.get(producer_id, NO_PRODUCER_EPOCH),
            producer_ids_loaded=node.metadata.skip_producer_ids,
            deadline_moved=self.schedule,
        )
        self._partition_epochs: dict[int, int] = {}

    def start(self) -> None:
        epochs = self._partition_epochs
        for log in self._node.logs():
            for producer_id, entry in log.producers.producers.items():
                epochs[producer_id] = max(entry.producer_epoch, epochs.get(producer_id, NO_PRODUCER_EPOCH))
        self._node.metadata.skip_producer_ids(epochs)
        super().start()

    def all_loaded(self) -> None:
        self._partition_epochs.clear()

    def topic_deleted(self, name: str) -> None:
        if name == TRANSACTIONS_TOPIC:
            self.unload()
