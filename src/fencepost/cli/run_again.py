"""How `fencepost run` restarts after Spark was lost: as a new program in the same process.

A dead JVM leaves references all over PySpark and in the user's modules (a UDF keeps its Java object), so nothing of the
old program is reused. What must survive, the counts and the directory of a temporary broker, is passed on in the
environment.
"""

import json
import os
import sys
from typing import NamedTuple, NoReturn

RESTARTS_DEFAULT = 5
DELAY_SECONDS_MAX = 30.0
_VARIABLE = "FENCEPOST_RUN_CONTINUED"


class SoFar(NamedTuple):
    """What this run has done in earlier programs."""

    failures: int = 0
    """In a row, without a batch between them."""
    batches: int = 0
    rows_in: int = 0
    rows_out: int = 0
    skipped: int = 0
    is_prepared: bool = False
    """Topics were created and sample rows written."""
    directory: str | None = None
    """The directory of the broker that was started for the run."""


class StartAgain(Exception):
    """Unwinds the program to the place that starts the next one."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def delay_seconds(failures: int, restarts_max: int) -> float | None:
    """The delay before the next start after this many failures in a row; None: do not restart."""
    if failures > restarts_max:
        return None
    return min(float(2 ** (failures - 1)), DELAY_SECONDS_MAX)


def so_far() -> SoFar:
    """What earlier programs did. Removed from the environment, so that child processes do not inherit it."""
    text = os.environ.pop(_VARIABLE, None)
    return SoFar() if text is None else SoFar(**json.loads(text))


def start_again(done: SoFar) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    environment = {**os.environ, _VARIABLE: json.dumps(done._asdict())}
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)
