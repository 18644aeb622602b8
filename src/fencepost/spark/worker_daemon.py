"""Spark's daemon for Python workers, with what our tasks need loaded before it forks them: once, not by every worker.

A process with several threads must not be forked, and pyarrow and pandas start some when they are imported. So they are
left to the workers; numba and numpy, the larger part, start none (with one thread for its linear algebra, as Spark sets
it for its workers anyway). Should a version of them do so after all, Spark's own daemon takes over.
"""

import gc
import os
import sys

# Imports inside functions: which of them a process makes, and under which environment, is what this module decides.


def load() -> None:
    """Of a worker that runs tasks; workers of other kinds need none of it."""
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    import numpy as np

    import fencepost.client.blocking
    import fencepost.client.sending
    import fencepost.wire.arrow_kernels  # noqa: F401
    from fencepost.spark import partition_kernels

    # The first call of compiled code costs numba half a second, whichever it is.
    partition_kernels.group(np.zeros(1, np.int64), np.zeros(2, np.int64), np.zeros(1, np.int64))
    gc.collect()
    gc.freeze()  # what is here stays: workers need not look through it after every task


def thread_count() -> int:
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return 2  # not known


def main() -> None:
    if sys.argv[1:] == ["pyspark.worker"]:
        load()
        if thread_count() > 1:
            os.execv(sys.executable, [sys.executable, "-m", "pyspark.daemon", *sys.argv[1:]])
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    main()
