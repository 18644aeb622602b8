"""The real clock, timers and randomness, on an asyncio loop."""

import asyncio
import os
import time
from collections.abc import Callable

from fencepost.ports import Timer
from fencepost.shell.turns import Turns


class RealClock:
    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def work_ns(self) -> int:
        return time.perf_counter_ns()

    def cpu_ns(self) -> int:
        return time.thread_time_ns()


class RealScheduler:
    def __init__(self, loop: asyncio.AbstractEventLoop, turns: Turns) -> None:
        self._loop = loop
        self.call_soon: Callable[[Callable[[], None]], object] = loop.call_soon
        self.call_when_quiet: Callable[[Callable[[], None]], object] = turns.call_when_quiet

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        return self._loop.call_later(delay_ms / 1000, callback)


class RealRandomness:
    def random_bytes(self, count: int) -> bytes:
        return os.urandom(count)
