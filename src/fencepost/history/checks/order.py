"""Order: the log has the values of one process in the order of its sends, and polls return them in the order of the
log.

Within a session a consumer continues where it was. From that follows which ranges of a partition were passed, and
whether values were left out.
"""

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from fencepost.history.checks.read_values import quote
from fencepost.history.evidence import Evidence, PartitionEvidence
from fencepost.history.findings import Findings
from fencepost.history.operations import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Kind,
    Operation,
    Outcome,
    Passed,
    Polled,
    Send,
)
from fencepost.history.reading import History


@dataclass(slots=True)
class Stretches:
    """The ranges of offsets that readers of one isolation level passed, as (first, last)."""

    runs: list[tuple[int, int]] = field(default_factory=list)

    def merge(self) -> None:
        merged: list[tuple[int, int]] = []
        for first, last in sorted(self.runs):
            if merged and first <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
            else:
                merged.append((first, last))
        self.runs = merged

    def __contains__(self, offset: int) -> bool:
        at = bisect_right(self.runs, (offset, 1 << 62)) - 1
        return at >= 0 and self.runs[at][1] >= offset


@dataclass(slots=True)
class Gap:
    """A reader went from one offset to another and may have missed something in between."""

    partition: PartitionEvidence
    last: int
    next: int
    before: Operation
    after: Operation
    is_polled: bool
    """Something was polled at `next`; else the reader got this as its position."""


@dataclass(slots=True)
class Passage:
    """The result of following every reader."""

    stretches: dict[tuple[str, str], Stretches] = field(default_factory=dict)
    """By partition and isolation level."""
    gaps: list[Gap] = field(default_factory=list)

    def denied_to(self, name: str, offset: int) -> Operation | None:
        """The reader that passed this offset without getting its value."""
        found = (gap for gap in self.gaps if gap.partition.name == name and gap.last < offset < gap.next)
        return next((gap.after for gap in found), None)


_Reading: TypeAlias = tuple[int, int, Operation, Polled, Passed]


@dataclass(slots=True)
class _Position:
    operation: Operation
    session: int
    first: int
    last: int


def follow_readers(evidence: Evidence, findings: Findings) -> Passage:
    passage = Passage()
    positions: dict[tuple[str, str, str], _Position] = {}
    visible: dict[tuple[str, str], list[int]] = {}
    for isolation in (READ_COMMITTED, READ_UNCOMMITTED):
        for name, partition in evidence.partitions.items():
            passage.stretches[name, isolation] = Stretches()
            visible[name, isolation] = partition.visible_offsets(isolation)

    def leave(key: tuple[str, str, str]) -> None:
        old = positions.pop(key, None)
        if old is not None:
            passage.stretches[key[1], key[2]].runs.append((old.first, old.last))

    def went_on(name: str, last: int, offset: int, before: Operation, after: Operation, is_polled: bool) -> None:
        """Note a gap if something that must be given lies between."""
        offsets = visible[name, after.isolation]
        if bisect_right(offsets, last) != bisect_left(offsets, offset):
            passage.gaps.append(Gap(evidence.partitions[name], last, offset, before, after, is_polled))

    for operation, poll, passed in _readings(evidence.history):
        for name, stand in passed.items():
            key = (operation.process, name, operation.isolation)
            if name not in evidence.partitions or name in operation.rebalanced:
                continue
            position = positions.get(key)
            if position is None or position.session != operation.session:
                leave(key)
                positions[key] = _Position(operation, operation.session, stand, stand - 1)
            elif stand - 1 > position.last:
                went_on(name, position.last, stand, position.operation, operation, is_polled=False)
                position.last, position.operation = stand - 1, operation
        for name, pairs in poll.items():
            if not pairs:
                continue
            key = (operation.process, name, operation.isolation)
            if name in operation.rebalanced:
                leave(key)
                continue
            position = positions.get(key)
            if position is None or position.session != operation.session:
                leave(key)
                first = pairs[0][0]
                assert isinstance(first, int)
                start = first
                if operation.kind is Kind.FINAL_READ:
                    start = min(operation.final_partitions.get(name, first), first)
                position = positions[key] = _Position(operation, operation.session, start, start - 1)
            last = position.last
            for offset, _value in pairs:
                assert isinstance(offset, int)
                if offset <= last:
                    _went_back(name, last, offset, position.operation, operation, findings)
                elif offset != last + 1:
                    went_on(name, last, offset, position.operation, operation, is_polled=True)
                last = offset
                position.operation = operation
            position.last = max(position.last, last)
    for key in list(positions):
        leave(key)
    for stretches in passage.stretches.values():
        stretches.merge()
    return passage


def _readings(history: History) -> Iterator[tuple[Operation, Polled, Passed]]:
    """Polls and positions in the order of their events; of one event, the poll first."""
    polls: Iterator[_Reading] = ((place, 0, operation, poll, {}) for place, operation, poll in history.polls)
    passed: Iterator[_Reading] = ((place, 1, operation, {}, stands) for place, operation, stands in history.passed)
    merged = heapq.merge(polls, passed, key=lambda each: each[:2]) if history.passed else polls
    for _, _, operation, poll, stands in merged:
        yield operation, poll, stands


def _went_back(name: str, last: int, offset: int, before: Operation, after: Operation, findings: Findings) -> None:
    findings.add(
        "int-nonmonotonic-poll" if before is after else "nonmonotonic-poll",
        f"{after.process} polled offset {offset} of {name} after offset {last}",
        before,
        after,
        partition=name,
    )


def check_gaps(passage: Passage, missing: set[tuple[str, int]], findings: Findings) -> None:
    """Values that one reader did not get. `missing` has already reported those that nobody got."""
    visible: dict[tuple[str, str], list[int]] = {}
    for gap in passage.gaps:
        partition, isolation = gap.partition, gap.after.isolation
        key = (partition.name, isolation)
        if key not in visible:
            visible[key] = partition.visible_offsets(isolation)
        offsets = visible[key]
        between = offsets[bisect_right(offsets, gap.last) : bisect_left(offsets, gap.next)]
        skipped = [
            offset
            for offset in between
            if (partition.name, offset) not in missing and not partition.may_be_gone(offset)
        ]
        if not skipped:
            continue
        entry, send = partition.entries.get(skipped[0]), partition.acknowledged.get(skipped[0])
        value = entry.value if entry is not None else send.value if send is not None else ""
        others = f" and {len(skipped) - 1} more" if len(skipped) > 1 else ""
        findings.add(
            "int-poll-skip" if gap.before is gap.after else "poll-skip",
            f"{gap.after.process} {'polled' if gap.is_polled else 'passed on to'} offset {gap.next} of "
            f"{partition.name} after {gap.last}, without "
            f"{quote(value)} at {skipped[0]}{others}",
            gap.before,
            gap.after,
            None if send is None else send.operation,
            None if entry is None else entry.committed_by or entry.read_by,
            partition=partition.name,
            values=(value,),
        )


def check_sends(evidence: Evidence, findings: Findings) -> None:
    """Only offsets that are certain: acknowledged, or of acknowledged sends and read."""
    last: dict[tuple[str, str], Send] = {}
    for operation in evidence.history.operations:
        for send in operation.sends:
            if send.offset is None:
                continue
            # An attempt given up may still arrive, after whatever was sent since.
            is_settled = operation.outcome is Outcome.OK or (operation.is_transaction and operation.is_committed)
            if not is_settled and evidence.partitions[send.partition].acknowledged.get(send.offset) is not send:
                continue
            key = (operation.process, send.partition)
            before = last.get(key)
            last[key] = send
            if before is None:
                continue
            assert before.offset is not None
            if send.offset > before.offset:
                continue
            findings.add(
                "int-nonmonotonic-send" if before.operation is operation else "nonmonotonic-send",
                f"{operation.process} sent {quote(before.value)} and then {quote(send.value)} to {send.partition}, but "
                f"they stand at {before.offset} and {send.offset}",
                before.operation,
                operation,
                partition=send.partition,
                values=(before.value, send.value),
            )
