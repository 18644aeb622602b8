"""The plain face of the client proper: transactions as blocks, without async.

with Client("127.0.0.1:9092") as client, client.transaction("invoicing") as transaction:
    transaction.send("invoices", b"one book", key=b"alice")
"""

import concurrent.futures
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from fencepost.client.accumulator import ProducerIdentity
from fencepost.client.client import AsyncClient
from fencepost.client.client_transaction import AsyncTransaction
from fencepost.client.face import Blocking, LoopThread, blocking, bridged
from fencepost.client.group_consumer import (
    POLL_RECORDS_MAX,
    POLL_TIMEOUT_MS,
    AsyncConsumedTransaction,
    AsyncGroupConsumer,
    Listener,
)
from fencepost.client.sender import Sending
from fencepost.client.transaction_calls import GroupMetadata, TransactionProtocol
from fencepost.client.transaction_handle import AsyncTransactionWriter, TransactionHandle
from fencepost.client.transactional_producer import AsyncTransactionalProducer, State
from fencepost.client.values import CommittedOffset, ConsumedRecord, RecordMetadata, TopicPartition

Acknowledged = concurrent.futures.Future[RecordMetadata]


class _Sends:
    """The sends that a producer, a block and a writer have in common."""

    _loop: LoopThread
    _inner: Any

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
        return bridged(
            self._loop,
            self._inner.send(topic, value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms),
        )

    def send_batch(self, topic: str, partition: int, batch: bytearray) -> Acknowledged:
        """Buffer a finished batch; only the producer's fields are written into it."""
        return bridged(self._loop, self._inner.send_batch(topic, partition, batch))

    def flush(self) -> None:
        """Wait until everything sent is acknowledged. Raises what makes a commit impossible."""
        self._loop.run(self._inner.flush())


class _Opened(_Sends):
    """What can be done in an open transaction."""

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        self._loop.run(self._inner.add(partitions))

    def send_offsets(self, offsets: Mapping[TopicPartition, CommittedOffset | int], group: GroupMetadata | str) -> None:
        """Commit consumed offsets together with the transaction."""
        self._loop.run(self._inner.send_offsets(offsets, group))

    def handle(self) -> TransactionHandle:
        """What another process needs to write in this transaction. It can be pickled."""
        handle: TransactionHandle = self._inner.handle()
        return handle

    @property
    def identity(self) -> ProducerIdentity:
        identity: ProducerIdentity = self._inner.identity
        return identity


class Transaction(_Opened):
    """One transaction as a block: it commits at the end, an exception aborts it."""

    def __init__(self, loop: LoopThread, inner: AsyncTransaction) -> None:
        self._loop = loop
        self._inner: AsyncTransaction = inner

    def __enter__(self) -> Self:
        self._loop.run(self._inner.__aenter__())
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._loop.run(self._inner.__aexit__(kind, error, trace))


class TransactionalProducer(_Opened):
    """The producer behind the blocks, with explicit init, begin, commit and abort. Belongs to its client."""

    def __init__(self, loop: LoopThread, inner: AsyncTransactionalProducer) -> None:
        self._loop = loop
        self._inner: AsyncTransactionalProducer = inner

    init = blocking(AsyncTransactionalProducer.init)
    begin = blocking(AsyncTransactionalProducer.begin)
    commit = blocking(AsyncTransactionalProducer.commit)
    abort = blocking(AsyncTransactionalProducer.abort)

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

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is None:
                self.flush()
        finally:
            self.close()


class ConsumedTransaction(Transaction):
    """A transaction around a consumer: what is polled in it is committed with what is sent, or not at all."""

    _inner: AsyncConsumedTransaction

    def __init__(self, loop: LoopThread, inner: AsyncConsumedTransaction) -> None:
        super().__init__(loop, inner)

    def poll(self, timeout_ms: int = POLL_TIMEOUT_MS, records_max: int = POLL_RECORDS_MAX) -> list[ConsumedRecord]:
        return self._loop.run(self._inner.poll(timeout_ms, records_max))


class GroupConsumer:
    """A member of a consumer group. Heartbeats go on while the application works; polling is its own affair."""

    def __init__(self, loop: LoopThread, inner: AsyncGroupConsumer) -> None:
        self._loop = loop
        self._inner = inner

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

        return ConsumedTransaction(self._loop, self._loop.run(made()))


class Client(Blocking[AsyncClient]):
    """One client of one cluster. Options carry Kafka's names, with dots or underscores."""

    def __init__(self, bootstrap_servers: str | Sequence[str], **kafka: Any) -> None:
        super().__init__(lambda: AsyncClient(bootstrap_servers, **kafka))

    init_producer_id = blocking(AsyncClient.init_producer_id)

    def transaction(self, transactional_id: str, **options: Any) -> Transaction:
        """The next transaction of this id, as a block. The first one of a client takes the id over from any other."""
        return Transaction(self._loop, self._loop.run(self._made_transaction(transactional_id, options)))

    def producer(self, transactional_id: str, **options: Any) -> TransactionalProducer:
        return TransactionalProducer(self._loop, self._loop.run(self._made_producer(transactional_id, options)))

    def step_into(self, handle: TransactionHandle, **options: Any) -> TransactionalProducer:
        """A producer in the midst of a transaction that another process has begun."""
        return TransactionalProducer(self._loop, self._loop.run(self._stepped_into(handle, options)))

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

        return GroupConsumer(self._loop, self._loop.run(made()))

    # Made on the event loop, where their locks and tasks belong.

    async def _made_transaction(self, transactional_id: str, options: dict[str, Any]) -> AsyncTransaction:
        return self._inner.transaction(transactional_id, **options)

    async def _made_producer(self, transactional_id: str, options: dict[str, Any]) -> AsyncTransactionalProducer:
        return self._inner.producer(transactional_id, **options)

    async def _stepped_into(self, handle: TransactionHandle, options: dict[str, Any]) -> AsyncTransactionalProducer:
        return self._inner.step_into(handle, **options)
