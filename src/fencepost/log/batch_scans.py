"""Scans log files from batch to batch.

A header contains the length of its batch. A file may end within a batch or contain other bytes: scans stop there, and
the caller decides whether that is the end or damage.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from fencepost.ports import Buffer, File
from fencepost.wire.batch import (
    BATCH_LENGTH_MIN,
    CURRENT_MAGIC,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    BatchHeader,
)
from fencepost.wire.errors import ErrorCode, KafkaError

FORWARD_SCAN_BYTES = 4096
_SCAN_BLOCK_BYTES = 1 << 20
SKIM = struct.Struct(">qi11xi")
"""Base offset, length and last offset delta: enough to step from batch to batch."""


class FoundBatch(NamedTuple):
    position: int
    header: BatchHeader
    block: memoryview
    """Bytes that hold the whole batch."""
    start: int
    """Where in `block` the batch begins."""


def damaged(path: str, position: int, reason: str) -> KafkaError:
    """The error for reading damaged bytes."""
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{path} is damaged at byte {position}: {reason}")


def read_headers(file: File, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of every batch from `position` on, stepping over the records; stops where there cannot be a
    batch."""
    while position + HEADER_BYTES <= end:
        block = file.read(position, min(FORWARD_SCAN_BYTES, end - position))
        start, last_start = 0, len(block) - HEADER_BYTES
        if last_start < 0:
            return
        while start <= last_start:
            header = BatchHeader._make(HEADER.unpack_from(block, start))
            size = LOG_OVERHEAD_BYTES + header.batch_length
            if header.batch_length < BATCH_LENGTH_MIN or header.magic != CURRENT_MAGIC or position + start + size > end:
                return
            yield position + start, header
            start += size
        position += start


def read_batches(file: File, position: int, end: int) -> Iterator[FoundBatch]:
    """Every whole batch from `position` on, CRC unchecked; stops at the first invalid one."""
    block, block_position = memoryview(b""), position
    while position + HEADER_BYTES <= end:
        start = position - block_position
        if start + HEADER_BYTES > len(block):
            block = memoryview(file.read(position, min(_SCAN_BLOCK_BYTES, end - position)))
            block_position, start = position, 0
            if len(block) < HEADER_BYTES:
                return
        header = BatchHeader._make(HEADER.unpack_from(block, start))
        size = LOG_OVERHEAD_BYTES + header.batch_length
        if header.batch_length < BATCH_LENGTH_MIN or header.magic != CURRENT_MAGIC or position + size > end:
            return
        if start + size > len(block):
            block = memoryview(file.read(position, max(size, min(_SCAN_BLOCK_BYTES, end - position))))
            block_position, start = position, 0
            if len(block) < size:
                return
        yield FoundBatch(position, header, block, start)
        position += size


def last_whole_batch(block: Buffer, start: int, size: int) -> tuple[int, int]:
    """From the batch at `start` on: where the last whole one ends, and the offset after it, -1 if there is none."""
    next_offset = -1
    while start + HEADER_BYTES <= size:
        base_offset, length, last_offset_delta = SKIM.unpack_from(block, start)
        following = start + LOG_OVERHEAD_BYTES + length
        if following > size or length < BATCH_LENGTH_MIN:
            break
        next_offset = base_offset + last_offset_delta + 1
        start = following
    return start, next_offset
