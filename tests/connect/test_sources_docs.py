"""docs/sources.md, followed word for word: the SQL, the file and the commands of its first part."""

import json
import re
import sys
from pathlib import Path

import psycopg
import pytest

from fencepost import Broker
from fencepost.cli.main import run
from tests.connect.reading import committed, wait_until
from tests.peers.postgres import Postgres, require_postgres
from tests.peers.process import JsonLinesProcess

require_postgres()

DOCS = Path(__file__).resolve().parents[2] / "docs" / "sources.md"
SERVED, CONNECTED = "fencepost serve --data ./data &", "fencepost connect shop.py &"


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", DOCS.read_text(), re.DOTALL)


def test_from_an_empty_database_to_the_first_change(
    broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FENCEPOST_BOOTSTRAP_SERVER", broker.bootstrap_servers)
    made, changed, watched = blocks("sql")
    first, second = blocks("console")
    python, *_ = blocks("python")

    def follow(console: str) -> str:
        """All but the two that stay in the background: the broker runs already, and the worker is started below."""
        for line in console.splitlines():
            command = line.removeprefix("$ ")
            if command not in (SERVED, CONNECTED):
                assert run(command.split()[1:]) == 0, (command, capsys.readouterr().err)
        return capsys.readouterr().out

    assert SERVED in first
    before, after = first.split(f"$ {CONNECTED}\n")
    with Postgres() as database, psycopg.connect(database.dsn(), autocommit=True) as connection:
        connection.execute(made.encode())
        address = f"postgresql://capture@/postgres?host={database.directory}"
        Path("shop.py").write_text(python.replace("postgresql://capture@localhost/postgres", address))
        assert "would create the slot fencepost_shop" in follow(before)
        with JsonLinesProcess("connect", [sys.executable, "-m", "fencepost", "connect", "shop.py", "--json"]) as worker:
            worker.wait_until(lambda events: any(each.get("records_total") == 2 for each in events))
            wait_until(lambda: len(committed(broker.bootstrap_servers, "shop.public.orders")) == 2, "two rows")
            assert '"item":"lamp"' in follow(after)
            connection.execute(changed.encode())
            wait_until(lambda: len(committed(broker.bootstrap_servers, "shop.public.orders")) == 5, "the changes")
            said = follow(second)
            assert "shop" in said.splitlines()[-1]
            assert connection.execute(watched.encode()).fetchone() is not None
    records = committed(broker.bootstrap_servers, "shop.public.orders")
    told = [dict(record.headers)["op"] for record in records]
    assert told == [b"r", b"r", b"u", b"d", b"d"]
    assert json.loads(records[2].value or b"")["after"]["price"] == "Dtg="  # 3800, Debezium's way
    assert records[4].value is None


def test_every_refusal_of_the_source_is_in_the_list() -> None:
    text = DOCS.read_text()
    code = (Path(sys.modules["fencepost"].__file__ or "").parent / "connect/postgres/source.py").read_text()
    refused = re.findall(r'SourceRefused\(\s*f"([a-z ]+)', code)
    assert len(refused) > 8
    for begin in refused:
        assert begin.strip() in text, begin
