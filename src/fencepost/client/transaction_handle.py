"""A transaction to be written from another process: a small value that can be pickled, and a writer made from it.

The process that began the transaction ends it. Each partition must have one writer only: two of them would use the same
sequence numbers, and what comes second would be taken for a repetition.
"""

import asyncio
import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from fencepost.client.accumulator import ProducerIdentity
from fencepost.client.cluster import Cluster
from fencepost.client.record_buffer import Sending
from fencepost.client.transaction_calls import TransactionCalls, TransactionProtocol
from fencepost.client.transaction_sender import TransactionSender
from fencepost.client.values import RecordMetadata
from fencepost.topic_partition import TopicPartition

if TYPE_CHECKING:
    from fencepost.client.blocking_transactions import TransactionWriter


@dataclasses.dataclass(frozen=True, slots=True)
class TransactionHandle:
    bootstrap_servers: tuple[str, ...]
    options: Mapping[str, Any] = dataclasses.field(repr=False)
    """Holds the credentials, so it is not shown."""
    transactional_id: str
    identity: ProducerIdentity
    protocol: TransactionProtocol
    added: tuple[TopicPartition, ...] = ()
    sequences: tuple[tuple[TopicPartition, int], ...] = ()
    """Where partitions that were written under this epoch already go on; the others begin at zero."""

    @property
    def producer_id(self) -> int:
        return self.identity.producer_id

    @property
    def producer_epoch(self) -> int:
        return self.identity.producer_epoch

    def writer(self, sending: Sending | None = None) -> "TransactionWriter":
        """A writer without async, connected and ready."""
        from fencepost.client.blocking_transactions import TransactionWriter

        return TransactionWriter(self, sending)


class AsyncTransactionWriter:
    """Writes in a transaction that another process has begun and will end."""

    def __init__(
        self, handle: TransactionHandle, sending: Sending | None = None, cluster: Cluster | None = None
    ) -> None:
        """`cluster`: connections that others use as well, and close. By default it has its own."""
        self.handle = handle
        self._is_guest = cluster is not None
        self._cluster = cluster or Cluster(handle.bootstrap_servers, **handle.options)
        calls = TransactionCalls(self._cluster, handle.transactional_id)
        self._sender = TransactionSender(self._cluster, sending or Sending(), calls)

    async def start(self) -> None:
        if not self._is_guest:
            await self._cluster.connect()
        self._sender.become(self.handle.identity, self.handle.protocol)
        self._sender.enter(self.handle.added, dict(self.handle.sequences))
        self._sender.run()

    async def close(self) -> None:
        """Leave; what was not flushed may not have been sent."""
        self._sender.halt()
        if not self._is_guest:
            await self._cluster.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is None:
                await self.flush()
        finally:
            await self.close()

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
        return await self._sender.send(
            topic, value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms
        )

    async def send_batch(self, topic: str, partition: int, batch: bytearray) -> "asyncio.Future[RecordMetadata]":
        return await self._sender.send_batch(topic, partition, batch)

    def check_open(self) -> None:
        """Raise what a send would raise now."""
        if self._sender.trouble is not None:
            raise self._sender.trouble

    async def flush(self) -> None:
        """Wait until everything is acknowledged by its partition. Raises what makes a commit impossible."""
        await self._sender.settle()

    @property
    def sequences(self) -> dict[TopicPartition, int]:
        return self._sender.sequences
