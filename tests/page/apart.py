"""The browser's driver keeps an event loop running in the test's thread; what needs its own goes elsewhere."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def apart(work: Callable[[], T]) -> T:
    """Runs it in another thread, to its end."""
    outcome: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(work())
        except BaseException as error:  # handed over, not swallowed
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return outcome[0]


def run_apart(work: Coroutine[Any, Any, T]) -> T:
    return apart(lambda: asyncio.run(work))
