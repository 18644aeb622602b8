"""One anomaly found, with the few operations that prove it."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from fencepost.history.operations import NEVER, Operation, Value

EXAMPLES_MAX = 100
"""Findings of one kind that are kept; the others are counted."""


@dataclass(frozen=True, slots=True)
class Finding:
    anomaly: str
    message: str
    operations: tuple[Operation, ...]
    """The proof, in the order in which they were invoked."""
    partition: str | None = None
    values: tuple[Value, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {
            "anomaly": self.anomaly,
            "message": self.message,
            "partition": self.partition,
            "values": list(self.values),
            "operations": [
                {
                    "number": each.number,
                    "process": each.process,
                    "op": each.kind.value,
                    "outcome": each.outcome.value,
                    "events": [each.invoked + 1, None if each.completed == NEVER else each.completed + 1],
                }
                for each in self.operations
            ],
        }


class Findings:
    """Collects them. Of each kind only the first are kept, so that a broken log does not fill the memory."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.kept: list[Finding] = []

    def add(
        self,
        anomaly: str,
        message: str,
        *operations: Operation | None,
        partition: str | None = None,
        values: tuple[Value, ...] = (),
    ) -> None:
        self.counts[anomaly] += 1
        if self.counts[anomaly] > EXAMPLES_MAX:
            return
        proof = {each.number: each for each in operations if each is not None}
        ordered = tuple(proof[number] for number in sorted(proof))
        self.kept.append(Finding(anomaly, message, ordered, partition, values))
