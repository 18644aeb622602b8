"""The task before the shuffle: rows become finished record batches, so that the shuffle moves a few large rows.

Runs on executors, in as many tasks as the batch has partitions, and knows nothing of the transaction: who sends a batch
is stamped into it by the writer. This is what a driver sends them; how rows are packed is in `row_packing`.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

from fencepost.spark.packed_batches import PackingPlan
from fencepost.spark.python_workers import TaskCode, freeze_imports

GATHER_BYTES = 16 * 1024 * 1024
GATHER_ROWS = 200_000
"""Rows are gathered this far before they are packed: with many partitions batches would be short otherwise."""


@dataclasses.dataclass(frozen=True)
class Packer(TaskCode):
    """Given to `mapInArrow`."""

    plan: PackingPlan

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        # Loads numba's compiled code, which takes a second: only tasks need it, the driver makes this object.
        from fencepost.spark.row_packing import Packing

        packing = Packing(self.plan)
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
