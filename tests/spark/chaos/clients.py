"""The foreign clients of a run, all librdkafka: one feeds, one reads what is committed, one asks for offsets."""

import json
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import confluent_kafka

from fencepost.history import HistoryRecorder
from tests.chaos.recorded import NETWORK, RecordedReader, name_of, text_of
from tests.spark.chaos.due import Place
from tests.spark.chaos.examples import INPUT_PARTITIONS, OUTPUT_PARTITIONS, Example, Row, encode
from tests.support.patience import patient

FED_AT_ONCE = 20
FEED_SECONDS = 1 / 3
PATIENCE_SECONDS = patient(300.0)
FETCH_SECONDS = 0.25
FETCH_TIMEOUT_SECONDS = 10.0


class Output(NamedTuple):
    topic: str
    partition: int
    offset: int
    row: Row


class _Working:
    """Does its work again and again, in a thread, until it is stopped; `check` raises what it failed of."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def work(self) -> None:
        raise NotImplementedError

    def _run(self) -> None:
        try:
            while not self.stopping.is_set():
                self.work()
        except BaseException as failure:
            self._failure = failure

    def check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        self.stopping.set()
        self._thread.join()
        self.check()


class Feeder(_Working):
    """Writes inputs all the while, each exactly once, and keeps only a few batches ahead of the pipeline."""

    def __init__(
        self, bootstrap: str, example: Example, recorder: HistoryRecorder, outputs: Callable[[], int], ahead_max: int
    ) -> None:
        super().__init__()
        self.inputs: dict[Place, Row] = {}
        self._count = 0
        self._outputs = outputs
        self._ahead_max = ahead_max
        self._example = example
        self._recorder = recorder
        self._producer = confluent_kafka.Producer(
            {**NETWORK, "bootstrap.servers": bootstrap, "enable.idempotence": True, "message.timeout.ms": 0}
        )

    def ends(self) -> dict[str, int]:
        """Where each input partition ends."""
        found = {f"{self._example.source}-{partition}": 0 for partition in range(INPUT_PARTITIONS)}
        for partition, offset in self.inputs:
            found[partition] = max(found[partition], offset + 1)
        return found

    def work(self) -> None:
        if self.stopping.wait(FEED_SECONDS) or self._count - self._outputs() // 2 >= self._ahead_max:
            return
        numbers = range(self._count, self._count + FED_AT_ONCE)
        rows = [self._example.make_input(number) for number in numbers]
        places = [f"{self._example.source}-{number % INPUT_PARTITIONS}" for number in numbers]
        names = map(self._example.name_of, rows)
        operation = self._recorder.send("feeder", zip(places, names, strict=True))
        failed: list[Any] = []

        def delivered(number: int, error: Any, message: Any) -> None:
            if error is not None:
                failed.append(error)
                return
            operation.sent(number, message.offset())
            self.inputs[places[number], message.offset()] = rows[number]

        for number, row in enumerate(rows):
            self._producer.produce(
                self._example.source, encode(row), partition=(self._count + number) % INPUT_PARTITIONS,
                on_delivery=lambda error, message, number=number: delivered(number, error, message),
            )  # fmt: skip
        self._count += FED_AT_ONCE
        assert self._producer.flush(PATIENCE_SECONDS) == 0, "inputs are not taken"
        assert not failed, failed
        operation.ok()


class Watcher(_Working):
    """Reads what is committed, all along."""

    def __init__(self, bootstrap: str, example: Example, recorder: HistoryRecorder) -> None:
        super().__init__()
        self.count = 0
        self._example = example
        self._reader = RecordedReader(
            recorder, "watcher", bootstrap, _partitions(example.outputs, OUTPUT_PARTITIONS), name=self._name
        )

    def _name(self, message: Any) -> str:
        self.count += 1
        return self._example.name_of(json.loads(text_of(message)))

    def work(self) -> None:
        self._reader.poll()

    def has_reached(self, ends: dict[str, int]) -> bool:
        positions = self._reader.positions
        return all(positions.get(name, -1) >= end for name, end in ends.items())

    def stop(self) -> None:
        super().stop()
        self._reader.close()


class OffsetWatcher(_Working):
    """Asks for the offsets of the pipeline's group, all along."""

    def __init__(self, bootstrap: str, example: Example, recorder: HistoryRecorder) -> None:
        super().__init__()
        self.offsets: dict[str, int] = {}
        self._example = example
        self._recorder = recorder
        self._consumer = confluent_kafka.Consumer(
            {**NETWORK, "bootstrap.servers": bootstrap, "group.id": example.name, "isolation.level": "read_committed"}
        )
        self._partitions = [confluent_kafka.TopicPartition(example.source, each) for each in range(INPUT_PARTITIONS)]

    def work(self) -> None:
        self.fetch()
        self.stopping.wait(FETCH_SECONDS)

    def fetch(self) -> bool:
        operation = self._recorder.fetch_offsets("offset watcher")
        try:
            found = self._consumer.committed(self._partitions, FETCH_TIMEOUT_SECONDS)
        except confluent_kafka.KafkaException as error:
            operation.info(error)
            return False
        if any(each.error is not None for each in found):
            operation.info([each.error for each in found])
            return False
        # Not the markers in their metadata: confluent-kafka reads past the end of that. The tap tells of them.
        told = {name_of(each.topic, each.partition): each.offset for each in found}
        self.offsets = {name: max(offset, 0) for name, offset in told.items()}
        operation.fetched(self._example.name, {name: None if offset < 0 else offset for name, offset in told.items()})
        operation.ok()
        return True

    def stop(self) -> None:
        super().stop()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self.fetch():
            assert time.monotonic() < deadline, "nobody says where the group stands"
        self._consumer.close()


def read_everything(bootstrap: str, example: Example, recorder: HistoryRecorder) -> list[Output]:
    """Inputs and outputs from the beginning, when no transaction is open. Gives back the outputs."""
    outputs: list[Output] = []

    def name(message: Any) -> str:
        row = json.loads(text_of(message))
        if message.topic() in example.outputs:
            outputs.append(Output(message.topic(), message.partition(), message.offset(), row))
        return example.name_of(row)

    partitions = _partitions([example.source], INPUT_PARTITIONS) + _partitions(example.outputs, OUTPUT_PARTITIONS)
    reader = RecordedReader(recorder, "final", bootstrap, partitions, name=name)
    reader.read_everything()
    reader.close()
    return outputs


def stable_ends(bootstrap: str, example: Example) -> dict[str, int] | None:
    """Where the outputs end, None as long as a transaction is open."""
    ends: list[dict[str, int]] = []
    for isolation in ("read_committed", "read_uncommitted"):
        consumer = confluent_kafka.Consumer(
            {**NETWORK, "bootstrap.servers": bootstrap, "group.id": "ends", "isolation.level": isolation}
        )
        try:
            ends.append(
                {
                    f"{topic}-{partition}": consumer.get_watermark_offsets(
                        confluent_kafka.TopicPartition(topic, partition), FETCH_TIMEOUT_SECONDS
                    )[1]
                    for topic, partition in _partitions(example.outputs, OUTPUT_PARTITIONS)
                }
            )
        finally:
            consumer.close()
    return ends[0] if ends[0] == ends[1] else None


def _partitions(topics: Sequence[str], count: int) -> list[tuple[str, int]]:
    return [(topic, partition) for topic in topics for partition in range(count)]
