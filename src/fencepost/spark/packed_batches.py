"""What the task before the shuffle is asked to do, and the rows it hands on: one for each finished record batch."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

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
class PackingPlan:
    topic: str | None
    """None: each row names its own, in a column."""
    partition_counts: Mapping[str, int]
    indexes: Mapping[str, int]
    writers: int
    compression: int
    batch_bytes: int
    bootstrap_servers: tuple[str, ...]
    options: Mapping[str, Any] = dataclasses.field(repr=False)
