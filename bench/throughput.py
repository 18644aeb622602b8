"""Produce and consume rows: how many megabytes of record values a second, and the broker's CPU for one."""

import math
from collections.abc import Sequence

from bench.experiment import Context, Experiment, Metric, Sample
from bench.load import LoadFailed
from bench.subjects import Subject

# Below the default segment.bytes, so that no sample pays for a roll that another does not.
SAMPLE_BYTES_MAX = 900_000_000
CALIBRATION_BYTES = 48_000_000
FIXED = {"file.delete.delay.ms": "0"}  # a deleted sample is gone before the next; Fencepost knows no other wait
SIZES = {100: "100 B", 1024: "1 KiB"}
BATCHES = {16_384: "16 KiB", 1_048_576: "1 MiB"}


def _throughput_metric() -> Metric:
    return Metric("throughput", "MB/s", ratio_target=1.0, client_bound_ratio_target=0.95, must_use_less_cpu=True)


class Produce(Experiment):
    pair = "page cache"

    def __init__(self, client: str, size: int, batch: int, codec: str) -> None:
        self._client, self._size, self._batch, self._codec = client, size, batch, codec
        compressed = "" if codec == "none" else f", {codec}"
        self.name = f"produce, {client}, {SIZES[size]} records, {BATCHES[batch]} batches{compressed}"
        self.metrics = (_throughput_metric(),)
        self.in_quick = codec == "none" or (size, batch) == (1024, 16_384)
        self._records = 0

    def warm_up(self, context: Context, subjects: Sequence[Subject]) -> None:
        self._records = CALIBRATION_BYTES // self._size
        for subject in subjects:
            self.sample(context, subject)

    def prepare(self, context: Context, subjects: Sequence[Subject]) -> None:
        self._records = CALIBRATION_BYTES // self._size
        speeds = []
        for _ in range(1 if context.quick else 2):
            speeds = [self.sample(context, subject).values["throughput"] for subject in subjects]
        wanted = math.prod(speeds) ** (1 / len(speeds)) * 1e6 * context.sample_seconds
        self._records = int(min(wanted, SAMPLE_BYTES_MAX / (2 if context.quick else 1))) // self._size
        for subject in subjects:
            self.sample(context, subject)

    def sample(self, context: Context, subject: Subject) -> Sample:
        topic = context.topic_name()
        client = context.java if self._client == "Java" else context.librdkafka
        with subject.connect() as connection:
            connection.create_topic(topic, 1, {**FIXED, **subject.topic_configs})
            before = subject.cpu_seconds()
            done = client.produce(subject.bootstrap, topic, self._records, self._size, self._batch, self._codec)
            cpu = subject.cpu_seconds() - before
            stored = connection.end_offset(topic, 1)
            connection.delete_topics([topic])
        if stored != self._records:
            raise LoadFailed(f"{subject.name} holds {stored} of {self._records} acknowledged records")
        megabytes = done.records * self._size / 1e6
        return Sample(
            {"throughput": megabytes / done.seconds}, cpu, done.client_cpu_seconds, done.seconds, work=megabytes
        )


class Consume(Experiment):
    pair = "page cache"

    def __init__(self, client: str, size: int, batch: int, codec: str) -> None:
        self._client, self._size, self._batch, self._codec = client, size, batch, codec
        compressed = "" if codec == "none" else f", {codec}"
        self.name = f"consume, {client}, {SIZES[size]} records, {BATCHES[batch]} batches{compressed}"
        self.metrics = (_throughput_metric(),)
        self.in_quick = codec == "none" and batch == 16_384
        self._records = 0
        self._topic = ""

    def warm_up(self, context: Context, subjects: Sequence[Subject]) -> None:
        self._records = CALIBRATION_BYTES // self._size
        self._fill(context, subjects)
        for subject in subjects:
            self.sample(context, subject)
        self.finish(context, subjects)

    def prepare(self, context: Context, subjects: Sequence[Subject]) -> None:
        self._records = (400_000_000 if context.quick else SAMPLE_BYTES_MAX) // self._size
        if self._size < 1024:
            self._records //= 2  # a small record costs the client as much as a large one
        self._fill(context, subjects)
        for _ in range(1 if context.quick else 2):
            for subject in subjects:
                self.sample(context, subject)

    def _fill(self, context: Context, subjects: Sequence[Subject]) -> None:
        self._topic = context.topic_name()
        for subject in subjects:
            with subject.connect() as connection:
                connection.create_topic(self._topic, 1, {**FIXED, **subject.topic_configs})
            context.librdkafka.produce(
                subject.bootstrap, self._topic, self._records, self._size, self._batch, self._codec
            )

    def sample(self, context: Context, subject: Subject) -> Sample:
        client = context.java if self._client == "Java" else context.librdkafka
        before = subject.cpu_seconds()
        done = client.consume(subject.bootstrap, self._topic, 1, self._records)
        cpu = subject.cpu_seconds() - before
        megabytes = done.records * self._size / 1e6
        whole = self._records * self._size / 1e6
        return Sample({"throughput": megabytes / done.seconds}, cpu, done.client_cpu_seconds, done.seconds, whole)

    def finish(self, context: Context, subjects: Sequence[Subject]) -> None:
        for subject in subjects:
            with subject.connect() as connection:
                connection.delete_topics([self._topic])


def experiments() -> list[Experiment]:
    rows: list[Experiment] = []
    for client in ("Java", "librdkafka"):
        for size in SIZES:
            for batch in BATCHES:
                rows += [Produce(client, size, batch, codec) for codec in ("none", "lz4")]
    for client in ("Java", "librdkafka"):
        rows += [Consume(client, 100, 16_384, "none"), Consume(client, 1024, 16_384, "none")]
        rows += [Consume(client, 1024, 1_048_576, "none"), Consume(client, 1024, 16_384, "lz4")]
    return rows
