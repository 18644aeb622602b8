"""The brokers under test: Fencepost and Apache Kafka, each as its users would run it, on one file system.

Owns their processes and data directories. Both stay up during a row; only one has load at a time, and
what the other one burns meanwhile is measured and reported.
"""

import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.peers.broker_process import BrokerProcess
from tests.peers.fencepost_process import FencepostProcess
from tests.peers.kafka import ApacheKafka

from bench import machine, wire

# kafka-server-start.sh and kafka-run-class.sh: one gigabyte of heap, G1, these pauses. The launcher's own
# collector and heap, meant for tests, are taken back; the log level stays.
SERVER_OPTIONS = (
    "-XX:-UseSerialGC",
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)


@dataclass(slots=True)
class Subject:
    """One broker of a pair, and what its topics need to keep the pair's promise."""

    name: str
    process: BrokerProcess
    topic_configs: Mapping[str, str] = field(default_factory=dict)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def address(self) -> tuple[str, int]:
        return self.process.address

    @property
    def bootstrap(self) -> str:
        return self.process.bootstrap_servers

    def connect(self) -> wire.Connection:
        return wire.Connection(self.address)

    def cpu_seconds(self) -> float:
        return machine.cpu_seconds(self.pid)

    def discard(self) -> None:
        self.process.kill()
        shutil.rmtree(self.process.directory, ignore_errors=True)


class Launcher:
    """Makes brokers inside one working directory."""

    def __init__(self, work: Path, self_check: bool = False) -> None:
        work.mkdir(parents=True, exist_ok=True)
        self._work = Path(tempfile.mkdtemp(prefix="run-", dir=work))
        self._self_check = self_check
        self._number = 0

    def _directory(self) -> Path:
        self._number += 1
        return self._work / f"broker-{self._number}"

    def fencepost(self, flush: str) -> Subject:
        if self._self_check:
            return self.apache(sync=flush == "group")
        return Subject("Fencepost", FencepostProcess({"flush": flush}, self._directory()))

    def apache(self, sync: bool = False) -> Subject:
        process = ApacheKafka(directory=self._directory(), java_options=SERVER_OPTIONS)
        return Subject("Apache Kafka", process, {"flush.messages": "1"} if sync else {})

    def close(self) -> None:
        shutil.rmtree(self._work, ignore_errors=True)


PAIRS: dict[str, Callable[[Launcher], tuple[Subject, Subject]]] = {
    "page cache": lambda launcher: (launcher.fencepost("os"), launcher.apache()),
    "sync": lambda launcher: (launcher.fencepost("group"), launcher.apache(sync=True)),
}
