"""Kill -9 under load, fifty times in a row: every acknowledged record is there once, in order; restart needs no hand.

A real `fencepost serve` and a real client: librdkafka's idempotent producer with acks=all, on several partitions, with
its own retries. It is never restarted, so nothing at all may be in the log twice.
"""

import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.peers.fencepost_process import FencepostProcess
from tests.support.patience import patient

KILLS = 50
TOPIC = "purchases"
PARTITIONS = 4
# Most kills come this long after the first acknowledgement of a life, some so long after the start.
KILL_AFTER_SECONDS = (0.0, 0.2)
PRODUCED_PER_SECOND = 4_000
PRODUCE_EVERY_SECONDS = 0.01
PROGRESS_SECONDS = patient(30)
LAST_FLUSH_SECONDS = patient(120)
VALUE_PADDING = b"." * 200


class Load(threading.Thread):
    """Produces numbered records until told to stop, and keeps what the delivery reports said."""

    def __init__(self, bootstrap_servers: str) -> None:
        super().__init__(name="load")
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "batch.size": 8_192,  # many small batches: five of each partition are in flight most of the time
                "message.timeout.ms": 0,  # none: whether the broker takes records is judged by their progress
                "socket.timeout.ms": 5_000,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 10,
                "error_cb": self._on_error,
                "log_level": 0,
            }
        )
        self._stopping = threading.Event()
        self.sent = [0] * PARTITIONS
        self.acknowledged: list[list[tuple[int, int]]] = [[] for _ in range(PARTITIONS)]
        self.failures: list[str] = []

    def run(self) -> None:
        partition = 0
        next_time = time.monotonic()
        while not self._stopping.is_set():
            next_time = max(next_time + PRODUCE_EVERY_SECONDS, time.monotonic() - 1)
            for _ in range(int(PRODUCED_PER_SECOND * PRODUCE_EVERY_SECONDS)):
                partition = (partition + 1) % PARTITIONS
                number = self.sent[partition]
                try:
                    self._producer.produce(
                        TOPIC, b"%d " % number + VALUE_PADDING, partition=partition, on_delivery=self._on_delivery
                    )
                except BufferError:
                    break
                self.sent[partition] += 1
            while (left := next_time - time.monotonic()) > 0:
                self._producer.poll(left)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(str(error))
            return
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        assert value is not None
        self.acknowledged[partition].append((offset, number_of(value)))

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self.failures.append(f"fatal: {error}")

    @property
    def acknowledged_count(self) -> int:
        return sum(map(len, self.acknowledged))

    def wait_for_progress(self) -> None:
        before, deadline = self.acknowledged_count, time.monotonic() + PROGRESS_SECONDS
        while self.acknowledged_count == before:
            assert time.monotonic() < deadline, "the broker does not take records any more"
            assert not self.failures, self.failures
            time.sleep(0.002)

    def stop(self) -> None:
        self._stopping.set()
        self.join()
        assert self._producer.flush(LAST_FLUSH_SECONDS) == 0, "not everything could be delivered in the end"


def number_of(value: str | bytes) -> int:
    return int(value.split()[0])


def read_all(bootstrap_servers: str, partition: int) -> Iterator[tuple[int, int]]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": "check", "enable.auto.commit": False, "log_level": 0}
    )
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=patient(10))
        consumer.assign([TopicPartition(TOPIC, partition, OFFSET_BEGINNING)])
        position = 0
        while position < end:
            messages = consumer.consume(10_000, timeout=patient(10))
            assert messages, f"{TOPIC}-{partition}: nothing to read at {position} of {end}"
            for message in messages:
                assert message.error() is None, message.error()
                offset, value = message.offset(), message.value()
                assert offset is not None
                assert value is not None
                yield offset, number_of(value)
                position = offset + 1
    finally:
        consumer.close()


@pytest.mark.timeout(400)
def test_fifty_kills_under_load_lose_repeat_and_reorder_nothing(tmp_path: Path) -> None:
    seed = int(os.environ.get("KILL_NINE_SEED") or 20_261_118)
    print(f"\nseed {seed}")
    source = random.Random(seed)
    # Small segments, so that some kills hit a roll.
    settings = {"log.segment.bytes": "1000000", "log.flush.offset.checkpoint.interval.ms": "500"}
    with FencepostProcess(settings, tmp_path / "broker") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(patient(10))
        load = Load(broker.bootstrap_servers)
        load.start()
        try:
            for number in range(KILLS):
                if number % 5:
                    load.wait_for_progress()
                time.sleep(source.uniform(*KILL_AFTER_SECONDS))
                broker.kill()
                broker.start()
            load.stop()
        finally:
            load._stopping.set()
        assert load.failures == [], f"seed {seed}"
        assert load.acknowledged_count == sum(load.sent)
        for partition, acknowledged in enumerate(load.acknowledged):
            found = list(read_all(broker.bootstrap_servers, partition))
            # Once, in order, at the offset that was told: the numbers are 0, 1, 2, ... without a gap or a repetition.
            assert [number for _, number in found] == list(range(load.sent[partition])), f"seed {seed}"
            assert found == sorted(acknowledged), f"seed {seed}"
        broker.stop()
        print(f"{load.acknowledged_count} records through {KILLS} kills")
