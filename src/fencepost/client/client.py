"""The front door: one client, its connections, and what is done through them.

    async with AsyncClient("127.0.0.1:9092") as client:
        async with client.transaction("invoicing") as transaction:
            await transaction.send("invoices", b"one book", key=b"alice")

Options carry Kafka's names, with dots or underscores (`**{"security.protocol": "SASL_SSL"}` or `security_protocol=`).
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from fencepost.client.accumulator import ProducerIdentity
from fencepost.client.cluster import Cluster
from fencepost.client.sender import Sending
from fencepost.client.transaction_calls import MAX_BLOCK_MS, GroupMetadata, TransactionCalls, TransactionProtocol
from fencepost.client.transaction_errors import TransactionAborted, TransactionError, TransactionMustAbort
from fencepost.client.transaction_handle import TransactionHandle
from fencepost.client.transactional_producer import TRANSACTION_TIMEOUT_MS, AsyncTransactionalProducer, State
from fencepost.client.values import CommittedOffset, RecordMetadata, TopicPartition


class AsyncTransaction:
    """One transaction as a block: it commits at the end, an exception aborts it.

    A transaction that could not be committed but was aborted cleanly raises TransactionAborted: do the work again.
    """

    def __init__(self, producer: AsyncTransactionalProducer) -> None:
        self._producer = producer

    async def __aenter__(self) -> Self:
        producer = self._producer
        if producer.state is State.COMMITTING:
            # The outcome of the one before is not known: learn it before anything else.
            await producer.commit()
        elif producer.state in (State.IN_TRANSACTION, State.MUST_ABORT, State.ABORTING):
            await producer.abort()
        if producer.state is State.UNINITIALIZED:
            await producer.init()
        await producer.begin()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        producer = self._producer
        if error is None:
            try:
                await producer.commit()
            except TransactionMustAbort as trouble:
                identity = producer.identity
                await producer.abort(trouble)
                raise TransactionAborted(producer.transactional_id, identity, trouble.cause) from trouble
            return
        if producer.state not in (State.IN_TRANSACTION, State.MUST_ABORT):
            return
        try:
            await producer.abort(error if isinstance(error, Exception) else None)
        except TransactionError as trouble:
            # What the application raised is what happened; that the abort failed too comes second.
            error.add_note(f"and the abort failed: {trouble}")

    @property
    def transactional_id(self) -> str:
        return self._producer.transactional_id

    @property
    def identity(self) -> ProducerIdentity:
        return self._producer.identity

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
        return await self._producer.send(
            topic, value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms
        )

    async def send_batch(self, topic: str, partition: int, batch: bytearray) -> "asyncio.Future[RecordMetadata]":
        return await self._producer.send_batch(topic, partition, batch)

    async def add(self, partitions: Iterable[TopicPartition]) -> None:
        await self._producer.add(partitions)

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, CommittedOffset | int], group: GroupMetadata | str
    ) -> None:
        await self._producer.send_offsets(offsets, group)

    async def flush(self) -> None:
        await self._producer.flush()

    def handle(self) -> TransactionHandle:
        return self._producer.handle()


class AsyncClient:
    def __init__(self, bootstrap_servers: str | Sequence[str], **kafka: Any) -> None:
        self._cluster = Cluster(bootstrap_servers, **kafka)
        self._producers: dict[str, AsyncTransactionalProducer] = {}

    async def start(self) -> None:
        await self._cluster.connect()

    async def close(self) -> None:
        for producer in self._producers.values():
            producer.close()
        await self._cluster.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def producer(
        self,
        transactional_id: str,
        *,
        transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS,
        max_block_ms: int = MAX_BLOCK_MS,
        sending: Sending | None = None,
        protocol: TransactionProtocol | None = None,
    ) -> AsyncTransactionalProducer:
        """The producer of this id, with explicit init, begin, commit and abort; made on the first call."""
        producer = self._producers.get(transactional_id)
        if producer is None:
            producer = self._producers[transactional_id] = AsyncTransactionalProducer(
                self._cluster,
                transactional_id,
                transaction_timeout_ms=transaction_timeout_ms,
                max_block_ms=max_block_ms,
                sending=sending,
                protocol=protocol,
            )
        return producer

    def transaction(self, transactional_id: str, **options: Any) -> AsyncTransaction:
        """The next transaction of this id, as a block. The first one of a client takes the id over from any other."""
        return AsyncTransaction(self.producer(transactional_id, **options))

    def step_into(self, handle: TransactionHandle, **options: Any) -> AsyncTransactionalProducer:
        """A producer in the midst of a transaction that another process has begun."""
        self._producers.pop(handle.transactional_id, None)
        producer = self.producer(handle.transactional_id, **options)
        producer.step_into(handle)
        return producer

    async def init_producer_id(
        self,
        transactional_id: str,
        *,
        transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS,
        previous: ProducerIdentity | None = None,
    ) -> ProducerIdentity:
        """InitProducerId and nothing else: bare it takes the id over; with the own pair a successor is not fenced."""
        calls = TransactionCalls(self._cluster, transactional_id)
        return await calls.init(transaction_timeout_ms, previous)
