"""Records a history while it happens. Each request is recorded before it is sent.

Append-only and safe to use from many threads; the clock is passed in, and so is the sink: a file of JSON lines, a
list's `append`, anything that takes an event. A process performs one operation at a time; if it begins another,
the outcome of the previous one is unknown.
"""

import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fencepost.history.operations import READ_COMMITTED, Kind, Outcome, Value

Event = dict[str, Any]


class JsonLines:
    """A sink that puts every event on its own line and hands it to the operating system before it returns, so that a
    process that is killed has recorded everything it did."""

    def __init__(self, path: str | Path) -> None:
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115 - open as long as the sink

    def __call__(self, event: Event) -> None:
        self._file.write(json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class HistoryRecorder:
    def __init__(self, sink: Callable[[Event], object], clock: Callable[[], float]) -> None:
        """`clock` returns seconds; processes with separate files must share it (as with CLOCK_MONOTONIC)."""
        self._sink = sink
        self._clock = clock
        self._lock = threading.Lock()

    def tell(self, process: str, kind: str, fields: Mapping[str, Any]) -> None:
        with self._lock:
            self._sink({"time": round(self._clock(), 6), "process": process, "type": kind, **fields})

    def send(self, process: str, sends: Iterable[tuple[str, Value]]) -> "RecordedOperation":
        """Sends outside transactions: (partition, value)."""
        return RecordedOperation(self, process, Kind.SEND, [["send", *each] for each in sends])

    def poll(self, process: str, isolation: str = READ_COMMITTED) -> "RecordedOperation":
        return RecordedOperation(self, process, Kind.POLL, isolation=isolation)

    def transaction(
        self, process: str, transactional_id: str | None = None, isolation: str = READ_COMMITTED
    ) -> "RecordedOperation":
        return RecordedOperation(self, process, Kind.TRANSACTION, id=transactional_id, isolation=isolation)

    def final_read(
        self, process: str, partitions: Sequence[str] | Mapping[str, int], isolation: str = READ_COMMITTED
    ) -> "RecordedOperation":
        """Reads the partitions completely; a mapping gives their start offsets."""
        listed: Any = dict(partitions) if isinstance(partitions, Mapping) else list(partitions)
        return RecordedOperation(self, process, Kind.FINAL_READ, partitions=listed, isolation=isolation)

    def assign(self, process: str) -> None:
        """The process seeks, subscribes, is rebalanced or restarts: its next poll does not continue the previous
        one."""
        RecordedOperation(self, process, Kind.ASSIGN).ok()

    def init(self, process: str, transactional_id: str) -> "RecordedOperation":
        return RecordedOperation(self, process, Kind.INIT, id=transactional_id)

    def commit_offsets(self, process: str, group: str, offsets: Mapping[str, int]) -> "RecordedOperation":
        return RecordedOperation(self, process, Kind.COMMIT_OFFSETS, [["offsets", group, dict(offsets)]])

    def fetch_offsets(self, process: str) -> "RecordedOperation":
        return RecordedOperation(self, process, Kind.FETCH_OFFSETS)


class RecordedOperation:
    """A running operation. It is recorded step by step and completed once, by `ok`, `fail` or `info`."""

    def __init__(
        self, recorder: HistoryRecorder, process: str, kind: Kind, do: list[Any] | None = None, **fields: Any
    ) -> None:
        self._recorder = recorder
        self._process = process
        self._offsets: list[int | None] = [None] * len(do or [])
        self._is_complete = False
        given = {name: value for name, value in fields.items() if value is not None}
        self._tell("invoke", op=kind.value, **given, **({"do": do} if do else {}))

    @property
    def is_complete(self) -> bool:
        return self._is_complete

    def _tell(self, kind: str, **fields: Any) -> None:
        self._recorder.tell(self._process, kind, fields)

    def _step(self, micro_operation: list[Any]) -> None:
        self._tell("step", do=[micro_operation])

    def sending(self, partition: str, value: Value) -> int:
        """Records an attempt to send. Returns a number to pass to `sent`."""
        self._offsets.append(None)
        self._step(["send", partition, value])
        return len(self._offsets) - 1

    def sent(self, number: int, offset: int) -> None:
        """The send of that number (those given at the start count from 0) was acknowledged with this offset."""
        self._offsets[number] = offset

    def polled(self, records: Mapping[str, Iterable[tuple[int, Value]]]) -> None:
        """One poll returned: partition to (offset, value) pairs."""
        self._step(["poll", {partition: [list(pair) for pair in pairs] for partition, pairs in records.items()}])

    def passed(self, positions: Mapping[str, int]) -> None:
        """Everything below these offsets that the reader may see has been given to it: an answer said that a partition
        ends there for now. At read_committed that is a last stable offset, behind the markers of what is decided."""
        self._step(["passed", dict(positions)])

    def committing_offsets(self, group: str, offsets: Mapping[str, int]) -> None:
        """About to add offsets to the transaction."""
        self._step(["offsets", group, dict(offsets)])

    def fetched(self, group: str, offsets: Mapping[str, int | None]) -> None:
        """The group's committed offsets were read; None where it has none."""
        self._step(["fetched", group, dict(offsets)])

    def rebalanced(self, partitions: Iterable[str]) -> None:
        """These partitions were assigned or revoked meanwhile: records polled from them need not be contiguous."""
        self._step(["rebalanced", sorted(partitions)])

    def thinned(self, offsets: Mapping[str, int]) -> None:
        """By retention, compaction or on request, any record below these offsets may be gone. What is missing there, or
        was sent to such a partition and never acknowledged, is not judged."""
        self._step(["thinned", dict(offsets)])

    def ending(self, commit: bool) -> None:
        """Records an attempt to end the transaction. Without it, no commit was requested."""
        self._tell("end", commit=commit)

    def ok(self) -> None:
        self._complete(Outcome.OK)

    def fail(self, error: object = None) -> None:
        """Only if the operation certainly had and will have no effect."""
        self._complete(Outcome.FAIL, error)

    def info(self, error: object = None) -> None:
        self._complete(Outcome.INFO, error)

    def _complete(self, outcome: Outcome, error: object = None) -> None:
        if self._is_complete:
            raise RuntimeError(f"an operation of {self._process} was completed twice")
        self._is_complete = True
        fields: dict[str, Any] = {} if error is None else {"error": str(error)}
        if any(offset is not None for offset in self._offsets):
            fields["offsets"] = self._offsets
        self._tell(outcome.value, **fields)
