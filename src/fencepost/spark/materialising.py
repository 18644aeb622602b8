"""Rows computed once and kept, and let go again: Spark would keep their blocks until Java's garbage collector runs."""

from typing import Any

from fencepost.spark.requirements import is_connect


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
