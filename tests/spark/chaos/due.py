"""What a transaction owes by its offsets: the outputs of every input that they step over.

The tap sees what was sent. An input that the pipeline forgot is not sent at all, so the history is completed with it: a
transaction that is asked to commit says that it has done every input from where the last committed one ended up to its
own offsets, and whatever it has not sent of their outputs is told as sent. Nobody can read it, and the checker says so.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tests.spark.chaos.examples import Example, Row

Event = dict[str, Any]
Place = tuple[str, int]
"""Partition and offset."""


def with_what_is_due(events: Iterable[Event], example: Example, inputs: Mapping[Place, Row]) -> Iterator[Event]:
    reached: dict[str, int] = {}
    offsets: dict[str, dict[str, int]] = {}
    sent: dict[str, set[tuple[str, str]]] = {}
    for event in events:
        process = event["process"]
        if event["type"] == "invoke":
            offsets[process], sent[process] = {}, set()
        for what, *rest in event.get("do", ()):
            if what == "send":
                sent[process].add((rest[0], rest[1]))
            elif what == "offsets":
                own = {name: offset for name, offset in rest[1].items() if name.startswith(example.source)}
                offsets[process] |= own
        if event["type"] == "end" and event["commit"]:
            due = [
                ["send", place, example.name_of(row)]
                for row in _stepped_over(inputs, reached, offsets[process])
                for place in example.places_of(row)
                if (place, example.name_of(row)) not in sent[process]
            ]
            if due:
                yield {"time": event["time"], "process": process, "type": "step", "do": due}
        elif event["type"] == "ok":
            reached |= offsets[process]
        yield event


def _stepped_over(inputs: Mapping[Place, Row], reached: Mapping[str, int], offsets: Mapping[str, int]) -> Iterator[Row]:
    for partition, end in offsets.items():
        for offset in range(reached.get(partition, 0), end):
            row = inputs.get((partition, offset))
            if row is not None:
                yield row
