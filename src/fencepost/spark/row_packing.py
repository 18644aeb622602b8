"""Rows become finished record batches: placed, grouped by partition, encoded. No Python object per row.

Rows of one partition keep their order. Loads numba's compiled code, so it is for tasks: a driver never imports it.
"""

import math
import os
import random
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from fencepost.client.blocking import Admin
from fencepost.spark import partition_kernels as kernels
from fencepost.spark.errors import InvalidOutput
from fencepost.spark.packed_batches import PACKED_SCHEMA, PackingPlan
from fencepost.spark.routing import first_index, salts
from fencepost.wire.arrow_arrays import from_bytes, from_numpy, is_valid, to_numpy
from fencepost.wire.arrow_records import decode_batches, encode_batches
from fencepost.wire.batch import COMPRESSION_MASK, read_header

_Packed = tuple[int, str, int, int, bytearray]
_NO_BYTES, _NO_OFFSETS, _NO_CHOICE = np.empty(0, np.uint8), np.empty(0, np.int32), np.empty(0, np.int64)


class Packing:
    def __init__(self, plan: PackingPlan) -> None:
        self._plan = plan
        self._counts = dict(plan.partition_counts)
        self._salts = salts(plan.writers)
        # Tasks that begin everywhere at once would all fill the same partitions first.
        self._sticky = random.Random(os.urandom(8)).randrange(1 << 30)

    def pack(self, gathered: list[Any]) -> Iterator[Any]:
        table = pa.Table.from_batches(gathered).combine_chunks()
        columns = {name: _one(table.column(name)) for name in table.column_names}
        packed: list[_Packed] = []
        for topic, rows in self._by_topic(columns):
            packed.extend(self._pack_topic(topic, rows))
        if packed:
            salts, topics, partitions, records, batches = zip(*packed, strict=True)
            yield pa.RecordBatch.from_arrays(
                [
                    from_numpy(np.array(salts, np.int32), pa.int32()),
                    from_bytes(topics, pa.string()),
                    from_numpy(np.array(partitions, np.int32), pa.int32()),
                    from_numpy(np.array(records, np.int32), pa.int32()),
                    from_bytes(batches, pa.binary()),
                ],
                schema=PACKED_SCHEMA,
            )

    def _by_topic(self, columns: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        if self._plan.topic is not None:
            yield self._plan.topic, columns
            return
        topics = columns["topic"]
        if topics.null_count:
            raise InvalidOutput("a row has no topic", "give every row a topic, or name one with topic=")
        encoded = topics.dictionary_encode()
        if len(encoded.dictionary) == 1:
            yield encoded.dictionary[0].as_py(), columns
            return
        codes = to_numpy(encoded.indices, np.int32)
        for code, topic in enumerate(encoded.dictionary.to_pylist()):
            rows = from_numpy(np.flatnonzero(codes == code), pa.int64())
            yield topic, {name: column.take(rows) for name, column in columns.items()}

    def _pack_topic(self, topic: str, columns: dict[str, Any]) -> Iterator[_Packed]:
        plan = self._plan
        count = self._partition_count(topic)
        values, keys, headers = columns["value"], columns.get("key"), columns.get("headers")
        rows = len(values)
        placed = self._place(topic, columns, count, rows)
        starts: Any = np.array([0, rows])
        if placed is not None:
            starts, order = placed
            values, keys, headers = (None if c is None else c.take(order) for c in (values, keys, headers))
        now_ms = time.time_ns() // 1_000_000
        index, writers = first_index(topic, plan.indexes), plan.writers
        for partition in np.flatnonzero(np.diff(starts)):
            begin, size = int(starts[partition]), int(starts[partition + 1] - starts[partition])
            salt = self._salts[(index + int(partition)) % writers]
            for batch in encode_batches(
                values.slice(begin, size),
                timestamps=now_ms,
                keys=None if keys is None else keys.slice(begin, size),
                headers=None if headers is None else headers.slice(begin, size),
                batch_bytes=plan.batch_bytes,
                compression=plan.compression,
            ):
                yield salt, topic, int(partition), read_header(batch).record_count, batch

    def _place(self, topic: str, columns: dict[str, Any], count: int, rows: int) -> tuple[Any, Any] | None:
        """Where each partition's rows begin, and the rows in that order; None when there is one partition only."""
        keys, chosen = columns.get("key"), columns.get("partition")
        if chosen is not None and chosen.null_count == rows:
            chosen = None
        if count == 1 and chosen is None:
            return None
        values = columns["value"]
        portions = max(1, math.ceil(values.nbytes / self._plan.batch_bytes))
        placed = np.empty(rows, np.int64)
        choice = _NO_CHOICE if chosen is None else _chosen(chosen.cast(pa.int64()))
        refused = kernels.place(placed, count, *_bytes_column(keys), choice, self._sticky % count, portions)
        self._sticky += portions
        if refused >= 0:
            raise InvalidOutput.of_partition(topic, int(choice[refused]), count)
        starts, order = np.zeros(count + 1, np.int64), np.empty(rows, np.int64)
        kernels.group(placed, starts, order)
        return starts, from_numpy(order, pa.int64())

    def _partition_count(self, topic: str) -> int:
        """Topics that only the rows name are looked up here; that is no call to a coordinator."""
        if topic not in self._counts:
            with Admin(self._plan.bootstrap_servers, **self._plan.options) as admin:
                self._counts[topic] = len(admin.describe_topic(topic).partitions)
        return self._counts[topic]


def _one(column: Any) -> Any:
    chunks = column.chunks
    return chunks[0] if len(chunks) == 1 else column.combine_chunks()


def _chosen(array: Any) -> Any:
    """Partitions that rows have chosen, -1 where one has not."""
    return np.where(is_valid(array), to_numpy(array, np.int64), -1)


def _bytes_column(array: Any) -> tuple[Any, Any, Any, int]:
    """Data, offsets, bitmap and start of a column of bytes; no offsets where there is none."""
    if array is None or pa.types.is_null(array.type):
        return _NO_BYTES, _NO_OFFSETS, _NO_BYTES, 0
    if not pa.types.is_binary(array.type):
        array = array.cast(pa.binary())
    validity, offsets, data = array.buffers()
    return (
        np.frombuffer(data, np.uint8) if data is not None and data.size else _NO_BYTES,
        np.frombuffer(offsets, np.int32),
        np.frombuffer(validity, np.uint8) if validity is not None and array.null_count else _NO_BYTES,
        array.offset,
    )


def split(batch: bytearray, first_records: int) -> list[bytearray]:
    """The same records in two batches, the first of them with `first_records`; one batch where there are no more."""
    header = read_header(batch)
    if header.record_count <= first_records:
        return [batch]
    rows = decode_batches(batch)
    return list(
        encode_batches(
            rows.column("value"),
            timestamps=rows.column("timestamp"),
            keys=rows.column("key"),
            headers=rows.column("headers") if len(rows.column("headers").values) else None,
            batch_bytes=2**31 - 1,
            first_records=first_records,
            compression=header.attributes & COMPRESSION_MASK,
        )
    )
