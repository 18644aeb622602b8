"""When `fencepost run` starts again after Spark was lost, and how: as a new program in the same process.

A JVM that died leaves its traces all over PySpark and in the user's own modules (a UDF keeps its Java object), so
nothing of the old program is used again. What has to survive, counts and the place of a temporary broker, goes along in
the environment.
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
    """Topics are made and sample rows written."""
    directory: str | None = None
    """Of the broker that was started for the run."""


class StartAgain(Exception):
    """Ends the program, up to the place where the next one is started."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def delay_seconds(failures: int, restarts_max: int) -> float | None:
    """Before the next start, after this many failures in a row; None: no more."""
    if failures > restarts_max:
        return None
    return min(float(2 ** (failures - 1)), DELAY_SECONDS_MAX)


def so_far() -> SoFar:
    """Of the program before this one. It is told once: what this one starts must not take it for its own."""
    text = os.environ.pop(_VARIABLE, None)
    return SoFar() if text is None else SoFar(**json.loads(text))


def start_again(done: SoFar) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    environment = {**os.environ, _VARIABLE: json.dumps(done._asdict())}
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)
