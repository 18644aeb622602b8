"""One run: a pipeline on a local cluster of Spark, fed all along, killed again and again, watched and judged.

Kills wait for their moment: some batch has been committed since the last one, and a transaction is open. What the
clients, the drivers and the executors ask and are told is one history, which `fencepost check-history` can read.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyspark

from fencepost.client.blocking import Admin
from fencepost.client.errors import ClientError
from fencepost.client.kafka_types import NewTopic
from fencepost.history import HistoryRecorder, JsonLines, check, read_files
from tests.peers.broker_process import BrokerProcess
from tests.spark.chaos.clients import Feeder, OffsetWatcher, Output, Watcher, read_everything, stable_ends
from tests.spark.chaos.due import Place, with_what_is_due
from tests.spark.chaos.examples import INPUT_PARTITIONS, OUTPUT_PARTITIONS, Example, Row
from tests.spark.chaos.failures import failures_environment, planted_failures
from tests.spark.chaos.processes import executors, python_workers, signal_all
from tests.spark.chaos.verdict import Verdict, judge
from tests.spark.chaos.wire import PipelineTap
from tests.support.patience import patient

FENCEPOST = str(Path(sys.executable).with_name("fencepost"))
MASTER = "local-cluster[2,1,768]"
VICTIMS = ("driver", "executor", "worker", "broker", "sleeper")
ROWS_PER_BATCH = 60
AHEAD_MAX = 2 * ROWS_PER_BATCH
# A machine under load starts Spark slowly; nothing here is decided by these but how long a failure takes.
STALL_SECONDS = patient(300.0)
OPEN_TRANSACTION_SECONDS = 20.0
POLL_SECONDS = 0.02
BATCH_DONE = '"event": "batch"'
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
    task_failures: Counter[str] = field(default_factory=Counter)
    """Of tasks of the pipeline's own function: by chance, and planted."""
    seconds: float = 0.0
    inputs: dict[Place, Row] = field(default_factory=dict)
    verdict: Verdict = field(init=False)
    history: Path = field(init=False)

    @property
    def kill_count(self) -> int:
        """A driver that sleeps is not killed."""
        return sum(self.kills.values()) - self.kills["sleeper"]

    def row(self) -> list[str | int]:
        verdict, anomalies, done = self.verdict, self.verdict.anomalies, self.verdict.report.operations
        return [
            self.example, self.broker, self.protocol, self.kill_count, self.kills["sleeper"], self.in_transaction,
            self.task_failures.total(), verdict.inputs, verdict.outputs,
            f"{done['txn', 'ok']}, {done['txn', 'fail']}, {done['txn', 'info']}",
            anomalies["lost"], anomalies["duplicated"], anomalies["torn"], anomalies["other"],
            verdict.disagreeing, verdict.reordered, f"{self.seconds:.0f} s",
        ]  # fmt: skip


HEADS = (
    "example", "broker", "protocol", "kills", "sleeping drivers", "open transaction seen", "failed tasks",
    "inputs", "outputs", "transactions committed, aborted, unknown", "lost", "duplicated", "torn", "other anomalies",
    "disagreeing", "reordered", "took",
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
        settings: Mapping[str, str] | None = None,
        machines: Sequence[int] = (),
    ) -> None:
        """`machines`: processes of a cluster's workers; the victim `machine` is one of them and all that runs on it."""
        self.result = Result(example.name, broker.name, protocol, seed)
        self.result.history = directory / "history.jsonl"
        self._events: list[dict[str, Any]] = []
        self._recorder = HistoryRecorder(self._events.append, time.monotonic)
        self._example = example
        self._broker = broker
        self._directory = directory
        self._random = random.Random(seed)
        self._kills = kills
        self._master = master
        self._environment = {**os.environ, **failures_environment(directory, seed), **(environment or {})}
        self._settings = {**SPARK_SETTINGS, **(settings or {})}
        self._machines = list(machines)
        self._drivers: list[subprocess.Popen[bytes]] = []

    def run(self) -> Result:
        began = time.monotonic()
        self._prepare_cluster()
        servers = self._broker.bootstrap_servers
        self._watcher = Watcher(servers, self._example, self._recorder)
        self._offsets = OffsetWatcher(servers, self._example, self._recorder)
        self._feeder = Feeder(servers, self._example, self._recorder, self._progress, AHEAD_MAX)
        clients = self._clients = (self._feeder, self._watcher, self._offsets)
        try:
            with PipelineTap(self._broker.address, self._example, self._recorder) as self._tap:
                for client in clients:
                    client.start()
                try:
                    self._disturb()
                finally:
                    for driver in self._drivers:
                        signal_all(driver.pid, signal.SIGKILL)
                        driver.wait()
            self._wait_for_the_watcher()
        finally:
            for client in clients:
                client.stopping.set()
        for client in clients:
            client.stop()
        outputs = read_everything(servers, self._example, self._recorder)
        self._judge(outputs)
        self.result.seconds = time.monotonic() - began
        return self.result

    def _disturb(self) -> None:
        self._start_driver()
        for victim in self._kills:
            self._wait_for_progress()
            self._kill(victim)
            print(f"{self._example.name}: {victim} killed; {self._progress()} outputs so far", flush=True)
        self._wait_for_progress()
        self._feeder.stop()
        ends = self._feeder.ends()
        self._wait(lambda: self._offsets.offsets == ends, "the last inputs are not processed")

    def _wait_for_the_watcher(self) -> None:
        """Until nothing is open and all that is committed was given to it."""
        deadline = time.monotonic() + STALL_SECONDS
        while (ends := stable_ends(self._broker.bootstrap_servers, self._example)) is None:
            assert time.monotonic() < deadline, "a transaction is left open"
        while not self._watcher.has_reached(ends):
            assert time.monotonic() < deadline, "the outputs cannot be read to their end"
            time.sleep(POLL_SECONDS)

    def _judge(self, outputs: list[Output]) -> None:
        """By the file that is left, as anybody could."""
        with JsonLines(self.result.history) as sink:
            for event in with_what_is_due(self._events, self._example, self._feeder.inputs):
                sink(event)
        report = check(read_files([self.result.history]))
        self.result.verdict = judge(self._example, self._feeder.inputs, outputs, report)
        self.result.task_failures = planted_failures(self._directory)
        self.result.inputs = self._feeder.inputs

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
        local = self._directory / f"local-{self.result.starts}"
        # Writers write, whose transactions are open for long enough to be met.
        settings = {**self._settings, "spark.local.dir": str(local), "spark.fencepost.smallBatchRows": "0"}
        command = [
            FENCEPOST, "run", str(self._example.file), "--bootstrap-server", self._tap.bootstrap_servers,
            "--checkpoint", str(self._directory / "checkpoint"), "--master", self._master,
            "--rows-per-batch", str(ROWS_PER_BATCH), "--json",
            *(part for name, value in settings.items() for part in ("--conf", f"{name}={value}")),
        ]  # fmt: skip
        with self._log.open("wb") as output:
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
        deadline = time.monotonic() + OPEN_TRANSACTION_SECONDS
        is_open = False
        while not is_open and time.monotonic() < deadline:
            is_open = self._has_open_transaction(deadline)
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
            self._wait(lambda: self._kill_one_of(victim), f"there is no {victim}")

    def _kill_one_of(self, kind: str) -> bool:
        pids = {"executor": executors, "worker": python_workers}[kind](self._driver.pid)
        try:
            os.kill(self._random.choice(pids), signal.SIGKILL)
        except (IndexError, ProcessLookupError):
            return False  # there is none now, or it left before us
        return True

    def _replace_a_sleeping_driver(self) -> None:
        """The old driver stops mid-way, a new one takes over and commits; then the old one wakes up."""
        old = self._driver
        signal_all(old.pid, signal.SIGSTOP)
        self._start_driver()
        # By its own word: outputs that are seen now may be the last of the old one.
        self._wait(lambda: BATCH_DONE in self._log.read_text(errors="replace"), "the successor commits nothing")
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
        return self._watcher.count

    def _wait_for_progress(self, watch: "subprocess.Popen[bytes] | None" = None) -> None:
        before = self._progress()
        self._wait(lambda: self._progress() > before, "nothing is committed any more", watch)

    def _wait(self, holds: Callable[[], bool], otherwise: str, watch: "subprocess.Popen[bytes] | None" = None) -> None:
        progress, since = self._progress(), time.monotonic()
        while not holds():
            time.sleep(POLL_SECONDS)
            for client in self._clients:
                client.check()
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

    @property
    def _log(self) -> Path:
        """Of the driver that was started last."""
        return self._directory / f"driver-{self.result.starts}.log"

    def _tail(self) -> str:
        return self._log.read_text(errors="replace")[-5000:]


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
