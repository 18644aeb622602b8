"""Rows that cannot be processed, as records of the dead-letter topic: what came, and in headers why and from where.

Nothing is cut off: a value that is too large for a topic goes to the dead-letter topic in parts, numbered by a header.
"""

from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

# What a source row keeps of its record, as the column RECORD.
RECORD = "_record"
RECORD_COLUMNS = ("key", "topic", "partition", "offset", "timestamp", "headers")
HEADERS_TYPE = "array<struct<key:string,value:binary>>"
# Beside the columns of the sink, as long as a row may still become a dead letter: the record that it came from.
ORIGIN = "_origin"
ORIGIN_TYPE = "struct<topic:string,partition:int,offset:bigint>"
# The columns of Spark's Kafka sink.
SINK_COLUMNS = {"topic": "string", "key": "binary", "value": "binary", "headers": HEADERS_TYPE, "partition": "int"}

REASON = "fencepost.reason"
PIPELINE = "fencepost.pipeline"
SOURCE_TOPIC = "fencepost.topic"
SOURCE_PARTITION = "fencepost.partition"
SOURCE_OFFSET = "fencepost.offset"
PART = "fencepost.part"

# Batch header, the record's own varints, and a margin.
BATCH_OVERHEAD_BYTES = 128
HEADER_OVERHEAD_BYTES = 12
# What a dead letter's reason and origin take at most.
REASON_BYTES_MAX = 4_096


def dead_letters(bad: DataFrame, pipeline: str, topic: str) -> DataFrame:
    """Sink rows from rows with RECORD, `value` and `reason`."""
    why = [_header(REASON, F.col("reason")), _header(PIPELINE, F.lit(pipeline))]
    return sink_rows(
        bad,
        topic=F.lit(topic),
        key=F.col(f"{RECORD}.key"),
        value=F.col("value"),
        headers=F.concat(_given(F.col(f"{RECORD}.headers")), F.array(*why, *_origin_headers(RECORD))),
        **{ORIGIN: record_origin()},
    )


def record_origin() -> Column:
    """From RECORD to ORIGIN."""
    return F.struct(*(F.col(f"{RECORD}.{part}").alias(part) for part in ("topic", "partition", "offset")))


def sink_rows(frame: DataFrame, **columns: Column) -> DataFrame:
    """The sink's columns, in its order, and ORIGIN; those not given are null."""
    kinds = {**SINK_COLUMNS, ORIGIN: ORIGIN_TYPE}
    return frame.select(*(columns.get(name, F.lit(None)).cast(kind).alias(name) for name, kind in kinds.items()))


def divert_too_large(rows: DataFrame, limits: Mapping[str, int], pipeline: str, dead_letter: str | None) -> DataFrame:
    """The sink's rows, with no record larger than its topic takes: such rows become parts in the dead-letter topic.

    One pass over the rows: computing them twice could give two different rows. Without a dead-letter topic such a row
    fails the batch.
    """
    limit = F.element_at(F.create_map(*(F.lit(part) for pair in limits.items() for part in pair)), F.col("topic"))
    carried = _length("key") + F.aggregate(
        _given(F.col("headers")),
        F.lit(0),
        lambda total, header: (
            total
            + F.octet_length(header["key"])
            + F.coalesce(F.length(header["value"]), F.lit(0))
            + F.lit(HEADER_OVERHEAD_BYTES)
        ),
    )
    sized = rows.withColumns({"_limit": limit, "_carried": carried}).withColumn(
        "_size", F.col("_carried") + _length("value") + F.lit(BATCH_OVERHEAD_BYTES)
    )
    fits = F.col("_limit").isNull() | (F.col("_size") <= F.col("_limit"))
    reason = F.concat(
        F.lit("too large for "), F.col("topic"), F.lit(": "), F.col("_size"), F.lit(" bytes with its headers, of "),
        F.col("_limit"), F.lit(" that the topic takes"),
    )  # fmt: skip
    if dead_letter is None:
        refusal = F.concat(F.lit(f"pipeline {pipeline}: a row is "), reason, F.lit("; give dead_letter= a topic"))
        return sized.where(F.when(fits, F.lit(True)).otherwise(F.raise_error(refusal))).select(*SINK_COLUMNS)
    whole = F.array(F.struct(*(F.col(name) for name in SINK_COLUMNS)))
    parts = _parts(reason, pipeline, dead_letter, limits[dead_letter])
    routed = sized.select(F.explode(F.when(fits, whole).otherwise(parts)).alias("_sent"))
    return routed.select("_sent.*")


def _parts(reason: Column, pipeline: str, dead_letter: str, limit: int) -> Column:
    """The row in pieces that the dead-letter topic takes. Key and headers go along unless they are the large part."""
    room = limit - BATCH_OVERHEAD_BYTES - min(REASON_BYTES_MAX, limit // 4)
    spacious = F.col("_carried") <= F.lit(room // 2)
    chunk = max(1, room - room // 2)
    count = F.greatest(F.lit(1), F.ceil(_length("value") / F.lit(chunk))).cast("int")
    headers = F.when(spacious, _given(F.col("headers"))).otherwise(_given(F.lit(None)))
    is_told = F.exists(headers, lambda header: header["key"] == SOURCE_TOPIC)
    origin = F.when(F.col(ORIGIN).isNotNull() & ~is_told, F.array(*_origin_headers(ORIGIN)))
    why = F.concat(
        reason, F.when(F.col(ORIGIN).isNull(), f"; which record that was is not known: keep {RECORD} in the frame")
        .otherwise("")
    )  # fmt: skip

    def part(number: Column) -> Column:
        added = [
            _header(REASON, why),
            _header(PIPELINE, F.lit(pipeline)),
            _header(PART, F.concat(number, F.lit("/"), count)),
        ]
        columns: dict[str, Any] = {
            "topic": F.lit(dead_letter),
            "key": F.when(spacious, F.col("key")),
            "value": F.substring(F.col("value"), (number - 1) * chunk + 1, F.lit(chunk)),
            "headers": F.concat(headers, F.array(*added), _given(origin)),
            "partition": F.lit(None),
        }
        return F.struct(*(columns[name].cast(kind).alias(name) for name, kind in SINK_COLUMNS.items()))

    return F.transform(F.sequence(F.lit(1), count), part)


def _origin_headers(column: str) -> "list[Column]":
    names = {SOURCE_TOPIC: "topic", SOURCE_PARTITION: "partition", SOURCE_OFFSET: "offset"}
    return [_header(name, F.col(f"{column}.{part}")) for name, part in names.items()]


def _length(column: str) -> Column:
    return F.coalesce(F.length(F.col(column)), F.lit(0))


def _header(name: str, value: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))


def _given(headers: Column) -> Column:
    return F.coalesce(headers.cast(HEADERS_TYPE), F.array().cast(HEADERS_TYPE))
