"""Rows of small requests with one in flight per connection: latency, and sync before the answer."""

import time
from collections.abc import Sequence

from bench import load, wire
from bench.experiment import Context, Experiment, Metric, Sample
from bench.subjects import Subject

VALUE = b"x" * 100
REQUESTS_MAX = 1_000_000


def produce_requests(topics: Sequence[str], partitions: int) -> list[bytes]:
    batch = wire.record_batch([VALUE], int(time.time() * 1000))
    return [wire.produce_request(topic, number, batch) for topic in topics for number in range(partitions)]


class ProduceLatency(Experiment):
    """One 100-byte record, one request in flight, acks=all, page cache only."""

    pair = "page cache"
    work_unit = "request"

    def __init__(self) -> None:
        self.name = "produce latency, one in flight"
        self.metrics = (
            Metric("p50", "us", lower_is_better=True, ratio_target=0.5),
            Metric("p99", "us", lower_is_better=True),
        )
        self._topic = ""

    def warm_up(self, context: Context, subjects: Sequence[Subject]) -> None:
        self.prepare(context, subjects)
        self.finish(context, subjects)

    def prepare(self, context: Context, subjects: Sequence[Subject]) -> None:
        self._topic = context.topic_name()
        for subject in subjects:
            with subject.connect() as connection:
                connection.create_topic(self._topic, 1, subject.topic_configs)
        for subject in subjects:
            # Apache Kafka's latency goes on falling for about a hundred thousand requests.
            self._run(subject, 30_000 if context.quick else 100_000)

    def _run(self, subject: Subject, count: int) -> load.Latency:
        requests = produce_requests([self._topic], 1)
        offset = wire.produce_error_offset(self._topic)
        return load.request(subject.address, requests, offset, connections=1, warmup=300, count=count, seconds=30)

    def sample(self, context: Context, subject: Subject) -> Sample:
        before = subject.cpu_seconds()
        done = self._run(subject, 2_000 if context.quick else 6_000)
        cpu = subject.cpu_seconds() - before
        values = {"p50": done.p50_us, "p99": done.p99_us}
        return Sample(values, cpu, done.client_cpu_seconds, done.seconds, done.requests + 300)

    def finish(self, context: Context, subjects: Sequence[Subject]) -> None:
        for subject in subjects:
            with subject.connect() as connection:
                connection.delete_topics([self._topic])


class SyncBeforeAck(Experiment):
    """Producers of one-record batches, each waiting for its answer, which waits for the disk."""

    pair = "sync"
    work_unit = "request"

    def __init__(self, producers: int, partitions: int, ratio_target: float) -> None:
        plural = "s" if producers > 1 else ""
        self.name = f"sync before ack, {producers} producer{plural}, {partitions} partition{'s' * (partitions > 1)}"
        self._producers, self._partitions = producers, partitions
        self.metrics = (
            Metric("throughput", "requests/s", ratio_target=ratio_target),
            Metric("p50", "us", lower_is_better=True),
            Metric("p99", "us", lower_is_better=True),
        )
        self._topic = ""

    def warm_up(self, context: Context, subjects: Sequence[Subject]) -> None:
        self.prepare(context, subjects)
        self.finish(context, subjects)

    def prepare(self, context: Context, subjects: Sequence[Subject]) -> None:
        self._topic = context.topic_name()
        for subject in subjects:
            with subject.connect() as connection:
                connection.create_topic(self._topic, self._partitions, subject.topic_configs)
        for subject in subjects:
            self._run(subject, 1.0 if context.quick else 4.0)

    def _run(self, subject: Subject, seconds: float) -> load.Latency:
        return load.request(
            subject.address,
            produce_requests([self._topic], self._partitions),
            wire.produce_error_offset(self._topic),
            connections=self._producers,
            warmup=self._producers,
            count=REQUESTS_MAX,
            seconds=seconds,
        )

    def sample(self, context: Context, subject: Subject) -> Sample:
        before = subject.cpu_seconds()
        done = self._run(subject, context.sample_seconds)
        cpu = subject.cpu_seconds() - before
        values = {"throughput": done.requests / done.seconds, "p50": done.p50_us, "p99": done.p99_us}
        return Sample(values, cpu, done.client_cpu_seconds, done.seconds, done.requests + self._producers)

    def finish(self, context: Context, subjects: Sequence[Subject]) -> None:
        for subject in subjects:
            with subject.connect() as connection:
                connection.delete_topics([self._topic])


def experiments() -> list[Experiment]:
    return [
        ProduceLatency(),
        SyncBeforeAck(1, 1, 1.0),
        SyncBeforeAck(64, 1, 3.0),
        SyncBeforeAck(64, 8, 3.0),
    ]
