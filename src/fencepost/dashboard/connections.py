"""Limits the connections to the page: idle ones are closed first, so that nobody can block others by doing nothing.

A connection is busy from the end of its request to the end of the answer, and idle otherwise: before a request, during
a partial request, in a keep-alive pause. Above the limit, the oldest idle connection of the address with the most
connections is closed for a new one; if none is idle, a busy one of an address that has more than the new one's.
"""

import asyncio
from collections import Counter
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

CONNECTIONS_MAX = 256
REQUEST_SECONDS = 10.0
"""Time limit for a complete request, from its first byte, or for the first one from the connection."""


class GivingWay(H11Protocol):
    _overdue: asyncio.TimerHandle | None = None
    _idle_since = 0.0

    @property
    def is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._idle_since = self.loop.time()
        self._await_request()
        if len(self.connections) > CONNECTIONS_MAX:
            self._make_room()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.is_idle and not self.transport.is_closing():
            self._await_request()
        else:
            self._request_came()

    def on_response_complete(self) -> None:
        self._idle_since = self.loop.time()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._request_came()
        super().connection_lost(exc)

    def _await_request(self) -> None:
        if self._overdue is None:
            self._overdue = self.loop.call_later(REQUEST_SECONDS, self._give_way)

    def _request_came(self) -> None:
        if self._overdue is not None:
            self._overdue.cancel()
            self._overdue = None

    def _give_way(self) -> None:
        self._overdue = None
        if self.is_idle:
            self._end()

    def _end(self) -> None:
        # Immediately: while it is in the set, the next connection would choose it again.
        self.connections.discard(self)
        self.transport.abort()

    def _make_room(self) -> None:
        others = [each for each in self.connections if isinstance(each, GivingWay) and each is not self]
        counts = Counter(each.address for each in others)
        idle = [each for each in others if each.is_idle]
        fewer = [each for each in others if counts[each.address] > counts[self.address] + 1]
        candidates = idle or fewer
        if candidates:
            min(candidates, key=lambda each: (-counts[each.address], each._idle_since))._end()
        else:
            self._end()

    @property
    def address(self) -> str:
        return self.client[0] if self.client else ""
