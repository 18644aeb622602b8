"""Busy polling: going to sleep and waking up cost more than serving a small request.

A client with one request in flight sends the next one some tens of microseconds after an answer. The event loop keeps
running for that long. If nothing arrives, further tries become rarer, down to one in hundreds of requests, so that
requests at longer intervals, or an idle broker, cost nothing. With several clients there is no busy polling, because
clients on the same machine need the processor themselves.
"""

import asyncio
from time import perf_counter_ns

SKIPS_MAX = 512


class BusyPoll:
    def __init__(self, loop: asyncio.AbstractEventLoop, window_us: int) -> None:
        self._loop = loop
        self._window_ns = window_us * 1000
        self._deadline_ns = 0
        self._is_turning = False
        self._misses = 0
        self._skips = 0
        self._newest: object = None

    def answered(self, client: object) -> None:
        """A request was answered."""
        if client is not self._newest:
            self._newest = client
            return
        if not self._window_ns:
            return
        if self._skips:
            self._skips -= 1
            return
        self._deadline_ns = perf_counter_ns() + self._window_ns
        if not self._is_turning:
            self._is_turning = True
            self._loop.call_soon(self._turn)

    def arrived(self) -> None:
        """Bytes arrived, possibly from the client that was waited for."""
        if self._is_turning:
            self._misses = 0

    def _turn(self) -> None:
        if perf_counter_ns() < self._deadline_ns:
            self._loop.call_soon(self._turn)
            return
        self._is_turning = False
        self._misses += 1
        self._skips = min(1 << self._misses, SKIPS_MAX)
