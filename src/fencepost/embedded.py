"""An embedded broker for tests and small programs: a real broker on a free port, in its own thread.

with Broker(topics={"purchases": 3}) as broker:
    producer = SomeKafkaClient(bootstrap_servers=broker.bootstrap_servers)
"""

import asyncio
import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import uvloop

from fencepost.broker.node import Node
from fencepost.config import topic_config
from fencepost.settings import InvalidSetting
from fencepost.shell.running_broker import RunningBroker
from fencepost.topic_names import check_topic_name
from fencepost.wire.errors import ErrorCode, KafkaError

# A test has no second member to wait for.
EMBEDDED_SETTINGS = {"group.initial.rebalance.delay.ms": "0"}
SettingValue = str | int | float | bool


class TopicExists(Exception):
    """A topic of that name exists, but differs from the requested one."""


class Broker:
    def __init__(
        self,
        *,
        topics: Mapping[str, int] | None = None,
        data: str | Path | None = None,
        listen: str = "127.0.0.1:0",
        settings: Mapping[str, SettingValue] | None = None,
    ) -> None:
        """`topics` are created at the first start: name to number of partitions. Without `data`, a temporary directory
        is used and removed at the end. `settings` are broker settings with Kafka's names: strings, numbers or
        booleans."""
        given = setting_texts(settings or {})
        self._topics = dict(topics or {})
        self._own_directory = data is None
        self.data = Path(tempfile.mkdtemp(prefix="fencepost-")) if data is None else Path(data)
        self._listen = listen
        self._settings = {**EMBEDDED_SETTINGS, **given}
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running: RunningBroker | None = None
        self.host, self.port = "", 0

    @property
    def bootstrap_servers(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def is_running(self) -> bool:
        return self._running is not None

    def start(self) -> Self:
        """Starts, and returns once the broker accepts connections. A restart keeps the port."""
        if self._running is not None:
            return self
        loop = uvloop.new_event_loop()
        running = RunningBroker(self.data, self._settings)
        thread = threading.Thread(target=self._run_loop, args=(loop,), name="fencepost", daemon=True)
        thread.start()
        try:
            asyncio.run_coroutine_threadsafe(running.start([self._listen]), loop).result()
        except BaseException:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            raise
        self._loop, self._thread, self._running = loop, thread, running
        self.host, self.port = running.addresses[0]
        name, separator, _ = self._listen.rpartition("://")
        self._listen = f"{name}{separator}{self.host}:{self.port}"
        try:
            for name, partitions in self._topics.items():
                self.create_topic(name, partitions)
        except BaseException:
            self.stop()
            raise
        self._topics = {}
        return self

    def stop(self) -> None:
        """Shut down cleanly."""
        self._end(lambda running: running.stop())

    def kill(self) -> None:
        """Stops as with kill -9: connections break, nothing more is written."""
        self._end(lambda running: running.abort())

    def restart(self) -> Self:
        """Start again on the same port and data, after `kill` or, if it still runs, after a clean stop."""
        self.stop()
        return self.start()

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, SettingValue] | None = None) -> None:
        """Creates a topic. An existing one is kept; if it differs from the request, raises TopicExists. Raises
        ValueError for an invalid name, number of partitions or setting."""
        overrides = setting_texts(config or {})
        self._call(lambda running: _create_topic(running.node, name, partitions, overrides))

    def events(self) -> list[object]:
        """The latest events of the feed, oldest first."""
        recent: list[object] = self._call(lambda running: list(running.node.events.recent))
        return recent

    def close(self) -> None:
        self.stop()
        if self._own_directory:
            shutil.rmtree(self.data, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _call(self, function: Callable[[RunningBroker], Any]) -> Any:
        running = self._running
        if self._loop is None or running is None:
            raise RuntimeError("the broker is not running; call start() first")

        async def call() -> Any:
            return function(running)

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result()

    def _end(self, end: Callable[[RunningBroker], Any]) -> None:
        if self._running is None or self._loop is None or self._thread is None:
            return
        asyncio.run_coroutine_threadsafe(end(self._running), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._running = self._loop = self._thread = None

    @staticmethod
    def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            loop.close()


def setting_texts(settings: Mapping[str, SettingValue]) -> dict[str, str]:
    """Settings as Kafka writes them."""
    texts = {}
    for name, value in settings.items():
        if not isinstance(value, SettingValue):
            raise TypeError(f"the setting {name} is {value!r}; it must be a string, a number or a boolean")
        texts[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return texts


def _create_topic(node: Node, name: str, partitions: int, overrides: dict[str, str]) -> None:
    existing = node.metadata.topics.get(name)
    if existing is not None:
        if existing.partition_count != partitions:
            raise TopicExists(f"the topic {name} exists with {_count(existing.partition_count)}, not {partitions}")
        for setting in sorted(existing.overrides.keys() | overrides.keys()):
            found, wanted = existing.overrides.get(setting), overrides.get(setting)
            if found != wanted:
                there = f"with {setting}={found}" if found is not None else f"with the default {setting}"
                asked = f"with {setting}={wanted}" if wanted is not None else "with its default"
                raise TopicExists(f"the topic {name} exists {there}, not {asked}")
        return
    if partitions < 1:
        raise ValueError(f"the topic {name} must have at least one partition, not {partitions}")
    try:
        check_topic_name(name)
        topic_config(overrides, node.config)
        node.check_room_for(partitions)
        node.create_topic(name, partitions, overrides)
    except InvalidSetting as error:
        raise ValueError(str(error)) from None
    except KafkaError as error:
        if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
            raise  # the failure is not about the arguments
        raise ValueError(str(error)) from None


def _count(partitions: int) -> str:
    return "1 partition" if partitions == 1 else f"{partitions} partitions"
