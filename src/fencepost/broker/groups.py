"""The group coordinator in its broker."""

from typing import TYPE_CHECKING

from fencepost.broker.coordinator_host import CoordinatorHost, TopicView
from fencepost.broker.internal_topics import append_markers, appender
from fencepost.coordinators.group_coordinator import GroupCoordinator
from fencepost.internal_topic_names import CONSUMER_OFFSETS

if TYPE_CHECKING:
    from fencepost.broker.node import Node


class Groups(CoordinatorHost[GroupCoordinator]):
    def __init__(self, node: "Node") -> None:
        super().__init__(node, CONSUMER_OFFSETS)
        self.coordinator = GroupCoordinator(
            node.config,
            appender(node, CONSUMER_OFFSETS),
            TopicView(node),
            node.clock,
            node.randomness,
            node.events.emit,
            lambda index, markers, now_ms: append_markers(node.partition(CONSUMER_OFFSETS, index), markers, now_ms),
            # Writes that become durable move deadlines too, with no call to go with them.
            deadline_moved=self.schedule,
        )

    def topic_deleted(self, name: str) -> None:
        if name == CONSUMER_OFFSETS:
            self.unload()
        else:
            self.coordinator.on_topics_deleted([name])
