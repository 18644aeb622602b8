"""The options of `write_stream`, and what those are told who ask for a writer of another kind."""

import pytest

from fencepost.spark.errors import FencepostSparkError, NotSupported
from fencepost.spark.requirements import refuse_trigger
from fencepost.spark.stream_writing import instead_of_stream_writer, instead_of_writer, parse_stream_options

GIVEN = {"kafka.bootstrap.servers": "kafka:9092", "checkpointLocation": "/c/shop", "name": "shop", "topic": "invoices"}


def test_options_are_those_of_sparks_kafka_sink() -> None:
    wanted = parse_stream_options(
        {**GIVEN, "kafka.acks": "all", "processingTime": "1 second", "outputMode": "update", "max_writers": 2}
    )
    assert (wanted.name, wanted.bootstrap_servers, wanted.checkpoint) == ("shop", "kafka:9092", "/c/shop")
    assert (wanted.topic, wanted.output_mode) == ("invoices", "update")
    assert (wanted.trigger, wanted.kafka, wanted.sink) == (
        {"processingTime": "1 second"}, {"kafka.acks": "all"}, {"max_writers": 2},
    )  # fmt: skip
    assert parse_stream_options({**GIVEN, "trigger": {"availableNow": True}}).trigger == {"availableNow": True}


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"checkpointLocation": ""}, "'checkpointLocation' is missing"),
        ({"kafka.bootstrap.servers": ""}, "'kafka.bootstrap.servers' is missing"),
        ({"name": ""}, "'name' is missing. Give name='shop'"),
        ({"topics": "a"}, "Did you mean 'topic'"),
        ({"checkpoint": "a"}, "Did you mean 'checkpointLocation'"),
        ({"gizmo": "a"}, "'gizmo' is not known to write_stream"),
        ({"continuous": "1 second"}, "continuous trigger has no micro-batches"),
        ({"trigger": {"realTime": "5 minutes"}}, "real-time mode"),
        ({"asyncProgressTrackingEnabled": "true"}, "asynchronous progress tracking is on"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(changed, match) -> None:
    with pytest.raises(FencepostSparkError, match=match):
        parse_stream_options({**GIVEN, **changed})


def test_triggers_with_micro_batches_are_fit() -> None:
    for trigger in ({}, {"availableNow": True}, {"processingTime": "1 second"}, {"continuous": None}):
        refuse_trigger(trigger)


def test_the_answer_to_a_writer_is_the_line_to_write() -> None:
    asked = {
        "kafka.bootstrap.servers": "kafka:9092",
        "checkpointlocation": "/c/shop",
        "topic": "invoices",
        "kafka.sasl.password": "hush",
    }
    answer = instead_of_stream_writer(asked)
    assert isinstance(answer, NotSupported)
    line = answer.advice.partition("query = fencepost.spark.write_stream(df, **")[2].removesuffix(")")
    filled = eval(line)
    assert filled == {
        "kafka.bootstrap.servers": "kafka:9092",
        "checkpointLocation": "/c/shop",
        "topic": "invoices",
        "kafka.sasl.password": "...",
        "name": "...",
    }
    assert parse_stream_options({**filled, "name": "shop"}).topic == "invoices"
    once = instead_of_writer(asked).advice
    assert "write_exactly_once(df, '...', run_id='...', bootstrap_servers='kafka:9092', topic='invoices'" in once
    assert "hush" not in str(answer) + once
