"""Blocking twins of asynchronous classes: an event loop in a thread, and calls that wait for it.

A twin lists the calls it offers by the helpers at the end, from `blocking` to `Value`. Their signatures and
documentation are those of the asynchronous class, which is the only place that has them. What a twin owns (its loop,
its inner object and its queue of sends) is used in this module alone.
"""

import asyncio
import collections
import concurrent.futures
import contextlib
import functools
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, cast

from fencepost.client.errors import ClientClosed, ClientError, ClientForked

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
Inner = TypeVar("Inner")
F = TypeVar("F")

WAITING_SENDS_MAX = 2_000


class LoopThread:
    """An event loop in a daemon thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fencepost-client", daemon=True)
        self._thread.start()
        self._process_id = os.getpid()

    def _require_running(self) -> None:
        if self._loop.is_closed():
            raise ClientClosed
        if os.getpid() != self._process_id:
            raise ClientForked

    def start(self, work: Coroutine[Any, Any, R]) -> "concurrent.futures.Future[R]":
        try:
            self._require_running()
        except ClientClosed:
            work.close()
            raise
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        future = self.start(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def call(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls a plain function on the loop, where locks and tasks must be created."""

        async def called() -> R:
            return function(*args, **kwargs)

        return self.run(called())

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._require_running()
        self._loop.call_soon_threadsafe(callback)

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        end = object()

        async def following() -> Any:
            return await anext(items, end)

        while (item := self.run(following())) is not end:
            yield item

    def close(self) -> None:
        if not self._loop.is_closed() and os.getpid() == self._process_id:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


class SendQueue(Generic[T]):
    """Passes sends to the loop in groups. A record then costs about 20 microseconds of CPU time; waking the other
    thread for each one would cost more than 50.

    A failed send raises its error in the next call and in its future. Only the first send to a topic waits until it is
    accepted, so that a missing topic is reported at once.
    """

    def __init__(self, loop: LoopThread, known_topics: set[str], check: Callable[[], object] | None = None) -> None:
        """`check` raises immediately what a send would raise later."""
        self._loop = loop
        self._check = check
        self._known_topics = known_topics
        self._waiting: collections.deque[tuple[Callable[[], Any], concurrent.futures.Future[T], int]] = (
            collections.deque()
        )
        self._weight = 0
        self._lock = threading.Lock()
        self._is_draining = False
        self._draining: asyncio.Task[None] | None = None
        self._failure: Exception | None = None

    def put(
        self, topic: str, send: "Callable[[], Coroutine[Any, Any, asyncio.Future[T]]]", weight: int
    ) -> "concurrent.futures.Future[T]":
        if self._failure is not None:
            self.settle()
        if self._check is not None:
            self._check()
        acknowledged: concurrent.futures.Future[T] = concurrent.futures.Future()
        with self._lock:
            self._waiting.append((send, acknowledged, weight))
            self._weight += weight
            begins, self._is_draining = not self._is_draining, True
        if begins:
            self._loop.call_soon(self._begin)
        if topic not in self._known_topics:
            self.settle()
            self._known_topics.add(topic)
        elif self._weight >= WAITING_SENDS_MAX:
            self._loop.run(self._wait())
        return acknowledged

    def settle(self) -> None:
        """Waits until every send is accepted. Raises the first error since the last call."""
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
                send, acknowledged, weight = self._waiting.popleft()
                self._weight -= weight
            try:
                sent = await send()
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


class Startable(Protocol):
    async def start(self) -> None: ...

    async def close(self) -> None: ...


class Block(Protocol):
    async def __aenter__(self) -> Any: ...

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any, /) -> None: ...


A = TypeVar("A")
B = TypeVar("B", bound=Block)
S = TypeVar("S", bound=Startable)


class Twin(Generic[A]):
    """The blocking twin of an object that lives on the loop of a client."""

    def __init__(self, loop: LoopThread, inner: A, known_topics: set[str]) -> None:
        self._loop = loop
        self._inner = inner
        self._known_topics = known_topics
        """The topics to which the client has sent."""
        self._sends: SendQueue[Any] = SendQueue(loop, known_topics, getattr(inner, "open_sender", None))


class BlockTwin(Twin[B]):
    """The twin of an `async with` block. Its end waits for every queued send; a failed one fails the block."""

    def __enter__(self) -> Self:
        self._loop.run(self._inner.__aenter__())
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            try:
                self._sends.settle()
            except BaseException as failure:  # an interrupt, too, must not leave the block open
                self._loop.run(self._inner.__aexit__(type(failure), failure, None))
                raise
        self._loop.run(self._inner.__aexit__(kind, error, trace))


class OwningTwin(Twin[S]):
    """A twin with a thread and a loop of its own, until `close`."""

    def __init__(self, make: Callable[[], S]) -> None:
        async def begin() -> S:
            inner = make()
            try:
                await inner.start()
            except BaseException:
                await inner.close()
                raise
            return inner

        loop = LoopThread()
        try:
            super().__init__(loop, loop.run(begin()), set())
        except BaseException:
            loop.close()
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


class BufferingTwin(OwningTwin[S]):
    def close(self) -> None:
        """Send what is buffered, then close."""
        try:
            self._sends.settle()
        except ClientClosed:
            return
        finally:
            super().close()


# The calls of a twin. Each is looked up on the inner object by name, so that subclasses can override it.


def blocking(call: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]) -> Callable[Concatenate[Any, P], R]:
    """Waits for the call."""
    name = call.__name__

    @functools.wraps(call)
    def waited_for(self: Twin[Any], /, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = self._loop.run(getattr(self._inner, name)(*args, **kwargs))
        return result

    return waited_for


def after_sends(call: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]) -> Callable[Concatenate[Any, P], R]:
    """Waits until every queued send is accepted, then for the call. Raises the first error of a send."""
    waited_for = blocking(call)

    @functools.wraps(call)
    def settled(self: Twin[Any], /, *args: P.args, **kwargs: P.kwargs) -> R:
        self._sends.settle()
        return waited_for(self, *args, **kwargs)

    return settled


def despite_sends(call: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]) -> Callable[Concatenate[Any, P], R]:
    """Waits until every queued send is accepted, then makes the call, even if a send failed."""
    waited_for = blocking(call)

    @functools.wraps(call)
    def settled(self: Twin[Any], /, *args: P.args, **kwargs: P.kwargs) -> R:
        with contextlib.suppress(ClientError):
            self._sends.settle()
        return waited_for(self, *args, **kwargs)

    return settled


def iterated(call: Callable[Concatenate[Any, P], AsyncIterator[T]]) -> Callable[Concatenate[Any, P], Iterator[T]]:
    """An asynchronous iterator. Each item wakes the loop once."""
    name = call.__name__

    @functools.wraps(call)
    def items(self: Twin[Any], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return self._loop.iterate(getattr(self._inner, name)(*args, **kwargs))

    return items


def flattened(
    call: Callable[Concatenate[Any, P], AsyncIterator[T]],
    in_portions: Callable[Concatenate[Any, P], AsyncIterator[Iterable[T]]],
) -> Callable[Concatenate[Any, P], Iterator[T]]:
    """An asynchronous iterator that is also available in portions. Each portion wakes the loop once."""
    portions = iterated(in_portions)

    @functools.wraps(call)
    def items(self: Twin[Any], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        for portion in portions(self, *args, **kwargs):
            yield from portion

    return items


def at_once(call: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """A call that only reads, and so needs no loop."""
    name = call.__name__

    @functools.wraps(call)
    def called(self: Twin[Any], /, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = getattr(self._inner, name)(*args, **kwargs)
        return result

    return called


class Value(Generic[R]):
    """A property of the inner object."""

    def __init__(self, read: Callable[[Any], R]) -> None:
        """`read`: the property, as the inner class has it. Type checkers see the function behind it."""
        function = cast(property, read).fget
        assert function is not None
        self._name = function.__name__
        self.__doc__ = function.__doc__

    def __get__(self, twin: Twin[Any] | None, owner: type | None = None) -> R:
        # Documentation tools read it from the class.
        return cast(R, self) if twin is None else cast(R, getattr(twin._inner, self._name))


def on_loop(call: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """A call that is not asynchronous, but changes what the loop uses."""
    name = call.__name__

    @functools.wraps(call)
    def called(self: Twin[Any], /, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = self._loop.call(getattr(self._inner, name), *args, **kwargs)
        return result

    return called


def part(
    make: Callable[Concatenate[Any, P], Inner], twin: Callable[[LoopThread, Inner, set[str]], F]
) -> Callable[Concatenate[Any, P], F]:
    """A call that creates another object; the caller gets its twin."""
    made_on_loop = on_loop(make)

    @functools.wraps(make)
    def made(self: Twin[Any], /, *args: P.args, **kwargs: P.kwargs) -> F:
        return twin(self._loop, made_on_loop(self, *args, **kwargs), self._known_topics)

    return made


def queued(
    send: "Callable[Concatenate[Any, str, P], Coroutine[Any, Any, asyncio.Future[T]]]", weight: int = 1
) -> "Callable[Concatenate[Any, str, P], concurrent.futures.Future[T]]":
    """A send, which waits only for room. Sends are passed on in groups, in order; the total weight of waiting sends is
    at most WAITING_SENDS_MAX."""
    name = send.__name__

    @functools.wraps(send)
    def sent(self: Twin[Any], topic: str, /, *args: P.args, **kwargs: P.kwargs) -> "concurrent.futures.Future[T]":
        return self._sends.put(topic, functools.partial(getattr(self._inner, name), topic, *args, **kwargs), weight)

    return sent
