"""Reads with confluent-kafka and read_committed: a running count for the live view, and the audit at the end."""

import collections
import dataclasses
import json
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fencepost.cli.output import CommandFailed

# Imports inside functions: each command loads only what it needs, so that it starts quickly.

READ_TIMEOUT_SECONDS = 180.0
TOPICS = ("purchases", "invoices", "shipments", "purchases.dlq")


@dataclasses.dataclass(frozen=True)
class Audit:
    purchases: int
    invoices: int
    shipments: int
    lost: int
    """Purchases without an invoice and without a shipment."""
    duplicated: int
    """Invoices and shipments beyond the first of their purchase."""
    torn: int
    """Purchases with only one of the two."""
    disagreeing: int
    """Purchases whose invoice and shipment have different shipment ids."""
    dead_letters: int = 0

    @property
    def is_exactly_once(self) -> bool:
        return not (self.lost or self.duplicated or self.torn or self.disagreeing or self.dead_letters)


def judge(
    purchases: Iterable[str],
    invoices: Sequence[Mapping[str, Any]],
    shipments: Sequence[Mapping[str, Any]],
    dead_letters: int = 0,
) -> Audit:
    bought = set(purchases)
    invoiced, shipped = _ids(invoices), _ids(shipments)
    one_of_two = {key for key in bought if (key in invoiced) != (key in shipped)}
    return Audit(
        purchases=len(bought),
        invoices=len(invoices),
        shipments=len(shipments),
        lost=len(bought - set(invoiced) - set(shipped)),
        duplicated=sum(len(ids) - 1 for made in (invoiced, shipped) for ids in made.values()),
        torn=len(one_of_two),
        disagreeing=sum(set(invoiced[key]) != set(shipped[key]) for key in bought & set(invoiced) & set(shipped)),
        dead_letters=dead_letters,
    )


def _ids(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = collections.defaultdict(list)
    for row in rows:
        found[row["purchase_id"]].append(row["shipment_id"])
    return found


def audit(address: str) -> Audit:
    read = {topic: [json.loads(value) for value in read_all(address, topic)] for topic in TOPICS[:3]}
    purchases = [row["purchase_id"] for row in read["purchases"]]
    return judge(purchases, read["invoices"], read["shipments"], len(read_all(address, "purchases.dlq")))


def read_all(address: str, topic: str) -> list[bytes]:
    """Every committed value of a topic. Waits until the open transactions have ended."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "demo-audit",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    values: list[bytes] = []
    try:
        partitions = consumer.list_topics(topic, READ_TIMEOUT_SECONDS).topics[topic].partitions
        ends = {
            at: consumer.get_watermark_offsets(TopicPartition(topic, at), READ_TIMEOUT_SECONDS)[1] for at in partitions
        }
        consumer.assign([TopicPartition(topic, at, 0) for at in partitions])
        unread = {at for at, end in ends.items() if end > 0}
        deadline = time.monotonic() + READ_TIMEOUT_SECONDS
        while unread:
            if time.monotonic() > deadline:
                raise CommandFailed(f"{topic} could not be read to the end within {READ_TIMEOUT_SECONDS:.0f} s")
            for record in consumer.consume(1_000, 0.2):
                error = record.error()
                if error is None:
                    values.append(record.value() or b"")
                elif error.code() != KafkaError._PARTITION_EOF:
                    continue
            for position in consumer.position([TopicPartition(topic, at) for at in unread]):
                if position.offset >= ends[position.partition]:
                    unread.discard(position.partition)
    finally:
        consumer.close()
    return values


class CommittedCounter(threading.Thread):
    """Counts what a read_committed reader has seen so far, by topic, for the live view."""

    def __init__(self, address: str, topics: list[str]) -> None:
        super().__init__(name="demo-counter", daemon=True)
        self._address = address
        self._topics = topics
        self._is_over = threading.Event()
        self.counts = dict.fromkeys(topics, 0)

    def run(self) -> None:
        from confluent_kafka import Consumer

        settings: dict[str, Any] = {
            "bootstrap.servers": self._address,
            "group.id": "demo-counter",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
            "metadata.recovery.strategy": "none",
        }
        consumer = Consumer(settings)
        consumer.subscribe(self._topics)
        while not self._is_over.is_set():
            for record in consumer.consume(1_000, 0.1):
                topic = record.topic()
                if record.error() is None and topic is not None:
                    self.counts[topic] += 1
        consumer.close()

    def end(self) -> None:
        self._is_over.set()
        self.join()
