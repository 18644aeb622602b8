"""Rows of a broker with a thousand topics, Fencepost alone; its peer is a Fencepost with one topic."""

import time
from collections.abc import Sequence

from bench import load, machine, wire
from bench.experiment import Context, Experiment, Metric, Sample
from bench.lifecycle import timed_start
from bench.requests import produce_requests
from bench.subjects import Subject

TOPICS = 1_000
PARTITIONS = 4
TOPICS_PER_REQUEST = 50


def topic_names(count: int) -> list[str]:
    return [f"scale-{number:06}" for number in range(count)]


class ManyTopics(Experiment):
    """Requests go round all partitions of a broker; the latency is compared with a broker of one topic."""

    pair = None
    name = f"{TOPICS:,} topics x {PARTITIONS} partitions"
    work_unit = "request"
    metrics: tuple[Metric, ...] = (
        Metric("produce p50 against one topic", "us", lower_is_better=True, ratio_target=1.5),
        Metric("produce p99 against one topic", "us", lower_is_better=True),
    )

    def __init__(self) -> None:
        self._topics: dict[int, int] = {}

    def subjects(self, context: Context) -> tuple[Subject, Subject]:
        many, one = context.launcher.fencepost("os"), context.launcher.fencepost("os")
        self._topics = {id(many): TOPICS, id(one): 1}
        many.name, one.name = f"{TOPICS} topics", "one topic"
        return many, one

    def prepare(self, context: Context, subjects: Sequence[Subject]) -> None:
        for subject in subjects:
            names = topic_names(self._topics[id(subject)])
            with subject.connect() as connection:
                for first in range(0, len(names), TOPICS_PER_REQUEST):
                    chosen = names[first : first + TOPICS_PER_REQUEST]
                    connection.create_topics(dict.fromkeys(chosen, PARTITIONS), {})
                connection.create_topic("ready", 1, {})
        for subject in subjects:
            # Every partition is written once before the clock runs: its first write opens files.
            self._run(subject, TOPICS * PARTITIONS)

    def _run(self, subject: Subject, count: int) -> load.Latency:
        names = topic_names(self._topics[id(subject)])
        requests = produce_requests(names, PARTITIONS)
        offset = wire.produce_error_offset(names[0])
        return load.request(subject.address, requests, offset, connections=1, warmup=300, count=count, seconds=60)

    def sample(self, context: Context, subject: Subject) -> Sample:
        before = subject.cpu_seconds()
        done = self._run(subject, 4_000 if context.quick else 8_000)
        cpu = subject.cpu_seconds() - before
        values = {"produce p50 against one topic": done.p50_us, "produce p99 against one topic": done.p99_us}
        return Sample(values, cpu, done.client_cpu_seconds, done.seconds, done.requests + 300)


class ManyTopicsIdle(ManyTopics):
    """The same two brokers, restarted cleanly and left alone."""

    name = f"{ManyTopics.name}, restarted"
    pairs_max = 3  # a minute each, and compared with a fixed target rather than a peer
    metrics = (
        Metric("start after a clean stop", "s", lower_is_better=True, absolute_target=3.0),
        Metric("idle CPU", "% of a core", lower_is_better=True, absolute_target=3.0),
        Metric("idle memory (PSS)", "MB", lower_is_better=True),
    )

    def sample(self, context: Context, subject: Subject) -> Sample:
        subject.process.stop()
        seconds = timed_start(subject, self._topics[id(subject)])
        time.sleep(1.0)
        idle_seconds = 5.0 if context.quick else 10.0
        before = subject.cpu_seconds()
        time.sleep(idle_seconds)
        cpu = subject.cpu_seconds() - before
        return Sample(
            {
                "start after a clean stop": seconds,
                "idle CPU": 100 * cpu / idle_seconds,
                "idle memory (PSS)": machine.memory(subject.pid).proportional_mb,
            }
        )


def experiments() -> list[Experiment]:
    return [ManyTopics(), ManyTopicsIdle()]
