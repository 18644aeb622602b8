"""PostgreSQL as a source: rows, changes, types, transactions, refusals, against a real server."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fencepost import Broker
from fencepost.client import UnknownTopic
from fencepost.client.partitioner import partition_of_key
from fencepost.connect.errors import SourceRefused, SourceUnavailable, TaskFenced
from fencepost.connect.task import TaskSettings
from tests.connect.reading import committed, wait_until
from tests.connect.running import RunningWorker
from tests.peers.postgres import Postgres, require_postgres

require_postgres()

from fencepost.connect.postgres import Outbox, PostgresSource  # noqa: E402 - needs psycopg, which the line above asks for
from fencepost.connect.postgres.database import Database  # noqa: E402
from fencepost.connect.postgres.lsn import parse_lsn  # noqa: E402


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with Postgres() as running:
        yield running


@pytest.fixture
def database(server: Postgres) -> Iterator[Postgres]:
    """An empty schema, and no slots or publications."""
    server.execute("DROP SCHEMA IF EXISTS public CASCADE", "CREATE SCHEMA public")
    yield server
    for (name,) in server.rows("SELECT pubname FROM pg_publication"):
        server.execute(f'DROP PUBLICATION "{name}"')
    server.rows("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active")
    wait_until(lambda: not server.rows("SELECT 1 FROM pg_replication_slots WHERE active"), "free slots")
    server.rows("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")


def source(database: Postgres, *tables: str, **settings: Any) -> PostgresSource:
    given = {"linger_ms": 5, "heartbeat_seconds": 0.3, "shape": "plain", **settings}
    return PostgresSource("shop", database.dsn(), tables=tables, **given)


def wait_for_stream(database: Postgres) -> None:
    """The tables are read, and changes come. A slot is active for a moment when it is made, too."""
    query = "SELECT 1 FROM pg_stat_replication WHERE state = 'streaming'"
    wait_until(lambda: bool(database.rows(query)), "a stream")


Change = tuple[str, Any, Any]


def changes(broker: Broker, table: str, count: int, prefix: str = "shop.public.") -> list[Change]:
    """Operation, key and value of so many records, once they are there."""
    topic = f"{prefix}{table}"

    def enough() -> bool:
        return len(all_changes(broker, topic)) >= count

    wait_until(enough, f"{count} records in {topic}")
    return all_changes(broker, topic)


def all_changes(broker: Broker, topic: str) -> list[Change]:
    def parsed(content: bytes | None) -> Any:
        return None if content is None else json.loads(content)

    try:
        records = committed(broker.bootstrap_servers, topic)
    except UnknownTopic:
        return []
    return [
        ((dict(record.headers).get("op") or b"").decode(), parsed(record.key), parsed(record.value))
        for record in records
    ]


def test_the_rows_that_were_there_then_every_change_in_order(broker: Broker, database: Postgres) -> None:
    database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, item text)", "INSERT INTO orders VALUES (1, 'book'), (2, 'lamp')"
    )
    with RunningWorker(broker.bootstrap_servers, source(database, "orders")):
        changes(broker, "orders", 2)
        database.execute("INSERT INTO orders VALUES (3, 'rug')", "UPDATE orders SET item = 'chair' WHERE id = 1")
        database.execute("DELETE FROM orders WHERE id = 2")
        found = changes(broker, "orders", 5)
    assert found == [
        ("r", {"id": 1}, {"id": 1, "item": "book"}),
        ("r", {"id": 2}, {"id": 2, "item": "lamp"}),
        ("c", {"id": 3}, {"id": 3, "item": "rug"}),
        ("u", {"id": 1}, {"id": 1, "item": "chair"}),
        ("d", {"id": 2}, None),
    ]


def test_a_restart_goes_on_and_a_takeover_ends_the_walsender_of_the_other(broker: Broker, database: Postgres) -> None:
    database.execute("CREATE TABLE orders (id int PRIMARY KEY)")
    settings = TaskSettings(heartbeat_seconds=0.3)
    with RunningWorker(broker.bootstrap_servers, source(database, "orders"), settings=settings) as first:
        first.wait_for("started")
        wait_for_stream(database)
        database.execute("INSERT INTO orders VALUES (1)")
        changes(broker, "orders", 1)
        with RunningWorker(broker.bootstrap_servers, source(database, "orders"), settings=settings) as second:
            (failure,) = first.join()
            assert isinstance(failure, TaskFenced)
            second.wait_for("started")
            database.execute("INSERT INTO orders VALUES (2)")
            changes(broker, "orders", 2)
    database.execute("INSERT INTO orders VALUES (3)")
    with RunningWorker(broker.bootstrap_servers, source(database, "orders")):
        found = changes(broker, "orders", 3)
    assert [value["id"] for _, _, value in found] == [1, 2, 3]


def test_debeziums_envelope_with_tombstones_and_changed_keys(broker: Broker, database: Postgres) -> None:
    database.execute("CREATE TABLE orders (id int PRIMARY KEY, item text)")
    with RunningWorker(broker.bootstrap_servers, source(database, "orders", shape="debezium")) as worker:
        wait_for_stream(database)
        database.execute("INSERT INTO orders VALUES (1, 'book')")
        database.execute("UPDATE orders SET id = 2")
        database.execute("DELETE FROM orders")
        found = changes(broker, "orders", 6)
        worker.wait_for("committed")
    records = committed(broker.bootstrap_servers, "shop.public.orders")
    assert [(key, value and (value["op"], value["before"], value["after"])) for _, key, value in found] == [
        ({"id": 1}, ("c", None, {"id": 1, "item": "book"})),
        ({"id": 1}, ("d", {"id": 1, "item": None}, None)),
        ({"id": 1}, None),
        ({"id": 2}, ("c", None, {"id": 2, "item": "book"})),
        ({"id": 2}, ("d", {"id": 2, "item": None}, None)),
        ({"id": 2}, None),
    ]
    told = [dict(record.headers) for record in records]
    assert told[1]["__debezium.newkey"] == b'{"id":2}'
    assert told[3]["__debezium.oldkey"] == b'{"id":1}'
    place = found[0][2]["source"]
    assert (place["name"], place["schema"], place["table"], place["db"]) == ("shop", "public", "orders", "postgres")
    assert told[0]["transaction.id"] == str(place["txId"]).encode()
    assert [each["transaction.order"] for each in told] == [b"1"] * 6
    assert parse_lsn(told[0]["lsn"].decode()) == place["lsn"]


def test_replica_identity_full_composite_keys_and_values_stored_out_of_line(broker: Broker, database: Postgres) -> None:
    database.execute(
        "CREATE TABLE lines (order_id int, line int, note text, flag bool, PRIMARY KEY (line, order_id))",
        "ALTER TABLE lines REPLICA IDENTITY FULL",
        "CREATE TABLE docs (id int PRIMARY KEY, body text, n int)",
        "ALTER TABLE docs ALTER body SET STORAGE EXTERNAL",
    )
    with RunningWorker(broker.bootstrap_servers, source(database, "lines", "docs", shape="debezium")):
        wait_for_stream(database)
        database.execute(
            "INSERT INTO lines VALUES (1, 7, 'a', true)", "UPDATE lines SET note = 'b'", "DELETE FROM lines"
        )
        database.execute("INSERT INTO docs VALUES (1, repeat('x', 20000), 1)", "UPDATE docs SET n = 2")
        lines, docs = changes(broker, "lines", 4), changes(broker, "docs", 2)
    assert lines[1][2]["before"] == {"order_id": 1, "line": 7, "note": "a", "flag": True}
    assert lines[1][2]["after"] == {"order_id": 1, "line": 7, "note": "b", "flag": True}
    assert lines[2][2]["before"]["note"] == "b"
    assert lines[0][1] == {"line": 7, "order_id": 1}
    assert docs[1][2]["after"] == {"id": 1, "body": "__debezium_unavailable_value", "n": 2}


def test_keys_go_where_javas_client_puts_them_and_truncates_are_written_if_wanted(
    broker: Broker, database: Postgres
) -> None:
    database.execute("CREATE TABLE orders (id int PRIMARY KEY)")
    reader = source(database, "orders", topic_partitions=5, truncates=True)
    with RunningWorker(broker.bootstrap_servers, reader):
        wait_for_stream(database)
        database.execute("INSERT INTO orders SELECT generate_series(1, 50)")
        database.execute("TRUNCATE orders")
        found = changes(broker, "orders", 51)
    assert ("t", None, None) in found
    records = [each for each in committed(broker.bootstrap_servers, "shop.public.orders") if each.key is not None]
    assert all(record.partition == partition_of_key(record.key or b"", 5) for record in records)
    assert len({record.partition for record in records}) == 5


def has_one(broker: Broker, topic: str) -> bool:
    try:
        return len(committed(broker.bootstrap_servers, topic)) == 1
    except UnknownTopic:
        return False


TYPES: list[tuple[str, str, Any, Any]] = [
    # type, text, plain, Debezium's with its default settings
    ("smallint", "-7", -7, -7),
    ("bigint", "9007199254740993", 9007199254740993, 9007199254740993),
    ("real", "1.5", 1.5, 1.5),
    ("double precision", "NaN", "NaN", "NaN"),
    ("boolean", "t", True, True),
    ("numeric(10,2)", "123.45", "123.45", "MDk="),
    ("numeric(10,2)", "-1.00", "-1.00", "nA=="),
    ("numeric", "1.5", "1.5", {"scale": 1, "value": "Dw=="}),
    ("money", "12.34", "$12.34", "BNI="),
    ("text", 'a"\\\u2028é', 'a"\\\u2028é', 'a"\\\u2028é'),
    ("char(3)", "ab", "ab ", "ab "),
    ("bytea", "\\x00ff", "AP8=", "AP8="),
    ("date", "2026-01-02", "2026-01-02", 20455),
    ("time", "01:02:03.5", "01:02:03.5", 3723500000),
    ("time(3)", "01:02:03.5", "01:02:03.5", 3723500),
    ("timestamp", "2026-01-02 03:04:05.25", "2026-01-02T03:04:05.25", 1767323045250000),
    ("timestamp(3)", "2026-01-02 03:04:05.25", "2026-01-02T03:04:05.25", 1767323045250),
    ("timestamptz", "2026-01-02 03:04:05+02", "2026-01-02T01:04:05Z", "2026-01-02T01:04:05Z"),
    ("interval", "1 day 02:00:00", "1 day 02:00:00", 93600000000),
    ("interval", "1 mon", "1 mon", 2629800000000),
    ("uuid", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", *["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"] * 2),
    ("json", '{"a": [1]}', {"a": [1]}, '{"a": [1]}'),
    ("jsonb", '{"a": null}', {"a": None}, '{"a": null}'),
    ("inet", "10.0.0.1", "10.0.0.1", "10.0.0.1"),
    ("bit", "1", "1", True),
    ("bit(10)", "1000000001", "1000000001", "AQI="),
    ("int4range", "[1,5)", "[1,5)", "[1,5)"),
    ("mood", "sad", "sad", "sad"),
    ("positive", "5", 5, 5),
    ("int[]", "{1,NULL,3}", [1, None, 3], [1, None, 3]),
    ("int[]", "{{1,2},{3,4}}", [[1, 2], [3, 4]], [[1, 2], [3, 4]]),
    ("text[]", '{"a,b","NULL",NULL,"q\\"\\\\"}', ["a,b", "NULL", None, 'q"\\'], ["a,b", "NULL", None, 'q"\\']),
    ("date[]", "{2026-01-02}", ["2026-01-02"], [20455]),
    ("mood[]", "{ok,sad}", ["ok", "sad"], ["ok", "sad"]),
    ("text", None, None, None),
]


@pytest.mark.parametrize("shape", ["plain", "debezium"])
def test_types_are_the_same_from_the_snapshot_and_from_the_log(broker: Broker, database: Postgres, shape: str) -> None:
    columns = ", ".join(f"c{at} {kind}" for at, (kind, *_) in enumerate(TYPES))
    values = [text for _, text, _, _ in TYPES]
    database.execute(
        "CREATE TYPE mood AS ENUM ('sad', 'ok')",
        "CREATE DOMAIN positive AS int CHECK (value > 0)",
        f"CREATE TABLE kinds (id int PRIMARY KEY, {columns})",
    )
    insert = f"INSERT INTO kinds VALUES (%s, {', '.join(f'%s::text::{kind}' for kind, *_ in TYPES)}) RETURNING 1"
    database.rows(insert, [1, *values])
    with RunningWorker(broker.bootstrap_servers, source(database, "kinds", shape=shape)):
        changes(broker, "kinds", 1)
        database.rows(insert, [2, *values])
        found = changes(broker, "kinds", 2)
    for _, _, value in found:
        row = value if shape == "plain" else value["after"]
        wanted = {f"c{at}": each[2 if shape == "plain" else 3] for at, each in enumerate(TYPES)}
        assert {name: content for name, content in row.items() if name != "id"} == wanted


def test_a_table_that_changes_while_it_is_read(broker: Broker, database: Postgres) -> None:
    database.execute("CREATE TABLE orders (id int PRIMARY KEY, item text)")
    with RunningWorker(broker.bootstrap_servers, source(database, "orders")):
        wait_for_stream(database)
        database.execute(
            "INSERT INTO orders VALUES (1, 'a')",
            "ALTER TABLE orders ADD qty int DEFAULT 5",
            "INSERT INTO orders VALUES (2, 'b')",
            "ALTER TABLE orders DROP item",
            "UPDATE orders SET qty = 6 WHERE id = 1",
            "ALTER TABLE orders RENAME qty TO quantity",
            "UPDATE orders SET quantity = 7 WHERE id = 1",
        )
        found = changes(broker, "orders", 4)
    assert [value for _, _, value in found] == [
        {"id": 1, "item": "a"},
        {"id": 2, "item": "b", "qty": 5},
        {"id": 1, "qty": 6},
        {"id": 1, "quantity": 7},
    ]


def test_a_table_that_is_added_later_is_read_first_and_no_change_is_missing_or_twice(
    broker: Broker, database: Postgres
) -> None:
    database.execute("CREATE TABLE orders (id int PRIMARY KEY)", "CREATE TABLE refunds (id int PRIMARY KEY)")
    with RunningWorker(broker.bootstrap_servers, source(database, "orders")):
        wait_for_stream(database)
    database.execute("INSERT INTO orders VALUES (1)", "INSERT INTO refunds VALUES (1)")
    with RunningWorker(broker.bootstrap_servers, source(database, "orders", "refunds")):
        wait_for_stream(database)
        database.execute("INSERT INTO orders VALUES (2)", "INSERT INTO refunds VALUES (2)")
        orders, refunds = changes(broker, "orders", 2), changes(broker, "refunds", 2)
    assert [(op, value["id"]) for op, _, value in orders] == [("c", 1), ("c", 2)]
    assert [(op, value["id"]) for op, _, value in refunds] == [("r", 1), ("c", 2)]


def test_partitioned_tables_come_under_their_own_name(broker: Broker, database: Postgres) -> None:
    database.execute(
        "CREATE TABLE days (day int PRIMARY KEY) PARTITION BY RANGE (day)",
        "CREATE TABLE days1 PARTITION OF days FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE days2 PARTITION OF days FOR VALUES FROM (10) TO (20)",
        "INSERT INTO days VALUES (1), (11)",
    )
    with RunningWorker(broker.bootstrap_servers, source(database, "days")):
        changes(broker, "days", 2)
        database.execute("INSERT INTO days VALUES (2), (12)")
        found = changes(broker, "days", 4)
    assert sorted((op, value["day"]) for op, _, value in found) == [("c", 2), ("c", 12), ("r", 1), ("r", 11)]


def test_an_interrupted_snapshot_is_read_again_and_nothing_of_it_is_visible_twice(
    broker: Broker, database: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute(
        "CREATE TABLE a (id int PRIMARY KEY)", "INSERT INTO a SELECT generate_series(1, 5000)",
        "CREATE TABLE b (id int PRIMARY KEY)", "INSERT INTO b SELECT generate_series(1, 5000)",
    )  # fmt: skip
    whole: Callable[..., Any] = Database.snapshot_rows
    tries: list[str] = []

    def cut_off(self: Any, relation: Any, snapshot: str) -> Iterator[Any]:
        tries.append(relation.name)
        for number, chunk in enumerate(whole(self, relation, snapshot)):
            if number == 2 and len(tries) in (1, 3):
                database.execute(
                    f"INSERT INTO {relation.name} VALUES ({10_000 + len(tries)})", "DELETE FROM a WHERE id = 1"
                )
                raise SourceUnavailable("the network is down")
            yield chunk

    monkeypatch.setattr(Database, "snapshot_rows", cut_off)
    with RunningWorker(broker.bootstrap_servers, source(database, "a", "b")):
        b = changes(broker, "b", 5001)
        a = changes(broker, "a", 5000)
        wait_for_stream(database)
    assert tries == ["a", "a", "b", "b"]
    # The row that was deleted before `a` was read again never was; what came while `b` was read is in its snapshot.
    assert [value["id"] for op, _, value in a if op == "r"] == [*range(2, 5001), 10_001]
    assert [op for op, _, _ in a if op != "r"] == []
    assert [(op, value["id"]) for op, _, value in b] == [("r", each) for each in [*range(1, 5001), 10_003]]
    slots = [name for (name,) in database.rows("SELECT slot_name FROM pg_replication_slots")]
    assert slots == ["fencepost_shop"]


@pytest.mark.parametrize("is_resumed", [False, True])
def test_a_takeover_while_the_first_one_reads_the_tables(
    broker: Broker, database: Postgres, monkeypatch: pytest.MonkeyPatch, is_resumed: bool
) -> None:
    """`is_resumed`: the zombie holds a temporary slot, because an earlier try had read a table already."""
    database.execute(
        "CREATE TABLE a (id int PRIMARY KEY)", "INSERT INTO a SELECT generate_series(1, 5000)",
        "CREATE TABLE b (id int PRIMARY KEY)", "INSERT INTO b SELECT generate_series(1, 5000)",
    )  # fmt: skip
    whole: Callable[..., Any] = Database.snapshot_rows
    reached, go_on = threading.Event(), threading.Event()
    tries: list[str] = []

    def stuck(self: Any, relation: Any, snapshot: str) -> Iterator[Any]:
        tries.append(relation.name)
        if is_resumed and tries == ["a", "b"]:
            raise SourceUnavailable("the network is down")
        for number, chunk in enumerate(whole(self, relation, snapshot)):
            if number == 1 and not reached.is_set() and (not is_resumed or relation.name == "b"):
                reached.set()
                assert go_on.wait(60)
            yield chunk

    monkeypatch.setattr(Database, "snapshot_rows", stuck)
    with RunningWorker(broker.bootstrap_servers, source(database, "a", "b")) as zombie:
        assert reached.wait(60)
        with RunningWorker(broker.bootstrap_servers, source(database, "a", "b")):
            wait_for_stream(database)
            database.execute("INSERT INTO a VALUES (5001)")
            found = changes(broker, "a", 5001)
            go_on.set()
            (failure,) = zombie.join()
            assert isinstance(failure, TaskFenced)
            assert sorted(value["id"] for _, _, value in changes(broker, "b", 5000)) == list(range(1, 5001))
            database.execute("INSERT INTO b VALUES (5001)")
            changes(broker, "b", 5001)
    assert [value["id"] for _, _, value in found] == list(range(1, 5002))
    assert len(all_changes(broker, "shop.public.a")) == 5001


def test_a_large_transaction_is_one_kafka_transaction_and_passes_in_portions(
    broker: Broker, database: Postgres
) -> None:
    database.execute("CREATE TABLE orders (id int PRIMARY KEY, item text)")
    reader = source(database, "orders", max_records=100)
    with RunningWorker(broker.bootstrap_servers, reader) as worker:
        wait_for_stream(database)
        database.execute("INSERT INTO orders SELECT n, repeat('x', 100) FROM generate_series(1, 30000) n")
        large = worker.wait_for("committed", lambda facts: facts["records"] > 0)
    assert large["records"] == 30_000
    found = committed(broker.bootstrap_servers, "shop.public.orders")
    assert [json.loads(record.value or b"")["id"] for record in found] == list(range(1, 30_001))
    orders = [int(dict(record.headers)["transaction.order"] or b"0") for record in found]
    assert orders == list(range(1, 30_001))


def test_an_outbox_row_becomes_one_message(broker: Broker, database: Postgres) -> None:
    database.execute(
        "CREATE TABLE outbox (id uuid PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload jsonb)"
    )
    reader = source(database, outbox=Outbox("outbox"))
    with RunningWorker(broker.bootstrap_servers, reader):
        wait_for_stream(database)
        database.execute(
            "INSERT INTO outbox VALUES (gen_random_uuid(), 'order', 'o-1', 'OrderPlaced', '{\"total\": 5}')",
            "INSERT INTO outbox VALUES (gen_random_uuid(), 'payment', 'p-1', 'Paid', '{}')",
            "DELETE FROM outbox",
        )
        wait_until(lambda: has_one(broker, "outbox.event.payment"), "the second message")
        (order,) = committed(broker.bootstrap_servers, "outbox.event.order")
    assert (order.key, order.value) == (b"o-1", b'{"total": 5}')
    assert dict(order.headers)["eventType"] == b"OrderPlaced"
    assert len(dict(order.headers)["id"] or b"") == 36


def test_the_log_of_an_idle_source_is_released_and_the_slot_is_never_ahead(broker: Broker, database: Postgres) -> None:
    database.execute("CREATE TABLE orders (id int PRIMARY KEY)", "CREATE TABLE other (id int)")

    def confirmed() -> int:
        rows = database.rows(
            "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = 'fencepost_shop'"
        )
        return parse_lsn(rows[0][0]) if rows else 0

    with RunningWorker(broker.bootstrap_servers, source(database, "orders")) as worker:
        wait_for_stream(database)
        database.execute("INSERT INTO other SELECT generate_series(1, 10000)")
        wanted = parse_lsn(database.rows("SELECT pg_current_wal_lsn()::text")[0][0])

        def is_released() -> bool:
            at = confirmed()
            known = max(parse_lsn(facts["position"]["lsn"] or "0/0") for facts in worker.facts("committed"))
            assert at <= known
            return at >= wanted

        wait_until(is_released, "an acknowledgement behind what other tables wrote")


def test_what_would_lose_changes_is_refused_with_both_positions(broker: Broker, database: Postgres) -> None:
    database.execute("CREATE TABLE orders (id int PRIMARY KEY)")
    servers = broker.bootstrap_servers

    def refused(*, name: str = "orders", **settings: Any) -> str:
        with RunningWorker(servers, source(database, name, **settings)) as worker:
            (failure,) = worker.join()
        assert isinstance(failure, SourceRefused) or "no table" in failure.fact
        return f"{failure.fact}; {failure.advice}"

    assert "there is no table public.missing" in refused(name="missing")
    assert "does not contain public.orders" in refused(publication="others")
    database.rows("SELECT pg_create_logical_replication_slot('fencepost_shop', 'pgoutput')")
    assert "has no position" in refused()
    database.rows("SELECT pg_drop_replication_slot('fencepost_shop')")
    with RunningWorker(servers, source(database, "orders")):
        wait_for_stream(database)
        database.execute("INSERT INTO orders VALUES (1)")
        changes(broker, "orders", 1)
    wait_until(lambda: not database.rows("SELECT 1 FROM pg_replication_slots WHERE active"), "a free slot")
    database.execute("INSERT INTO orders VALUES (2)")
    database.rows("SELECT pg_replication_slot_advance('fencepost_shop', pg_current_wal_lsn())")
    assert "is ahead: confirmed up to" in refused()
    database.rows("SELECT pg_drop_replication_slot('fencepost_shop')")
    assert "the slot fencepost_shop is gone; the position is" in refused()


def test_a_role_with_few_rights_is_enough_and_reset_drops_what_was_made(
    broker: Broker, database: Postgres, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    from fencepost.cli.main import run

    database.execute("DROP ROLE IF EXISTS capture")
    database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY)",
        "INSERT INTO orders VALUES (1)",
        "CREATE ROLE capture LOGIN REPLICATION",
        "GRANT USAGE ON SCHEMA public TO capture",
        "GRANT SELECT ON orders TO capture",
        "CREATE PUBLICATION shop_capture FOR TABLE orders",
    )
    file = tmp_path / "shop.py"
    file.write_text(
        "from fencepost.connect.postgres import PostgresSource\n"
        f"shop = PostgresSource('shop', {database.dsn(user='capture')!r}, tables=['orders'],\n"
        "                      publication='shop_capture')\n"
    )
    servers = ("--bootstrap-server", broker.bootstrap_servers)
    assert run(["connect", str(file), "--dry-run", *servers]) == 0
    said = capsys.readouterr().out
    assert "would create the slot fencepost_shop" in said
    assert "public.orders to topic shop.public.orders, key: id; its rows would be read first" in said
    reader = PostgresSource(
        "shop", database.dsn(user="capture"), tables=["orders"], publication="shop_capture", linger_ms=5
    )
    with RunningWorker(broker.bootstrap_servers, reader):
        changes(broker, "orders", 1)
        database.execute("INSERT INTO orders VALUES (2)")
        changes(broker, "orders", 2)
    assert run(["connect", "reset", str(file), "--yes", *servers]) == 0
    assert "slot fencepost_shop dropped" in capsys.readouterr().out
    assert database.rows("SELECT 1 FROM pg_replication_slots") == []
    assert database.rows("SELECT 1 FROM pg_publication WHERE pubname = 'shop_capture'") == [(1,)]
    database.execute("DROP PUBLICATION shop_capture", "DROP OWNED BY capture", "DROP ROLE capture")


def test_the_database_restarts(broker: Broker) -> None:
    with Postgres() as own:
        own.execute("CREATE TABLE orders (id int PRIMARY KEY)")
        with RunningWorker(broker.bootstrap_servers, source(own, "orders")) as worker:
            for number, end in enumerate((own.crash, own.stop)):
                wait_for_stream(own)
                own.execute(f"INSERT INTO orders VALUES ({number})")
                changes(broker, "orders", number + 1)
                end()
                before = worker.count("retrying")
                wait_until(lambda before=before: worker.count("retrying") > before, "a try")  # type: ignore[misc]
                time.sleep(0.2)
                own.start()
            own.execute("INSERT INTO orders VALUES (2)")
            found = changes(broker, "orders", 3)
    assert [value["id"] for _, _, value in found] == [0, 1, 2]
