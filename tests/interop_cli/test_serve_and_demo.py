"""`fencepost serve` and `fencepost demo` as a user starts them."""

import json
import re
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interop_cli.conftest import Command
from tests.support.patience import patient

STOP_TIMEOUT_SECONDS = patient(20)
Start = Callable[..., tuple["subprocess.Popen[str]", list[str]]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a broker and waits for as many lines that say where it listens."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str, listeners: int = 1) -> tuple["subprocess.Popen[str]", list[str]]:
        process = Command("").start("serve", "--data", str(tmp_path / "data"), *arguments)
        started.append(process)
        assert process.stdout is not None
        addresses = []
        for _ in range(listeners):
            found = re.search(r"listening on (\S+:\d+)", process.stdout.readline())
            assert found is not None
            addresses.append(found[1])
        return process, addresses

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_broker_cleanly(start: Start, number: signal.Signals) -> None:
    process, _ = start("--listen", "127.0.0.1:0")
    process.send_signal(number)
    assert process.wait(STOP_TIMEOUT_SECONDS) == 0


def test_settings_come_from_the_file_and_the_command_line(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("# ours\nnum.partitions=4\nlog.retention.ms = 1000\n")
    _, (address,) = start("--listen", "127.0.0.1:0", "--config", str(file), "--set", "num.partitions=6")
    command = Command(address)
    command("topics", "create", "t")
    assert len(command("topics", "describe", "t", "--json").json["topics"][0]["partitions"]) == 6
    shown = command("configs", "describe", "--broker", "1").rows
    assert ["log.retention.ms", "1000"] in [row[:2] for row in shown]


def test_every_listener_advertises_its_own_address(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    _, addresses = start(
        "--listen", "INTERNAL://127.0.0.1:0", "--listen", f"EXTERNAL://127.0.0.1:{port}",
        "--advertise", f"EXTERNAL://localhost:{port}", listeners=2,
    )  # fmt: skip
    from fencepost.client import Admin

    for address, advertised in zip(addresses, [addresses[0], f"localhost:{port}"], strict=True):
        with Admin(address) as admin:
            assert [str(broker) for broker in admin.describe_cluster().brokers] == [advertised]


def test_what_stands_in_the_way_of_a_start_is_one_line(start: Start, tmp_path: Path) -> None:
    _, (address,) = start("--listen", "127.0.0.1:0")
    elsewhere = str(tmp_path / "elsewhere")
    refused = Command("").refused
    assert str(tmp_path / "data") in refused("serve", "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0")
    assert address in refused("serve", "--data", elsewhere, "--listen", address)
    assert "Unknown configuration" in refused("serve", "--data", elsewhere, "--set", "no.such=1")
    (tmp_path / "file").write_text("")
    assert str(tmp_path / "file") in refused("serve", "--data", str(tmp_path / "file"), "--listen", "127.0.0.1:0")


def test_the_demo_shows_three_clients_reading_what_all_wrote() -> None:
    done = Command("")("demo", "--act", "1", "--json", "--purchases", "20")
    shown = json.loads(done.output)
    assert shown["written"] == 60
    assert [row["reader"] for row in shown["readers"]] == ["confluent-kafka", "aiokafka", "kafka-python"]
    for row in shown["readers"]:
        assert row["complete"]
        assert row["from"] == {"confluent-kafka": 20, "aiokafka": 20, "kafka-python": 20}
    # And the transactions: what was aborted or written by a zombie is not there, and the broker knows why.
    assert shown["transactions"]["visible"] == {
        "invoices": ["invoice 1", "invoice 3"],
        "shipments": ["shipment 1", "shipment 3"],
    }
    assert shown["transactions"]["zombie"]["why"]["by_client_id"] == "till-2"
    assert "epoch" in shown["transactions"]["zombie"]["refused"]


def test_without_java_the_demo_says_what_to_install_and_ends_well(tmp_path: Path) -> None:
    command = Command("")
    command.environment |= {"JAVA_HOME": str(tmp_path)}
    done = command("demo", "--json", "--purchases", "5")
    shown = json.loads(done.output)
    assert shown["written"] == 15
    assert shown["act_two"] is None
    assert "install Java 17" in shown["missing"]
    assert "install Java 17" in command.refused("demo", "--act", "2")
