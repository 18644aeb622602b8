"""One run: a pipeline on a local cluster of Spark, fed all along, killed again and again, watched and judged.

Kills wait for their moment: some batch has been committed since the last one, and a transaction is open.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import confluent_kafka
import pyspark

from fencepost.client.blocking import Admin
from fencepost.client.errors import ClientError
from fencepost.client.values import NewTopic
from tests.peers.broker_process import BrokerProcess
from tests.spark.chaos.examples import INPUT_PARTITIONS, OUTPUT_PARTITIONS, Example, encode
from tests.spark.chaos.processes import executors, python_workers, signal_all
from tests.spark.chaos.verdict import Origin, Output, Verdict, judge

FENCEPOST = str(Path(sys.executable).with_name("fencepost"))
MASTER = "local-cluster[2,1,768]"
VICTIMS = ("driver", "executor", "worker", "broker", "sleeper")
ROWS_PER_BATCH = 60
INPUTS_PER_SECOND = 60
AHEAD_MAX = 4 * ROWS_PER_BATCH
# A machine under load starts Spark slowly; nothing here is decided by these but how long a failure takes.
STALL_SECONDS = 300.0
OPEN_TRANSACTION_SECONDS = 5.0
POLL_SECONDS = 0.02
SPARK_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "768m",
    "spark.executor.memory": "768m",
    "spark.sql.shuffle.partitions": "2",
    "spark.speculation": "true",
    "spark.python.authenticate.socketTimeout": "120s",
    "spark.network.timeout": "600s",
    "spark.executor.heartbeatInterval": "60s",
}


class Stalled(AssertionError):
    """Nothing is committed any more."""


@dataclass(slots=True)
class Result:
    example: str
    broker: str
    protocol: str
    seed: int
    kills: Counter[str] = field(default_factory=Counter)
    in_transaction: int = 0
    """Of kills and sleeping drivers, those before which an open transaction had just been seen."""
    starts: int = 0
    seconds: float = 0.0
    verdict: Verdict = field(default_factory=Verdict)

    @property
    def kill_count(self) -> int:
        """A driver that sleeps is not killed."""
        return sum(self.kills.values()) - self.kills["sleeper"]

    def row(self) -> list[str | int]:
        verdict = self.verdict
        return [
            self.example, self.broker, self.protocol, self.kill_count, self.kills["sleeper"], self.in_transaction,
            verdict.inputs,
            verdict.outputs, verdict.lost, verdict.duplicated, verdict.torn, verdict.disagreeing, verdict.reordered,
            verdict.invented + verdict.taken_back, f"{self.seconds:.0f} s",
        ]  # fmt: skip


HEADS = (
    "example", "broker", "protocol", "kills", "sleeping drivers", "open transaction seen",
    "inputs", "outputs", "lost", "duplicated", "torn",
    "disagreeing", "reordered", "invented or taken back", "took",
)  # fmt: skip


class ChaosRun:
    def __init__(
        self,
        example: Example,
        broker: BrokerProcess,
        protocol: str,
        directory: Path,
        seed: int,
        kills: list[str],
        *,
        master: str = MASTER,
        environment: Mapping[str, str] | None = None,
        machines: Sequence[int] = (),
    ) -> None:
        """`machines`: processes of a cluster's workers; the victim `machine` is one of them and all that runs on it."""
        self.result = Result(example.name, broker.name, protocol, seed)
        self._example = example
        self._broker = broker
        self._directory = directory
        self._random = random.Random(seed)
        self._kills = kills
        self._master = master
        self._environment = {**os.environ, **(environment or {})}
        self._machines = list(machines)
        self._drivers: list[subprocess.Popen[bytes]] = []

    def run(self) -> Result:
        began = time.monotonic()
        self._prepare_cluster()
        self._watcher = Watcher(self._broker.bootstrap_servers, self._example)
        self._feeder = Feeder(self._broker.bootstrap_servers, self._example, self._progress)
        try:
            self._start_driver()
            for victim in self._kills:
                self._wait_for_progress()
                self._kill(victim)
                print(f"{self._example.name}: {victim} killed; {self._progress()} outputs so far", flush=True)
            self._wait_for_progress()
            self._feeder.stop()
            self._wait(lambda: self._progress() >= 2 * len(self._feeder.origins), "the last inputs are not processed")
        finally:
            for driver in self._drivers:
                signal_all(driver.pid, signal.SIGKILL)
                driver.wait()
            self._feeder.stop()
            self._watcher.stop()
        outputs = read_committed(self._broker.bootstrap_servers, self._example.outputs)
        self.result.verdict = judge(self._example, self._feeder.origins, outputs, self._watcher.outputs)
        self.result.seconds = time.monotonic() - began
        return self.result

    def _prepare_cluster(self) -> None:
        with Admin(self._broker.bootstrap_servers) as admin:
            if self.result.protocol == "TV1":
                admin.update_features({"transaction.version": 1})
            admin.create_topic(NewTopic(self._example.source, INPUT_PARTITIONS))
            for topic in (*self._example.outputs, f"{self._example.source}.dlq"):
                admin.create_topic(NewTopic(topic, OUTPUT_PARTITIONS))

    # Drivers

    def _start_driver(self) -> None:
        self.result.starts += 1
        log = self._directory / f"driver-{self.result.starts}.log"
        local = self._directory / f"local-{self.result.starts}"
        settings = {**SPARK_SETTINGS, "spark.local.dir": str(local)}
        command = [
            FENCEPOST, "run", str(self._example.file), "--bootstrap-server", self._broker.bootstrap_servers,
            "--checkpoint", str(self._directory / "checkpoint"), "--master", self._master,
            "--rows-per-batch", str(ROWS_PER_BATCH), "--json",
            *(part for name, value in settings.items() for part in ("--conf", f"{name}={value}")),
        ]  # fmt: skip
        with log.open("wb") as output:
            self._drivers.append(
                subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    cwd=self._directory,
                    start_new_session=True,
                    env=self._environment,
                )
            )

    @property
    def _driver(self) -> "subprocess.Popen[bytes]":
        return self._drivers[-1]

    # Kills

    def _kill(self, victim: str) -> None:
        targets = {"executor": executors, "worker": python_workers}.get(victim)
        pids: list[int] = []
        deadline = time.monotonic() + OPEN_TRANSACTION_SECONDS
        is_open = False
        while not is_open and time.monotonic() < deadline:
            is_open = self._has_open_transaction(deadline)
        if targets is not None:
            self._wait(lambda: bool(pids.extend(targets(self._driver.pid)) or pids), f"there is no {victim}")
        time.sleep(self._random.choice((0.0, 0.02, 0.1)))
        self.result.in_transaction += is_open
        self.result.kills[victim] += 1
        if victim == "broker":
            self._broker.kill()
            self._broker.start()
        elif victim == "driver":
            signal_all(self._driver.pid, signal.SIGKILL)
            self._driver.wait()
            self._start_driver()
        elif victim == "machine":
            signal_all(self._machines.pop(), signal.SIGKILL)
        elif victim == "sleeper":
            self._replace_a_sleeping_driver()
        else:
            pid = self._random.choice(pids)
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                self.result.kills[victim] -= 1

    def _replace_a_sleeping_driver(self) -> None:
        """The old driver stops mid-way, a new one takes over and commits; then the old one wakes up."""
        old = self._driver
        signal_all(old.pid, signal.SIGSTOP)
        self._start_driver()
        self._wait_for_progress(watch=self._driver)
        signal_all(old.pid, signal.SIGCONT)
        self._wait_for_progress(watch=self._driver)
        # It has found out by then, or will when it next asks; it must do no harm while it lives, so it is not hurried.
        deadline = time.monotonic() + STALL_SECONDS
        while old.poll() is None and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        assert old.poll() is not None, "a driver that was replaced goes on"

    def _has_open_transaction(self, deadline: float) -> bool:
        try:
            with Admin(self._broker.bootstrap_servers, request_timeout_ms=2000, retry_timeout_ms=2000) as admin:
                while time.monotonic() < deadline:
                    if admin.list_transactions(states=["Ongoing"]):
                        return True
                    time.sleep(POLL_SECONDS)
        except ClientError:
            pass
        return False

    # Waiting

    def _progress(self) -> int:
        return len(self._watcher.outputs)

    def _wait_for_progress(self, watch: "subprocess.Popen[bytes] | None" = None) -> None:
        before = self._progress()
        self._wait(lambda: self._progress() > before, "nothing is committed any more", watch)

    def _wait(self, holds: Callable[[], bool], otherwise: str, watch: "subprocess.Popen[bytes] | None" = None) -> None:
        progress, since = self._progress(), time.monotonic()
        while not holds():
            time.sleep(POLL_SECONDS)
            if self._progress() != progress:
                progress, since = self._progress(), time.monotonic()
            if (watch or self._driver).poll() is not None:
                # A query may give up for a cause that another start survives (a broker that is away): as an operator,
                # or whatever restarts jobs, would do.
                print(f"the driver ended by itself:\n{self._tail()}", flush=True)
                assert self.result.starts < 3 * len(self._kills) + 3, "it ends again and again"
                self._start_driver()
                watch = None
            if time.monotonic() - since > STALL_SECONDS:
                raise Stalled(f"{otherwise} (seed {self.result.seed})\n{self._tail()}\n{self._broker.log_text()}")

    def _tail(self) -> str:
        return (self._directory / f"driver-{self.result.starts}.log").read_text(errors="replace")[-5000:]


class Feeder:
    """Writes inputs all the while, each exactly once, and remembers where each stands. Keeps a few batches ahead."""

    def __init__(self, bootstrap: str, example: Example, outputs_so_far: Callable[[], int]) -> None:
        self.origins: dict[str, Origin] = {}
        self._outputs_so_far = outputs_so_far
        self._example = example
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "message.timeout.ms": 0, "log_level": 0}
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._feed, daemon=True)
        self._thread.start()

    def _feed(self) -> None:
        number = 0
        while not self._stopping.wait(1 / INPUTS_PER_SECOND):
            self._producer.poll(0)
            if number - self._outputs_so_far() // 2 >= AHEAD_MAX:
                continue
            row = self._example.make_input(number)
            name = next(iter(row.values()))
            self._producer.produce(
                self._example.source, encode(row), partition=number % INPUT_PARTITIONS,
                on_delivery=lambda error, message, name=name: self._delivered(name, error, message),
            )  # fmt: skip
            number += 1
        assert self._producer.flush(STALL_SECONDS) == 0

    def _delivered(self, name: str, error: Any, message: Any) -> None:
        assert error is None, error
        self.origins[name] = Origin(message.partition(), message.offset())

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()


class Watcher:
    """A reader of committed records that runs all along."""

    def __init__(self, bootstrap: str, example: Example) -> None:
        self.outputs: list[Output] = []
        self._stopping = threading.Event()
        self._consumer = _consumer(bootstrap)
        self._consumer.assign(_beginnings(example.outputs))
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while not self._stopping.is_set():
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is None:
                self.outputs.append(_output(message))
        self._consumer.close()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()


def read_committed(bootstrap: str, topics: tuple[str, ...]) -> list[Output]:
    consumer = _consumer(bootstrap, eof=True)
    consumer.assign(_beginnings(topics))
    outputs, ended = [], set()
    deadline = time.monotonic() + STALL_SECONDS
    try:
        while len(ended) < len(topics) * OUTPUT_PARTITIONS:
            assert time.monotonic() < deadline, "the outputs cannot be read to their end"
            message = consumer.poll(1)
            if message is None:
                continue
            if message.error() is None:
                outputs.append(_output(message))
                ended.discard((message.topic(), message.partition()))
            elif message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
                ended.add((message.topic(), message.partition()))
    finally:
        consumer.close()
    return outputs


def _consumer(bootstrap: str, *, eof: bool = False) -> confluent_kafka.Consumer:
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap, "group.id": "judge", "isolation.level": "read_committed",
            "enable.auto.commit": False, "enable.partition.eof": eof, "log_level": 0,
        }
    )  # fmt: skip


def _beginnings(topics: tuple[str, ...]) -> list[confluent_kafka.TopicPartition]:
    beginning = confluent_kafka.OFFSET_BEGINNING
    return [
        confluent_kafka.TopicPartition(topic, partition, beginning)
        for topic in topics
        for partition in range(OUTPUT_PARTITIONS)
    ]


def _output(message: Any) -> Output:
    return Output(message.topic(), message.partition(), message.offset(), json.loads(message.value()))


def chaos(
    example: Example,
    broker: BrokerProcess,
    protocol: str,
    directory: Path,
    seed: int,
    kills: list[str],
    **surroundings: Any,
) -> Result:
    directory.mkdir(parents=True, exist_ok=True)
    try:
        return ChaosRun(example, broker, protocol, directory, seed, kills, **surroundings).run()
    finally:
        # Executors of a local cluster work below Spark's own directory, whatever they are told.
        work = Path(pyspark.__file__).with_name("work")
        for left in (*directory.glob("local-*"), *work.glob("app-*")):
            shutil.rmtree(left, ignore_errors=True)
