"""How a coordinator writes to and loads from its internal topic: through the same partitions as everybody else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fencepost.broker.events import DamageFound
from fencepost.broker.partition import Partition
from fencepost.broker.surroundings import Surroundings
from fencepost.config import BrokerConfig, TopicConfig
from fencepost.coordinators.journal import JournalRecord
from fencepost.coordinators.runtime import APPENDED, DURABLE, AppendOutcome, CoordinatorRuntime
from fencepost.internal_topic_names import CONSUMER_OFFSETS, INTERNAL_TOPICS, TRANSACTION_STATE
from fencepost.log.producers import Marker, Origin, VerificationGuard
from fencepost.ports import Now
from fencepost.promise import Promise
from fencepost.wire.batch import build_batch
from fencepost.wire.errors import ErrorCode, KafkaError

# What one step of loading reads before others get their turn.
LOAD_STEP_BYTES = 1_048_576
TOMBSTONE_RETENTION_MIN_MS = 3_600_000


def internal_topic_settings(name: str, config: BrokerConfig) -> tuple[int, dict[str, str]]:
    """How many partitions an internal topic gets, and its settings."""
    if name == CONSUMER_OFFSETS:
        return config.offsets_topic_num_partitions, {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
        }
    return config.transaction_state_log_num_partitions, {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": str(config.transaction_state_log_min_isr),
        "segment.bytes": str(config.transaction_state_log_segment_bytes),
        "unclean.leader.election.enable": "false",
    }


def check_internal_overrides(name: str, config: TopicConfig) -> None:
    """Refuse settings under which an internal topic would forget what it must not."""
    if name not in INTERNAL_TOPICS:
        return
    if config.cleanup_policy != ("compact",):
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"cleanup.policy of {name} must be compact: anything else deletes state that is still in use",
        )
    if name == TRANSACTION_STATE and config.delete_retention_ms < TOMBSTONE_RETENTION_MIN_MS:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"delete.retention.ms of {name} must be at least {TOMBSTONE_RETENTION_MIN_MS}: a coordinator that loads "
            "the topic while a tombstone is removed would bring an expired transactional id back with its old epoch, "
            "and fencing would be lost",
        )


class InternalTopic:
    """What a coordinator's runtime writes to."""

    def __init__(self, node: Surroundings, topic: str) -> None:
        self._node = node
        self._topic = topic

    def leader_epoch(self, partition: int) -> int:
        return self._node.partition(self._topic, partition).leader_epoch

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
        target = self._node.partition(self._topic, partition)
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
        return append_markers(self._node.partition(self._topic, partition), markers, now_ms)


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
