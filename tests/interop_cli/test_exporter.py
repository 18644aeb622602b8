"""`fencepost exporter` as Prometheus sees it, and the rules and board that are made for it."""

import asyncio
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

from fencepost.client import AsyncClient, NewTopic, TopicPartition
from fencepost.client.transactions import AsyncTransactionalProducer
from fencepost.insight.cluster_view import ClusterView
from fencepost.insight.exporter import ClusterCollector, Look, look
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


def firing(alert: str, look: Look) -> set[tuple[str, ...]]:
    """The label sets for which a rule of the form NAME > NUMBER is true of one look."""
    text = (REPOSITORY / "monitoring/alerts.yml").read_text()
    rule = re.search(rf"alert: {alert}\n(?:\s*#.*\n)*\s*expr: (\w+) > (\d+)\n\s*(?!for:)", text)
    assert rule is not None, "a rule of another form needs another evaluation here"
    collector = ClusterCollector()
    collector.last = look
    return {
        tuple(sample.labels.values())
        for family in collector.collect()
        for sample in family.samples
        if sample.name == rule[1] and sample.value > int(rule[2])
    }


def test_readers_are_held_back_by_one_old_transaction_and_not_by_overlapping_young_ones(broker: BrokerProcess) -> None:
    """Evaluates the rule's own expression; the clock goes on by itself between the looks at what stays open."""
    young, old = "overlapping", "held-back"

    async def scenario() -> None:
        async with (
            ClusterView(broker.bootstrap_servers) as view,
            AsyncClient(broker.bootstrap_servers) as client,
        ):
            for topic in (young, old):
                await view.create_topic(NewTopic(topic, 1))
            producers = [client.producer(f"{young}-{number}") for number in range(2)]
            for producer in producers:
                await producer.init()

            async def begin(producer: AsyncTransactionalProducer) -> None:
                await producer.begin()
                await producer.send(young, b"x", partition=0)
                await producer.flush()

            await begin(producers[0])
            for turn in range(6):
                # The next one has begun before this one ends: something is open at every look, and always young.
                await begin(producers[(turn + 1) % 2])
                await producers[turn % 2].commit()
                seen = await look(view)
                at = seen.offsets[TopicPartition(young, 0)]
                assert at.last_stable_offset < at.high_watermark
                assert firing("ReadersHeldBack", seen) == set()
            await producers[0].commit()

            stopped = client.producer(f"{old}-writer", transaction_timeout_ms=600_000)
            await stopped.init()
            await stopped.begin()
            await stopped.send(old, b"x", partition=0, timestamp_ms=0)
            await stopped.flush()
            assert firing("ReadersHeldBack", await look(view)) == set(), "by the coordinator's clock, not the record's"
            later = await look(view, lambda: time.time() + 400)
            assert firing("ReadersHeldBack", later) == {(old, "0")}
            await stopped.abort()
            deadline = time.monotonic() + COMMAND_TIMEOUT_SECONDS
            while firing("ReadersHeldBack", await look(view, lambda: time.time() + 400)):
                assert time.monotonic() < deadline

    asyncio.run(scenario())


def test_a_port_that_is_taken_is_said_so(command: Command, broker: BrokerProcess) -> None:
    said = command.refused("exporter", "--listen", broker.bootstrap_servers)
    assert "another process uses this port" in said
