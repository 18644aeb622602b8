"""The processes that the demo's second act kills: a broker and a Spark driver."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from fencepost.cli.output import CommandFailed

START_TIMEOUT_SECONDS = 120.0
STOP_TIMEOUT_SECONDS = 60.0
POLL_SECONDS = 0.02
LOG_SHOWN_CHARACTERS = 1_000
PROC = Path("/proc")
COMMAND = (sys.executable, "-m", "fencepost.cli.main")
_LISTENING = re.compile(rb"listening on ([0-9.]+:\d+)\n")


class BrokerProcess:
    """`fencepost serve`. A restart keeps the port and the data."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self.address = "127.0.0.1:0"

    def start(self) -> None:
        log = self._directory / "broker.log"
        since = log.stat().st_size if log.exists() else 0
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [*COMMAND, "serve", "--data", str(self._directory / "data"), "--listen", self.address],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            if found := _LISTENING.search(log.read_bytes()[since:]):
                self.address = found[1].decode()
                return
            time.sleep(POLL_SECONDS)
        self.kill()
        raise CommandFailed("the broker did not start", f"see {log}")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class DriverProcess:
    """A Spark driver: a Python process, its JVM, and the Python workers."""

    def __init__(self, command: Sequence[str], directory: Path) -> None:
        self._command = list(command)
        self.log = directory / "driver.log"
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0

    def start(self) -> None:
        self.starts += 1
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self._directory,
                # In a process group of its own, so that the JVM is killed with it.
                start_new_session=True,
            )

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """Sends SIGKILL to the driver and its JVM."""
        if self._process is None:
            return
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()
        self._process = None

    def stop(self) -> None:
        """Stops it as Ctrl-C does, after the current batch."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        self.kill()

    def log_end(self) -> str:
        return self.log.read_text(errors="replace")[-LOG_SHOWN_CHARACTERS:] if self.log.exists() else ""

    def kill_workers(self) -> int:
        """Sends SIGKILL to the current Python workers. Returns how many there were."""
        killed = 0
        for pid in self.workers():
            try:
                os.kill(pid, signal.SIGKILL)
                killed += 1
            except ProcessLookupError:
                pass
        return killed

    def workers(self) -> list[int]:
        """Spark's Python workers are forks of a daemon, which is a child of the JVM."""
        if self._process is None:
            return []
        processes = _processes()
        own = {self._process.pid}
        for _ in range(4):  # driver, JVM (perhaps through a shell), daemon, workers
            own |= {pid for pid, (parent, _) in processes.items() if parent in own}
        daemons = {pid for pid in own if "pyspark.daemon" in processes.get(pid, (0, ""))[1]}
        return [pid for pid in daemons if processes[pid][0] in daemons]


def _processes() -> dict[int, tuple[int, str]]:
    """The parent and the command of every process."""
    if not PROC.joinpath("self/stat").exists():
        listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,command="], capture_output=True, text=True).stdout
        rows = [line.split(None, 2) for line in listed.splitlines()]
        return {int(row[0]): (int(row[1]), row[2]) for row in rows if len(row) == 3}
    found = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            try:
                parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
                found[int(entry.name)] = (int(parent), (entry / "cmdline").read_bytes().decode(errors="replace"))
            except OSError:
                continue  # it has just ended
    return found


def require_process_list() -> None:
    if not PROC.joinpath("self/stat").exists() and shutil.which("ps") is None:
        raise CommandFailed("the demo needs the command `ps` to find Spark's workers", "install procps")
