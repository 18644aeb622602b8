"""The idempotent producer: every record once and in order, without a transaction around it.

A record's future resolves once it is acknowledged. When a batch's fate is unknown it is sent again under the same
sequence number, which the broker recognizes; only when the time is up does its record fail, and it says so.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from fencepost.client import apis
from fencepost.client.accumulator import Batch, PartitionQueue, ProducerIdentity
from fencepost.client.apis import Api
from fencepost.client.cluster import Cluster
from fencepost.client.errors import BrokerError, ClientError, DeliveryFailed
from fencepost.client.lifetime import Lifetime
from fencepost.client.record_buffer import BATCH_BYTES, BUFFER_BYTES_MAX, DELIVERY_TIMEOUT_MS, LINGER_MS, Sending
from fencepost.client.sender import Fate, RecordSender
from fencepost.client.values import RecordMetadata
from fencepost.client.verdicts import check
from fencepost.topic_partition import TopicPartition
from fencepost.wire import messages
from fencepost.wire.compression import Codec
from fencepost.wire.errors import ErrorCode

TRANSACTION_TIMEOUT_MS = 60_000

# The broker no longer knows the producer, or knows another past of it.
_LOST_IDENTITY = frozenset(
    {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH}
)


class AsyncProducer(RecordSender, Lifetime):
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
        sending = Sending(compression, batch_bytes, linger_ms, buffer_bytes_max, delivery_timeout_ms)
        super().__init__(Cluster(bootstrap_servers, **options), sending)
        self._identity: ProducerIdentity | None = None
        self._failure: ClientError | None = None

    async def start(self) -> None:
        await self._cluster.connect()
        self._identity = await self._new_identity()
        self.run()

    async def close(self) -> None:
        """Send what is buffered, then leave."""
        try:
            if self.is_running:
                await self.drain()
        finally:
            self.halt()
            await self._cluster.close()

    async def produce(self, topic: str, values: Iterable[bytes | None]) -> list[RecordMetadata]:
        """Send many values and wait for all."""
        futures = [await self.send(topic, value) for value in values]
        await self.drain()
        return [future.result() for future in futures]

    async def flush(self) -> None:
        """Wait for everything buffered. Raises the first failure since the last flush."""
        await self.drain()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    # What the sender asks

    @property
    def produce_api(self) -> Api[messages.ProduceRequest, messages.ProduceResponse]:
        return apis.PRODUCE

    def new_queue(self, partition: TopicPartition) -> PartitionQueue:
        assert self._identity is not None
        return PartitionQueue(partition, self._identity)

    async def prepare(self, queues: Sequence[PartitionQueue]) -> None:
        for queue in queues:
            if queue.identity is None:
                queue.identity = await self._new_identity()

    def fate(self, head: Batch, error: BrokerError) -> Fate:
        if error.code in _LOST_IDENTITY:
            # Refused and certainly not written before: a new identity cannot make a duplicate.
            return Fate.FAILED if head.may_be_written else Fate.AS_ANOTHER
        return Fate.AGAIN if error.is_retriable else Fate.FAILED

    def on_failed(self, failure: DeliveryFailed) -> None:
        self._failure = self._failure or failure

    async def _new_identity(self) -> ProducerIdentity:
        async def attempt() -> ProducerIdentity:
            request = messages.InitProducerIdRequest(
                transactional_id=None, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
            )
            answer = await self._cluster.call_any(apis.INIT_PRODUCER_ID, request)
            check(answer.error_code, "producer id")
            return ProducerIdentity(answer.producer_id, answer.producer_epoch)

        return await self._cluster.retrying(attempt)
