"""How the plain face of the client is made: one thread per client runs the event loop, calls wait for it.

A class of the plain face lists the calls it offers; their signatures are those of the asynchronous class.
"""

import asyncio
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


def bridged(loop: LoopThread, sending: "Coroutine[Any, Any, asyncio.Future[T]]") -> "concurrent.futures.Future[T]":
    """Run a send to the point where its record is buffered; its acknowledgement becomes a future for threads."""
    acknowledged: concurrent.futures.Future[T] = concurrent.futures.Future()

    def settle(done: "asyncio.Future[T]") -> None:
        if done.cancelled():
            acknowledged.cancel()
            return
        failure = done.exception()
        if failure is None:
            acknowledged.set_result(done.result())
        else:
            acknowledged.set_exception(failure)

    async def buffer() -> None:
        (await sending).add_done_callback(settle)

    loop.run(buffer())
    return acknowledged
