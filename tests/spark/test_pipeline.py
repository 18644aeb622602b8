"""Pipelines without a broker: `pipeline.test` runs the same plans as a query does."""

import datetime
import decimal
import json
from typing import Any

import pytest

from tests.support.extras import require_arrow

require_arrow()
pytest.importorskip("pyspark.sql.streaming.datasource", reason="pipelines need PySpark 4.2")

from pyspark.errors import PySparkException  # noqa: E402
from pyspark.sql import functions as F  # noqa: E402

from fencepost.examples.balances import balances  # noqa: E402
from fencepost.examples.shop import purchase, shop  # noqa: E402
from fencepost.examples.transfers import transfer, transfers  # noqa: E402
from fencepost.spark import Output, pipeline  # noqa: E402
from fencepost.spark.avro_format import encode_datum  # noqa: E402
from fencepost.spark.errors import FencepostSparkError  # noqa: E402
from fencepost.spark.schema_registry import SchemaRegistry  # noqa: E402
from fencepost.spark.testing import Record  # noqa: E402
from tests.spark.fake_registry import FakeRegistry  # noqa: E402

pytestmark = pytest.mark.timeout(900)


def test_the_shop_invoices_and_ships_every_purchase_with_the_same_random_id(spark: Any) -> None:
    written = shop.test(spark, [purchase(number) for number in range(20)])
    invoices, shipments = written["invoices"], written["shipments"]
    assert sorted(row["purchase_id"] for row in invoices) == [f"purchase-{number:06}" for number in range(20)]
    assert {row["purchase_id"]: row["shipment_id"] for row in invoices} == {
        row["purchase_id"]: row["shipment_id"] for row in shipments
    }
    assert len({row["shipment_id"] for row in invoices}) == 20
    assert {record.key for record in written.records["invoices"]} == {row["purchase_id"].encode() for row in invoices}
    assert written.dead_letters == []


def test_what_does_not_parse_or_fit_goes_to_the_dead_letters_whole_and_with_the_reason(spark: Any) -> None:
    bad = {
        b'{"purchase_id": "a"': "the value is not JSON",
        b"": "the value is empty",
        b"\xff\xfe": "the value is not UTF-8 text",
        b'[{"purchase_id": "a"}]': "the value is JSON that does not fit the schema",
        b'{"purchase_id": "a", "customer": "b", "quantity": "many"}': "the field quantity is not int: many",
        b'{"purchase_id": "a", "customer": "b", "quantity": 3000000000}': "the field quantity is not int: 3000000000",
        b'{"purchase_id": "a"}': "the field customer is missing or null",
        b'{"purchase_id": "a", "customer": "b"} {"purchase_id": "c"}': "the value is not JSON",
        b'{"purchase_id": "a", "customer": "b"}, {"purchase_id": "c"}': "the value is more than one JSON document",
    }
    too_large = {**purchase(2), "item": "x" * 2_000_000}
    written = shop.test(spark, [purchase(1), *bad, None, too_large])
    assert [row["purchase_id"] for row in written["shipments"]] == [purchase(1)["purchase_id"]]
    parse_failures = [letter for letter in written.dead_letters if "fencepost.part" not in letter.headers]
    assert len(parse_failures) == len(bad) + 1
    for letter in parse_failures:
        expected = "the value is null" if letter.raw is None else bad[letter.raw]
        assert (letter.reason or "").startswith(expected)
        assert letter.headers["fencepost.topic"] == b"purchases"
        assert letter.headers["fencepost.pipeline"] == b"shop"
    offsets = {int(letter.headers["fencepost.offset"] or b"-1") for letter in parse_failures}
    assert offsets == set(range(1, len(bad) + 2))
    parts = [letter for letter in written.dead_letters if "fencepost.part" in letter.headers]
    parts.sort(key=lambda letter: letter.headers["fencepost.part"] or b"")
    assert json.loads(b"".join(letter.raw or b"" for letter in parts))["item"] == too_large["item"]
    assert all((letter.reason or "").startswith("too large for shipments") for letter in parts)
    assert {letter.key for letter in parts} == {too_large["purchase_id"].encode()}
    offset = str(len(bad) + 2).encode()
    for letter in parts:
        assert letter.headers["fencepost.topic"] == b"purchases"
        assert letter.headers["fencepost.partition"] == b"0"
        assert letter.headers["fencepost.offset"] == offset


def test_without_a_dead_letter_topic_a_bad_row_fails_the_batch_and_is_named(spark: Any) -> None:
    @pipeline("strict", source="numbers", schema="n int NOT NULL", outputs="doubled")
    def strict(numbers: Any) -> Any:
        return numbers.select((F.col("n") * 2).alias("n"), F.lit("k").alias("_key"))

    written = strict.test(spark, [{"n": 1}, {"n": 2}])
    assert written["doubled"] == [{"n": 2}, {"n": 4}]
    assert [record.key for record in written.records["doubled"]] == [b"k", b"k"]
    with pytest.raises(PySparkException, match="record numbers-0 at offset 1: the field n is missing"):
        strict.test(spark, [{"n": 1}, {"m": 2}])


def test_a_json_row_that_does_not_fit_names_the_field_and_decimals_are_never_rounded(spark: Any) -> None:
    @pipeline(
        "prices",
        source="prices",
        schema="id string, price decimal(9,2), tags array<int>, at struct<day: date, zone: struct<hours: int>>, "
        "rates map<string, decimal(4,1)>",
        outputs="checked",
        dead_letter="prices.dlq",
    )
    def prices(rows: Any) -> Any:
        return rows.drop("_record")

    rows = {
        '{"id": "a", "price": 12.340}': None,
        '{"id": "b", "price": 1234e-2, "tags": null}': None,
        '{"id": "c", "price": "7.5", "rates": {"x": 1.50}}': None,
        '{"id": "d", "price": 12.345}': "the field price has more digits behind the point than decimal(9,2) keeps",
        '{"id": "e", "price": "12.345"}': "the field price has more digits behind the point than decimal(9,2) keeps",
        '{"id": "f", "price": 12345e-3}': "the field price has more digits behind the point than decimal(9,2) keeps",
        '{"id": "g", "price": 12345678.9}': "the field price is not decimal(9,2): 1.23456789E7",
        '{"id": "h", "rates": {"x": 1.25}}': "the field rates has more digits behind the point than map",
        '{"id": "i", "tags": [1, "two"]}': 'the field tags is not array<int>: [1,"two"]',
        '{"id": "j", "at": {"day": "soon"}}': "the field at.day is not date: soon",
        '{"id": "k", "at": {"zone": {"hours": {}}}}': "the field at.zone.hours is not int: {}",
        '{"id": "l", "at": 7}': "the field at is not struct<day:date,zone:struct<hours:int>>: 7",
        "[1]": "the value is JSON that does not fit the schema id string",
    }
    written = prices.test(spark, list(rows))
    told = {(letter.raw or b"").decode(): letter.reason for letter in written.dead_letters}
    for row, reason in rows.items():
        assert (told.get(row) is None) == (reason is None), (row, told.get(row))
        assert reason is None or (told[row] or "").startswith(reason), (row, told[row])
    # A column without a value is written as null.
    assert json.loads(written.records["checked"][0].raw or b"") == {
        "id": "a", "price": 12.34, "tags": None, "at": None, "rates": None,
    }  # fmt: skip
    assert [row["price"] for row in written["checked"]] == [12.34, 12.34, 7.5]


def test_tombstones_are_read_and_written(spark: Any) -> None:
    @pipeline("latest", source="customers", schema="name string NOT NULL", outputs="names", tombstones=True)
    def latest(customers: Any) -> Any:
        return customers.select("name", "_tombstone", F.col("_record.key").alias("_key"))

    rows = [Record({"name": "ada"}, key="1"), Record(None, key="2"), Record({"name": "x"}, key="3")]
    assert [(record.key, record.raw) for record in latest.test(spark, rows).records["names"]] == [
        (b"1", b'{"name":"ada"}'),
        (b"2", None),
        (b"3", b'{"name":"x"}'),
    ]


def test_transfers_conserve_money(spark: Any) -> None:
    written = transfers.test(spark, [transfer(number) for number in range(30)])
    amounts = [row["amount_cents"] for row in written["debits"] + written["credits"]]
    assert len(amounts) == 60
    assert sum(amounts) == 0


def test_a_stateful_step_keeps_its_sums_over_batches_and_lets_bad_rows_pass_by(spark: Any) -> None:
    rows = [transfer(number) for number in range(40)]
    written = balances.test(spark, rows[:25], [*rows[25:], b"no transfer"])
    expected: dict[str, int] = {}
    for row in rows:
        expected[row["payer"]] = expected.get(row["payer"], 0) - row["amount_cents"]
        expected[row["payee"]] = expected.get(row["payee"], 0) + row["amount_cents"]
    newest = {row["account"]: row for row in sorted(written["balances"], key=lambda row: row["entries"])}
    assert {account: row["balance_cents"] for account, row in newest.items()} == expected
    assert [letter.raw for letter in written.dead_letters] == [b"no transfer"]


def test_bytes_pass_through_as_they_are(spark: Any) -> None:
    @pipeline("copy", source="from", format="bytes", outputs=[Output("to", format="bytes")])
    def copy(records: Any) -> Any:
        return {"to": records.select("value", F.col("_record.offset").cast("string").alias("_key"))}

    written = copy.test(spark, [b"\x00\xff", None, b""])
    assert [(record.raw, record.key) for record in written.records["to"]] == [
        (b"\x00\xff", b"0"),
        (None, b"1"),
        (b"", b"2"),
    ]


PAYMENT = {
    "type": "record",
    "name": "Payment",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
RECEIPT = {"type": "record", "name": "Receipt", "fields": [PAYMENT["fields"][0], PAYMENT["fields"][4]]}
AT = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)
PAID = {"id": "p1", "amount": decimal.Decimal("12.34"), "at": AT, "tags": ["a", "b"], "note": None}


def test_avro_comes_and_goes_and_what_is_not_avro_is_a_dead_letter(spark: Any) -> None:
    @pipeline(
        "avro",
        source="payments",
        format="avro",
        schema=PAYMENT,
        outputs=[Output("receipts", format="avro", schema=json.dumps(RECEIPT)), Output("plain")],
        dead_letter="payments.dlq",
    )
    def receipts(payments: Any) -> Any:
        return {
            "receipts": payments.select("id", "note"),
            "plain": payments.select("id", F.col("amount").cast("string").alias("amount"), F.size("tags").alias("n")),
        }

    whole = encode_datum(PAYMENT, PAID)
    written = receipts.test(spark, [PAID, {**PAID, "id": "p2", "note": "x"}, whole[:3], whole + b"more"])
    assert written["receipts"] == [{"id": "p1", "note": None}, {"id": "p2", "note": "x"}]
    assert written["plain"][0] == {"id": "p1", "amount": "12.34", "n": 2}
    assert [letter.raw for letter in written.dead_letters] == [whole[:3], whole + b"more"]
    assert all("not Avro of the schema Payment" in (letter.reason or "") for letter in written.dead_letters)


def test_a_schema_registry_resolves_old_writers_and_registers_what_is_written(spark: Any) -> None:
    older = {**PAYMENT, "fields": PAYMENT["fields"][:4]}
    with FakeRegistry() as fake:
        old_id = fake.add("payments-value", json.dumps(older))
        new_id = fake.add("payments-value", json.dumps(PAYMENT))

        @pipeline(
            "registered",
            source="payments",
            format="avro",
            registry=fake.url,
            outputs=[Output("receipts", format="avro", schema=RECEIPT)],
            dead_letter="payments.dlq",
        )
        def receipts(payments: Any) -> Any:
            return payments.select("id", "note")

        header = SchemaRegistry.header
        rows = [
            header(old_id) + encode_datum(older, {name: PAID[name] for name in ("id", "amount", "at", "tags")}),
            header(new_id) + encode_datum(PAYMENT, {**PAID, "id": "p2", "note": "new"}),
            header(999) + b"whatever",
            b"no header",
        ]
        written = receipts.test(spark, rows)
        assert written["receipts"] == [{"id": "p1", "note": None}, {"id": "p2", "note": "new"}]
        reasons = [letter.reason or "" for letter in written.dead_letters]
        assert "does not know the schema id 999" in reasons[0]
        assert "does not begin with a schema id" in reasons[1]
        registered = fake.subjects["receipts-value"]
        raw = written.records["receipts"][0].raw or b""
        assert SchemaRegistry.split(raw)[0] == registered[-1]
        with pytest.raises(FencepostSparkError, match="must be bytes"):
            receipts.test(spark, [PAID])


def test_what_a_function_gives_back_is_checked(spark: Any) -> None:
    @pipeline("wrong", source="numbers", schema="n int", outputs=["one", "two"])
    def wrong(numbers: Any) -> Any:
        return {"three": numbers}

    with pytest.raises(FencepostSparkError, match="a frame for 'three'"):
        wrong.test(spark, [{"n": 1}])

    @pipeline("keyless", source="numbers", schema="n int", outputs=[Output("one", key="id")])
    def keyless(numbers: Any) -> Any:
        return numbers

    with pytest.raises(FencepostSparkError, match="has no column id for the key"):
        keyless.test(spark, [{"n": 1}])

    @pipeline("misspelt", source="numbers", schema="n integr", outputs="one")
    def misspelt(numbers: Any) -> Any:
        return numbers

    with pytest.raises(FencepostSparkError, match="is not DDL"):
        misspelt.test(spark, [{"n": 1}])
