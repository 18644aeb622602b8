"""Replaces helper threads: work is done immediately, and reported after all other events that are due."""

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
