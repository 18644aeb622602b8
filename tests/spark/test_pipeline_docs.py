"""The pipelines of docs/pipelines.md, word for word."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.extras import require_arrow

require_arrow()
pytest.importorskip("pyspark.sql.streaming.datasource", reason="pipelines need PySpark 4.2")

from fencepost.spark.testing import Record  # noqa: E402
from tests.spark.sessions import spark_session  # noqa: E402

pytestmark = pytest.mark.timeout(900)
DOCS = Path(__file__).parents[2] / "docs" / "pipelines.md"


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with spark_session() as session:
        yield session


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
