"""What happens to the rows of a pipeline, from a record's bytes to the rows of the sink. Builds plans, runs nothing.

A tagged frame is the form in between: `_row`, what was parsed (and went through the stateful step), or `_dead`, what
did not parse and why. It is made on the stream, so that rows which state never saw still reach the dead-letter topic in
the transaction of their batch.
"""

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from fencepost.spark.dead_letters import RECORD, RECORD_COLUMNS, dead_letters, divert_too_large, sink_rows
from fencepost.spark.formats import ERROR, ROW, Format, writing_format
from fencepost.spark.pipelines import InvalidPipeline, Output, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DEAD = "_dead"
KEY, HEADERS, PARTITION = "_key", "_headers", "_partition"
SPECIAL = (KEY, HEADERS, PARTITION, RECORD)
Once = Callable[["DataFrame"], "DataFrame"]


def tagged(pipeline: Pipeline, records: "DataFrame", format: Format) -> "DataFrame":
    """From records, with the columns of Spark's Kafka source, to `_row` and `_dead`; streaming or not."""
    from pyspark.sql import functions as F

    parsed = format.decode(_with_record(records))
    if RECORD in parsed.select(f"{ROW}.*").columns:
        raise InvalidPipeline(f"the schema of pipeline {pipeline.name} has a field {RECORD}", "call it otherwise")
    is_good = F.col(ERROR).isNull()
    dead = F.struct(F.col(RECORD), F.col("value"), F.col(ERROR).alias("reason"))
    if pipeline.definition.dead_letter is None:
        parsed = parsed.where(F.when(is_good, F.lit(True)).otherwise(F.raise_error(_refusal(pipeline.name))))
    step = pipeline.stateful_step
    if step is None:
        row = F.struct(f"{ROW}.*", RECORD)
        return parsed.select(F.when(is_good, row).alias(ROW), F.when(~is_good, dead).alias(DEAD))
    good = step(parsed.where(is_good).select(f"{ROW}.*", RECORD))
    rows = good.select(F.struct("*").alias(ROW))
    dead_rows = parsed.where(~is_good).select(dead.alias(DEAD))
    dead_type, row_type = dead_rows.schema[DEAD].dataType, rows.schema[ROW].dataType
    if pipeline.definition.dead_letter is None:
        return rows.withColumn(DEAD, F.lit(None).cast(dead_type))
    return rows.withColumn(DEAD, F.lit(None).cast(dead_type)).unionByName(
        dead_rows.withColumn(ROW, F.lit(None).cast(row_type))
    )


def output_rows(
    pipeline: Pipeline, batch: "DataFrame", once: Once, formats: Mapping[str, Format], limits: Mapping[str, int]
) -> "dict[str, DataFrame]":
    """From a tagged batch to the sink's rows, by the output they belong to. A frame's `topic` column has the last word:
    rows that are too large are in the frame of their output, on their way to the dead-letter topic."""
    from pyspark.sql import functions as F

    definition = pipeline.definition
    if len(definition.topics) > 1:
        batch = once(batch)
    good = batch.where(F.col(DEAD).isNull()).select(f"{ROW}.*")
    made = pipeline.transform(good, once) if pipeline.wants_once else pipeline.transform(good)
    outputs = {output.topic: output for output in definition.outputs}
    frames = _by_topic(pipeline, made)
    rows = {topic: _encoded(frame, outputs[topic], formats[topic]) for topic, frame in frames.items()}
    if definition.dead_letter is not None:
        bad = batch.where(F.col(DEAD).isNotNull()).select(f"{DEAD}.*")
        rows[definition.dead_letter] = dead_letters(bad, pipeline.name, definition.dead_letter)
    return {
        topic: divert_too_large(frame, limits, pipeline.name, definition.dead_letter) for topic, frame in rows.items()
    }


def union(frames: "Mapping[str, DataFrame]") -> "DataFrame":
    from pyspark.sql import DataFrame

    return functools.reduce(DataFrame.unionByName, frames.values())


def output_formats(pipeline: Pipeline) -> dict[str, Format]:
    """Registers schemas where a registry is used."""
    definition = pipeline.definition
    return {
        output.topic: writing_format(output.format, output.schema, definition.registry, output.topic)
        for output in definition.outputs
    }


def _with_record(records: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as F

    kept = F.struct(*RECORD_COLUMNS)
    return records.select(kept.alias(RECORD), "value")


def _by_topic(pipeline: Pipeline, made: Any) -> "dict[str, DataFrame]":
    from pyspark.sql import DataFrame

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


def _encoded(frame: "DataFrame", output: Output, format: Format) -> "DataFrame":
    from pyspark.sql import functions as F

    payload = [column for column in frame.columns if column not in SPECIAL]
    if not payload:
        raise InvalidPipeline(f"the frame for {output.topic} has no column for the value")
    columns = {"topic": F.lit(output.topic), "value": format.encode(payload, frame)}
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


def _refusal(name: str) -> Any:
    from pyspark.sql import functions as F

    record = [F.col(f"{RECORD}.{part}") for part in ("topic", "partition", "offset")]
    return F.concat(
        F.lit(f"pipeline {name}: record "), record[0], F.lit("-"), record[1], F.lit(" at offset "), record[2],
        F.lit(": "), F.col(ERROR), F.lit("; give dead_letter= a topic to let such rows pass"),
    )  # fmt: skip
