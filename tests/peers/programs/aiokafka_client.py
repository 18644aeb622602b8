"""aiokafka as a program."""

import asyncio
from collections.abc import Iterable

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, ConsumerRecord, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from tests.peers.programs.console import Options, arguments, octets, say, say_record, when_input_closes

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}


async def produce(options: Options) -> None:
    codec = options.get("compression") or "none"
    producer = AIOKafkaProducer(
        bootstrap_servers=options["bootstrap"],
        enable_idempotence=True,
        compression_type=None if codec == "none" else codec,
        linger_ms=50,
    )
    async with producer:
        sent = [
            await producer.send(
                options["topic"],
                octets(record["value"]),
                octets(record["key"]),
                record["partition"],
                record.get("timestamp"),
                [(name, octets(value)) for name, value in record.get("headers", [])],
            )
            for record in options["records"]
        ]
        for metadata in await asyncio.gather(*sent):
            say("produced", partition=metadata.partition, offset=metadata.offset)


async def consume(options: Options) -> None:
    consumer = AIOKafkaConsumer(bootstrap_servers=options["bootstrap"], auto_offset_reset="earliest")
    await consumer.start()
    try:
        partitions = [TopicPartition(options["topic"], partition) for partition in options["partitions"]]
        consumer.assign(partitions)
        await consumer.seek_to_beginning(*partitions)
        left = options["count"]
        while left:
            for records in (await consumer.getmany(timeout_ms=500, max_records=left)).values():
                for record in records:
                    _record(record)
                    left -= 1
    finally:
        await consumer.stop()


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        say("revoked", partitions=sorted(each.partition for each in revoked))

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        say("assigned", partitions=sorted(each.partition for each in assigned))


async def member(options: Options) -> None:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=options["bootstrap"],
        client_id=options.get("client_id", "aiokafka"),
        group_id=options["group"],
        group_instance_id=options.get("instance_id"),
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=options.get("session_timeout_ms", 10_000),
        heartbeat_interval_ms=300,
        partition_assignment_strategy=[ASSIGNORS[options.get("assignor", "range")]],
    )
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    when_input_closes(lambda: loop.call_soon_threadsafe(stopping.set))
    consumer.subscribe([options["topic"]], listener=Listener())
    await consumer.start()
    try:
        while not stopping.is_set():
            found = await consumer.getmany(timeout_ms=200)
            for records in found.values():
                for record in records:
                    _record(record)
            if found:
                await consumer.commit()
                say("committed")
    finally:
        await consumer.stop()
    say("left")


def _record(record: ConsumerRecord) -> None:
    say_record(record.partition, record.offset, record.timestamp, record.key, record.value, list(record.headers))


if __name__ == "__main__":
    verb, given_options = arguments()
    asyncio.run({"produce": produce, "consume": consume, "member": member}[verb](given_options))
