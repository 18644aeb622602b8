"""By which signs Spark tells that a process was lost. They may change with the version of Spark: these tests run on
each that is supported, and kill processes."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.extras import require_arrow
from tests.support.patience import patient

require_arrow()
pytest.importorskip("pyspark", reason="PySpark is not installed")

from pyspark import cloudpickle  # noqa: E402

from fencepost.spark.job_failures import Failure, failure_of  # noqa: E402
from fencepost.spark.materialising import again_if_kept_rows_were_lost, materialised  # noqa: E402
from tests.spark.sessions import QUICK_EXECUTORS, spark_session  # noqa: E402

pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("writers_write")]
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Executors do not find this module.


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """Executors in processes of their own, so that they can be killed."""
    once = {"spark__stage__maxConsecutiveAttempts": "1", "spark__task__maxFailures": "1"}
    with spark_session("local-cluster[2,1,512]", spark__executor__memory="512m", **once, **QUICK_EXECUTORS) as session:
        yield session


def failure(action: Callable[[], Any]) -> Failure:
    try:
        action()
    except Exception as error:
        return failure_of(error)
    raise AssertionError("nothing failed")


def through(rows: Any, function: Any, *, barrier: bool = False) -> Callable[[], Any]:
    return rows.mapInArrow(function, "id long", barrier=barrier).collect  # type: ignore[no-any-return]


def kill_worker(batches: Iterator[Any]) -> Iterator[Any]:
    list(batches)
    os.kill(os.getpid(), signal.SIGKILL)
    yield


def kill_executor(batches: Iterator[Any]) -> Iterator[Any]:
    list(batches)
    # The parent of a worker is Python's daemon, whose parent is the executor.
    status = Path(f"/proc/{os.getppid()}/stat").read_text()
    os.kill(int(status.rpartition(")")[2].split()[1]), signal.SIGKILL)
    daemon = os.getppid()
    while os.getppid() == daemon:
        time.sleep(0.05)
    yield


def raise_error(batches: Iterator[Any]) -> Iterator[Any]:
    yield from batches
    raise LookupError("no price for this")


def same(batches: Iterator[Any]) -> Iterator[Any]:
    yield from batches


def await_executors(spark: Any, count: int = 2) -> None:
    context = spark.sparkContext._jsc.sc()
    deadline = time.monotonic() + patient(120)
    while context.maxNumConcurrentTasks(context.resourceProfileManager().defaultResourceProfile()) < count:
        assert time.monotonic() < deadline, "the executors did not come back"
        time.sleep(0.1)


def test_lost_processes_are_told_from_errors(spark: Any) -> None:
    from pyspark.sql import functions as F

    rows = spark.range(100).repartition(2)
    await_executors(spark)
    for function, barrier, expected in (
        (kill_worker, False, Failure.PROCESS_LOST),
        (kill_worker, True, Failure.PROCESS_LOST),
        (raise_error, False, Failure.OTHER),
        (kill_executor, False, Failure.PROCESS_LOST),
    ):
        await_executors(spark)
        assert failure(through(rows, function, barrier=barrier)) is expected, (function.__name__, barrier)
    await_executors(spark)
    # Before the shuffle of a barrier stage, where a pipeline's own function runs.
    assert failure(through(rows.mapInArrow(raise_error, "id long").repartition(2), same, barrier=True)) is Failure.OTHER
    assert failure(rows.select(F.udf(lambda number: 1 / 0)("id")).collect) is Failure.OTHER
    assert failure(rows.selectExpr("raise_error('no price for this')").collect) is Failure.OTHER
    assert failure(lambda: rows.selectExpr("nothing")) is Failure.OTHER


def test_a_job_that_is_cancelled_is_not_tried_again(spark: Any) -> None:
    def hang(batches: Iterator[Any]) -> Iterator[Any]:
        parent = os.getppid()
        while os.getppid() == parent:
            time.sleep(0.05)
        yield from batches

    context = spark.sparkContext
    is_over = threading.Event()

    def cancel() -> None:
        while not is_over.wait(0.1):
            if context.statusTracker().getActiveJobsIds():
                context.cancelAllJobs()

    await_executors(spark)
    canceller = threading.Thread(target=cancel)
    canceller.start()
    try:
        assert failure(through(spark.range(2).repartition(2), hang, barrier=True)) is Failure.OTHER
    finally:
        is_over.set()
        canceller.join()


def test_kept_rows_that_are_lost_again_and_again_are_computed_again(spark: Any) -> None:
    rows = spark.range(100).repartition(2)
    losses = 2
    seen: list[int] = []

    def process() -> None:
        await_executors(spark)
        kept = materialised(rows)
        if len(seen) < losses:
            seen.append(len(seen))
            assert failure(through(rows, kill_executor, barrier=True)) is Failure.PROCESS_LOST
            assert failure(kept.collect) is Failure.KEPT_ROWS_LOST
        assert len(through(kept, same)()) == 100

    again_if_kept_rows_were_lost(process)
    assert len(seen) == losses
