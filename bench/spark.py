"""Spark rows: our source and exactly-once sink beside the connector's source and at-least-once sink.

Here the two sides of a pair are not two brokers but two jobs: each has a broker of the same kind and a Spark session of
its own, and does the same work with the same acks, compression and partitions. Every sample ends with a look at what a
reader of committed records would find.
"""

import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

import pyarrow as pa

from bench import machine, wire
from bench.experiment import Context, Experiment, Metric, Sample
from bench.load import LoadFailed
from bench.subjects import Subject
from bench.throughput import FIXED
from fencepost.client import Admin, IsolationLevel, Reset, TopicPartition
from fencepost.client.arrow import ArrowReader

PARTITIONS = 4
VALUE_BYTES = 100
# Spark gives every partition that has something at least one offset of a batch.
TINY_ROWS, TINY_BATCHES, TINY_WARM_UP = PARTITIONS, 30, 10
FILL_ROWS = 4_000
TIMESTAMP_MS = 1_700_000_000_000
KEPT = {"retention.ms": "-1"}
"""The timestamps are old: a source topic must not lose its records to retention."""
MARKERS_TIMEOUT_SECONDS = 60.0
SIDES = ("Fencepost's source, exactly-once sink", "Spark's connector, at-least-once")


class Jobs:
    """A process with a warm Spark session."""

    def __init__(self, side: str) -> None:
        self._side = side
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.spark_jobs"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._answer()

    def run(self, **job: object) -> dict[str, object]:
        assert self._process.stdin is not None
        print(json.dumps({"side": self._side, **job}), file=self._process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> dict[str, object]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        answer: dict[str, object] = json.loads(line) if line else {"error": "the Spark process ended"}
        if "error" in answer:
            raise LoadFailed(str(answer["error"]).splitlines()[0])
        return answer

    def cpu_seconds(self) -> float:
        while True:
            try:
                return machine.cpu_seconds(self._process.pid)
            except OSError:  # a Python worker ended in the midst of counting; it counts as a dead child next time
                continue

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


class SparkSubject(Subject):
    """A broker with the Spark session that works on it."""

    jobs: Jobs | None = None
    source = ""

    @property
    def running_jobs(self) -> Jobs:
        assert self.jobs is not None, "prepared first"
        return self.jobs

    def discard(self) -> None:
        if self.jobs is not None:
            self.jobs.close()
        super().discard()


class SparkExperiment(Experiment):
    pair = None
    pairs_max = 5
    in_quick = False

    def __init__(self, broker: str) -> None:
        self._broker = broker
        self._records = 0

    def subjects(self, context: Context) -> tuple[Subject, Subject]:
        def make(name: str) -> SparkSubject:
            launcher = context.launcher
            made = launcher.apache() if self._broker == "Apache Kafka" else launcher.fencepost("os")
            return SparkSubject(name, made.process, made.topic_configs)

        return make(SIDES[0]), make(SIDES[1])

    def prepare(self, context: Context, subjects: Sequence[Subject]) -> None:
        for subject, side in zip(subjects, ("fencepost", "connector"), strict=True):
            assert isinstance(subject, SparkSubject)
            subject.jobs = Jobs(side)
            subject.source = context.topic_name()
            fill(subject, subject.source, self._records)
        for _ in range(1 if context.quick else 2):
            for subject in subjects:
                self.sample(context, subject)

    def _run(self, context: Context, subject: Subject, **job: object) -> tuple[dict[str, object], Sample]:
        """The answer, and a sample that holds only CPU times."""
        assert isinstance(subject, SparkSubject)
        jobs, target = subject.running_jobs, context.topic_name()
        with subject.connect() as connection:
            connection.create_topic(target, PARTITIONS, {**FIXED, **subject.topic_configs})
            client_before, broker_before = jobs.cpu_seconds(), subject.cpu_seconds()
            answer = jobs.run(bootstrap=subject.bootstrap, source=subject.source, target=target, name=target, **job)
            client, broker = jobs.cpu_seconds() - client_before, subject.cpu_seconds() - broker_before
            copied = committed_records(subject, target)
            connection.delete_topics([target])
        if copied != self._records:
            raise LoadFailed(f"{copied} of {self._records} records were copied ({subject.name})")
        seconds = float(answer["seconds"])  # type: ignore[arg-type]
        return answer, Sample({}, broker, client, seconds, work=copied * VALUE_BYTES / 1e6)


class TopicToTopic(SparkExperiment):
    metrics = (
        Metric("throughput", "records/s", ratio_target=1.0),
        Metric("CPU of Spark", "us/record", lower_is_better=True),
    )

    def __init__(self, broker: str) -> None:
        super().__init__(broker)
        self.name = f"Spark, topic to topic, {broker}"

    def prepare(self, context: Context, subjects: Sequence[Subject]) -> None:
        # Warm is what has run, not what has run for long: the samples of the warm-up are short.
        records = context.spark_records // (10 if context.quick else 1)
        self._records = records // 5
        super().prepare(context, subjects)
        self._records = records
        for subject in subjects:
            assert isinstance(subject, SparkSubject)
            subject.source = context.topic_name()
            fill(subject, subject.source, records)

    def sample(self, context: Context, subject: Subject) -> Sample:
        _, sample = self._run(context, subject)
        sample.values["throughput"] = self._records / sample.seconds
        sample.values["CPU of Spark"] = sample.client_cpu_seconds / self._records * 1e6
        return sample


class TinyBatch(SparkExperiment):
    metrics = (Metric("time of a batch", "ms", lower_is_better=True, difference_target=150.0),)

    def __init__(self, broker: str) -> None:
        super().__init__(broker)
        self.name = f"Spark, micro-batch of {TINY_ROWS} rows, {broker}"
        self._records = TINY_ROWS * (TINY_BATCHES + TINY_WARM_UP)

    def sample(self, context: Context, subject: Subject) -> Sample:
        answer, sample = self._run(context, subject, max_offsets=TINY_ROWS)
        times = [batch["triggerExecution"] for batch in answer["batches"]]  # type: ignore[attr-defined]
        sample.values["time of a batch"] = statistics.median(times[TINY_WARM_UP:])
        return sample


def fill(subject: Subject, topic: str, records: int) -> None:
    """A topic of values like those of the other rows, dealt out to the partitions."""
    from fencepost.wire.arrow_records import encode_batches

    portion = min(FILL_ROWS, math.ceil(records / PARTITIONS))
    values = pa.array([_value(number) for number in range(portion)], pa.binary())
    with subject.connect() as connection:
        connection.create_topic(topic, PARTITIONS, {**KEPT, **subject.topic_configs})
        written = number = 0
        while written < records:
            rows = values.slice(0, min(portion, records - written))
            for batch in encode_batches(rows, timestamps=TIMESTAMP_MS):
                connection.call(wire.produce_request(topic, number % PARTITIONS, bytes(batch)))
            written += len(rows)
            number += 1
        stored = connection.end_offset(topic, PARTITIONS)
    if stored != records:
        raise LoadFailed(f"{stored} of {records} records were stored")


def _value(number: int) -> bytes:
    text = b"%016d customer=%06d item=%06d " % (number, number % 7919, number * 31 % 99991)
    return text.ljust(VALUE_BYTES, b".")


def committed_records(subject: Subject, topic: str) -> int:
    """What a reader of committed records finds once all markers are written."""
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    ends = dict.fromkeys(partitions, int(Reset.LATEST))
    deadline = time.monotonic() + MARKERS_TIMEOUT_SECONDS
    with Admin(subject.bootstrap) as admin:
        while True:
            stable = admin.list_offsets(ends, IsolationLevel.READ_COMMITTED)
            if stable == admin.list_offsets(ends) or time.monotonic() > deadline:
                break
    with ArrowReader(subject.bootstrap) as reader:
        return sum(batch.num_rows for at in partitions for batch in reader.read(at, 0, stable[at].offset))


def experiments() -> list[Experiment]:
    rows: list[Experiment] = []
    for broker in ("Fencepost", "Apache Kafka"):
        rows += [TopicToTopic(broker), TinyBatch(broker)]
    return rows
