"""A transaction coordinator that lost part of its log, with a real client before and after the repair."""

import json
import os
import shlex
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer

from fencepost import Broker
from fencepost.cli.main import run
from tests.support.patience import patient

TOPIC = "purchases"
TRANSACTIONAL_ID = "shop"
TRANSACTIONS = 5
SECONDS = patient(30)


def producer_at(broker: Broker) -> Producer:
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": TRANSACTIONAL_ID, "log_level": 0}
    )
    producer.init_transactions(SECONDS)
    return producer


def buy(producer: Producer, *values: str) -> None:
    producer.begin_transaction()
    for value in values:
        producer.produce(TOPIC, value)
    assert producer.flush(SECONDS) == 0


def read_next(consumer: Consumer, count: int) -> list[str]:
    found: list[str] = []
    while len(found) < count:
        message = consumer.poll(SECONDS)
        assert message is not None, f"readers wait behind {found}"
        assert message.error() is None, message.error()
        value = message.value()
        assert value is not None
        found.append(value.decode())
    return found


def test_after_a_repair_the_same_id_loses_nothing_and_repeats_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    settings = {"transaction.state.log.num.partitions": "1"}
    with Broker(topics={TOPIC: 1}, data=data, settings=settings) as broker:
        zombie = producer_at(broker)
        for number in range(TRANSACTIONS):
            buy(zombie, f"before {number}")
            zombie.commit_transaction(SECONDS)
        buy(zombie, "undecided")
        broker.stop()

        (log,) = (data / "__transaction_state-0").glob("*.log")
        os.truncate(log, log.stat().st_size // 2)
        assert run(["repair", "--data", str(data)]) == 3
        assert TRANSACTIONAL_ID in capsys.readouterr().out
        assert run(["repair", "--data", str(data), "--accept-loss", "__transaction_state-0", "--json"]) == 0
        (hanging,) = json.loads(capsys.readouterr().out)["hanging"]
        assert (hanging["topic"], hanging["transactional_id"]) == (TOPIC, TRANSACTIONAL_ID)
        broker.start()

        producer = producer_at(broker)
        for number in range(TRANSACTIONS):
            buy(producer, f"after {number}")
            producer.commit_transaction(SECONDS)
        with pytest.raises(KafkaException):
            zombie.commit_transaction(SECONDS)
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "audit",
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe([TOPIC])
        assert read_next(consumer, TRANSACTIONS) == [f"before {number}" for number in range(TRANSACTIONS)]
        command = shlex.split(hanging["command"])[1:]
        assert run([*command, "--bootstrap-server", broker.bootstrap_servers]) == 0
        assert read_next(consumer, TRANSACTIONS) == [f"after {number}" for number in range(TRANSACTIONS)]
        consumer.close()
