"""Decides which connection is served next, and runs deferred work when there are no requests.

The first request is served immediately, so a single client never waits. Other requests that arrive at the same time
are served in short turns, and the sockets are checked between turns: first requests that end a transaction, because an
open transaction holds up others, then the rest in the order of arrival. The answers of a turn are sent together: a
client that wakes up in the middle would take the processor away from those that still wait. If clients do share the
processor, turns are longer, because fewer turns disturb less; if not, commits wait less.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable
from time import perf_counter_ns
from typing import Protocol

from fencepost.shell.processor import Processor

TURN_NS = 50_000
SHARED_TURN_NS = 100_000
ENDS_ANSWERED_TOGETHER = 2
"""Maximum number of ends of transactions per turn; unlimited if clients share the processor."""
QUIET_WAIT_NS = 2_000_000
"""Maximum time that deferred work waits for a quiet moment."""


_let_others_run: Callable[[], None] = getattr(os, "sched_yield", lambda: None)


class Served(Protocol):
    """A connection, as far as its turn is concerned."""

    def serve(self) -> None:
        """Hand over every whole request that may start now. Does not raise."""

    def send(self) -> None:
        """Write the answers that were held back."""


class Turns:
    def __init__(self, loop: asyncio.AbstractEventLoop, processor: Processor | None = None) -> None:
        self._loop = loop
        self._processor = processor or Processor()
        self._ending: deque[Served] = deque()
        self._waiting: deque[Served] = deque()
        self._held: list[Served] = []
        self._when_quiet: list[Callable[[], None]] = []
        self._quiet_due_ns = 0
        self._is_scheduled = False
        self.holds_answers = False
        """Whether answers wait for the end of the turn."""

    def is_first(self) -> bool:
        """Whether the caller is the first to be served since the last look at the sockets."""
        if self._is_scheduled:
            return False
        self._schedule()
        return True

    def wait(self, connection: Served, *, ends_transaction: bool) -> None:
        (self._ending if ends_transaction else self._waiting).append(connection)
        self._schedule()

    def hold(self, connection: Served) -> None:
        """This connection has answers that leave with the turn's."""
        self._held.append(connection)

    def call_when_quiet(self, callback: Callable[[], None]) -> None:
        """Run when no request waits, and soon anyway."""
        if not self._when_quiet:
            self._quiet_due_ns = perf_counter_ns() + QUIET_WAIT_NS
        self._when_quiet.append(callback)
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_scheduled = False
        ending, waiting = self._ending, self._waiting
        is_quiet = not (ending or waiting)
        if not is_quiet:
            self._serve_some()
            is_quiet = not (ending or waiting)
            if is_quiet:
                # Clients that were answered send the next request if they get the processor; one look then finds all.
                _let_others_run()
        if not is_quiet:
            self._schedule()
        if self._when_quiet and (is_quiet or perf_counter_ns() >= self._quiet_due_ns):
            callbacks, self._when_quiet = self._when_quiet, []
            for callback in callbacks:
                callback()

    def _serve_some(self) -> None:
        ending, waiting = self._ending, self._waiting
        is_shared = self._processor.is_shared()
        self.holds_answers = True
        # What arrives meanwhile waits for the next turn: ends of transactions do not starve the rest.
        for number in range(1, len(ending) + 1):
            ending.popleft().serve()
            if not (is_shared or number % ENDS_ANSWERED_TOGETHER):
                self._send()
        self._send()
        end_ns = perf_counter_ns() + (SHARED_TURN_NS if is_shared else TURN_NS)
        while waiting:
            waiting.popleft().serve()
            if perf_counter_ns() >= end_ns:
                break
        self._send()
        self.holds_answers = False

    def _send(self) -> None:
        held, self._held = self._held, []
        for connection in held:
            connection.send()
