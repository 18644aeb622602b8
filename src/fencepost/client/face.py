"""How the plain face of the client is made: one thread per client runs the event loop, calls wait for it.

A class of the plain face lists the calls it offers; their signatures are those of the asynchronous class.
"""

import asyncio
import collections
import concurrent.futures
import functools
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar

from fencepost.client.errors import ClientClosed

P = ParamSpec("P")
R = TypeVar("R")


class Startable(Protocol):
    async def start(self) -> None: ...

    async def close(self) -> None: ...


A = TypeVar("A", bound=Startable)


class LoopThread:
    """An event loop in a daemon thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fencepost-client", daemon=True)
        self._thread.start()

    def start(self, work: Coroutine[Any, Any, R]) -> "concurrent.futures.Future[R]":
        if self._loop.is_closed():
            work.close()
            raise ClientClosed
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call_soon(self, callback: Callable[[], None]) -> None:
        if self._loop.is_closed():
            raise ClientClosed
        self._loop.call_soon_threadsafe(callback)

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        future = self.start(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


class Blocking(Generic[A]):
    def __init__(self, make: Callable[[], A]) -> None:
        self._loop = LoopThread()

        async def begin() -> A:
            inner = make()
            try:
                await inner.start()
            except BaseException:
                await inner.close()
                raise
            return inner

        try:
            self._inner = self._loop.run(begin())
        except BaseException:
            self._loop.close()
            raise

    def close(self) -> None:
        try:
            self._loop.run(self._inner.close())
        except ClientClosed:
            return
        finally:
            self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close()


def blocking(call: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]) -> Callable[Concatenate[Any, P], R]:
    def blocked(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = self._loop.run(call(self._inner, *args, **kwargs))
        return result

    functools.update_wrapper(blocked, call)
    return blocked


T = TypeVar("T")
WAITING_SENDS_MAX = 2_000


class SendQueue(Generic[T]):
    """Hands sends to the loop in groups: waking another thread for each would cost ten times the send itself.

    What a send raises is raised by the next call, and by its future. Only the first send to a topic waits to be taken:
    a topic that does not exist is told at once.
    """

    def __init__(
        self,
        loop: LoopThread,
        send: "Callable[..., Coroutine[Any, Any, asyncio.Future[T]]]",
        known_topics: set[str] | None = None,
        check: Callable[[], None] | None = None,
    ) -> None:
        """`check` raises at once what a send would raise later."""
        self._loop = loop
        self._send = send
        self._check = check
        self._known_topics = set() if known_topics is None else known_topics
        self._waiting: collections.deque[tuple[tuple[Any, ...], dict[str, Any], concurrent.futures.Future[T]]] = (
            collections.deque()
        )
        self._lock = threading.Lock()
        self._is_draining = False
        self._draining: asyncio.Task[None] | None = None
        self._failure: Exception | None = None

    def put(self, topic: str, *args: Any, **kwargs: Any) -> "concurrent.futures.Future[T]":
        if self._failure is not None:
            self.settle()
        if self._check is not None:
            self._check()
        acknowledged: concurrent.futures.Future[T] = concurrent.futures.Future()
        with self._lock:
            self._waiting.append(((topic, *args), kwargs, acknowledged))
            begins, self._is_draining = not self._is_draining, True
        if begins:
            self._loop.call_soon(self._begin)
        if topic not in self._known_topics:
            self.settle()
            self._known_topics.add(topic)
        elif len(self._waiting) >= WAITING_SENDS_MAX:
            self._loop.run(self._wait())
        return acknowledged

    def settle(self) -> None:
        """Wait until everything was taken; raise the first failure since the last time."""
        if self._is_draining:
            self._loop.run(self._wait())
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _begin(self) -> None:
        self._draining = asyncio.ensure_future(self._drain())

    async def _drain(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._is_draining = False
                    return
                args, kwargs, acknowledged = self._waiting.popleft()
            try:
                sent = await self._send(*args, **kwargs)
            except Exception as error:
                self._failure = self._failure or error
                acknowledged.set_exception(error)
            else:
                sent.add_done_callback(functools.partial(_pass_on, acknowledged))

    async def _wait(self) -> None:
        if self._draining is not None:
            await asyncio.wait([self._draining])


def _pass_on(acknowledged: "concurrent.futures.Future[T]", done: "asyncio.Future[T]") -> None:
    if done.cancelled():
        acknowledged.cancel()
    elif (failure := done.exception()) is not None:
        acknowledged.set_exception(failure)
    else:
        acknowledged.set_result(done.result())
