"""Small lies told into a true history, each of which plants one anomaly.

An operator edits the events in place and returns what it planted anew, or None where the history has no place for it.
"""

import copy
import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from fencepost.history.operations import READ_COMMITTED
from tests.history.model import GROUP, INPUT, PARTITIONS

Event = dict[str, Any]
Operator = Callable[["Lie"], bool]
OPERATORS: list[tuple[str, frozenset[str], Operator]] = []
FAR = 1_000_000


def plants(anomaly: str, *companions: str) -> Callable[[Operator], Operator]:
    def note(operator: Operator) -> Operator:
        OPERATORS.append((anomaly, frozenset(companions), operator))
        return operator

    return note


@dataclass(slots=True)
class Recorded:
    """One operation with the events that tell of it."""

    events: list[Event]

    @property
    def process(self) -> str:
        return str(self.events[0]["process"])

    @property
    def kind(self) -> str:
        return str(self.events[0]["op"])

    @property
    def outcome(self) -> str:
        return str(self.events[-1]["type"])

    def done(self, what: str) -> list[list[Any]]:
        return [each for event in self.events for each in event.get("do", ()) if each[0] == what]

    def sends(self) -> list[tuple[str, str, int | None]]:
        offsets = self.events[-1].get("offsets", [])
        offsets = offsets + [None] * len(self.done("send"))
        return [(each[1], each[2], offset) for each, offset in zip(self.done("send"), offsets, strict=False)]


class Lie:
    def __init__(self, events: list[Event], seed: int) -> None:
        self.events: list[Event] = copy.deepcopy(events)
        self.random = random.Random(seed)
        self.operations: list[Recorded] = []
        running: dict[str, Recorded] = {}
        for event in self.events:
            if event["type"] == "invoke":
                running[event["process"]] = Recorded([event])
                self.operations.append(running[event["process"]])
            else:
                running[event["process"]].events.append(event)
        self.final = next(each for each in self.operations if each.kind == "final-read")
        self.fetch = self.operations[-1]

    def polls(self) -> Iterator[list[Any]]:
        for operation in self.operations:
            yield from operation.done("poll")

    def seen(self, partition: str) -> list[list[Any]]:
        """What the final read_committed read has of a partition."""
        return [pair for poll in self.final.done("poll") for pair in poll[1].get(partition, ())]

    def one(self, kind: str, holds: Callable[[Recorded], object], outcome: str = "ok") -> Recorded | None:
        found = [each for each in self.operations if each.kind == kind and each.outcome == outcome and holds(each)]
        return self.random.choice(found) if found else None

    def forget(self, partition: str, value: str) -> None:
        for poll in self.polls():
            if partition in poll[1]:
                poll[1][partition] = [pair for pair in poll[1][partition] if pair[1] != value]

    def exchange(self, partition: str, one: str, other: str) -> None:
        names = {one: other, other: one}
        for poll in self.polls():
            for pair in poll[1].get(partition, ()):
                pair[1] = names.get(pair[1], pair[1])

    def insert(self, before: Event, *events: Event) -> None:
        at = next(index for index, event in enumerate(self.events) if event is before)
        self.events[at:at] = [{"time": before["time"], **event} for event in events]


def event(process: str, kind: str, **fields: Any) -> Event:
    return {"process": process, "type": kind, **fields}


def is_plain(operation: Recorded) -> bool:
    """A transaction that shares nothing with others: no offsets, no values written again."""
    return "id" not in operation.events[0] and all(offset is not None for *_, offset in operation.sends())


@plants("lost-write")
def lose_a_send_in_the_middle(lie: Lie) -> bool:
    ends = {partition: max((offset for offset, _ in lie.seen(partition)), default=-1) for partition in PARTITIONS}

    def is_inside(send: tuple[str, str, int | None]) -> bool:
        partition, _, offset = send
        return offset is not None and offset < ends[partition]

    operation = lie.one("send", lambda each: any(map(is_inside, each.sends())))
    if operation is None:
        return False
    partition, value, _ = next(filter(is_inside, operation.sends()))
    lie.forget(partition, value)
    return True


@plants("unseen")
def lose_the_last_send(lie: Lie) -> bool:
    last = {partition: lie.seen(partition)[-1][1] for partition in PARTITIONS if lie.seen(partition)}
    operation = lie.one("send", lambda each: any(last.get(name) == value for name, value, _ in each.sends()))
    if operation is None:
        return False
    partition, value, _ = next(send for send in operation.sends() if last.get(send[0]) == send[1])
    lie.forget(partition, value)
    # Whatever else was read of it was read before.
    return True


@plants("torn-transaction")
def lose_a_part_of_a_transaction(lie: Lie) -> bool:
    operation = lie.one("txn", lambda each: is_plain(each) and len(each.sends()) > 1)
    if operation is None:
        return False
    lie.forget(*lie.random.choice(operation.sends())[:2])
    return True


@plants("duplicate")
def read_a_value_again_at_the_end(lie: Lie) -> bool:
    partition = lie.random.choice(PARTITIONS)
    once = [value for _, value in lie.seen(partition) if not value.startswith("copy")]
    if not once:
        return False
    value = lie.random.choice(once)
    lie.final.done("poll")[-1][1].setdefault(partition, []).append([FAR, value])
    return True


@plants("phantom-read")
def read_what_nobody_sent(lie: Lie) -> bool:
    lie.final.done("poll")[-1][1].setdefault(PARTITIONS[0], []).append([FAR, "out of thin air"])
    return True


# Where nobody else told of a value it is believed to stand where it was read.
@plants("inconsistent-offsets", "nonmonotonic-send", "int-nonmonotonic-send", "duplicate")
def read_two_values_in_each_others_place(lie: Lie) -> bool:
    pairs = [pair for pair in lie.seen(lie.random.choice(PARTITIONS)) if not pair[1].startswith("copy")]
    if len(pairs) < 2:
        return False
    one, other = lie.random.choice(list(itertools.pairwise(pairs)))
    one[1], other[1] = other[1], one[1]
    return True


@plants("aborted-read")
def say_that_a_commit_was_an_abort(lie: Lie) -> bool:
    operation = lie.one("txn", is_plain)
    if operation is None:
        return False
    operation.events[-1]["type"] = "fail"
    return True


@plants("precommitted-read")
def read_before_the_commit(lie: Lie) -> bool:
    operation = lie.one("txn", is_plain)
    if operation is None:
        return False
    partition, value, offset = lie.random.choice(operation.sends())
    asked = next(each for each in operation.events if each["type"] == "end")
    lie.insert(
        asked,
        event("early", "invoke", op="poll", isolation=READ_COMMITTED),
        event("early", "step", do=[["poll", {partition: [[offset, value]]}]]),
        event("early", "ok"),
    )
    return True


@plants("write-read-cycle", "precommitted-read")
def let_two_transactions_read_each_other(lie: Lie) -> bool:
    events = [event(process, "invoke", op="txn", do=[["send", process, process]]) for process in ("yin", "yang")]
    for process, other in (("yin", "yang"), ("yang", "yin")):
        events.append(event(process, "step", do=[["poll", {other: [[0, other]]}]]))
        events.append(event(process, "end", commit=True))
    lie.insert(lie.final.events[0], *events, event("yin", "ok"), event("yang", "ok"))
    return True


@plants("int-nonmonotonic-send")
def let_two_sends_of_an_operation_change_places(lie: Lie) -> bool:
    def twins(operation: Recorded) -> list[tuple[str, str, int | None]]:
        sends = operation.sends()
        for index, one in enumerate(sends):
            for other in sends[index + 1 :]:
                if one[0] == other[0] and one[2] is not None and other[2] is not None:
                    return [one, other]
        return []

    operation = lie.one("txn", lambda each: is_plain(each) and twins(each))
    if operation is None:
        return False
    (partition, one, low), (_, other, high) = twins(operation)
    offsets = operation.events[-1]["offsets"]
    first, second = offsets.index(low), len(offsets) - 1 - offsets[::-1].index(high)
    values = [value for _, value, _ in operation.sends()]
    first, second = values.index(one), values.index(other)
    offsets[first], offsets[second] = high, low
    lie.exchange(partition, one, other)
    return True


# The value that changed its place with an earlier one may have been read before it was sent.
@plants("nonmonotonic-send", "phantom-read")
def let_two_sends_of_a_process_change_places(lie: Lie) -> bool:
    singles = [
        (each.process, each.sends()[0], each)
        for each in lie.operations
        if each.kind == "send" and each.outcome == "ok" and len(each.sends()) == 1 and each.sends()[0][2] is not None
    ]
    for (process, one, first), (other_process, other, second) in itertools.pairwise(singles):
        if process == other_process and one[0] == other[0]:
            first.events[-1]["offsets"], second.events[-1]["offsets"] = [other[2]], [one[2]]
            lie.exchange(one[0], one[1], other[1])
            return True
    return False


@plants("nonmonotonic-poll")
def poll_the_same_again(lie: Lie) -> bool:
    operation = lie.one("poll", lambda each: any(pairs for poll in each.done("poll") for pairs in poll[1].values()))
    if operation is None:
        return False
    at = next(index for index, event in enumerate(lie.events) if event is operation.events[-1])
    lie.events[at + 1 : at + 1] = copy.deepcopy(operation.events)
    return True


# The first to come has passed over those that should have come before it.
@plants("int-nonmonotonic-poll", "poll-skip", "int-poll-skip")
def poll_in_reverse(lie: Lie) -> bool:
    return _edit_a_poll(lie, 2, lambda pairs: pairs.reverse())


@plants("int-poll-skip")
def leave_one_out_of_a_poll(lie: Lie) -> bool:
    return _edit_a_poll(lie, 3, lambda pairs: pairs.pop(1))


def _edit_a_poll(lie: Lie, least: int, edit: Callable[[list[Any]], object]) -> bool:
    def long_ones(operation: Recorded) -> list[list[Any]]:
        return [pairs for poll in operation.done("poll") for pairs in poll[1].values() if len(pairs) >= least]

    operation = lie.one("poll", long_ones)
    if operation is not None:
        edit(lie.random.choice(long_ones(operation)))
    return operation is not None


@plants("poll-skip")
def skip_to_where_the_next_poll_begins(lie: Lie) -> bool:
    polls: list[tuple[str, Recorded]] = []
    for operation in lie.operations:
        if operation.kind in ("poll", "assign") and operation.process.startswith("reader"):
            polls.append((operation.process, operation))
    for process in sorted({process for process, _ in polls}):
        mine = [operation for name, operation in polls if name == process]
        for first, second, third in zip(mine, mine[1:], mine[2:], strict=False):
            if {first.kind, second.kind, third.kind} != {"poll"} or second.outcome != "ok":
                continue
            records = [dict(operation.done("poll")[0][1]) if operation.done("poll") else {} for operation in
                       (first, second, third)]  # fmt: skip
            for partition in PARTITIONS:
                if all(each.get(partition) for each in records):
                    del second.done("poll")[0][1][partition]
                    return True
    return False


@plants("offsets-without-outputs", "aborted-read")
def say_that_a_copy_was_aborted(lie: Lie) -> bool:
    writer = _only_writer_of_the_last_offset(lie)
    if writer is None or any(offset is None for *_, offset in writer.sends()):
        return False  # an earlier attempt of unknown outcome may have written the outputs
    writer.events[-1]["type"] = "fail"
    return True


def _only_writer_of_the_last_offset(lie: Lie) -> Recorded | None:
    fetched = [each[2].get(INPUT) for each in lie.fetch.done("fetched")]
    tries = [each for each in lie.operations if any(done[2].get(INPUT) in fetched for done in each.done("offsets"))]
    return tries[0] if len(tries) == 1 and tries[0].outcome == "ok" else None


@plants("outputs-without-offsets")
def forget_the_offsets_of_a_group(lie: Lie) -> bool:
    if lie.one("txn", lambda each: each.done("offsets") and each.done("send")) is None:
        return False
    lie.fetch.done("fetched")[0][2][INPUT] = None
    return True


@plants("phantom-offset")
def invent_an_offset(lie: Lie) -> bool:
    if not any(each.done("offsets") for each in lie.operations):
        return False
    lie.fetch.done("fetched")[0][2][INPUT] = FAR
    return True


@plants("lost-offset-commit")
def commit_offsets_in_vain(lie: Lie) -> bool:
    if _only_writer_of_the_last_offset(lie) is None:
        return False  # one of unknown outcome may have come after this
    done = [["offsets", GROUP, {INPUT: FAR}]]
    lie.insert(lie.final.events[0], event("vain", "invoke", op="commit-offsets", do=done), event("vain", "ok"))
    return True


@plants("zombie-commit")
def let_a_copier_be_replaced_before_it_commits(lie: Lie) -> bool:
    operation = lie.one("txn", lambda each: "id" in each.events[0])
    if operation is None:
        return False
    asked = next(each for each in operation.events if each["type"] == "end")
    usurped = event("usurper", "invoke", op="init", id="copier")
    lie.insert(asked, usurped, event("usurper", "ok"))
    mine = event(operation.process, "invoke", op="init", id="copier")
    first = next(each for each in lie.events if each["process"] == operation.process)
    lie.insert(first, mine, event(operation.process, "ok"))
    return True
