"""The records of the open transaction on their way to Kafka: placed, packed into finished batches, handed over.

A finished batch costs a fraction of what single sends cost. Memory is bounded: a batch leaves when it is full, and the
client's own buffer makes the caller wait.
"""

import time
from collections.abc import Callable, Iterable

from fencepost.client import TransactionalProducer
from fencepost.client.partitioner import StickyPartitioner, partition_of_key
from fencepost.connect.records import Record, encoded
from fencepost.wire.batch import NewRecord, build_batch

BATCH_BYTES = 400_000
"""Of keys, values and headers. Topics take batches of a mebibyte by default."""
BUFFER_BYTES = 4_000_000
"""Of all partitions together."""
RECORD_BYTES = 24
"""What a record takes beside its content, roughly."""


class _Buffer:
    __slots__ = ("records", "size_bytes")

    def __init__(self) -> None:
        self.records: list[NewRecord] = []
        self.size_bytes = 0


class Outgoing:
    def __init__(self, producer: TransactionalProducer, partition_count: Callable[[str], int]) -> None:
        self._producer = producer
        self._partition_count = partition_count
        self._sticky = StickyPartitioner(BATCH_BYTES)
        self._buffers: dict[tuple[str, int], _Buffer] = {}
        self._buffered_bytes = 0

    def add(self, records: Iterable[Record]) -> tuple[int, int]:
        """How many records these were, and their bytes."""
        now_ms = int(time.time() * 1000)
        buffers = self._buffers
        count = total_bytes = 0
        for topic, content, key, headers, partition, timestamp_ms in records:
            value = content if type(content) is bytes else encoded(content)
            if type(key) is not bytes:
                key = encoded(key)
            size_bytes = RECORD_BYTES + (len(key) if key is not None else 0) + (len(value) if value is not None else 0)
            for name, header in headers:
                size_bytes += len(name) + (len(header) if header is not None else 0) + 2
            if partition is None:
                partition = self._place(topic, key, size_bytes)
            buffer = buffers.get((topic, partition))
            if buffer is None:
                buffer = buffers[topic, partition] = _Buffer()
            elif buffer.size_bytes + size_bytes > BATCH_BYTES and buffer.records:
                self._send(topic, partition, buffer)
            buffer.records.append((now_ms if timestamp_ms is None else timestamp_ms, key, value, headers))
            buffer.size_bytes += size_bytes
            self._buffered_bytes += size_bytes
            if self._buffered_bytes > BUFFER_BYTES:
                self.flush()
            count += 1
            total_bytes += size_bytes
        return count, total_bytes

    def flush(self) -> None:
        """Hand everything over to the client. The client's commit waits for the acknowledgements."""
        for (topic, partition), buffer in self._buffers.items():
            if buffer.records:
                self._send(topic, partition, buffer)

    def _send(self, topic: str, partition: int, buffer: _Buffer) -> None:
        self._producer.send_batch(topic, partition, build_batch(buffer.records))
        self._buffered_bytes -= buffer.size_bytes
        buffer.records = []
        buffer.size_bytes = 0

    def _place(self, topic: str, key: bytes | None, size_bytes: int) -> int:
        count = self._partition_count(topic)
        if count == 1:
            return 0
        if key is None:
            return self._sticky.partition(topic, range(count), size_bytes)
        return partition_of_key(key, count)
