"""Reads a `.log` file: its batches with their positions, and any trailing bytes.

A batch with a wrong CRC is still returned, marked as invalid; reading ends where there cannot be a batch. Reads batch
by batch, so that a file may be larger than memory and may grow or shrink meanwhile.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fencepost.wire.batch import (
    BATCH_LENGTH_MIN,
    CURRENT_MAGIC,
    HEADER_BYTES,
    BatchHeader,
    EndTransactionMarker,
    read_header,
    read_marker,
    verify_crc,
)
from fencepost.wire.errors import KafkaError, MalformedMessage
from fencepost.wire.records import Record, read_records

DECOMPRESSED_BATCH_MAX_BYTES = 256 * 1024 * 1024
_READ_AHEAD_BYTES = 1024 * 1024


class StoredBatch(NamedTuple):
    position: int
    header: BatchHeader
    is_valid: bool
    data: bytes

    def records(self) -> list[Record]:
        """Raises MalformedMessage if the records do not match the header."""
        try:
            return list(read_records(self.data, DECOMPRESSED_BATCH_MAX_BYTES))
        except KafkaError as error:
            raise MalformedMessage(f"the records of the batch at {self.position} cannot be read: {error}") from None

    def marker(self) -> EndTransactionMarker | None:
        """The transaction marker in a control batch; None for all other batches."""
        if not self.header.is_control or not self.is_valid:
            return None
        return read_marker(self.data)


class SegmentFile:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.valid_bytes = 0
        """The end of the last batch, after iteration."""
        self.trailing_bytes = 0
        """The bytes after the last batch."""

    @property
    def base_offset(self) -> int:
        return int(self.path.name.split(".")[0])

    def batches(self, position: int = 0) -> Iterator[StoredBatch]:
        self.valid_bytes = position
        with open(self.path, "rb", buffering=_READ_AHEAD_BYTES) as file:
            file.seek(position)
            while True:
                front = file.read(HEADER_BYTES)
                if len(front) < HEADER_BYTES:
                    break
                header = read_header(front)
                if header.magic != CURRENT_MAGIC or header.batch_length < BATCH_LENGTH_MIN:
                    break
                data = front + file.read(header.size_bytes - HEADER_BYTES)
                if len(data) < header.size_bytes:
                    break
                at = self.valid_bytes
                self.valid_bytes += header.size_bytes
                yield StoredBatch(at, header, verify_crc(data, 0, header), data)
            self.trailing_bytes = max(self.path.stat().st_size - self.valid_bytes, 0)
