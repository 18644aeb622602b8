"""What a pipeline declares: its sources, outputs and function. Refuses what cannot be, before anything runs."""

import dataclasses
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame

from fencepost.spark.errors import FencepostSparkError
from fencepost.spark.formats import FORMATS, Schema
from fencepost.spark.schema_registry import SchemaRegistry

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


class Declaration:
    """A pipeline as it was declared; the function it was made from is `transform`."""

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

    def __call__(self, *arguments: Any) -> Any:
        """The plain function."""
        return self.transform(*arguments)

    def __repr__(self) -> str:
        sources, topics = ", ".join(self.definition.read_from), ", ".join(self.definition.topics)
        return f"<pipeline {self.name}: {sources} -> {topics}>"


def check_definition(definition: Definition) -> None:
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
