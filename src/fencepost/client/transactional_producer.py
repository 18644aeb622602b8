"""The transactional producer: init, begin, send, commit, abort, and nothing out of order.

The states and what may follow what stand in one table. A producer outlives many transactions; `transaction` wraps one
of them in a block. Speaks TV1 and TV2 (KIP-890), whichever the cluster has finalized.
"""

import asyncio
import enum
from collections.abc import Iterable, Mapping, Sequence

from fencepost.client.accumulator import ProducerIdentity
from fencepost.client.cluster import Cluster
from fencepost.client.errors import BrokerError, ClientError
from fencepost.client.record_buffer import Sending
from fencepost.client.transaction_calls import (
    MAX_BLOCK_MS,
    GroupMetadata,
    Reinitialize,
    TransactionCalls,
    TransactionProtocol,
)
from fencepost.client.transaction_errors import (
    ProducerFenced,
    TransactionCallTimedOut,
    TransactionError,
    TransactionFailed,
    TransactionMisused,
    TransactionMustAbort,
    TransactionOutcomeUnknown,
)
from fencepost.client.transaction_handle import TransactionHandle
from fencepost.client.transaction_sender import TransactionSender
from fencepost.client.values import CommittedOffset, RecordMetadata
from fencepost.topic_partition import TopicPartition
from fencepost.wire.errors import ErrorCode

TRANSACTION_TIMEOUT_MS = 60_000


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


class AsyncTransactionalProducer:
    """Made by a client, which owns the connections. One transaction at a time; not for use by two tasks at once."""

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
        """`protocol` None: the newest that the cluster has finalized. TV1 is understood by every cluster."""
        self._cluster = cluster
        self.transactional_id = transactional_id
        self.transaction_timeout_ms = transaction_timeout_ms
        self._calls = TransactionCalls(cluster, transactional_id, max_block_ms)
        self._sender = TransactionSender(cluster, sending or Sending(), self._calls)
        self._wanted_protocol = protocol
        self.state = State.UNINITIALIZED
        self._is_handed_out = False
        self._needs_new_epoch = False
        self._failure: ClientError | None = None

    @property
    def identity(self) -> ProducerIdentity:
        return self._sender.identity

    @property
    def protocol(self) -> TransactionProtocol:
        return self._sender.protocol

    def close(self) -> None:
        """Leave without a word: an open transaction is left to its timeout, or to the next producer of this id."""
        self._sender.halt()

    # The life of a producer

    async def init(self, previous: ProducerIdentity | None = None) -> ProducerIdentity:
        """Get an epoch. Fences every other producer of the id and ends what it had open; with `previous`, the pair of
        an earlier life, it is this producer that is fenced if another has taken over meanwhile."""
        if self.state not in (State.UNINITIALIZED, State.READY, State.FAILED):
            raise TransactionMisused(self.transactional_id, "init", self.state.name)
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
        if self.state is not State.UNINITIALIZED:
            raise TransactionMisused(self.transactional_id, "step_into", self.state.name)
        self._take(handle.identity, handle.protocol)
        self._sender.enter(handle.added, dict(handle.sequences))
        self._sender.has_written = True
        self._is_handed_out = True
        self._move(State.IN_TRANSACTION)

    def _take(self, identity: ProducerIdentity, protocol: TransactionProtocol) -> None:
        self._sender.become(identity, protocol)
        self._needs_new_epoch = False
        if not self._sender.is_running:
            self._sender.run()

    async def begin(self) -> None:
        if self.state is not State.READY:
            raise TransactionMisused(self.transactional_id, "begin", self.state.name)
        # Under TV2 every end brings a new epoch. A cluster that was upgraded meanwhile needs one for the change.
        has_upgraded = self.protocol is TransactionProtocol.TV1 and (
            await self._newest_protocol() is TransactionProtocol.TV2
        )
        if self._needs_new_epoch or has_upgraded:
            await self.init(self.identity)
        self._sender.enter()
        self._is_handed_out = False
        self._move(State.IN_TRANSACTION)

    # In a transaction

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> "asyncio.Future[RecordMetadata]":
        """Buffer a record. The future is its acknowledgement by the partition; visible it becomes by the commit."""
        self._require_open("send")
        return await self._sender.send(
            topic, value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms
        )

    async def send_batch(self, topic: str, partition: int, batch: bytearray) -> "asyncio.Future[RecordMetadata]":
        """Buffer a finished batch; see `RecordSender.send_batch`."""
        self._require_open("send_batch")
        return await self._sender.send_batch(topic, partition, batch)

    async def flush(self) -> None:
        """Wait until everything sent is acknowledged by its partition. Raises what makes a commit impossible."""
        self._require_open("flush")
        with self._judging():
            await self._sender.settle()

    async def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Announce partitions that others will write to (TV1; under TV2 writing is enough)."""
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
        wanted = {
            partition: CommittedOffset(offset) if isinstance(offset, int) else offset
            for partition, offset in offsets.items()
        }
        if not wanted:
            return
        with self._judging():
            self._sender.has_written = True
            if self.protocol is TransactionProtocol.TV1:
                await self._calls.add_offsets(self.identity, metadata.group_id)
            await self._calls.commit_offsets(self.identity, self.protocol, wanted, metadata)

    async def handle(self) -> TransactionHandle:
        """What another process needs to write in this transaction. It can be pickled. What was sent is flushed."""
        await self.flush()
        self._is_handed_out = True
        self._sender.has_written = True
        return TransactionHandle(
            bootstrap_servers=self._cluster.bootstrap_servers,
            options=self._cluster.given_options,
            transactional_id=self.transactional_id,
            identity=self.identity,
            protocol=self.protocol,
            added=tuple(sorted(self._sender.added)),
            sequences=tuple(sorted(self._sender.sequences.items())),
        )

    # The end of a transaction

    async def commit(self) -> None:
        """Make everything visible at once. After TransactionOutcomeUnknown it may be called again, to learn."""
        if self.state is State.MUST_ABORT:
            assert self._failure is not None
            raise self._failure
        if self.state not in (State.IN_TRANSACTION, State.COMMITTING):
            raise TransactionMisused(self.transactional_id, "commit", self.state.name)
        if self.state is State.IN_TRANSACTION:
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
        """Make sure that nothing becomes visible. After a time-out it may be called again."""
        if self.state not in (State.IN_TRANSACTION, State.MUST_ABORT, State.ABORTING):
            raise TransactionMisused(self.transactional_id, "abort", self.state.name)
        failure = self._failure
        self._move(State.ABORTING)
        await self._sender.discard(cause or failure or Abandoned())
        try:
            if isinstance(failure, Reinitialize):
                # The coordinator has no transaction of this producer, and no place to record its end.
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
        """TV1 cannot abort what never reached the coordinator; a new epoch keeps late calls out all the same."""
        cause = error.__cause__
        refused = isinstance(cause, BrokerError) and cause.code == ErrorCode.INVALID_TXN_STATE
        return refused and self.protocol is TransactionProtocol.TV1

    def _completed(self, following: ProducerIdentity) -> None:
        is_tv1 = self.protocol is TransactionProtocol.TV1
        # Under TV1 the epoch stays, so the sequences of what others wrote, or of what failed, would be missing.
        if is_tv1 and self._sender.has_written and (self._is_handed_out or self._sender.lost_sequences):
            self._needs_new_epoch = True
        self._failure = None
        self._sender.become(following, self.protocol)
        self._move(State.READY)

    # States

    def _move(self, state: State) -> None:
        assert self.state in PREDECESSORS[state], f"{state} after {self.state}"
        self.state = state

    def check_open(self) -> None:
        """Raise what a send would raise now."""
        self._require_open("send")

    def _require_open(self, call: str) -> None:
        if self.state in (State.MUST_ABORT, State.FAILED) and self._failure is not None:
            raise self._failure
        if self.state is not State.IN_TRANSACTION:
            raise TransactionMisused(self.transactional_id, call, self.state.name)

    def _fail(self, error: TransactionError) -> TransactionError:
        self._failure = error
        self._move(State.FAILED)
        return error

    def _judging(self) -> "_Judging":
        return _Judging(self)


class _Judging:
    """Turns what a call raises into the state that follows from it."""

    def __init__(self, producer: AsyncTransactionalProducer) -> None:
        self._producer = producer

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        producer = self._producer
        if isinstance(error, TransactionMustAbort):
            producer._failure = error
            producer._move(State.MUST_ABORT)
        elif isinstance(error, TransactionCallTimedOut):
            producer._failure = TransactionMustAbort(producer.transactional_id, producer.identity, error)
            producer._move(State.MUST_ABORT)
            raise producer._failure from error
        elif isinstance(error, ProducerFenced | TransactionFailed):
            producer._fail(error)
