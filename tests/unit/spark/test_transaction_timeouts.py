"""How long a transaction may be open when nobody has said it."""

import pytest

from fencepost.spark.transaction_timeouts import UNBOUNDED, Trigger, derived, given, time_ms


@pytest.mark.parametrize(
    ("trigger", "network", "expected_ms", "rule"),
    [
        (Trigger(), "120s", 180_000, "spark.network.timeout + spark.network.timeoutInterval"),
        (Trigger(10_000), "120s", 180_000, "spark.network.timeout + spark.network.timeoutInterval"),
        (Trigger(600_000), "120s", 600_000, "the trigger's interval"),
        (Trigger(), "10min", 660_000, "spark.network.timeout + spark.network.timeoutInterval"),
        (Trigger(is_once=True), "120s", 900_000, "one batch of any size"),
    ],
)
def test_it_follows_from_the_trigger_and_from_when_spark_gives_an_executor_up(
    trigger: Trigger, network: str, expected_ms: int, rule: str
) -> None:
    found = derived(trigger, network, "60s")
    assert (found.ms, found.rule) == (expected_ms, rule)


def test_the_broker_limits_what_is_derived_and_not_what_is_given() -> None:
    assert UNBOUNDED.at_most(60_000).ms == 60_000
    assert "transaction.max.timeout.ms" in str(UNBOUNDED.at_most(60_000))
    assert UNBOUNDED.at_most(None) == UNBOUNDED.at_most(900_000) == UNBOUNDED
    assert given(120_000).at_most(60_000) == given(120_000)


@pytest.mark.parametrize(
    ("text", "expected"), [("120s", 120_000), ("120", 120_000), ("2 min", 120_000), ("1H", 3_600_000), ("5ms", 5)]
)
def test_times_are_read_as_spark_reads_them(text: str, expected: int) -> None:
    assert time_ms(text, "s") == expected


def test_what_is_not_a_time_is_told() -> None:
    with pytest.raises(ValueError, match="'soon' is not a time"):
        time_ms("soon", "s")
