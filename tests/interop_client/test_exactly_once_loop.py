"""Purchases become invoices and shipments, each exactly once, while the loop and the broker are killed."""

import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fencepost.client import Admin, IsolationLevel, PartitionReader, Producer, TopicPartition
from tests.interop_client.conftest import CONFIGS, create_topic, require_transactions
from tests.peers.broker_process import BrokerProcess
from tests.support.patience import patient

PURCHASES, KEYS, PARTITIONS = 6_000, 11, 3
LOOP_KILLS, BROKER_KILLS = 5, 2
DEADLINE_SECONDS = patient(100)

LOOP = """
import sys
from fencepost.client import Client, ClientError, ProducerFenced

address, purchases, invoices, shipments = sys.argv[1:]
settings = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 300, "group_instance_id": "the-loop"}
with Client(address, request_timeout_ms=5000) as client:
    consumer = client.consumer("billing", purchases, **settings)
    while True:
        try:
            with consumer.transaction("billing") as transaction:
                for record in transaction.poll(timeout_ms=500, records_max=100):
                    transaction.send(invoices, b"invoice " + record.value, key=record.key)
                    transaction.send(shipments, b"shipment " + record.value, key=record.key)
        except ProducerFenced:
            raise
        except ClientError as error:
            # The block was aborted, or its outcome is learned by the next one: go on from what is committed.
            print(type(error).__name__, error, file=sys.stderr, flush=True)
"""


@contextmanager
def loop(broker: BrokerProcess, *topics: str) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [sys.executable, "-c", LOOP, broker.bootstrap_servers, *topics], stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def consumed(broker: BrokerProcess) -> int:
    with Admin(broker.bootstrap_servers) as admin:
        return sum(found.offset for found in admin.committed_offsets("billing").values())


def records_of(broker: BrokerProcess, topic: str) -> dict[bytes, list[bytes]]:
    """Values by key, in the order of their partition, as a read_committed reader sees them."""
    found: dict[bytes, list[bytes]] = {}
    with PartitionReader(broker.bootstrap_servers, isolation_level=IsolationLevel.READ_COMMITTED) as reader:
        reader.assign_topic(topic)
        for record in reader.records():
            found.setdefault(record.key or b"", []).append(record.value or b"")
    return found


def test_every_purchase_becomes_one_invoice_and_one_shipment_through_kills_of_both_sides(
    kind: type[BrokerProcess], unique: Callable[[str], str]
) -> None:
    chance = random.Random(7)
    with kind(CONFIGS) as broker:
        require_transactions(broker)
        topics = [create_topic(broker, unique(stem), PARTITIONS) for stem in ("purchases", "invoices", "shipments")]
        with Producer(broker.bootstrap_servers) as producer:
            for number in range(PURCHASES):
                producer.send(topics[0], b"%d" % number, key=b"customer %d" % (number % KEYS))
            producer.flush()
        deadline = time.monotonic() + DEADLINE_SECONDS
        kills = ["loop"] * LOOP_KILLS + ["broker"] * BROKER_KILLS
        chance.shuffle(kills)
        # Each kill comes when so much more is done: neither too early to matter nor too late.
        for done, victim in enumerate(kills, 1):
            with loop(broker, *topics) as process:
                while consumed(broker) < PURCHASES * done // (len(kills) + 2):
                    assert time.monotonic() < deadline, f"{consumed(broker)} of {PURCHASES}"
                    assert process.poll() is None, process.stderr and process.stderr.read()
                    time.sleep(0.02)
                time.sleep(chance.uniform(0, 0.05))
                if victim == "broker":
                    broker.kill()
                    broker.start()
        with loop(broker, *topics) as process:
            while consumed(broker) < PURCHASES:
                assert time.monotonic() < deadline, f"{consumed(broker)} of {PURCHASES}"
                assert process.poll() is None, process.stderr and process.stderr.read()
                time.sleep(0.1)
        for topic, word in ((topics[1], b"invoice"), (topics[2], b"shipment")):
            assert records_of(broker, topic) == {
                b"customer %d" % customer: [
                    b"%s %d" % (word, number) for number in range(PURCHASES) if number % KEYS == customer
                ]
                for customer in range(KEYS)
            }
        with Admin(broker.bootstrap_servers) as admin:
            ends = admin.committed_offsets("billing")
        assert set(ends) <= {TopicPartition(topics[0], partition) for partition in range(PARTITIONS)}
