"""Checks a history. Linear in its size except for sorting. Nothing is guessed: unknown outcomes stay unknown."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from fencepost.history.checks.cycles import check_cycles
from fencepost.history.checks.group_offsets import GroupOffsets
from fencepost.history.checks.missing import check_missing
from fencepost.history.checks.order import check_gaps, check_sends, follow_readers
from fencepost.history.checks.read_values import check_values
from fencepost.history.checks.zombies import check_zombies
from fencepost.history.evidence import Evidence
from fencepost.history.findings import Finding, Findings
from fencepost.history.operations import Kind, Outcome
from fencepost.history.reading import History


@dataclass(slots=True)
class Report:
    operations: Counter[tuple[str, str]]
    """By kind and outcome."""
    events: int
    counts: Counter[str] = field(default_factory=Counter)
    """By anomaly; may exceed the findings that were kept."""
    findings: list[Finding] = field(default_factory=list)
    unjudged: list[str] = field(default_factory=list)
    """What could not be checked because the history lacks information."""

    @property
    def is_clean(self) -> bool:
        return not self.counts

    @property
    def anomalies(self) -> set[str]:
        return set(self.counts)

    def as_json(self) -> dict[str, Any]:
        operations: dict[str, dict[str, int]] = {}
        for (kind, outcome), count in sorted(self.operations.items()):
            operations.setdefault(kind, {})[outcome] = count
        return {
            "clean": self.is_clean,
            "events": self.events,
            "operations": operations,
            "anomalies": dict(sorted(self.counts.items())),
            "unjudged": self.unjudged,
            "findings": [finding.as_json() for finding in self.findings],
        }


def check(history: History) -> Report:
    findings = Findings()
    evidence = Evidence(history)
    group_offsets = GroupOffsets(evidence)
    check_values(evidence, findings)
    passage = follow_readers(evidence, findings)
    missing = check_missing(evidence, passage, group_offsets.read_by, findings)
    check_gaps(passage, missing, findings)
    check_sends(evidence, findings)
    check_cycles(evidence, findings)
    group_offsets.check(findings)
    check_zombies(evidence, findings)
    return Report(history.count(), history.events, findings.counts, findings.kept, _unjudged(history))


def _unjudged(history: History) -> list[str]:
    notes = []
    done = {each.kind for each in history.operations if each.outcome is Outcome.OK}
    if any(each.sends for each in history.operations) and Kind.FINAL_READ not in done:
        notes.append("no final read: writes that no reader came past are not judged")
    commits = any(each.commits for each in history.operations)
    if commits and not any(each.fetched for each in history.operations):
        notes.append("nobody fetched committed offsets: they are not judged")
    if history.operations and not history.polls:
        notes.append("nobody polled: nothing that was written is judged")
    return notes
