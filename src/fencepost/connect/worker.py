"""A process that runs sources: one thread for each task. A task that ends leaves the others running."""

import threading
from collections.abc import Sequence

from fencepost.connect.cluster import ClusterAddress
from fencepost.connect.errors import ConnectError
from fencepost.connect.positions import Claimant
from fencepost.connect.sources import Source
from fencepost.connect.target_states import TargetStates
from fencepost.connect.task import Task, TaskSettings, Told


class Worker:
    def __init__(
        self,
        sources: Sequence[Source],
        cluster: ClusterAddress,
        tell: Told,
        settings: TaskSettings = TaskSettings(),
    ) -> None:
        self._cluster = cluster
        self._tell = tell
        self._stopping = threading.Event()
        self._states = TargetStates(cluster)
        self._failures: list[ConnectError] = []
        claimant = Claimant.this_process()
        self.tasks = [
            Task(source, partition, cluster, claimant, tell, self, settings)
            for source in sources
            for partition in source.partitions
        ]

    def run(self) -> Sequence[ConnectError]:
        """Until `stop`, or until no task is left. Returns why tasks have ended."""
        self._states.start()
        threads = [threading.Thread(target=self._run, args=(task,), name=task.name, daemon=True) for task in self.tasks]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                while thread.is_alive():
                    # With a limit, so that signals are heard.
                    thread.join(0.2)
        finally:
            self.stop()
            self._states.stop()
        return self._failures

    def stop(self) -> None:
        """Let every task commit what is complete, and end."""
        self._stopping.set()

    # What tasks ask

    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def is_paused(self, name: str) -> bool:
        return name in self._states.paused

    def wait(self, seconds: float) -> None:
        self._stopping.wait(seconds)

    def _run(self, task: Task) -> None:
        try:
            task.run()
            self._tell("stopped", task.name)
        except ConnectError as error:
            self._ended(task, error)
        except Exception as error:
            self._ended(task, ConnectError(f"{task.name}: {type(error).__name__}: {error}"))

    def _ended(self, task: Task, error: ConnectError) -> None:
        self._failures.append(error)
        self._tell("failed", task.name, error=error.fact, advice=error.advice)
