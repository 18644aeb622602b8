"""Pipelines as far as they need no Spark: declarations, the gate between batches, progress, the audit."""

import re
import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.cli.demo.audit import judge
from fencepost.cli.run_again import delay_seconds
from fencepost.spark import batch_states
from fencepost.spark.avro_types import UnsupportedAvroType, arrow_type, spark_type
from fencepost.spark.errors import FencepostSparkError
from fencepost.spark.pipeline_progress import progress_of
from fencepost.spark.pipeline_run import cause, spark_is_lost
from fencepost.spark.pipeline_start import StartOptions, broker_timeout_ms_max, starting_offsets
from fencepost.spark.pipelines import Output, Source, pipeline
from fencepost.spark.schema_registry import SchemaRegistry, as_registry


def declared(**given: Any) -> Any:
    return pipeline("shop", **{"source": "purchases", "schema": "id string", "outputs": ["invoices"], **given})


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"outputs": []}, "has no outputs"),
        ({"source": []}, "has no source"),
        ({"outputs": ["invoices", Output("invoices")]}, "names the output invoices twice"),
        ({"outputs": ["purchases"]}, "writes to its own source"),
        ({"dead_letter": "invoices"}, "is also a source or an output"),
        ({"dead_letter": "purchases"}, "is also a source or an output"),
        ({"format": "xml"}, "'xml' is no format"),
        ({"outputs": [Output("invoices", format="csv")]}, "'csv' is no format"),
        ({"output_mode": "sometimes"}, "is no output mode"),
        ({"registry": "localhost:8081"}, "is no address of a schema registry"),
    ],
)
def test_a_declaration_that_cannot_be_is_refused_at_once(given: dict[str, Any], told: str) -> None:
    with pytest.raises(FencepostSparkError, match=told):
        declared(**given)


def test_a_function_must_take_the_batch_and_perhaps_once() -> None:
    assert declared()(lambda batch: batch).wants_once is False
    assert declared()(lambda batch, once: batch).wants_once is True
    assert declared()(lambda batch, limit=3: batch).wants_once is False
    with pytest.raises(FencepostSparkError, match="takes 3 arguments"):
        declared()(lambda batch, once, more: batch)


ORDERS = Source("orders", schema="id string")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"sources": {}}, "has no source"),
        ({"sources": {"orders": ORDERS}, "schema": "id string"}, "what else is said of a source"),
        ({"sources": {"my-orders": ORDERS}}, "'my-orders' cannot be the name"),
        ({"sources": {"once": ORDERS}}, "'once' cannot be the name"),
        ({"sources": {"orders": Source(schema="id string")}}, "one of topic and pattern is needed"),
        ({"sources": {"orders": Source("orders", pattern="o.*")}}, "one of topic and pattern is needed"),
        ({"sources": {"orders": Source(pattern="o(")}}, "is no regular expression"),
        ({"sources": {"orders": Source(pattern="inv.*")}}, "matches invoices, which the pipeline writes"),
        ({"sources": {"orders": ORDERS, "again": ORDERS}}, "reads orders twice"),
        ({"sources": {"orders": ORDERS}, "sql": "SELECT * FROM {order}"}, "the SQL names {order}"),
        ({"sources": {"orders": ORDERS}, "sql": {"x": "SELECT 1"}}, "has SQL for 'x'"),
        ({"sources": {"orders": ORDERS}, "outputs": ["a", "b"], "sql": "SELECT 1"}, "several outputs and one SQL text"),
        ({"sources": {"orders": ORDERS}, "stream_sql": "SELECT 1", "sql": "SELECT * FROM {orders}"}, "{orders}"),
    ],
)
def test_sources_and_sql_that_cannot_be_are_refused_at_once(given: dict[str, Any], told: str) -> None:
    with pytest.raises(FencepostSparkError, match=re.escape(told)):
        pipeline("shop", **{"outputs": ["invoices"], **given})


def test_with_several_sources_parameters_are_their_names() -> None:
    def declared_over(function: Any) -> Any:
        sources = {"orders": ORDERS, "payments": Source("payments", schema="id string")}
        return pipeline("shop", sources=sources, outputs=["invoices"])(function)

    declared_over(lambda payments, once, orders: None).check_arguments()
    with pytest.raises(FencepostSparkError, match=r"takes \(orders, other\).*rows of each source by name"):
        declared_over(lambda orders, other: None).check_arguments()
    with_step = declared_over(lambda rows, once: None)
    with pytest.raises(FencepostSparkError, match=r"stream step of pipeline shop takes \(orders\)"):
        with_step.stream(lambda orders: None)
    with_step.stream(lambda orders, payments: None)
    with_step.check_arguments()
    assert with_step.wants_once


def test_each_source_gets_its_part_of_the_starting_offsets() -> None:
    given = '{"orders": {"0": 5}, "returns.eu": {"0": 7}}'
    assert starting_offsets(given, ORDERS) == '{"orders": {"0": 5}}'
    assert starting_offsets(given, Source(pattern="returns.*")) == '{"returns.eu": {"0": 7}}'
    assert starting_offsets(given, Source("others")) == "earliest"
    assert starting_offsets("latest", ORDERS) == "latest"


def test_a_pipeline_is_still_the_function_it_was_made_from() -> None:
    @declared(dead_letter="purchases.dlq")
    def shop(batch: Any) -> Any:
        """Sells."""
        return [batch]

    assert shop(1) == [1]
    assert (shop.__name__, shop.__doc__) == ("shop", "Sells.")
    assert shop.definition.topics == ["invoices", "purchases.dlq"]


def test_credentials_in_the_address_of_a_registry_do_not_stay_in_it() -> None:
    assert as_registry("https://us%40er:s%3Acret@host:8081/path") == SchemaRegistry(
        "https://host:8081/path", "us@er", "s:cret"
    )
    assert "s:cret" not in repr(as_registry("https://user:s%3Acret@host"))
    assert SchemaRegistry.split(SchemaRegistry.header(513) + b"x") == (513, b"x")


def test_avro_types_become_spark_types() -> None:
    schema = {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
            {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
            {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A"]}},
            {"name": "other", "type": "Kind"},
            {"name": "lines", "type": {"type": "array", "items": {"type": "map", "values": ["null", "double"]}}},
            {"name": "wide", "type": ["int", "long"]},
        ],
    }
    assert spark_type(schema).simpleString() == (
        "struct<id:bigint,price:decimal(9,2),at:timestamp,kind:string,other:string,"
        "lines:array<map<string,double>>,wide:bigint>"
    )
    assert [field.nullable for field in spark_type(schema).fields] == [False, False, True, False, False, False, False]
    assert str(arrow_type(spark_type(schema))) == (
        "struct<id: int64, price: decimal128(9, 2), at: timestamp[us, tz=UTC], kind: string, other: string, "
        "lines: list<item: map<string, double>>, wide: int64>"
    )
    loop = {"type": "record", "name": "Tree", "fields": [{"name": "child", "type": ["null", "Tree"]}]}
    with pytest.raises(UnsupportedAvroType, match="Tree holds itself"):
        spark_type(loop)
    with pytest.raises(UnsupportedAvroType, match="union of int, string"):
        spark_type({"type": "record", "name": "R", "fields": [{"name": "u", "type": ["int", "string"]}]})


def test_a_closed_gate_holds_the_next_batch_until_the_run_ends() -> None:
    batch_states.reset("gated")
    batch_states.enter("gated", 0)
    assert batch_states.is_inside("gated")
    batch_states.close_gate("gated")
    batch_states.leave("gated", replayed=False, rows_out={"invoices": 5, "shipments": 2})
    outcome: list[str] = []

    def next_batch() -> None:
        try:
            batch_states.enter("gated", 1)
        except batch_states.Held as error:
            outcome.append(str(error))

    waiting = threading.Thread(target=next_batch)
    waiting.start()
    batch_states.end("gated")
    waiting.join()
    assert outcome == ["pipeline gated was stopped before batch 1 began"]
    state = batch_states.state("gated")
    assert (state.batch, state.transaction) == (0, "committed")
    assert batch_states.outcome("gated", 0).rows_out == {"invoices": 5, "shipments": 2}
    assert batch_states.outcome("gated", 1).transaction == "none"


def test_progress_tells_the_rows_of_each_batch_even_if_later_ones_have_ended_meanwhile() -> None:
    batch_states.reset("counting")
    for batch, rows_out in enumerate(({"invoices": 5, "shipments": 5}, {"invoices": 3}, {})):
        batch_states.enter("counting", batch)
        batch_states.leave("counting", replayed=batch == 2, rows_out=rows_out)
    reports = [SimpleNamespace(batchId=batch, numInputRows=7, sources=[], batchDuration=9) for batch in range(3)]
    told = [progress_of("counting", report) for report in reports]
    assert [each.rows_out for each in told] == [10, 3, 0]
    assert [each.transaction for each in told] == ["committed", "committed", "skipped"]
    assert told[0].rows_by_topic == {"invoices": 5, "shipments": 5}
    assert told[1].committed_at_ms is not None
    assert told[2].committed_at_ms is None


def test_progress_tells_the_lag_over_all_partitions() -> None:
    batch_states.reset("lagging")
    source = SimpleNamespace(
        latestOffset='{"purchases": {"0": 10, "1": 7}}',
        endOffset='{"purchases": {"0": 4, "1": 7}, "@start:purchases": {"0": 0}}',
    )
    reported = SimpleNamespace(batchId=3, numInputRows=4, sources=[source], batchDuration=120)
    assert progress_of("lagging", reported).lag == 6
    silent = SimpleNamespace(latestOffset=None, endOffset="{}")
    reported = SimpleNamespace(batchId=3, numInputRows=4, sources=[silent], batchDuration=120)
    assert progress_of("lagging", reported).lag is None


def test_restarts_wait_longer_each_time_and_are_bounded() -> None:
    assert [delay_seconds(failures, 7) for failures in range(1, 9)] == [1, 2, 4, 8, 16, 30, 30, None]
    assert delay_seconds(1, 0) is None


def test_only_what_happened_to_spark_itself_is_worth_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(_gateway=SimpleNamespace(proc=process)))
        slow = "Python worker failed to connect back"
        not_found = "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: fencepost."
        monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", sys.executable)
        assert spark_is_lost(spark, RuntimeError(f"[STREAM_FAILED] {slow}.")) is not None
        assert spark_is_lost(spark, RuntimeError(not_found)) is not None
        assert spark_is_lost(spark, RuntimeError("fencepost.spark.errors.BatchRefused: batch 3 ...")) is None
        assert spark_is_lost(spark, ValueError("the rate of today is not known")) is None
        monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "/usr/bin/python-without-fencepost")
        assert spark_is_lost(spark, RuntimeError(not_found)) is None
        process.kill()
        process.wait()
        assert spark_is_lost(spark, ConnectionRefusedError()) == "Spark's Java process has died (SIGKILL)"


def test_the_cause_of_a_failed_query_is_one_line() -> None:
    text = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Traceback (most recent call last):
  File "clientserver.py", line 644, in _call_proxy
fencepost.client.errors.BrokerUnreachable: cannot reach it
The above exception was the direct cause of the following exception:
fencepost.spark.errors.WriteFailed: batch 0 was not written: it is gone. Start it again
 SQLSTATE: 39000 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: shop [id = 1]
a.b.Other: no"""
    assert cause(ValueError(text)) == "batch 0 was not written: it is gone. Start it again"
    assert cause(ValueError("plain SQLSTATE: 39000")) == "plain"
    assert cause(ValueError()) == "ValueError"


def test_the_audit_counts_what_is_wrong() -> None:
    def rows(*pairs: tuple[str, str]) -> list[dict[str, str]]:
        return [{"purchase_id": purchase, "shipment_id": shipment} for purchase, shipment in pairs]

    good = judge("ab", rows(("a", "1"), ("b", "2")), rows(("b", "2"), ("a", "1")))
    assert good.is_exactly_once
    bad = judge("abcde", rows(("a", "1"), ("a", "1"), ("b", "2"), ("c", "3")), rows(("a", "1"), ("b", "9"), ("d", "4")))
    assert (bad.lost, bad.duplicated, bad.torn, bad.disagreeing) == (1, 1, 2, 1)
    assert not bad.is_exactly_once
    assert not judge("a", rows(("a", "1")), rows(("a", "1")), dead_letters=1).is_exactly_once


def test_a_broker_that_is_away_when_a_query_has_just_started_does_not_end_it() -> None:
    """Its maximum is wanted for people to read."""
    options = StartOptions("127.0.0.1:1", "checkpoint", kafka={"kafka.retry.timeout.ms": "100"})
    assert broker_timeout_ms_max(options) is None
