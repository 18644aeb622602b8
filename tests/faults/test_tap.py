"""`fencepost tap` between real clients and a broker: nothing changes for them, and everything they do is seen."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka
import pytest

from tests.faults.clients import CLIENTS, FORGIVEN, TransactionalClient
from tests.faults.proxy import FaultProxy
from tests.peers import java
from tests.peers.broker_process import BrokerProcess
from tests.peers.process import WAIT_TIMEOUT_SECONDS

FENCEPOST = str(Path(sys.executable).with_name("fencepost"))
PROGRAMS = Path(__file__).with_name("programs")
TRANSACTIONS = 20

pytestmark = FORGIVEN


class Tap:
    """The command as a process."""

    def __init__(self, upstream: tuple[str, int], file: Path, *options: str) -> None:
        self._file = file
        self._process = subprocess.Popen(
            [FENCEPOST, "tap", "--upstream", f"{upstream[0]}:{upstream[1]}", "--listen", "127.0.0.1:0",
             "--record", str(file), *options],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._process.stderr is not None
        self.bootstrap_servers = self._process.stderr.readline().split()[-1]

    def stop(self) -> str:
        self._process.terminate()
        output, _ = self._process.communicate(timeout=WAIT_TIMEOUT_SECONDS)
        return output

    def recorded(self) -> str:
        return self._file.read_text()

    def show(self, *arguments: str) -> str:
        done = subprocess.run(
            [FENCEPOST, "tap", "show", str(self._file), *arguments],
            capture_output=True, text=True, timeout=WAIT_TIMEOUT_SECONDS, check=True,
        )  # fmt: skip
        return done.stdout


@pytest.fixture
def start_tap(tmp_path: Path) -> Iterator[Callable[[tuple[str, int]], Tap]]:
    started: list[Tap] = []

    def start(upstream: tuple[str, int]) -> Tap:
        started.append(Tap(upstream, tmp_path / "calls.tap"))
        return started[-1]

    yield start
    for tap in started:
        tap.stop()


def committed(bootstrap: str, topic: str) -> list[bytes]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed",
            "enable.auto.commit": False, "enable.partition.eof": True,
        }
    )  # fmt: skip
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
    values = []
    try:
        while True:
            message = consumer.poll(WAIT_TIMEOUT_SECONDS)
            assert message is not None, "no end of the partition"
            if message.error() is not None:
                assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF, message.error()
                return values
            values.append(message.value())
    finally:
        consumer.close()


def outcomes(tap: Tap, transactional_id: str) -> list[str]:
    calls = json.loads(tap.show("--transactional-id", transactional_id, "--json"))
    assert all(call["request"] is not None for call in calls), "every call could be read"
    return [
        "commit" if call["request"]["committed"] else "abort"
        for call in calls
        if call["api"] == "EndTxn" and call["seconds"] is not None and not call["errors"]
    ]


@pytest.mark.parametrize("library", ["confluent-kafka", "aiokafka"])
def test_a_transactional_load_is_carried_unchanged_and_seen(
    library: str, broker: BrokerProcess, start_tap: Callable[[tuple[str, int]], Tap]
) -> None:
    topic = name = f"tapped-{library}"
    tap = start_tap(broker.address)
    client: TransactionalClient = CLIENTS[library](tap.bootstrap_servers, name)
    for number in range(TRANSACTIONS):
        client.begin()
        client.send(topic, b"secret %d" % number)
        client.abort() if number % 4 == 3 else client.commit()
    client.close()

    assert committed(broker.bootstrap_servers, topic) == [b"secret %d" % n for n in range(TRANSACTIONS) if n % 4 != 3]
    assert outcomes(tap, name) == ["abort" if n % 4 == 3 else "commit" for n in range(TRANSACTIONS)]
    assert "secret" not in tap.recorded(), "contents are recorded only where asked for"


def test_a_java_client_speaks_the_new_protocol_through_it(
    broker: BrokerProcess, start_tap: Callable[[tuple[str, int]], Tap]
) -> None:
    topic = name = "tapped-java"
    tap = start_tap(broker.address)
    java.run(str(PROGRAMS / "JavaTransactions.java"), tap.bootstrap_servers, name, topic, str(TRANSACTIONS))

    assert committed(broker.bootstrap_servers, topic) == [b"%d" % n for n in range(TRANSACTIONS)]
    assert outcomes(tap, name) == ["commit"] * TRANSACTIONS
    calls = json.loads(tap.show("--transactional-id", name, "--json"))
    assert {call["version"] for call in calls if call["api"] == "EndTxn"} == {5}
    assert not [call for call in calls if call["api"] == "AddPartitionsToTxn"], "the new protocol adds implicitly"


def test_a_held_request_is_in_the_swim_lane(proxy: FaultProxy, start_tap: Callable[[tuple[str, int]], Tap]) -> None:
    name = "held"
    tap = start_tap(proxy.address)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": tap.bootstrap_servers, "transactional.id": name, "log_level": 0}
    )
    producer.init_transactions(WAIT_TIMEOUT_SECONDS)
    producer.begin_transaction()
    producer.produce("held", b"x", partition=0)
    held = proxy.hold("EndTxn")
    with pytest.raises(confluent_kafka.KafkaException):
        producer.commit_transaction(2)
    held.wait()

    deadline = time.monotonic() + WAIT_TIMEOUT_SECONDS
    while "EndTxn commit" not in tap.show("--transactional-id", name) and time.monotonic() < deadline:
        time.sleep(0.05)
    lines = tap.show("--transactional-id", name).splitlines()
    end = next(line for line in lines if "├─EndTxn commit───▶│" in line)
    assert end.endswith("no answer yet")

    held.release()
    producer.commit_transaction(WAIT_TIMEOUT_SECONDS)
    assert outcomes(tap, name) == ["commit"]
    assert "EndTxn commit" in tap.stop(), "it was shown while it happened, too"
