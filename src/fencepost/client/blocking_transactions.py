"""The plain face of the client proper: transactions as blocks, without async.

with Client("127.0.0.1:9092") as client, client.transaction("invoicing") as transaction:
    transaction.send("invoices", b"one book", key=b"alice")
"""

import concurrent.futures
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from fencepost.client.accumulator import ProducerIdentity
from fencepost.client.client import AsyncClient
from fencepost.client.client_transaction import AsyncTransaction
from fencepost.client.errors import ClientError
from fencepost.client.face import Blocking, LoopThread, SendQueue, blocking
from fencepost.client.group_consumer import (
    POLL_RECORDS_MAX,
    POLL_TIMEOUT_MS,
    AsyncConsumedTransaction,
    AsyncGroupConsumer,
    Listener,
)
from fencepost.client.record_buffer import Sending
from fencepost.client.transaction_calls import GroupMetadata, TransactionProtocol
from fencepost.client.transaction_handle import AsyncTransactionWriter, TransactionHandle
from fencepost.client.transactional_producer import AsyncTransactionalProducer, State
from fencepost.client.values import CommittedOffset, ConsumedRecord, RecordMetadata
from fencepost.topic_partition import TopicPartition

Acknowledged = concurrent.futures.Future[RecordMetadata]


class _Sends:
    """The sends that a producer, a block and a writer have in common."""

    _loop: LoopThread
    _inner: Any
    _records: SendQueue[RecordMetadata]

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Acknowledged:
        """Buffer a record, waiting only for room; the future is its acknowledgement by the partition."""
        return self._records.put(topic, value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms)

    def send_batch(self, topic: str, partition: int, batch: bytearray) -> Acknowledged:
        """Buffer a finished batch; only the producer's fields are written into it."""
        return self._records.put(topic, partition, batch)

    def flush(self) -> None:
        """Wait until everything sent is acknowledged. Raises what makes a commit impossible."""
        self._records.settle()
        self._loop.run(self._inner.flush())


async def _send_to(inner: Any, topic: str, *args: Any, **kwargs: Any) -> Any:
    """One queue for both kinds, so that their order is kept: a batch comes with its partition before it."""
    return await (inner.send_batch if len(args) == 2 else inner.send)(topic, *args, **kwargs)


class _Opened(_Sends):
    """What can be done in an open transaction."""

    def __init__(self, loop: LoopThread, inner: Any, known_topics: set[str]) -> None:
        self._loop = loop
        self._inner = inner
        self._records = SendQueue(loop, functools.partial(_send_to, inner), known_topics, inner.check_open)

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        self._loop.run(self._inner.add(partitions))

    def send_offsets(self, offsets: Mapping[TopicPartition, CommittedOffset | int], group: GroupMetadata | str) -> None:
        """Commit consumed offsets together with the transaction."""
        self._records.settle()
        self._loop.run(self._inner.send_offsets(offsets, group))

    def handle(self) -> TransactionHandle:
        """What another process needs to write in this transaction. It can be pickled. What was sent is flushed."""
        self._records.settle()
        handle: TransactionHandle = self._loop.run(self._inner.handle())
        return handle

    @property
    def identity(self) -> ProducerIdentity:
        identity: ProducerIdentity = self._inner.identity
        return identity


class Transaction(_Opened):
    """One transaction as a block: it commits at the end, an exception aborts it."""

    def __init__(self, loop: LoopThread, inner: AsyncTransaction, known_topics: set[str]) -> None:
        super().__init__(loop, inner, known_topics)
        self._inner: AsyncTransaction = inner

    def __enter__(self) -> Self:
        self._loop.run(self._inner.__aenter__())
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            try:
                self._records.settle()
            except Exception as trouble:
                self._loop.run(self._inner.__aexit__(type(trouble), trouble, None))
                raise
        self._loop.run(self._inner.__aexit__(kind, error, trace))


class TransactionalProducer(_Opened):
    """The producer behind the blocks, with explicit init, begin, commit and abort. Belongs to its client."""

    def __init__(self, loop: LoopThread, inner: AsyncTransactionalProducer, known_topics: set[str]) -> None:
        super().__init__(loop, inner, known_topics)
        self._inner: AsyncTransactionalProducer = inner

    init = blocking(AsyncTransactionalProducer.init)
    begin = blocking(AsyncTransactionalProducer.begin)

    def commit(self) -> None:
        """Make everything visible at once. After TransactionOutcomeUnknown it may be called again, to learn."""
        self._records.settle()
        self._loop.run(self._inner.commit())

    def abort(self) -> None:
        """Make sure that nothing becomes visible. After a time-out it may be called again."""
        try:
            self._records.settle()
        except ClientError:
            # That a send failed is a reason to be here.
            pass
        self._loop.run(self._inner.abort())

    @property
    def state(self) -> State:
        return self._inner.state

    @property
    def protocol(self) -> TransactionProtocol:
        return self._inner.protocol


class TransactionWriter(_Sends, Blocking[AsyncTransactionWriter]):
    """Writes in a transaction that another process has begun and will end."""

    _inner: AsyncTransactionWriter

    def __init__(self, handle: TransactionHandle, sending: Sending | None = None) -> None:
        super().__init__(lambda: AsyncTransactionWriter(handle, sending))
        self._records = SendQueue(self._loop, functools.partial(_send_to, self._inner), check=self._inner.check_open)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is None:
                self.flush()
        finally:
            self.close()


class ConsumedTransaction(Transaction):
    """A transaction around a consumer: what is polled in it is committed with what is sent, or not at all."""

    _inner: AsyncConsumedTransaction

    def poll(self, timeout_ms: int = POLL_TIMEOUT_MS, records_max: int = POLL_RECORDS_MAX) -> list[ConsumedRecord]:
        return self._loop.run(self._inner.poll(timeout_ms, records_max))


class GroupConsumer:
    """A member of a consumer group. Heartbeats go on while the application works; polling is its own affair."""

    def __init__(self, loop: LoopThread, inner: AsyncGroupConsumer, known_topics: set[str]) -> None:
        self._loop = loop
        self._inner = inner
        self._known_topics = known_topics

    poll = blocking(AsyncGroupConsumer.poll)
    commit = blocking(AsyncGroupConsumer.commit)
    committed = blocking(AsyncGroupConsumer.committed)
    close = blocking(AsyncGroupConsumer.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def assignment(self) -> list[TopicPartition]:
        return self._inner.assignment

    @property
    def positions(self) -> dict[TopicPartition, int]:
        return self._inner.positions

    def metadata(self) -> GroupMetadata:
        """Who is consuming, for `send_offsets`."""
        return self._inner.metadata()

    def seek(self, partition: TopicPartition, offset: int) -> None:
        async def move() -> None:
            self._inner.seek(partition, offset)

        self._loop.run(move())

    def transaction(self, transactional_id: str) -> ConsumedTransaction:
        """A block that consumes, transforms and produces; aborted, it puts the positions back."""

        async def made() -> AsyncConsumedTransaction:
            return self._inner.transaction(transactional_id)

        return ConsumedTransaction(self._loop, self._loop.run(made()), self._known_topics)


class Client(Blocking[AsyncClient]):
    """One client of one cluster. Options carry Kafka's names, with dots or underscores."""

    def __init__(self, bootstrap_servers: str | Sequence[str], **kafka: Any) -> None:
        super().__init__(lambda: AsyncClient(bootstrap_servers, **kafka))
        self._known_topics: set[str] = set()

    init_producer_id = blocking(AsyncClient.init_producer_id)

    def transaction(self, transactional_id: str, **options: Any) -> Transaction:
        """The next transaction of this id, as a block. The first one of a client takes the id over from any other."""

        # Made on the event loop, where its locks and tasks belong; and so with all that follow.
        async def made() -> AsyncTransaction:
            return self._inner.transaction(transactional_id, **options)

        return Transaction(self._loop, self._loop.run(made()), self._known_topics)

    def producer(self, transactional_id: str, **options: Any) -> TransactionalProducer:
        """The producer of this id, with explicit init, begin, commit and abort."""

        async def made() -> AsyncTransactionalProducer:
            return self._inner.producer(transactional_id, **options)

        return TransactionalProducer(self._loop, self._loop.run(made()), self._known_topics)

    def step_into(self, handle: TransactionHandle, **options: Any) -> TransactionalProducer:
        """A producer in the midst of a transaction that another process has begun."""

        async def made() -> AsyncTransactionalProducer:
            return self._inner.step_into(handle, **options)

        return TransactionalProducer(self._loop, self._loop.run(made()), self._known_topics)

    def consumer(
        self,
        group_id: str,
        topics: str | Iterable[str],
        *,
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
        **settings: Any,
    ) -> GroupConsumer:
        """A member of a group; the settings are those of ConsumerSettings. Listeners run in the client's thread."""

        async def made() -> AsyncGroupConsumer:
            return self._inner.consumer(group_id, topics, on_assigned=on_assigned, on_revoked=on_revoked, **settings)

        return GroupConsumer(self._loop, self._loop.run(made()), self._known_topics)
