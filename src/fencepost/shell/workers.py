"""Helper threads for long C functions that release the interpreter lock: compression and decompression of large
batches."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

# More would only compete for the processor.
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
