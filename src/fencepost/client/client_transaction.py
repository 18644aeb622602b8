"""One transaction as a block: it commits at the end, an exception aborts it."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Self

from fencepost.client.accumulator import ProducerIdentity
from fencepost.client.transaction_calls import GroupMetadata
from fencepost.client.transaction_errors import TransactionAborted, TransactionError, TransactionMustAbort
from fencepost.client.transaction_handle import TransactionHandle
from fencepost.client.transactional_producer import AsyncTransactionalProducer, State
from fencepost.client.values import CommittedOffset, RecordMetadata
from fencepost.topic_partition import TopicPartition


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
                await self.before_commit()
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

    async def before_commit(self) -> None:
        """What belongs to the transaction but is known only at its end."""

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

    async def handle(self) -> TransactionHandle:
        return await self._producer.handle()

    def check_open(self) -> None:
        self._producer.check_open()
