"""Rows of librdkafka against its own mock broker: in memory and in C, it is the most any broker can give this client.

One producer mostly waits for its own timers, and has the mock inside its own process. Fifty of them take more of the
processor than the broker does; they share a mock in a process of its own, as they would share a broker.
"""

import os
from collections.abc import Sequence
from typing import Self

from tests.peers.broker_process import BrokerProcess
from tests.peers.fencepost_process import LISTENING

from bench.experiment import Context, Experiment, Metric, Sample, plural, seconds_of_sample
from bench.load import librdkafka
from bench.subjects import Subject
from bench.transaction_clients import RATE_PAIRS_MAX, VALUE_BYTES, LibrdkafkaTransactions, program


class InnerMock(BrokerProcess):
    """The mock inside the client, which puts its address in the place of any other."""

    name = "librdkafka-mock"

    def start(self) -> Self:
        self.bootstrap_servers = "127.0.0.1:1"
        return self

    @property
    def pid(self) -> int:
        return os.getpid()


class SharedMock(BrokerProcess):
    """The mock in a process of its own. Its topics have to be there before anybody asks for them."""

    name = "librdkafka-mock"

    def __init__(self, topic: str, partitions: int) -> None:
        super().__init__()
        self._topic, self._partitions = topic, partitions

    def start(self) -> Self:
        self._launch([program(), "mock", str(librdkafka()), self._topic, str(self._partitions)])
        found = LISTENING.search(self._await_log("listening on", 0))
        assert found is not None
        self.bootstrap_servers = found[1]
        return self


class AgainstMock(Experiment):
    pair = None
    pairs_max = RATE_PAIRS_MAX
    work_unit = "request"

    def __init__(self, records: int, ids: int, partitions: int) -> None:
        self._records, self._ids, self._partitions = records, ids, partitions
        sizes = f"{plural(records, 'record')}, {plural(ids, 'id')}, {plural(partitions, 'partition')}"
        self.name = f"transactions, librdkafka, {sizes}, flush=os, against its in-memory mock"
        self.metrics = (
            Metric("rate", "transactions/s", ratio_target=0.9 if ids == 1 else None),
            Metric("commit p50", "us", lower_is_better=True),
            Metric("commit p99", "us", lower_is_better=True),
        )
        self._topic = ""
        self._settings: list[str] = []
        self._mock: Subject | None = None

    def subjects(self, context: Context) -> tuple[Subject, Subject]:
        self._topic = context.topic_name()
        if self._ids == 1:
            self._mock = Subject("librdkafka mock", InnerMock())
            self._settings = ["test.mock.num.brokers=1"]
        else:
            self._mock = Subject("librdkafka mock", SharedMock(self._topic, self._partitions))
        return context.launcher.fencepost("os"), self._mock

    def prepare(self, context: Context, subjects: Sequence[Subject]) -> None:
        with subjects[0].connect() as connection:
            connection.create_topic(self._topic, self._partitions, {})
        for subject in subjects:
            self.sample(context, subject)

    def sample(self, context: Context, subject: Subject) -> Sample:
        before = subject.cpu_seconds()
        done = LibrdkafkaTransactions().run(
            subject.bootstrap,
            self._topic,
            self._partitions,
            ids=self._ids,
            records=self._records,
            size=VALUE_BYTES,
            seconds=seconds_of_sample(context),
            settings=self._settings if subject is self._mock else (),
        )
        cpu = subject.cpu_seconds() - before
        values = {
            "rate": done.transactions / done.seconds,
            "commit p50": done.commit_p50_us,
            "commit p99": done.commit_p99_us,
        }
        return Sample(values, cpu, done.client_cpu_seconds, done.seconds, done.transactions)


def experiments() -> list[Experiment]:
    rows: list[Experiment] = [AgainstMock(1, 1, 1)]
    return rows + [AgainstMock(records, 50, partitions) for records in (1, 100) for partitions in (1, 20)]
