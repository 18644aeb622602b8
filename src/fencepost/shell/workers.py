"""Helper threads for long work in C that lets go of the interpreter: compressing and decompressing large batches."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

# More would only take the processor from who waits for it.
THREADS = 2


class ThreadedWorkers:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._threads = ThreadPoolExecutor(THREADS, "worker")

    def run(self, function: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self._threads.submit(self._work, function, done)

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)

    def _work(self, function: Callable[[], Any], done: Callable[[Any], None]) -> None:
        try:
            result = function()
        except Exception as error:
            result = error
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(done, result)
