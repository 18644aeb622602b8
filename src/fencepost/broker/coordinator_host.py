"""A coordinator in its broker: loaded from its internal topic, called when its deadlines come."""

from typing import Any, Generic, Protocol, TypeVar

from fencepost.broker.internal_topics import Loader
from fencepost.broker.surroundings import Surroundings
from fencepost.coordinators.runtime import CoordinatorRuntime
from fencepost.ports import Now, Timer


class Coordinator(Protocol):
    partition_count: int

    @property
    def runtime(self) -> "CoordinatorRuntime[Any, Any]": ...

    def next_deadline_ms(self) -> int | None: ...

    def on_time(self, now: Now) -> None: ...


C = TypeVar("C", bound=Coordinator)


class TopicView:
    """What coordinators may ask about topics."""

    def __init__(self, node: Surroundings) -> None:
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


class CoordinatorHost(Generic[C]):
    coordinator: C

    def __init__(self, node: Surroundings, topic: str) -> None:
        self._node = node
        self.topic = topic
        self._timer: Timer | None = None
        self._timer_due_ms = 0

    def now(self) -> Now:
        return Now.of(self._node.clock)

    def start(self) -> None:
        if self.topic in self._node.metadata.topics:
            self.topic_created()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def topic_created(self) -> None:
        self.coordinator.partition_count = self._node.metadata.topics[self.topic].partition_count
        Loader(self._node, self.topic, self.coordinator.runtime, self.all_loaded).load_all()
        self.schedule()

    def all_loaded(self) -> None:
        """Every partition was loaded, or given up."""

    def unload(self) -> None:
        for index in range(self.coordinator.partition_count):
            self.coordinator.runtime.unload(index)

    def schedule(self) -> None:
        """Have the coordinator called when its next deadline comes; it says when that has come nearer."""
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
        try:
            self.coordinator.on_time(self.now())
        finally:
            # Whatever went wrong with one deadline, the others still come.
            self.schedule()
