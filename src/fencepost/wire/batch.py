"""The record batch of Kafka's log and wire (magic 2): its 61-byte header, its CRC, control batches, building one.

Owns every byte position inside a batch header. Opens no records: that is `wire.records`. The base offset and the leader
epoch lie outside the CRC, so a broker stamps both in place; the attributes and the timestamps lie inside it.
"""

import enum
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from crc32c import crc32c

from fencepost.wire.errors import MalformedMessage

Buffer = bytes | bytearray | memoryview
Headers = Sequence[tuple[str, bytes | None]]
NewRecord = tuple[int, bytes | None, bytes | None, Headers]
"""timestamp in ms, key, value, headers"""

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = HEADER.size
LOG_OVERHEAD_BYTES = 12
"""Base offset and length: what `batch_length` does not count."""
BATCH_LENGTH_MIN = HEADER_BYTES - LOG_OVERHEAD_BYTES

MAGIC_POSITION = 16
CRC_POSITION = 17
ATTRIBUTES_POSITION = 21
MAX_TIMESTAMP_POSITION = 35
RECORDS_POSITION = HEADER_BYTES
_RECORD_COUNT_BYTES = 4
RECORD_COUNT_POSITION = HEADER_BYTES - _RECORD_COUNT_BYTES
MARKER_BYTES = 78

CURRENT_MAGIC = 2
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
PRODUCER_EPOCH_MAX = 32767
NO_SEQUENCE = -1
NO_TIMESTAMP = -1
NO_LEADER_EPOCH = -1
SEQUENCE_MAX = 2**31 - 1

COMPRESSION_MASK = 0x07
TIMESTAMP_TYPE_MASK = 0x08
TIMESTAMP_TYPE_SHIFT = 3
TRANSACTIONAL_MASK = 0x10
CONTROL_MASK = 0x20
DELETE_HORIZON_MASK = 0x40

CREATE_TIME = 0
LOG_APPEND_TIME = 1

_unpack_header = HEADER.unpack_from
# What BatchHeader._make does, without its count of the fields: a header is read for every batch.
_new_tuple: Callable[..., "BatchHeader"] = tuple.__new__
# The header in two parts: up to the CRC, and what the CRC covers.
_FRONT = struct.Struct(">qiibI")
_COVERED = struct.Struct(">hiqqqhii")
_OFFSET = struct.Struct(">q")
_LENGTH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_CONTROL_KEY = struct.Struct(">hh")
_END_TRANSACTION_VALUE = struct.Struct(">hi")


class ControlType(enum.IntEnum):
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class BatchHeader(NamedTuple):
    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def size_bytes(self) -> int:
        return LOG_OVERHEAD_BYTES + self.batch_length

    @property
    def compression(self) -> int:
        return self.attributes & COMPRESSION_MASK

    @property
    def timestamp_type(self) -> int:
        return LOG_APPEND_TIME if self.attributes & TIMESTAMP_TYPE_MASK else CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_MASK != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_MASK != 0

    @property
    def has_delete_horizon(self) -> bool:
        return self.attributes & DELETE_HORIZON_MASK != 0

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & SEQUENCE_MAX


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`. Checks neither the CRC nor whether the batch is complete."""
    try:
        return _new_tuple(BatchHeader, _unpack_header(buffer, position))
    except struct.error:
        left = len(buffer) - position
        raise MalformedMessage(f"a batch header needs {HEADER_BYTES} bytes, {left} are left") from None


def iterate_headers(buffer: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of every batch to the end of the buffer; MalformedMessage if a batch is truncated or
    invalid."""
    end = len(buffer)
    while position < end:
        header = read_header(buffer, position)
        if header.batch_length < BATCH_LENGTH_MIN:
            raise MalformedMessage(f"batch length {header.batch_length} is below the minimum {BATCH_LENGTH_MIN}")
        following = position + LOG_OVERHEAD_BYTES + header.batch_length
        if following > end:
            raise MalformedMessage(f"a batch of {header.size_bytes} bytes is cut off after {end - position}")
        yield position, header
        position = following


def checksum(buffer: Buffer, position: int, size_bytes: int) -> int:
    """CRC-32C from the attributes to the end of the batch of `size_bytes` at `position`."""
    with memoryview(buffer) as view, view[position + ATTRIBUTES_POSITION : position + size_bytes] as covered:
        return int(crc32c(covered))


def verify_crc(buffer: Buffer, position: int, header: BatchHeader) -> bool:
    """Whether the batch is complete and its CRC is right."""
    size_bytes = LOG_OVERHEAD_BYTES + header.batch_length
    if header.batch_length < BATCH_LENGTH_MIN or position + size_bytes > len(buffer):
        return False
    return checksum(buffer, position, size_bytes) == header.crc


def has_transactional_records(buffer: Buffer) -> bool:
    """Whether the batch at the start of the buffer claims to be part of a transaction."""
    return len(buffer) >= HEADER_BYTES and buffer[ATTRIBUTES_POSITION + 1] & TRANSACTIONAL_MASK != 0


def stamp(buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """Sets the base offset and leader epoch of a batch; the CRC covers neither field."""
    _OFFSET.pack_into(buffer, position, base_offset)
    _LENGTH.pack_into(buffer, position + 12, leader_epoch)


def stamp_timestamp_type(
    buffer: bytearray | memoryview, position: int, size_bytes: int, timestamp_type: int, max_timestamp: int
) -> None:
    """Changes the timestamp type of a batch. The CRC covers the changed fields and is updated."""
    (attributes,) = _ATTRIBUTES.unpack_from(buffer, position + ATTRIBUTES_POSITION)
    attributes = attributes & ~TIMESTAMP_TYPE_MASK | timestamp_type << TIMESTAMP_TYPE_SHIFT
    _ATTRIBUTES.pack_into(buffer, position + ATTRIBUTES_POSITION, attributes)
    _OFFSET.pack_into(buffer, position + MAX_TIMESTAMP_POSITION, max_timestamp)
    seal(buffer, position, size_bytes)


def seal(buffer: bytearray | memoryview, position: int, size_bytes: int) -> None:
    """Updates the CRC of a batch after covered bytes have changed."""
    _CRC.pack_into(buffer, position + CRC_POSITION, checksum(buffer, position, size_bytes))


def encode_varint(value: int) -> bytes:
    """Encodes a zigzag varint, as in record fields. Accepts 64-bit values."""
    value = (value << 1) ^ (value >> 63)
    return _ONE_BYTE[value] if value < 0x80 else encode_unsigned_varint(value)


def encode_unsigned_varint(value: int) -> bytes:
    if value < 0x80:
        return _ONE_BYTE[value]
    parts = bytearray()
    while value > 0x7F:
        parts.append((value & 0x7F) | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


_ONE_BYTE = [bytes([value]) for value in range(0x80)]


class _Varints(dict[int, bytes]):
    """A cache of small numbers as varints."""

    def __missing__(self, value: int) -> bytes:
        return encode_varint(value)


_SIZES = _Varints((size, encode_varint(size)) for size in range(1024))


def encode_record(
    offset_delta: int, timestamp_delta: int, key: bytes | None, value: bytes | None, headers: Headers
) -> bytes:
    parts = [b"\0", encode_varint(timestamp_delta), encode_varint(offset_delta)]
    for field in (key, value):
        if field is None:
            parts.append(b"\x01")
        else:
            parts += (encode_varint(len(field)), field)
    parts.append(encode_varint(len(headers)))
    for name, content in headers:
        encoded = name.encode()
        parts += (encode_varint(len(encoded)), encoded)
        if content is None:
            parts.append(b"\x01")
        else:
            parts += (encode_varint(len(content)), content)
    body = b"".join(parts)
    return encode_varint(len(body)) + body


def build_batch(
    records: Sequence[NewRecord],
    *,
    base_offset: int = 0,
    partition_leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    compression: int = 0,
    timestamp_type: int = CREATE_TIME,
    delete_horizon: int | None = None,
    offset_deltas: Sequence[int] | None = None,
    last_offset_delta: int | None = None,
) -> bytearray:
    """One batch. `offset_deltas` and `last_offset_delta` are for compaction, which leaves gaps between records."""
    timestamps = [record[0] for record in records]
    base_timestamp = delete_horizon if delete_horizon is not None else (timestamps[0] if timestamps else NO_TIMESTAMP)
    deltas = range(len(records)) if offset_deltas is None else offset_deltas
    body = b"".join(
        encode_record(delta, timestamp - base_timestamp, key, value, headers)
        for delta, (timestamp, key, value, headers) in zip(deltas, records, strict=True)
    )
    attributes = compression | timestamp_type << TIMESTAMP_TYPE_SHIFT
    if transactional:
        attributes |= TRANSACTIONAL_MASK
    if control:
        attributes |= CONTROL_MASK
    if delete_horizon is not None:
        attributes |= DELETE_HORIZON_MASK
    if last_offset_delta is None:
        last_offset_delta = deltas[-1] if records else 0
    return assemble_batch(
        body,
        base_offset=base_offset,
        partition_leader_epoch=partition_leader_epoch,
        attributes=attributes,
        last_offset_delta=last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max(timestamps, default=NO_TIMESTAMP),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )


def assemble_batch(
    records: Buffer,
    *,
    base_offset: int,
    partition_leader_epoch: int,
    attributes: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    record_count: int,
) -> bytearray:
    """A batch around encoded, not yet compressed records; the codec in `attributes` is applied here."""
    codec = attributes & COMPRESSION_MASK
    if codec and record_count:
        # The codecs are native libraries: loaded when a batch is compressed.
        from fencepost.wire.compression import compress

        records = compress(codec, bytes(records))
    size_bytes = HEADER_BYTES + len(records)
    batch = bytearray(size_bytes)
    HEADER.pack_into(
        batch, 0, base_offset, size_bytes - LOG_OVERHEAD_BYTES, partition_leader_epoch, CURRENT_MAGIC, 0, attributes,
        last_offset_delta, base_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence, record_count,
    )  # fmt: skip
    batch[HEADER_BYTES:] = records
    seal(batch, 0, size_bytes)
    return batch


def build_single(
    timestamp: int,
    key: bytes,
    value: bytes | None,
    *,
    attributes: int = 0,
    base_offset: int = 0,
    partition_leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
) -> bytearray:
    """`build_batch` for one record without headers, as coordinators write them several times per transaction."""
    if value is None:
        body = b"".join((b"\0\0\0", _SIZES[len(key)], key, b"\x01\0"))
    else:
        body = b"".join((b"\0\0\0", _SIZES[len(key)], key, _SIZES[len(value)], value, b"\0"))
    covered = b"".join((
        _COVERED.pack(attributes, 0, timestamp, timestamp, producer_id, producer_epoch, NO_SEQUENCE, 1),
        _SIZES[len(body)],
        body,
    ))  # fmt: skip
    length = ATTRIBUTES_POSITION - LOG_OVERHEAD_BYTES + len(covered)
    front = _FRONT.pack(base_offset, length, partition_leader_epoch, CURRENT_MAGIC, crc32c(covered))
    return bytearray(front + covered)


def control_batch(
    kind: ControlType,
    coordinator_epoch: int,
    producer_id: int,
    producer_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytearray:
    """The marker that ends a transaction in one partition: 78 bytes."""
    # A plain number: members of an enumeration are slow to hash.
    crc, covered = _marker_content(int(kind), coordinator_epoch, producer_id, producer_epoch, timestamp_ms)
    return bytearray(
        _FRONT.pack(base_offset, MARKER_BYTES - LOG_OVERHEAD_BYTES, leader_epoch, CURRENT_MAGIC, crc) + covered
    )


def control_key(kind: ControlType) -> bytes:
    """The key of a control record."""
    return _CONTROL_KEY.pack(0, kind)


@lru_cache(maxsize=128)
def _marker_content(
    kind: int, coordinator_epoch: int, producer_id: int, producer_epoch: int, timestamp_ms: int
) -> tuple[int, bytes]:
    """The CRC and the bytes it covers, which are the same in every partition of a transaction."""
    batch = build_single(
        timestamp_ms,
        _CONTROL_KEY.pack(0, kind),
        _END_TRANSACTION_VALUE.pack(0, coordinator_epoch),
        attributes=TRANSACTIONAL_MASK | CONTROL_MASK,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )
    assert len(batch) == MARKER_BYTES
    covered = bytes(batch[ATTRIBUTES_POSITION:])
    return crc32c(covered), covered


class EndTransactionMarker(NamedTuple):
    control_type: int
    coordinator_epoch: int


def read_marker(batch: Buffer, position: int = 0) -> EndTransactionMarker | None:
    """The marker in a control batch; None if it is neither COMMIT nor ABORT.

    Control batches are never compressed and hold one record, so its fields follow five short varints. Compaction
    leaves only the header of a marker whose transaction was removed; such a batch has no marker.
    """
    cursor = position + RECORDS_POSITION
    try:
        if not any(batch[cursor - _RECORD_COUNT_BYTES : cursor]):
            return None
        _, cursor = _read_varint(batch, cursor)
        cursor += 1
        _, cursor = _read_varint(batch, cursor)
        _, cursor = _read_varint(batch, cursor)
        key_length, cursor = _read_varint(batch, cursor)
        _, kind = _CONTROL_KEY.unpack_from(batch, cursor)
        if kind > ControlType.COMMIT:
            return None
        cursor += key_length
        _, cursor = _read_varint(batch, cursor)
        _, coordinator_epoch = _END_TRANSACTION_VALUE.unpack_from(batch, cursor)
    except (struct.error, IndexError):
        raise MalformedMessage("a control batch whose record is cut off") from None
    return EndTransactionMarker(kind, coordinator_epoch)


def _read_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
        if shift > 63:
            raise MalformedMessage("a varint of more than ten bytes")
