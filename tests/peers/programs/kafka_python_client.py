"""kafka-python as a program."""

import threading
from collections.abc import Iterable
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from tests.peers.programs.console import Options, arguments, octets, say, say_record, when_input_closes

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}


def produce(options: Options) -> None:
    codec = options.get("compression") or "none"
    producer = KafkaProducer(
        bootstrap_servers=options["bootstrap"],
        enable_idempotence=True,
        compression_type=None if codec == "none" else codec,
        linger_ms=50,
    )
    sent = [
        producer.send(
            options["topic"],
            value=octets(record["value"]),
            key=octets(record["key"]),
            headers=[(name, octets(value)) for name, value in record.get("headers", [])],
            partition=record["partition"],
            timestamp_ms=record.get("timestamp"),
        )
        for record in options["records"]
    ]
    producer.flush(30)
    for future in sent:
        metadata = future.get(30)
        say("produced", partition=metadata.partition, offset=metadata.offset)
    producer.close()


def consume(options: Options) -> None:
    consumer = KafkaConsumer(bootstrap_servers=options["bootstrap"], auto_offset_reset="earliest")
    partitions = [TopicPartition(options["topic"], partition) for partition in options["partitions"]]
    consumer.assign(partitions)
    consumer.seek_to_beginning(*partitions)
    left = options["count"]
    while left:
        for records in consumer.poll(500, max_records=left).values():
            for record in records:
                _record(record)
                left -= 1
    consumer.close()


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        say("revoked", partitions=sorted(each.partition for each in revoked))

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        say("assigned", partitions=sorted(each.partition for each in assigned))


def member(options: Options) -> None:
    consumer = KafkaConsumer(
        bootstrap_servers=options["bootstrap"],
        client_id=options.get("client_id", "kafka-python"),
        group_id=options["group"],
        group_instance_id=options.get("instance_id"),
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=options.get("session_timeout_ms", 10_000),
        heartbeat_interval_ms=300,
        partition_assignment_strategy=[ASSIGNORS[options.get("assignor", "range")]],
    )
    consumer.subscribe([options["topic"]], listener=Listener())
    # A member that joins before it has heard of the topic joins again when it has, and now and then hangs there
    # for good, with any broker. So it hears of the topic first.
    while not consumer.partitions_for_topic(options["topic"]):
        pass
    stopping = threading.Event()
    when_input_closes(stopping.set)
    while not stopping.is_set():
        found = consumer.poll(200)
        for records in found.values():
            for record in records:
                _record(record)
        if found:
            consumer.commit()
            say("committed")
    consumer.close()
    say("left")


def _record(record: Any) -> None:
    say_record(record.partition, record.offset, record.timestamp, record.key, record.value, list(record.headers))


if __name__ == "__main__":
    verb, given_options = arguments()
    {"produce": produce, "consume": consume, "member": member}[verb](given_options)
