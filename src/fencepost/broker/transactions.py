"""The transaction coordinator in its broker: where its producer ids, epochs and markers come from and go to."""

from fencepost.broker.cluster_metadata import TRANSACTION_VERSION
from fencepost.broker.coordinator_host import CoordinatorHost, TopicView
from fencepost.broker.internal_topics import InternalTopic
from fencepost.broker.markers import MarkerSender
from fencepost.broker.surroundings import Surroundings
from fencepost.coordinators.group_coordinator import GroupCoordinator
from fencepost.coordinators.transactions.coordinator import TransactionCoordinator
from fencepost.internal_topic_names import TRANSACTION_STATE
from fencepost.wire.batch import NO_PRODUCER_EPOCH


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
