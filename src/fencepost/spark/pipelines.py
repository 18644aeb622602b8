"""A pipeline in a few lines: from the rows of some topics to the rows of others, exactly once.

    @pipeline("shop", source="purchases", schema="purchase_id string, amount double",
              outputs=["invoices", "shipments"], dead_letter="purchases.dlq")
    def shop(purchases):
        return {"invoices": purchases.select(...), "shipments": purchases.select(...)}

    shop.start(spark, bootstrap_servers="127.0.0.1:9092", checkpoint="/checkpoints/shop")

What is here is the declaration and its check. `processing` says what happens to a batch, `running` how it is started.
"""

import dataclasses
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from fencepost.spark.errors import FencepostSparkError
from fencepost.spark.formats import FORMATS, Schema
from fencepost.spark.registry import SchemaRegistry, as_registry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from fencepost.spark.progress import Progress
    from fencepost.spark.testing import Tested

Transform = Callable[..., Any]
OUTPUT_MODES = ("append", "update", "complete")


class InvalidPipeline(FencepostSparkError):
    """The declaration of a pipeline, or what its function gave back, cannot be."""


@dataclasses.dataclass(frozen=True)
class Output:
    """A topic to write to. `key` names the column whose text becomes the record's key; a column `_key` does it too."""

    topic: str
    key: str | None = None
    format: str = "json"
    schema: Schema = None


@dataclasses.dataclass(frozen=True)
class Source:
    """Topics to read that share a schema: one, several, or all that a pattern (a regular expression for the whole name)
    matches.

    With `tombstones` a record without a value is a row: its columns are null and `_tombstone` is true. Without, it is a
    dead letter, except in the format bytes. `options` are more options of the reader, for this source only.
    """

    topic: str | Sequence[str] | None = None
    pattern: str | None = None
    schema: Schema = None
    format: str = "json"
    tombstones: bool = False
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def topics(self) -> tuple[str, ...]:
        """Those that are known by name."""
        if self.topic is None:
            return ()
        return (self.topic,) if isinstance(self.topic, str) else tuple(self.topic)


@dataclasses.dataclass(frozen=True)
class Definition:
    """What a pipeline is, without its function."""

    name: str
    inputs: Mapping[str, Source]
    """By the names under which the function gets their rows."""
    outputs: tuple[Output, ...]
    registry: SchemaRegistry | None = None
    dead_letter: str | None = None
    output_mode: str = "append"
    transaction_timeout_ms: int | None = None

    @property
    def sources(self) -> tuple[str, ...]:
        """Every topic that it reads and that is known by name."""
        return tuple(topic for source in self.inputs.values() for topic in source.topics)

    @property
    def read_from(self) -> list[str]:
        """For people: topics and patterns."""
        patterns = [f"/{source.pattern}/" for source in self.inputs.values() if source.pattern is not None]
        return [*self.sources, *patterns]

    @property
    def topics(self) -> list[str]:
        """Every topic that it writes to."""
        written = [output.topic for output in self.outputs]
        return written if self.dead_letter is None or self.dead_letter in written else [*written, self.dead_letter]


class Pipeline:
    """A declared pipeline; the function it was made from is `transform`."""

    def __init__(self, definition: Definition, transform: Transform, stream_step: Transform | None = None) -> None:
        self.definition = definition
        self.transform = transform
        self.stream_step = stream_step
        self.sample_row: Callable[[int], Any] | None = None
        self._arguments = _arguments(transform)
        if len(definition.inputs) == 1 and len(self._arguments) not in (1, 2):
            raise InvalidPipeline(
                f"the function of pipeline {self.name} takes {len(self._arguments)} arguments",
                "it gets the batch, and `once` if it asks",
            )
        self.__doc__ = transform.__doc__
        self.__name__ = getattr(transform, "__name__", definition.name)
        self.__module__ = getattr(transform, "__module__", __name__)

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def wants_once(self) -> bool:
        return len(self._arguments) == 2 if len(self.definition.inputs) == 1 else "once" in self._arguments

    def stream(self, step: Transform) -> Transform:
        """Declare a step on the streams before they are cut into batches: the only place where joins of streams,
        watermarks and state over batches work. It gets the rows of each source, and gives back one DataFrame."""
        wanted = tuple(self.definition.inputs)
        if len(wanted) > 1 and set(_arguments(step)) != set(wanted):
            raise InvalidPipeline(
                f"the stream step of pipeline {self.name} takes ({', '.join(_arguments(step))})",
                f"it gets the rows of each source by name: ({', '.join(wanted)})",
            )
        self.stream_step = step
        return step

    def streamed(self, frames: "Mapping[str, DataFrame]") -> "DataFrame":
        """What the stream step makes of the rows of each source."""
        from pyspark.sql import DataFrame

        assert self.stream_step is not None
        made = self.stream_step(*frames.values()) if len(frames) == 1 else self.stream_step(**frames)
        if not isinstance(made, DataFrame):
            raise InvalidPipeline(
                f"the stream step of pipeline {self.name} gave back {type(made).__name__}", "give back a DataFrame"
            )
        return made

    def transformed(self, frames: "Mapping[str, DataFrame]", once: "Callable[[DataFrame], DataFrame]") -> Any:
        """What the function makes of a batch: of the rows of each source, or of what the stream step gave."""
        if len(frames) == 1:
            (frame,) = frames.values()
            return self.transform(frame, once) if self.wants_once else self.transform(frame)
        return self.transform(**frames, once=once) if self.wants_once else self.transform(**frames)

    def check_arguments(self) -> None:
        """Of a function over several sources; whether there is a stream step is known only when all is declared."""
        inputs = tuple(self.definition.inputs)
        frames = [name for name in self._arguments if name != "once"]
        if len(inputs) == 1 or (self.stream_step is not None and len(frames) == 1):
            return
        if self.stream_step is not None:
            raise InvalidPipeline(
                f"the function of pipeline {self.name} takes ({', '.join(self._arguments)})",
                "it gets what the stream step gives, one frame, and `once` if it asks",
            )
        if set(frames) != set(inputs):
            raise InvalidPipeline(
                f"the function of pipeline {self.name} takes ({', '.join(self._arguments)})",
                f"it gets the rows of each source by name, ({', '.join(inputs)}), and `once` if it asks",
            )

    def sample(self, row: Callable[[int], Any]) -> Callable[[int], Any]:
        """Declare how to make the n-th row of sample input, for `fencepost run --sample`. With several sources it gives
        back a dict from source to row."""
        self.sample_row = row
        return row

    def start(
        self,
        spark: "SparkSession",
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
    ) -> "StreamingQuery":
        """Start the query and return it, as `writeStream.start()` does.

        `trigger` is what `DataStreamWriter.trigger` takes, for example `{"processingTime": "10 seconds"}` or
        `{"availableNow": True}`. `kafka` are options of the client (TLS, SASL), for reading and writing.
        `source_bootstrap_servers` is the cluster that is read, if it is not the one that is written; options of its
        client are `kafka.*` in `source_options`.
        """
        from fencepost.spark.starting import StartOptions, start

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

    def progress(self, query: "StreamingQuery") -> "list[Progress]":
        """The last batches of a query that this process has started: Spark's own report of each, with the rows that
        were written and where its transaction stands, which Spark has no place for."""
        from fencepost.spark.progress import progress_of

        return [progress_of(self.name, reported) for reported in query.recentProgress]

    def test(self, spark: "SparkSession", *batches: "Sequence[Any] | Mapping[str, Sequence[Any]]") -> "Tested":
        """Run micro-batches of rows through the pipeline without a broker, and give back what it would have written.

        A row is a dict, which is encoded first, or str or bytes, taken as the record's value as it is, or None, a
        tombstone; `fencepost.spark.testing.Record(row, key=...)` gives it a key, headers or a topic. With several
        sources a batch is a dict from source to rows.
        """
        from fencepost.spark.testing import run_test

        return run_test(self, spark, batches)

    def __call__(self, *arguments: Any) -> Any:
        """The plain function."""
        return self.transform(*arguments)

    def __repr__(self) -> str:
        sources, topics = ", ".join(self.definition.read_from), ", ".join(self.definition.topics)
        return f"<pipeline {self.name}: {sources} -> {topics}>"


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
    _check(definition)
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


def _check(definition: Definition) -> None:
    if not definition.name or not isinstance(definition.name, str):
        raise InvalidPipeline("a pipeline needs a name", "it is its transactional id and consumer group")
    where = f"pipeline {definition.name}"
    if not definition.outputs:
        raise InvalidPipeline(f"{where} has no outputs", "give outputs= one topic or more")
    topics = [output.topic for output in definition.outputs]
    for topic in (*definition.sources, *definition.topics):
        if not isinstance(topic, str) or not topic:
            raise InvalidPipeline(f"{where}: {topic!r} is no topic")
    for topic in topics:
        if topics.count(topic) > 1:
            raise InvalidPipeline(f"{where} names the output {topic} twice")
        if topic in definition.sources:
            raise InvalidPipeline(f"{where} writes to its own source {topic}", "it would never come to an end")
    for topic in definition.sources:
        if definition.sources.count(topic) > 1:
            raise InvalidPipeline(f"{where} reads {topic} twice", "use the frame of one source twice instead")
    if definition.dead_letter in (*topics, *definition.sources):
        raise InvalidPipeline(
            f"{where}: the dead-letter topic {definition.dead_letter} is also a source or an output",
            "give dead letters a topic of their own",
        )
    for name, source in definition.inputs.items():
        _check_source(f"{where}, source {name}", source, definition.topics)
    for name in (*(each.format for each in definition.inputs.values()), *(each.format for each in definition.outputs)):
        if name not in FORMATS:
            raise InvalidPipeline(f"{where}: {name!r} is no format", f"take one of {', '.join(FORMATS)}")
    if definition.output_mode not in OUTPUT_MODES:
        raise InvalidPipeline(
            f"{where}: {definition.output_mode!r} is no output mode", f"take one of {', '.join(OUTPUT_MODES)}"
        )


def _check_source(where: str, source: Source, written: Sequence[str]) -> None:
    if bool(source.topics) == (source.pattern is not None):
        raise InvalidPipeline(f"{where}: one of topic and pattern is needed", "Source('orders') or Source(pattern=...)")
    if source.pattern is None:
        return
    try:
        matched = [topic for topic in written if re.fullmatch(source.pattern, topic)]
    except re.error as error:
        raise InvalidPipeline(f"{where}: {source.pattern!r} is no regular expression: {error}") from None
    if matched:
        raise InvalidPipeline(
            f"{where}: the pattern {source.pattern!r} matches {matched[0]}, which the pipeline writes",
            "it would never come to an end: make the pattern narrower",
        )


def _arguments(function: Transform) -> tuple[str, ...]:
    """The names of the parameters that have to be given."""
    return tuple(
        parameter.name
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        and parameter.default is parameter.empty
    )
