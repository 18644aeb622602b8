"""The loops of `wire.arrow_records` that convert records to and from Arrow buffers, compiled by numba.

Untrusted bytes first go through `measure`, which checks every position against the end of its record and counts; `fill`
then writes into columns of exactly that size. `plan` and `encode` do the same in the other direction.
Needs the extra `arrow`; compiled code is cached beside this file.
"""

from typing import Any

import numpy as np
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

ROWS, KEY_BYTES, VALUE_BYTES, HEADERS, HEADER_KEY_BYTES, HEADER_VALUE_BYTES, NULL_KEYS, NULL_VALUES, NULL_HEADERS = (
    range(9)
)
"""Indexes of the totals that are kept from batch to batch during decoding."""
TOTALS = 9

# Without reference counting: numba would count references at every use, at ten times the cost of everything else.
_njit: Any = njit
_compiled = _njit(cache=True, nogil=True, _nrt=False)
_inlined = _njit(inline="always")

MALFORMED = -1
_VARINT_BITS, _VARLONG_BITS = 32, 64


_intrinsic: Any = intrinsic


@_intrinsic
def _copy(typing_context: Any, to: Any, position: Any, origin: Any, start: Any, size: Any) -> Any:
    """memcpy between arrays of bytes: a loop over bytes would be ten times slower."""
    signature = types.void(to, types.intp, origin, types.intp, types.intp)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        source = context.make_array(signature.args[2])(context, builder, arguments[2]).data
        cgutils.raw_memcpy(
            builder,
            builder.gep(target, [arguments[1]]),
            builder.gep(source, [arguments[3]]),
            count=arguments[4],
            itemsize=1,
        )
        return context.get_dummy_value()

    return signature, generate


@_inlined
def _read_varint(data, position, end, bits):
    """The decoded value and the position after it; the position is MALFORMED if the varint is truncated or too
    large."""
    value = np.uint64(0)
    shift = np.uint64(0)
    while position < end:
        byte = np.uint64(data[position])
        position += 1
        value |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            if bits == _VARINT_BITS:
                if value >> np.uint64(32):
                    return np.int64(0), np.int64(MALFORMED)
            elif shift == np.uint64(63) and byte > np.uint64(1):
                return np.int64(0), np.int64(MALFORMED)
            return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), np.int64(position)
        shift += np.uint64(7)
        if shift >= np.uint64(bits):
            break
    return np.int64(0), np.int64(MALFORMED)


@_compiled
def measure(data, position, end, count, base_offset, from_offset, totals):
    """Checks `count` records of a payload completely, and adds the size of their columns to the totals."""
    for _ in range(count):
        length, position = _read_varint(data, position, end, _VARINT_BITS)
        if position < 0 or length < 0 or length > end - position:
            return MALFORMED
        record_end = position + length
        # One byte of attributes, none of which are in use.
        _, position = _read_varint(data, position + 1, record_end, _VARLONG_BITS)
        if position < 0:
            return MALFORMED
        offset_delta, position = _read_varint(data, position, record_end, _VARINT_BITS)
        if position < 0:
            return MALFORMED
        key_length, position = _read_varint(data, position, record_end, _VARINT_BITS)
        if position < 0 or key_length < -1 or key_length > record_end - position:
            return MALFORMED
        value_length, position = _read_varint(data, position + max(key_length, 0), record_end, _VARINT_BITS)
        # The header count needs a byte after the value.
        if position < 0 or value_length < -1 or max(value_length, 0) >= record_end - position:
            return MALFORMED
        position += max(value_length, 0)
        headers = header_key_bytes = header_value_bytes = null_headers = np.int64(0)
        if position + 1 != record_end or data[position] != 0:
            headers, position = _read_varint(data, position, record_end, _VARINT_BITS)
            if position < 0 or headers < 0 or headers * 2 > record_end - position:
                return MALFORMED
            for _ in range(headers):
                size, position = _read_varint(data, position, record_end, _VARINT_BITS)
                if position < 0 or size < 0 or size > record_end - position:
                    return MALFORMED
                header_key_bytes += size
                size, position = _read_varint(data, position + size, record_end, _VARINT_BITS)
                if position < 0 or size < -1 or size > record_end - position:
                    return MALFORMED
                header_value_bytes += max(size, 0)
                null_headers += size < 0
                position += max(size, 0)
            if position != record_end:
                return MALFORMED
        position = record_end
        if base_offset + offset_delta >= from_offset:
            totals[ROWS] += 1
            totals[KEY_BYTES] += max(key_length, 0)
            totals[VALUE_BYTES] += max(value_length, 0)
            totals[HEADERS] += headers
            totals[HEADER_KEY_BYTES] += header_key_bytes
            totals[HEADER_VALUE_BYTES] += header_value_bytes
            totals[NULL_KEYS] += key_length < 0
            totals[NULL_VALUES] += value_length < 0
            totals[NULL_HEADERS] += null_headers
    return 0 if position == end else MALFORMED


@_inlined
def _varint(data, position):
    """Reads a varint that is known to be complete."""
    byte = np.int64(data[position])
    position += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position
    value = np.uint64(byte & 0x7F)
    shift = np.uint64(7)
    while True:
        byte = np.int64(data[position])
        position += 1
        value |= np.uint64(byte & 0x7F) << shift
        if byte < 0x80:
            return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), position
        shift += np.uint64(7)


@_compiled
def fill(
    data, position, count, base_offset, base_timestamp, is_appended, from_offset, done, offsets, timestamps,
    key_offsets, key_valid, keys, value_offsets, value_valid, values, header_lists, header_key_offsets, header_keys,
    header_value_offsets, header_value_valid, header_values,
):  # fmt: skip
    """Append records that `measure` has checked to columns that have room for them; `done` says how full these are.

    `is_appended`: the batch has LogAppendTime, and `base_timestamp` is the timestamp of every record.
    """
    row, key_bytes, value_bytes = done[ROWS], done[KEY_BYTES], done[VALUE_BYTES]
    headers, header_key_bytes, header_value_bytes = done[HEADERS], done[HEADER_KEY_BYTES], done[HEADER_VALUE_BYTES]
    for _ in range(count):
        length, position = _varint(data, position)
        record_end = position + length
        timestamp_delta, position = _varint(data, position + 1)
        offset_delta, position = _varint(data, position)
        if base_offset + offset_delta < from_offset:
            position = record_end
            continue
        offsets[row] = base_offset + offset_delta
        timestamps[row] = base_timestamp if is_appended else base_timestamp + timestamp_delta
        length, position = _varint(data, position)
        key_offsets[row] = key_bytes
        key_valid[row] = length >= 0
        if length > 0:
            _copy(keys, key_bytes, data, position, length)
            key_bytes += length
            position += length
        length, position = _varint(data, position)
        value_offsets[row] = value_bytes
        value_valid[row] = length >= 0
        if length > 0:
            _copy(values, value_bytes, data, position, length)
            value_bytes += length
            position += length
        header_lists[row] = headers
        row += 1
        count_of_headers, position = _varint(data, position)
        for _ in range(count_of_headers):
            length, position = _varint(data, position)
            header_key_offsets[headers] = header_key_bytes
            _copy(header_keys, header_key_bytes, data, position, length)
            header_key_bytes += length
            length, position = _varint(data, position + length)
            header_value_offsets[headers] = header_value_bytes
            header_value_valid[headers] = length >= 0
            if length > 0:
                _copy(header_values, header_value_bytes, data, position, length)
                header_value_bytes += length
                position += length
            headers += 1
        position = record_end
    done[ROWS], done[KEY_BYTES], done[VALUE_BYTES] = row, key_bytes, value_bytes
    done[HEADERS], done[HEADER_KEY_BYTES], done[HEADER_VALUE_BYTES] = headers, header_key_bytes, header_value_bytes


@_inlined
def _varint_bytes(value):
    zigzag = np.uint64((value << 1) ^ (value >> 63))
    if zigzag < np.uint64(0x80):
        return np.int64(1)
    if zigzag < np.uint64(0x4000):
        return np.int64(2)
    size = np.int64(2)
    zigzag >>= np.uint64(14)
    while zigzag:
        zigzag >>= np.uint64(7)
        size += 1
    return size


@_inlined
def _write_varint(out, position, value):
    zigzag = np.uint64((value << 1) ^ (value >> 63))
    while zigzag >= np.uint64(0x80):
        out[position] = np.uint8((zigzag & np.uint64(0x7F)) | np.uint64(0x80))
        zigzag >>= np.uint64(7)
        position += 1
    out[position] = np.uint8(zigzag)
    return position + 1


@_inlined
def _is_valid(bitmap, index):
    """An empty bitmap means that nothing is null."""
    return bitmap.size == 0 or (bitmap[index >> 3] >> (index & 7)) & 1 == 1


@_inlined
def _length(offsets, bitmap, start, row):
    """The length of an entry, -1 for null. A missing column has no offsets: all values are null."""
    if offsets.size == 0 or not _is_valid(bitmap, start + row):
        return np.int64(-1)
    return np.int64(offsets[start + row + 1]) - np.int64(offsets[start + row])


@_inlined
def _body_bytes(
    row, first, timestamps, key_offsets, key_bitmap, key_start, value_offsets, value_bitmap, value_start, lists,
    list_bitmap, list_start, header_key_offsets, header_key_start, header_value_offsets, header_value_bitmap,
    header_value_start,
):  # fmt: skip
    key_length = _length(key_offsets, key_bitmap, key_start, row)
    value_length = _length(value_offsets, value_bitmap, value_start, row)
    size = (
        1
        + _varint_bytes(timestamps[row] - timestamps[first])
        + _varint_bytes(np.int64(row - first))
        + _varint_bytes(key_length)
        + max(key_length, 0)
        + _varint_bytes(value_length)
        + max(value_length, 0)
    )
    count = max(_length(lists, list_bitmap, list_start, row), 0)
    size += _varint_bytes(np.int64(count))
    if count > 0:
        entry = np.int64(lists[list_start + row])
        for header in range(entry, entry + count):
            name = np.int64(header_key_offsets[header_key_start + header + 1]) - np.int64(
                header_key_offsets[header_key_start + header]
            )
            content = _length(header_value_offsets, header_value_bitmap, header_value_start, header)
            size += _varint_bytes(name) + name + _varint_bytes(content) + max(content, 0)
    return size


@_compiled
def plan(
    first, rows, bytes_max, records_max, timestamps, key_offsets, key_bitmap, key_start, value_offsets, value_bitmap,
    value_start, lists, list_bitmap, list_start, header_key_offsets, header_key_start, header_value_offsets,
    header_value_bitmap, header_value_start,
):  # fmt: skip
    """The batch that begins with row `first`: the row after it, its bytes, its largest timestamp. At least one row."""
    total = np.int64(0)
    latest = timestamps[first]
    row = first
    while row < rows and row - first < records_max:
        body = _body_bytes(
            row, first, timestamps, key_offsets, key_bitmap, key_start, value_offsets, value_bitmap, value_start,
            lists, list_bitmap, list_start, header_key_offsets, header_key_start, header_value_offsets,
            header_value_bitmap, header_value_start,
        )  # fmt: skip
        size = body + _varint_bytes(np.int64(body))
        if row > first and total + size > bytes_max:
            break
        total += size
        latest = max(latest, timestamps[row])
        row += 1
    return row, total, latest


@_compiled
def encode(
    out, position, first, end, timestamps, key_offsets, key_bitmap, key_start, keys, value_offsets, value_bitmap,
    value_start, values, lists, list_bitmap, list_start, header_key_offsets, header_key_start, header_keys,
    header_value_offsets, header_value_bitmap, header_value_start, header_values,
):  # fmt: skip
    """Write the rows from `first` to `end` as records, where `plan` has found room for them."""
    for row in range(first, end):
        body = _body_bytes(
            row, first, timestamps, key_offsets, key_bitmap, key_start, value_offsets, value_bitmap, value_start,
            lists, list_bitmap, list_start, header_key_offsets, header_key_start, header_value_offsets,
            header_value_bitmap, header_value_start,
        )  # fmt: skip
        position = _write_varint(out, position, np.int64(body))
        out[position] = 0
        position = _write_varint(out, position + 1, timestamps[row] - timestamps[first])
        position = _write_varint(out, position, np.int64(row - first))
        length = _length(key_offsets, key_bitmap, key_start, row)
        position = _write_varint(out, position, length)
        if length > 0:
            _copy(out, position, keys, np.int64(key_offsets[key_start + row]), length)
            position += length
        length = _length(value_offsets, value_bitmap, value_start, row)
        position = _write_varint(out, position, length)
        if length > 0:
            _copy(out, position, values, np.int64(value_offsets[value_start + row]), length)
            position += length
        count = max(_length(lists, list_bitmap, list_start, row), 0)
        position = _write_varint(out, position, np.int64(count))
        if count > 0:
            entry = np.int64(lists[list_start + row])
            for header in range(entry, entry + count):
                begin = np.int64(header_key_offsets[header_key_start + header])
                length = np.int64(header_key_offsets[header_key_start + header + 1]) - begin
                position = _write_varint(out, position, length)
                _copy(out, position, header_keys, begin, length)
                position += length
                length = _length(header_value_offsets, header_value_bitmap, header_value_start, header)
                position = _write_varint(out, position, length)
                if length > 0:
                    begin = np.int64(header_value_offsets[header_value_start + header])
                    _copy(out, position, header_values, begin, length)
                    position += length
    return position
