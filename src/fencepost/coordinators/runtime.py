"""Decide, append, hold the reply, replay: the one runtime under every coordinator.

It owns the shards of one internal topic (one state machine per partition), whether each is loading, active or not
ours, and the order of their writes. A state machine changes only through `replay`, on load and on write alike; every
replay hands back how to undo it. A write is answered when it is durable. If it fails, it and everything applied after
it is rolled back, newest first, and all of their writers get the error: what the log may not hold, memory may not show.
An exception fails the call that ran into it: every other call that waits gets its answer.

It does not know what the records mean, and does not touch disks or clocks: the broker hands it an `Append` and a Clock.
"""

import enum
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from fencepost.coordinators.events import CoordinatorLoaded, CoordinatorUnloaded, RecordSkipped, WriteFailed
from fencepost.coordinators.journal import JournalRecord, UnknownRecordType
from fencepost.log.producers import Marker, VerificationGuard
from fencepost.ports import Buffer, Clock, Now
from fencepost.promise import Promise
from fencepost.wire.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ControlType, iterate_headers, read_marker
from fencepost.wire.errors import ErrorCode, KafkaError, MalformedMessage
from fencepost.wire.records import Record, read_records

E = TypeVar("E")
M = TypeVar("M", bound="StateMachine[Any]")
Applied = TypeVar("Applied", contravariant=True)
Undo = Callable[[], None]
Events = Callable[[object], None]


class AppendOutcome(NamedTuple):
    error_code: ErrorCode


APPENDED = AppendOutcome(ErrorCode.NONE)
DURABLE = Promise.resolved(APPENDED)
"""What an append answers that has nothing to wait for."""


class Append(Protocol):
    """Append to a partition of the internal topic; the promise is resolved when the records are durable, or failed."""

    def __call__(
        self,
        partition: int,
        records: Sequence[JournalRecord],
        *,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        transactional: bool = False,
        verification_guard: VerificationGuard | None = None,
        now_ms: int | None = None,
    ) -> Promise[AppendOutcome]:
        """`now_ms` is the timestamp of the records; None: the time of the append."""


class AppendMarkers(Protocol):
    """End transactions in a partition of the internal topic, with one write.

    Returns why each marker was refused, if it was, and a promise that is resolved when the others are durable.
    """

    def __call__(
        self, partition: int, markers: Sequence[Marker], now_ms: int, /
    ) -> tuple[list[KafkaError | None], Promise[AppendOutcome]]: ...


class StateMachine(Protocol[Applied]):
    """The state that one partition of an internal topic describes."""

    def replay(self, position: int, producer_id: int, entry: Applied) -> Undo:
        """Apply one record. Positions grow with the log; the producer id is -1 outside a transaction."""

    def end_transaction(self, producer_id: int, committed: bool) -> None: ...

    def loaded(self, now: Now) -> None: ...

    def unloaded(self) -> None: ...


class Journal(Protocol[E]):
    """How entries become records and back; a module of functions will do."""

    def encode_entry(self, entry: E) -> JournalRecord: ...

    def decode_entry(self, key: bytes, value: bytes | None) -> E: ...


class ApplyWhen(enum.Enum):
    """Groups apply on append, since they cannot ask a client to wait; transactions apply when durable."""

    APPENDED = enum.auto()
    DURABLE = enum.auto()


class ShardState(enum.Enum):
    NOT_OWNER = enum.auto()
    LOADING = enum.auto()
    ACTIVE = enum.auto()


# By itself: every call asks for it, and asking the class takes ten times as long.
_LOADING = ShardState.LOADING


class Written(NamedTuple):
    """How a write ended, and when."""

    error: ErrorCode
    now: Now


class _Write(Generic[E]):
    __slots__ = ("done", "entries", "first_position", "producer_id", "undo")

    def __init__(self, entries: Sequence[E], producer_id: int) -> None:
        self.done: Promise[Written] = Promise()
        self.entries = entries
        self.first_position = 0
        self.producer_id = producer_id
        self.undo: list[Undo] = []


class _Shard(Generic[M, E]):
    __slots__ = ("machine", "next_position", "pending", "record_count", "skipped_count", "state")

    def __init__(self, machine: M) -> None:
        self.state = ShardState.LOADING
        self.machine = machine
        self.next_position = 0
        self.record_count = 0
        self.skipped_count = 0
        self.pending: deque[_Write[E]] = deque()

    def take_positions(self, write: _Write[E]) -> _Write[E]:
        """What was appended has its place in the log, whatever becomes of it here."""
        write.first_position = self.next_position
        self.next_position += len(write.entries)
        return write


class CoordinatorRuntime(Generic[M, E]):
    def __init__(
        self,
        topic: str,
        make_machine: Callable[[int], M],
        journal: "Journal[E]",
        append: Append,
        clock: Clock,
        events: Events,
        *,
        append_markers: AppendMarkers | None = None,
        apply_when: ApplyWhen = ApplyWhen.APPENDED,
        decompressed_batch_bytes_max: int = 67_108_864,
    ) -> None:
        self.topic = topic
        self._make_machine = make_machine
        self._encode = journal.encode_entry
        self._decode = journal.decode_entry
        self._append = append
        self._append_markers = append_markers
        self._clock = clock
        self._events = events
        self._apply_when = apply_when
        self._decompressed_batch_bytes_max = decompressed_batch_bytes_max
        self._shards: dict[int, _Shard[M, E]] = {}

    # Ownership and loading

    def state_of(self, partition: int) -> ShardState:
        shard = self._shards.get(partition)
        return shard.state if shard else ShardState.NOT_OWNER

    def machine(self, partition: int) -> M:
        """The active state machine of a partition. Raises NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS."""
        return self._active(partition).machine

    def active_machines(self) -> list[M]:
        return [shard.machine for shard in self._shards.values() if shard.state is ShardState.ACTIVE]

    @property
    def is_loading(self) -> bool:
        return any(shard.state is ShardState.LOADING for shard in self._shards.values())

    def start_loading(self, partition: int) -> None:
        self.unload(partition)
        self._shards[partition] = _Shard(self._make_machine(partition))

    def replay(self, partition: int, batches: Buffer) -> None:
        """Feed a stretch of the log, whole batches in order, to a partition that is loading."""
        shard = self._shards[partition]
        assert shard.state is ShardState.LOADING
        view = memoryview(batches)
        # Of plain records only the last of each key counts, as it would after compaction: most need not be decoded.
        latest: dict[bytes | None, Record] = {}
        for position, header in iterate_headers(view):
            batch = view[position : position + header.size_bytes]
            shard.next_position = header.next_offset
            if not header.is_control:
                records = read_records(batch, self._decompressed_batch_bytes_max)
                if not header.is_transactional:
                    for record in records:
                        latest.pop(record.key, None)
                        latest[record.key] = record
                    shard.record_count += header.record_count
                    continue
                self._replay_records(partition, shard, NO_PRODUCER_ID, latest.values())
                shard.record_count += header.record_count
                self._replay_records(partition, shard, header.producer_id, records)
            else:
                self._replay_records(partition, shard, NO_PRODUCER_ID, latest.values())
                # Compaction may leave a control batch without its record.
                marker = read_marker(batch) if header.record_count else None
                if marker is not None:
                    shard.machine.end_transaction(header.producer_id, marker.control_type == ControlType.COMMIT)
            latest.clear()
        self._replay_records(partition, shard, NO_PRODUCER_ID, latest.values())

    def finish_loading(self, partition: int, now: Now) -> None:
        shard = self._shards[partition]
        assert shard.state is ShardState.LOADING
        shard.state = ShardState.ACTIVE
        shard.machine.loaded(now)
        self._events(CoordinatorLoaded(self.topic, partition, shard.record_count, shard.skipped_count))

    def load(self, partition: int, batches: Iterable[Buffer], now: Now) -> None:
        self.start_loading(partition)
        for stretch in batches:
            self.replay(partition, stretch)
        self.finish_loading(partition, now)

    def unload(self, partition: int) -> None:
        """Give a partition up. Writes that are not durable yet get NOT_COORDINATOR: clients look for the new one."""
        shard = self._shards.pop(partition, None)
        if shard is None:
            return
        shard.state = ShardState.NOT_OWNER
        waiting = list(shard.pending)
        shard.pending.clear()
        shard.machine.unloaded()
        self._resolve(waiting, ErrorCode.NOT_COORDINATOR)
        self._events(CoordinatorUnloaded(self.topic, partition))

    # Writing

    def schedule_write(
        self,
        partition: int,
        entries: Sequence[E],
        *,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        verification_guard: VerificationGuard | None = None,
        now: Now | None = None,
    ) -> Promise[Written]:
        """Append entries and apply them; the promise is resolved when they are durable or rolled back.

        Without entries this is a read that must not show what could still be lost: it is resolved once everything
        written before it is. `now` saves a write that is durable at once from looking at the clock.

        An exception of the state machine fails this call alone: nothing of the write is applied, it goes to the caller,
        or to what called back when the records became durable, and the promise is resolved with UNKNOWN_SERVER_ERROR.
        """
        shard = self._active(partition)
        if not entries:
            return self._after_pending(shard)
        try:
            outcome = self._append(
                partition,
                [self._encode(entry) for entry in entries] if len(entries) > 1 else (self._encode(entries[0]),),
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                transactional=producer_id != NO_PRODUCER_ID,
                verification_guard=verification_guard,
                now_ms=None if now is None else now.wall_ms,
            )
        except KafkaError as error:
            outcome = Promise.resolved(AppendOutcome(error.code))
        if outcome is not DURABLE or shard.pending:
            return self._await(partition, shard, entries, outcome, producer_id=producer_id, now=now)
        # Durable at once, as always without a sync: nothing will have to be undone but what an exception leaves.
        if len(entries) == 1:
            position = shard.next_position
            shard.next_position = position + 1
            shard.machine.replay(position, producer_id, entries[0])
        else:
            self._apply(shard, shard.take_positions(_Write(entries, producer_id)))
        return Promise.resolved(Written(ErrorCode.NONE, now or self._now()))

    def write(self, partition: int, entry: E, now: Now) -> Promise[Written] | None:
        """`schedule_write` of one entry outside a transaction; None if it is durable and applied already."""
        shard = self._active(partition)
        try:
            outcome = self._append(partition, (self._encode(entry),), now_ms=now.wall_ms)
        except KafkaError as error:
            outcome = Promise.resolved(AppendOutcome(error.code))
        if outcome is not DURABLE or shard.pending:
            return self._await(partition, shard, (entry,), outcome, now=now)
        position = shard.next_position
        shard.next_position = position + 1
        shard.machine.replay(position, NO_PRODUCER_ID, entry)
        return None

    def write_markers(
        self, partition: int, markers: Sequence[Marker], now_ms: int
    ) -> tuple[list[KafkaError | None], Promise[AppendOutcome]]:
        """Append markers and, once they are durable, apply them: what was pending counts from then on, or is dropped.

        A partition that is loading gets them all the same: they are in the log, and loading applies them there.
        """
        assert self._append_markers is not None, "this topic is never written to in a transaction"
        refusals, outcome = self._append_markers(partition, markers, now_ms)
        ended = [marker for marker, refusal in zip(markers, refusals, strict=True) if refusal is None]
        if not ended:
            return refusals, outcome

        def apply(appended: AppendOutcome) -> AppendOutcome:
            shard = self._shards.get(partition)
            if appended.error_code is ErrorCode.NONE and shard is not None and shard.state is ShardState.ACTIVE:
                for marker in ended:
                    shard.machine.end_transaction(marker.producer_id, marker.is_commit)
            return appended

        return refusals, outcome.map(apply)

    def _await(
        self,
        partition: int,
        shard: _Shard[M, E],
        entries: Sequence[E],
        outcome: Promise[AppendOutcome],
        *,
        producer_id: int = NO_PRODUCER_ID,
        now: Now | None,
    ) -> Promise[Written]:
        """Queue a write that was appended and is not durable yet, or return the error if it was not appended."""
        if outcome.done and outcome.value.error_code is not ErrorCode.NONE:
            self._events(WriteFailed(self.topic, partition, outcome.value.error_code, 0))
            return Promise.resolved(Written(outcome.value.error_code, now or self._now()))
        write = shard.take_positions(_Write(entries, producer_id))
        if self._apply_when is ApplyWhen.APPENDED:
            self._apply(shard, write)
        shard.pending.append(write)
        outcome.then(lambda appended: self._settle(partition, shard, write, appended))
        return write.done

    def _after_pending(self, shard: _Shard[M, E]) -> Promise[Written]:
        if not shard.pending:
            return Promise.resolved(Written(ErrorCode.NONE, self._now()))
        last = shard.pending[-1].done
        done: Promise[Written] = Promise()
        last.then(done.resolve)
        return done

    def _apply(self, shard: _Shard[M, E], write: _Write[E]) -> None:
        try:
            for position, entry in enumerate(write.entries, write.first_position):
                write.undo.append(shard.machine.replay(position, write.producer_id, entry))
        except Exception:
            for undo in reversed(write.undo):
                undo()
            raise

    def _settle(self, partition: int, shard: _Shard[M, E], write: _Write[E], outcome: AppendOutcome) -> None:
        if write.done.done or shard.state is not ShardState.ACTIVE:
            return
        if outcome.error_code is not ErrorCode.NONE:
            self._roll_back(partition, shard, write, outcome.error_code)
            return
        shard.pending.remove(write)
        if self._apply_when is ApplyWhen.DURABLE:
            try:
                self._apply(shard, write)
            except Exception:
                write.done.resolve(Written(ErrorCode.UNKNOWN_SERVER_ERROR, self._now()))
                raise
        write.done.resolve(Written(ErrorCode.NONE, self._now()))

    def _roll_back(self, partition: int, shard: _Shard[M, E], write: _Write[E], error: ErrorCode) -> None:
        failed: list[_Write[E]] = []
        raised: list[Exception] = []
        while not failed or failed[-1] is not write:
            newest = shard.pending.pop()
            for undo in reversed(newest.undo):
                try:
                    undo()
                except Exception as mistake:
                    raised.append(mistake)
            failed.append(newest)
        self._events(WriteFailed(self.topic, partition, error, len(failed)))
        self._resolve(reversed(failed), error, raised)

    def _resolve(self, writes: Iterable[_Write[E]], error: ErrorCode, raised: Sequence[Exception] = ()) -> None:
        """Answer every writer, even if one of them raises; then raise the first exception."""
        written = Written(error, self._now())
        mistakes = list(raised)
        for write in writes:
            try:
                write.done.resolve(written)
            except Exception as mistake:
                mistakes.append(mistake)
        if mistakes:
            raise mistakes[0]

    def _replay_records(self, partition: int, shard: _Shard[M, E], producer_id: int, records: Iterable[Record]) -> None:
        for record in records:
            try:
                if record.key is None:
                    raise UnknownRecordType("a record without a key")
                entry = self._decode(record.key, record.value)
            except (UnknownRecordType, MalformedMessage) as error:
                shard.skipped_count += 1
                self._events(RecordSkipped(self.topic, partition, record.offset, str(error)))
            else:
                shard.machine.replay(record.offset, producer_id, entry)

    def _active(self, partition: int) -> _Shard[M, E]:
        shard = self._shards.get(partition)
        if shard is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if shard.state is _LOADING:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return shard

    def _now(self) -> Now:
        return Now.of(self._clock)
