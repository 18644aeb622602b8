"""What is to be written: frames with the columns of Spark's Kafka sink, and the job that packs and writes them."""

import contextlib
import dataclasses
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField, StructType

from fencepost.client.errors import UnknownTopic
from fencepost.client.transactions import TransactionHandle
from fencepost.spark.errors import InvalidOutput
from fencepost.spark.packed_batches import PACKED_SCHEMA, PackingPlan
from fencepost.spark.packer_task import Packer
from fencepost.spark.requirements import value_in_force
from fencepost.spark.routing import dense_indexes
from fencepost.spark.run_producer import RunProducer
from fencepost.spark.sink_settings import SinkSettings
from fencepost.spark.writer_task import WRITTEN_SCHEMA, Writer
from fencepost.topic_partition import TopicPartition

_ARROW_BYTES, _ARROW_ROWS = "spark.sql.execution.arrow.maxBytesPerBatch", "spark.sql.execution.arrow.maxRecordsPerBatch"
_ARROW_ROWS_MAX = 200
_BYTES = ("string", "binary")
HEADERS_TYPE = "array<struct<key:string,value:binary>>"
_KNOWN = ("key", "value", "headers", "topic", "partition")
_OF_A_SOURCE = ("offset", "timestamp", "timestamptype")
"""Columns of a Kafka source: a job that passes records on carries them, and Spark's sink leaves them out."""


@dataclasses.dataclass(frozen=True)
class Output:
    rows: Any
    topic: str | None
    columns: tuple[str, ...]


def checked_output(rows: Any, topic: str | None) -> Output:
    """The rows with exactly the columns the packer takes, as Spark's Kafka sink would have understood them."""
    kinds = {field.name.lower(): field.dataType.simpleString() for field in rows.schema.fields}
    if "value" not in kinds:
        raise InvalidOutput(
            f"the rows have no column `value`, only {', '.join(kinds) or 'none'}",
            "select the columns of Spark's Kafka sink: value, and if wanted key, headers, topic, partition",
        )
    kinds = {name: kind for name, kind in kinds.items() if name not in _OF_A_SOURCE}
    unknown = [name for name in kinds if name not in _KNOWN]
    if unknown:
        raise InvalidOutput(
            f"the columns {', '.join(unknown)} would not be written", f"select only {', '.join(_KNOWN)}"
        )
    if topic is None and "topic" not in kinds:
        raise InvalidOutput("the rows name no topic", "add a column `topic`, or give topic=")
    wanted = {"key": _BYTES, "value": _BYTES, "topic": ("string",), "partition": ("int",), "headers": (HEADERS_TYPE,)}
    for name, kind in kinds.items():
        if kind not in wanted[name] and not kind.startswith(("varchar", "char")):
            raise InvalidOutput(
                f"column `{name}` is {kind}, and must be {' or '.join(wanted[name])}", f"cast `{name}` before writing"
            )
    is_binary = all(kinds.get(name, "binary") == "binary" for name in ("key", "value"))
    if is_binary and list(kinds) == rows.columns and (topic is None or "topic" not in kinds):
        return Output(
            rows, topic, tuple(kinds)
        )  # as it is: every frame more is another plan to analyse, in every batch
    columns = {
        name: rows[name].cast("binary").alias(name) if name in ("key", "value") else rows[name].alias(name)
        for name in kinds
        if name != "topic" or topic is None
    }
    return Output(rows.select(*columns.values()), topic, tuple(columns))


def output_partitions(producer: RunProducer, topics: Iterable[str]) -> dict[str, int]:
    """The partition counts of topics that are known beforehand, in their order."""
    counts = {}
    for topic in topics:
        if topic not in counts:
            try:
                counts[topic] = len(producer.topic(topic).partitions)
            except UnknownTopic as error:
                raise InvalidOutput(str(error), error.advice) from error
    return counts


@contextlib.contextmanager
def bounded_arrow(spark: Any) -> Iterator[None]:
    """Before 4.1 Spark limits what it hands to Python at once by rows only, and a row here is a whole batch."""
    before = value_in_force(spark, _ARROW_ROWS)
    if before is None or value_in_force(spark, _ARROW_BYTES) is not None:
        yield
        return
    rows = int(before)
    spark.conf.set(_ARROW_ROWS, str(min(rows, _ARROW_ROWS_MAX) if rows > 0 else _ARROW_ROWS_MAX))
    try:
        yield
    finally:
        spark.conf.set(_ARROW_ROWS, before)


@functools.cache
def _row_type(schema: Any) -> Any:
    """As Spark writes it, made here: a schema in words would be parsed by the JVM in every batch."""
    return StructType([StructField(field.name, from_arrow_type(field.type)) for field in schema])


def packed(outputs: Sequence[Output], counts: Mapping[str, int], writers: int, settings: SinkSettings) -> Any:
    """A frame of finished record batches, one row each."""
    frames = [
        output.rows.mapInArrow(
            Packer(
                PackingPlan(
                    topic=output.topic,
                    partition_counts=dict(counts),
                    indexes=dense_indexes(counts),
                    writers=writers,
                    compression=int(settings.compression),
                    batch_bytes=settings.batch_bytes,
                    bootstrap_servers=settings.bootstrap_servers,
                    options=dict(settings.options),
                )
            ).__call__,
            _row_type(PACKED_SCHEMA),
        )
        for output in outputs
    ]
    return functools.reduce(lambda one, other: one.unionAll(other), frames)


def touched(batches: Any) -> list[TopicPartition]:
    rows = batches.select("topic", "partition").distinct().collect()
    return sorted(TopicPartition(row["topic"], row["partition"]) for row in rows)


def written(batches: Any, writers: int, handle: TransactionHandle) -> list[Any]:
    """Run the barrier stage; a row per partition that was written, or per writer that failed."""
    placed = batches.repartition(writers, "salt")
    return list(placed.mapInArrow(Writer(handle).__call__, _row_type(WRITTEN_SCHEMA), barrier=True).collect())
