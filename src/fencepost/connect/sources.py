"""How a source is declared, and the reader that a task gets from it.

    @source("rates", topics={"rates": 1})
    def rates(position):
        for day in days_after(position):
            yield Transaction([Record("rates", day.rates, key=day.date)], position={"date": day.date})

The function is called with the position of the last transaction that was committed, None at first. When it returns it
is called again, `every_seconds` later. It may block: it has a thread of its own.
"""

import abc
import enum
import inspect
import queue
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from fencepost.connect.errors import ConnectError, InvalidSource, SourceUnavailable
from fencepost.connect.records import Portion, Position, Transaction

MAX_RECORDS = 10_000
LINGER_MS = 50
EVERY_SECONDS = 1.0
WAITING_MAX = 64
"""How many transactions and portions a function may be ahead of the task that writes them."""

SourcePartition = Mapping[str, Any]
"""What one task reads, as Kafka Connect names it: a file, a table, a shard."""


class Boundary(enum.StrEnum):
    """Where a Kafka transaction ends. Always where a source transaction ends, too."""

    POLL = "poll"
    """After every source transaction."""
    INTERVAL = "interval"
    """After `linger_ms`, or `max_records`."""
    CONNECTOR = "connector"
    """Where the source says so: `Transaction(..., ends_kafka_transaction=True)`."""


class Reader(Protocol):
    """Reads one partition of a source from a position on. Used by one thread."""

    def poll(self, timeout_seconds: float) -> Sequence[Transaction | Portion]:
        """What has come, in order; nothing if nothing comes in time."""

    def committed(self, position: Position) -> None:
        """Everything up to this position is in Kafka for good: the source may forget it."""

    def lag(self) -> int | None:
        """How far the source is ahead, in a unit of its own."""

    def close(self) -> None: ...


class Source(abc.ABC):
    """Something that can be read again from any position that it gave."""

    def __init__(
        self,
        name: str,
        *,
        boundary: Boundary | str = Boundary.INTERVAL,
        max_records: int = MAX_RECORDS,
        linger_ms: int = LINGER_MS,
        topics: Mapping[str, int] | None = None,
    ) -> None:
        """`topics` are made if they are missing: name to number of partitions."""
        if not name or not name.isprintable():
            raise InvalidSource(f"{name!r} is not a name for a source", "use letters, digits, dots and dashes")
        if max_records < 1 or linger_ms < 0:
            raise InvalidSource(f"source {name}: max_records is at least 1 and linger_ms at least 0")
        try:
            self.boundary = Boundary(boundary)
        except ValueError:
            raise InvalidSource(
                f"source {name}: {boundary!r} is not a boundary", f"choose one of {', '.join(Boundary)}"
            ) from None
        self.name = name
        self.max_records = max_records
        self.linger_ms = linger_ms
        self.topics = dict(topics or {})

    @property
    def partitions(self) -> Sequence[SourcePartition]:
        """One task reads each."""
        return ({},)

    def topic_partitions(self, topic: str) -> int | None:
        """How many partitions a missing topic gets; None if it is not to be made."""
        return self.topics.get(topic)

    @abc.abstractmethod
    def open(self, partition: SourcePartition, position: Position | None) -> Reader:
        """Called after every earlier task was fenced: it may take the source away from a zombie."""

    def preview(self, partition: SourcePartition, position: Position | None) -> Iterable[str]:
        """What `open` would do and change, in lines for people. Changes nothing."""
        return ()

    def reset(self, partition: SourcePartition) -> Iterable[str]:
        """Remove what was made at the source. Says what, in lines for people."""
        return ()


Function = Callable[..., Iterable[Any]]


def source(
    name: str,
    *,
    partitions: Iterable[SourcePartition] | None = None,
    every_seconds: float = EVERY_SECONDS,
    boundary: Boundary | str = Boundary.INTERVAL,
    max_records: int = MAX_RECORDS,
    linger_ms: int = LINGER_MS,
    topics: Mapping[str, int] | None = None,
) -> "Callable[[Function], FunctionSource]":
    """Make a source of a function. With `partitions` there is a task for each, and the function gets it second."""

    def declared(function: Function) -> FunctionSource:
        return FunctionSource(
            name,
            function,
            None if partitions is None else list(partitions),
            every_seconds,
            boundary=boundary,
            max_records=max_records,
            linger_ms=linger_ms,
            topics=topics,
        )

    return declared


class FunctionSource(Source):
    def __init__(
        self,
        name: str,
        function: Function,
        partitions: Sequence[SourcePartition] | None,
        every_seconds: float,
        **settings: Any,
    ) -> None:
        super().__init__(name, **settings)
        wanted = 1 if partitions is None else 2
        if len(inspect.signature(function).parameters) != wanted:
            takes = "(position)" if partitions is None else "(position, partition)"
            raise InvalidSource(f"source {name}: the function takes {takes}")
        if partitions is not None and not partitions:
            raise InvalidSource(f"source {name} has no partitions", "give at least one, or leave `partitions` out")
        self._function = function
        self._partitions = partitions
        self._every_seconds = every_seconds

    @property
    def partitions(self) -> Sequence[SourcePartition]:
        return ({},) if self._partitions is None else self._partitions

    def open(self, partition: SourcePartition, position: Position | None) -> Reader:
        def call(since: Position | None) -> Iterable[Any]:
            return self._function(since) if self._partitions is None else self._function(since, partition)

        return FunctionReader(self.name, call, position, self._every_seconds)


class _Failed:
    def __init__(self, error: BaseException) -> None:
        self.error = error


class FunctionReader:
    """Runs a function in a thread, ahead of the task by a few transactions."""

    def __init__(
        self,
        name: str,
        call: Callable[[Position | None], Iterable[Any]],
        position: Position | None,
        every_seconds: float,
    ) -> None:
        self._name = name
        self._call = call
        self._every_seconds = every_seconds
        self._waiting: queue.Queue[Transaction | Portion | _Failed] = queue.Queue(WAITING_MAX)
        self._closed = threading.Event()
        # A daemon: a function that blocks must not keep the program from ending.
        threading.Thread(target=self._run, args=(position,), name=f"source {name}", daemon=True).start()

    def poll(self, timeout_seconds: float) -> Sequence[Transaction | Portion]:
        found: list[Transaction | Portion] = []
        try:
            given = self._waiting.get(timeout=timeout_seconds)
            while True:
                if isinstance(given, _Failed):
                    if found:
                        # What came before is good: the failure waits for the next call.
                        self._waiting.put(given)
                        return found
                    raise self._failure(given.error) from given.error
                found.append(given)
                given = self._waiting.get_nowait()
        except queue.Empty:
            return found

    def committed(self, position: Position) -> None:
        """A function is told only when it is called again."""

    def lag(self) -> int | None:
        return None

    def close(self) -> None:
        self._closed.set()

    def _run(self, position: Position | None) -> None:
        try:
            while not self._closed.is_set():
                for given in self._call(position):
                    if not isinstance(given, Transaction | Portion):
                        raise InvalidSource(
                            f"source {self._name} yields {type(given).__name__}",
                            "yield Transaction(records=..., position=...)",
                        )
                    if isinstance(given, Transaction):
                        position = given.position
                    if not self._put(given):
                        return
                self._closed.wait(self._every_seconds)
        except Exception as error:
            self._put(_Failed(error))

    def _put(self, given: "Transaction | Portion | _Failed") -> bool:
        while not self._closed.is_set():
            try:
                self._waiting.put(given, timeout=0.5)
                return True
            except queue.Full:
                continue
        return False

    def _failure(self, error: BaseException) -> BaseException:
        if isinstance(error, ConnectError):
            return error
        text = f"source {self._name}: {type(error).__name__}: {error}"
        if isinstance(error, OSError):
            # Connections, time-outs and what urllib raises: the other side may come back.
            return SourceUnavailable(text)
        return ConnectError(text, "mend the function and start again: it goes on at the last committed position")
