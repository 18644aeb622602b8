"""Work that would hold everybody up, done in slices: some of it now, the rest between the requests of others.

Everything runs in one thread. Work that can grow with what a client sends, or with the size of an answer, is written as
a generator that yields wherever it may be interrupted (a promise: to wait for it). A short piece of work ends within
its first slice and costs nothing more. Of longer ones a few take turns, one slice whenever no request waits; the others
wait until one is done, so that what requests unfold to in memory is bounded too. Work that its client has to pay for
(`processor_shares.py`) pauses while the client's account is overdrawn.
"""

from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, TypeVar

from fencepost.broker.processor_shares import Bill
from fencepost.ports import Clock, Scheduler, Timer, Workers
from fencepost.promise import Promise

T = TypeVar("T")
Steps = Generator[Promise[Any] | None, None, T]

# While a client asks for much, the others wait about so long for each of their requests.
SLICE_NS = 250_000
# So many pieces of work take turns; whatever comes on top of them is begun when one is done.
ACTIVE_MAX = 8
# So many entries of a message are freed in one step.
FREED_AT_ONCE = 256


class HelperWork(Promise[Any]):
    """What a helper thread returned or raised, and the processor time that it took."""

    __slots__ = ("taken_ns",)

    def __init__(self) -> None:
        super().__init__()
        self.taken_ns = 0


class _Work:
    __slots__ = ("bill", "failed", "is_wanted", "result", "steps")

    def __init__(
        self,
        steps: Steps[Any],
        failed: Callable[[Exception], None],
        is_wanted: Callable[[], bool] | None,
        bill: Bill | None,
    ) -> None:
        self.steps = steps
        self.result: Promise[Any] = Promise()
        self.failed = failed
        self.is_wanted = is_wanted
        self.bill = bill


class Slices:
    def __init__(self, scheduler: Scheduler, clock: Clock) -> None:
        self._scheduler = scheduler
        self._work_ns = clock.work_ns
        self._cpu_ns = clock.cpu_ns
        self._monotonic_ms = clock.monotonic_ms
        self._active: deque[_Work] = deque()
        self._waiting: deque[_Work] = deque()
        self._paused: dict[_Work, Timer] = {}
        self._is_scheduled = False
        self.slices = 0
        """Slices that were run so far, other than first ones."""
        self.pauses = 0
        """How often work had to wait because its client's account was overdrawn."""

    def run(
        self,
        steps: Steps[T],
        failed: Callable[[Exception], None],
        is_wanted: Callable[[], bool] | None = None,
        *,
        bill: Bill | None = None,
        starts_at_once: bool = True,
    ) -> Promise[T]:
        """What the steps return: there already if one slice is enough. What they raise then is raised here, and later
        given to `failed`. Where `is_wanted` says no, the rest is dropped, and the promise stays open. What it takes is
        put on the bill, if there is one."""
        work = _Work(steps, failed, is_wanted, bill)
        if not starts_at_once or not self._advance(work):
            self._queue(work)
        return work.result

    def _queue(self, work: _Work) -> None:
        (self._active if len(self._active) < ACTIVE_MAX else self._waiting).append(work)
        self._schedule()

    def in_a_helper(self, workers: Workers, function: Callable[[], Any]) -> HelperWork:
        """Something for a helper thread, to be yielded by work that waits for it."""
        helper, cpu_ns = HelperWork(), self._cpu_ns

        def measured() -> Any:
            started_ns = cpu_ns()
            try:
                return function()
            finally:
                helper.taken_ns = cpu_ns() - started_ns

        workers.run(measured, helper.resolve)
        return helper

    def stop(self) -> None:
        for timer in self._paused.values():
            timer.cancel()
        for work in (*self._active, *self._waiting, *self._paused):
            work.steps.close()
        self._active.clear()
        self._waiting.clear()
        self._paused.clear()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._scheduler.call_when_quiet(self._turn)

    def _turn(self) -> None:
        self._is_scheduled = False
        if not self._active:
            return
        work = self._active.popleft()
        self.slices += 1
        try:
            is_over = self._advance(work)
        except Exception as error:
            is_over = True
            work.failed(error)
        if not is_over:
            self._active.append(work)
        elif self._waiting:
            self._active.append(self._waiting.popleft())
        if self._active:
            self._schedule()

    def _advance(self, work: _Work) -> bool:
        """One slice; whether nothing is left to do now."""
        if work.is_wanted is not None and not work.is_wanted():
            work.steps.close()
            return True
        bill = work.bill
        if bill is None or bill.is_counting:
            return self._slice(work)
        bill.begin(self._cpu_ns())
        try:
            is_over = self._slice(work)
        finally:
            bill.end(self._cpu_ns(), self._monotonic_ms())
        if not is_over and (pause_ms := bill.pause_ms(self._monotonic_ms())):
            self._pause(work, pause_ms)
            return True
        return is_over

    def _slice(self, work: _Work) -> bool:
        work_ns, steps = self._work_ns, work.steps
        end_ns = work_ns() + SLICE_NS
        try:
            while True:
                awaited = next(steps)
                if awaited is not None and not awaited.done:
                    awaited.then(partial(self._resume, work, awaited))
                    return True
                if work_ns() >= end_ns:
                    return False
        except StopIteration as stop:
            work.result.resolve(stop.value)
            return True

    def _resume(self, work: _Work, awaited: Promise[Any], _: Any) -> None:
        if work.bill is not None and type(awaited) is HelperWork:
            work.bill.add(awaited.taken_ns, self._monotonic_ms())
        self._queue(work)

    def _pause(self, work: _Work, pause_ms: int) -> None:
        def over() -> None:
            del self._paused[work]
            self._queue(work)

        self.pauses += 1
        self._paused[work] = self._scheduler.call_later(pause_ms, over)


def entries_of(message: Any) -> list[Any]:
    """What a large message consists of, to be let go of in slices: all at once would hold everybody up."""
    entries: list[Any] = []
    lists = [value for name in getattr(type(message), "__slots__", ()) if type(value := getattr(message, name)) is list]
    for values in lists:
        entries += values
        if len(values) <= FREED_AT_ONCE:
            for value in values:
                entries += entries_of(value)
    return entries


def let_go(entries: list[Any]) -> Steps[None]:
    """Frees what has no other reference."""
    while entries:
        yield None
        del entries[-FREED_AT_ONCE:]


def finished(steps: Steps[T]) -> T:
    """All of it at once, where it waits for nothing."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
