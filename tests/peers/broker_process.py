"""What a test may ask of any broker, whoever wrote it."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from tests.support.patience import patient

START_TIMEOUT_SECONDS = patient(60.0)
STOP_TIMEOUT_SECONDS = patient(60.0)
START_ATTEMPTS = 3
POLL_INTERVAL_SECONDS = 0.02
LOG_SHOWN_BYTES = 6_000


class BrokerFailed(AssertionError):
    """The broker did not start, or did not stop as it should."""


class BrokerProcess(ABC):
    """One broker in a process of its own, with a data directory that outlives `kill` and `restart`."""

    name: str

    def __init__(self, configs: Mapping[str, str] | None = None, directory: Path | None = None) -> None:
        self.configs = dict(configs or {})
        self._owned = directory is None
        self.directory = directory or Path(tempfile.mkdtemp(prefix=f"{self.name}-"))
        self.directory.mkdir(parents=True, exist_ok=True)
        self.data_directory = self.directory / "data"
        self.bootstrap_servers = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    @abstractmethod
    def start(self) -> Self:
        """Starts the broker and returns once it answers."""

    def _start_on_free_ports(self, start: Callable[[], None], complaint: bytes) -> Self:
        """On other ports if the log has this complaint: between choosing a free port and binding it another process may
        take it."""
        for attempts_left in reversed(range(START_ATTEMPTS)):
            since = self.log_file.stat().st_size if self.log_file.exists() else 0
            try:
                start()
                break
            except BrokerFailed:
                # The log may go on long after the complaint.
                if not attempts_left or complaint not in self.log_file.read_bytes()[since:]:
                    raise
                self._forget_ports()
        return self

    def _forget_ports(self) -> None:
        """The next start chooses others."""
        self.bootstrap_servers = ""

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.bootstrap_servers.rpartition(":")
        return host, int(port)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def log_file(self) -> Path:
        return self.directory / "broker.log"

    def log_text(self) -> str:
        return self.log_file.read_text(errors="replace")[-LOG_SHOWN_BYTES:] if self.log_file.exists() else ""

    def _launch(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self._log = open(self.log_file, "ab")  # noqa: SIM115 - it stays open as long as the broker runs
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
        )

    def _await_log(self, text: str, since: int, timeout: float = START_TIMEOUT_SECONDS) -> str:
        """Waits for a line in the log that holds the text, and returns that line."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            for line in self.log_file.read_bytes()[since:].decode(errors="replace").splitlines(keepends=True):
                if text in line and line.endswith("\n"):
                    return line.strip()
            if self._process is None or self._process.poll() is not None:
                break
            time.sleep(POLL_INTERVAL_SECONDS)
        self.kill()
        raise BrokerFailed(f"{self.name} did not print {text!r}; its log ends with:\n{self.log_text()}")

    def stop(self) -> None:
        """A clean shutdown, which must end with status 0."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerFailed(f"{self.name} ignored SIGTERM; its log ends with:\n{self.log_text()}") from None
        self._forget()
        if code not in self.clean_exit_codes:
            raise BrokerFailed(f"{self.name} stopped with {code}; its log ends with:\n{self.log_text()}")

    clean_exit_codes: tuple[int, ...] = (0,)

    def kill(self) -> None:
        """SIGKILL: no goodbye, the data directory stays as it was at that instant."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        self._forget()

    def restart(self) -> Self:
        self.stop()
        return self.start()

    def _forget(self) -> None:
        self._process = None
        if self._log is not None:
            self._log.close()
            self._log = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        if self._owned:
            shutil.rmtree(self.directory, ignore_errors=True)
