"""A simulated client process: a generator that yields what it waits for, with one connection at a time.

A client sends a request and waits for its answer, its timeout or the end of its connection; it cannot distinguish the
latter two (None: the outcome is unknown). It may be paused, as by SIGSTOP, or killed and restarted.
"""

import random
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, NamedTuple, TypeVar

from fencepost.simulation.network import Link, Network
from fencepost.simulation.scheduler import SimulatedScheduler, SimulatedTimer
from fencepost.wire.catalog import ApiKey, response_class
from fencepost.wire.errors import ErrorCode
from fencepost.wire.framing import read_response, request_frame

REQUEST_TIMEOUT_MS = 1_500
RETRY_MS = 60

RETRIABLE = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING})

T = TypeVar("T")


class Request(NamedTuple):
    api: ApiKey
    version: int
    message: Any


class Burst(NamedTuple):
    """Requests sent at once; answered by a list."""

    requests: list[Request]


class Sleep(NamedTuple):
    for_ms: int


Wait = Request | Burst | Sleep
Steps = Generator[Wait, Any, T]


class ClientProcess:
    """One process. What it does is `run`; subclasses say."""

    def __init__(self, name: str, scheduler: SimulatedScheduler, network: Network, seed: int) -> None:
        self.name = name
        self.source = random.Random(f"{seed}/{name}")
        self.scheduler = scheduler
        self.network = network
        self.calls = 0
        self.is_paused = False
        self.is_ended = True
        self._steps: Steps[None] | None = None
        self._link: Link | None = None
        self._correlation_id = 0
        self._expected: dict[int, tuple[int, Request]] = {}
        self._answers: list[Any] = []
        self._is_single = True
        self._timer: SimulatedTimer | None = None
        self._stashed: list[Any] = []
        self._when_ended: Callable[[ClientProcess], None] = lambda client: None

    def run(self) -> Steps[None]:
        raise NotImplementedError

    # Life

    def start(self) -> None:
        self.is_ended = False
        self._steps = self.run()
        self._go_on(None)

    def supervise(self, when_ended: "Callable[[ClientProcess], None]") -> None:
        """Called with the process when it has ended, by itself or killed."""
        self._when_ended = when_ended

    def kill(self) -> None:
        """What it has sent is sent."""
        if self._steps is not None:
            self._steps.close()
        self._steps = None
        self._stop_waiting()
        self._stashed.clear()
        self.is_paused = False
        self._abandon()
        self._over()

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False
        if self._stashed:
            self._go_on(self._stashed.pop())

    def _over(self) -> None:
        self.is_ended = True
        self._when_ended(self)

    # Waiting

    def _go_on(self, value: Any) -> None:
        if self._steps is None:
            return
        if self.is_paused:
            self._stashed.append(value)
            return
        try:
            wait = self._steps.send(value)
        except StopIteration:
            self._steps = None
            self._abandon()
            self._over()
            return
        if type(wait) is Sleep:
            self._timer = self.scheduler.call_later(wait.for_ms, lambda: self._go_on(None))
        elif type(wait) is Request:
            self._is_single = True
            self._send([wait])
        elif type(wait) is Burst:
            self._is_single = False
            self._send(wait.requests)

    def _send(self, requests: list[Request]) -> None:
        self._answers = [None] * len(requests)
        link = self._link
        if link is None or not link.is_open:
            link = self._link = self.network.connect(self.name)
            if link is None:
                self._timer = self.scheduler.call_later(RETRY_MS, self._deliver)
                return
            link.listen(partial(self._on_frame, link), partial(self._on_closed, link))
        self._timer = self.scheduler.call_later(REQUEST_TIMEOUT_MS, self._on_timeout)
        for at, request in enumerate(requests):
            self._correlation_id += 1
            self.calls += 1
            self._expected[self._correlation_id] = (at, request)
            parts = request_frame(request.api, request.version, self._correlation_id, self.name, request.message)
            link.send(b"".join(parts)[4:])

    def _on_frame(self, link: Link, frame: memoryview) -> None:
        if link is not self._link:
            return
        expected = self._expected.pop(int.from_bytes(frame[:4], "big"), None)
        if expected is None:
            return
        at, request = expected
        self._answers[at] = read_response(response_class(request.api), request.api, request.version, frame)[1]
        if not self._expected:
            self._deliver()

    def _on_closed(self, link: Link) -> None:
        if link is self._link:
            self._link = None
            if self._expected:
                self._deliver()

    def _on_timeout(self) -> None:
        self._abandon()
        self._deliver()

    def _abandon(self) -> None:
        if self._link is not None and self._link.is_open:
            self._link.abandon()
        self._link = None

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._expected.clear()

    def _deliver(self) -> None:
        self._stop_waiting()
        self._go_on(self._answers[0] if self._is_single else self._answers)
