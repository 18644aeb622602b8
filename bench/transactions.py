"""Rows of transactions: how many a second and how long a commit takes, and what the commit interval costs.

A row's name says what its answers wait for: the page cache (flush=os, and Apache Kafka's default), or the disk
(flush=group, and flush.messages=1 on the topic and on Apache Kafka's __transaction_state).
"""

from collections.abc import Callable, Sequence

from bench import transaction_mock
from bench.experiment import Context, Experiment, Metric, Sample, plural, seconds_of_sample
from bench.load import LoadFailed
from bench.subjects import Subject
from bench.throughput import FIXED
from bench.transaction_clients import (
    RATE_PAIRS_MAX,
    VALUE_BYTES,
    LibrdkafkaTransactions,
    RawCalls,
    Transactions,
    init_producers,
    raw_transactions,
)
from bench.transaction_frames import TransactionalConnection

FIRST_WARM_SECONDS = 5.0
TRANSACTION_STATE = "__transaction_state"
FLUSH_NAMES = {"page cache": "flush=os", "sync": "flush=group against flush.messages=1"}


class TransactionRate(Experiment):
    """Transactions of some records by some transactional ids at once, each after the other's answer."""

    work_unit = "request"
    pairs_max = RATE_PAIRS_MAX

    def __init__(self, client: str, records: int, ids: int, partitions: int, pair: str = "page cache") -> None:
        self.pair: str | None = pair
        self._client, self._records, self._ids, self._partitions = client, records, ids, partitions
        sizes = f"{plural(records, 'record')}, {plural(ids, 'id')}, {plural(partitions, 'partition')}"
        self.name = f"transactions, {client}, {sizes}, {FLUSH_NAMES[pair]}"
        demanding = client == "raw calls" or ids > 1
        self.metrics = (
            Metric("rate", "transactions/s", ratio_target=2.0 if demanding else 1.0),
            Metric("commit p50", "us", lower_is_better=True),
            Metric("commit p99", "us", lower_is_better=True, ratio_target=0.5 if demanding else None),
            Metric("begin to commit p50", "us", lower_is_better=True),
            Metric("begin to commit p99", "us", lower_is_better=True),
        )
        if client == "raw calls":
            self.metrics += (Metric("told to come back", "per transaction", lower_is_better=True),)
        self.in_quick = partitions == 1 and records == 1 and client != "Java" and pair == "page cache"
        # The warm-up of a long run ends before it comes to these rows; a JVM must not be measured cold.
        self.warm_seconds = 0.0
        self._topic = ""
        self._runs: dict[int, Callable[[float], Transactions]] = {}
        self._raw: list[RawCalls] = []

    def warm_up(self, context: Context, subjects: Sequence[Subject]) -> None:
        self.prepare(context, subjects)
        self.finish(context, subjects)

    def prepare(self, context: Context, subjects: Sequence[Subject]) -> None:
        self._topic = context.topic_name()
        for subject in subjects:
            with TransactionalConnection(subject.address) as connection:
                connection.create_topic(self._topic, self._partitions, {**FIXED, **subject.topic_configs})
                connection.await_coordinator(self._topic)
                # What is asked of a topic is asked of the coordinator's topic too, which is one more.
                if subject.topic_configs:
                    connection.set_topic_configs(TRANSACTION_STATE, subject.topic_configs)
            self._runs[id(subject)] = self._runner(context, subject)
        for subject in subjects:
            self._runs[id(subject)](max(self.warm_seconds, seconds_of_sample(context)))

    def _runner(self, context: Context, subject: Subject) -> Callable[[float], Transactions]:
        topic, partitions, ids, records = self._topic, self._partitions, self._ids, self._records
        if self._client == "raw calls":
            producers = init_producers(subject.address, topic, ids)
            calls = raw_transactions(subject.address, producers, topic, partitions, records=records, size=VALUE_BYTES)
            self._raw.append(calls)
            return lambda seconds: calls.run(warmup=2 * ids, seconds=seconds)
        client = context.java_transactions if self._client == "Java" else LibrdkafkaTransactions()
        return lambda seconds: client.run(
            subject.bootstrap, topic, partitions, ids=ids, records=records, size=VALUE_BYTES, seconds=seconds
        )

    def sample(self, context: Context, subject: Subject) -> Sample:
        with subject.connect() as connection:
            offset_before = connection.end_offset(self._topic, self._partitions)
            before = subject.cpu_seconds()
            done = self._runs[id(subject)](seconds_of_sample(context))
            cpu = subject.cpu_seconds() - before
            stored = connection.end_offset(self._topic, self._partitions) - offset_before
        if stored < done.transactions * self._records:
            raise LoadFailed(f"{subject.name} holds {stored} records of {done.transactions} transactions")
        values = {
            "rate": done.transactions / done.seconds,
            "commit p50": done.commit_p50_us,
            "commit p99": done.commit_p99_us,
            "begin to commit p50": done.whole_p50_us,
            "begin to commit p99": done.whole_p99_us,
            "told to come back": done.backed_off / done.transactions,
        }
        return Sample(values, cpu, done.client_cpu_seconds, done.seconds, done.transactions)

    def finish(self, context: Context, subjects: Sequence[Subject]) -> None:
        if self._client == "Java":
            context.java_transactions.forget()
        while self._raw:
            self._raw.pop().close()
        for subject in subjects:
            with subject.connect() as connection:
                connection.delete_topics([self._topic])


class CommitInterval(Experiment):
    """What transactions cost: one librdkafka producer of 1 KiB records that commits every so often."""

    pair = "page cache"
    work_unit = "MB"
    in_quick = False
    SIZE_BYTES = 1024
    PACED_RECORDS_PER_SECOND = 5_000
    FULL_SPEED_SECONDS = 2.0  # a gigabyte or more: not the place for ten seconds

    def __init__(self, interval_ms: int) -> None:
        self._interval_ms = interval_ms
        spoken = f"{interval_ms} ms" if interval_ms < 1000 else f"{interval_ms // 1000} s"
        kind = f"commit every {spoken}" if interval_ms else "no transactions"
        self.name = f"cost of transactions, librdkafka, 1 KiB records, {kind}, flush=os"
        self.pairs_max = 1 if interval_ms >= 10_000 else 2
        self.metrics = (
            Metric("throughput", "MB/s", ratio_target=1.0, client_bound_ratio_target=0.95),
            Metric("end to end p50 at 5 MB/s", "ms", lower_is_better=True),
            Metric("end to end p99 at 5 MB/s", "ms", lower_is_better=True),
        )

    def prepare(self, context: Context, subjects: Sequence[Subject]) -> None:
        for subject in subjects:
            self._run(context, subject, seconds=0.3, rate=0)

    def _run(self, context: Context, subject: Subject, seconds: float, rate: int) -> tuple[float, float, float, float]:
        topic = context.topic_name()
        with subject.connect() as connection:
            connection.create_topic(topic, 1, {**FIXED, **subject.topic_configs})
            done = LibrdkafkaTransactions().interval(
                subject.bootstrap, topic, self._interval_ms, seconds=seconds, rate=rate, size=self.SIZE_BYTES
            )
            connection.delete_topics([topic])
        megabytes_per_second = done.records_per_second * self.SIZE_BYTES / 1e6
        return megabytes_per_second, done.latency_p50_us / 1e3, done.latency_p99_us / 1e3, done.client_cpu_seconds

    def sample(self, context: Context, subject: Subject) -> Sample:
        before = subject.cpu_seconds()
        speed, _, _, client_cpu = self._run(context, subject, self.FULL_SPEED_SECONDS, rate=0)
        cpu = subject.cpu_seconds() - before
        # Latency needs a whole interval.
        seconds = max(1.0, self._interval_ms / 1e3)
        paced = self._run(context, subject, seconds, rate=self.PACED_RECORDS_PER_SECOND)
        values = {
            "throughput": speed,
            "end to end p50 at 5 MB/s": paced[1],
            "end to end p99 at 5 MB/s": paced[2],
        }
        return Sample(values, cpu, client_cpu, self.FULL_SPEED_SECONDS, speed * self.FULL_SPEED_SECONDS)


def experiments() -> list[Experiment]:
    rows: list[Experiment] = list(transaction_mock.experiments())
    for client in ("raw calls", "librdkafka", "Java"):
        of_client = [
            TransactionRate(client, records, ids, partitions)
            for ids in (1, 50)
            for records in (1, 100)
            for partitions in (1, 20)
        ]
        of_client[0].warm_seconds = FIRST_WARM_SECONDS
        rows += of_client
    rows += [TransactionRate("raw calls", 1, ids, 1, "sync") for ids in (1, 50)]
    rows += [CommitInterval(interval_ms) for interval_ms in (0, 10, 100, 1_000, 10_000)]
    return rows
