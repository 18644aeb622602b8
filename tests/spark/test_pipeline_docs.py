"""The pipelines of docs/pipelines.md, word for word."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.extras import require_arrow

require_arrow()
pytest.importorskip("pyspark.sql.streaming.datasource", reason="pipelines need PySpark 4.2")

from fencepost.cli.demo.audit import read_all  # noqa: E402
from fencepost.client.blocking import Admin, Producer  # noqa: E402
from fencepost.client.kafka_types import NewTopic  # noqa: E402
from fencepost.spark.testing import Record  # noqa: E402
from tests.peers.broker_process import BrokerProcess  # noqa: E402
from tests.peers.fencepost_process import FencepostProcess  # noqa: E402
from tests.peers.kafka import ApacheKafka  # noqa: E402
from tests.spark.sessions import finished  # noqa: E402
from tests.spark.sink_scene import read  # noqa: E402

pytestmark = pytest.mark.timeout(900)
DOCS = Path(__file__).parents[2] / "docs" / "pipelines.md"


def shown(file: str) -> dict[str, Any]:
    """What a file of the docs declares."""
    (text,) = re.findall(rf"```python\n(# {re.escape(file)}\n.*?)```", DOCS.read_text(), re.DOTALL)
    declared: dict[str, Any] = {"__name__": f"docs_{file.removesuffix('.py')}"}
    exec(compile(text, file, "exec"), declared)
    return declared


def test_the_first_pipeline_and_its_test(spark: Any) -> None:
    shop = shown("shop.py")["shop"]
    (text,) = re.findall(r"```python\n(def test_shop.*?)```", DOCS.read_text(), re.DOTALL)
    declared = {"shop": shop}
    exec(text, declared)
    declared["test_shop"](spark)


def test_several_sources_and_a_pattern(spark: Any) -> None:
    hub = shown("hub.py")["hub"]
    written = hub.test(
        spark,
        {
            "orders": [{"order_id": "1", "amount_cents": 5}, {"order_id": "2"}, b"no order"],
            "returns": [
                Record({"order_id": "1", "reason": "broken"}, topic="returns.eu"),
                Record("{}", topic="returns.us"),
            ],
        },
    )
    assert sorted((row["order_id"], row["kind"]) for row in written["bookings"]) == [
        ("1", "order"),
        ("1", "return"),
        ("2", "order"),
    ]
    assert sorted((letter.headers["fencepost.topic"], letter.reason) for letter in written.dead_letters) == [
        (b"orders", "the value is not JSON"),
        (b"returns.us", "the field order_id is missing or null"),
    ]


def test_two_streams_are_joined_over_batches(spark: Any) -> None:
    paid = shown("paid.py")["paid"]
    made = [paid.sample_row(number) for number in range(4)]
    orders, payments = [row["orders"] for row in made], [row["payments"] for row in made]
    written = paid.test(
        spark,
        {"orders": orders[:3], "payments": payments[2:]},
        {"orders": orders[3:], "payments": [*payments[:2], b"no payment"]},
    )
    assert sorted((row["order_id"], row["amount_cents"], row["method"]) for row in written["paid-orders"]) == [
        (str(number), 100 * number, "card") for number in range(4)
    ]
    assert [letter.raw for letter in written.dead_letters] == [b"no payment"]


def test_a_stream_is_joined_with_a_table(spark: Any, tmp_path: Path) -> None:
    declared = shown("named.py")
    table = str(tmp_path / "customers")
    spark.createDataFrame([("1", "ada")], "customer_id string, name string").write.parquet(table)
    declared["CUSTOMERS"] = table
    written = declared["named"].test(spark, [{"customer_id": "1", "page": "/"}, {"customer_id": "2", "page": "/x"}])
    assert sorted((row["customer_id"], row["name"]) for row in written["named-visits"]) == [("1", "ada"), ("2", None)]


def test_sql_takes_the_place_of_a_function(spark: Any) -> None:
    declared = shown("by_sql.py")
    written = declared["large"].test(
        spark, [{"purchase_id": "1", "price_cents": 12000}, {"purchase_id": "2", "price_cents": 5}]
    )
    assert written["large-purchases"] == [{"purchase_id": "1", "price_cents": 12000, "price": 120.0}]
    assert written["small-purchases"] == [{"purchase_id": "2", "price_cents": 5}]
    written = declared["counts"].test(spark, [{"page": "/"}, {"page": "/"}], [{"page": "/"}])
    assert [row["clicks"] for row in written["clicks-by-page"]] == [2, 3]


def test_tombstones_pass(spark: Any) -> None:
    written = shown("latest.py")["latest"].test(spark, [Record({"name": "ada"}, key="1"), Record(None, key="2")])
    assert [(record.key, record.raw) for record in written.records["names"]] == [
        (b"1", b'{"name":"ADA"}'),
        (b"2", None),
    ]


@pytest.mark.parametrize("kind", [FencepostProcess, ApacheKafka], ids=["fencepost", "apache"])
def test_on_a_broker_all_sources_and_outputs_of_a_batch_are_one_transaction(
    spark: Any, tmp_path: Path, kind: type[BrokerProcess]
) -> None:
    hub, paid, latest = shown("hub.py")["hub"], shown("paid.py")["paid"], shown("latest.py")["latest"]
    large = shown("by_sql.py")["large"]
    with kind() as broker:
        servers = broker.bootstrap_servers
        with Admin(servers) as admin:
            for topic in (
                "orders", "returns.eu", "returns.us", "bookings", "hub.dlq", "payments", "paid-orders", "paid.dlq",
                "customers", "names", "purchases", "large-purchases", "small-purchases",
            ):  # fmt: skip
                admin.create_topic(NewTopic(topic, 2))
        with Producer(servers) as producer:
            for number in range(6):
                made = paid.sample_row(number)
                producer.send("orders", json.dumps(made["orders"]).encode(), partition=number % 2)
                producer.send("payments", json.dumps(made["payments"]).encode(), partition=number % 2)
            for topic in ("returns.eu", "returns.us"):
                producer.send(topic, b'{"order_id": "1"}')
            producer.send("returns.us", b"nothing")
            producer.send("payments", b"nothing")
            producer.send("customers", b'{"name": "ada"}', key=b"1")
            producer.send("customers", None, key=b"1")
            for price in (12000, 5):
                producer.send("purchases", b'{"purchase_id": "1", "price_cents": %d}' % price)

        observed: dict[str, Any] = {}

        def run(pipeline: Any) -> list[Any]:
            query = finished(
                lambda: pipeline.start(
                    spark,
                    bootstrap_servers=servers,
                    checkpoint=str(tmp_path / pipeline.name),
                    trigger={"availableNow": True},
                )
            )
            observed.update(query.recentProgress[0].observedMetrics)
            return [each for each in pipeline.progress(query) if each.transaction != "none" and each.rows_in]

        assert [(each.rows_in, each.rows_out) for each in run(hub)] == [(9, 9)]
        kinds = [json.loads(value)["kind"] for value in read_all(servers, "bookings")]
        assert sorted(kinds) == ["order"] * 6 + ["return"] * 2
        assert read_all(servers, "hub.dlq") == [b"nothing"]
        joined = run(paid)
        assert [(each.rows_in, each.rows_by_topic) for each in joined] == [(13, {"paid-orders": 6, "paid.dlq": 1})]
        ids = [json.loads(value)["order_id"] for value in read_all(servers, "paid-orders")]
        assert sorted(ids) == [str(number) for number in range(6)]
        # In Spark's own report, too.
        assert observed["fencepost.payments"].asDict() == {"rows_in": 7, "dead_letters": 1}
        assert observed["fencepost.returns"].asDict() == {"rows_in": 3, "dead_letters": 1}
        assert joined[0].transaction == "committed"
        assert joined[0].transaction_ms > 0
        assert [each.rows_by_topic for each in run(large)] == [{"large-purchases": 1, "small-purchases": 1}]
        run(latest)
        assert [(seen.key, seen.value) for seen in read(servers, ["names"], "read_committed")] == [
            (b"1", b'{"name":"ADA"}'),
            (b"1", None),
        ]
        with Admin(servers) as admin:
            reached = admin.committed_offsets("hub")
            ends = {where.topic: 0 for where in reached}
            for where, committed in reached.items():
                ends[where.topic] += committed.offset
        assert ends == {"orders": 6, "returns.eu": 1, "returns.us": 2}
