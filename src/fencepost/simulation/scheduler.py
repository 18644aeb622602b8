"""A queue of all future events, in virtual time and in one thread.

Events at the same time run in the order in which they were scheduled, so that a run is a function of its inputs and its
seed. Owns the clock: time passes only between events.
"""

import heapq
from collections import deque
from collections.abc import Callable

from fencepost.simulation.clock import VirtualClock

Callback = Callable[[], None]
EVENTS_MAX = 1_000_000


class SimulatedTimer:
    __slots__ = ("callback",)

    def __init__(self, callback: Callback) -> None:
        self.callback: Callback | None = callback

    def cancel(self) -> None:
        self.callback = None


class SimulatedScheduler:
    def __init__(self, clock: VirtualClock, quiet_after_ms: int = 0) -> None:
        self.clock = clock
        self._quiet_after_ms = quiet_after_ms
        self._soon: deque[SimulatedTimer] = deque()
        self._later: list[tuple[int, int, SimulatedTimer]] = []
        self._count = 0

    def call_soon(self, callback: Callback, /) -> SimulatedTimer:
        timer = SimulatedTimer(callback)
        self._soon.append(timer)
        return timer

    def call_later(self, delay_ms: int, callback: Callback, /) -> SimulatedTimer:
        timer = SimulatedTimer(callback)
        self._count += 1
        heapq.heappush(self._later, (self.clock.monotonic_ms() + max(delay_ms, 0), self._count, timer))
        return timer

    def call_when_quiet(self, callback: Callback, /) -> SimulatedTimer:
        if self._quiet_after_ms:
            return self.call_later(self._quiet_after_ms, callback)
        return self.call_soon(callback)

    def run_ready(self) -> None:
        """Everything that is due now; time does not pass."""
        self.run_for(0)

    def run_for(self, duration_ms: int) -> None:
        """Everything that happens within so much time."""
        self.run_until(lambda: False, duration_ms)

    def run_until(self, holds: Callable[[], bool], within_ms: int) -> bool:
        """Let things happen, one by one, until the condition holds; whether it did before the time was over."""
        end_ms = self.clock.monotonic_ms() + within_ms
        for _ in range(EVENTS_MAX):
            if holds():
                return True
            if not self.step(end_ms):
                self.clock.advance_to(end_ms)
                return holds()
        raise AssertionError(f"still busy after {EVENTS_MAX} events")

    def step(self, end_ms: int) -> bool:
        """The next event, if there is one by then."""
        if self._soon:
            timer = self._soon.popleft()
        elif self._later and self._later[0][0] <= end_ms:
            due_ms, _, timer = heapq.heappop(self._later)
            self.clock.advance_to(due_ms)
        else:
            return False
        if timer.callback is not None:
            timer.callback()
        return True


class ProcessScheduler:
    """The events of one simulated process, which are dropped when the process ends.

    While it is paused (SIGSTOP) everything that would have happened gathers, and happens in that order when it goes on.
    """

    def __init__(self, scheduler: SimulatedScheduler) -> None:
        self._scheduler = scheduler
        self.is_alive = True
        self.is_paused = False
        self.runs = 0
        """Grows with everything that the process does."""
        self._deferred: deque[Callback] = deque()

    def call_soon(self, callback: Callback, /) -> SimulatedTimer:
        return self._timer(self._scheduler.call_soon, callback)

    def call_later(self, delay_ms: int, callback: Callback, /) -> SimulatedTimer:
        return self._timer(lambda run: self._scheduler.call_later(delay_ms, run), callback)

    def call_when_quiet(self, callback: Callback, /) -> SimulatedTimer:
        return self._timer(self._scheduler.call_when_quiet, callback)

    def pause(self) -> None:
        """As SIGSTOP does."""
        self.is_paused = True

    def end(self) -> None:
        """Nothing that it planned happens any more."""
        self.is_alive = False

    def resume(self) -> None:
        self.is_paused = False
        self._scheduler.call_soon(self._catch_up)

    def _timer(self, schedule: Callable[[Callback], SimulatedTimer], callback: Callback) -> SimulatedTimer:
        timer: SimulatedTimer

        def run() -> None:
            if not self.is_alive:
                return
            if self.is_paused or self._deferred:
                # It may still be cancelled by what happens before it.
                self._deferred.append(lambda: None if timer.callback is None else callback())
            else:
                timer.callback = None  # and with it the cycle of the two
                self.runs += 1
                callback()

        timer = schedule(run)
        return timer

    def _catch_up(self) -> None:
        if self._deferred and self.is_alive and not self.is_paused:
            self.runs += 1
            self._deferred.popleft()()
            self._scheduler.call_soon(self._catch_up)
