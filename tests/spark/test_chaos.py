"""A short run under kills, and lies told into its history; `make chaos-spark` is the long one."""

import json
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from fencepost.history import Report, check, read_events
from tests.history.mutations import Lie, Recorded
from tests.peers.fencepost_process import FencepostProcess
from tests.spark.chaos.due import with_what_is_due
from tests.spark.chaos.examples import FLAKY_SHOP
from tests.spark.chaos.run import Result, chaos
from tests.spark.chaos.verdict import Verdict

KILLS = ["worker", "broker", "driver"]
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Result]:
    """In one process with its tasks, which start sooner; test_standalone.py has executors of their own."""
    directory = tmp_path_factory.mktemp("chaos")
    with FencepostProcess() as broker:
        yield chaos(FLAKY_SHOP, broker, "TV2", directory, seed=1, kills=KILLS, master="local[2,4]")


def test_purchases_become_one_invoice_and_one_shipment_each_through_kills(result: Result) -> None:
    assert result.verdict.is_clean, str(result.verdict)
    assert not result.verdict.report.unjudged
    assert result.verdict.outputs == 2 * result.verdict.inputs > 0
    assert sum(result.kills.values()) == len(KILLS)
    assert result.task_failures["planted"] == 1


def test_the_history_has_what_was_asked_and_what_was_seen(result: Result) -> None:
    done = result.verdict.report.operations
    assert done["txn", "ok"] > 0
    assert done["send", "ok"] > 0
    assert done["init", "ok"] >= result.starts > 1
    polled = [each for each in lie(result).operations if each.kind == "poll" and any(each.done("poll")[0][1].values())]
    assert any(each.done("passed") for each in polled), "nobody says where the stable offsets are"


# Lies

Told = tuple[str, str]
"""The partition and value of one half of a pair."""


def lie(result: Result) -> Lie:
    return Lie([json.loads(line) for line in result.history.read_text().splitlines()], seed=1)


def some_pair(told: Lie) -> tuple[Recorded, Told, Told]:
    """Written in one attempt only, which was committed, and not the first in their partitions."""
    attempts = Counter((place, value) for each in told.operations for place, value, _ in each.sends())
    firsts = {value for place in {place for place, _ in attempts} for _, value in told.seen(place)[:1]}
    for writer in told.operations:
        if writer.kind != "txn" or writer.outcome != "ok":
            continue
        for value in [sent for _, sent, _ in writer.sends() if sent not in firsts]:
            halves = [(place, sent) for place, sent, _ in writer.sends() if sent == value]
            if len(halves) == 2 and all(attempts[half] == 1 for half in halves):
                return writer, halves[0], halves[1]
    raise AssertionError("every batch was tried more than once")


def judged(result: Result, told: Lie) -> Verdict:
    report: Report = check(read_events(told.events))
    return Verdict(result.verdict.inputs, result.verdict.outputs, report)


def duplicate(told: Lie) -> None:
    _, (place, value), _ = some_pair(told)
    pairs = told.final.done("poll")[-1][1].setdefault(place, [])
    pairs.append([max(offset for offset, _ in told.seen(place)) + 2, value])


def lose(told: Lie) -> None:
    _, *halves = some_pair(told)
    for place, value in halves:
        told.forget(place, value)


def tear(told: Lie) -> None:
    told.forget(*some_pair(told)[1])


def tear_for_a_while(told: Lie) -> None:
    """Only the reader that ran along has it not, though it came past both markers."""
    _, (place, value), _ = some_pair(told)
    for operation in told.operations:
        if operation.process == "watcher":
            for poll in operation.done("poll"):
                poll[1][place] = [pair for pair in poll[1].get(place, ()) if pair[1] != value]


def forget_to_send(told: Lie, writer: Recorded, *halves: Told) -> None:
    """The pipeline passes over an input."""
    at = [number for number, (place, value, _) in enumerate(writer.sends()) if (place, value) in halves]
    for number in reversed(at):
        del writer.events[-1]["offsets"][number]
    for event in writer.events:
        event["do"] = [each for each in event.get("do", ()) if tuple(each[1:]) not in halves]
    for place, value in halves:
        told.forget(place, value)


@pytest.mark.parametrize(
    ("plant", "anomalies", "kind"),
    [
        (duplicate, {"duplicate"}, "duplicated"),
        # By whether an attempt of unknown outcome may have moved the same offsets.
        (lose, {"offsets-without-outputs", "torn-transaction"}, "lost"),
        (tear, {"offsets-without-outputs", "torn-transaction"}, "torn"),
        # By whether the values around it came with the same poll.
        (tear_for_a_while, {"poll-skip", "int-poll-skip"}, "torn"),
    ],
)
def test_a_lie_is_found_out(result: Result, plant: Callable[[Lie], None], anomalies: set[str], kind: str) -> None:
    told = lie(result)
    plant(told)
    found = judged(result, told)
    assert found.report.counts.total() == 1, str(found)
    assert found.report.anomalies <= anomalies
    assert found.anomalies == {kind: 1}


def test_an_input_that_was_passed_over_is_found_by_its_offset(result: Result) -> None:
    told = lie(result)
    forget_to_send(told, *some_pair(told))
    assert judged(result, told).is_clean, "nobody misses what was never sent"
    told.events[:] = with_what_is_due(told.events, FLAKY_SHOP, result.inputs)
    assert judged(result, told).anomalies == {"lost": 1}


def test_offsets_that_stay_behind_their_outputs_are_found(result: Result) -> None:
    told = lie(result)
    fetches = [each for each in told.operations if each.process == "offset watcher" and each.done("fetched")]
    last = fetches[-1].done("fetched")[0][2]
    earlier = next(found for each in reversed(fetches) if (found := each.done("fetched")[0][2]) != last)
    last.update(earlier)
    assert set(judged(result, told).report.counts) == {"outputs-without-offsets"}
