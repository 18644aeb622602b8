"""The parts that fault stories share: raw producers behind a proxy, and what a reader sees in the end."""

import json
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from tests.interop.cases.peer import Peer
from tests.interop.cases.transactional import Producer, Script
from tests.peers.broker_process import BrokerProcess

_peers: list[Peer] = []


def script(where: Any, name: str) -> Script:
    """Raw calls to a broker or to a proxy, over a connection of their own."""
    peer = Peer(where, name)
    _peers.append(peer)
    return Script(peer)


def close_connections() -> None:
    while _peers:
        _peers.pop().close()


def same_producer(other: Producer, elsewhere: Script) -> Producer:
    """The same client, on another connection."""
    producer = Producer(elsewhere, other.name)
    producer.producer_id, producer.epoch = other.producer_id, other.epoch
    producer._sequences = other._sequences
    return producer


def send_only(producer: Producer, api: str, version: int, **fields: Any) -> None:
    """Sends a call on the producer's connection and does not wait for the answer."""
    peer = producer.script.peer
    if peer._client is None:
        peer._client = peer.connect()
    request = {"TransactionalId": producer.name, **producer._identity(None, None), **fields}
    if api == "AddPartitionsToTxn":
        request = {f"V3AndBelow{key}": value for key, value in request.items()}
    if api == "Produce":
        request = {key: value for key, value in request.items() if not key.startswith("ProducerE")}
        request.pop("ProducerId")
    peer._client.send(api, version, request)


def values_of(broker: BrokerProcess, topic: str, isolation: str = "read_committed", partitions: int = 1) -> list[bytes]:
    """Everything in the topic, partition by partition, as librdkafka reads it."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,
        }
    )
    found: dict[int, list[bytes]] = {partition: [] for partition in range(partitions)}
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in found])
    left = set(found)
    try:
        while left:
            for message in consumer.consume(1000, 0.03):
                error = message.error()
                if error is None:
                    found[message.partition()].append(message.value())
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition())
                else:
                    raise AssertionError(error)
    finally:
        consumer.close()
    return [value for partition in found.values() for value in partition]


def events(broker: BrokerProcess, kind: str, transactional_id: str) -> list[dict[str, Any]]:
    """What the broker told of an id, from its log lines."""
    found = []
    for line in broker.log_file.read_text(errors="replace").splitlines():
        if kind in line and line.startswith("{"):
            event = json.loads(line)
            if event.get("event") == kind and event.get("transactional_id") == transactional_id:
                found.append(event)
    return found


def ends(anything: Script, topic: str, partition: int = 0) -> tuple[int, int]:
    """The high watermark and the last stable offset."""
    return anything.end_offset(topic, partition, 0), anything.end_offset(topic, partition, 1)


def open_producers(anything: Script, topic: str, partition: int = 0) -> list[Any]:
    found = anything.partition(topic, partition)["producers"][1]
    return [each for each in found if each["CurrentTxnStartOffset"] >= 0]
