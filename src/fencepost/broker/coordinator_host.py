"""A coordinator in its broker: what it writes to and is loaded from, and who calls it when its deadlines come.

It writes to its internal topic through the same partitions as everything else (`InternalTopic`), and loads it in steps
(`Loader`). Markers for the partitions of any topic are written here, too (`append_markers`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from fencepost.broker.events import DamageFound
from fencepost.broker.partition import Partition, find_partition
from fencepost.broker.surroundings import Surroundings
from fencepost.coordinators.journal import JournalRecord
from fencepost.coordinators.runtime import APPENDED, DURABLE, AppendOutcome, CoordinatorRuntime
from fencepost.log.producers import Marker, Origin, VerificationGuard
from fencepost.ports import Now, Timer
from fencepost.promise import Promise
from fencepost.wire.batch import build_batch
from fencepost.wire.errors import KafkaError


class Coordinator(Protocol):
    partition_count: int

    @property
    def runtime(self) -> CoordinatorRuntime[Any, Any]: ...

    def next_deadline_ms(self) -> int | None: ...

    def on_time(self, now: Now) -> None: ...


# What one step of loading reads before others get their turn.
LOAD_STEP_BYTES = 1_048_576
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


class InternalTopic:
    """What a coordinator's runtime writes to."""

    def __init__(self, node: Surroundings, topic: str) -> None:
        self._node = node
        self._topic = topic

    def leader_epoch(self, partition: int) -> int:
        return find_partition(self._node.partitions, self._topic, partition).leader_epoch

    def append(
        self,
        partition: int,
        records: Sequence[JournalRecord],
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
        transactional: bool = False,
        verification_guard: VerificationGuard | None = None,
        now_ms: int | None = None,
    ) -> Promise[AppendOutcome]:
        """The promise is resolved when the records are durable."""
        if now_ms is None:
            now_ms = self._node.clock.wall_ms()
        target = find_partition(self._node.partitions, self._topic, partition)
        if len(records) == 1 and not transactional:
            last_offset = target.append_record(*records[0], now_ms)
        else:
            batch = build_batch(
                [(now_ms, record.key, record.value, ()) for record in records],
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                transactional=transactional,
            )
            last_offset = target.append(memoryview(batch), Origin.COORDINATOR, now_ms, verification_guard).last_offset
        return _durable(target, last_offset)

    def append_markers(
        self, partition: int, markers: Sequence[Marker], now_ms: int
    ) -> tuple[list[KafkaError | None], Promise[AppendOutcome]]:
        return append_markers(find_partition(self._node.partitions, self._topic, partition), markers, now_ms)


def append_markers(
    partition: Partition, markers: Sequence[Marker], now_ms: int
) -> tuple[list[KafkaError | None], Promise[AppendOutcome]]:
    """End transactions in any partition; the promise is resolved when the markers that were not refused are durable."""
    refusals = partition.append_markers(markers, now_ms)
    return refusals, _durable(partition, partition.log.log_end_offset - 1)


def _durable(partition: Partition, last_offset: int) -> Promise[AppendOutcome]:
    if last_offset < partition.log.high_watermark and partition.failure is None:
        return DURABLE
    promise: Promise[AppendOutcome] = Promise()

    def durable(error: KafkaError | None) -> None:
        promise.resolve(APPENDED if error is None else AppendOutcome(error.code))

    partition.when_durable(last_offset, durable)
    return promise


class Loader:
    """Replays an internal topic into its coordinator in steps, so that a long log does not hold up everything else."""

    def __init__(
        self, node: Surroundings, topic: str, runtime: CoordinatorRuntime[Any, Any], all_loaded: Callable[[], None]
    ) -> None:
        self._node = node
        self._all_loaded = all_loaded
        self._topic = topic
        self._runtime = runtime
        self._waiting: list[tuple[Partition, int]] = []
        """What is still to be read of each partition, and from where on."""

    def load_all(self) -> None:
        for partition in self._node.partitions[self._topic]:
            self._runtime.start_loading(partition.index)
            if not partition.log.is_usable:
                self._give_up(partition.index, partition.log.refusal())
            elif partition.log.log_end_offset == partition.log.log_start_offset:
                self._finish(partition.index)
            else:
                self._waiting.append((partition, partition.log.log_start_offset))
        self._go_on()

    def _go_on(self) -> None:
        if self._waiting:
            self._node.scheduler.call_soon(self._step)
        else:
            self._all_loaded()

    def _step(self) -> None:
        partition, offset = self._waiting.pop()
        try:
            self._read(partition, offset)
        except Exception as error:
            # Whatever it is, it is about this partition: the others are still to be loaded.
            self._give_up(partition.index, error)
        self._go_on()

    def _read(self, partition: Partition, offset: int) -> None:
        if partition not in self._node.partitions.get(self._topic, ()):
            return  # the topic was deleted, and its coordinator with it; a new one has a loader of its own
        log = partition.log
        found = log.read(offset, LOAD_STEP_BYTES, upper_bound=log.log_end_offset)
        if found.records:
            self._runtime.replay(partition.index, found.records)
        if found.records and found.next_offset < log.log_end_offset:
            self._waiting.append((partition, found.next_offset))
        else:
            self._finish(partition.index)

    def _give_up(self, index: int, error: Exception) -> None:
        """A decision that cannot be read may be the one that counts: better no coordinator than a wrong one."""
        self._runtime.unload(index)
        self._node.events.emit(DamageFound(self._topic, index, f"no coordinator for it: {error}"))

    def _finish(self, index: int) -> None:
        self._runtime.finish_loading(index, Now.of(self._node.clock))


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
