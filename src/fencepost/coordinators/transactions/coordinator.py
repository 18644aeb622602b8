"""The transaction coordinator: the driver that carries decisions out.

One method per request, each answering through a Promise: InitProducerId 0-6, EndTxn 0-5 (protocol 2 from version 5 on,
which has room for the epoch that comes with it), the others by way of `add_requests` and `admin`. A method finds the
id, asks `decisions` what to do, and carries out the effects in order, in `_carry_out` and nowhere else. A record that
is appended is a barrier: the effects after it wait until it is durable. Until then the id has its one slot taken, so
that a call that comes meanwhile gets CONCURRENT_TRANSACTIONS or, if it adds a partition, waits.

The broker loads and unloads partitions through `runtime`, and calls `on_time` at `next_deadline_ms`; `deadline_moved`
is called when that came nearer. A promise of DropConnection means: close the connection and answer nothing.
"""

from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from functools import partial
from typing import Any

from fencepost.config import BrokerConfig
from fencepost.coordinators.context import Caller, Topics
from fencepost.coordinators.placement import partition_for_key
from fencepost.coordinators.runtime import Append as AppendRecords
from fencepost.coordinators.runtime import ApplyWhen, CoordinatorRuntime, Written
from fencepost.coordinators.timers import Timers
from fencepost.coordinators.transactions.add_requests import AddRequests, Errors, Reply, everywhere
from fencepost.coordinators.transactions.admin import TransactionAdmin
from fencepost.coordinators.transactions.calls import AddCall, EndCall, InitCall, Outcome, ProducerPair, VerifyCall
from fencepost.coordinators.transactions.decisions import (
    BROKER_ITSELF,
    Rules,
    check_init,
    complete,
    decide_add,
    decide_adds,
    decide_buried,
    decide_end,
    decide_init,
    decide_loaded,
    decide_lost,
    decide_marker,
    decide_timer,
    decide_tombstone,
    refuse,
    report_refusal,
    verify_partitions,
)
from fencepost.coordinators.transactions.effects import (
    Answer,
    Append,
    CancelTimer,
    CatchUp,
    CountMarker,
    Create,
    DrawProducerId,
    Drop,
    Effect,
    Effects,
    Expire,
    Forget,
    KeepGuard,
    MarkerOrder,
    NoteFencing,
    Release,
    Report,
    Reserve,
    RetryMarker,
    SendMarkers,
    SetTimer,
    TimerKind,
    Wait,
)
from fencepost.coordinators.transactions.events import TransactionalIdsExpired, stamped
from fencepost.coordinators.transactions.ghosts import DROP_CONNECTION, DropConnection
from fencepost.coordinators.transactions.transaction_journal import TransactionJournal
from fencepost.coordinators.transactions.transaction_metadata import (
    PROTOCOL_2,
    TransactionEntry,
    TransactionMetadata,
    TransactionRecord,
    TransactionShard,
)
from fencepost.coordinators.transactions.transaction_states import TransactionState
from fencepost.internal_topic_names import TRANSACTION_STATE
from fencepost.ports import Clock, Now
from fencepost.promise import Promise
from fencepost.topic_partition import TopicPartition
from fencepost.wire.batch import NO_PRODUCER_EPOCH
from fencepost.wire.errors import ErrorCode, KafkaError
from fencepost.wire.messages import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)

TransactionRuntime = CoordinatorRuntime[TransactionShard, TransactionEntry]
MarkerDone = Callable[[TopicPartition, ErrorCode], None]
SendMarkerOrder = Callable[[MarkerOrder, MarkerDone], None]
"""Calls back once for each partition: when its marker is durable, or with why it is not. Retries are the caller's."""

# A named tuple's own constructor is a Python function; entries are made for every write.
_new_tuple = tuple.__new__

# Clients of earlier versions know only INVALID_PRODUCER_EPOCH.
INIT_FENCED_VERSION = 4
END_FENCED_VERSION = 2
END_PROTOCOL_2_VERSION = 5
TOMBSTONES_PER_WRITE_MAX = 1_000
_WAIT_TIMER = "add"
_TOMBSTONES_TIMER = ("tombstones",)
# By themselves: asking the class takes longer than the rest of setting a timer.
_TIMEOUT, _EXPIRY = TimerKind.TIMEOUT, TimerKind.EXPIRY


class TransactionCoordinator:
    def __init__(
        self,
        config: BrokerConfig,
        append: AppendRecords,
        clock: Clock,
        events: Callable[[object], None],
        topics: Topics,
        *,
        next_producer_id: Callable[[], int],
        send_markers: SendMarkerOrder,
        group_partition: Callable[[str], int],
        coordinator_epoch: Callable[[int], int],
        transaction_version: Callable[[], int],
        partition_epoch: Callable[[int], int] = lambda producer_id: NO_PRODUCER_EPOCH,
        producer_ids_loaded: Callable[[Iterable[int]], None] = lambda producer_ids: None,
        deadline_moved: Callable[[], None] = lambda: None,
    ) -> None:
        """`next_producer_id` may raise KafkaError. `group_partition` is the partition of __consumer_offsets of a group,
        `coordinator_epoch` the leader epoch of a partition of __transaction_state, `transaction_version` the finalized
        feature level, `partition_epoch` the largest epoch of a producer that any partition had when the broker started.
        `producer_ids_loaded` gets the producer ids that each partition of __transaction_state has."""
        self.partition_count = config.transaction_state_log_num_partitions
        """Partitions of __transaction_state; the broker corrects it if the topic was created with another number."""
        self.runtime: TransactionRuntime = CoordinatorRuntime(
            TRANSACTION_STATE,
            lambda partition: TransactionShard(partition, self._shard_loaded, self._shard_unloaded),
            TransactionJournal(transaction_version),
            append,
            clock,
            events,
            apply_when=ApplyWhen.DURABLE,
            decompressed_batch_bytes_max=config.decompressed_batch_max_bytes,
        )
        self._clock = clock
        self._events = events
        self._topics = topics
        self._next_producer_id = next_producer_id
        self._send_markers = send_markers
        self._coordinator_epoch = coordinator_epoch
        self._transaction_version = transaction_version
        self._partition_epoch = partition_epoch
        self._producer_ids_loaded = producer_ids_loaded
        self._rules = Rules(
            timeout_max_ms=config.transaction_max_timeout_ms,
            is_two_phase_enabled=config.transaction_two_phase_commit_enable,
            unprepared_timeout_ms=config.transaction_two_phase_commit_unprepared_timeout_ms,
            expiry=SetTimer(TimerKind.EXPIRY, config.transactional_id_expiration_ms),
            has_ghost_protection=config.transaction_ghost_protection_enable,
        )
        self._timers = Timers(deadline_moved)
        self._timeout_interval_ms = config.transaction_abort_timed_out_transaction_cleanup_interval_ms
        self._expiry_interval_ms = config.transaction_remove_expired_transaction_cleanup_interval_ms
        self._expired: list[TransactionMetadata] = []
        self._add_wait_ms = config.add_partitions_to_txn_retry_backoff_max_ms
        self._add_requests = AddRequests(self._add, self._verify, topics, group_partition, self._add_wait_ms)
        self._admin = TransactionAdmin(self.runtime, self._find)

    def partition_for(self, transactional_id: str) -> int:
        return partition_for_key(transactional_id, self.partition_count)

    # Producers

    def init_producer_id(
        self, request: InitProducerIdRequest, version: int, caller: Caller, now: Now
    ) -> Promise[InitProducerIdResponse]:
        call = InitCall(
            request.transactional_id,
            _new_tuple(ProducerPair, (request.producer_id, request.producer_epoch)),
            request.transaction_timeout_ms,
            request.enable2_pc,
            request.keep_prepared_txn,
            caller,
        )
        metadata = None
        effects = check_init(call, self._rules, now)
        if not effects:
            try:
                if call.transactional_id is not None:
                    metadata = self._find(call.transactional_id)
                decide = partial(decide_init, metadata, call, now, self._rules, self._transaction_version())
                effects = decide()
                if type(effects[0]) is DrawProducerId:
                    effects = decide(self._next_producer_id())
            except KafkaError as error:
                effects = refuse(metadata, call, error, now)
        self._carry_out(metadata, effects, now)
        return call.reply.map(partial(_init_response, version))

    def add_partitions_to_txn(
        self, request: AddPartitionsToTxnRequest, version: int, caller: Caller, now: Now
    ) -> Promise[AddPartitionsToTxnResponse | DropConnection]:
        return self._add_requests.add_partitions(request, version, caller, now)

    def add_partitions_to_txn_in_steps(
        self, request: AddPartitionsToTxnRequest, version: int, caller: Caller, now: Now
    ) -> Generator[Promise[Any] | None, None, Any]:
        """The same for a large request; returns the answer or a promise of it."""
        return self._add_requests.add_partitions_in_steps(request, version, caller, now)

    def add_offsets_to_txn(
        self, request: AddOffsetsToTxnRequest, version: int, caller: Caller, now: Now
    ) -> Promise[AddOffsetsToTxnResponse | DropConnection]:
        return self._add_requests.add_offsets(request, version, caller, now)

    def _add(self, call: AddCall, now: Now) -> Reply:
        metadata = None
        try:
            if call.transactional_id:
                metadata = self._find(call.transactional_id)
            effects = decide_add(metadata, call, now, self._rules)
        except KafkaError as error:
            effects = refuse(None, call, error, now)
        self._carry_out(metadata, effects, now)
        return call.reply

    def end_txn(
        self, request: EndTxnRequest, version: int, caller: Caller, now: Now
    ) -> Promise[EndTxnResponse | DropConnection]:
        call = EndCall(
            request.transactional_id,
            _new_tuple(ProducerPair, (request.producer_id, request.producer_epoch)),
            request.committed,
            version >= END_PROTOCOL_2_VERSION,
            caller,
        )
        metadata = None
        try:
            if call.transactional_id:
                metadata = self._find(call.transactional_id)
            effects = decide_end(metadata, call, now, self._rules)
            if type(effects[0]) is DrawProducerId:
                effects = decide_end(metadata, call, now, self._rules, self._next_producer_id())
        except KafkaError as error:
            effects = refuse(metadata, call, error, now)
        self._carry_out(metadata, effects, now)
        return call.reply.map(partial(_end_response, version))

    # Partition leaders

    def verify_or_add(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        add: bool,
        caller: Caller = BROKER_ITSELF,
    ) -> Promise[Errors]:
        """Before a partition's first write in a transaction: is it part of it (`add`: make it so)?"""
        given = ProducerPair(producer_id, producer_epoch)
        if not add:
            return Promise.resolved(self._verify(VerifyCall(transactional_id, given, partitions, caller)))
        now = self._now()
        wanted = frozenset(partitions)
        deadline_ms = now.monotonic_ms + self._add_wait_ms
        call = AddCall("implicit add", transactional_id, given, wanted, PROTOCOL_2, caller, deadline_ms)
        return self._add(call, now).map(lambda outcome: everywhere(wanted, outcome))

    def _verify(self, call: VerifyCall) -> Errors:
        metadata = None
        try:
            if call.transactional_id:
                metadata = self._find(call.transactional_id)
            return verify_partitions(metadata, call)
        except KafkaError as refusal:
            now = self._now()
            self._carry_out(metadata, report_refusal(metadata, call, refusal, now), now)
            return dict.fromkeys(call.partitions, refusal.code)

    # Administration

    def list_transactions(
        self, request: ListTransactionsRequest, now: Now, may_see: Callable[[str], bool] | None = None
    ) -> Generator[None, None, ListTransactionsResponse]:
        return self._admin.list_transactions(request, now, may_see)

    def describe_transactions(
        self, request: DescribeTransactionsRequest, version: int, caller: Caller, now: Now
    ) -> Promise[DescribeTransactionsResponse]:
        return Promise.resolved(self._admin.describe(request))

    # Effects

    def _carry_out(self, metadata: TransactionMetadata | None, effects: Sequence[Effect], now: Now) -> None:
        """Carry effects out in order, up to a record that has to become durable. `metadata`: None for an unknown id."""
        has_appended = False
        for position, effect in enumerate(effects):
            try:
                if isinstance(effect, Answer):
                    effect.call.reply.resolve(effect.outcome)
                elif isinstance(effect, Append):
                    assert metadata is not None
                    written = self._append(metadata, effect, now)
                    if written is not None:
                        written.then(partial(self._appended, metadata, effect, effects[position + 1 :]))
                    if effect.meanwhile:
                        self._carry_out(metadata, effect.meanwhile, now)
                    if written is not None:
                        return
                    has_appended = True
                elif isinstance(effect, Create):
                    metadata = self._create(effect)
                else:
                    _CARRIED_OUT_BY[type(effect)](self, metadata, effect, now)
            except Exception:
                if not isinstance(effect, Append | Reserve):
                    # Whatever became of one effect, a decision that is durable is carried out to its end.
                    self._carry_out(metadata, effects[position + 1 :], now)
                raise
        if has_appended and metadata is not None and metadata.waiters:
            self._wake_if_idle(metadata, now)

    def _append(self, metadata: TransactionMetadata, append: Append, now: Now) -> Promise[Written] | None:
        """Have a record written; None if it is durable and applied already."""
        record = append.record
        if metadata.pending_state is not record.state:
            metadata.reserve(record.state)
        try:
            metadata.check(record)
            entry = _new_tuple(TransactionEntry, (metadata.transactional_id, record))
            return self.runtime.write(metadata.partition, entry, now)
        except Exception:
            # A mistake of ours: it fails these calls, and leaves the id and all others as they were.
            metadata.release()
            for call in append.calls:
                call.reply.resolve(Outcome(ErrorCode.UNKNOWN_SERVER_ERROR))
            raise

    def _appended(
        self, metadata: TransactionMetadata, append: Append, then: Sequence[Effect], written: Written
    ) -> None:
        """The barrier: a record is durable, or is not and will not be."""
        if written.error is not ErrorCode.NONE:
            then = decide_lost(metadata, append, written.error)
        self._carry_out(metadata, then, written.now)
        self._wake_if_idle(metadata, written.now)

    def _create(self, effect: Create) -> TransactionMetadata:
        shard = self.runtime.machine(self.partition_for(effect.transactional_id))
        return shard.create(effect.transactional_id, effect.record)

    def _drop(self, metadata: TransactionMetadata, effect: Drop, now: Now) -> None:
        effect.call.reply.resolve(DROP_CONNECTION)

    def _report(self, metadata: TransactionMetadata | None, effect: Report, now: Now) -> None:
        self._events(stamped(effect.event, now.wall_ms, effect.open_since_ms))

    def _reserve(self, metadata: TransactionMetadata, effect: Reserve, now: Now) -> None:
        metadata.reserve(effect.state)

    def _release(self, metadata: TransactionMetadata, effect: Release, now: Now) -> None:
        metadata.release()

    def _note_fencing(self, metadata: TransactionMetadata, effect: NoteFencing, now: Now) -> None:
        metadata.note_fencing(effect.cause)

    def _keep_guard(self, metadata: TransactionMetadata, effect: KeepGuard, now: Now) -> None:
        metadata.keep_guard(effect.guard)

    def _catch_up(self, metadata: TransactionMetadata, effect: CatchUp, now: Now) -> None:
        metadata.catch_up(effect.record)

    # Markers

    def _order_markers(self, metadata: TransactionMetadata, effect: SendMarkers, now: Now) -> None:
        if metadata.is_abandoned:
            return
        if not effect.partitions:
            self._carry_out(metadata, complete(metadata, now, self._rules), now)
            return
        metadata.forget_refused_markers()
        record = metadata.record
        order = MarkerOrder(
            metadata.transactional_id,
            record.producer_id,
            record.producer_epoch,
            self._coordinator_epoch(metadata.partition),
            record.state is TransactionState.PREPARE_COMMIT,
            record.client_transaction_version,
            tuple(sorted(effect.partitions)),
        )
        self._send_markers(order, partial(self._marker_done, metadata, record))

    def _marker_done(
        self, metadata: TransactionMetadata, record: TransactionRecord, partition: TopicPartition, error: ErrorCode
    ) -> None:
        if metadata.is_abandoned or metadata.record is not record:
            return
        is_gone = error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and self._is_gone(partition)
        now = self._now()
        self._carry_out(metadata, decide_marker(metadata, partition, error, is_gone, now, self._rules), now)

    def _is_gone(self, partition: TopicPartition) -> bool:
        count = self._topics.partition_count_of(partition[0])
        return count is None or partition[1] >= count

    def _count_marker(self, metadata: TransactionMetadata, effect: CountMarker, now: Now) -> None:
        metadata.count_marker(effect.partition)

    def _retry_marker(self, metadata: TransactionMetadata, effect: RetryMarker, now: Now) -> None:
        metadata.note_refused_marker(effect.partition)

    # Time

    def next_deadline_ms(self) -> int | None:
        """When `on_time` is due, on the monotonic clock; it may lie in the past."""
        return self._timers.next_deadline_ms()

    def on_time(self, now: Now) -> None:
        self._timers.run_due(now)

    def _now(self) -> Now:
        return Now.of(self._clock)

    def _set_timer(self, metadata: TransactionMetadata, effect: SetTimer, now: Now) -> None:
        """Time-outs and expiries are met at Kafka's two sweep intervals: many ids that do nothing cost nothing."""
        if metadata.is_abandoned:
            return
        kind, delay_ms = effect
        due_ms = now.monotonic_ms + delay_ms
        if kind is _TIMEOUT:
            # Not at the deadline itself: a transaction as old as its time-out has not outlived it yet.
            due_ms = _next_sweep(due_ms + 1, self._timeout_interval_ms)
        elif kind is _EXPIRY:
            due_ms = _next_sweep(due_ms, self._expiry_interval_ms)
        self._timers.schedule((kind, metadata.transactional_id), due_ms, partial(self._on_timer, metadata, kind))

    def _cancel_timer(self, metadata: TransactionMetadata, effect: CancelTimer, now: Now) -> None:
        self._timers.cancel((effect.kind, metadata.transactional_id))

    def _on_timer(self, metadata: TransactionMetadata, kind: TimerKind, now: Now) -> None:
        effects = decide_timer(metadata, kind, now, self._rules, self._transaction_version())
        self._carry_out(metadata, effects, now)

    # Adds that wait

    def _wait(self, metadata: TransactionMetadata, effect: Wait, now: Now) -> None:
        metadata.wait(effect.call)
        if len(metadata.waiters) == 1:
            self._await_deadline(metadata)

    def _await_deadline(self, metadata: TransactionMetadata) -> None:
        """Calls wait equally long, so the first in line is the first whose time is up."""
        key = (_WAIT_TIMER, metadata.transactional_id)
        self._timers.schedule(key, metadata.waiters[0].deadline_ms, partial(self._time_is_up, metadata))

    def _time_is_up(self, metadata: TransactionMetadata, now: Now) -> None:
        while metadata.waiters and metadata.waiters[0].deadline_ms <= now.monotonic_ms:
            call = metadata.waiters.pop(0)
            self._carry_out(metadata, decide_adds(metadata, (call,), now, self._rules), now)
        if metadata.waiters:
            self._await_deadline(metadata)

    def _wake_if_idle(self, metadata: TransactionMetadata, now: Now) -> None:
        if metadata.waiters and not metadata.is_busy:
            self._wake(metadata, now)

    def _wake(self, metadata: TransactionMetadata, now: Now) -> None:
        """What held up the waiting adds is over: those of one identity are decided together."""
        waiters = metadata.take_waiters()
        self._timers.cancel((_WAIT_TIMER, metadata.transactional_id))
        if metadata.is_abandoned:
            for call in waiters:
                self._add(call, now)
            return
        groups: dict[tuple[ProducerPair, int], list[AddCall]] = {}
        for call in waiters:
            groups.setdefault((call.given, call.transaction_version), []).append(call)
        for calls in groups.values():
            effects: Effects = [Wait(call) for call in calls]
            if not metadata.is_busy:
                effects = decide_adds(metadata, calls, now, self._rules)
            self._carry_out(metadata, effects, now)

    # Ids that come and go

    def _find(self, transactional_id: str) -> TransactionMetadata | None:
        """Raises NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS."""
        shard = self.runtime.machine(partition_for_key(transactional_id, self.partition_count))
        return shard.transactions.get(transactional_id)

    def _forget(self, metadata: TransactionMetadata, effect: Forget, now: Now) -> None:
        if not metadata.is_abandoned:
            self.runtime.machine(metadata.partition).forget(metadata)
            self._abandon(metadata)

    def _abandon(self, metadata: TransactionMetadata) -> None:
        metadata.abandon()
        for kind in TimerKind:
            self._timers.cancel((kind, metadata.transactional_id))
        if metadata.waiters:
            self._wake(metadata, self._now())

    def _expire(self, metadata: TransactionMetadata, effect: Expire, now: Now) -> None:
        self._expired.append(metadata)
        self._timers.schedule(_TOMBSTONES_TIMER, now.monotonic_ms, self._write_tombstones)

    def _write_tombstones(self, now: Now) -> None:
        expired, self._expired = self._expired, []
        by_partition: dict[int, list[TransactionMetadata]] = {}
        for metadata in expired:
            if not metadata.is_abandoned:
                self._carry_out(metadata, decide_tombstone(metadata), now)
                if metadata.pending_state is TransactionState.DEAD:
                    by_partition.setdefault(metadata.partition, []).append(metadata)
        for partition, ids in by_partition.items():
            for first in range(0, len(ids), TOMBSTONES_PER_WRITE_MAX):
                buried = ids[first : first + TOMBSTONES_PER_WRITE_MAX]
                entries = [TransactionEntry(metadata.transactional_id, None) for metadata in buried]
                self.runtime.schedule_write(partition, entries).then(partial(self._buried, partition, buried))

    def _buried(self, partition: int, ids: Sequence[TransactionMetadata], written: Written) -> None:
        for metadata in ids:
            self._carry_out(metadata, decide_buried(written.error), written.now)
            self._wake_if_idle(metadata, written.now)
        if written.error is ErrorCode.NONE:
            names = tuple(metadata.transactional_id for metadata in ids)
            self._events(TransactionalIdsExpired(partition, names, written.now.wall_ms))

    # Shards

    def _shard_loaded(self, shard: TransactionShard, now: Now) -> None:
        producer_ids: list[int] = []
        for metadata in list(shard.transactions.values()):
            record = metadata.record
            producer_ids += (record.producer_id, record.next_producer_id)
            effects = decide_loaded(metadata, self._partition_epoch(record.producer_id), now, self._rules)
            self._carry_out(metadata, effects, now)
        self._producer_ids_loaded(producer_ids)

    def _shard_unloaded(self, shard: TransactionShard) -> None:
        for metadata in shard.transactions.values():
            self._abandon(metadata)


def _init_response(version: int, outcome: Outcome | DropConnection) -> InitProducerIdResponse:
    assert not isinstance(outcome, DropConnection), "an InitProducerId cannot be a ghost"
    return InitProducerIdResponse(
        error_code=outcome.error_for(version, INIT_FENCED_VERSION),
        producer_id=outcome.client.producer_id,
        producer_epoch=outcome.client.producer_epoch,
        ongoing_txn_producer_id=outcome.ongoing.producer_id,
        ongoing_txn_producer_epoch=outcome.ongoing.producer_epoch,
    )


def _end_response(version: int, outcome: Outcome | DropConnection) -> EndTxnResponse | DropConnection:
    if isinstance(outcome, DropConnection):
        return outcome
    if outcome.error is not ErrorCode.NONE:
        return EndTxnResponse(error_code=outcome.error_for(version, END_FENCED_VERSION))
    if version < END_PROTOCOL_2_VERSION:
        return EndTxnResponse()
    return EndTxnResponse(producer_id=outcome.client.producer_id, producer_epoch=outcome.client.producer_epoch)


def _next_sweep(deadline_ms: int, interval_ms: int) -> int:
    return -(-deadline_ms // interval_ms) * interval_ms


_CARRIED_OUT_BY: dict[type, Callable[[TransactionCoordinator, Any, Any, Now], None]] = {
    Drop: TransactionCoordinator._drop,
    Wait: TransactionCoordinator._wait,
    SendMarkers: TransactionCoordinator._order_markers,
    CountMarker: TransactionCoordinator._count_marker,
    RetryMarker: TransactionCoordinator._retry_marker,
    Reserve: TransactionCoordinator._reserve,
    Release: TransactionCoordinator._release,
    SetTimer: TransactionCoordinator._set_timer,
    CancelTimer: TransactionCoordinator._cancel_timer,
    Report: TransactionCoordinator._report,
    NoteFencing: TransactionCoordinator._note_fencing,
    KeepGuard: TransactionCoordinator._keep_guard,
    Forget: TransactionCoordinator._forget,
    CatchUp: TransactionCoordinator._catch_up,
    Expire: TransactionCoordinator._expire,
}
"""All but the three that `_carry_out` sees to itself."""
