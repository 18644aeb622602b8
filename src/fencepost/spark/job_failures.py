"""Why a job of Spark has failed: a process was lost, kept rows were lost with one, or the code or the data is wrong.

The sign is the chain of Java exceptions that Spark raises, by class and error condition. Tests on each supported
version of Spark kill processes and look at what comes:

- Spark gives a job that it aborts the exception of the task as its cause. There is none when no task raised one: an
  executor went away, or shuffle files did, or a barrier stage failed. The only stage of the sink that is a barrier runs
  nothing but its writers, and what they have to say comes as a value.
- A Python worker that died is an IOException at the end of the chain: its socket was closed.
- What a user's function or an expression raises has a class or an error condition of its own.

A failure that is taken for a lost process by mistake costs a few more attempts, each in a transaction that is aborted.
"""

import dataclasses
import enum
import re
from collections.abc import Sequence
from typing import Any

_JOB_ABORTED = "org.apache.spark.SparkException"
_FETCH_FAILED = "org.apache.spark.shuffle.FetchFailedException"
_IO = "java.io.IOException"
_KEPT_ROWS_LOST = frozenset({"CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND", "_LEGACY_ERROR_TEMP_3007"})
"""Since Spark 4.0, and in Spark 3.5."""
_NO_PACKAGE = "No module named 'fencepost'"
_JOB_CANCELLED = re.compile(r"Job \d+ cancelled")
CHAIN_LENGTH_MAX = 50


class Failure(enum.Enum):
    PROCESS_LOST = enum.auto()
    """Another attempt makes sense."""
    KEPT_ROWS_LOST = enum.auto()
    """Rows that an executor had kept went with it: they have to be computed again."""
    NO_PACKAGE = enum.auto()
    """The Python of the executors lacks fencepost."""
    OTHER = enum.auto()
    """It would happen again."""


@dataclasses.dataclass(frozen=True, slots=True)
class Link:
    """One exception of the chain."""

    classes: tuple[str, ...]
    """Its class and those above it."""
    condition: str | None = None
    """Spark's name for the error."""


def judge(chain: Sequence[Link]) -> Failure:
    """From the outermost exception to its last cause."""
    if any(link.condition in _KEPT_ROWS_LOST for link in chain):
        return Failure.KEPT_ROWS_LOST
    if not chain:
        return Failure.OTHER
    last = chain[-1]
    if last.condition is None and (_IO in last.classes or last.classes[0] in (_JOB_ABORTED, _FETCH_FAILED)):
        return Failure.PROCESS_LOST
    return Failure.OTHER


def failure_of(error: BaseException) -> Failure:
    """Of an action of Spark, as Python sees it."""
    if _NO_PACKAGE in str(error):
        return Failure.NO_PACKAGE
    return judge(chain_of(error))


def chain_of(error: BaseException) -> list[Link]:
    """Empty if the error is not Spark's."""
    thrown = _thrown(error)
    if thrown is None:
        return _connect_chain(error)
    chain: list[Link] = []
    try:
        while thrown is not None and len(chain) < CHAIN_LENGTH_MAX:
            chain.append(Link(_classes(thrown), _condition(thrown)))
            thrown = thrown.getCause()
    except Exception:
        return []  # The JVM is gone, and another attempt with it.
    return chain


def _thrown(error: BaseException) -> Any:
    """Py4J's error holds it; PySpark translates the classes that it knows, and keeps the original of most."""
    return getattr(error, "java_exception", None) or getattr(error, "_origin", None)


def _classes(thrown: Any) -> tuple[str, ...]:
    names = []
    kind = thrown.getClass()
    while kind is not None:
        names.append(str(kind.getName()))
        kind = kind.getSuperclass()
    return tuple(names)


def _condition(thrown: Any) -> str | None:
    for method in ("getCondition", "getErrorClass"):
        try:
            found = getattr(thrown, method)()
        except Exception:
            continue  # Not one of Spark's own, or of a Spark that calls it differently.
        return _cancelled(thrown) if found is None else str(found)
    return None


def _cancelled(thrown: Any) -> str | None:
    """Spark 3.5 has no condition for a job that was cancelled, and no class: here alone the text decides."""
    return "SPARK_JOB_CANCELLED" if _JOB_CANCELLED.match(str(thrown.getMessage())) else None


def _connect_chain(error: BaseException) -> list[Link]:
    """Under Connect there is one link: the class that the server named, if the client knows it."""
    try:
        from pyspark.errors.exceptions import connect  # needs grpcio, which only Connect does
    except ImportError:
        return []
    if not isinstance(error, connect.SparkConnectException):
        return []
    is_general = type(error) in (connect.SparkConnectGrpcException, getattr(connect, "SparkException", None))
    named = _JOB_ABORTED if is_general else type(error).__name__
    asked = getattr(error, "getCondition", None) or error.getErrorClass
    return [Link((named,), asked())]
