"""One client in a process of its own, so that it can be killed: `python -m tests.chaos.worker PLAN`.

It works until its standard input closes, ends what it has under way, and leaves. Its history goes to a file of its own.
"""

import json
import random
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from fencepost.history import HistoryRecorder, JsonLines
from tests.chaos.recorded import (
    CALL_SECONDS,
    NETWORK,
    ProducerLost,
    RecordedProducer,
    RecordedReader,
    name_of,
    text_of,
)

INPUT, OUTPUT = "input", "output"
OUTPUT_PARTITIONS = 3
GROUP = "copiers"
ABORT_PROBABILITY = 0.1
TRANSACTION_TIMEOUT_MS = 20_000


@dataclass(frozen=True, slots=True)
class Plan:
    role: str
    process: str
    bootstrap: str
    history: str
    seed: int

    def as_json(self) -> str:
        return json.dumps(asdict(self))


class Worker:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.random = random.Random(plan.seed)
        self.recorder = HistoryRecorder(JsonLines(plan.history), time.monotonic)
        self._stopping = threading.Event()
        self._count = 0
        threading.Thread(target=self._wait_for_the_end, daemon=True).start()

    def _wait_for_the_end(self) -> None:
        sys.stdin.read()
        self._stopping.set()

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def value(self) -> str:
        self._count += 1
        return f"{self.plan.process}:{self._count}"

    def run(self) -> None:
        {"sender": self.send, "transactor": self.transact, "copier": self.copy, "reader": self.read}[self.plan.role]()

    # A plain producer

    def send(self) -> None:
        producer = Producer(
            {
                **NETWORK,
                "bootstrap.servers": self.plan.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 0,
                "message.timeout.ms": 30_000,
                "error_cb": lambda error: None,
            }
        )
        while not self.is_stopping and self._send_some(producer):
            pass

    def _send_some(self, producer: Producer) -> bool:
        values = [self.value() for _ in range(self.random.randint(1, 5))]
        operation = self.recorder.send(self.plan.process, [(name_of(INPUT, 0), value) for value in values])
        failed: list[object] = []

        def told(number: int) -> Callable[[object, Message], None]:
            def delivered(error: object, message: Message) -> None:
                offset = message.offset()
                if error is not None:
                    failed.append(error)
                elif offset is not None:
                    operation.sent(number, offset)

            return delivered

        try:
            for number, value in enumerate(values):
                producer.produce(INPUT, value, partition=0, on_delivery=told(number))
            left = producer.flush(2 * CALL_SECONDS)
        except KafkaException as error:
            operation.info(error)
            return False
        if left or failed:
            # What was given up may still arrive.
            operation.info(failed[:1] or "no answer")
            return False
        operation.ok()
        return True

    # Transactions

    def transact(self) -> None:
        while not self.is_stopping:
            self._with_producer(self._transactions)

    def copy(self) -> None:
        while not self.is_stopping:
            self._with_producer(self._copies)

    def _with_producer(self, work: Any) -> None:
        producer: RecordedProducer | None = None
        try:
            producer = RecordedProducer(
                self.recorder,
                self.plan.process,
                self.plan.bootstrap,
                self.plan.role,
                **{"transaction.timeout.ms": TRANSACTION_TIMEOUT_MS},
            )
            work(producer)
        except ProducerLost:
            pass  # another takes its place, under the same id
        except KafkaException as error:
            if producer is None:
                raise
            producer.abandon(error)
        finally:
            if producer is not None:
                producer.close()

    def _transactions(self, producer: RecordedProducer) -> None:
        while not self.is_stopping:
            producer.begin()
            for _ in range(self.random.randint(1, 5)):
                producer.send(OUTPUT, self.random.randrange(OUTPUT_PARTITIONS), self.value())
            self._end(producer)

    def _end(self, producer: RecordedProducer) -> bool:
        if self.random.random() < ABORT_PROBABILITY:
            producer.flush()
            producer.abort()
            return False
        return producer.commit()

    def _copies(self, producer: RecordedProducer) -> None:
        consumer = Consumer(
            {
                **NETWORK,
                "bootstrap.servers": self.plan.bootstrap,
                "group.id": GROUP,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 20,
                "error_cb": lambda error: None,
            }
        )
        try:
            self._go_back(consumer)
            while not self.is_stopping:
                messages = [each for each in consumer.consume(10, 0.2) if each.error() is None]
                if not messages:
                    continue
                operation = producer.begin()
                operation.polled({name_of(INPUT, 0): [(int(each.offset() or 0), text_of(each)) for each in messages]})
                for message in messages:
                    partition = (message.offset() or 0) % OUTPUT_PARTITIONS
                    producer.send(OUTPUT, partition, f"copy of {text_of(message)}")
                following = TopicPartition(INPUT, 0, int(messages[-1].offset() or 0) + 1)
                producer.send_offsets([following], GROUP, consumer)
                if not self._end(producer):
                    self._go_back(consumer)
        finally:
            consumer.close()

    def _go_back(self, consumer: Consumer) -> None:
        """To where the group is, as after every abort."""
        operation = self.recorder.fetch_offsets(self.plan.process)
        try:
            (found,) = consumer.committed([TopicPartition(INPUT, 0)], 4 * CALL_SECONDS)
        except KafkaException as error:
            operation.info(error)
            raise ProducerLost from error
        offset = found.offset if found.offset >= 0 else None
        operation.fetched(GROUP, {name_of(INPUT, 0): offset})
        operation.ok()
        consumer.assign([TopicPartition(INPUT, 0, offset or 0)])
        self.recorder.assign(self.plan.process)

    # A reader

    def read(self) -> None:
        partitions = [(INPUT, 0)] + [(OUTPUT, each) for each in range(OUTPUT_PARTITIONS)]
        isolation = self.random.choice(("read_committed", "read_uncommitted"))
        reader = RecordedReader(self.recorder, self.plan.process, self.plan.bootstrap, partitions, isolation)
        while not self.is_stopping:
            reader.poll()
        reader.close()


if __name__ == "__main__":
    Worker(Plan(**json.loads(sys.argv[1]))).run()
