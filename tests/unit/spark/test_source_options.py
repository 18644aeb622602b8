"""The options of the source: Spark's names and meaning, and an error with the next step for what is wrong."""

import re
from pathlib import Path
from typing import Any

import pytest

from fencepost.client.kafka_types import IsolationLevel
from fencepost.spark import source_settings
from fencepost.spark.source_errors import InvalidSourceOption
from fencepost.spark.source_options import EARLIEST, LATEST, SourceOptions, parse_source_options
from fencepost.topic_partition import TopicPartition

DOCS = Path(__file__).parents[3] / "docs" / "spark-source-options.md"


def parse(is_streaming: bool = True, **options: str) -> SourceOptions:
    named = {name.replace("__", "."): value for name, value in options.items()}
    return parse_source_options({"kafka.bootstrap.servers": "host:1", **named}, is_streaming=is_streaming)


def test_defaults_are_those_of_spark_but_for_what_is_committed_and_a_cap() -> None:
    options = parse(subscribe="a, b")
    assert options.subscription.topics == ("a", "b")
    assert options.starting.everywhere == LATEST
    assert options.isolation_level == IsolationLevel.READ_COMMITTED
    assert options.fail_on_data_loss
    assert not options.include_headers
    assert options.max_offsets_per_trigger == 10_000_000
    assert parse(is_streaming=False, subscribe="a").starting.everywhere == EARLIEST


def test_offsets_and_timestamps_are_read_from_json() -> None:
    options = parse(subscribe="a", startingOffsets='{"a":{"0":23,"1":-2}}')
    assert options.starting.each == {TopicPartition("a", 0): 23, TopicPartition("a", 1): EARLIEST}
    options = parse(assign='{"a":[0,2]}', startingOffsets="earliest", startingOffsetsByTimestamp='{"a":{"0":5}}')
    assert options.subscription.partitions == (TopicPartition("a", 0), TopicPartition("a", 2))
    assert options.starting.is_timestamp
    assert options.starting.each == {TopicPartition("a", 0): 5}
    options = parse(subscribePattern="a.*", startingTimestamp="77", startingOffsetsByTimestamp="{}")
    assert options.starting.is_timestamp
    assert options.starting.everywhere == 77


def test_client_options_reach_the_client() -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p";'
    options = parse(
        subscribe="a",
        kafka__security__protocol="SASL_PLAINTEXT",
        kafka__sasl__mechanism="PLAIN",
        kafka__sasl__jaas__config=jaas,
        kafka__default__api__timeout__ms="500",
        kafka__session__timeout__ms="6000",
        kafka__isolation__level="read_uncommitted",
    )
    assert options.client == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": jaas,
        "retry.timeout.ms": "500",
    }
    assert options.isolation_level == IsolationLevel.READ_UNCOMMITTED


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "One of the following options must be specified"),
        ({"subscribe": "a", "assign": '{"a":[0]}'}, "Only one of the following options can be specified"),
        ({"subscribe": " , "}, "No topics to subscribe to"),
        ({"subscribePattern": "("}, "not a regular expression"),
        ({"assign": '{"a":0}'}, 'expected e.g. {"topicA":[0,1]'),
        ({"subscribe": "a", "startingOffsets": "erliest"}, 'expected e.g. {"topicA":{"0":23'),
        ({"subscribe": "a", "startingOffsets": '{"a":{"0":-3}}'}, "expected e.g."),
        ({"subscribe": "a", "startingOffset": "earliest"}, "Did you mean 'startingOffsets'?"),
        ({"subscribe": "a", "startingTimestamp": "today"}, "milliseconds since 1970"),
        ({"subscribe": "a", "endingOffsets": "latest"}, "ending offset not valid in streaming queries"),
        ({"subscribe": "a", "endingTimestamp": "1"}, "ending timestamp not valid in streaming queries"),
        ({"subscribe": "a", "maxOffsetsPerTrigger": "0"}, "positive"),
        ({"subscribe": "a", "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "is higher than"),
        ({"subscribe": "a", "maxTriggerDelay": "soon"}, "'30s'"),
        ({"subscribe": "a", "failOnDataLoss": "no"}, "'true' or 'false'"),
        ({"subscribe": "a", "startingOffsetsByTimestampStrategy": "best"}, "'error' or 'latest'"),
        ({"subscribe": "a", "kafka__auto__offset__reset": "earliest"}, "set the source option 'startingOffsets'"),
        ({"subscribe": "a", "kafka__securty__protocol": "SSL"}, "Did you mean 'kafka.security.protocol'?"),
        ({"subscribe": "a", "kafka__security__protocol": "TLS"}, "choose from PLAINTEXT"),
        ({"subscribe": "a", "kafka__isolation__level": "committed"}, "'read_committed' or"),
        ({"subscribe": "a", "kafka__request__timeout__ms": "soon"}, "not a number of milliseconds"),
    ],
)
def test_what_is_wrong_is_named_with_what_to_write(options: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidSourceOption, match=re.escape(words[0])) as raised:
        parse(**options)
    assert words.lower() in str(raised.value).lower()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOffsets": "latest"}, "starting offset can't be latest for batch queries on Kafka"),
        ({"endingOffsets": "earliest"}, "ending offset can't be earliest for batch queries on Kafka"),
        ({"startingOffsets": '{"a":{"0":-1}}'}, "startingOffsets for a-0 can't be latest"),
        ({"endingOffsets": '{"a":{"0":-2}}'}, "endingOffsets for a-0 can't be earliest"),
    ],
)
def test_a_batch_read_needs_bounds_it_can_have(options: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidSourceOption) as raised:
        parse(is_streaming=False, subscribe="a", **options)
    assert words in str(raised.value)


def test_bootstrap_servers_are_needed() -> None:
    with pytest.raises(InvalidSourceOption, match=r"kafka\.bootstrap\.servers"):
        parse_source_options({"subscribe": "a"}, is_streaming=True)


def test_options_that_spark_ignores_are_ignored() -> None:
    assert parse(subscribe="a", somethingElse="1").subscription.topics == ("a",)


@pytest.mark.parametrize(("text", "expected"), [("15m", 900_000), ("2h", 7_200_000), ("250 ms", 250), ("9", 9)])
def test_times_are_written_as_in_spark(text: str, expected: int) -> None:
    assert parse(subscribe="a", maxTriggerDelay=text).max_trigger_delay_ms == expected


def test_every_kafka_option_is_in_the_documents() -> None:
    named = set(re.findall(r"`kafka\.([a-z0-9.]+)`", DOCS.read_text()))
    known: set[Any] = set(source_settings.KNOWN)
    assert named == known
