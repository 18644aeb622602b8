"""`shop.test(spark, rows)`: a pipeline over a test's own rows, without a broker, by the same plans as in service."""

import dataclasses
import datetime
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from fencepost.spark.dead_letters import HEADERS_TYPE, REASON
from fencepost.spark.formats import Format
from fencepost.spark.pipeline_declaration import Declaration, InvalidPipeline, Source
from fencepost.spark.pipeline_plans import input_formats, output_formats, output_rows, tagged, union

RECORDS_SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    f"headers {HEADERS_TYPE}"
)
# Kafka's default for max.message.bytes, less its overhead.
TEST_LIMIT_BYTES = 1_048_588
TEST_TIME = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


Batch = Sequence[Any] | Mapping[str, Sequence[Any]]
OFFSETS_PER_BATCH = 1_000_000


@dataclasses.dataclass(frozen=True)
class Record:
    """A row of input with what else its record has. `topic` is needed only for a source of several topics."""

    value: Any
    key: bytes | str | None = None
    headers: Sequence[tuple[str, bytes | None]] | None = None
    topic: str | None = None


@dataclasses.dataclass(frozen=True)
class InputRecord:
    """As it is in the topic."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] | None


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


def run_test(pipeline: Declaration, spark: SparkSession, batches: Sequence[Batch]) -> Tested:
    definition = pipeline.definition
    reading, writing = input_formats(pipeline), output_formats(pipeline)
    limits = dict.fromkeys(definition.topics, TEST_LIMIT_BYTES)
    collected: dict[str, list[Written]] = {topic: [] for topic in definition.topics}

    def process(batch: DataFrame, _batch_id: int = 0) -> None:
        frames = output_rows(pipeline, batch, lambda frame: frame.localCheckpoint(), writing, limits)
        for row in union(frames).collect():
            collected[row["topic"]].append(_written(row, writing.get(row["topic"])))

    made = [_records(pipeline, spark, batch, at) for at, batch in enumerate(batches)]
    if pipeline.stream_step is None:
        for records in made:
            process(tagged(pipeline, records, reading))
    else:
        _stream(pipeline, spark, made, reading, process)
    return Tested(collected, definition.dead_letter)


def _records(pipeline: Declaration, spark: SparkSession, batch: Batch, number: int) -> dict[str, DataFrame]:
    inputs = list(pipeline.definition.inputs)
    by_source = batch if isinstance(batch, Mapping) else {inputs[0]: batch}
    unknown = [name for name in by_source if name not in inputs]
    if unknown or (len(inputs) > 1 and not isinstance(batch, Mapping)):
        raise InvalidPipeline(
            f"a batch of pipeline {pipeline.name} is a dict from source to rows", f"its sources: {', '.join(inputs)}"
        )
    frames = {}
    for name in inputs:
        data = [
            (record.key, record.value, record.topic, 0, offset, TEST_TIME, 0, record.headers and [*record.headers])
            for offset, record in enumerate(
                input_records(pipeline, name, by_source.get(name, ())), number * OFFSETS_PER_BATCH
            )
        ]
        frames[name] = spark.createDataFrame(data, RECORDS_SCHEMA)
    return frames


def input_records(pipeline: Declaration, name: str, rows: Sequence[Any]) -> list[InputRecord]:
    """Rows of a source as records."""
    source = pipeline.definition.inputs[name]
    made = []
    for row in rows:
        given = row if isinstance(row, Record) else Record(row)
        topic = given.topic or (source.topics[0] if source.topics else None)
        if topic is None:
            raise InvalidPipeline(
                f"the rows of source {name} need a topic that {source.pattern!r} matches", "give Record(row, topic=...)"
            )
        key = given.key.encode() if isinstance(given.key, str) else given.key
        made.append(InputRecord(topic, key, _encoded(pipeline, source, given.value), given.headers))
    return made


def _encoded(pipeline: Declaration, source: Source, row: Any) -> bytes | None:
    if row is None or isinstance(row, bytes):
        return row
    if isinstance(row, str):
        return row.encode()
    if source.format == "json" and pipeline.definition.registry is None:
        return json.dumps(row, default=str).encode()
    if source.format == "avro" and pipeline.definition.registry is None:
        # With pyarrow, which takes a fifth of a second to load: here and below only where Avro is used.
        from fencepost.spark.avro_format import encode_datum, parse_schema

        return encode_datum(parse_schema(source.schema), row)
    raise InvalidPipeline(
        f"test rows of pipeline {pipeline.name} must be bytes", "only JSON and Avro without a registry take dicts"
    )


def _stream(
    pipeline: Declaration,
    spark: SparkSession,
    batches: Sequence[Mapping[str, DataFrame]],
    reading: Mapping[str, Format],
    process: Any,
) -> None:
    """State needs a real query: each batch is a file of each source, and a file is a micro-batch."""
    with tempfile.TemporaryDirectory(prefix="fencepost-test-") as directory:
        streams = {}
        for name in pipeline.definition.inputs:
            files = Path(directory, "in", name)
            files.mkdir(parents=True)
            for at, records in enumerate(batches):
                made = Path(directory, "made", name, str(at))
                records[name].coalesce(1).write.parquet(str(made))
                target = files / f"{at:09}.parquet"
                next(made.glob("*.parquet")).rename(target)
                os.utime(target, (1_000_000_000 + at, 1_000_000_000 + at))
            streams[name] = spark.readStream.schema(RECORDS_SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(files))
        query = (
            tagged(pipeline, streams, reading)
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
        from fencepost.spark.avro_format import AvroFormat, ValueReader  # as above

        assert isinstance(format, AvroFormat)
        return ValueReader(format.schema, format.registry).read(raw)[0]
    return raw
