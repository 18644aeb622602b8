"""The stage that writes: one barrier task per writer, which stamps packed batches and sends them.

A barrier stage is never speculated and never repeated in part: if one task fails the whole job does, and the driver
decides anew. Tasks only Produce; every call to a coordinator is the driver's.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import BarrierTaskContext

from fencepost.client.errors import ClientError
from fencepost.client.sending import BULK
from fencepost.client.transactions import TransactionHandle
from fencepost.spark import task_errors
from fencepost.spark.python_workers import TaskCode, freeze_imports
from fencepost.wire.arrow_arrays import from_bytes, from_numpy

WRITTEN_SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("records", pa.int64()),
        pa.field("failure", pa.string()),
    ]
)
_ATTEMPTS_PRIME = 97


@dataclasses.dataclass(frozen=True)
class Writer(TaskCode):
    """Given to `mapInArrow(..., barrier=True)`. Answers with what was acknowledged, or with why it could not be."""

    handle: TransactionHandle

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        # Loads numba's compiled code, which takes a second: only tasks need it, the driver makes this object.
        from fencepost.spark.row_packing import split

        context = BarrierTaskContext.get()
        # An attempt whose first batch is as long as another's could be taken for its repetition.
        first_records = 1 + int(context.taskAttemptId()) % _ATTEMPTS_PRIME
        written: dict[tuple[str, int], int] = {}
        failure = None
        try:
            with self.handle.writer(BULK) as writer:  # whose end waits for the acknowledgements
                for batch in batches:
                    for topic, partition, records, data in _rows(batch):
                        is_first = (topic, partition) not in written
                        for part in split(data, first_records) if is_first else (data,):
                            writer.send_batch(topic, partition, part)
                        written[topic, partition] = written.get((topic, partition), 0) + records
        except ClientError as error:
            failure = task_errors.pack(error)
            for _ in batches:
                pass  # Spark wants its input read, or it reports the broken pipe instead.
        rows: list[tuple[str, int, int, str | None]] = [
            (topic, partition, records, None) for (topic, partition), records in written.items()
        ]
        if failure is not None:
            rows = [("", -1, 0, failure)]
        topics, partitions, counts, failures = zip(*rows, strict=True) if rows else ((), (), (), ())
        yield pa.RecordBatch.from_arrays(
            [
                from_bytes(topics, pa.string()),
                from_numpy(np.array(partitions, np.int32), pa.int32()),
                from_numpy(np.array(counts, np.int64), pa.int64()),
                from_bytes(failures, pa.string()),
            ],
            schema=WRITTEN_SCHEMA,
        )
        freeze_imports()


def _rows(batch: Any) -> Iterator[tuple[str, int, int, bytearray]]:
    topics, partitions, records = (batch.column(name).to_pylist() for name in ("topic", "partition", "records"))
    data = batch.column("batch")
    for row, (topic, partition, count) in enumerate(zip(topics, partitions, records, strict=True)):
        yield topic, partition, count, bytearray(data[row].as_buffer())
