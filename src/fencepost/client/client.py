"""The client: owns the connections, and creates producers, transactions and consumers.

    async with AsyncClient("127.0.0.1:9092") as client:
        async with client.transaction("invoicing") as transaction:
            await transaction.send("invoices", b"one book", key=b"alice")

Options have Kafka's names, with dots or underscores (`**{"security.protocol": "SASL_SSL"}` or `security_protocol=`).
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from fencepost.client.cluster import Cluster, ClusterSession
from fencepost.client.group_consumer import AsyncGroupConsumer, ConsumerSettings, Listener
from fencepost.client.kafka_types import ProducerIdentity
from fencepost.client.sending import Sending
from fencepost.client.transaction_calls import MAX_BLOCK_MS, TransactionCalls, TransactionProtocol
from fencepost.client.transactions import (
    TRANSACTION_TIMEOUT_MS,
    AsyncTransaction,
    AsyncTransactionalProducer,
    TransactionHandle,
)


class AsyncClient(ClusterSession):
    def __init__(self, bootstrap_servers: str | Sequence[str], **kafka: Any) -> None:
        super().__init__(Cluster(bootstrap_servers, **kafka))
        self._producers: dict[str, AsyncTransactionalProducer] = {}
        self._consumers: list[AsyncGroupConsumer] = []

    async def close(self) -> None:
        for consumer in self._consumers:
            await consumer.close()
        for producer in self._producers.values():
            producer.close()
        await super().close()

    def producer(
        self,
        transactional_id: str,
        *,
        transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS,
        max_block_ms: int = MAX_BLOCK_MS,
        sending: Sending | None = None,
        protocol: TransactionProtocol | None = None,
    ) -> AsyncTransactionalProducer:
        """The producer of this id, with explicit init, begin, commit and abort. Created by the first call."""
        producer = self._producers.get(transactional_id)
        if producer is None:
            producer = self._producers[transactional_id] = AsyncTransactionalProducer(
                self.cluster,
                transactional_id,
                transaction_timeout_ms=transaction_timeout_ms,
                max_block_ms=max_block_ms,
                sending=sending,
                protocol=protocol,
            )
        return producer

    def transaction(self, /, transactional_id: str, **options: Any) -> AsyncTransaction:
        """The next transaction of this id, as a block. A client's first one takes over the id from any other
        producer."""
        return AsyncTransaction(self.producer(transactional_id, **options))

    def consumer(
        self,
        /,
        group_id: str,
        topics: str | Iterable[str],
        *,
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
        **settings: Any,
    ) -> AsyncGroupConsumer:
        """A member of a group; the settings are those of ConsumerSettings."""
        consumer = AsyncGroupConsumer(
            self.cluster,
            group_id,
            [topics] if isinstance(topics, str) else topics,
            dataclasses.replace(ConsumerSettings(), **settings),
            self.producer,
            on_assigned,
            on_revoked,
        )
        self._consumers.append(consumer)
        return consumer

    def step_into(self, /, handle: TransactionHandle, **options: Any) -> AsyncTransactionalProducer:
        """A producer that continues a transaction begun by another process."""
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
        """Only InitProducerId. Without `previous` it takes over the id; with `previous` it does not fence a
        successor."""
        calls = TransactionCalls(self.cluster, transactional_id)
        return await calls.init(transaction_timeout_ms, previous)
