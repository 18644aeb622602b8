"""A pipeline in a few lines: from the rows of some topics to the rows of others, exactly once.

    @pipeline("shop", source="purchases", schema="purchase_id string, amount double",
              outputs=["invoices", "shipments"], dead_letter="purchases.dlq")
    def shop(purchases):
        return {"invoices": purchases.select(...), "shipments": purchases.select(...)}

    shop.start(spark, bootstrap_servers="127.0.0.1:9092", checkpoint="/checkpoints/shop")

`pipeline_declaration` holds and checks what is declared, `pipeline_plans` says what happens to a batch,
`pipeline_start` makes it a query, `pipeline_run` follows one.
"""

import dataclasses
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, overload

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from fencepost.spark.formats import Schema
from fencepost.spark.pipeline_declaration import (
    Declaration,
    Definition,
    InvalidPipeline,
    Output,
    Source,
    Transform,
    check_definition,
)
from fencepost.spark.pipeline_progress import Progress, progress_of
from fencepost.spark.pipeline_start import StartOptions, start
from fencepost.spark.schema_registry import SchemaRegistry, as_registry
from fencepost.spark.testing import Tested, run_test

__all__ = ["InvalidPipeline", "Output", "Pipeline", "Source", "pipeline"]


class Pipeline(Declaration):
    """A declared pipeline, to be started, watched and tested."""

    def start(
        self,
        spark: SparkSession,
        *,
        bootstrap_servers: str,
        checkpoint: str,
        trigger: Mapping[str, Any] | None = None,
        starting_offsets: str = "earliest",
        rows_per_batch_max: int | None = None,
        kafka: Mapping[str, str] | None = None,
        source_format: str = "fencepost",
        source_options: Mapping[str, str] | None = None,
        transaction_timeout_ms: int | None = None,
        max_writers: int | None = None,
        adopt: str = "refuse",
        source_bootstrap_servers: str | None = None,
    ) -> StreamingQuery:
        """Start the query and return it, as `writeStream.start()` does.

        `trigger` is what `DataStreamWriter.trigger` takes, for example `{"processingTime": "10 seconds"}` or
        `{"availableNow": True}`. `kafka` are options of the client (TLS, SASL), for reading and writing.
        `source_bootstrap_servers` is the cluster that is read, if it is not the one that is written; options of its
        client are `kafka.*` in `source_options`.
        """
        options = StartOptions(
            bootstrap_servers=bootstrap_servers,
            checkpoint=str(checkpoint),
            trigger=dict(trigger or {}),
            starting_offsets=starting_offsets,
            rows_per_batch_max=rows_per_batch_max,
            kafka=dict(kafka or {}),
            source_format=source_format,
            source_options=dict(source_options or {}),
            transaction_timeout_ms=transaction_timeout_ms,
            max_writers=max_writers,
            adopt=adopt,
            source_bootstrap_servers=source_bootstrap_servers,
        )
        query: StreamingQuery = start(self, spark, options)
        return query

    def progress(self, query: StreamingQuery) -> list[Progress]:
        """The last batches of a query that this process has started: Spark's own report of each, with the rows that
        were written and where its transaction stands, which Spark has no place for."""
        return [progress_of(self.name, reported) for reported in query.recentProgress]

    def test(self, spark: SparkSession, *batches: Sequence[Any] | Mapping[str, Sequence[Any]]) -> Tested:
        """Run micro-batches of rows through the pipeline without a broker, and give back what it would have written.

        A row is a dict, which is encoded first, or str or bytes, taken as the record's value as it is, or None, a
        tombstone; `fencepost.spark.testing.Record(row, key=...)` gives it a key, headers or a topic. With several
        sources a batch is a dict from source to rows.
        """
        return run_test(self, spark, batches)


@overload
def pipeline(
    name: str,
    *,
    source: str | Sequence[str] | None = ...,
    sources: Mapping[str, Source] | None = ...,
    outputs: Sequence[str | Output] | str,
    schema: Schema = ...,
    format: str = ...,
    tombstones: bool = ...,
    registry: SchemaRegistry | str | None = ...,
    dead_letter: str | None = ...,
    output_mode: str = ...,
    transaction_timeout_ms: int | None = ...,
) -> Callable[[Transform], Pipeline]: ...


@overload
def pipeline(
    name: str,
    *,
    source: str | Sequence[str] | None = ...,
    sources: Mapping[str, Source] | None = ...,
    outputs: Sequence[str | Output] | str,
    schema: Schema = ...,
    format: str = ...,
    tombstones: bool = ...,
    registry: SchemaRegistry | str | None = ...,
    dead_letter: str | None = ...,
    output_mode: str = ...,
    transaction_timeout_ms: int | None = ...,
    sql: str | Mapping[str, str] | None = ...,
    stream_sql: str | None = ...,
) -> Pipeline: ...


def pipeline(
    name: str,
    *,
    source: str | Sequence[str] | None = None,
    sources: Mapping[str, Source] | None = None,
    outputs: Sequence[str | Output] | str,
    schema: Schema = None,
    format: str = "json",
    tombstones: bool = False,
    registry: SchemaRegistry | str | None = None,
    dead_letter: str | None = None,
    output_mode: str = "append",
    transaction_timeout_ms: int | None = None,
    sql: str | Mapping[str, str] | None = None,
    stream_sql: str | None = None,
) -> Callable[[Transform], Pipeline] | Pipeline:
    """Declare a pipeline over a function from the batch, a DataFrame, to a dict of DataFrames by topic.

    `name` is its identity: transactional id and consumer group. `source` is a topic, or several of the same `schema`;
    `sources` are several schemas, and the function gets the rows of each by name. A function that also asks for `once`
    gets a function which computes a frame a single time, so that a random column of it is the same in every output.

    Instead of a function there may be SQL: `sql` for each batch, one text or one by topic, `stream_sql` for the streams
    before they are cut into batches, where joins of streams and state work. A text names its input in braces.

    `transaction_timeout_ms` is how long a transaction may be open; readers wait that long for a driver that died,
    unless its successor comes earlier. Without it the time follows from the trigger and Spark's own time-outs (docs).
    """
    listed = [outputs] if isinstance(outputs, str) else list(outputs)
    definition = Definition(
        name=name,
        inputs=_inputs(name, source, sources, Source(source or (), None, schema, format, tombstones)),
        outputs=tuple(Output(given) if isinstance(given, str) else given for given in listed),
        registry=as_registry(registry),
        dead_letter=dead_letter,
        output_mode=output_mode,
        transaction_timeout_ms=transaction_timeout_ms,
    )
    check_definition(definition)
    if sql is None and stream_sql is None:
        return lambda transform: Pipeline(definition, transform)
    return _of_sql(definition, sql, stream_sql)


def _inputs(
    name: str, source: str | Sequence[str] | None, sources: Mapping[str, Source] | None, single: Source
) -> Mapping[str, Source]:
    if sources is None:
        if not single.topics:
            raise InvalidPipeline(f"pipeline {name} has no source", "give source= a topic")
        first = single.topics[0]
        return {first if isinstance(first, str) and first.isidentifier() else "source": single}
    if source is not None or single.schema is not None or single.format != "json" or single.tombstones:
        raise InvalidPipeline(
            f"pipeline {name} has sources=, and what else is said of a source",
            "say schema, format and tombstones of each: sources={'orders': Source('orders', schema=...)}",
        )
    if not sources:
        raise InvalidPipeline(f"pipeline {name} has no source", "give source= a topic")
    for given in sources:
        if not isinstance(given, str) or not given.isidentifier() or given == "once" or given.startswith("_"):
            raise InvalidPipeline(
                f"pipeline {name}: {given!r} cannot be the name of a source", "it is that of a parameter: `orders`"
            )
    return dict(sources)


def _of_sql(definition: Definition, sql: str | Mapping[str, str] | None, stream_sql: str | None) -> Pipeline:
    """The names in braces are those of the sources, or `rows` for what the stream step gives."""
    where, topics = f"pipeline {definition.name}", [output.topic for output in definition.outputs]
    names = list(definition.inputs) if stream_sql is None else ["rows"]
    if sql is None:
        sql = "SELECT * FROM {rows}"
    texts = {topics[0]: sql} if isinstance(sql, str) else dict(sql)
    if isinstance(sql, str) and len(topics) > 1:
        raise InvalidPipeline(f"{where} has several outputs and one SQL text", "give sql= a dict from topic to text")
    for topic in texts:
        if topic not in topics:
            raise InvalidPipeline(f"{where} has SQL for {topic!r}", f"name it in outputs= ({', '.join(topics)})")
    for text, known in [*((text, names) for text in texts.values()), (stream_sql or "", list(definition.inputs))]:
        for used in re.findall(r"(?<!\{)\{(\w+)\}(?!\})", text):
            if used not in known:
                raise InvalidPipeline(
                    f"{where}: the SQL names {{{used}}}", f"there is {', '.join(f'{{{each}}}' for each in known)}"
                )
    transform = SqlTransform(texts, tuple(names))
    return Pipeline(
        definition, transform, None if stream_sql is None else SqlStep(stream_sql, tuple(definition.inputs))
    )


@dataclasses.dataclass(frozen=True)
class SqlTransform:
    """SQL texts as the function of a pipeline; PySpark puts each frame in the place of its name in braces."""

    texts: Mapping[str, str]
    names: tuple[str, ...]

    @property
    def __signature__(self) -> inspect.Signature:
        return _signature(self.names)

    def __call__(self, *frames: Any, **named: Any) -> dict[str, Any]:
        return {topic: _selected(text, self.names, frames, named) for topic, text in self.texts.items()}


@dataclasses.dataclass(frozen=True)
class SqlStep:
    """An SQL text as the stream step."""

    text: str
    names: tuple[str, ...]

    def __call__(self, *frames: Any, **named: Any) -> Any:
        return _selected(self.text, self.names, frames, named)


def _selected(text: str, names: Sequence[str], frames: Sequence[Any], named: Mapping[str, Any]) -> Any:
    by_name = {**dict(zip(names, frames, strict=False)), **named}
    spark = next(iter(by_name.values())).sparkSession
    return spark.sql(text, **{name: frame for name, frame in by_name.items() if f"{{{name}}}" in text})


def _signature(names: Sequence[str]) -> inspect.Signature:
    return inspect.Signature([inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names])
