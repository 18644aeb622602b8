"""The idempotent producer: every record once and in order, without a transaction around it.

A record's future resolves once the record is acknowledged. A batch that may or may not have been written is sent again
under the same sequence number, which the broker recognizes. After the delivery timeout its records fail, and the error
says that they may have been written.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from fencepost.client import apis
from fencepost.client.apis import Api
from fencepost.client.cluster import Cluster, ClusterSession
from fencepost.client.errors import BrokerError, ClientError, DeliveryFailed, check
from fencepost.client.kafka_types import ProducerIdentity, RecordMetadata
from fencepost.client.sending import (
    BATCH_BYTES,
    BUFFER_BYTES_MAX,
    DELIVERY_TIMEOUT_MS,
    LINGER_MS,
    Fate,
    Sender,
    Sending,
    SendsRecords,
)
from fencepost.topic_partition import TopicPartition
from fencepost.wire import messages
from fencepost.wire.compression import Codec
from fencepost.wire.errors import ErrorCode

UNUSED_TRANSACTION_TIMEOUT_MS = 60_000

# The broker no longer knows the producer, or has another history of it.
_LOST_IDENTITY = frozenset(
    {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH}
)


class AsyncProducer(SendsRecords, ClusterSession):
    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        compression: Codec = Codec.NONE,
        batch_bytes: int = BATCH_BYTES,
        linger_ms: int = LINGER_MS,
        buffer_bytes_max: int = BUFFER_BYTES_MAX,
        delivery_timeout_ms: int = DELIVERY_TIMEOUT_MS,
        **options: Any,
    ) -> None:
        super().__init__(Cluster(bootstrap_servers, **options))
        sending = Sending(compression, batch_bytes, linger_ms, buffer_bytes_max, delivery_timeout_ms)
        self._role = _IdempotentRole(self.cluster)
        self._sender = Sender(self.cluster, sending, self._role)

    async def start(self) -> None:
        await super().start()
        await self._role.begin()
        self._sender.run()

    async def close(self) -> None:
        """Send what is buffered, then close."""
        try:
            if self._sender.is_running:
                await self._sender.drain()
        finally:
            self._sender.halt()
            await super().close()

    def open_sender(self) -> Sender:
        return self._sender

    async def produce(self, topic: str, values: Iterable[bytes | None]) -> list[RecordMetadata]:
        """Send many values and wait for all."""
        futures = [await self.send(topic, value) for value in values]
        await self._sender.drain()
        return [future.result() for future in futures]

    async def flush(self) -> None:
        """Wait for everything buffered. Raises the first failure since the last flush."""
        await self._sender.drain()
        failure = self._role.take_failure()
        if failure is not None:
            raise failure


class _IdempotentRole:
    """The producer's role in the send path: an identity, which is replaced in a partition where its sequence was
    lost."""

    transactional_id = None
    produce_api: Api[messages.ProduceRequest, messages.ProduceResponse] = apis.PRODUCE

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._identity: ProducerIdentity | None = None
        self._failure: ClientError | None = None

    async def begin(self) -> None:
        self._identity = await self.new_identity()

    def take_failure(self) -> ClientError | None:
        failure, self._failure = self._failure, None
        return failure

    def starting_point(self, partition: TopicPartition) -> tuple[ProducerIdentity, int]:
        assert self._identity is not None
        return self._identity, 0

    def may_write(self, partition: TopicPartition) -> bool:
        return True

    async def admit(self, partitions: Collection[TopicPartition]) -> None:
        """There is no coordinator to ask."""

    async def new_identity(self) -> ProducerIdentity:
        request = messages.InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=UNUSED_TRANSACTION_TIMEOUT_MS
        )

        async def attempt() -> ProducerIdentity:
            answer = await self._cluster.call_any(apis.INIT_PRODUCER_ID, request)
            check(answer.error_code, "producer id")
            return ProducerIdentity(answer.producer_id, answer.producer_epoch)

        return await self._cluster.retrying(attempt)

    def fate(self, error: BrokerError, *, may_be_written: bool) -> Fate:
        if error.code in _LOST_IDENTITY:
            # A batch that was certainly not written can be sent with a new identity without a duplicate.
            return Fate.FAIL if may_be_written else Fate.RETRY_AS_NEW_PRODUCER
        return Fate.RETRY if error.is_retriable else Fate.FAIL

    def delivery_failed(self, failure: DeliveryFailed) -> None:
        self._failure = self._failure or failure
