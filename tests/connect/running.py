"""A worker in a thread, for tests: its events, and a way to stop it."""

import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from fencepost.connect import ConnectError, Source
from fencepost.connect.cluster import ClusterAddress
from fencepost.connect.task import TaskSettings
from fencepost.connect.worker import Worker
from tests.support.patience import patient


class RunningWorker:
    def __init__(self, servers: str, *sources: Source, settings: TaskSettings | None = None) -> None:
        self.events: list[tuple[str, str, dict[str, Any]]] = []
        self.failures: Sequence[ConnectError] = ()
        self.worker = Worker(sources, ClusterAddress(servers), self._told, settings or TaskSettings())
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _told(self, event: str, task: str, /, **facts: Any) -> None:
        self.events.append((event, task, facts))

    def _run(self) -> None:
        self.failures = self.worker.run()

    def start(self) -> Self:
        self._thread.start()
        return self

    def count(self, event: str) -> int:
        return sum(1 for each in self.events if each[0] == event)

    def facts(self, event: str) -> list[dict[str, Any]]:
        return [facts for name, _, facts in self.events if name == event]

    def wait_for(self, event: str, holds: Callable[[dict[str, Any]], bool] = lambda facts: True) -> dict[str, Any]:
        deadline = time.monotonic() + patient(30)
        while time.monotonic() < deadline:
            for facts in self.facts(event):
                if holds(facts):
                    return facts
            assert self._thread.is_alive() or event in {each[0] for each in self.events}, f"ended: {self.events}"
            time.sleep(0.01)
        raise AssertionError(f"no {event}: {self.events[-20:]}")

    def join(self) -> Sequence[ConnectError]:
        self._thread.join(patient(30))
        assert not self._thread.is_alive(), f"still runs: {self.events[-20:]}"
        return self.failures

    def stop(self) -> Sequence[ConnectError]:
        self.worker.stop()
        return self.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.worker.stop()
        self._thread.join(patient(30))
