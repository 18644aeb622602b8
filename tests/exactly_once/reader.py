"""read_committed readers: one that runs all along and notes everything, and one that reads all again at the end."""

import threading
import time
from dataclasses import dataclass

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from tests.exactly_once.loops import OUTPUT_PARTITIONS, Input, Loop
from tests.support.patience import patient

NETWORK = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 100, "socket.timeout.ms": 5_000, "log_level": 0}
WHOLE_READ_SECONDS = patient(60)


@dataclass(frozen=True, slots=True)
class Seen:
    """An output record as a reader got it."""

    topic: str
    partition: int
    offset: int
    key: str
    input: Input


def seen(message: Message) -> Seen:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    key, value = message.key(), message.value()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    assert isinstance(key, bytes)
    assert isinstance(value, bytes)
    name, _, copied = value.decode().partition(":")
    assert name == topic, f"{value!r} in {topic}"
    return Seen(topic, partition, offset, key.decode(), Input.parse(copied))


def output_partitions(loop: Loop, offset: int = OFFSET_BEGINNING) -> list[TopicPartition]:
    return [
        TopicPartition(topic, partition, offset) for topic in loop.outputs for partition in range(OUTPUT_PARTITIONS)
    ]


def new_consumer(bootstrap_servers: str, isolation_level: str, group: str = "readers") -> Consumer:
    return Consumer(
        {
            **NETWORK,
            "bootstrap.servers": bootstrap_servers,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": isolation_level,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
        }
    )


class Watcher(threading.Thread):
    """Reads all outputs from the start of the run to its end, through every kill of the broker."""

    def __init__(self, bootstrap_servers: str, loop: Loop) -> None:
        super().__init__(name="watcher", daemon=True)
        self.records: list[Seen] = []
        self.failures: list[str] = []
        self._consumer = new_consumer(bootstrap_servers, "read_committed")
        self._consumer.assign(output_partitions(loop))
        self._stopping = threading.Event()

    def run(self) -> None:
        try:
            while not self._stopping.is_set():
                for message in self._consumer.consume(500, 0.05):
                    error = message.error()
                    if error is None:
                        self.records.append(seen(message))
                    elif error.code() == KafkaError._AUTO_OFFSET_RESET or error.fatal():
                        self.failures.append(str(error))
        except BaseException as problem:
            self.failures.append(repr(problem))
            raise
        finally:
            self._consumer.close()

    def stop(self) -> None:
        self._stopping.set()
        self.join()


def read_whole(bootstrap_servers: str, loop: Loop, isolation_level: str) -> list[Seen]:
    """Everything from the first offset to the end, in the order of each partition."""
    found: list[Seen] = []
    consumer = new_consumer(bootstrap_servers, isolation_level)
    try:
        partitions = output_partitions(loop)
        consumer.assign(partitions)
        ended: set[tuple[str | None, int | None]] = set()
        deadline = time.monotonic() + WHOLE_READ_SECONDS
        while len(ended) < len(partitions):
            assert time.monotonic() < deadline, f"read only to the end of {ended}"
            for message in consumer.consume(1_000, 0.2):
                error = message.error()
                if error is None:
                    found.append(seen(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended.add((message.topic(), message.partition()))
                elif not error.retriable():
                    raise KafkaException(error)
        return found
    finally:
        consumer.close()


def end_offsets(bootstrap_servers: str, partitions: list[TopicPartition], isolation_level: str) -> dict[str, int]:
    consumer = new_consumer(bootstrap_servers, isolation_level)
    try:
        return {
            f"{one.topic}-{one.partition}": consumer.get_watermark_offsets(one, timeout=patient(10))[1]
            for one in partitions
        }
    finally:
        consumer.close()
