"""Reads histories: merges files by time, and combines events into operations."""

import heapq
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fencepost.history.operations import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    HistoryError,
    Kind,
    Operation,
    Outcome,
    Passed,
    Polled,
    Send,
)

_KINDS = {kind.value: kind for kind in Kind}
_OUTCOMES = {outcome.value: outcome for outcome in Outcome}


@dataclass(frozen=True, slots=True)
class History:
    operations: Sequence[Operation]
    """In the order in which they were invoked."""
    polls: Sequence[tuple[int, Operation, Polled]]
    """Every poll with the place of its event, in the order of their places."""
    events: int
    passed: Sequence[tuple[int, Operation, Passed]] = ()
    """Likewise, where readers stood after a poll."""
    thinned: Mapping[str, int] = field(default_factory=dict)
    """By partition, the offset below which records may have been deleted or compacted."""

    def count(self) -> Counter[tuple[str, str]]:
        return Counter((each.kind.value, each.outcome.value) for each in self.operations)


def read_files(paths: Sequence[str | Path]) -> History:
    """One file, or one per process written by the same clock."""
    if len(paths) == 1:
        return read_events(_events(paths[0]))
    return read_events(heapq.merge(*map(_events, paths), key=lambda event: float(event["time"])))


def _events(path: str | Path) -> Iterator[dict[str, Any]]:
    with open(path, encoding="utf-8", errors="replace", newline="\n") as lines:
        for number, line in enumerate(lines, 1):
            if line.isspace():
                continue
            try:
                event = json.loads(line)
                if not isinstance(event, dict):
                    raise ValueError("no object")
            except ValueError as error:
                if not line.endswith("\n"):
                    return  # cut short by the death of its writer
                raise HistoryError(f"{path}, line {number}: not a JSON object ({error})") from None
            yield event


def read_events(events: Iterable[dict[str, Any]]) -> History:
    reader = _Reader()
    count = 0
    for place, event in enumerate(events):
        try:
            reader.take(place, event)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            problem = f"no {error}" if isinstance(error, KeyError) else str(error)
            raise HistoryError(f"event {place + 1}: {problem}: {json.dumps(event, default=str)[:200]}") from None
        count = place + 1
    reader.finish()
    return History(reader.operations, reader.polls, count, reader.passed, reader.thinned)


class _Reader:
    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.polls: list[tuple[int, Operation, Polled]] = []
        self.passed: list[tuple[int, Operation, Passed]] = []
        self.thinned: dict[str, int] = {}
        self._open: dict[str, Operation] = {}
        self._sessions: dict[str, int] = {}

    def take(self, place: int, event: dict[str, Any]) -> None:
        kind = event["type"]
        process = event["process"]
        if kind == "invoke":
            # An operation that was never completed: its process died, and another goes by its name.
            left = self._open.get(process)
            if left is not None:
                left.abandon()
                self._sessions[process] = self._sessions.get(process, 0) + 1
            operation = self._invoked(place, event)
            self.operations.append(operation)
            self._open[process] = operation
        else:
            found = self._open.get(process)
            if found is None:
                raise ValueError(f"{process} has no running operation")
            operation = found
            if kind == "end":
                operation.ask_to_end(place, commit=bool(event["commit"]))
            elif kind != "step":
                outcome = _OUTCOMES.get(kind)
                if outcome is None:
                    raise ValueError(f"{kind!r} is not one of invoke, step, end, ok, fail, info")
                operation.complete(outcome, place)
                del self._open[process]
                if outcome is not Outcome.OK or operation.kind is Kind.FINAL_READ:
                    # After a failure consumers go back to where they were, or start anew.
                    self._sessions[process] += 1
        for micro_operation in event.get("do", ()):
            if micro_operation[0] == "poll":
                polled = {sys.intern(partition): pairs for partition, pairs in micro_operation[1].items()}
                operation.polls.append(polled)
                self.polls.append((place, operation, polled))
            elif micro_operation[0] == "passed":
                passed = {sys.intern(partition): int(offset) for partition, offset in micro_operation[1].items()}
                self.passed.append((place, operation, passed))
            elif micro_operation[0] == "thinned":
                for partition, offset in micro_operation[1].items():
                    self.thinned[partition] = max(self.thinned.get(partition, 0), int(offset))
            else:
                _do(operation, micro_operation)
        offsets = event.get("offsets")
        if offsets is not None:
            for send, offset in zip(operation.sends, offsets, strict=False):
                if offset is not None:
                    send.acknowledge(int(offset))

    def _invoked(self, place: int, event: dict[str, Any]) -> Operation:
        kind = _KINDS.get(event["op"])
        if kind is None:
            raise ValueError(f"op {event['op']!r} is not one of {', '.join(_KINDS)}")
        process = sys.intern(event["process"])
        isolation = event.get("isolation", READ_COMMITTED)
        if isolation not in (READ_COMMITTED, READ_UNCOMMITTED):
            raise ValueError(f"isolation {isolation!r} is neither {READ_COMMITTED} nor {READ_UNCOMMITTED}")
        # An assignment that may not have happened ends a session too.
        self._sessions[process] = self._sessions.get(process, 0) + (kind in (Kind.ASSIGN, Kind.FINAL_READ))
        starts: dict[str, int] = {}
        if kind is Kind.FINAL_READ:
            listed = event["partitions"]
            starts = listed if isinstance(listed, dict) else dict.fromkeys(listed, 0)
        return Operation(
            len(self.operations),
            process,
            kind,
            place,
            float(event.get("time", place)),
            transactional_id=event.get("id"),
            isolation=READ_COMMITTED if isolation == READ_COMMITTED else READ_UNCOMMITTED,
            session=self._sessions[process],
            final_partitions={sys.intern(name): int(start) for name, start in starts.items()},
        )

    def finish(self) -> None:
        for operation in self._open.values():
            operation.abandon()


def _do(operation: Operation, micro_operation: list[Any]) -> None:
    what = micro_operation[0]
    if what == "send":
        _, partition, value, *offset = micro_operation
        if not isinstance(value, str | int):
            raise ValueError(f"the value {value!r} is neither text nor a whole number")
        send = Send(operation, sys.intern(partition), value, offset[0] if offset else None)
        operation.sends.append(send)
    elif what == "offsets":
        _, group, offsets = micro_operation
        operation.commits.extend((group, sys.intern(partition), offset) for partition, offset in offsets.items())
    elif what == "fetched":
        _, group, offsets = micro_operation
        operation.fetched.extend((group, sys.intern(partition), offset) for partition, offset in offsets.items())
    elif what == "rebalanced":
        operation.note_rebalanced(micro_operation[1])
    else:
        raise ValueError(f"{what!r} is not one of send, poll, passed, offsets, fetched, rebalanced, thinned")
