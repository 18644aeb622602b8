"""The group coordinator in its broker: its internal topic, its timer, its view of the topics."""

from typing import TYPE_CHECKING

from fencepost.broker.internal_topics import Loader, appender
from fencepost.broker.topic_names import OFFSETS_TOPIC
from fencepost.coordinators.context import Now
from fencepost.coordinators.group_coordinator import GroupCoordinator
from fencepost.ports import Timer

if TYPE_CHECKING:
    from fencepost.broker.node import Node


class _TopicView:
    """What the groups may ask about topics."""

    def __init__(self, node: "Node") -> None:
        self._metadata = node.metadata

    def name_of(self, topic_id: bytes) -> str | None:
        topic = self._metadata.topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    def id_of(self, name: str) -> bytes | None:
        topic = self._metadata.topics.get(name)
        return None if topic is None else topic.topic_id

    def partition_count_of(self, name: str) -> int | None:
        topic = self._metadata.topics.get(name)
        return None if topic is None else topic.partition_count


class Groups:
    def __init__(self, node: "Node") -> None:
        self._node = node
        self.coordinator = GroupCoordinator(
            node.config,
            appender(node, OFFSETS_TOPIC),
            _TopicView(node),
            node.clock,
            node.randomness,
            node.events.emit,
            # Writes that become durable move deadlines too, with no call to go with them.
            deadline_moved=self.schedule,
        )
        self._timer: Timer | None = None
        self._timer_due_ms = 0
        self._loader = Loader(node, OFFSETS_TOPIC, self.coordinator.runtime)

    def now(self) -> Now:
        return Now(self._node.clock.monotonic_ms(), self._node.clock.wall_ms())

    def start(self) -> None:
        if OFFSETS_TOPIC in self._node.metadata.topics:
            self.topic_created()

    def topic_created(self) -> None:
        self.coordinator.partition_count = self._node.metadata.topics[OFFSETS_TOPIC].partition_count
        self._loader.load_all()
        self.schedule()

    def topic_deleted(self, name: str) -> None:
        if name != OFFSETS_TOPIC:
            self.coordinator.on_topics_deleted([name])
            return
        for index in range(self.coordinator.partition_count):
            self.coordinator.runtime.unload(index)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def schedule(self) -> None:
        """Have the coordinator called when its next deadline comes; any call to it may have moved that."""
        deadline_ms = self.coordinator.next_deadline_ms()
        if deadline_ms is None or (self._timer is not None and self._timer_due_ms <= deadline_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due_ms = deadline_ms
        delay_ms = max(0, deadline_ms - self._node.clock.monotonic_ms())
        self._timer = self._node.scheduler.call_later(delay_ms, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        self.coordinator.on_time(self.now())
        self.schedule()
