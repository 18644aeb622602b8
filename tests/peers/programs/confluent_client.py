"""confluent-kafka (librdkafka) as a program."""

import threading
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, Producer, TopicPartition

from tests.peers.programs.console import Options, arguments, octets, say, say_record, when_input_closes


def produce(options: Options) -> None:
    producer = Producer(
        {
            "bootstrap.servers": options["bootstrap"],
            "enable.idempotence": True,
            "compression.type": options.get("compression") or "none",
            "linger.ms": 50,
        }
    )
    reports: dict[int, Message] = {}
    for index, record in enumerate(options["records"]):
        extra: dict[str, Any] = {}
        if record.get("timestamp") is not None:
            extra["timestamp"] = record["timestamp"]

        def delivered(error: Any, message: Message, index: int = index) -> None:
            if error is not None:
                raise KafkaException(error)
            reports[index] = message

        producer.produce(
            options["topic"],
            partition=record["partition"],
            key=octets(record["key"]),
            value=octets(record["value"]),
            headers=[(name, octets(value)) for name, value in record.get("headers", [])],
            on_delivery=delivered,
            **extra,
        )
    assert producer.flush(30) == 0
    for index in range(len(options["records"])):
        say("produced", partition=reports[index].partition(), offset=reports[index].offset())


def consume(options: Options) -> None:
    consumer = Consumer({"bootstrap.servers": options["bootstrap"], "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition(options["topic"], p, OFFSET_BEGINNING) for p in options["partitions"]])
    left = options["count"]
    while left:
        for message in consumer.consume(left, 0.5):
            _record(message)
            left -= 1
    consumer.close()


def member(options: Options) -> None:
    config = {
        "bootstrap.servers": options["bootstrap"],
        "client.id": options.get("client_id", "confluent"),
        "group.id": options["group"],
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "session.timeout.ms": options.get("session_timeout_ms", 10_000),
        "heartbeat.interval.ms": 300,
        "partition.assignment.strategy": options.get("assignor", "range"),
    }
    if options.get("instance_id"):
        config["group.instance.id"] = options["instance_id"]
    consumer = Consumer(config)
    cooperative = options.get("assignor") == "cooperative-sticky"
    owned: set[int] = set()

    def on_assign(_: Consumer, partitions: list[TopicPartition]) -> None:
        given = {each.partition for each in partitions}
        owned.update(given)
        if cooperative:
            consumer.incremental_assign(partitions)
        say("given", partitions=sorted(given))
        say("assigned", partitions=sorted(owned))

    def on_revoke(_: Consumer, partitions: list[TopicPartition]) -> None:
        revoked = {each.partition for each in partitions}
        owned.difference_update(revoked)
        if cooperative:
            consumer.incremental_unassign(partitions)
        say("revoked", partitions=sorted(revoked))

    consumer.subscribe([options["topic"]], on_assign=on_assign, on_revoke=on_revoke)
    stopping = threading.Event()
    when_input_closes(stopping.set)
    while not stopping.is_set():
        message = consumer.poll(0.1)
        if message is None:
            continue
        if message.error() is not None:
            say("error", message=str(message.error()))
            continue
        _record(message)
        consumer.commit(message=message, asynchronous=False)
        say("committed")
    consumer.close()
    say("left")


def _record(message: Any) -> None:
    if message.error() is not None:
        raise KafkaException(message.error())
    say_record(
        message.partition(),
        message.offset(),
        message.timestamp()[1],
        message.key(),
        message.value(),
        list(message.headers() or []),
    )


if __name__ == "__main__":
    verb, given_options = arguments()
    {"produce": produce, "consume": consume, "member": member}[verb](given_options)
