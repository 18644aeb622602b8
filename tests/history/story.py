"""Histories told by hand: every call is one operation, and a clock counts the events."""

import itertools
from collections.abc import Iterable
from typing import Any

from fencepost.history import HistoryRecorder, Report, check, read_events
from fencepost.history.operations import READ_COMMITTED

P, Q, R = "orders-0", "orders-1", "orders-2"
INPUT = "input-0"
GROUP = "billing"


class Story:
    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        ticks = itertools.count()
        self.recorder = HistoryRecorder(self.events.append, lambda: float(next(ticks)))

    def report(self) -> Report:
        return check(read_events(self.events))

    def send(self, process: str, partition: str, value: str, offset: int | None, outcome: str = "ok") -> None:
        operation = self.recorder.send(process, [(partition, value)])
        if offset is not None:
            operation.sent(0, offset)
        getattr(operation, outcome)()

    def poll(self, process: str, isolation: str = READ_COMMITTED, **partitions: Iterable[tuple[int, str]]) -> None:
        """Partitions by their letter: p=[(offset, value)]."""
        operation = self.recorder.poll(process, isolation)
        operation.polled(named(partitions))
        operation.ok()

    def passed(self, process: str, isolation: str = READ_COMMITTED, **positions: int) -> None:
        """The reader is told that nothing more is there for it yet."""
        operation = self.recorder.poll(process, isolation)
        operation.passed({{"p": P, "q": Q, "r": R, "i": INPUT}[name]: offset for name, offset in positions.items()})
        operation.ok()

    def final(self, isolation: str = READ_COMMITTED, **partitions: Iterable[tuple[int, str]]) -> None:
        records = named(partitions)
        operation = self.recorder.final_read("final", list(records), isolation)
        operation.polled(records)
        operation.ok()

    def transaction(
        self,
        process: str,
        *sends: tuple[str, str, int | None],
        outcome: str = "ok",
        commit: bool = True,
        offset: int | None = None,
        polls: Iterable[dict[str, Iterable[tuple[int, str]]]] = (),
        transactional_id: str | None = None,
    ) -> None:
        operation = self.recorder.transaction(process, transactional_id)
        for records in polls:
            operation.polled(named(records))
        for partition, value, at in sends:
            number = operation.sending(partition, value)
            if at is not None:
                operation.sent(number, at)
        if offset is not None:
            operation.committing_offsets(GROUP, {INPUT: offset})
        operation.ending(commit)
        getattr(operation, outcome)()

    def init(self, process: str, transactional_id: str) -> None:
        self.recorder.init(process, transactional_id).ok()

    def commit_offset(self, process: str, offset: int) -> None:
        self.recorder.commit_offsets(process, GROUP, {INPUT: offset}).ok()

    def fetch_offset(self, process: str, offset: int | None) -> None:
        operation = self.recorder.fetch_offsets(process)
        operation.fetched(GROUP, {INPUT: offset})
        operation.ok()


def named(partitions: Any) -> dict[str, Any]:
    return {{"p": P, "q": Q, "r": R, "i": INPUT}.get(name, name): list(pairs) for name, pairs in partitions.items()}
