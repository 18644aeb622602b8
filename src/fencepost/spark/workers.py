"""Python workers of Spark: what they have imported is taken out of the garbage collector's sight.

After every task Spark's daemon collects garbage through the whole heap of the worker. With numba and pyarrow in it that
takes some 80 ms of CPU, for each task of each micro-batch: more than everything else in a small one.
"""

import gc

_TASKS_MAX = 8
"""A worker serves tasks of several kinds, which import and compile different things on their first run."""
_tasks = 0


def freeze_imports() -> None:
    """To be called at the end of a task. Does nothing in other processes, and nothing in the long run."""
    global _tasks
    if _tasks >= _TASKS_MAX:
        return
    from pyspark import TaskContext

    if TaskContext.get() is None:
        return
    _tasks += 1
    gc.freeze()
