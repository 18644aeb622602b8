"""Converts numpy and Python values to Arrow arrays and back, through their buffers.

pyarrow's own functions (`array`, `scalar`, `to_numpy`) import pandas if it is installed, to check for pandas objects.
That costs each Python worker of Spark more than half a second of CPU time before its first row. Needs the extra
`arrow`: import this module only where it is used.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

COLUMN_BYTES_MAX = 2**31 - 1


def from_numpy(values: Any, kind: Any) -> Any:
    """Numbers of the same width as the type, without a copy; booleans are packed into bits."""
    if pa.types.is_boolean(kind):
        return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.packbits(values, bitorder="little"))])
    found = np.ascontiguousarray(values)
    assert found.dtype.itemsize * 8 == kind.bit_width, f"{found.dtype} is not as wide as {kind}"
    return pa.Array.from_buffers(kind, len(found), [None, pa.py_buffer(found)])


def from_bytes(values: Sequence[Any], kind: Any) -> Any:
    """An array of type `pa.binary()` or `pa.string()` from bytes, str or None."""
    parts = [b"" if value is None else value.encode() if isinstance(value, str) else value for value in values]
    ends = np.cumsum(np.fromiter(map(len, parts), np.int64, len(parts)))
    assert not len(ends) or ends[-1] <= COLUMN_BYTES_MAX, f"{ends[-1]} bytes in one column"
    offsets = np.zeros(len(parts) + 1, np.int32)
    offsets[1:] = ends
    valid = np.fromiter((value is not None for value in values), np.bool_, len(parts))
    bitmap = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(kind, len(parts), [bitmap, pa.py_buffer(offsets), pa.py_buffer(b"".join(parts))])


def to_numpy(array: Any, dtype: Any) -> Any:
    """The numbers of an array, without a copy. The values of nulls are undefined."""
    data = array.buffers()[1]
    if data is None or not len(array):
        return np.empty(0, dtype)
    return np.frombuffer(data, dtype)[array.offset : array.offset + len(array)]


def is_valid(array: Any) -> Any:
    """Whether each value is not null."""
    bitmap = array.buffers()[0]
    if bitmap is None or not array.null_count:
        return np.ones(len(array), np.bool_)
    bits = np.unpackbits(np.frombuffer(bitmap, np.uint8), bitorder="little")
    return bits[array.offset : array.offset + len(array)].astype(np.bool_)
