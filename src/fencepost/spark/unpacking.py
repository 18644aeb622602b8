"""From the bytes of a fetch to the columns of Spark's Kafka source, without a Python object per record.

Runs in Python workers. Needs pyarrow and numba: import it only where rows are read.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from fencepost.client.fetching import DECOMPRESSED_BATCH_MAX_BYTES
from fencepost.spark.source_errors import MalformedTimestamp
from fencepost.topic_partition import TopicPartition
from fencepost.wire.arrow_arrays import from_bytes, from_numpy, to_numpy
from fencepost.wire.arrow_records import BatchAt, decode_batches
from fencepost.wire.batch import CREATE_TIME

ARROW_BATCH_BYTES = 1024 * 1024
"""Of records, roughly, in what is handed to Spark at once: small enough to stay in the processor's cache."""
TIMESTAMP_MS_MAX = (2**63 - 1) // 1000
_CONSTANT_ROWS_MIN = 16_384

COLUMNS = (
    ("key", pa.binary()),
    ("value", pa.binary()),
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("timestamp", pa.timestamp("us", tz="UTC")),
    ("timestampType", pa.int32()),
)
HEADERS_COLUMN = ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))


class Portion(NamedTuple):
    """Batches of one fetch that an application may see."""

    view: memoryview
    batches: Sequence[BatchAt]
    fetch_offset: int
    """The first batch may begin before it."""


class Unpacker:
    """The rows of one range of one partition, in RecordBatches of Spark's schema."""

    def __init__(self, partition: TopicPartition, end: int, *, include_headers: bool) -> None:
        self._partition = partition
        self._end = end
        self._columns = [*COLUMNS, HEADERS_COLUMN] if include_headers else list(COLUMNS)
        self._schema = pa.schema(self._columns)
        self._rows_ready = 0
        self._constants: tuple[Any, ...] = ()

    def unpack(self, portion: Portion) -> Iterator[Any]:
        for batches in self._groups(portion.batches):
            found = decode_batches(
                portion.view, batches=batches, from_offset=portion.fetch_offset, max_bytes=DECOMPRESSED_BATCH_MAX_BYTES
            )
            offsets = to_numpy(found.column(0), np.int64)
            rows = len(offsets)
            if rows and offsets[-1] >= self._end:
                found = found.slice(0, int(np.searchsorted(offsets, self._end)))
                rows = found.num_rows
            if rows:
                yield self._record_batch(found, rows, int(batches[0].header.timestamp_type != CREATE_TIME))

    def _groups(self, batches: Sequence[BatchAt]) -> Iterator[list[BatchAt]]:
        """Neighbours with timestamps of the same type, up to a moderate size."""
        group: list[BatchAt] = []
        size_bytes, kind = 0, -1
        for at in batches:
            header = at.header
            if header.base_offset >= self._end:
                break
            if group and (size_bytes + header.size_bytes > ARROW_BATCH_BYTES or header.timestamp_type != kind):
                yield group
                group, size_bytes = [], 0
            group.append(at)
            size_bytes += header.size_bytes
            kind = header.timestamp_type
        if group:
            yield group

    def _record_batch(self, found: Any, rows: int, timestamp_type: int) -> Any:
        offset, timestamp, key, value, headers = found.columns
        topic, partition, types = self._constant_columns(rows)
        arrays = [key, value, topic, partition, offset, self._microseconds(offset, timestamp), types[timestamp_type]]
        if len(self._columns) > len(arrays):
            arrays.append(_headers(headers))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _constant_columns(self, rows: int) -> tuple[Any, Any, tuple[Any, Any]]:
        """Columns that are the same for every batch are made once, and their beginnings used."""
        if rows > self._rows_ready:
            self._rows_ready = max(rows * 5 // 4, _CONSTANT_ROWS_MIN)
            self._constants = (
                pa.repeat(from_bytes([self._partition.topic], pa.string())[0], self._rows_ready),
                _repeated(self._partition.partition, self._rows_ready),
                (_repeated(0, self._rows_ready), _repeated(1, self._rows_ready)),
            )
        topic, partition, kinds = self._constants
        return topic.slice(0, rows), partition.slice(0, rows), tuple(kind.slice(0, rows) for kind in kinds)

    def _microseconds(self, offsets: Any, timestamps: Any) -> Any:
        milliseconds = to_numpy(timestamps, np.int64)
        out_of_range = (milliseconds > TIMESTAMP_MS_MAX) | (milliseconds < -TIMESTAMP_MS_MAX)
        if out_of_range.any():
            row = int(np.argmax(out_of_range))
            raise MalformedTimestamp(
                self._partition.topic, self._partition.partition, offsets[row].as_py(), int(milliseconds[row])
            )
        return pa.Array.from_buffers(
            pa.timestamp("us", tz="UTC"), len(milliseconds), [None, pa.py_buffer(milliseconds * 1000)]
        )


def _repeated(number: int, rows: int) -> Any:
    return from_numpy(np.full(rows, number, np.int32), pa.int32())


def _headers(found: Any) -> Any:
    """As Spark gives them: a record without headers has null, not an empty list."""
    wanted = HEADERS_COLUMN[1]
    lengths = np.diff(to_numpy(found.offsets, np.int32))
    entries = pa.StructArray.from_arrays([found.values.field(0), found.values.field(1)], fields=list(wanted.value_type))
    if lengths.all():
        return pa.ListArray.from_arrays(found.offsets, entries, type=wanted)
    return pa.ListArray.from_arrays(found.offsets, entries, type=wanted, mask=from_numpy(lengths == 0, pa.bool_()))
