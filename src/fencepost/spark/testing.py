"""`shop.test(spark, rows)`: a pipeline over a test's own rows, without a broker, by the same plans as in service."""

import dataclasses
import datetime
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fencepost.spark.dead_letters import HEADERS_TYPE, REASON
from fencepost.spark.formats import Format, reading_format
from fencepost.spark.pipelines import InvalidPipeline, Pipeline
from fencepost.spark.processing import output_formats, output_rows, tagged, union

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDS_SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    f"headers {HEADERS_TYPE}"
)
# Kafka's default for max.message.bytes, less its overhead.
TEST_LIMIT_BYTES = 1_048_588
TEST_TIME = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


@dataclasses.dataclass(frozen=True)
class Written:
    """A record that the pipeline would have written. `value` is decoded where the format says how."""

    value: Any
    key: bytes | None
    headers: dict[str, bytes | None]
    raw: bytes | None
    partition: int | None = None

    @property
    def reason(self) -> str | None:
        """Of a dead letter."""
        found = self.headers.get(REASON)
        return None if found is None else found.decode()


class Tested(dict[str, list[Any]]):
    """Values by topic, in every topic that the pipeline may write to; `records` has keys and headers as well."""

    def __init__(self, records: dict[str, list[Written]], dead_letter: str | None) -> None:
        super().__init__({topic: [record.value for record in found] for topic, found in records.items()})
        self.records = records
        self.dead_letters = [] if dead_letter is None else records[dead_letter]


def run_test(pipeline: Pipeline, spark: "SparkSession", batches: Sequence[Sequence[Any]]) -> Tested:
    definition = pipeline.definition
    reading = reading_format(definition.format, definition.schema, definition.registry, definition.sources)
    writing = output_formats(pipeline)
    limits = dict.fromkeys(definition.topics, TEST_LIMIT_BYTES)
    collected: dict[str, list[Written]] = {topic: [] for topic in definition.topics}

    def process(batch: "DataFrame", _batch_id: int = 0) -> None:
        frames = output_rows(pipeline, batch, lambda frame: frame.localCheckpoint(), writing, limits)
        for row in union(frames).collect():
            collected[row["topic"]].append(_written(row, writing.get(row["topic"])))

    made = [_records(pipeline, spark, rows, at) for at, rows in enumerate(batches)]
    if pipeline.stateful_step is None:
        for records in made:
            process(tagged(pipeline, records, reading))
    else:
        _stream(pipeline, spark, made, reading, process)
    return Tested(collected, definition.dead_letter)


def _records(pipeline: Pipeline, spark: "SparkSession", rows: Sequence[Any], batch: int) -> "DataFrame":
    topic = pipeline.definition.sources[0]
    values = [encoded_row(pipeline, row) for row in rows]
    base = batch * 1_000_000
    data = [(None, value, topic, 0, base + at, TEST_TIME, 0, None) for at, value in enumerate(values)]
    return spark.createDataFrame(data, RECORDS_SCHEMA)


def encoded_row(pipeline: Pipeline, row: Any) -> bytes | None:
    """A row of input as a record's value."""
    if row is None or isinstance(row, bytes):
        return row
    if isinstance(row, str):
        return row.encode()
    if pipeline.definition.format == "json" and pipeline.definition.registry is None:
        return json.dumps(row, default=str).encode()
    if pipeline.definition.format == "avro" and pipeline.definition.registry is None:
        from fencepost.spark.avro import encode_datum, parse_schema

        return encode_datum(parse_schema(pipeline.definition.schema), row)
    raise InvalidPipeline(
        f"test rows of pipeline {pipeline.name} must be bytes", "only JSON and Avro without a registry take dicts"
    )


def _stream(
    pipeline: Pipeline, spark: "SparkSession", batches: "Sequence[DataFrame]", reading: Format, process: Any
) -> None:
    """State needs a real query: each batch is a file, and a file is a micro-batch."""
    with tempfile.TemporaryDirectory(prefix="fencepost-test-") as directory:
        for at, records in enumerate(batches):
            records.coalesce(1).write.parquet(f"{directory}/made/{at}")
            part = next(Path(directory, "made", str(at)).glob("*.parquet"))
            target = Path(directory, "in", f"{at:09}.parquet")
            target.parent.mkdir(exist_ok=True)
            part.rename(target)
            os.utime(target, (1_000_000_000 + at, 1_000_000_000 + at))
        stream = spark.readStream.schema(RECORDS_SCHEMA).option("maxFilesPerTrigger", 1).parquet(f"{directory}/in")
        query = (
            tagged(pipeline, stream, reading)
            .writeStream.foreachBatch(process)
            .outputMode(pipeline.definition.output_mode)
            .option("checkpointLocation", f"{directory}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        finally:
            query.stop()


def _written(row: Any, format: Format | None) -> Written:
    raw = None if row["value"] is None else bytes(row["value"])
    headers = {header["key"]: header["value"] and bytes(header["value"]) for header in row["headers"] or ()}
    key = None if row["key"] is None else bytes(row["key"])
    return Written(_decoded(raw, format), key, headers, raw, row["partition"])


def _decoded(raw: bytes | None, format: Format | None) -> Any:
    if raw is None or format is None:
        return raw
    if format.name == "json":
        return json.loads(raw[5:] if getattr(format, "schema_id", None) is not None else raw)
    if format.name == "avro":
        from fencepost.spark.avro import AvroFormat, ValueReader

        assert isinstance(format, AvroFormat)
        return ValueReader(format.schema, format.registry).read(raw)[0]
    return raw
