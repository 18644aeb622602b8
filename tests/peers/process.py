"""A child process that speaks JSON lines: one event per line of standard output.

Reader threads collect what it prints, so that a test can wait for an event without ever sleeping
for a guessed time, and can show everything the child said when the event does not come.
"""

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import IO, Any, Self

from tests.support.patience import patient

Event = dict[str, Any]
WAIT_TIMEOUT_SECONDS = patient(40.0)
STOP_TIMEOUT_SECONDS = patient(20.0)
OUTPUT_SHOWN_LINES = 60


class ChildFailed(AssertionError):
    """The child ended, or stayed silent, where an event was due."""


class JsonLinesProcess:
    """Started at once; `events` grows as the child prints. Lines that are not JSON are kept as output."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.events: list[Event] = []
        self._output: list[str] = []
        self._changed = threading.Condition()
        self._open_streams = 2
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        self._threads = [
            threading.Thread(target=self._read, args=(self._process.stdout, True), daemon=True),
            threading.Thread(target=self._read, args=(self._process.stderr, False), daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.poll()

    @property
    def output(self) -> str:
        """What the child printed that is no event: its logs and complaints."""
        with self._changed:
            return "\n".join(self._output)

    def _read(self, stream: IO[str], holds_events: bool) -> None:
        for line in stream:
            event = _event(line) if holds_events else None
            with self._changed:
                if event is None:
                    self._output.append(line.rstrip("\n"))
                else:
                    self.events.append(event)
                self._changed.notify_all()
        with self._changed:
            self._open_streams -= 1
            self._changed.notify_all()

    def wait_until(self, holds: Callable[[list[Event]], bool], timeout: float = WAIT_TIMEOUT_SECONDS) -> None:
        """Returns as soon as the events so far satisfy the condition."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while not holds(self.events):
                left = deadline - time.monotonic()
                if left <= 0:
                    raise ChildFailed(f"{self.name}: no such event within {timeout} s\n{self._report()}")
                if self._open_streams == 0:
                    raise ChildFailed(f"{self.name} ended ({self._process.wait()}) before the event\n{self._report()}")
                self._changed.wait(left)

    def wait_for(self, kind: str, timeout: float = WAIT_TIMEOUT_SECONDS) -> Event:
        self.wait_until(lambda events: any(event["event"] == kind for event in events), timeout)
        return next(event for event in self.events if event["event"] == kind)

    def wait(self, timeout: float = WAIT_TIMEOUT_SECONDS) -> list[Event]:
        """Waits for the child's own end, which must be a success, and returns its events."""
        try:
            code = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ChildFailed(f"{self.name} did not end within {timeout} s\n{self._report()}") from None
        self._join()
        if code != 0:
            raise ChildFailed(f"{self.name} ended with {code}\n{self._report()}")
        return self.events

    def close_input(self) -> None:
        if self._process.stdin is not None and not self._process.stdin.closed:
            try:
                self._process.stdin.close()
            except BrokenPipeError:
                pass

    def stop(self, timeout: float = STOP_TIMEOUT_SECONDS) -> list[Event]:
        """The polite end of our own programs: standard input closes, they clean up and leave."""
        self.close_input()
        return self.wait(timeout)

    def signal(self, number: signal.Signals) -> None:
        if self._process.poll() is None:
            self._process.send_signal(number)

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self.close_input()
        self._join()

    def _join(self) -> None:
        for thread in self._threads:
            thread.join(STOP_TIMEOUT_SECONDS)
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()
        self.close_input()

    def _report(self) -> str:
        tail = "\n".join(self._output[-OUTPUT_SHOWN_LINES:])
        return f"last events: {self.events[-20:]}\noutput:\n{tail}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


def _event(line: str) -> Event | None:
    if not line.startswith("{"):
        return None
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) and "event" in value else None
