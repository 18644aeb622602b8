"""Rows of a fresh process: start-up to the first answered Metadata, memory when idle and after load.

Each sample is a start of its own on a data directory that the same broker made and closed cleanly
before, so that neither side pays for formatting. Nothing else runs meanwhile.
"""

import threading
import time
from collections.abc import Sequence

from bench import machine, wire
from bench.experiment import Context, Experiment, Metric, Sample
from bench.subjects import Subject
from bench.throughput import FIXED

POLL_INTERVAL_SECONDS = 0.002
START_TIMEOUT_SECONDS = 60.0
LOAD_BYTES = 300_000_000


def timed_start(subject: Subject, topics: int = 0) -> float:
    """Seconds from starting the process to an answered Metadata that names the broker (and all topics)."""
    answered: list[float] = []
    address = subject.address
    begin = time.perf_counter()
    watcher = threading.Thread(target=_watch, args=(address, topics, begin, answered))
    watcher.start()
    subject.process.start()
    watcher.join()
    if not answered:
        raise TimeoutError(f"{subject.name} answered no Metadata within {START_TIMEOUT_SECONDS} s")
    return answered[0]


def _watch(address: tuple[str, int], topics: int, begin: float, answered: list[float]) -> None:
    while time.perf_counter() - begin < START_TIMEOUT_SECONDS:
        try:
            with wire.Connection(address, timeout=5.0) as connection:
                if connection.brokers() >= 1 and (not topics or connection.topics() >= topics):
                    answered.append(time.perf_counter() - begin)
                    return
        except OSError:
            pass
        time.sleep(POLL_INTERVAL_SECONDS)


class StartUpAndMemory(Experiment):
    pair = None
    name = "process"
    metrics = (
        Metric("start-up to first Metadata", "s", lower_is_better=True, ratio_target=0.1),
        Metric("idle memory (PSS)", "MB", lower_is_better=True, ratio_target=0.25),
        Metric("idle memory (RSS)", "MB", lower_is_better=True),
        Metric("loaded memory (PSS)", "MB", lower_is_better=True),
        Metric("loaded memory (RSS)", "MB", lower_is_better=True),
    )

    def subjects(self, context: Context) -> tuple[Subject, Subject]:
        return context.launcher.fencepost("os"), context.launcher.apache()

    def prepare(self, context: Context, subjects: Sequence[Subject]) -> None:
        # The first start formats the directory and fills the page cache with the program's own files.
        for subject in subjects:
            subject.process.stop()

    def sample(self, context: Context, subject: Subject) -> Sample:
        seconds = timed_start(subject)
        time.sleep(1.0 if context.quick else 4.0)
        idle = machine.memory(subject.pid)
        topic = context.topic_name()
        with subject.connect() as connection:
            connection.create_topic(topic, 1, {**FIXED, **subject.topic_configs})
            records = LOAD_BYTES // 1024 // (3 if context.quick else 1)
            context.librdkafka.produce(subject.bootstrap, topic, records, 1024, 16_384, "none")
            context.librdkafka.consume(subject.bootstrap, topic, 1, records)
            loaded = machine.memory(subject.pid)
            connection.delete_topics([topic])
        subject.process.stop()
        return Sample(
            {
                "start-up to first Metadata": seconds,
                "idle memory (PSS)": idle.proportional_mb,
                "idle memory (RSS)": idle.resident_mb,
                "loaded memory (PSS)": loaded.proportional_mb,
                "loaded memory (RSS)": loaded.resident_mb,
            }
        )


def experiments() -> list[Experiment]:
    return [StartUpAndMemory()]
