"""`write_stream`: a stream into Kafka, with the options of Spark's own Kafka sink, exactly once.

    write_stream(df, **{"kafka.bootstrap.servers": "kafka:9092", "topic": "invoices", "checkpointLocation": "/c/shop"},
                 name="shop")

Also says what to write to those who ask for `writeStream.format("fencepost")`: Spark's interface for sinks in Python
has no call before the tasks of a batch begin, so a transaction cannot be opened in time (docs/pipelines.md).
"""

import dataclasses
import difflib
from collections.abc import Mapping
from typing import Any

from fencepost.spark.errors import FencepostSparkError, NotSupported
from fencepost.spark.requirements import refuse_asynchronous_progress, refuse_trigger

SERVERS, TOPIC, CHECKPOINT, NAME = "kafka.bootstrap.servers", "topic", "checkpointLocation", "name"
_SINK_OPTIONS = ("transaction_timeout_ms", "max_writers", "adopt")
_TRIGGERS = ("processingTime", "availableNow", "once", "continuous", "realTime")
_KNOWN = (SERVERS, TOPIC, CHECKPOINT, NAME, "queryName", "trigger", "includeHeaders", "asyncProgressTrackingEnabled")
_ALL = (*_KNOWN, *_SINK_OPTIONS, *_TRIGGERS, "outputMode")
_SECRETS = ("password", "secret", "token", "jaas", ".key", ".pem")


@dataclasses.dataclass(frozen=True, slots=True)
class StreamOptions:
    name: str
    bootstrap_servers: str
    checkpoint: str
    topic: str | None
    output_mode: str
    trigger: Mapping[str, Any]
    kafka: Mapping[str, Any]
    sink: Mapping[str, Any]


def write_stream(df: Any, **options: Any) -> Any:
    """The running query. Options are those of `writeStream.format("kafka")`, under the same names: `topic`,
    `checkpointLocation`, `kafka.bootstrap.servers` and all `kafka.*`; further `trigger` (what `.trigger()` takes, as a
    dict, or by its own names), `outputMode`, and `name`, which becomes the query's name, the transactional id and the
    group of the input offsets. `transaction_timeout_ms`, `max_writers` and `adopt` are those of `exactly_once`.
    """
    wanted = parse_stream_options(options)
    # Spark's process that looks for data sources loads this module, too, and needs no sink.
    from fencepost.spark.sink import exactly_once

    sink = exactly_once(
        wanted.name,
        wanted.bootstrap_servers,
        topic=wanted.topic,
        kafka=wanted.kafka,
        checkpoint=wanted.checkpoint,
        **wanted.sink,
    )
    writer = (
        df.writeStream.foreachBatch(sink)
        .outputMode(wanted.output_mode)
        .queryName(wanted.name)
        .option(CHECKPOINT, wanted.checkpoint)
    )
    if wanted.trigger:
        writer = writer.trigger(**wanted.trigger)
    return writer.start()


def parse_stream_options(options: Mapping[str, Any]) -> StreamOptions:
    """Pure. Raises what is missing or cannot be, before anything starts."""
    canonical = {name.lower(): name for name in _ALL}
    given: dict[str, Any] = {}
    kafka: dict[str, Any] = {}
    for name, value in options.items():
        known = canonical.get(name.lower())
        if known is not None:
            given[known] = value
        elif name.lower().startswith("kafka."):
            kafka[name] = value
        else:
            near = difflib.get_close_matches(name.lower(), canonical, 1)
            advice = f"did you mean {canonical[near[0]]!r}?" if near else f"known are {', '.join(_ALL)} and kafka.*"
            raise FencepostSparkError(f"option {name!r} is not known to write_stream", advice)
    refuse_asynchronous_progress(given)
    for name, example in ((SERVERS, "'host:port'"), (CHECKPOINT, "'/a/directory/that/stays'")):
        if not given.get(name):
            raise FencepostSparkError(f"option {name!r} is missing", f"give {{{name!r}: {example}}}")
    query = given.get(NAME) or given.get("queryName")
    if not query:
        raise FencepostSparkError(
            "option 'name' is missing",
            "give name='shop', say: it becomes the transactional id and the group of the input offsets, and must not "
            "change while the checkpoint is in use",
        )
    trigger = dict(given.get("trigger") or {})
    trigger |= {kind: given[kind] for kind in _TRIGGERS if given.get(kind) is not None}
    refuse_trigger(trigger)
    return StreamOptions(
        name=str(query),
        bootstrap_servers=str(given[SERVERS]),
        checkpoint=str(given[CHECKPOINT]),
        topic=given.get(TOPIC),
        output_mode=str(given.get("outputMode", "append")),
        trigger=trigger,
        kafka=kafka,
        sink={option: given[option] for option in _SINK_OPTIONS if option in given},
    )


def instead_of_stream_writer(options: Mapping[str, str]) -> NotSupported:
    """What `writeStream.format("fencepost")` answers: the line to write, with the options that were given."""
    shown = {TOPIC: "...", CHECKPOINT: "...", SERVERS: "...", NAME: "...", **_shown(options)}
    listed = ", ".join(f"{name!r}: {value!r}" for name, value in shown.items())
    return NotSupported(
        'writeStream.format("fencepost") cannot be exactly once: Spark tells a Python sink of a batch only when its '
        "tasks have begun to write",
        f"write instead: query = fencepost.spark.write_stream(df, **{{{listed}}})",
    )


def instead_of_writer(options: Mapping[str, str]) -> NotSupported:
    """What `df.write.format("fencepost")` answers."""
    shown = _shown(options)
    kafka = {name: value for name, value in shown.items() if name.startswith("kafka.") and name != SERVERS}
    listed = [
        f"df, {shown.get(NAME, '...')!r}",
        "run_id='...'",
        f"bootstrap_servers={shown.get(SERVERS, '...')!r}",
        f"topic={shown.get(TOPIC, '...')!r}",
        *([f"kafka={kafka!r}"] if kafka else []),
    ]
    return NotSupported(
        'write.format("fencepost") cannot be exactly once: Spark tells a Python sink of a job only when its tasks have '
        "begun to write, and a job has no number by which a second run of it could be known",
        f"write instead: fencepost.spark.write_exactly_once({', '.join(listed)}), where run_id says which load it is",
    )


def _shown(options: Mapping[str, str]) -> dict[str, str]:
    """Under the names that `write_stream` has; Spark gives them in lower case. Secrets stay where they are."""
    canonical = {name.lower(): name for name in _ALL}
    shown = {}
    for name, value in options.items():
        if name.lower() != "path":
            is_secret = any(word in name.lower() for word in _SECRETS)
            shown[canonical.get(name.lower(), name)] = "..." if is_secret else value
    return shown
