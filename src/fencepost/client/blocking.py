"""The plain face of the client: the same calls, without async. One thread per client runs the event loop.

Each class lists the calls it offers; their signatures are those of the asynchronous class.
"""

import asyncio
import concurrent.futures
import functools
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar

from fencepost.client.admin import AsyncAdmin
from fencepost.client.consumer import AsyncPartitionReader
from fencepost.client.errors import ClientClosed
from fencepost.client.producer import AsyncProducer
from fencepost.client.values import ConsumedRecord, RecordMetadata, TopicPartition

P = ParamSpec("P")
R = TypeVar("R")


class _Startable(Protocol):
    async def start(self) -> None: ...

    async def close(self) -> None: ...


A = TypeVar("A", bound=_Startable)


class _Loop:
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


class _Blocking(Generic[A]):
    def __init__(self, make: Callable[[], A]) -> None:
        self._loop = _Loop()

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

    def __exit__(self, *_: object) -> None:
        self.close()


def _blocking(call: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]) -> Callable[Concatenate[Any, P], R]:
    def blocked(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = self._loop.run(call(self._inner, *args, **kwargs))
        return result

    functools.update_wrapper(blocked, call)
    return blocked


class Admin(_Blocking[AsyncAdmin]):
    def __init__(self, bootstrap_servers: str | Sequence[str], **options: Any) -> None:
        super().__init__(lambda: AsyncAdmin(bootstrap_servers, **options))

    create_topic = _blocking(AsyncAdmin.create_topic)
    delete_topic = _blocking(AsyncAdmin.delete_topic)
    add_partitions = _blocking(AsyncAdmin.add_partitions)
    list_topics = _blocking(AsyncAdmin.list_topics)
    describe_topic = _blocking(AsyncAdmin.describe_topic)
    list_offsets = _blocking(AsyncAdmin.list_offsets)
    delete_records = _blocking(AsyncAdmin.delete_records)
    describe_cluster = _blocking(AsyncAdmin.describe_cluster)
    describe_log_dirs = _blocking(AsyncAdmin.describe_log_dirs)
    describe_features = _blocking(AsyncAdmin.describe_features)
    update_features = _blocking(AsyncAdmin.update_features)
    describe_configs = _blocking(AsyncAdmin.describe_configs)
    alter_configs = _blocking(AsyncAdmin.alter_configs)
    list_groups = _blocking(AsyncAdmin.list_groups)
    describe_group = _blocking(AsyncAdmin.describe_group)
    committed_offsets = _blocking(AsyncAdmin.committed_offsets)
    commit_offsets = _blocking(AsyncAdmin.commit_offsets)
    delete_offsets = _blocking(AsyncAdmin.delete_offsets)
    delete_group = _blocking(AsyncAdmin.delete_group)


class Producer(_Blocking[AsyncProducer]):
    def __init__(self, bootstrap_servers: str | Sequence[str], **options: Any) -> None:
        super().__init__(lambda: AsyncProducer(bootstrap_servers, **options))

    flush = _blocking(AsyncProducer.flush)
    produce = _blocking(AsyncProducer.produce)

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> "concurrent.futures.Future[RecordMetadata]":
        """Buffer a record, waiting only for room; the future is the acknowledgement."""
        acknowledged: concurrent.futures.Future[RecordMetadata] = concurrent.futures.Future()

        def settle(done: "asyncio.Future[RecordMetadata]") -> None:
            failure = done.exception()
            if failure is None:
                acknowledged.set_result(done.result())
            else:
                acknowledged.set_exception(failure)

        async def buffer() -> None:
            sent = await self._inner.send(
                topic, value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms
            )
            sent.add_done_callback(settle)

        self._loop.run(buffer())
        return acknowledged


class PartitionReader(_Blocking[AsyncPartitionReader]):
    def __init__(self, bootstrap_servers: str | Sequence[str], **options: Any) -> None:
        super().__init__(lambda: AsyncPartitionReader(bootstrap_servers, **options))

    assign = _blocking(AsyncPartitionReader.assign)
    assign_topic = _blocking(AsyncPartitionReader.assign_topic)
    partitions_of = _blocking(AsyncPartitionReader.partitions_of)
    end_offsets = _blocking(AsyncPartitionReader.end_offsets)
    poll = _blocking(AsyncPartitionReader.poll)

    @property
    def positions(self) -> dict[TopicPartition, int]:
        return self._inner.positions

    def records(self, *, follow: bool = False) -> Iterator[ConsumedRecord]:
        batches = self._inner.batches(follow=follow)

        async def following() -> list[ConsumedRecord] | None:
            return await anext(batches, None)

        while (portion := self._loop.run(following())) is not None:
            yield from portion
