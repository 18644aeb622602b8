"""Deadlines by key, cheap to move: a heartbeat that pushes a deadline out costs one dictionary entry.

The heap may hold entries that were cancelled or moved later; they are set right when they reach the top. An idle
coordinator with many groups therefore does nothing until the earliest real deadline.
"""

import heapq
from collections.abc import Callable, Hashable
from itertools import count

from fencepost.ports import Now

Callback = Callable[[Now], None]


class Timers:
    def __init__(self, on_sooner: Callable[[], None] = lambda: None) -> None:
        """`on_sooner` is called when the next deadline has come nearer: the caller of `run_due` has to wake earlier."""
        self._on_sooner = on_sooner
        self._heap: list[tuple[int, int, Hashable]] = []
        self._armed: dict[Hashable, tuple[int, Callback]] = {}
        # The deadline of a key in the heap; at most one entry of a key counts.
        self._queued: dict[Hashable, tuple[int, int]] = {}
        self._order = count()

    def __len__(self) -> int:
        return len(self._armed)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._armed

    def schedule(self, key: Hashable, deadline_ms: int, callback: Callback) -> None:
        """Arm a key; an earlier arming of the same key is forgotten."""
        self._armed[key] = (deadline_ms, callback)
        queued = self._queued.get(key)
        if queued is None or deadline_ms < queued[0]:
            self._push(key, deadline_ms)
            if self._heap[0][2] == key:
                self._on_sooner()

    def cancel(self, key: Hashable) -> None:
        self._armed.pop(key, None)

    def next_deadline_ms(self) -> int | None:
        self._settle_top()
        return self._heap[0][0] if self._heap else None

    def run_due(self, now: Now) -> None:
        """Call what is due, earliest first. A callback may arm and cancel; what it arms for now runs as well."""
        while True:
            self._settle_top()
            if not self._heap or self._heap[0][0] > now.monotonic_ms:
                return
            _, _, key = heapq.heappop(self._heap)
            del self._queued[key]
            _, callback = self._armed.pop(key)
            callback(now)

    def _push(self, key: Hashable, deadline_ms: int) -> None:
        order = next(self._order)
        self._queued[key] = (deadline_ms, order)
        heapq.heappush(self._heap, (deadline_ms, order, key))

    def _settle_top(self) -> None:
        while self._heap:
            deadline_ms, order, key = self._heap[0]
            if self._queued.get(key) == (deadline_ms, order):
                armed = self._armed.get(key)
                if armed is not None and armed[0] == deadline_ms:
                    return
                del self._queued[key]
                heapq.heappop(self._heap)
                if armed is not None:
                    self._push(key, armed[0])
            else:
                heapq.heappop(self._heap)
