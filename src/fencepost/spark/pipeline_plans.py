"""What happens to the rows of a pipeline, from a record's bytes to the rows of the sink. Builds plans, runs nothing.

A tagged frame is the form in between. Each of its rows has one column that is not null: that of its source, with what
was parsed, or `_row`, what the stream step gave, or `_dead`, what did not parse and why. It is made on the stream, so
that rows which the stream step never saw still reach the dead-letter topic in the transaction of their batch.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from fencepost.spark.dead_letters import (
    ORIGIN,
    RECORD,
    RECORD_COLUMNS,
    dead_letters,
    divert_too_large,
    record_origin,
    sink_rows,
)
from fencepost.spark.formats import ERROR, ROW, Format
from fencepost.spark.pipeline_declaration import Declaration, InvalidPipeline, Output, Source
from fencepost.spark.pipeline_formats import reading_format, writing_format

DEAD = "_dead"
KEY, HEADERS, PARTITION, TOMBSTONE = "_key", "_headers", "_partition", "_tombstone"
SPECIAL = (KEY, HEADERS, PARTITION, TOMBSTONE, RECORD)
METRICS_PREFIX = "fencepost."
ROWS_METRIC, DEAD_METRIC = "rows_in", "dead_letters"
"""In `StreamingQueryProgress.observedMetrics`, by source."""
Once = Callable[[DataFrame], DataFrame]


def tagged(pipeline: Declaration, records: Mapping[str, DataFrame], formats: Mapping[str, Format]) -> DataFrame:
    """From the records of each source, with the columns of Spark's Kafka source; streaming or not."""
    pipeline.check_arguments()
    parsed = {
        name: _parsed(pipeline, source, records[name], formats[name])
        for name, source in pipeline.definition.inputs.items()
    }
    is_good = F.col(ERROR).isNull()
    dead = F.struct(F.col(RECORD), F.col("value"), F.col(ERROR).alias("reason"))
    counted = {name: _counted(name, frame) for name, frame in parsed.items()}
    if pipeline.stream_step is None:
        sides = [
            frame.select(
                F.when(is_good, F.struct(*_row_columns(pipeline.definition.inputs[name]))).alias(_row_of(name)),
                F.when(~is_good, dead).alias(DEAD),
            )
            for name, frame in counted.items()
        ]
        return functools.reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), sides)
    good = {
        name: frame.where(is_good).select(*_row_columns(pipeline.definition.inputs[name]))
        for name, frame in parsed.items()
    }
    sides = [pipeline.streamed(good).select(F.struct("*").alias(ROW))]
    dead_sides = [frame.where(~is_good).select(dead.alias(DEAD)) for frame in counted.values()]
    if pipeline.definition.dead_letter is None:
        return sides[0].withColumn(DEAD, F.lit(None).cast(dead_sides[0].schema[DEAD].dataType))
    return functools.reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), [*sides, *dead_sides])


def _parsed(pipeline: Declaration, source: Source, records: DataFrame, format: Format) -> DataFrame:
    """With ROW, and TOMBSTONE if the source has them, or with ERROR."""
    parsed = format.decode(_with_record(records))
    fields = parsed.select(f"{ROW}.*").columns
    for special in (RECORD, TOMBSTONE):
        if special in fields:
            raise InvalidPipeline(f"the schema of pipeline {pipeline.name} has a field {special}", "call it otherwise")
    if source.tombstones:
        is_tombstone = F.col("value").isNull()
        parsed = parsed.withColumns({TOMBSTONE: is_tombstone, ERROR: F.when(~is_tombstone, F.col(ERROR))})
    if pipeline.definition.dead_letter is not None:
        return parsed
    is_good = F.col(ERROR).isNull()
    return parsed.where(F.when(is_good, F.lit(True)).otherwise(F.raise_error(_refusal(pipeline.name))))


def _counted(name: str, parsed: DataFrame) -> DataFrame:
    """Spark puts the counts into its own report of a stream's batch. They stay right where Spark's own count of input
    rows is not: when a batch is computed twice, and when a plan reads its source twice."""
    rows, dead = F.count(F.lit(1)).alias(ROWS_METRIC), F.count(ERROR).alias(DEAD_METRIC)
    return parsed.observe(METRICS_PREFIX + name, rows, dead) if parsed.isStreaming else parsed


def _row_columns(source: Source) -> list[str]:
    return [f"{ROW}.*", RECORD, *([TOMBSTONE] if source.tombstones else [])]


def _row_of(name: str) -> str:
    return f"{ROW}_{name}"


def output_rows(
    pipeline: Declaration, batch: DataFrame, once: Once, formats: Mapping[str, Format], limits: Mapping[str, int]
) -> dict[str, DataFrame]:
    """From a tagged batch to the sink's rows, by the output they belong to. A frame's `topic` column has the last word:
    rows that are too large are in the frame of their output, on their way to the dead-letter topic."""
    definition = pipeline.definition
    if len(definition.topics) > 1 or len(definition.inputs) > 1:
        batch = once(batch)
    columns = {name: _row_of(name) for name in definition.inputs} if pipeline.stream_step is None else {"rows": ROW}
    good = {name: batch.where(F.col(column).isNotNull()).select(f"{column}.*") for name, column in columns.items()}
    made = pipeline.transformed(good, once)
    outputs = {output.topic: output for output in definition.outputs}
    frames = _by_topic(pipeline, made)
    rows = {topic: _encoded(frame, outputs[topic], formats[topic]) for topic, frame in frames.items()}
    if definition.dead_letter is not None:
        bad = batch.where(F.col(DEAD).isNotNull()).select(f"{DEAD}.*")
        rows[definition.dead_letter] = dead_letters(bad, pipeline.name, definition.dead_letter)
    return {
        topic: divert_too_large(frame, limits, pipeline.name, definition.dead_letter) for topic, frame in rows.items()
    }


def union(frames: Mapping[str, DataFrame]) -> DataFrame:
    return functools.reduce(DataFrame.unionByName, frames.values())


def input_formats(pipeline: Declaration) -> dict[str, Format]:
    definition = pipeline.definition
    return {
        name: reading_format(source.format, source.schema, definition.registry, source.topics)
        for name, source in definition.inputs.items()
    }


def output_formats(pipeline: Declaration) -> dict[str, Format]:
    """Registers schemas where a registry is used."""
    definition = pipeline.definition
    return {
        output.topic: writing_format(output.format, output.schema, definition.registry, output.topic)
        for output in definition.outputs
    }


def _with_record(records: DataFrame) -> DataFrame:
    kept = F.struct(*RECORD_COLUMNS)
    return records.select(kept.alias(RECORD), "value")


def _by_topic(pipeline: Declaration, made: Any) -> dict[str, DataFrame]:
    topics = [output.topic for output in pipeline.definition.outputs]
    if isinstance(made, DataFrame) and len(topics) == 1:
        return {topics[0]: made}
    where = f"the function of pipeline {pipeline.name}"
    if not isinstance(made, Mapping):
        raise InvalidPipeline(f"{where} gave back {type(made).__name__}", "give back a dict from topic to DataFrame")
    for topic, frame in made.items():
        if topic not in topics:
            raise InvalidPipeline(
                f"{where} gave back a frame for {topic!r}", f"name it in outputs= ({', '.join(topics)})"
            )
        if not isinstance(frame, DataFrame):
            raise InvalidPipeline(f"{where} gave back {type(frame).__name__} for {topic}", "give back a DataFrame")
    return dict(made)


def _encoded(frame: DataFrame, output: Output, format: Format) -> DataFrame:
    payload = [column for column in frame.columns if column not in SPECIAL]
    if not payload:
        raise InvalidPipeline(f"the frame for {output.topic} has no column for the value")
    value = format.encode(payload, frame)
    if TOMBSTONE in frame.columns:
        value = F.when(~F.coalesce(F.col(TOMBSTONE), F.lit(False)), value)
    columns = {"topic": F.lit(output.topic), "value": value}
    if (origin := _origin(frame)) is not None:
        columns[ORIGIN] = origin
    key = output.key or (KEY if KEY in frame.columns else None)
    if key is not None:
        if key not in frame.columns:
            raise InvalidPipeline(
                f"the frame for {output.topic} has no column {key} for the key", f"it has {', '.join(frame.columns)}"
            )
        is_binary = frame.schema[key].dataType.typeName() == "binary"
        columns["key"] = F.col(f"`{key}`") if is_binary else F.col(f"`{key}`").cast("string")
    if HEADERS in frame.columns:
        columns["headers"] = F.col(HEADERS)
    if PARTITION in frame.columns:
        columns["partition"] = F.col(PARTITION)
    return sink_rows(frame, **columns)


def _origin(frame: DataFrame) -> Column | None:
    """Known as long as the frame has kept the column RECORD."""
    if RECORD not in frame.columns:
        return None
    fields = getattr(frame.schema[RECORD].dataType, "names", ())
    return record_origin() if {"topic", "partition", "offset"} <= set(fields) else None


def _refusal(name: str) -> Any:
    record = [F.col(f"{RECORD}.{part}") for part in ("topic", "partition", "offset")]
    return F.concat(
        F.lit(f"pipeline {name}: record "), record[0], F.lit("-"), record[1], F.lit(" at offset "), record[2],
        F.lit(": "), F.col(ERROR), F.lit("; give dead_letter= a topic to let such rows pass"),
    )  # fmt: skip
