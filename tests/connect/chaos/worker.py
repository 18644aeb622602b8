"""A worker for the chaos runs: `fencepost connect` that can be told to die at a moment, or is broken on purpose.

python -m tests.connect.chaos.worker MUTANT ARGUMENTS...

SIGUSR1: die before the next commit, with all records and the position written. SIGUSR2: die behind it, before the
source hears of it.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from fencepost.cli.main import run
from fencepost.client import TransactionalProducer
from fencepost.client.kafka_types import IsolationLevel
from fencepost.connect import task
from fencepost.connect.cluster import ClusterAddress
from fencepost.connect.postgres.source import PostgresReader

NONE = "none"


def die_around_commits() -> None:
    wanted: list[int] = []
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda number, frame: wanted.append(number))
    commit: Callable[..., Any] = TransactionalProducer.commit

    def dying(self: TransactionalProducer) -> None:
        if signal.SIGUSR1 in wanted:
            self.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        commit(self)
        if signal.SIGUSR2 in wanted:
            os.kill(os.getpid(), signal.SIGKILL)

    setattr(TransactionalProducer, "commit", dying)  # noqa: B010 - mypy knows it as a method


def position_before_fencing() -> None:
    fence, read_position = task._Run.fence, task._Run.read_position

    def early(self: Any) -> None:
        read_position(self)
        time.sleep(0.5)
        fence(self)

    setattr(task._Run, "fence", early)  # noqa: B010
    setattr(task._Run, "read_position", lambda self: None)  # noqa: B010


def position_read_uncommitted() -> None:
    def reader(self: ClusterAddress) -> Any:
        from fencepost.client import PartitionReader

        return PartitionReader(self.bootstrap_servers, isolation_level=IsolationLevel.READ_UNCOMMITTED, max_wait_ms=100)

    setattr(ClusterAddress, "committed_reader", reader)  # noqa: B010


def slot_acknowledged_early() -> None:
    poll = PostgresReader.poll

    def acknowledging(self: Any, timeout_seconds: float) -> Any:
        given = poll(self, timeout_seconds)
        if given and self._given is None and self._lsn is not None:
            self._stream.acknowledge(self._lsn)
        return given

    setattr(PostgresReader, "poll", acknowledging)  # noqa: B010


MUTANTS: dict[str, Callable[[], None]] = {
    NONE: lambda: None,
    "position read before fencing": position_before_fencing,
    "position read uncommitted": position_read_uncommitted,
    "slot acknowledged early": slot_acknowledged_early,
}


if __name__ == "__main__":
    die_around_commits()
    MUTANTS[sys.argv[1]]()
    sys.exit(run(["connect", *sys.argv[2:]]))
