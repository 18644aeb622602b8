"""A group coordinator on a stage: a log in memory, virtual time, and a disk that can be slow or fail on cue."""

import struct
from collections.abc import Sequence
from typing import Any, TypeVar

from fencepost.broker.slices import finished
from fencepost.config import broker_config
from fencepost.coordinators.context import Caller
from fencepost.coordinators.group_coordinator import GroupCoordinator
from fencepost.coordinators.journal import JournalRecord, decode_entry
from fencepost.coordinators.runtime import DURABLE, AppendOutcome
from fencepost.coordinators.transactions.effects import MarkerOrder
from fencepost.log.producers import Marker
from fencepost.ports import Now
from fencepost.promise import Promise
from fencepost.wire import messages
from fencepost.wire.batch import ControlType, build_batch, control_batch
from fencepost.wire.codec import decode, encode
from fencepost.wire.errors import ErrorCode, KafkaError
from fencepost.wire.records import read_records
from tests.unit.coordinators.calls import GROUP, REBALANCE_MS, SESSION_MS, GroupCalls, KnownTopics, Topic, subscription

WALL_START_MS = 1_700_000_000_000
RETENTION_MS = 7 * 24 * 3_600_000
R = TypeVar("R")

__all__ = ["GROUP", "REBALANCE_MS", "RETENTION_MS", "SESSION_MS", "Scene", "subscription"]


class CountingRandomness:
    """Not random at all, so that transcripts are the same every time."""

    def __init__(self) -> None:
        self.drawn = 0

    def random_bytes(self, count: int) -> bytes:
        self.drawn += 1
        return self.drawn.to_bytes(count, "big")


class Scene(GroupCalls):
    def __init__(self, **settings: object) -> None:
        texts = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}
        texts |= {name.replace("_", "."): str(value) for name, value in settings.items()}
        self.config = broker_config(texts)
        self.milliseconds = 1_000
        self.topics = KnownTopics(orders=Topic(b"orders-topic-id!", 4), audit=Topic(b"audit-topic-id-!", 2))
        self.events: list[object] = []
        self.log: list[bytearray] = []
        self.end_offset = 0
        self.failures: list[ErrorCode] = []
        self.is_disk_slow = False
        self.unsynced: list[tuple[Promise[AppendOutcome], AppendOutcome]] = []
        self._randomness = CountingRandomness()
        self.restart()

    # The stage

    def restart(self, batches_per_read: int = 1_000) -> None:
        """A new coordinator that knows nothing but the log."""
        self.unsynced.clear()
        self.coordinator = GroupCoordinator(
            self.config, self._append, self.topics, self, self._randomness, self.events.append, self._append_markers
        )
        starts = range(0, len(self.log), batches_per_read)
        reads = [b"".join(self.log[start : start + batches_per_read]) for start in starts]
        self.coordinator.runtime.load(0, reads, self.now)

    def monotonic_ms(self) -> int:
        return self.milliseconds

    def wall_ms(self) -> int:
        return WALL_START_MS + self.milliseconds

    @property
    def now(self) -> Now:
        return Now(self.monotonic_ms(), self.wall_ms())

    def advance(self, milliseconds: int) -> None:
        """Let time pass, with every deadline on the way met when it comes."""
        end = self.milliseconds + milliseconds
        while (deadline := self.coordinator.next_deadline_ms()) is not None and deadline <= end:
            self.milliseconds = max(self.milliseconds, deadline)
            self.coordinator.on_time(self.now)
        self.milliseconds = end

    def _append(
        self,
        partition: int,
        records: Sequence[JournalRecord],
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
        transactional: bool = False,
        verification_guard: object = None,
        now_ms: int | None = None,
    ) -> Promise[AppendOutcome]:
        if self.failures:
            return Promise.resolved(AppendOutcome(self.failures.pop(0)))
        batch = build_batch(
            [(self.wall_ms(), key, value, ()) for key, value in records],
            base_offset=self.end_offset,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transactional=transactional,
        )
        self.log.append(batch)
        self.end_offset += len(records)
        outcome = AppendOutcome(ErrorCode.NONE)
        if not self.is_disk_slow:
            return DURABLE
        promise: Promise[AppendOutcome] = Promise()
        self.unsynced.append((promise, outcome))
        return promise

    def sync(self) -> None:
        """The slow disk catches up."""
        waiting, self.unsynced = self.unsynced, []
        for promise, outcome in waiting:
            promise.resolve(outcome)

    def fail_sync(self, error: ErrorCode = ErrorCode.KAFKA_STORAGE_ERROR) -> None:
        """What was not synced is lost."""
        waiting, self.unsynced = self.unsynced, []
        del self.log[len(self.log) - len(waiting) :]
        for promise, _ in waiting:
            promise.resolve(AppendOutcome(error))

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        marker = MarkerOrder("", producer_id, 0, 0, commit, 0, ())
        refusals, outcome = self.coordinator.runtime.write_markers(0, [marker], self.wall_ms())
        assert (refusals, outcome.value.error_code) == ([None], ErrorCode.NONE)

    def _append_markers(
        self, partition: int, markers: Sequence[Marker], now_ms: int
    ) -> tuple[list[KafkaError | None], Promise[AppendOutcome]]:
        for marker in markers:
            kind = ControlType.COMMIT if marker.is_commit else ControlType.ABORT
            batch = control_batch(kind, 0, marker.producer_id, 0, now_ms, base_offset=self.end_offset)
            self.log.append(batch)
            self.end_offset += 1
        return [None] * len(markers), DURABLE

    # What is in the log

    def journal(self) -> list[Any]:
        entries = []
        for batch in self.log:
            if not struct.unpack_from(">h", batch, 21)[0] & 0x20:
                entries += [decode_entry(r.key or b"", r.value) for r in read_records(bytes(batch), 1 << 20)]
        return entries

    def happened(self, kind: type[R]) -> list[R]:
        return [event for event in self.events if isinstance(event, kind)]

    # Every request and answer passes through the bytes of its version

    def call(self, name: str, request: Any, version: int, client_id: str = "app") -> Promise[Any]:
        sent = decode(type(request), version, encode(request, version))
        handler = getattr(self.coordinator, name)
        answer = handler(sent, version, Caller(client_id, "127.0.0.1"), self.now)
        reply: Promise[Any] = answer if isinstance(answer, Promise) else Promise.resolved(finished(answer))
        response_class = getattr(messages, type(request).__name__.replace("Request", "Response"))
        received: Promise[Any] = Promise()
        reply.then(lambda response: received.resolve(decode(response_class, version, encode(response, version))))
        return received
