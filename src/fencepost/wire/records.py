"""The records inside a batch: strict decoding, scanning keys, encoding, changing the codec.

Every length and count in a batch is checked against the available bytes before it is used. The batch
header, its CRC and control batches are `wire.batch`; the codecs are `wire.compression`.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import NamedTuple

from fencepost.ports import Buffer
from fencepost.wire.batch import (
    COMPRESSION_MASK,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    LOG_OVERHEAD_BYTES,
    NO_TIMESTAMP,
    RECORDS_POSITION,
    TIMESTAMP_TYPE_MASK,
    BatchHeader,
    encode_record,
    encode_varint,
    read_header,
    seal,
)
from fencepost.wire.compression import compress, decompress
from fencepost.wire.errors import ErrorCode, KafkaError, MalformedMessage

_VARINT_BITS = 32
_VARLONG_BITS = 64
_RECORD_BYTES_MIN = 7
"""Length, attributes, two deltas, key length, value length, header count."""
_HEADER_ENTRY_BYTES_MIN = 2
PRODUCED_RECORDS_MAX = 1_000_000
# The number of records checked between two yields.
_STEP_RECORDS = 128
"""Limit for one batch that has to be opened: encoded records are much smaller than the objects for checking them."""
RECORD_ERRORS_MAX = 1_000


class Record(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class RecordSpan(NamedTuple):
    """The position of a record in its payload, and what compaction and validation need of it."""

    start: int
    end: int
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    value_start: int
    """Negative for a null value, a tombstone."""
    value_end: int


class InvalidRecords(KafkaError):
    """Records that a topic does not accept, as a list of (index in the batch, reason)."""

    def __init__(self, code: ErrorCode, message: str, record_errors: Sequence[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.record_errors = tuple(record_errors[:RECORD_ERRORS_MAX])


class RecordsSummary(NamedTuple):
    max_timestamp: int
    offset_of_max_timestamp: int
    """As a delta to the batch's base offset; the first of several."""


def payload_of(batch: Buffer, header: BatchHeader, max_bytes: int, position: int = 0) -> bytes:
    """The encoded records of the batch at `position`, decompressed."""
    end = position + header.size_bytes
    if end > len(batch):
        raise KafkaError(
            ErrorCode.INVALID_RECORD, f"a batch of {header.size_bytes} bytes, {len(batch) - position} given"
        )
    with memoryview(batch) as view, view[position + RECORDS_POSITION : end] as records:
        codec = header.attributes & COMPRESSION_MASK
        if not codec or (not header.record_count and not len(records)):
            return bytes(records)
        return decompress(codec, records, max_bytes)


def read_records(batch: Buffer, max_bytes: int, position: int = 0) -> Iterator[Record]:
    """All records of the batch at `position`. Checks the whole batch before yielding the first.

    `max_bytes` limits the decompressed size of a batch. Raises KafkaError INVALID_RECORD or MESSAGE_TOO_LARGE.
    """
    try:
        header = read_header(batch, position)
    except MalformedMessage as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from None
    return iter(decode_records(payload_of(batch, header, max_bytes, position), header))


def decode_records(payload: bytes, header: BatchHeader) -> list[Record]:
    """The records of a decompressed payload, with offsets and timestamps made absolute."""
    base_offset = header.base_offset
    appended = header.timestamp_type == LOG_APPEND_TIME
    base_timestamp = header.base_timestamp
    records: list[Record] = []
    for _, end, timestamp_delta, offset_delta, key, value_start, value_end in scan_records(
        payload, header.record_count
    ):
        value = payload[value_start:value_end] if value_start >= 0 else None
        timestamp = header.max_timestamp if appended else base_timestamp + timestamp_delta
        # Most records have no headers: a single zero byte ends them.
        headers = () if value_end + 1 == end and not payload[value_end] else _headers(payload, value_end, end)
        records.append(Record(base_offset + offset_delta, timestamp, key, value, headers))
    return records


def scan_records(payload: bytes, record_count: int) -> list[RecordSpan]:
    """The position, deltas and key of every record, without values and headers. Raises KafkaError INVALID_RECORD."""
    _check_count(payload, record_count)
    spans, position = _scan(payload, record_count, 0, 0)
    _check_end(payload, record_count, position)
    return spans


def _check_count(payload: bytes, record_count: int) -> None:
    if record_count < 0 or record_count * _RECORD_BYTES_MIN > len(payload):
        raise _invalid(f"{record_count} records are declared in {len(payload)} bytes")


def _check_end(payload: bytes, record_count: int, position: int) -> None:
    if position != len(payload):
        raise _invalid(f"{len(payload) - position} bytes follow the last of {record_count} records")


def _scan(payload: bytes, record_count: int, position: int, first: int) -> tuple[list[RecordSpan], int]:
    """So many records from `position` on, which is where record `first` starts; and where the last ends."""
    total = len(payload)
    spans: list[RecordSpan] = []
    append = spans.append
    # Every broker that compacts or validates spends its time here: varints of one and two bytes are read in place.
    make = tuple.__new__
    try:
        for _ in range(record_count):
            start = position
            length = payload[position]
            position += 1
            if length >= 0x80:
                high = payload[position]
                position += 1
                if high < 0x80:
                    length += (high - 1) << 7
                else:
                    length, position = _unsigned(payload, position - 2, _VARINT_BITS)
            end = position + (length >> 1)
            if length & 1 or end > total:
                raise _invalid(
                    f"record {first + len(spans)} declares more than the {total - position} bytes that are left"
                )
            position += 1  # attributes: none are in use
            byte = payload[position]
            position += 1
            if byte >= 0x80:
                high = payload[position]
                position += 1
                if high < 0x80:
                    byte += (high - 1) << 7
                else:
                    byte, position = _unsigned(payload, position - 2, _VARLONG_BITS)
            timestamp_delta = (byte >> 1) ^ -(byte & 1)
            byte = payload[position]
            position += 1
            if byte >= 0x80:
                high = payload[position]
                position += 1
                if high < 0x80:
                    byte += (high - 1) << 7
                else:
                    byte, position = _unsigned(payload, position - 2, _VARINT_BITS)
            offset_delta = (byte >> 1) ^ -(byte & 1)
            byte = payload[position]
            position += 1
            if byte >= 0x80:
                high = payload[position]
                position += 1
                if high < 0x80:
                    byte += (high - 1) << 7
                else:
                    byte, position = _unsigned(payload, position - 2, _VARINT_BITS)
            if byte & 1:
                if byte != 1:
                    raise _invalid(f"record {first + len(spans)} has a negative key length")
                key = None
            else:
                key_end = position + (byte >> 1)
                if key_end > end:
                    raise _invalid(f"the key of record {first + len(spans)} is longer than the record")
                key = payload[position:key_end]
                position = key_end
            byte = payload[position]
            position += 1
            if byte >= 0x80:
                high = payload[position]
                position += 1
                if high < 0x80:
                    byte += (high - 1) << 7
                else:
                    byte, position = _unsigned(payload, position - 2, _VARINT_BITS)
            if byte & 1:
                if byte != 1:
                    raise _invalid(f"record {first + len(spans)} has a negative value length")
                value_start = -1
            else:
                value_start = position
                position += byte >> 1
            if position >= end:  # the header count needs a byte
                raise _invalid(f"the fields of record {first + len(spans)} are longer than the record")
            append(make(RecordSpan, (start, end, timestamp_delta, offset_delta, key, value_start, position)))
            position = end
    except IndexError:
        raise _invalid(f"record {first + len(spans)} is cut off") from None
    return spans, position


def check_records(payload: bytes, header: BatchHeader, *, keys_required: bool) -> RecordsSummary:
    """Checks the records of a producer completely: structure, consecutive offsets, keys if compaction needs them."""
    steps = check_records_in_steps(payload, header, keys_required=keys_required)
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]


def check_records_in_steps(
    payload: bytes, header: BatchHeader, *, keys_required: bool, max_records: int = PRODUCED_RECORDS_MAX
) -> Generator[None, None, RecordsSummary]:
    """The same for possibly many records: yields where it can be interrupted, and keeps none of them in memory."""
    record_count = header.record_count
    _check_count(payload, record_count)
    if record_count > max_records:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"{record_count} records to check, but only {max_records} are left in the limit",
        )
    missing: list[tuple[int, str]] = []
    latest: RecordSpan | None = None
    position = 0
    for first in range(0, record_count, _STEP_RECORDS):
        yield
        spans, position = _scan(payload, min(_STEP_RECORDS, record_count - first), position, first)
        for index, span in enumerate(spans, first):
            if span.offset_delta != index:
                raise _invalid(f"record {index} has the relative offset {span.offset_delta}")
            if keys_required and span.key is None and len(missing) < RECORD_ERRORS_MAX:
                missing.append((index, "Compacted topic cannot accept message without key."))
            if span.value_end + 1 != span.end or payload[span.value_end]:
                for _ in _each_header(payload, span.value_end, span.end):
                    yield
            if latest is None or span.timestamp_delta > latest.timestamp_delta:
                latest = span
    _check_end(payload, record_count, position)
    if missing:
        raise InvalidRecords(ErrorCode.INVALID_RECORD, "One or more records have been rejected", missing)
    if latest is None:
        return RecordsSummary(NO_TIMESTAMP, -1)
    if header.timestamp_type == LOG_APPEND_TIME:
        return RecordsSummary(header.max_timestamp, 0)
    return RecordsSummary(header.base_timestamp + latest.timestamp_delta, latest.offset_delta)


def encode_records(records: Iterable[Record], base_offset: int, base_timestamp: int) -> bytes:
    """Encodes an uncompressed payload with relative offsets and timestamps."""
    return b"".join(
        encode_record(
            record.offset - base_offset, record.timestamp - base_timestamp, record.key, record.value, record.headers
        )
        for record in records
    )


def shift_timestamp(payload: bytes, span: RecordSpan, timestamp_delta: int) -> bytes:
    """The bytes of a record with another timestamp delta, for a batch with another base timestamp."""
    _, body = _unsigned(payload, span.start, _VARINT_BITS)
    _, rest = _unsigned(payload, body + 1, _VARLONG_BITS)
    content = b"".join((payload[body : body + 1], encode_varint(timestamp_delta), payload[rest : span.end]))
    return encode_varint(len(content)) + content


def convert_batch(
    batch: Buffer, header: BatchHeader, codec: int, max_bytes: int, *, level: int | None = None, position: int = 0
) -> bytearray:
    """The same batch with another codec. The records and all header fields except the codec are unchanged."""
    return rebuild_batch(
        header,
        payload_of(batch, header, max_bytes, position),
        (header.attributes & ~COMPRESSION_MASK) | codec,
        level=level,
    )


def with_log_append_time(
    header: BatchHeader, payload: bytes, timestamp_ms: int, *, level: int | None = None
) -> bytearray:
    """The same records with LogAppendTime. Records keep their own timestamps; readers use that of the batch."""
    stamped = header._replace(attributes=header.attributes | TIMESTAMP_TYPE_MASK, max_timestamp=timestamp_ms)
    return rebuild_batch(stamped, payload, stamped.attributes, level=level)


def rebuild_batch(header: BatchHeader, payload: Buffer, attributes: int, *, level: int | None = None) -> bytearray:
    """A batch of `header`'s fields around a payload that is not compressed yet; `attributes` names the codec."""
    codec = attributes & COMPRESSION_MASK
    records = compress(codec, payload, level) if codec else payload
    size_bytes = HEADER_BYTES + len(records)
    batch = bytearray(size_bytes)
    fields = header._replace(batch_length=size_bytes - LOG_OVERHEAD_BYTES, crc=0, attributes=attributes)
    HEADER.pack_into(batch, 0, *fields)
    batch[HEADER_BYTES:] = records
    seal(batch, 0, size_bytes)
    return batch


def _headers(payload: bytes, position: int, end: int) -> tuple[tuple[str, bytes | None], ...]:
    """The headers between `position` and the end of their record, which they must fill."""
    return tuple(_each_header(payload, position, end))


def _each_header(payload: bytes, position: int, end: int) -> Iterator[tuple[str, bytes | None]]:
    try:
        count, position = _signed(payload, position)
        if count < 0 or count * _HEADER_ENTRY_BYTES_MIN > end - position:
            raise _invalid(f"{count} headers are declared in {end - position} bytes")
        for _ in range(count):
            length, position = _signed(payload, position)
            if length < 0 or position + length > end:
                raise _invalid(f"a header's name has the length {length}")
            name = payload[position : position + length].decode(errors="replace")
            position += length
            length, position = _signed(payload, position)
            if length < -1 or position + length > end:
                raise _invalid(f"a header's value has the length {length}")
            if length < 0:
                yield name, None
            else:
                yield name, payload[position : position + length]
                position += length
    except IndexError:
        raise _invalid("its headers are cut off") from None
    if position != end:
        raise _invalid(f"headers end at byte {position}, their record at {end}")


def _signed(payload: bytes, position: int) -> tuple[int, int]:
    value, position = _unsigned(payload, position, _VARINT_BITS)
    return (value >> 1) ^ -(value & 1), position


def _unsigned(payload: bytes, position: int, bits: int) -> tuple[int, int]:
    """An unsigned varint (before zigzag decoding) and the position after it."""
    value = shift = 0
    while True:
        byte = payload[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> bits:
                raise _invalid(f"a varint holds more than {bits} bits")
            return value, position
        shift += 7
        if shift >= bits:
            raise _invalid(f"a varint holds more than {bits} bits")


def _invalid(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, f"invalid record batch: {reason}")
