"""What a producer has taken and not sent yet: records gathered into batches, a queue for each partition, bounded.

Whoever sends waits for `_wake`, takes from the heads of `_busy` and tells `_progress` when there is room again.
"""

import abc
import asyncio
import dataclasses
import time
from collections.abc import Sequence

from fencepost.client.accumulator import Batch, PartitionQueue, size_of
from fencepost.client.cluster import Cluster
from fencepost.client.errors import ClientClosed, ClientError, UnknownPartition
from fencepost.client.partitioner import StickyPartitioner, partition_of_key
from fencepost.client.values import RecordMetadata, TopicMetadata
from fencepost.topic_partition import TopicPartition
from fencepost.wire.batch import read_header
from fencepost.wire.compression import Codec

BATCH_BYTES = 256 * 1024
BUFFER_BYTES_MAX = 32 * 1024 * 1024
LINGER_MS = 2
DELIVERY_TIMEOUT_MS = 120_000


@dataclasses.dataclass(frozen=True, slots=True)
class Sending:
    """How records are gathered and sent."""

    compression: Codec = Codec.NONE
    batch_bytes: int = BATCH_BYTES
    linger_ms: int = LINGER_MS
    buffer_bytes_max: int = BUFFER_BYTES_MAX
    delivery_timeout_ms: int = DELIVERY_TIMEOUT_MS


class RecordBuffer(abc.ABC):
    def __init__(self, cluster: Cluster, sending: Sending) -> None:
        self._cluster = cluster
        self._sending = sending
        self._sticky = StickyPartitioner(sending.batch_bytes)
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._busy: dict[TopicPartition, PartitionQueue] = {}
        self._buffered_bytes = 0
        self._flushing = 0
        self._stopped_by: ClientError | None = None
        self._wake = asyncio.Event()
        self._progress = asyncio.Condition()

    @property
    @abc.abstractmethod
    def is_running(self) -> bool: ...

    @abc.abstractmethod
    def new_queue(self, partition: TopicPartition) -> PartitionQueue: ...

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
        """Buffer a record. Waits only for metadata and for room; the future is the acknowledgement."""
        self._check_taking()
        metadata = self._cluster.cached_topic(topic) or await self._cluster.topic(topic)
        record = (int(time.time() * 1000) if timestamp_ms is None else timestamp_ms, key, value, headers)
        size_bytes = size_of(record)
        chosen = TopicPartition(topic, self._choose(metadata, key, partition, size_bytes))
        await self._wait_for_room(size_bytes)
        future: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        queue = self._queue(chosen)
        batch = queue.open_batch(size_bytes, self._sending.batch_bytes)
        is_new = batch is None
        if batch is None:
            batch = self._append(queue, self._new_batch())
        batch.add(record, size_bytes, future)
        self._buffered_bytes += size_bytes
        if is_new and len(queue.batches) > 1:
            # A full batch waits: let it leave while the caller goes on filling the next.
            await asyncio.sleep(0)
        return future

    async def send_batch(self, topic: str, partition: int, batch: bytearray) -> "asyncio.Future[RecordMetadata]":
        """Buffer a finished batch, as `wire.arrow_records` makes them; it is sent as it is, but for the producer's
        fields, which are written into it. The future is its acknowledgement, with the offset of its first record."""
        self._check_taking()
        metadata = self._cluster.cached_topic(topic) or await self._cluster.topic(topic)
        chosen = TopicPartition(topic, self._choose(metadata, None, partition, len(batch)))
        await self._wait_for_room(len(batch))
        future: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        made = self._new_batch()
        made.raw, made.raw_count, made.is_sealed = batch, read_header(batch).record_count, True
        made.size_bytes = len(batch)
        made.futures.append(future)
        self._append(self._queue(chosen), made)
        self._buffered_bytes += len(batch)
        return future

    def _check_taking(self) -> None:
        if not self.is_running:
            raise ClientClosed
        if self._stopped_by is not None:
            raise self._stopped_by

    def _queue(self, partition: TopicPartition) -> PartitionQueue:
        queue = self._queues.get(partition)
        if queue is None:
            queue = self._queues[partition] = self.new_queue(partition)
        return queue

    def _new_batch(self) -> Batch:
        now = asyncio.get_running_loop().time()
        return Batch(created=now, deadline=now + self._sending.delivery_timeout_ms / 1000)

    def _append(self, queue: PartitionQueue, batch: Batch) -> Batch:
        queue.batches.append(batch)
        self._busy[queue.partition] = queue
        self._wake.set()
        return batch

    def _choose(self, metadata: TopicMetadata, key: bytes | None, partition: int | None, size_bytes: int) -> int:
        count = len(metadata.partitions)
        if partition is not None:
            if partition not in metadata.partitions:
                raise UnknownPartition(metadata.name, partition, count)
            return partition
        if key is not None:
            return partition_of_key(key, count)
        led = [index for index, found in metadata.partitions.items() if found.leader >= 0]
        return self._sticky.partition(metadata.name, led or list(metadata.partitions), size_bytes)

    def _has_room(self, size_bytes: int) -> bool:
        return not self._buffered_bytes or self._buffered_bytes + size_bytes <= self._sending.buffer_bytes_max

    async def _wait_for_room(self, size_bytes: int) -> None:
        if not self._has_room(size_bytes):
            self._wake.set()
            async with self._progress:
                await self._progress.wait_for(lambda: self._has_room(size_bytes))
        # Whoever waited may find the sender stopped meanwhile.
        self._check_taking()

    async def drain(self) -> None:
        """Wait until everything buffered is acknowledged or has failed."""
        self._flushing += 1
        try:
            self._wake.set()
            async with self._progress:
                await self._progress.wait_for(lambda: not self._busy)
        finally:
            self._flushing -= 1

    def forget_sequences(self) -> None:
        """Begin every partition anew, under a new identity. Nothing may be buffered."""
        assert not self._busy
        self._queues.clear()

    def _forget_bytes(self, batch: Batch) -> None:
        self._buffered_bytes -= sum(map(size_of, batch.records)) if batch.raw is None else len(batch.raw)
