"""The parts that stories of the sink share: a stream of numbers, queries over it, and a foreign reader as the judge."""

import collections
import dataclasses
import itertools
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer

from fencepost.client import Admin, NewTopic, Producer
from tests.peers.broker_process import BrokerProcess
from tests.spark.sessions import has_source, run_again_if_spark_was_too_slow
from tests.support.patience import patient

_serial = itertools.count()


@dataclasses.dataclass(frozen=True)
class Seen:
    """A record as the foreign client has read it."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class Scene:
    """One story: topics and a group of its own on a broker that others use too."""

    def __init__(self, spark: Any, broker: BrokerProcess, checkpoint: Path) -> None:
        self.spark = spark
        self.broker = broker
        self.checkpoint = checkpoint
        self.name = f"sink-{os.getpid()}-{next(_serial)}"
        self.servers = broker.bootstrap_servers

    def create(self, stem: str, partitions: int = 2, **configs: str) -> str:
        name = f"{self.name}-{stem}"
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        with Admin(self.servers) as admin:
            admin.create_topic(NewTopic(name, partitions, configs=settings))
        return name

    def send(self, topic: str, numbers: Iterable[int], keys: int = 7) -> None:
        with Producer(self.servers) as producer:
            for number in numbers:
                producer.send(topic, b"%d" % number, key=b"key %d" % (number % keys))

    def stream(self, topic: str, **options: str) -> Any:
        reader = self.spark.readStream.format("fencepost" if has_source() else "kafka").option(
            "kafka.bootstrap.servers", self.servers
        )
        return reader.option("subscribe", topic).option("startingOffsets", "earliest").options(**options).load()

    def run(self, rows: Any, function: Callable[[Any, int], None], checkpoint: Path | None = None) -> Any:
        """Everything that is there now; raises what ended the query."""

        def work() -> Any:
            query = self.start(rows, function, checkpoint, availableNow=True)
            try:
                query.awaitTermination()
            finally:
                query.stop()
            return query

        return run_again_if_spark_was_too_slow(work)

    def start(self, rows: Any, function: Callable[[Any, int], None], checkpoint: Path | None, **trigger: Any) -> Any:
        writer = rows.writeStream.foreachBatch(function).trigger(**trigger)
        return writer.option("checkpointLocation", str(checkpoint or self.checkpoint)).start()

    def forget_commit(self, batch_id: int) -> None:
        """As if the driver had died between the transaction's commit and Spark's own note of it."""
        commits = self.checkpoint / "commits"
        assert (commits / str(batch_id)).exists()
        (commits / str(batch_id)).unlink()
        (commits / f".{batch_id}.crc").unlink(missing_ok=True)

    def committed(self, *topics: str, isolation: str = "read_committed") -> list[Seen]:
        return read(self.servers, topics, isolation)

    def numbers(self, topic: str) -> list[int]:
        return sorted(int(record.value or b"-1") for record in self.committed(topic))

    def offsets(self, group_id: str | None = None) -> dict[Any, Any]:
        with Admin(self.servers) as admin:
            return admin.committed_offsets(group_id or self.name)


def read(servers: str, topics: Iterable[str], isolation: str) -> list[Seen]:
    """All records of some topics up to their ends, in the order of each partition, by librdkafka."""
    from confluent_kafka import TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "judge",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,
        }
    )
    try:
        wanted = [
            TopicPartition(topic, partition, 0)
            for topic in topics
            for partition in consumer.list_topics(topic, timeout=patient(60)).topics[topic].partitions
        ]
        consumer.assign(wanted)
        open_ones = {(each.topic, each.partition) for each in wanted}
        found: dict[tuple[str, int], list[Seen]] = collections.defaultdict(list)
        while open_ones:
            message = consumer.poll(patient(60))
            assert message is not None, f"the reader heard nothing of {open_ones} for a minute"
            where = message.topic(), message.partition()
            if message.error() is not None:
                assert message.error().name() == "_PARTITION_EOF", message.error()
                open_ones.discard(where)
                continue
            headers = [(name, content) for name, content in message.headers() or []]
            found[where].append(Seen(*where, message.key(), message.value(), headers))
        return [record for where in sorted(found) for record in found[where]]
    finally:
        consumer.close()
