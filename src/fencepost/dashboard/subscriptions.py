"""Documents that are made once for all subscribers of the same view, and only while there are any.

A subscriber gets the newest document, not all of them: a slow one misses some and delays nobody.
"""

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from typing import Any

from fencepost.client.errors import ClientError
from fencepost.dashboard.failure_answers import Failure, failure_of
from fencepost.dashboard.page_context import BadParameter, NotThere, Page, Parameters
from fencepost.dashboard.shortened_names import readable
from fencepost.dashboard.views.registry import VIEWS

STREAMS_MAX = 64
HEARTBEAT_SECONDS = 15.0
SHARE_MAX = 0.1
"""Maximum share of time spent on making a document: an expensive one is made less often."""
PAUSE_MAX_SECONDS = 10.0

Key = tuple[str, tuple[tuple[str, str], ...]]


class TooManyStreams(Exception):
    """There are too many streams, and this client has no fewer than the others."""


class _Shared:
    """One document, the task that makes it, and those who wait for the next version."""

    def __init__(self, page: Page, key: Key) -> None:
        self._page = page
        self._view, items = key
        self._parameters = Parameters(dict(items))
        self.lookers = 0
        self.number = 0
        """The number of the newest event."""
        self.event = ""
        self._changed = asyncio.Condition()
        self._last: str | None = None
        self._failed_since_ms: int | None = None
        self._failed = ""
        self.task = asyncio.create_task(self._run())

    async def next_event(self, seen: int) -> tuple[int, str]:
        async with self._changed:
            while self.number <= seen:
                await self._changed.wait()
            return self.number, self.event

    async def _run(self) -> None:
        interval = VIEWS[self._view].interval_seconds
        while True:
            began = time.monotonic()
            try:
                await self._page.watch.ready()
                began = time.monotonic()
                document = await VIEWS[self._view].make(self._page, self._parameters)
            except (ClientError, BadParameter, NotThere) as error:
                await self._fail(failure_of(error))
            else:
                await self._offer(document)
            took = time.monotonic() - began
            await asyncio.sleep(max(interval - took, min(took * (1 / SHARE_MAX - 1), PAUSE_MAX_SECONDS)))

    async def _offer(self, document: dict[str, Any]) -> None:
        document = readable(document)
        # A new time alone is not a change.
        text = json.dumps({**document, "at_ms": 0}, separators=(",", ":"))
        if text != self._last or self._failed:
            self._last, self._failed, self._failed_since_ms = text, "", None
            await self._publish(self._view, json.dumps(document, separators=(",", ":")))

    async def _fail(self, failure: Failure) -> None:
        if self._failed_since_ms is None:
            self._failed_since_ms = self._page.now_ms()
        document = {**readable(failure.document()), "status": failure.status, "since_ms": self._failed_since_ms}
        text = json.dumps(document, separators=(",", ":"))
        if text != self._failed:
            self._failed = text
            await self._publish("trouble", text)

    async def _publish(self, name: str, data: str) -> None:
        async with self._changed:
            self.number += 1
            self.event = f"event: {name}\ndata: {data}\n\n"
            self._changed.notify_all()


class Subscription:
    """One stream: the events of one view, and keep-alive comments when there are none."""

    def __init__(self, shared: _Shared, client: str, leave: "Callable[[Subscription], None]") -> None:
        self._shared = shared
        self.client = client
        self._leave = leave
        self._ended = asyncio.Event()
        self._seen = 0

    async def events(self) -> AsyncGenerator[str, None]:
        yield "retry: 1000\n\n"
        ended = asyncio.create_task(self._ended.wait())
        waiting: asyncio.Task[tuple[int, str]] | None = None
        try:
            while not self._ended.is_set():
                waiting = waiting or asyncio.create_task(self._shared.next_event(self._seen))
                await asyncio.wait(
                    (waiting, ended, self._shared.task),
                    timeout=HEARTBEAT_SECONDS,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if waiting.done():
                    (self._seen, event), waiting = waiting.result(), None
                    yield event
                elif self._shared.task.done():
                    return
                elif not ended.done():
                    yield ": still here\n\n"
        finally:
            ended.cancel()
            if waiting is not None:
                waiting.cancel()

    async def ended(self) -> None:
        await self._ended.wait()

    def end(self) -> None:
        """Ends the stream; the reader closes it."""
        self._ended.set()

    def close(self) -> None:
        self._leave(self)


class Subscriptions:
    """All streams. If there are too many, a client with fewer streams displaces one with more."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._shared: dict[Key, _Shared] = {}
        self._open: dict[Subscription, None] = {}
        """In the order of arrival, without displaced streams that are not closed yet."""
        self.streams = 0
        self._is_closed = False

    @property
    def document_makers(self) -> int:
        return len(self._shared)

    def open(self, view: str, given: dict[str, str], client: str = "") -> Subscription:
        """The caller must close it. Raises TooManyStreams, or BadParameter if the view does not exist."""
        if view not in VIEWS:
            raise BadParameter(f"view={view} is not one of {', '.join(VIEWS)}")
        if len(self._open) >= STREAMS_MAX:
            self._make_room(client)
        key = (view, tuple(sorted(given.items())))
        shared = self._shared.get(key)
        if shared is None:
            shared = self._shared[key] = _Shared(self._page, key)
        shared.lookers += 1
        self.streams += 1
        self._page.watch.looked_at(1)

        def leave(subscription: Subscription) -> None:
            self._open.pop(subscription, None)
            self.streams -= 1
            self._page.watch.looked_at(-1)
            shared.lookers -= 1
            if not shared.lookers:
                shared.task.cancel()
                self._shared.pop(key, None)

        opened = Subscription(shared, client, leave)
        self._open[opened] = None
        if self._is_closed:
            opened.end()
        return opened

    def _make_room(self, client: str) -> None:
        counts = Counter(each.client for each in self._open)
        greediest, most = counts.most_common(1)[0]
        if most <= counts[client] + 1:
            raise TooManyStreams
        oldest = next(each for each in self._open if each.client == greediest)
        del self._open[oldest]
        oldest.end()

    def close(self) -> None:
        """Ends every stream."""
        self._is_closed = True
        for each in self._open:
            each.end()
