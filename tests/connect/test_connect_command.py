"""`fencepost connect` as people run it: the examples, two processes, status, pause, reset, dry run."""

import http.server
import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost import Broker
from fencepost.cli.main import run
from tests.connect.reading import committed, wait_until
from tests.peers.process import JsonLinesProcess

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def connect(servers: str, file: Path, **environment: str) -> JsonLinesProcess:
    command = [sys.executable, "-m", "fencepost", "connect", str(file), "--json", "--bootstrap-server", servers]
    command += ["--heartbeat-seconds", "0.5"]
    return JsonLinesProcess("connect", command, environment)


def texts(servers: str, topic: str) -> list[str]:
    return [(record.value or b"").decode() for record in committed(servers, topic)]


def test_a_file_is_followed_through_kills_and_rotation(broker: Broker, tmp_path: Path) -> None:
    servers, file = broker.bootstrap_servers, tmp_path / "app.log"
    example = EXAMPLES / "file_tail.py"
    file.write_text("one\ntwo\nthr")
    with connect(servers, example, LINES_FILE=str(file)) as worker:
        worker.wait_for("progress")
        wait_until(lambda: texts(servers, "lines") == ["one", "two"], "two lines")
        worker.kill()
    with file.open("a") as appending:
        appending.write("ee\nfour\n")
    with connect(servers, example, LINES_FILE=str(file)) as worker:
        worker.wait_for("progress")
        file.rename(tmp_path / "app.log.1")
        file.write_text("five\n")
        wait_until(lambda: "five" in texts(servers, "lines"), "the line of the new file")
        with connect(servers, example, LINES_FILE=str(file)) as successor:
            successor.wait_for("started")
            with file.open("a") as appending:
                appending.write("six\n")
            wait_until(lambda: "six" in texts(servers, "lines"), "a line through the successor")
            failed = worker.wait_for("failed")
    assert f":{successor.pid}, since" in failed["error"]
    assert texts(servers, "lines") == ["one", "two", "three", "four", "five", "six"]


@pytest.fixture
def rates_service() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Serves what is in the list, three at a time."""
    rates: list[dict[str, Any]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            after = int(self.path.partition("after=")[2])
            body = json.dumps([rate for rate in rates if rate["id"] > after][:3]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/rates", rates
    server.shutdown()
    server.server_close()


def test_a_web_service_is_polled_and_status_pause_and_reset_do_what_they_say(
    broker: Broker, rates_service: tuple[str, list[dict[str, Any]]], capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    (url, rates), servers, example = rates_service, broker.bootstrap_servers, EXAMPLES / "rest_poller.py"
    monkeypatch.setenv("RATES_URL", url)
    monkeypatch.setenv("FENCEPOST_BOOTSTRAP_SERVER", servers)
    rates += [{"id": n, "currency": "EUR" if n % 2 else "CHF", "rate": n / 10} for n in range(1, 9)]

    def command(*arguments: str) -> str:
        assert run(["connect", *arguments]) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    assert "would go on from the beginning, as connect-rates" in command(str(example), "--dry-run")
    with connect(servers, example, RATES_URL=url) as worker:
        worker.wait_until(lambda events: any(each.get("position") == {"id": 8} for each in events))
        (status,) = json.loads(command("status", "--json"))["sources"]
        assert (status["source"], status["position"], status["is_paused"]) == ("rates", {"id": 8}, False)
        assert status["worker"].endswith(f":{worker.pid}")
        command("pause", str(example))
        worker.wait_for("paused")
        assert "paused" in command("status")
        command("resume", str(example))
        worker.wait_until(lambda events: sum(each["event"] == "started" for each in events) == 2)
        assert "position forgotten" in command("reset", str(example), "--yes")
        failed = worker.wait_for("failed")
        assert "(reset)" in failed["error"]
    assert json.loads(command("status", "--json"))["sources"] == []
    assert sorted(json.loads(text)["id"] for text in texts(servers, "rates")) == list(range(1, 9))


def test_what_is_wrong_with_a_file_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str], broker: Broker) -> None:
    empty = tmp_path / "empty.py"
    empty.write_text("")
    wrong = tmp_path / "wrong.py"
    wrong.write_text("from fencepost.connect import source\n@source('x', boundary='never')\ndef x(position): ...\n")
    for arguments, said in (
        ((str(tmp_path / "missing.py"),), "there is no file"),
        ((str(empty),), "declares no source"),
        ((str(wrong),), "choose one of poll, interval, connector"),
        ((str(EXAMPLES / "file_tail.py"), "--source", "other"), "it has lines"),
        (("status", "--bootstrap-server", broker.bootstrap_servers), "no source has run"),
    ):
        assert run(["connect", *arguments]) == 1
        assert said in capsys.readouterr().err
