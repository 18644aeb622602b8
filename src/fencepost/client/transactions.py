"""Transactions: records sent under one identity, visible together or not at all.

`TransactionSender` writes inside one transaction at a time; it is the `ProducerRole` of the send path here. Two
classes are built on it. `AsyncTransactionalProducer` begins and ends transactions: one table has its states and their
transitions. It outlives many transactions, and `AsyncTransaction` wraps one of them in a block.
`AsyncTransactionWriter` writes, in another process, in a transaction that it neither begins nor ends: it is made from
a `TransactionHandle`, a small value that can be pickled. Both protocols are spoken: TV1 and TV2 (KIP-890).
"""

import asyncio
import contextlib
import dataclasses
import enum
import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from fencepost.client import apis
from fencepost.client.apis import Api
from fencepost.client.cluster import Cluster, ClusterSession
from fencepost.client.errors import (
    BrokerError,
    ClientError,
    DeliveryFailed,
    ProducerFenced,
    TransactionAborted,
    TransactionCallTimedOut,
    TransactionError,
    TransactionFailed,
    TransactionMisused,
    TransactionMustAbort,
    TransactionOutcomeUnknown,
)
from fencepost.client.kafka_types import CommittedOffset, GroupMetadata, ProducerIdentity
from fencepost.client.loop_thread import OwningTwin, after_sends, queued
from fencepost.client.sending import FINISHED_BATCH_WEIGHT, Fate, Sender, Sending, SendsRecords
from fencepost.client.transaction_calls import (
    MAX_BLOCK_MS,
    Call,
    Reinitialize,
    TransactionCalls,
    TransactionProtocol,
    Verdict,
    error_for,
    verdict,
)
from fencepost.topic_partition import TopicPartition
from fencepost.wire import messages
from fencepost.wire.errors import ErrorCode

P = ParamSpec("P")
R = TypeVar("R")

TRANSACTION_TIMEOUT_MS = 60_000
_NOBODY = ProducerIdentity(-1, -1)


# Writing in a transaction


@dataclasses.dataclass(frozen=True, slots=True)
class TransactionHandle:
    """What another process needs to write in a transaction. The process that began the transaction ends it.

    Each partition must have one writer only: two of them would use the same sequence numbers, and the broker would
    take the second batch for a duplicate.
    """

    bootstrap_servers: tuple[str, ...]
    options: Mapping[str, Any] = dataclasses.field(repr=False)
    """Contains credentials, so it is not part of the repr."""
    transactional_id: str
    identity: ProducerIdentity
    protocol: TransactionProtocol
    added: tuple[TopicPartition, ...] = ()
    sequences: tuple[tuple[TopicPartition, int], ...] = ()
    """The next sequence numbers of partitions that were written under this epoch; the others begin at zero."""

    @property
    def producer_id(self) -> int:
        return self.identity.producer_id

    @property
    def producer_epoch(self) -> int:
        return self.identity.producer_epoch

    def writer(self, sending: Sending | None = None) -> "TransactionWriter":
        """A blocking writer, connected and ready. `sending.BULK` suits writers of large finished batches."""
        return TransactionWriter(self, sending)


class TransactionSender:
    """Sends inside one transaction at a time, with a given identity.

    Adds partitions to the transaction if the protocol requires it (TV1). After the first failure nothing more is
    sent until the next `enter`.
    """

    def __init__(self, cluster: Cluster, sending: Sending, calls: TransactionCalls) -> None:
        self.records = Sender(cluster, sending, self)
        self.identity = _NOBODY
        self.protocol = TransactionProtocol.TV1
        self.failure: TransactionError | None = None
        """Why the transaction cannot be committed."""
        self.lost_sequences = False
        """A batch failed: under TV1 the epoch must change before partitions can be written again."""
        self._calls = calls
        self._added: set[TopicPartition] = set()
        self._adding = asyncio.Lock()
        self._given_sequences: dict[TopicPartition, int] = {}
        self._is_known = False

    @property
    def transactional_id(self) -> str:
        return self._calls.transactional_id

    @property
    def added(self) -> Collection[TopicPartition]:
        return self._added

    @property
    def has_written(self) -> bool:
        """The coordinator may know the transaction, so it must be ended."""
        return self._is_known or self.records.has_sent

    def note_written(self) -> None:
        """Others write in the transaction, or the coordinator is asked about it."""
        self._is_known = True

    def become(self, identity: ProducerIdentity, protocol: TransactionProtocol) -> None:
        """Sets the identity. If it differs from the previous one, all sequences start at zero."""
        if identity != self.identity:
            self.records.forget_sequences()
            self._given_sequences.clear()
            self.lost_sequences = False
        self.identity, self.protocol = identity, protocol

    def enter(
        self, added: Iterable[TopicPartition] = (), sequences: Mapping[TopicPartition, int] | None = None
    ) -> None:
        """Begin a transaction, or step into one that another process has begun."""
        self._added = set(added)
        self._given_sequences.update(sequences or {})
        self._is_known = False
        self.failure = None
        self.records.resume()

    async def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Adds partitions to the transaction before they are written. Under TV2, writing adds them."""
        if self.protocol is TransactionProtocol.TV2:
            return
        async with self._adding:
            missing = set(partitions) - self._added
            if missing:
                # If the answer is lost, the coordinator may have added them: that counts as written.
                self.note_written()
                await self._calls.add_partitions(self.identity, missing)
                self._added |= missing

    async def discard(self, cause: Exception) -> None:
        """Before an abort: fails what was not sent and waits for the rest."""
        await self.records.stop(TransactionAborted(self.transactional_id, self.identity, cause))

    async def settle(self) -> None:
        """Wait for everything buffered. Raises what makes a commit impossible."""
        await self.records.drain()
        if self.failure is not None:
            raise self.failure

    # The role in the send path

    @property
    def produce_api(self) -> Api[messages.ProduceRequest, messages.ProduceResponse]:
        return apis.PRODUCE_TV2 if self.protocol is TransactionProtocol.TV2 else apis.PRODUCE_TV1

    def starting_point(self, partition: TopicPartition) -> tuple[ProducerIdentity, int]:
        return self.identity, self._given_sequences.get(partition, 0)

    def may_write(self, partition: TopicPartition) -> bool:
        return self.protocol is TransactionProtocol.TV2 or partition in self._added

    async def admit(self, partitions: Collection[TopicPartition]) -> None:
        await self.add(partitions)

    async def new_identity(self) -> ProducerIdentity:
        raise AssertionError("lost sequence numbers stop a transaction")

    def fate(self, error: BrokerError, *, may_be_written: bool) -> Fate:
        return Fate.RETRY if verdict(Call.PRODUCE, error.code) is Verdict.RETRY else Fate.FAIL

    def delivery_failed(self, failure: DeliveryFailed) -> TransactionError:
        self.lost_sequences = True
        if self.failure is None:
            self.failure = self._failure_of(failure)
        return self.failure

    def _failure_of(self, failure: DeliveryFailed) -> TransactionError:
        cause = failure.cause
        if isinstance(cause, TransactionError):
            return cause
        if isinstance(cause, BrokerError):
            decision = verdict(Call.PRODUCE, cause.code)
            if decision in (Verdict.FENCED, Verdict.FATAL):
                return error_for(decision, self.transactional_id, self.identity, cause)
        return TransactionMustAbort(self.transactional_id, self.identity, failure)


class AsyncTransactionWriter(SendsRecords, ClusterSession):
    """Writes in a transaction that another process has begun and will end."""

    def __init__(
        self, handle: TransactionHandle, sending: Sending | None = None, cluster: Cluster | None = None
    ) -> None:
        """`cluster`: shared connections, which the writer does not close. By default it has its own."""
        super().__init__(cluster or Cluster(handle.bootstrap_servers, **handle.options))
        self.handle = handle
        self._is_guest = cluster is not None
        calls = TransactionCalls(self.cluster, handle.transactional_id)
        self._sender = TransactionSender(self.cluster, sending or Sending(), calls)

    async def start(self) -> None:
        if not self._is_guest:
            await super().start()
        self._sender.become(self.handle.identity, self.handle.protocol)
        self._sender.enter(self.handle.added, dict(self.handle.sequences))
        self._sender.records.run()

    async def close(self) -> None:
        """Closes the writer. What was not flushed may not have been sent."""
        self._sender.records.halt()
        if not self._is_guest:
            await super().close()

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is None:
                await self.flush()
        finally:
            await self.close()

    def open_sender(self) -> Sender:
        if self._sender.failure is not None:
            raise self._sender.failure
        return self._sender.records

    async def flush(self) -> None:
        """Wait until everything is acknowledged by its partition. Raises what makes a commit impossible."""
        await self._sender.settle()

    @property
    def sequences(self) -> dict[TopicPartition, int]:
        return self._sender.records.sequences


class TransactionWriter(OwningTwin[AsyncTransactionWriter]):
    """Writes in a transaction that another process has begun and will end."""

    def __init__(self, handle: TransactionHandle, sending: Sending | None = None) -> None:
        super().__init__(lambda: AsyncTransactionWriter(handle, sending))

    send = queued(AsyncTransactionWriter.send)
    send_batch = queued(AsyncTransactionWriter.send_batch, FINISHED_BATCH_WEIGHT)
    flush = after_sends(AsyncTransactionWriter.flush)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is None:
                self.flush()
        finally:
            self.close()


# Beginning and ending transactions


class State(enum.Enum):
    UNINITIALIZED = enum.auto()
    READY = enum.auto()
    IN_TRANSACTION = enum.auto()
    MUST_ABORT = enum.auto()
    COMMITTING = enum.auto()
    ABORTING = enum.auto()
    FAILED = enum.auto()


PREDECESSORS = {
    State.UNINITIALIZED: frozenset[State](),
    State.READY: frozenset({State.UNINITIALIZED, State.READY, State.COMMITTING, State.ABORTING, State.FAILED}),
    State.IN_TRANSACTION: frozenset({State.UNINITIALIZED, State.READY}),
    State.MUST_ABORT: frozenset({State.IN_TRANSACTION, State.COMMITTING}),
    State.COMMITTING: frozenset({State.IN_TRANSACTION, State.COMMITTING}),
    State.ABORTING: frozenset({State.IN_TRANSACTION, State.MUST_ABORT, State.ABORTING}),
    State.FAILED: frozenset(State),
}
"""IN_TRANSACTION follows UNINITIALIZED where a producer steps into a transaction by its handle."""


class Abandoned(ClientError):
    """The cause of an abort that the application asked for."""

    def __init__(self) -> None:
        super().__init__("abort was called")


class AsyncTransactionalProducer(SendsRecords):
    """Created by a client, which owns the connections. One transaction at a time; not for concurrent use by several
    tasks."""

    def __init__(
        self,
        cluster: Cluster,
        transactional_id: str,
        *,
        transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS,
        max_block_ms: int = MAX_BLOCK_MS,
        sending: Sending | None = None,
        protocol: TransactionProtocol | None = None,
    ) -> None:
        """`protocol` None: the newest that the cluster has finalized. Every cluster supports TV1."""
        self._cluster = cluster
        self.transactional_id = transactional_id
        self.transaction_timeout_ms = transaction_timeout_ms
        self._calls = TransactionCalls(cluster, transactional_id, max_block_ms)
        self._sender = TransactionSender(cluster, sending or Sending(), self._calls)
        self._wanted_protocol = protocol
        self._state = State.UNINITIALIZED
        self._is_handed_out = False
        self._needs_new_epoch = False
        self._failure: ClientError | None = None
        self._block: AsyncTransaction | None = None

    @property
    def state(self) -> State:
        return self._state

    @property
    def identity(self) -> ProducerIdentity:
        return self._sender.identity

    @property
    def protocol(self) -> TransactionProtocol:
        return self._sender.protocol

    def close(self) -> None:
        """Closes the producer. An open transaction ends by its timeout, or when the next producer of this id starts."""
        self._sender.records.halt()

    # Initialization

    async def init(
        self, previous: ProducerIdentity | None = None, *, transaction_timeout_ms: int | None = None
    ) -> ProducerIdentity:
        """Get an epoch. This fences every other producer of the id and ends its open transaction. With `previous`, the
        identity of an earlier life, it fails with ProducerFenced if another producer has taken over in between.

        `transaction_timeout_ms` replaces the producer's timeout from then on.
        """
        if self._state not in (State.UNINITIALIZED, State.READY, State.FAILED):
            raise TransactionMisused(self.transactional_id, "init", self._state.name)
        if transaction_timeout_ms is not None:
            self.transaction_timeout_ms = transaction_timeout_ms
        try:
            protocol = await self._newest_protocol()
            identity = await self._calls.init(self.transaction_timeout_ms, previous)
        except TransactionError as error:
            raise self._fail(error) from error.__cause__
        self._take(identity, protocol)
        self._move(State.READY)
        return identity

    async def _newest_protocol(self) -> TransactionProtocol:
        return self._wanted_protocol or await self._calls.protocol()

    def step_into(self, handle: TransactionHandle) -> None:
        """Take over an open transaction where another process left off, to write, commit or abort it."""
        if self._state is not State.UNINITIALIZED:
            raise TransactionMisused(self.transactional_id, "step_into", self._state.name)
        self._take(handle.identity, handle.protocol)
        self._sender.enter(handle.added, dict(handle.sequences))
        self._sender.note_written()
        self._is_handed_out = True
        self._move(State.IN_TRANSACTION)

    def _take(self, identity: ProducerIdentity, protocol: TransactionProtocol) -> None:
        self._sender.become(identity, protocol)
        self._needs_new_epoch = False
        self._calls.forget_late_calls()
        if not self._sender.records.is_running:
            self._sender.records.run()

    async def begin(self) -> None:
        """Begin a transaction. The coordinator learns of it with the first write."""
        if self._state is not State.READY:
            raise TransactionMisused(self.transactional_id, "begin", self._state.name)
        # Under TV2 every end of a transaction brings a new epoch. After an upgrade of the cluster, the change needs
        # one.
        has_upgraded = self.protocol is TransactionProtocol.TV1 and (
            await self._newest_protocol() is TransactionProtocol.TV2
        )
        if self._needs_new_epoch or has_upgraded:
            await self.init(self.identity)
        self._sender.enter()
        self._is_handed_out = False
        self._move(State.IN_TRANSACTION)

    # In a transaction

    def open_sender(self) -> Sender:
        self._require_open("send")
        return self._sender.records

    async def flush(self) -> None:
        """Wait until everything sent is acknowledged by its partition. Raises what makes a commit impossible."""
        self._require_open("flush")
        with self._judging():
            await self._sender.settle()

    async def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Announces partitions that other processes will write to (needed under TV1 only)."""
        self._require_open("add")
        with self._judging():
            await self._sender.add(partitions)

    async def send_offsets(
        self,
        offsets: Mapping[TopicPartition, CommittedOffset | int],
        group: GroupMetadata | str,
    ) -> None:
        """Commit consumed offsets together with the transaction. Offsets are those of the next record to read."""
        self._require_open("send_offsets")
        metadata = GroupMetadata(group) if isinstance(group, str) else group
        wanted = {partition: CommittedOffset.of(offset) for partition, offset in offsets.items()}
        if not wanted:
            return
        with self._judging():
            self._sender.note_written()
            if self.protocol is TransactionProtocol.TV1:
                await self._calls.add_offsets(self.identity, metadata.group_id)
            await self._calls.commit_offsets(self.identity, self.protocol, wanted, metadata)

    async def handle(self) -> TransactionHandle:
        """What another process needs to write in this transaction. It can be pickled. Flushes what was sent."""
        await self.flush()
        self._is_handed_out = True
        self._sender.note_written()
        return TransactionHandle(
            bootstrap_servers=self._cluster.bootstrap_servers,
            options=self._cluster.given_options,
            transactional_id=self.transactional_id,
            identity=self.identity,
            protocol=self.protocol,
            added=tuple(sorted(self._sender.added)),
            sequences=tuple(sorted(self._sender.records.sequences.items())),
        )

    # The end of a transaction

    async def commit(self) -> None:
        """Make everything visible at once. After TransactionOutcomeUnknown, call it again to learn the outcome."""
        if self._state is State.MUST_ABORT:
            assert self._failure is not None
            raise self._failure
        if self._state not in (State.IN_TRANSACTION, State.COMMITTING):
            raise TransactionMisused(self.transactional_id, "commit", self._state.name)
        if self._state is State.IN_TRANSACTION:
            await self.flush()
        self._move(State.COMMITTING)
        if not self._sender.has_written:
            self._completed(self.identity)
            return
        with self._judging():
            try:
                following = await self._calls.end(self.identity, self.protocol, committed=True)
            except TransactionCallTimedOut as error:
                raise TransactionOutcomeUnknown(self.transactional_id, self.identity, error) from error
        self._completed(following)

    async def abort(self, cause: Exception | None = None) -> None:
        """Makes sure that nothing becomes visible. After a timeout it may be called again."""
        if self._state not in (State.IN_TRANSACTION, State.MUST_ABORT, State.ABORTING):
            raise TransactionMisused(self.transactional_id, "abort", self._state.name)
        failure = self._failure
        self._move(State.ABORTING)
        await self._sender.discard(cause or failure or Abandoned())
        try:
            if isinstance(failure, Reinitialize):
                # The coordinator knows no transaction of this producer, so there is nothing to end.
                self._needs_new_epoch = True
                self._completed(self.identity)
            elif not self._sender.has_written:
                self._completed(self.identity)
            else:
                self._completed(await self._calls.end(self.identity, self.protocol, committed=False))
        except Reinitialize:
            self._needs_new_epoch = True
            self._completed(self.identity)
        except TransactionCallTimedOut:
            raise
        except TransactionError as error:
            if not self._has_nothing_to_abort(error):
                raise self._fail(error) from error.__cause__
            self._needs_new_epoch = True
            self._completed(self.identity)

    def _has_nothing_to_abort(self, error: TransactionError) -> bool:
        """Under TV1, a transaction that the coordinator does not know cannot be aborted. A new epoch fences late calls
        anyway."""
        cause = error.__cause__
        refused = isinstance(cause, BrokerError) and cause.code == ErrorCode.INVALID_TXN_STATE
        return refused and self.protocol is TransactionProtocol.TV1

    def _completed(self, following: ProducerIdentity) -> None:
        is_tv1 = self.protocol is TransactionProtocol.TV1
        # Under TV1 the epoch stays: the sequences of what others wrote, or of what failed, would be unknown, and what
        # comes late of this transaction would be taken for a call of the next one (KAFKA-17754).
        is_used_up = self._is_handed_out or self._sender.lost_sequences or self._calls.may_arrive_late
        if is_tv1 and self._sender.has_written and is_used_up:
            self._needs_new_epoch = True
        self._failure = None
        self._sender.become(following, self.protocol)
        self._move(State.READY)

    # States

    def _move(self, state: State) -> None:
        assert self._state in PREDECESSORS[state], f"{state} after {self._state}"
        self._state = state

    def enter_block(self, block: "AsyncTransaction") -> None:
        """Two blocks at a time would share one transaction: the first to end would commit half of the other's work."""
        if self._block is not None:
            raise TransactionMisused(
                self.transactional_id,
                "begin",
                self._state.name,
                "another block of this id is open; blocks that overlap need different ids",
            )
        self._block = block

    def leave_block(self) -> None:
        self._block = None

    def require_block(self, block: "AsyncTransaction", call: str) -> None:
        """A block that has ended must not reach into the next one."""
        if self._block is not block:
            raise TransactionMisused(self.transactional_id, call, State.READY.name, "this block is not open")

    def check_open(self) -> None:
        """Raises what a send would raise now."""
        self._require_open("send")

    def _require_open(self, call: str) -> None:
        if self._state in (State.MUST_ABORT, State.FAILED) and self._failure is not None:
            raise self._failure
        if self._state is not State.IN_TRANSACTION:
            raise TransactionMisused(self.transactional_id, call, self._state.name)

    def _fail(self, error: TransactionError) -> TransactionError:
        self._failure = error
        self._move(State.FAILED)
        return error

    @contextlib.contextmanager
    def _judging(self) -> Iterator[None]:
        """Sets the state that follows from the error of a call."""
        try:
            yield
        except TransactionMustAbort as error:
            self._failure = error
            self._move(State.MUST_ABORT)
            raise
        except TransactionCallTimedOut as error:
            self._failure = TransactionMustAbort(self.transactional_id, self.identity, error)
            self._move(State.MUST_ABORT)
            raise self._failure from error
        except (ProducerFenced, TransactionFailed) as error:
            self._fail(error)
            raise


def _of_producer(call: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Delegates a call to the producer of the transaction."""

    @functools.wraps(call)
    def delegated(self: "AsyncTransaction", /, *args: P.args, **kwargs: P.kwargs) -> R:
        self._producer.require_block(self, call.__name__)
        return call(self._producer, *args, **kwargs)

    return delegated


class AsyncTransaction(SendsRecords):
    """One transaction as a block: it commits at the end, an exception aborts it.

    A transaction that could not be committed but was aborted cleanly raises TransactionAborted: do the work again.
    """

    def __init__(self, producer: AsyncTransactionalProducer) -> None:
        self._producer = producer

    async def __aenter__(self) -> Self:
        producer = self._producer
        producer.enter_block(self)
        try:
            if producer.state is State.COMMITTING:
                # The outcome of the previous transaction is unknown: find it out first.
                await producer.commit()
            elif producer.state in (State.IN_TRANSACTION, State.MUST_ABORT, State.ABORTING):
                await producer.abort()
            if producer.state is State.UNINITIALIZED:
                await producer.init()
            await producer.begin()
        except BaseException:
            producer.leave_block()
            raise
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            await self._end(error)
        finally:
            self._producer.leave_block()

    async def _end(self, error: BaseException | None) -> None:
        producer = self._producer
        if error is None:
            try:
                await self.before_commit()
                await producer.commit()
            except TransactionMustAbort as failure:
                identity = producer.identity
                await producer.abort(failure)
                raise TransactionAborted(producer.transactional_id, identity, failure.cause) from failure
            return
        if producer.state not in (State.IN_TRANSACTION, State.MUST_ABORT):
            return
        try:
            await producer.abort(error if isinstance(error, Exception) else None)
        except TransactionError as failure:
            # The application's error is raised; the failed abort becomes a note of it.
            error.add_note(f"and the abort failed: {failure}")

    async def before_commit(self) -> None:
        """Hook for subclasses: add what is known only at the end of the transaction."""

    @property
    def transactional_id(self) -> str:
        return self._producer.transactional_id

    @property
    def identity(self) -> ProducerIdentity:
        return self._producer.identity

    def open_sender(self) -> Sender:
        self._producer.require_block(self, "send")
        return self._producer.open_sender()

    add = _of_producer(AsyncTransactionalProducer.add)
    send_offsets = _of_producer(AsyncTransactionalProducer.send_offsets)
    flush = _of_producer(AsyncTransactionalProducer.flush)
    handle = _of_producer(AsyncTransactionalProducer.handle)
