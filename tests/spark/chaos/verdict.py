"""What became of a run: what the checker finds in its history, and what only the rows can tell.

The checker knows values by the name of their input. Whether the two outputs of an input agree, and whether what comes
from one input partition keeps its order, is judged here.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fencepost.history import Report
from fencepost.history.finding_text import explain
from tests.spark.chaos.clients import Output
from tests.spark.chaos.due import Place
from tests.spark.chaos.examples import Example, Row

EXAMPLES_MAX = 3
MISSING = {"lost-write", "unseen", "offsets-without-outputs", "torn-transaction"}
SKIPPED = {"poll-skip", "int-poll-skip"}


@dataclass(slots=True)
class Verdict:
    inputs: int
    outputs: int
    report: Report
    disagreeing: int = 0
    reordered: int = 0
    examples: dict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))

    @property
    def is_clean(self) -> bool:
        return self.report.is_clean and not self.disagreeing and not self.reordered

    @property
    def anomalies(self) -> Counter[str]:
        """The checker's, by what became of inputs: both outputs missing, one of them, or one there twice. An output
        that the watcher was denied and others were given is half of a torn pair, too."""
        found: Counter[str] = Counter()
        missing: Counter[Any] = Counter()
        for finding in self.report.findings:
            if finding.anomaly in MISSING:
                missing.update(finding.values)
            else:
                kind = "torn" if finding.anomaly in SKIPPED else finding.anomaly
                found["duplicated" if kind == "duplicate" else kind if kind == "torn" else "other"] += 1
        found.update("lost" if halves > 1 else "torn" for halves in missing.values())
        return found

    def count(self, kind: str, example: Any) -> None:
        setattr(self, kind, getattr(self, kind) + 1)
        if len(self.examples[kind]) < EXAMPLES_MAX:
            self.examples[kind].append(example)

    def __str__(self) -> str:
        own = f"{self.disagreeing} disagreeing, {self.reordered} reordered {dict(self.examples)}"
        return "\n".join([f"{self.inputs} inputs, {self.outputs} outputs, {own}", *explain(self.report)])


def judge(example: Example, inputs: Mapping[Place, Row], outputs: list[Output], report: Report) -> Verdict:
    verdict = Verdict(len(inputs), len(outputs), report)
    _judge_agreement(verdict, example, outputs)
    _judge_order(verdict, example, inputs, outputs)
    return verdict


def _judge_agreement(verdict: Verdict, example: Example, outputs: list[Output]) -> None:
    first, second = example.outputs
    found: dict[str, dict[str, Output]] = defaultdict(dict)
    for output in outputs:
        found[example.name_of(output.row)][output.topic] = output
    for pair in found.values():
        if len(pair) == 2 and not example.agree(pair[first].row, pair[second].row):
            verdict.count("disagreeing", pair)


def _judge_order(verdict: Verdict, example: Example, inputs: Mapping[Place, Row], outputs: list[Output]) -> None:
    """What comes from one input partition stands in an output partition in the same order."""
    origins = {example.name_of(row): place for place, row in inputs.items()}
    reached: dict[tuple[str, int, str], int] = {}
    for output in sorted(outputs, key=lambda each: (each.topic, each.partition, each.offset)):
        origin = origins.get(example.name_of(output.row))
        if origin is None:
            continue
        partition, offset = origin
        lane = (output.topic, output.partition, partition)
        if reached.get(lane, -1) > offset:
            verdict.count("reordered", output)
        reached[lane] = max(reached.get(lane, -1), offset)
