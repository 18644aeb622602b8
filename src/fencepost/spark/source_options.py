"""The options of the source, under the names and with the meaning of Spark's own Kafka source.

Pure: from a map of strings to `SourceOptions`, or an error that says which option and what to write instead.
"""

import dataclasses
import difflib
import json
import re
from collections.abc import Mapping
from typing import Any

from fencepost.client.kafka_types import IsolationLevel
from fencepost.spark.source_errors import InvalidSourceOption
from fencepost.spark.source_settings import (
    BOOTSTRAP_SERVERS,
    FETCH_MAX_WAIT_MS,
    ISOLATION_LEVEL,
    PARTITION_MAX_BYTES,
    PREFIX,
    client_options,
)
from fencepost.topic_partition import TopicPartition

DEFAULT_MAX_OFFSETS_PER_TRIGGER = 10_000_000
"""A batch has to fit into a transaction's time-out, when it is replayed after a day of backlog, too."""
DEFAULT_MAX_TRIGGER_DELAY_MS = 15 * 60 * 1000
DEFAULT_PARTITION_MAX_BYTES = 4 * 1024 * 1024
DEFAULT_FETCH_MAX_WAIT_MS = 500
DEFAULT_DATA_LOSS_TIMEOUT_MS = 120_000

LATEST, EARLIEST = -1, -2
"""In the JSON of offsets; as timestamps they mean the same to a broker."""


@dataclasses.dataclass(frozen=True, slots=True)
class Subscription:
    """Exactly one of the three is there."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    partitions: tuple[TopicPartition, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Bound:
    """Where reading starts or ends: an offset or a timestamp for all partitions, or for each.

    -1 and -2 are Kafka's latest and earliest in both.
    """

    option: str
    is_timestamp: bool = False
    everywhere: int | None = None
    each: Mapping[TopicPartition, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class SourceOptions:
    bootstrap_servers: str
    client: Mapping[str, Any]
    subscription: Subscription
    starting: Bound
    ending: Bound
    unmatched_timestamp_is_latest: bool
    isolation_level: IsolationLevel
    partition_max_bytes: int
    max_wait_ms: int
    data_loss_timeout_ms: int
    min_partitions: int | None
    max_records_per_partition: int | None
    max_offsets_per_trigger: int
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    fail_on_data_loss: bool
    include_headers: bool


_OPTIONS = (
    "subscribe", "subscribePattern", "assign", "startingOffsets", "endingOffsets", "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp", "startingTimestamp", "endingTimestamp", "startingOffsetsByTimestampStrategy",
    "minPartitions", "maxRecordsPerPartition", "minOffsetsPerTrigger", "maxOffsetsPerTrigger", "maxTriggerDelay",
    "failOnDataLoss", "includeHeaders", "groupIdPrefix", "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)  # fmt: skip
_STRATEGIES = ("subscribe", "subscribePattern", "assign")


def parse_source_options(given: Mapping[str, str], *, is_streaming: bool | None) -> SourceOptions:
    """`is_streaming` is None as long as nobody knows: when the schema is asked for."""
    options = {name.lower(): value for name, value in given.items()}
    _refuse_misspelt(options)
    client = client_options(options)
    servers = options.get(PREFIX + BOOTSTRAP_SERVERS, "").strip()
    if not servers:
        raise InvalidSourceOption(
            "Option 'kafka.bootstrap.servers' must be specified for configuring Kafka consumer.",
            "Add .option('kafka.bootstrap.servers', 'host:port').",
        )
    starting = _bound(options, "starting", LATEST if is_streaming else EARLIEST)
    ending = _bound(options, "ending", LATEST)
    if is_streaming:
        _refuse_ending(options)
    elif is_streaming is not None:
        _check_batch(starting, ending)
    least, most = _positive(options, "minOffsetsPerTrigger"), _positive(options, "maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        raise InvalidSourceOption(
            f"The value of minOffsetsPerTrigger({least}) is higher than the maxOffsetsPerTrigger({most}).",
            "Lower the one or raise the other.",
        )
    strategy = options.get("startingoffsetsbytimestampstrategy", "error").strip().lower()
    if strategy not in ("error", "latest"):
        raise InvalidSourceOption(
            f"Unsupported startingOffsetsByTimestampStrategy '{strategy}'.", "Write 'error' or 'latest'."
        )
    return SourceOptions(
        bootstrap_servers=servers,
        client=client,
        subscription=_subscription(options),
        starting=starting,
        ending=ending,
        unmatched_timestamp_is_latest=strategy == "latest",
        isolation_level=_isolation_level(options),
        partition_max_bytes=_positive(options, PREFIX + PARTITION_MAX_BYTES) or DEFAULT_PARTITION_MAX_BYTES,
        max_wait_ms=_positive(options, PREFIX + FETCH_MAX_WAIT_MS) or DEFAULT_FETCH_MAX_WAIT_MS,
        data_loss_timeout_ms=_positive(options, "kafkaConsumer.pollTimeoutMs") or DEFAULT_DATA_LOSS_TIMEOUT_MS,
        min_partitions=_positive(options, "minPartitions"),
        max_records_per_partition=_positive(options, "maxRecordsPerPartition"),
        max_offsets_per_trigger=most or max(DEFAULT_MAX_OFFSETS_PER_TRIGGER, least or 0),
        min_offsets_per_trigger=least,
        max_trigger_delay_ms=_duration_ms(options, "maxTriggerDelay", DEFAULT_MAX_TRIGGER_DELAY_MS),
        fail_on_data_loss=_flag(options, "failOnDataLoss", default=True),
        include_headers=_flag(options, "includeHeaders", default=False),
    )


def _refuse_misspelt(options: Mapping[str, str]) -> None:
    """Spark ignores options it does not know, and so do we, unless they look like one that was meant."""
    known = {name.lower(): name for name in _OPTIONS}
    for name in options:
        if name in known or name.startswith(PREFIX):
            continue
        near = difflib.get_close_matches(name, known, 1, cutoff=0.85)
        if near:
            raise InvalidSourceOption(f"Option '{name}' is not known.", f"Did you mean '{known[near[0]]}'?")


# What to read


def _subscription(options: Mapping[str, str]) -> Subscription:
    chosen = [name for name in _STRATEGIES if name.lower() in options]
    if not chosen:
        raise InvalidSourceOption(
            f"One of the following options must be specified for Kafka source: {', '.join(_STRATEGIES)}.",
            "Add .option('subscribe', 'topic').",
        )
    if len(chosen) > 1:
        raise InvalidSourceOption(
            f"Only one of the following options can be specified for Kafka source: {', '.join(_STRATEGIES)}.",
            f"Remove one of {', '.join(chosen)}.",
        )
    (name,) = chosen
    value = options[name.lower()].strip()
    if name == "subscribe":
        topics = tuple(dict.fromkeys(topic.strip() for topic in value.split(",") if topic.strip()))
        if not topics:
            raise InvalidSourceOption(
                f"No topics to subscribe to as specified value for option 'subscribe' is '{value}'.", "Name a topic."
            )
        return Subscription(topics=topics)
    if name == "subscribePattern":
        try:
            re.compile(value)
        except re.error as error:
            raise InvalidSourceOption(
                f"Option 'subscribePattern' is not a regular expression: {error}.", "It must match whole topic names."
            ) from None
        if not value:
            raise InvalidSourceOption("Pattern to subscribe is empty.", "Write a regular expression.")
        return Subscription(pattern=value)
    found = _by_topic(name, value, '{"topicA":[0,1],"topicB":[0,1]}')
    partitions = []
    for topic, numbers in found.items():
        if not isinstance(numbers, list) or not all(isinstance(number, int) for number in numbers):
            raise _not_json(name, value, '{"topicA":[0,1],"topicB":[0,1]}')
        partitions += [TopicPartition(topic, number) for number in numbers]
    if not partitions:
        raise InvalidSourceOption(f"No topic partitions to assign as option 'assign' is '{value}'.", "Name some.")
    return Subscription(partitions=tuple(sorted(set(partitions))))


def _by_topic(name: str, text: str, example: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise _not_json(name, text, example)
    return found


def _not_json(name: str, text: str, example: str) -> InvalidSourceOption:
    return InvalidSourceOption(f"Option '{name}': expected e.g. {example}, got {text}.", "Write it as JSON.")


# Where to start and to end


def _bound(options: Mapping[str, str], side: str, default: int) -> Bound:
    """Spark's order: a timestamp for all, then timestamps, then offsets."""
    everywhere, by_timestamp, offsets = f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets"
    if everywhere.lower() in options:
        return Bound(everywhere, is_timestamp=True, everywhere=_timestamp(options, everywhere))
    if by_timestamp.lower() in options:
        example = '{"topicA":{"0":1767225600000},"topicB":{"0":-2}}'
        each = _each(by_timestamp, options[by_timestamp.lower()].strip(), example)
        return Bound(by_timestamp, is_timestamp=True, each=each)
    text = options.get(offsets.lower(), "").strip()
    if not text:
        return Bound(offsets, everywhere=default)
    if text.lower() in ("latest", "earliest"):
        return Bound(offsets, everywhere=LATEST if text.lower() == "latest" else EARLIEST)
    return Bound(offsets, each=_each(offsets, text, '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'))


def _each(name: str, text: str, example: str) -> dict[TopicPartition, int]:
    each = {}
    for topic, by_partition in _by_topic(name, text, example).items():
        if not isinstance(by_partition, dict):
            raise _not_json(name, text, example)
        for partition, number in by_partition.items():
            if not partition.isdecimal() or not isinstance(number, int) or number < EARLIEST:
                raise _not_json(name, text, example)
            each[TopicPartition(topic, int(partition))] = number
    return each


def _timestamp(options: Mapping[str, str], name: str) -> int:
    text = options[name.lower()].strip()
    if not text.isdecimal():
        raise InvalidSourceOption(f"Option '{name}' is '{text}'.", "Write milliseconds since 1970.")
    return int(text)


def _refuse_ending(options: Mapping[str, str]) -> None:
    for name in ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"):
        if name.lower() in options:
            what = "timestamp" if name == "endingTimestamp" else "offset"
            raise InvalidSourceOption(
                f"ending {what} not valid in streaming queries", f"Remove '{name}', or use spark.read."
            )


def _check_batch(starting: Bound, ending: Bound) -> None:
    for bound, side, refused, word in (
        (starting, "starting", LATEST, "latest"),
        (ending, "ending", EARLIEST, "earliest"),
    ):
        if bound.is_timestamp:
            continue
        if bound.everywhere == refused:
            raise InvalidSourceOption(
                f"{side} offset can't be {word} for batch queries on Kafka", f"Write another '{bound.option}'."
            )
        for partition, offset in bound.each.items():
            if offset == refused:
                raise InvalidSourceOption(
                    f"{bound.option} for {partition} can't be {word} for batch queries on Kafka",
                    "Write another offset.",
                )


# Single values


def _isolation_level(options: Mapping[str, str]) -> IsolationLevel:
    text = options.get(PREFIX + ISOLATION_LEVEL, "read_committed").strip()
    try:
        return IsolationLevel[text.upper()]
    except KeyError:
        raise InvalidSourceOption(
            f"Kafka option '{ISOLATION_LEVEL}' is '{text}'.", "Write 'read_committed' or 'read_uncommitted'."
        ) from None


def _positive(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name.lower())
    if text is None:
        return None
    if not text.strip().isdecimal() or int(text) == 0:
        raise InvalidSourceOption(f"Option '{name}' is '{text}'.", "It must be a positive number.")
    return int(text)


def _flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = options.get(name.lower(), str(default)).strip().lower()
    if text not in ("true", "false"):
        raise InvalidSourceOption(f"Option '{name}' is '{text}'.", "Write 'true' or 'false'.")
    return text == "true"


_UNITS_MS = {
    "us": 0.001, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "": 1,
}  # fmt: skip


def _duration_ms(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name.lower())
    if text is None:
        return default
    found = re.fullmatch(r"(\d+)\s*([a-z]*)", text.strip().lower())
    if found is None or found[2] not in _UNITS_MS:
        raise InvalidSourceOption(f"Option '{name}' is '{text}'.", "Write a time such as '30s', '15m' or '1h'.")
    return int(int(found[1]) * _UNITS_MS[found[2]])
