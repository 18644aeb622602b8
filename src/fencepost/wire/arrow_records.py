"""Converts record batches to Arrow arrays and back, without a Python object per record.

Follows the rules of `wire.records`, against which it is tested. Needs the extra `arrow` (pyarrow and numba):
import this module only where it is used.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from fencepost.ports import Buffer
from fencepost.wire import arrow_kernels as kernels
from fencepost.wire.arrow_arrays import COLUMN_BYTES_MAX, to_numpy
from fencepost.wire.batch import (
    COMPRESSION_MASK,
    CURRENT_MAGIC,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    LOG_OVERHEAD_BYTES,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    RECORDS_POSITION,
    TRANSACTIONAL_MASK,
    BatchHeader,
    iterate_headers,
    seal,
)
from fencepost.wire.errors import ErrorCode, KafkaError
from fencepost.wire.records import decode_records, payload_of

BATCH_BYTES = 500_000
"""Of records in a batch. Larger ones go back to the system when they are freed, and faulting their pages in again costs
as much as filling them."""
DECOMPRESSED_MAX_BYTES = 256 * 1024 * 1024

HEADERS_TYPE = pa.list_(pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())]))
SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("ms", tz="UTC"), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS_TYPE, nullable=False),
    ]
)


class _Column(NamedTuple):
    """A binary column in the form that the kernels use; without offsets all values are null."""

    offsets: Any
    bitmap: Any
    start: int
    data: Any


_NO_BYTES = np.empty(0, np.uint8)
_ABSENT = _Column(np.empty(0, np.int32), _NO_BYTES, 0, _NO_BYTES)


# Encoding


def encode_batches(
    values: Any,
    *,
    timestamps: Any,
    keys: Any = None,
    headers: Any = None,
    batch_bytes: int = BATCH_BYTES,
    first_records: int | None = None,
    compression: int = 0,
    transactional: bool = False,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
) -> Iterator[bytearray]:
    """Batches of the rows, in order. Arrays are Arrow's, of bytes or text, chunked or not; null is Kafka's null.

    `timestamps` is one number of milliseconds for all, or an array. `headers` are lists of {key, value}.
    `first_records` limits the first batch: writers use different values in each attempt, so that a batch of one
    attempt is not mistaken for a duplicate of another.
    """
    rows = len(values)
    times = _timestamps(timestamps, rows)
    key, value = _column(keys, rows, "keys"), _column(values, rows, "values")
    lists, header_key, header_value = _header_columns(headers, rows)
    shape = (
        times, key.offsets, key.bitmap, key.start, value.offsets, value.bitmap, value.start, lists.offsets,
        lists.bitmap, lists.start, header_key.offsets, header_key.start, header_value.offsets, header_value.bitmap,
        header_value.start,
    )  # fmt: skip
    content = (
        times, key.offsets, key.bitmap, key.start, key.data, value.offsets, value.bitmap, value.start, value.data,
        lists.offsets, lists.bitmap, lists.start, header_key.offsets, header_key.start, header_key.data,
        header_value.offsets, header_value.bitmap, header_value.start, header_value.data,
    )  # fmt: skip
    first = 0
    while first < rows:
        records_max = first_records if first == 0 and first_records is not None else rows
        end, size_bytes, latest = kernels.plan(first, rows, batch_bytes, records_max, *shape)
        batch = bytearray(HEADER_BYTES + size_bytes)
        written = kernels.encode(np.frombuffer(batch, np.uint8), HEADER_BYTES, first, end, *content)
        assert written == len(batch), "the batch has the planned size"
        if compression:
            batch = _compressed(batch, compression)
        count = int(end) - first
        HEADER.pack_into(
            batch, 0, 0, len(batch) - LOG_OVERHEAD_BYTES, NO_LEADER_EPOCH, CURRENT_MAGIC, 0,
            compression | (TRANSACTIONAL_MASK if transactional else 0), count - 1, int(times[first]), int(latest),
            producer_id, producer_epoch, base_sequence + first if base_sequence >= 0 else NO_SEQUENCE, count,
        )  # fmt: skip
        seal(batch, 0, len(batch))
        yield batch
        first = int(end)


def _compressed(batch: bytearray, codec: int) -> bytearray:
    # The codecs are native libraries: loaded when a batch is compressed.
    from fencepost.wire.compression import compress

    with memoryview(batch) as view, view[HEADER_BYTES:] as records:
        return bytearray(HEADER_BYTES) + compress(codec, records)


def _timestamps(given: Any, rows: int) -> Any:
    if isinstance(given, int):
        return np.full(rows, given, np.int64)
    array = _whole(given)
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.timestamp("ms", tz=array.type.tz), safe=False)
    if array.null_count or len(array) != rows:
        raise ValueError(f"a timestamp is needed for each of {rows} rows")
    return to_numpy(array.cast(pa.int64()), np.int64)


def _whole(given: Any) -> Any:
    return given.combine_chunks() if isinstance(given, pa.ChunkedArray) else given


def _column(given: Any, rows: int, name: str) -> _Column:
    if given is None:
        return _ABSENT
    array = _whole(given)
    kind = array.type
    if pa.types.is_null(kind):
        return _ABSENT
    if len(array) != rows:
        raise ValueError(f"{len(array)} {name} for {rows} rows")
    if not any(
        check(kind)
        for check in (pa.types.is_binary, pa.types.is_string, pa.types.is_large_binary, pa.types.is_large_string)
    ):
        array = array.cast(pa.binary())
    validity, offsets, data = array.buffers()
    is_large = pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type)
    return _Column(
        _NO_OFFSETS if offsets is None else np.frombuffer(offsets, np.int64 if is_large else np.int32),
        _bytes_of(validity if array.null_count else None),
        array.offset,
        _bytes_of(data),
    )


_NO_OFFSETS = np.zeros(1, np.int32)


def _bytes_of(buffer: Any) -> Any:
    return _NO_BYTES if buffer is None or buffer.size == 0 else np.frombuffer(buffer, np.uint8)


def _header_columns(given: Any, rows: int) -> tuple[_Column, _Column, _Column]:
    if given is None or pa.types.is_null(given.type):
        return _ABSENT, _ABSENT, _ABSENT
    array = _whole(given)
    if len(array) != rows:
        raise ValueError(f"{len(array)} headers for {rows} rows")
    entries = array.values
    names, contents = entries.field(0), entries.field(1)
    if names.null_count:
        raise ValueError("a header's name cannot be null")
    validity, offsets = array.buffers()[:2]
    kind = np.int64 if pa.types.is_large_list(array.type) else np.int32
    lists = _Column(
        np.frombuffer(offsets, kind), _bytes_of(validity if array.null_count else None), array.offset, _NO_BYTES
    )
    return lists, _column(names, len(entries), "names"), _column(contents, len(entries), "contents")


# Decoding


class BatchAt(NamedTuple):
    """A batch in a larger buffer, such as the answer to a fetch."""

    position: int
    header: BatchHeader


class _Part(NamedTuple):
    payload: Any
    start: int
    end: int
    header: BatchHeader


def decode_batches(
    data: Buffer,
    *,
    batches: Iterable[BatchAt] | None = None,
    from_offset: int = -1,
    max_bytes: int = DECOMPRESSED_MAX_BYTES,
) -> Any:
    """Returns the records as a pyarrow.RecordBatch of SCHEMA: of the given batches, or of all batches but control
    batches.

    The caller must check the CRCs. Raises KafkaError INVALID_RECORD or MESSAGE_TOO_LARGE, as `wire.records` does.
    """
    if batches is None:
        batches = [BatchAt(at, header) for at, header in iterate_headers(data) if not header.is_control]
    whole = np.frombuffer(data, np.uint8) if len(data) else _NO_BYTES
    parts = [_part(data, whole, at, max_bytes) for at in batches]
    totals = np.zeros(kernels.TOTALS, np.int64)
    for part in parts:
        count, base_offset = part.header.record_count, part.header.base_offset
        if not 0 <= count * _RECORD_BYTES_MIN <= part.end - part.start or (
            kernels.measure(part.payload, part.start, part.end, count, base_offset, from_offset, totals) < 0
        ):
            _explain(part)
    columns = _Columns([int(total) for total in totals])
    for part in parts:
        columns.add(part, from_offset)
    return columns.finish()


def _part(data: Buffer, whole: Any, at: BatchAt, max_bytes: int) -> _Part:
    position, header = at
    if header.attributes & COMPRESSION_MASK:
        payload = np.frombuffer(payload_of(data, header, max_bytes, position), np.uint8)
        return _Part(payload, 0, len(payload), header)
    end = position + header.size_bytes
    if end > len(whole):
        raise KafkaError(ErrorCode.INVALID_RECORD, f"a batch of {header.size_bytes} bytes is cut off")
    return _Part(whole, position + RECORDS_POSITION, end, header)


class _Columns:
    """Columns with room for exactly the measured records."""

    def __init__(self, totals: Sequence[int]) -> None:
        if max(totals) > COLUMN_BYTES_MAX:
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"{max(totals)} bytes in one column")
        self._totals = totals
        rows, headers = totals[kernels.ROWS], totals[kernels.HEADERS]
        self._done = np.zeros(kernels.TOTALS, np.int64)
        self._offsets, self._timestamps = np.empty(rows, np.int64), np.empty(rows, np.int64)
        self._keys = _NewColumn(rows, totals[kernels.KEY_BYTES])
        self._values = _NewColumn(rows, totals[kernels.VALUE_BYTES])
        self._lists = np.empty(rows + 1, np.int32)
        self._header_keys = _NewColumn(headers, totals[kernels.HEADER_KEY_BYTES])
        self._header_values = _NewColumn(headers, totals[kernels.HEADER_VALUE_BYTES])

    def add(self, part: _Part, from_offset: int) -> None:
        header, keys, values = part.header, self._keys, self._values
        names, contents = self._header_keys, self._header_values
        is_appended = header.timestamp_type == LOG_APPEND_TIME
        kernels.fill(
            part.payload, part.start, header.record_count, header.base_offset,
            header.max_timestamp if is_appended else header.base_timestamp, is_appended, from_offset, self._done,
            self._offsets, self._timestamps, keys.offsets, keys.valid, keys.data, values.offsets, values.valid,
            values.data, self._lists, names.offsets, names.data, contents.offsets, contents.valid, contents.data,
        )  # fmt: skip

    def finish(self) -> Any:
        rows, headers = self._totals[kernels.ROWS], self._totals[kernels.HEADERS]
        self._lists[rows] = headers
        names = self._header_keys.finish(pa.string(), 0)
        if headers:
            names = _as_text(names)
        contents = self._header_values.finish(pa.binary(), self._totals[kernels.NULL_HEADERS])
        entries = pa.StructArray.from_arrays([names, contents], fields=list(HEADERS_TYPE.value_type))
        return pa.RecordBatch.from_arrays(
            [
                pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(self._offsets)]),
                pa.Array.from_buffers(SCHEMA.field("timestamp").type, rows, [None, pa.py_buffer(self._timestamps)]),
                self._keys.finish(pa.binary(), self._totals[kernels.NULL_KEYS]),
                self._values.finish(pa.binary(), self._totals[kernels.NULL_VALUES]),
                pa.Array.from_buffers(HEADERS_TYPE, rows, [None, pa.py_buffer(self._lists)], children=[entries]),
            ],
            schema=SCHEMA,
        )


class _NewColumn:
    def __init__(self, rows: int, size_bytes: int) -> None:
        self._rows = rows
        self.offsets = np.empty(rows + 1, np.int32)
        self.offsets[rows] = size_bytes
        self.valid = np.empty(rows, np.bool_)
        self.data = np.empty(size_bytes, np.uint8)

    def finish(self, kind: Any, nulls: int) -> Any:
        bitmap = pa.py_buffer(np.packbits(self.valid, bitorder="little")) if nulls else None
        buffers = [bitmap, pa.py_buffer(self.offsets), pa.py_buffer(self.data)]
        return pa.Array.from_buffers(kind, self._rows, buffers, null_count=nulls)


_RECORD_BYTES_MIN = 7


def _as_text(names: Any) -> Any:
    """Header names in a log are not guaranteed to be valid UTF-8."""
    try:
        names.validate(full=True)
    except pa.ArrowInvalid:
        return pa.array([name.as_py().decode(errors="replace") for name in names.view(pa.binary())], pa.string())
    return names


def _explain(part: _Part) -> None:
    """Decodes the batch again with `wire.records`, which raises an error with the reason."""
    decode_records(part.payload[part.start : part.end].tobytes(), part.header)
    raise KafkaError(ErrorCode.INVALID_RECORD, "invalid record batch")
