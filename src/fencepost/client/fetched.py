"""From the bytes of a fetch to records: whole batches only, control batches skipped, aborted transactions left out.

Pure: bytes in, records and the next offset out. The next offset moves past everything that was skipped, which is how
a reader gets over markers and aborted records at the end of a log.
"""

import heapq
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from fencepost.client.errors import CorruptRecords
from fencepost.client.values import ConsumedRecord, IsolationLevel
from fencepost.ports import Buffer
from fencepost.topic_partition import TopicPartition
from fencepost.wire.batch import (
    CREATE_TIME,
    CURRENT_MAGIC,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    BatchHeader,
    ControlType,
    read_header,
    read_marker,
    verify_crc,
)
from fencepost.wire.errors import KafkaError, MalformedMessage
from fencepost.wire.records import read_records

DECOMPRESSED_BATCH_MAX_BYTES = 256 * 1024 * 1024
_TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")


class AbortedTransaction(NamedTuple):
    first_offset: int
    producer_id: int


class Fetched(NamedTuple):
    records: list[ConsumedRecord]
    next_offset: int


class VisibleBatches:
    """Walks the batches of a fetch and names those that an application may see; moves `next_offset` past the others."""

    def __init__(
        self,
        partition: TopicPartition,
        fetch_offset: int,
        view: memoryview,
        isolation_level: IsolationLevel,
        aborted: Iterable[AbortedTransaction],
    ) -> None:
        self._partition = partition
        self._fetch_offset = fetch_offset
        self._view = view
        self._is_committed = isolation_level == IsolationLevel.READ_COMMITTED
        self._to_come = sorted(aborted)
        self._aborted_now: set[int] = set()
        self.next_offset = fetch_offset

    def __iter__(self) -> Iterator[tuple[int, BatchHeader]]:
        """A batch that is cut off at the end is left for the next fetch."""
        view, position = self._view, 0
        while len(view) - position >= HEADER_BYTES:
            header = read_header(view, position)
            if len(view) - position < LOG_OVERHEAD_BYTES + header.batch_length:
                break
            if header.magic != CURRENT_MAGIC:
                raise self.corrupt(header, f"message format {header.magic} is not known")
            if not verify_crc(view, position, header):
                raise self.corrupt(header, "wrong CRC")
            at, position = position, position + header.size_bytes
            if header.last_offset < self._fetch_offset:
                continue
            self.next_offset = header.next_offset
            if self._is_committed and header.has_producer_id and self._is_aborted(at, header):
                continue
            if not header.is_control:
                yield at, header

    def _is_aborted(self, at: int, header: BatchHeader) -> bool:
        while self._to_come and self._to_come[0].first_offset <= header.last_offset:
            self._aborted_now.add(heapq.heappop(self._to_come).producer_id)
        if header.is_control:
            marker = read_marker(self._view, at)
            if marker is not None and marker.control_type == ControlType.ABORT:
                self._aborted_now.discard(header.producer_id)
        return header.is_transactional and header.producer_id in self._aborted_now

    def corrupt(self, header: BatchHeader, reason: str) -> CorruptRecords:
        return CorruptRecords(self._partition.topic, self._partition.partition, header.base_offset, reason)


def read_fetched(
    partition: TopicPartition,
    fetch_offset: int,
    data: Buffer | None,
    isolation_level: IsolationLevel,
    aborted: Iterable[AbortedTransaction],
) -> Fetched:
    """The records at and after `fetch_offset`."""
    records: list[ConsumedRecord] = []
    view = memoryview(data if data is not None else b"")
    topic, index = partition.topic, partition.partition
    visible = VisibleBatches(partition, fetch_offset, view, isolation_level, aborted)
    for at, header in visible:
        kind = _TIMESTAMP_TYPES[header.timestamp_type != CREATE_TIME]
        try:
            for record in read_records(view, DECOMPRESSED_BATCH_MAX_BYTES, at):
                if record.offset >= fetch_offset:
                    records.append(
                        ConsumedRecord(
                            topic,
                            index,
                            record.offset,
                            record.timestamp,
                            kind,
                            record.key,
                            record.value,
                            record.headers,
                        )
                    )
        except (KafkaError, MalformedMessage) as error:
            raise visible.corrupt(header, str(error)) from None
    return Fetched(records, visible.next_offset)
