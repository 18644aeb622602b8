"""What became of every input, by what a reader of committed records found in the outputs."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.spark.chaos.examples import Example


class Origin(NamedTuple):
    """Where an input stands in its topic."""

    partition: int
    offset: int


class Output(NamedTuple):
    topic: str
    partition: int
    offset: int
    row: dict[str, Any]


@dataclass(slots=True)
class Verdict:
    inputs: int = 0
    outputs: int = 0
    lost: int = 0
    duplicated: int = 0
    torn: int = 0
    disagreeing: int = 0
    reordered: int = 0
    invented: int = 0
    taken_back: int = 0
    """Seen by the reader that ran all along, and not there at the end."""
    examples: dict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))

    @property
    def is_clean(self) -> bool:
        return not any(
            (self.lost, self.duplicated, self.torn, self.disagreeing, self.reordered, self.invented, self.taken_back)
        )

    def count(self, kind: str, example: Any) -> None:
        setattr(self, kind, getattr(self, kind) + 1)
        if len(self.examples[kind]) < 3:
            self.examples[kind].append(example)


def judge(example: Example, inputs: dict[str, Origin], outputs: list[Output], watched: list[Output]) -> Verdict:
    verdict = Verdict(len(inputs), len(outputs))
    found: dict[str, dict[str, list[Output]]] = defaultdict(lambda: defaultdict(list))
    for output in outputs:
        found[example.key_of(output.row)][output.topic].append(output)
    first, second = example.outputs
    for name in inputs:
        ones, others = found[name][first], found[name][second]
        if not ones and not others:
            verdict.count("lost", name)
        elif not ones or not others:
            verdict.count("torn", (name, [*ones, *others]))
        elif len(ones) > 1 or len(others) > 1:
            verdict.count("duplicated", (name, [*ones, *others]))
        elif not example.agree(ones[0].row, others[0].row):
            verdict.count("disagreeing", (ones[0], others[0]))
    for name in found.keys() - inputs.keys():
        verdict.count("invented", name)
    _judge_order(verdict, example, inputs, outputs)
    there = Counter((each.topic, each.partition, each.offset) for each in outputs)
    for each in watched:
        if (each.topic, each.partition, each.offset) not in there:
            verdict.count("taken_back", each)
    return verdict


def _judge_order(verdict: Verdict, example: Example, inputs: dict[str, Origin], outputs: list[Output]) -> None:
    """What comes from one input partition stands in an output partition in the same order."""
    reached: dict[tuple[str, int, int], int] = {}
    for output in sorted(outputs, key=lambda each: (each.topic, each.partition, each.offset)):
        origin = inputs.get(example.key_of(output.row))
        if origin is None:
            continue
        lane = (output.topic, output.partition, origin.partition)
        if reached.get(lane, -1) > origin.offset:
            verdict.count("reordered", output)
        reached[lane] = max(reached.get(lane, -1), origin.offset)
