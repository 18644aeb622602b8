"""No helper threads: what they would do is done at once, and reported after everything else that is due now."""

from collections.abc import Callable
from typing import Any

from fencepost.simulation.scheduler import ProcessScheduler


class SimulatedWorkers:
    def __init__(self, process: ProcessScheduler) -> None:
        self._process = process

    def run(self, function: Callable[[], Any], done: Callable[[Any], None]) -> None:
        try:
            result = function()
        except Exception as error:
            result = error
        self._process.call_soon(lambda: done(result))
