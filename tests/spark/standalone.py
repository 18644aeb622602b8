"""A real Spark cluster from the pyspark package: a master and workers in processes of their own, on loopback."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyspark

from tests.spark.chaos.processes import signal_all
from tests.support.patience import patient

HOME = Path(pyspark.__file__).parent
HOST = "127.0.0.1"
START_SECONDS = patient(120)
MASTER_CLASS = "org.apache.spark.deploy.master.Master"
WORKER_CLASS = "org.apache.spark.deploy.worker.Worker"
URL = re.compile(r"Starting Spark master at (spark://\S+)")
REGISTERED = "Successfully registered with master"

# A Python that has everything the package needs, but not the package: it has to be shipped.
WITHOUT_FENCEPOST = """\
import sys
sys.path[:] = [entry for entry in sys.path if not entry.rstrip("/").endswith("/src")]
sys.meta_path[:] = [finder for finder in sys.meta_path if "__editable__" not in repr(finder)]
"""


@dataclass(frozen=True, slots=True)
class Cluster:
    url: str
    workers: list[int]
    """Their process ids."""
    python: str
    """What executors are to run."""


@contextlib.contextmanager
def standalone_cluster(directory: Path, hosts: Sequence[str] = (HOST, HOST), cores: int = 1) -> Iterator[Cluster]:
    """A worker on each of the hosts. All of 127.0.0.0/8 is this machine, but to Spark two addresses are two hosts."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "sitecustomize.py").write_text(WITHOUT_FENCEPOST)
    python = directory / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{directory}:$PYTHONPATH" exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    started: list[subprocess.Popen[bytes]] = []
    try:
        master = _launch(directory, "master", HOST, MASTER_CLASS, "--port", "0", "--webui-port", "0")
        started.append(master)
        url = _await(directory / "master.log", URL, master)
        for number, host in enumerate(hosts):
            worker = _launch(
                directory, f"worker-{number}", host, WORKER_CLASS, "--webui-port", "0",
                "--cores", str(cores), "--memory", "1g", "--work-dir", str(directory / f"work-{number}"), url,
            )  # fmt: skip
            started.append(worker)
        for number, worker in enumerate(started[1:]):
            _await(directory / f"worker-{number}.log", re.compile(f"({REGISTERED})"), worker)
        yield Cluster(url, [worker.pid for worker in started[1:]], str(python))
    finally:
        for process in started:
            signal_all(process.pid, signal.SIGKILL)
            process.wait()


def _launch(directory: Path, name: str, host: str, main: str, *arguments: str) -> "subprocess.Popen[bytes]":
    environment = {
        **os.environ, "SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": host, "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_LOCAL_DIRS": str(directory / "local"),
    }  # fmt: skip
    with (directory / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            [str(HOME / "bin" / "spark-class"), main, "--host", host, *arguments],
            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=environment, cwd=directory,
        )  # fmt: skip


def _await(log: Path, wanted: re.Pattern[str], process: "subprocess.Popen[bytes]") -> str:
    deadline = time.monotonic() + START_SECONDS
    while (found := wanted.search(log.read_text(errors="replace"))) is None:
        assert process.poll() is None, log.read_text(errors="replace")[-3000:]
        assert time.monotonic() < deadline, log.read_text(errors="replace")[-3000:]
        time.sleep(0.1)
    return found[1]
