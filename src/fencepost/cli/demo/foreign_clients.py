"""The demo's first scene: three Kafka clients by others exchange records through an embedded broker.

Each client writes purchases and then reads those of all clients. It must read exactly what they wrote.
"""

import importlib.util
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fencepost.cli.output import CommandFailed, print_table

# Imports inside functions: each command loads only what it needs, so that it starts quickly.

TOPIC = "purchases"
PARTITIONS = 3
READ_TIMEOUT_SECONDS = 30.0


class Trader(NamedTuple):
    """A client library: how to install it, and how it writes and reads."""

    name: str
    module: str
    package: str
    write: Callable[[str, Sequence[tuple[str, str]]], None]
    read: Callable[[str, int], list[str]]


def trade(address: str, purchases: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Lets every installed client write and read. Returns a document of what each has read."""
    traders = [trader for trader in TRADERS if importlib.util.find_spec(trader.module) is not None]
    if not traders:
        raise CommandFailed(
            "none of the clients that the demo uses is installed",
            "install them with `pip install 'fencepost[dev]'`, or one with `pip install confluent-kafka`",
        )
    for trader in traders:
        trader.write(address, [(f"{trader.name}-{at}", f"purchase {at} by {trader.name}") for at in range(purchases)])
        say(f"{trader.name} wrote {purchases} purchases")
    total = purchases * len(traders)
    seen = {trader.name: trader.read(address, total) for trader in traders}
    rows = [_row(trader.name, seen[trader.name], purchases, traders) for trader in traders]
    for trader in TRADERS:
        if trader not in traders:
            print(
                f"{trader.name} is not installed; `pip install {trader.package}` adds it to the demo", file=sys.stderr
            )
    return {"topic": TOPIC, "partitions": PARTITIONS, "written": total, "readers": rows}


def show_trade(document: dict[str, Any]) -> None:
    names = list(document["readers"][0]["from"])
    print_table(
        ("reader", *(f"from {name}" for name in names), "in all", "each once"),
        [
            (row["reader"], *(row["from"][name] for name in names), row["read"], "yes" if row["complete"] else "NO")
            for row in document["readers"]
        ],
    )


def _row(name: str, values: list[str], purchases: int, traders: Sequence[Trader]) -> dict[str, Any]:
    wrote = {trader.name: {f"purchase {at} by {trader.name}" for at in range(purchases)} for trader in traders}
    counts = {writer: sum(value in expected for value in values) for writer, expected in wrote.items()}
    complete = len(values) == len(set(values)) and all(set(values) >= expected for expected in wrote.values())
    return {"reader": name, "read": len(values), "from": counts, "complete": complete}


def _confluent_write(address: str, purchases: Sequence[tuple[str, str]]) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True})
    for key, value in purchases:
        producer.produce(TOPIC, value=value, key=key)
    producer.flush(READ_TIMEOUT_SECONDS)


def _confluent_read(address: str, total: int) -> list[str]:
    from confluent_kafka import Consumer

    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "demo-confluent-kafka", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([TOPIC])
    values: list[str] = []
    deadline = time.monotonic() + READ_TIMEOUT_SECONDS
    while len(values) < total and time.monotonic() < deadline:
        found = consumer.consume(total, 0.2)
        values += [(record.value() or b"").decode() for record in found if record.error() is None]
    consumer.close()
    return values


def _aiokafka_write(address: str, purchases: Sequence[tuple[str, str]]) -> None:
    import asyncio

    from aiokafka import AIOKafkaProducer

    async def write() -> None:
        async with AIOKafkaProducer(bootstrap_servers=address, enable_idempotence=True) as producer:
            for key, value in purchases:
                await producer.send(TOPIC, value.encode(), key=key.encode())

    asyncio.run(write())


def _aiokafka_read(address: str, total: int) -> list[str]:
    import asyncio

    from aiokafka import AIOKafkaConsumer

    async def read() -> list[str]:
        values: list[str] = []
        consumer = AIOKafkaConsumer(
            TOPIC, bootstrap_servers=address, group_id="demo-aiokafka", auto_offset_reset="earliest"
        )
        async with consumer:
            deadline = time.monotonic() + READ_TIMEOUT_SECONDS
            while len(values) < total and time.monotonic() < deadline:
                found = await consumer.getmany(timeout_ms=200)
                values += [record.value.decode() for records in found.values() for record in records]
        return values

    return asyncio.run(read())


def _kafka_python_write(address: str, purchases: Sequence[tuple[str, str]]) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=address, enable_idempotence=True)
    for key, value in purchases:
        producer.send(TOPIC, value.encode(), key=key.encode())
    producer.flush(READ_TIMEOUT_SECONDS)
    producer.close()


def _kafka_python_read(address: str, total: int) -> list[str]:
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        TOPIC, bootstrap_servers=address, group_id="demo-kafka-python", auto_offset_reset="earliest"
    )
    values: list[str] = []
    deadline = time.monotonic() + READ_TIMEOUT_SECONDS
    while len(values) < total and (left := deadline - time.monotonic()) > 0:
        found = consumer.poll(timeout_ms=left * 1000)  # this client drops a join that takes longer than the poll
        values += [record.value.decode() for records in found.values() for record in records]
    consumer.close()
    return values


TRADERS = (
    Trader("confluent-kafka", "confluent_kafka", "confluent-kafka", _confluent_write, _confluent_read),
    Trader("aiokafka", "aiokafka", "aiokafka", _aiokafka_write, _aiokafka_read),
    Trader("kafka-python", "kafka", "kafka-python", _kafka_python_write, _kafka_python_read),
)
