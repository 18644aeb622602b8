"""A partition this broker leads: the one write path, and everything that waits for it.

Everything that enters a partition goes through `append`: client batches, coordinator records, markers. Acknowledgements
wait here until their records are durable, fetches until there is something to read. When bytes become durable is the
`Durability`'s business.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from fencepost.log.partition_log import Appended, PartitionLog
from fencepost.log.producers import Marker, Origin, VerificationGuard
from fencepost.ports import Buffer
from fencepost.topic_partition import TopicPartition
from fencepost.wire.batch import MARKER_BYTES, BatchHeader, build_single
from fencepost.wire.errors import ErrorCode, KafkaError


class Watcher(Protocol):
    def on_progress(self, partition: "Partition", new_bytes: int) -> None:
        """`new_bytes` more can be read than before."""

    def on_failure(self, partition: "Partition") -> None:
        """The partition can no longer be read here: deleted, or its disk failed."""


class Durability(Protocol):
    def appended(self, partition: "Partition") -> None:
        """Something was written; make it durable and then call `partition.advance`."""

    def continuation_failed(self, error: Exception) -> None:
        """A waiter raised an exception when it was called. The others are called all the same."""


Acknowledge = Callable[[KafkaError | None], None]


class Partition:
    __slots__ = (
        "_readable_bytes",
        "_waiting",
        "_watchers",
        "appended_bytes",
        "durability",
        "failure",
        "index",
        "leader_epoch",
        "log",
        "topic",
        "topic_partition",
    )

    def __init__(self, topic: str, index: int, log: PartitionLog, leader_epoch: int, durability: Durability) -> None:
        self.topic = topic
        self.index = index
        self.topic_partition = TopicPartition(topic, index)
        self.log = log
        self.leader_epoch = leader_epoch
        self.failure: KafkaError | None = None
        self.durability = durability
        self._waiting: deque[tuple[int, Acknowledge]] = deque()
        self._watchers: dict[Watcher, None] = {}
        self.appended_bytes = 0
        """Written since the start. Fetches that wait for a number of bytes compare it."""
        self._readable_bytes = 0
        log.lead(leader_epoch)

    def append(
        self,
        batch: Buffer,
        origin: Origin,
        now_ms: int,
        verification_guard: VerificationGuard | None = None,
        header: BatchHeader | None = None,
    ) -> Appended:
        """Write one batch at the end of the log. Raises KafkaError with Kafka's own code; then nothing has changed.

        `header` is the batch's own, if the caller has read it already.
        """
        if self.failure is not None:
            raise self.failure
        appended = self.log.append_as_leader(batch, self.leader_epoch, now_ms, origin, verification_guard, header)
        if not appended.duplicate:
            self.appended_bytes += len(batch)
            self.durability.appended(self)
        return appended

    def append_record(self, key: bytes, value: bytes | None, now_ms: int) -> int:
        """Write a coordinator's record at the end of the log; its offset. Raises KafkaError, as `append` does."""
        if self.failure is not None:
            raise self.failure
        log = self.log
        batch = build_single(
            now_ms, key, value, base_offset=log.log_end_offset, partition_leader_epoch=self.leader_epoch
        )
        offset = log.append_record(batch, leader_epoch=self.leader_epoch, now_ms=now_ms)
        self.appended_bytes += len(batch)
        self.durability.appended(self)
        return offset

    def append_markers(self, markers: Sequence[Marker], now_ms: int) -> list[KafkaError | None]:
        """End transactions of several producers here; why each marker was refused, if it was."""
        if self.failure is not None:
            raise self.failure
        refusals = self.log.append_markers(markers, leader_epoch=self.leader_epoch, now_ms=now_ms)
        written = refusals.count(None)
        if written:
            self.appended_bytes += written * MARKER_BYTES
            self.durability.appended(self)
        return refusals

    def make_durable_by(self, durability: Durability) -> None:
        """How records become durable from now on."""
        self.durability = durability

    def check_leader_epoch(self, given: int) -> None:
        """Refuse a client that knows an older or a newer leader than this one; -1 means that it knows none."""
        if given >= 0 and given != self.leader_epoch:
            is_old = given < self.leader_epoch
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH)

    def when_durable(self, last_offset: int, acknowledge: Acknowledge) -> None:
        """Call back once everything up to and with `last_offset` is below the high watermark, or never will be."""
        if self.failure is not None:
            acknowledge(self.failure)
        elif last_offset < self.log.high_watermark:
            acknowledge(None)
        else:
            self._waiting.append((last_offset, acknowledge))

    def advance(self, offset: int, appended_bytes: int) -> None:
        """Everything below `offset` is durable: move the high watermark and wake what waited for it."""
        self.log.advance_high_watermark(offset)
        new_bytes = appended_bytes - self._readable_bytes
        self._readable_bytes = appended_bytes
        waiting = self._waiting
        while waiting and waiting[0][0] < offset:
            acknowledge = waiting.popleft()[1]
            try:
                acknowledge(None)
            except Exception as error:
                self.durability.continuation_failed(error)
        if self._watchers:
            for watcher in list(self._watchers):
                try:
                    watcher.on_progress(self, new_bytes)
                except Exception as error:
                    self.durability.continuation_failed(error)

    def fail(self, error: KafkaError) -> None:
        """Refuse everything from now on, and let everything that waits fail."""
        self.failure = error
        waiting, self._waiting = self._waiting, deque()
        for _, acknowledge in waiting:
            try:
                acknowledge(error)
            except Exception as raised:
                self.durability.continuation_failed(raised)
        for watcher in list(self._watchers):
            try:
                watcher.on_failure(self)
            except Exception as raised:
                self.durability.continuation_failed(raised)

    def watch(self, watcher: Watcher) -> None:
        self._watchers[watcher] = None

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers.pop(watcher, None)


def find_partition(partitions: Mapping[str, Sequence[Partition]], topic: str, index: int) -> Partition:
    """Raises UNKNOWN_TOPIC_OR_PARTITION."""
    of_topic = partitions.get(topic)
    if of_topic is None or not 0 <= index < len(of_topic):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return of_topic[index]
