"""Sends records inside one transaction at a time, under an identity that it is given.

Used by the transactional producer and by writers that hold a handle. Adds partitions to the transaction where the
protocol asks for that (TV1), and keeps the first trouble: after it nothing more is sent until the next `enter`.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from fencepost.client import apis
from fencepost.client.accumulator import Batch, PartitionQueue, ProducerIdentity
from fencepost.client.apis import Api
from fencepost.client.cluster import Cluster
from fencepost.client.errors import BrokerError, DeliveryFailed
from fencepost.client.record_buffer import Sending
from fencepost.client.sender import Fate, RecordSender
from fencepost.client.transaction_calls import TransactionCalls, TransactionProtocol
from fencepost.client.transaction_errors import (
    Call,
    ProducerFenced,
    TransactionAborted,
    TransactionError,
    TransactionFailed,
    TransactionMustAbort,
    Verdict,
    verdict,
)
from fencepost.topic_partition import TopicPartition
from fencepost.wire import messages

_NOBODY = ProducerIdentity(-1, -1)


class TransactionSender(RecordSender):
    transactional_id: str

    def __init__(self, cluster: Cluster, sending: Sending, calls: TransactionCalls) -> None:
        super().__init__(cluster, sending)
        self.transactional_id = calls.transactional_id
        self._calls = calls
        self.identity = _NOBODY
        self.protocol = TransactionProtocol.TV1
        self.added: set[TopicPartition] = set()
        self.has_written = False
        """Something was sent, so that the coordinator may know of the transaction."""
        self.trouble: TransactionError | None = None
        self.lost_sequences = False
        """A batch failed: under TV1 the epoch must change before partitions can be written again."""
        self._adding = asyncio.Lock()
        self._given_sequences: dict[TopicPartition, int] = {}

    def become(self, identity: ProducerIdentity, protocol: TransactionProtocol) -> None:
        """Take an identity; another than before starts all sequences at zero."""
        if identity != self.identity:
            self.forget_sequences()
            self._given_sequences.clear()
            self.lost_sequences = False
        self.identity, self.protocol = identity, protocol

    def enter(
        self, added: Iterable[TopicPartition] = (), sequences: Mapping[TopicPartition, int] | None = None
    ) -> None:
        """Begin a transaction, or step into one that another process has begun."""
        self.added = set(added)
        self._given_sequences.update(sequences or {})
        self.has_written = False
        self.trouble = None
        self.resume()

    @property
    def sequences(self) -> dict[TopicPartition, int]:
        """What each partition goes on with."""
        return {partition: queue.next_sequence for partition, queue in self._queues.items()}

    async def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Make partitions part of the transaction before anything is written to them. Under TV2 writing does that."""
        if self.protocol is TransactionProtocol.TV2:
            return
        async with self._adding:
            missing = set(partitions) - self.added
            if missing:
                # A lost answer leaves it open whether the coordinator knows them, and that is the same as knowing.
                self.has_written = True
                await self._calls.add_partitions(self.identity, missing)
                self.added |= missing

    async def discard(self, cause: Exception) -> None:
        """Fail what has not been sent and wait for what has: before an abort."""
        await self.stop(TransactionAborted(self.transactional_id, self.identity, cause))

    # What the sender asks

    @property
    def produce_api(self) -> Api[messages.ProduceRequest, messages.ProduceResponse]:
        return apis.PRODUCE_TV2 if self.protocol is TransactionProtocol.TV2 else apis.PRODUCE_TV1

    def new_queue(self, partition: TopicPartition) -> PartitionQueue:
        queue = PartitionQueue(partition, self.identity)
        queue.next_sequence = self._given_sequences.get(partition, 0)
        return queue

    async def prepare(self, queues: Sequence[PartitionQueue]) -> None:
        if self._stopped_by is not None:
            raise self._stopped_by
        if any(queue.partition not in self.added for queue in queues):
            # Whatever else waits goes along in the same call.
            await self.add(self._busy)
        self.has_written = True

    def fate(self, head: Batch, error: BrokerError) -> Fate:
        return Fate.AGAIN if verdict(Call.PRODUCE, error.code) is Verdict.RETRY else Fate.FAILED

    def on_failed(self, failure: DeliveryFailed) -> None:
        self.lost_sequences = True
        if self.trouble is None and self._stopped_by is None:
            self.trouble = self._trouble(failure)
            # The rest of the transaction cannot be committed either.
            self._stopped_by = self.trouble
            self._wake.set()

    def _trouble(self, failure: DeliveryFailed) -> TransactionError:
        cause = failure.cause
        if isinstance(cause, TransactionError):
            return cause
        if isinstance(cause, BrokerError):
            decision = verdict(Call.PRODUCE, cause.code)
            if decision is Verdict.FENCED:
                return ProducerFenced(self.transactional_id, self.identity, cause)
            if decision is Verdict.FATAL:
                return TransactionFailed(self.transactional_id, self.identity, cause)
        return TransactionMustAbort(self.transactional_id, self.identity, failure)

    async def settle(self) -> None:
        """Wait for everything buffered; raise the trouble, if there is any."""
        await self.drain()
        if self.trouble is not None:
            raise self.trouble
