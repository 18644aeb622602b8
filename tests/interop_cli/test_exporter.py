"""`fencepost exporter` as Prometheus sees it, and the rules and board that are made for it."""

import json
import re
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.interop_cli.conftest import COMMAND_TIMEOUT_SECONDS, Command
from tests.peers.broker_process import BrokerProcess

REPOSITORY = Path(__file__).parents[2]
OPEN_RECORDS = 5


@pytest.fixture
def metrics_url(command: Command) -> Iterator[str]:
    process = subprocess.Popen(
        [command.script, "exporter", "--listen", "127.0.0.1:0", "--interval", "0.2"],
        env=command.environment, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    yield process.stderr.readline().split()[-1]
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=COMMAND_TIMEOUT_SECONDS)


def scraped(url: str) -> dict[tuple[str, ...], float]:
    """Values by name and labels."""
    with urllib.request.urlopen(url, timeout=COMMAND_TIMEOUT_SECONDS) as answer:
        text = answer.read().decode()
    return {
        (sample.name, *(sample.labels[name] for name in sorted(sample.labels))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def wait_for(url: str, key: tuple[str, ...], value: float) -> dict[tuple[str, ...], float]:
    deadline = time.monotonic() + COMMAND_TIMEOUT_SECONDS
    while (seen := scraped(url)).get(key) != value:
        assert time.monotonic() < deadline, f"{key} is {seen.get(key)}, not {value}"
        time.sleep(0.1)
    return seen


def test_an_open_transaction_is_seen_and_its_end_too(broker: BrokerProcess, metrics_url: str) -> None:
    topic, group = "exported", "exported-readers"
    settings = {"bootstrap.servers": broker.bootstrap_servers}
    producer = confluent_kafka.Producer({**settings, "transactional.id": "exported-writer"})
    producer.init_transactions(COMMAND_TIMEOUT_SECONDS)
    producer.begin_transaction()
    for _ in range(OPEN_RECORDS):
        producer.produce(topic, b"x", partition=0)
    assert producer.flush(COMMAND_TIMEOUT_SECONDS) == 0
    consumer = confluent_kafka.Consumer({**settings, "group.id": group})
    consumer.commit(offsets=[confluent_kafka.TopicPartition(topic, 0, 0)], asynchronous=False)
    consumer.close()

    held = wait_for(metrics_url, ("kafka_group_lag_records_max", group, "0", topic), OPEN_RECORDS)
    assert held["kafka_group_lag_records_min", group, "0", topic] == 0
    assert held["kafka_partition_last_stable_offset_lag", "0", topic] == OPEN_RECORDS
    assert held["kafka_transaction_oldest_open_age_seconds",] > 0
    assert held["kafka_transactional_ids", "Ongoing"] >= 1
    assert held["kafka_transactions_hanging",] == 0

    producer.commit_transaction(COMMAND_TIMEOUT_SECONDS)
    after = wait_for(metrics_url, ("kafka_group_lag_records_min", group, "0", topic), OPEN_RECORDS)
    assert after["kafka_group_lag_records_max", group, "0", topic] == OPEN_RECORDS
    assert after["kafka_partition_last_stable_offset_lag", "0", topic] == 0


def test_rules_and_board_speak_of_metrics_that_exist(metrics_url: str) -> None:
    wait_for(metrics_url, ("fencepost_exporter_up",), 1)
    with urllib.request.urlopen(metrics_url, timeout=COMMAND_TIMEOUT_SECONDS) as answer:
        known = set(re.findall(r"^# TYPE (\w+)", answer.read().decode(), re.MULTILINE))
    rules = re.findall(r"expr: (.*)", (REPOSITORY / "monitoring/alerts.yml").read_text())
    board = json.loads((REPOSITORY / "monitoring/grafana-board.json").read_text())
    expressions = rules + [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    used = {name for text in expressions for name in re.findall(r"\b(?:kafka|fencepost)_\w+", text)}
    assert len(expressions) > 10
    assert used <= known


def test_a_port_that_is_taken_is_said_so(command: Command, broker: BrokerProcess) -> None:
    said = command.refused("exporter", "--listen", broker.bootstrap_servers)
    assert "another process has that port" in said
