"""The task before the shuffle: rows become finished record batches, so that the shuffle moves a few large rows.

Runs on executors, in as many tasks as the batch has partitions, and knows nothing of the transaction: who sends a batch
is stamped into it by the writer. This is what a driver sends them; how rows are packed is in `row_packing`.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from fencepost.spark.workers import TaskCode, freeze_imports

GATHER_BYTES = 16 * 1024 * 1024
GATHER_ROWS = 200_000
"""Rows are gathered this far before they are packed: with many partitions batches would be short otherwise."""

PACKED_SCHEMA = pa.schema(
    [
        pa.field("salt", pa.int32(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("records", pa.int32(), nullable=False),
        pa.field("batch", pa.binary(), nullable=False),
    ]
)


@dataclasses.dataclass(frozen=True)
class Packer(TaskCode):
    """Given to `mapInArrow`. `topic` None: each row names its own, in a column."""

    topic: str | None
    partition_counts: Mapping[str, int]
    indexes: Mapping[str, int]
    writers: int
    compression: int
    batch_bytes: int
    bootstrap_servers: tuple[str, ...]
    options: Mapping[str, Any] = dataclasses.field(repr=False)

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        from fencepost.spark.row_packing import Packing

        packing = Packing(self)
        gathered: list[Any] = []
        rows = size_bytes = 0
        for batch in batches:
            gathered.append(batch)
            rows += batch.num_rows
            size_bytes += batch.nbytes
            if size_bytes >= GATHER_BYTES or rows >= GATHER_ROWS:
                yield from packing.pack(gathered)
                gathered, rows, size_bytes = [], 0, 0
        if rows:
            yield from packing.pack(gathered)
        freeze_imports()
