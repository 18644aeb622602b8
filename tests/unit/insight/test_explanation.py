"""Healthy or stuck, and what to do next: the rules, without a broker."""

import pytest

from fencepost.insight.causes import read_cause
from fencepost.insight.cluster_view import PartitionOffsets, java_hash
from fencepost.insight.command_line import CommandLine
from fencepost.insight.explanation import (
    NEVER_MS,
    Coordinator,
    Holder,
    IdFacts,
    PartitionFacts,
    client_of,
    judge_id,
    judge_partition,
    spark_words,
)
from fencepost.topic_partition import TopicPartition

NOW_MS = 1_000_000
HERE = CommandLine(("--bootstrap-server", "kafka:9093", "--command-config", "/etc/my clients.properties"))
THERE = "--bootstrap-server kafka:9093 --command-config '/etc/my clients.properties'"
AT = TopicPartition("purchases", 0)


def coordinator(state: str = "Ongoing", timeout_ms: int = 60_000, age_ms: int = 20_000) -> Coordinator:
    return Coordinator("billing team", state, 7, 3, timeout_ms, NOW_MS - age_ms, 1, (AT,))


def facts(known: Coordinator | None, waiting: int = 2, hanging: str | None = None) -> PartitionFacts:
    holder = Holder(AT, 7, 3, 4, NOW_MS - 20_000, 3, known, hanging)
    return PartitionFacts(AT, PartitionOffsets(0, 4, 10), 1, waiting, 3, (holder,))


def id_facts(known: Coordinator, *parts: PartitionFacts) -> IdFacts:
    return IdFacts(known, list(parts), [], None)


def test_readers_that_wait_long_are_stuck_and_others_are_not() -> None:
    assert judge_partition(facts(coordinator()), NOW_MS, 10_000, HERE).is_stuck
    assert not judge_partition(facts(coordinator()), NOW_MS, 30_000, HERE).is_stuck
    nobody_waits = judge_partition(facts(coordinator(), waiting=0), NOW_MS, 10_000, HERE)
    assert (nobody_waits.is_stuck, nobody_waits.reason) == (False, "readers are at billing team, open for 20.0 s")


def test_an_abort_is_offered_past_the_time_out_and_carries_how_the_cluster_was_reached() -> None:
    judged = judge_partition(facts(coordinator(age_ms=61_000)), NOW_MS, 10_000, HERE)
    assert judged.is_abort_offered
    assert judged.next_command == f"fencepost txn abort 'billing team' {THERE}"
    without_records = judge_id(id_facts(coordinator(age_ms=61_000)), NOW_MS, 10_000, HERE)
    assert without_records.is_abort_offered
    assert without_records.next_command == judged.next_command


@pytest.mark.parametrize("age_ms", [500, 20_000, 59_000])
@pytest.mark.parametrize("timeout_ms", [60_000, NEVER_MS])
def test_no_abort_is_offered_while_a_client_may_be_at_work(age_ms: int, timeout_ms: int) -> None:
    known = coordinator(timeout_ms=timeout_ms, age_ms=age_ms)
    for judged in (
        judge_partition(facts(known), NOW_MS, 10_000, HERE),
        judge_partition(facts(known, waiting=0), NOW_MS, 10_000, HERE),
        judge_id(id_facts(known, facts(known)), NOW_MS, 10_000, HERE),
        judge_id(id_facts(known), NOW_MS, 10_000, HERE),
    ):
        assert not judged.is_abort_offered
        assert "abort" not in (judged.next_command or "")


def test_a_healthy_transaction_has_no_command_and_a_stuck_one_its_history() -> None:
    healthy = judge_partition(facts(coordinator(age_ms=500)), NOW_MS, 10_000, HERE)
    assert (healthy.is_stuck, healthy.next_command) == (False, None)
    stuck = judge_partition(facts(coordinator()), NOW_MS, 10_000, HERE)
    assert stuck.next_command == f"fencepost explain --id --history 'billing team' {THERE}"
    assert "aborts it in about 40 s" in stuck.next_text
    assert "ask the client before you abort it" in stuck.next_text


def test_a_name_that_looks_like_an_option_is_pasted_as_a_name() -> None:
    assert HERE("txn", "abort", argument="--execute") == f"fencepost txn abort {THERE} -- --execute"
    assert CommandLine()("txn", "describe", argument="x") == "fencepost txn describe x --bootstrap-server HOST:PORT"


def test_a_transaction_past_its_time_out_is_stuck_even_if_nobody_waits() -> None:
    judged = judge_partition(facts(coordinator(age_ms=61_000), waiting=0), NOW_MS, 100_000, HERE)
    assert judged.is_stuck
    assert "its timeout has passed" in judged.next_text


def test_a_two_phase_transaction_never_times_out() -> None:
    judged = judge_partition(facts(coordinator(timeout_ms=NEVER_MS, age_ms=900_000)), NOW_MS, 10_000, HERE)
    assert "ask its transaction manager" in judged.next_text


def test_a_decided_transaction_is_not_aborted() -> None:
    judged = judge_partition(facts(coordinator("PrepareCommit")), NOW_MS, 10_000, HERE)
    assert judged.is_stuck
    assert "is decided (PrepareCommit) and lacks markers in purchases-0" in judged.reason
    assert judged.next_command == f"fencepost txn describe 'billing team' {THERE}"


def test_what_hangs_is_ended_in_its_partition() -> None:
    judged = judge_partition(facts(None, hanging="no coordinator knows its producer id"), NOW_MS, 10_000, HERE)
    assert judged.is_stuck
    assert judged.next_command == f"fencepost txn abort --topic purchases --partition 0 --start-offset 4 {THERE}"
    assert judged.is_abort_offered


def test_what_a_cluster_hides_is_said_to_be_hidden() -> None:
    hidden = PartitionFacts(AT, PartitionOffsets(0, 4, 10), 1, 2, 3, (), "TOPIC_AUTHORIZATION_FAILED")
    judged = judge_partition(hidden, NOW_MS, 0, HERE)
    assert judged.is_stuck
    assert "2 records wait, but the cluster does not show for whom: TOPIC_AUTHORIZATION_FAILED" in judged.reason


def test_a_quiet_partition_and_a_quiet_id_are_healthy() -> None:
    quiet = PartitionFacts(AT, PartitionOffsets(0, 10, 10), 1, 0, 0, ())
    assert not judge_partition(quiet, NOW_MS, 0, HERE).is_stuck
    assert not judge_id(id_facts(coordinator("CompleteCommit")), NOW_MS, 0, HERE).is_stuck
    ending = PartitionFacts(AT, PartitionOffsets(0, 4, 10), 1, 2, 0, ())
    assert judge_partition(ending, NOW_MS, 0, HERE).reason == "the last transaction is being completed"


def test_an_id_is_judged_by_the_partition_where_most_wait() -> None:
    parts = facts(coordinator(), waiting=0), facts(coordinator(), waiting=5)
    assert "5 records wait" in judge_id(id_facts(coordinator(), *parts), NOW_MS, 10_000, HERE).reason
    assert judge_id(id_facts(coordinator(age_ms=70_000)), NOW_MS, 10_000, HERE).is_stuck


def test_the_client_of_an_epoch_is_the_last_one_that_got_it() -> None:
    entries = [
        {"event": "ProducerInitialised", "time_ms": 1, "transactional_id": "x", "producer_id": 7, "producer_epoch": 0,
         "client_id": "first", "client_host": "a"},
        {"event": "ProducerFenced", "time_ms": 2, "transactional_id": "x", "producer_id": 7, "old_epoch": 0,
         "new_producer_id": 7, "new_epoch": 2, "cause": "TAKEOVER", "client_id": "second", "client_host": "b"},
    ]  # fmt: skip
    causes = [cause for cause in map(read_cause, entries) if cause is not None]
    assert [client_of(causes, epoch) for epoch in (0, 1, 2, 9)] == [
        "first at a",
        "first at a",
        "second at b",
        "second at b",
    ]
    assert client_of(None, 0) is None


@pytest.mark.parametrize(
    "entry", [None, [], {"event": "CallRefused"}, {"event": "CallRefused", "transactional_id": "x"}]
)
def test_what_is_no_cause_is_left_out(entry: object) -> None:
    assert read_cause(entry) is None


def test_a_spark_pipeline_is_named_by_its_client_id() -> None:
    assert spark_words("spark/app-1/a/b/17 at host") == "Spark application app-1, pipeline a/b, batch 17"
    assert spark_words("consumer-1 at host") is None
    assert spark_words(None) is None


@pytest.mark.parametrize(
    ("text", "partition"),
    [("my-group", 12), ("kafka-txn-0", 30), ("tx-1", 20), ("test", 48), ("", 0), ("\U0001f600", 49)],
)
def test_coordinator_partitions_are_those_of_kafka(text: str, partition: int) -> None:
    assert java_hash(text) % 50 == partition
