"""`fencepost serve` from outside: what it refuses to start with, how it stops, and what it tells about itself."""

import contextlib
import json
import os
import re
import shlex
import signal
import socket
import struct
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from fencepost.wire.catalog import ApiKey
from tests.hostile.sockets import Canary, RudeClient, eventually
from tests.support.patience import patient

COMMAND = [sys.executable, "-c", "from fencepost.cli.main import main; main()", "serve"]
END_TIMEOUT_SECONDS = patient(60)
LISTENING = re.compile(r"listening on (\S+):(\d+)")


class Serving:
    """A broker in the foreground of a process of its own."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.error_file = directory.parent / f"{directory.name}.stderr"
        self._errors = open(self.error_file, "wb")  # noqa: SIM115
        self.process = subprocess.Popen(
            [*COMMAND, "--data", str(directory), "--listen", "127.0.0.1:0", *options],
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = LISTENING.search(line)
        assert found is not None, f"{line!r}; {self.error_file.read_text()}"
        self.address = found[1], int(found[2])

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(END_TIMEOUT_SECONDS)

    def error_lines(self) -> list[str]:
        return self.error_file.read_text().splitlines()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._errors.close()


@contextlib.contextmanager
def serving(directory: Path, *options: str) -> Iterator[Serving]:
    started = Serving(directory, *options)
    try:
        yield started
    finally:
        started.close()


def refused(options: Sequence[str]) -> str:
    """The one line that a start is refused with."""
    done = subprocess.run([*COMMAND, *options], capture_output=True, text=True, timeout=END_TIMEOUT_SECONDS)
    assert done.returncode == 1, done.stderr
    assert done.stdout == "", "it never listened"
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    return line


def test_a_port_in_use_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = refused(["--data", str(tmp_path / "data"), "--listen", f"127.0.0.1:{port}"])
    assert f"127.0.0.1:{port}" in line
    assert "another process" in line
    assert not list((tmp_path / "data").glob("*meta*")), "the directory was not touched"


def test_a_metrics_port_in_use_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        line = refused(["--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0", "--metrics", address])
    assert address in line


def test_a_locked_directory_is_refused_and_its_owner_goes_on(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as owner:
        line = refused(["--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0"])
        assert "in use by another broker" in line
        canary = Canary(owner.address)
        canary.sings()
        canary.close()


def test_a_directory_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        line = refused(["--data", str(path), "--listen", "127.0.0.1:0"])
        assert str(path) in line


def test_a_directory_of_another_node_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path / "data", "--set", "node.id=7") as first:
        assert first.end(signal.SIGTERM) == 0
    line = refused(["--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0"])
    assert "node.id=7" in line
    with serving(tmp_path / "data", "--set", "node.id=7") as again:
        assert again.end(signal.SIGTERM) == 0


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (["--set", "num.partition=3"], "num.partitions"),
        (["--set", "no.such.thing=3"], "no.such.thing"),
        (["--set", "num.partitions=many"], "num.partitions"),
        (["--set", "num.partitions=0"], "at least 1"),
        (["--set", "flush=sometimes"], "group, os"),
        (["--set", "broker.id=1"], "node.id"),
        (["--set", "nonsense"], "NAME=VALUE"),
        (["--config", "/no/such/file"], "/no/such/file"),
        (["--listen", "nowhere"], "HOST:PORT"),
        (["--listen", "127.0.0.1:99999"], "HOST:PORT"),
        (["--advertise", "OTHER://127.0.0.1:1"], "OTHER"),
        (["--metrics", "nowhere"], "HOST:PORT"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_setting_that_cannot_be_is_refused_with_a_hint(tmp_path: Path, settings: list[str], told: str) -> None:
    line = refused(["--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0", *settings])
    assert told in line


def test_a_config_file_with_a_bad_line_is_refused_with_its_number(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("# fine\nnum.partitions=2\nwhat is this\n")
    line = refused(["--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0", "--config", str(file)])
    assert "line 3" in line


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda number: number.name)
def test_a_signal_ends_it_cleanly_with_clients_connected(tmp_path: Path, number: signal.Signals) -> None:
    with serving(tmp_path / "data") as broker:
        canary = Canary(broker.address)
        canary.sings()
        half_a_request = RudeClient(broker.address)
        half_a_request.send_bytes(b"\0\0\1")
        assert broker.end(number) == 0
        assert half_a_request.is_hung_up()
        half_a_request.close()
        canary.close()
        events = [json.loads(line)["event"] for line in broker.error_lines()]
    assert events[-1] == "BrokerStopped"
    with serving(tmp_path / "data") as again:
        started = json.loads(again.error_lines()[0])
        assert (started["event"], started["was_clean"]) == ("BrokerStarted", True)
        assert again.end(signal.SIGTERM) == 0


def test_what_happens_is_told_as_json_lines(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as broker:
        canary = Canary(broker.address, topic="told")
        canary.close()
        with RudeClient(broker.address) as client:
            client.send_frame(b"rubbish that is no request")
            assert client.is_hung_up()
        eventually(lambda: any("ConnectionClosed" in line for line in broker.error_lines()), "the end is told")
        told = {line["event"]: line for line in map(json.loads, broker.error_lines())}
    assert told["BrokerStarted"]["level"] == "info"
    # A directory that was not there before has not been left in disorder.
    assert told["BrokerStarted"]["was_clean"] is True
    assert told["TopicCreated"]["topic"] == "told"
    assert told["MalformedRequest"]["level"] == "warning"
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", line["time"]) for line in told.values())


def test_metrics_are_served_as_prometheus_text_with_kafkas_names(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with serving(tmp_path / "data", "--metrics", f"127.0.0.1:{port}") as broker:
        canary = Canary(broker.address)
        for _ in range(3):
            canary.sings()
        with RudeClient(broker.address) as client:
            client.send_frame(b"rubbish that is no request")
            assert client.is_hung_up()
        with RudeClient(broker.address) as client:
            client.send_frame(struct.pack(">hhih", ApiKey.METADATA, 1, 1, -1) + bytes(4) + b"more")
            client.receive_frame()
        found = metrics_of(port)
        assert found['kafka_network_requestmetrics_requests_total{request="Produce"}'] == 3
        assert found['kafka_log_log_logendoffset{partition="0",topic="canary"}'] == 3
        assert found["kafka_server_replicamanager_partitioncount"] == 1
        assert found["kafka_controller_kafkacontroller_globaltopiccount"] == 1
        assert found["kafka_log_logmanager_offlinelogdirectorycount"] == 0
        assert found["kafka_server_socket_server_metrics_connection_count"] >= 1
        assert found['fencepost_events_total{event="MalformedRequest"}'] == 1
        assert found['fencepost_requests_with_trailing_bytes_total{request="Metadata"}'] == 1
        assert found["process_resident_memory_bytes"] > 1_000_000
        canary.close()


def metrics_of(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=patient(20)) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        text = answer.read().decode()
    return {
        name: float(value) for name, _, value in (line.rpartition(" ") for line in text.splitlines() if line[0] != "#")
    }


def test_the_metrics_port_takes_rubbish_and_goes_on(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with serving(tmp_path / "data", "--metrics", f"127.0.0.1:{port}") as broker:
        for rubbish in (
            b"",
            b"\r\n\r\n",
            b"GET\r\n\r\n",
            b"x" * 100_000,
            b"\xff\xfe\0\r\n\r\n",
            b"GET /metrics HTTP/1.1\r\n",
        ):
            with socket.create_connection(("127.0.0.1", port), 20) as client, contextlib.suppress(ConnectionError):
                client.sendall(rubbish)
        with pytest.raises(urllib.error.HTTPError, match="404") as caught:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/other", timeout=patient(20))
        caught.value.close()
        assert metrics_of(port)["kafka_server_replicamanager_partitioncount"] == 0
        assert broker.end(signal.SIGTERM) == 0
        assert all(json.loads(line)["level"] != "error" for line in broker.error_lines())


@pytest.mark.parametrize("streams", [">&- 2>&-", ">/dev/full 2>/dev/full", "2>&1 | true"])
def test_a_broker_needs_nobody_to_read_what_it_says(tmp_path: Path, streams: str) -> None:
    """Closed streams are the worst: the first files that are opened would take their numbers."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address: tuple[str, int] = free.getsockname()
    data, process_file = tmp_path / "data", tmp_path / "process"
    serve = [*COMMAND, "--data", str(data), "--listen", f"127.0.0.1:{address[1]}"]
    script = f"{{ sh -c 'echo $$ > \"$0\"; exec \"$@\"' '{process_file}' {shlex.join(serve)}; }} {streams}"
    shell = subprocess.Popen(["sh", "-c", script], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def is_listening() -> bool:
        with socket.socket() as tried:
            return tried.connect_ex(address) == 0

    try:
        eventually(is_listening, "the broker listens")
        canary = Canary(address)
        canary.sings()
        canary.close()
    finally:
        os.kill(int(process_file.read_text()), signal.SIGTERM)
        shell.wait(END_TIMEOUT_SECONDS)
    eventually((data / ".kafka_cleanshutdown").exists, "it stopped cleanly")
