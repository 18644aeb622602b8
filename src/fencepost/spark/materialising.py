"""Rows computed once and kept, and let go again: Spark would keep their blocks until Java's garbage collector runs."""

import logging
from collections.abc import Callable
from typing import Any

from fencepost.spark.job_failures import Failure, failure_of
from fencepost.spark.requirements import is_connect

_log = logging.getLogger("fencepost.spark")

ATTEMPTS_MAX = 8
"""Each executor that is lost may cost one."""


def materialised(frame: Any) -> Any:
    """The same rows, kept on the executors. A block that is lost later fails the job that needs it."""
    return frame.localCheckpoint(eager=True)


def release(frame: Any) -> None:
    """Of a frame that `materialised` has made and nobody reads any more."""
    if is_connect(frame.sparkSession):
        return  # The server lets go of what it has no name for.
    try:
        frame._jdf.logicalPlan().rdd().unpersist(False)
    except Exception:
        pass  # Then the garbage collector does it.


def again_if_kept_rows_were_lost(process: Callable[[], None]) -> None:
    """Kept rows go with the executor that had them. The transaction that needed them was aborted, so the batch may
    begin anew and compute them again: the random values of before were never seen by anybody."""
    for attempt in range(1, ATTEMPTS_MAX + 1):
        try:
            return process()
        except Exception as error:
            if attempt == ATTEMPTS_MAX or not is_of_lost_rows(error):
                raise
            _log.warning("rows that an executor had kept were lost with it: the batch begins anew (%d)", attempt)


def is_of_lost_rows(error: BaseException | None) -> bool:
    """Also where it is the cause of what was raised."""
    while error is not None:
        if failure_of(error) is Failure.KEPT_ROWS_LOST:
            return True
        error = error.__cause__
    return False
