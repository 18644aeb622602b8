"""A pipeline in a few lines: from the rows of a topic to the rows of others, exactly once.

    @pipeline("shop", source="purchases", schema="purchase_id string, amount double",
              outputs=["invoices", "shipments"], dead_letter="purchases.dlq")
    def shop(purchases):
        return {"invoices": purchases.select(...), "shipments": purchases.select(...)}

    shop.start(spark, bootstrap_servers="127.0.0.1:9092", checkpoint="/checkpoints/shop")

What is here is the declaration and its check. `processing` says what happens to a batch, `running` how it is started.
"""

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fencepost.spark.errors import FencepostSparkError
from fencepost.spark.formats import FORMATS, Schema
from fencepost.spark.registry import SchemaRegistry, as_registry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

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
class Definition:
    """What a pipeline is, without its function."""

    name: str
    sources: tuple[str, ...]
    outputs: tuple[Output, ...]
    schema: Schema = None
    format: str = "json"
    registry: SchemaRegistry | None = None
    dead_letter: str | None = None
    output_mode: str = "append"

    @property
    def topics(self) -> list[str]:
        """Every topic that it writes to."""
        written = [output.topic for output in self.outputs]
        return written if self.dead_letter is None or self.dead_letter in written else [*written, self.dead_letter]


class Pipeline:
    """A declared pipeline; the function it was made from is `transform`."""

    def __init__(self, definition: Definition, transform: Transform) -> None:
        self.definition = definition
        self.transform = transform
        self.wants_once = _wants_once(definition.name, transform)
        self.stateful_step: Callable[[DataFrame], DataFrame] | None = None
        self.sample_row: Callable[[int], Any] | None = None
        self.__doc__ = transform.__doc__
        self.__name__ = getattr(transform, "__name__", definition.name)
        self.__module__ = getattr(transform, "__module__", __name__)

    @property
    def name(self) -> str:
        return self.definition.name

    def stateful(self, step: "Callable[[DataFrame], DataFrame]") -> "Callable[[DataFrame], DataFrame]":
        """Declare a step on the stream before it is cut into batches: the only place where state over batches works."""
        self.stateful_step = step
        return step

    def sample(self, row: Callable[[int], Any]) -> Callable[[int], Any]:
        """Declare how to make the n-th row of sample input, for `fencepost run --sample`."""
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

    def test(self, spark: "SparkSession", *batches: Sequence[Any]) -> "Tested":
        """Run micro-batches of rows through the pipeline without a broker, and give back what it would have written.

        A row is a dict, which is encoded first, or str or bytes, taken as the record's value as it is.
        """
        from fencepost.spark.testing import run_test

        return run_test(self, spark, batches)

    def __call__(self, *arguments: Any) -> Any:
        """The plain function."""
        return self.transform(*arguments)

    def __repr__(self) -> str:
        sources, topics = ", ".join(self.definition.sources), ", ".join(self.definition.topics)
        return f"<pipeline {self.name}: {sources} -> {topics}>"


def pipeline(
    name: str,
    *,
    source: str | Sequence[str],
    outputs: Sequence[str | Output] | str,
    schema: Schema = None,
    format: str = "json",
    registry: SchemaRegistry | str | None = None,
    dead_letter: str | None = None,
    output_mode: str = "append",
) -> Callable[[Transform], Pipeline]:
    """Declare a pipeline over a function from the batch, a DataFrame, to a dict of DataFrames by topic.

    `name` is its identity: transactional id and consumer group. A function with a second parameter gets `once`, which
    computes a frame a single time, so that a random column of it is the same in every output.
    """
    listed = [outputs] if isinstance(outputs, str) else list(outputs)
    definition = Definition(
        name=name,
        sources=(source,) if isinstance(source, str) else tuple(source),
        outputs=tuple(Output(given) if isinstance(given, str) else given for given in listed),
        schema=schema,
        format=format,
        registry=as_registry(registry),
        dead_letter=dead_letter,
        output_mode=output_mode,
    )
    _check(definition)
    return lambda transform: Pipeline(definition, transform)


def _check(definition: Definition) -> None:
    if not definition.name or not isinstance(definition.name, str):
        raise InvalidPipeline("a pipeline needs a name", "it is its transactional id and consumer group")
    where = f"pipeline {definition.name}"
    if not definition.sources:
        raise InvalidPipeline(f"{where} has no source", "give source= a topic")
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
    if definition.dead_letter in (*topics, *definition.sources):
        raise InvalidPipeline(
            f"{where}: the dead-letter topic {definition.dead_letter} is also a source or an output",
            "give dead letters a topic of their own",
        )
    for name in (definition.format, *(output.format for output in definition.outputs)):
        if name not in FORMATS:
            raise InvalidPipeline(f"{where}: {name!r} is no format", f"take one of {', '.join(FORMATS)}")
    if definition.output_mode not in OUTPUT_MODES:
        raise InvalidPipeline(
            f"{where}: {definition.output_mode!r} is no output mode", f"take one of {', '.join(OUTPUT_MODES)}"
        )


def _wants_once(name: str, transform: Transform) -> bool:
    parameters = [
        parameter
        for parameter in inspect.signature(transform).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        and parameter.default is parameter.empty
    ]
    if len(parameters) not in (1, 2):
        raise InvalidPipeline(
            f"the function of pipeline {name} takes {len(parameters)} arguments",
            "it gets the batch, and `once` if it asks",
        )
    return len(parameters) == 2
