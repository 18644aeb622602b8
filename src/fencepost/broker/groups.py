"""The group coordinator in its broker."""

from fencepost.broker.coordinator_host import CoordinatorHost, InternalTopic, TopicView
from fencepost.broker.surroundings import Surroundings
from fencepost.coordinators.group_coordinator import GroupCoordinator
from fencepost.internal_topic_names import CONSUMER_OFFSETS


class Groups(CoordinatorHost[GroupCoordinator]):
    def __init__(self, node: Surroundings) -> None:
        super().__init__(node, CONSUMER_OFFSETS)
        offsets = InternalTopic(node, CONSUMER_OFFSETS)
        self.coordinator = GroupCoordinator(
            node.config,
            offsets.append,
            TopicView(node),
            node.clock,
            node.randomness,
            node.events.emit,
            offsets.append_markers,
            # Writes that become durable move deadlines too, with no call to go with them.
            deadline_moved=self.schedule,
        )

    def topic_deleted(self, name: str) -> None:
        if name == CONSUMER_OFFSETS:
            self.unload()
        else:
            self.coordinator.on_topics_deleted([name])
