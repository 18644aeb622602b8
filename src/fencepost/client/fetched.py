"""From the bytes of a fetch to records: whole batches only, control batches skipped, aborted transactions left out.

Pure: bytes in, records and the next offset out. The next offset moves past everything that was skipped, which is how
a reader gets over markers and aborted records at the end of a log.
"""

import heapq
from collections.abc import Iterable
from typing import NamedTuple

from fencepost.client.errors import CorruptRecords
from fencepost.client.values import ConsumedRecord, IsolationLevel, TopicPartition
from fencepost.ports import Buffer
from fencepost.wire.batch import (
    CREATE_TIME,
    CURRENT_MAGIC,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
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


def read_fetched(
    partition: TopicPartition,
    fetch_offset: int,
    data: Buffer | None,
    isolation_level: IsolationLevel,
    aborted: Iterable[AbortedTransaction],
) -> Fetched:
    """The records at and after `fetch_offset`. A batch that is cut off at the end is left for the next fetch."""
    records: list[ConsumedRecord] = []
    next_offset = fetch_offset
    to_come = sorted(aborted)
    heapq.heapify(to_come)
    aborted_now: set[int] = set()
    view = memoryview(data if data is not None else b"")
    position = 0
    topic, index = partition.topic, partition.partition
    while len(view) - position >= HEADER_BYTES:
        header = read_header(view, position)
        if len(view) - position < LOG_OVERHEAD_BYTES + header.batch_length:
            break
        if header.magic != CURRENT_MAGIC:
            raise CorruptRecords(topic, index, header.base_offset, f"message format {header.magic} is not known")
        if not verify_crc(view, position, header):
            raise CorruptRecords(topic, index, header.base_offset, "wrong CRC")
        at, position = position, position + header.size_bytes
        if header.last_offset < fetch_offset:
            continue
        next_offset = header.next_offset
        if isolation_level == IsolationLevel.READ_COMMITTED and header.has_producer_id:
            while to_come and to_come[0].first_offset <= header.last_offset:
                aborted_now.add(heapq.heappop(to_come).producer_id)
            if header.is_control:
                marker = read_marker(view, at)
                if marker is not None and marker.control_type == ControlType.ABORT:
                    aborted_now.discard(header.producer_id)
            elif header.is_transactional and header.producer_id in aborted_now:
                continue
        if header.is_control:
            continue
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
            raise CorruptRecords(topic, index, header.base_offset, str(error)) from None
    return Fetched(records, next_offset)
