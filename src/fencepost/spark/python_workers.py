"""What a task on a Python worker of Spark costs beside its work, and how our tasks avoid it.

After every task Spark's daemon collects garbage through the whole heap of the worker. With numba and pyarrow in it that
takes some 80 ms of CPU, for each task of each micro-batch: more than everything else in a small one. What was imported
is therefore taken out of the collector's sight.

Spark sends a task in two small writes over TCP, its code and then its rows, and lets the kernel hold the second back
until the first is acknowledged, which a worker's kernel puts off for 40 ms. Our tasks acknowledge as soon as their code
is there.
"""

import gc
import os
import socket
import stat
from typing import Any

from pyspark import TaskContext

_TASKS_MAX = 8
"""A worker serves tasks of several kinds, which import and compile different things on their first run."""
_tasks = 0
_QUICKACK = getattr(socket, "TCP_QUICKACK", None)


def freeze_imports() -> None:
    """To be called at the end of a task. Does nothing in other processes, and nothing in the long run."""
    global _tasks
    if _tasks >= _TASKS_MAX:
        return
    if TaskContext.get() is None:
        return
    _tasks += 1
    gc.freeze()


class TaskCode:
    """The code of a task. A worker has read all of it when it unpickles this, and waits for the rows next."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        acknowledge_at_once()


def acknowledge_at_once() -> None:
    """What was received so far, on every TCP connection: which one leads to Spark a worker is not told."""
    if _QUICKACK is None:
        return
    for name in os.listdir("/proc/self/fd"):
        try:
            number = int(name)
            if not stat.S_ISSOCK(os.fstat(number).st_mode):
                continue
            found = socket.socket(fileno=number)
        except OSError:
            continue  # of the listing itself, or closed meanwhile
        try:
            if found.family in (socket.AF_INET, socket.AF_INET6) and found.type == socket.SOCK_STREAM:
                found.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)
        except OSError:
            pass
        finally:
            found.detach()
