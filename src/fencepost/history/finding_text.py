"""Describes a finding in words and as a text drawing: one lane per process, time from left to right."""

from collections.abc import Iterable, Iterator

from fencepost.history.anomalies import ANOMALIES
from fencepost.history.checker import Report
from fencepost.history.checks.read_values import quote
from fencepost.history.findings import Finding
from fencepost.history.operations import NEVER, Kind, Operation, Polled, Value

COLUMN_WIDTH = 6
SHOWN_MAX = 4
"""Maximum number of sends or polled values to name."""
FINDINGS_SHOWN_MAX = 3
"""Maximum number of findings to show for each anomaly."""


def explain(report: Report, shown_max: int = FINDINGS_SHOWN_MAX) -> Iterator[str]:
    """The whole report, line by line."""
    counts = ", ".join(f"{count} {kind} {outcome}" for (kind, outcome), count in sorted(report.operations.items()))
    yield f"{sum(report.operations.values())} operations ({counts or 'none'})"
    for note in report.unjudged:
        yield f"note: {note}"
    if report.is_clean:
        yield "no anomaly found"
        return
    for anomaly, count in sorted(report.counts.items()):
        yield ""
        yield f"{anomaly}: {count} found ({ANOMALIES[anomaly]})"
        findings = [finding for finding in report.findings if finding.anomaly == anomaly]
        for finding in findings[:shown_max]:
            yield ""
            yield from (f"  {line}" for line in explain_finding(finding))
        if count > shown_max:
            yield f"  ... and {count - shown_max} more"


def explain_finding(finding: Finding) -> Iterator[str]:
    yield finding.message
    yield from draw(finding)
    for letter, operation in zip(letters(finding), finding.operations, strict=True):
        yield f"  {letter}  {describe(operation, finding)}"


def letters(finding: Finding) -> list[str]:
    return [chr(ord("A") + number) for number in range(len(finding.operations))]


def places(finding: Finding) -> list[int]:
    """The places of the history that the drawing shows, in order."""
    found = {place for each in finding.operations for place in (each.invoked, each.ending, each.completed)}
    return sorted(found - {NEVER})


def lanes(finding: Finding) -> dict[str, list[tuple[str, Operation]]]:
    found: dict[str, list[tuple[str, Operation]]] = {}
    for letter, operation in zip(letters(finding), finding.operations, strict=True):
        found.setdefault(operation.process, []).append((letter, operation))
    return found


def draw(finding: Finding) -> Iterator[str]:
    """`A├───●───┤ok`: from its invocation over the request to commit (●) or abort (○) to the outcome, if any."""
    columns = {place: index for index, place in enumerate(places(finding))}
    drawn = lanes(finding)
    label_width = max(map(len, drawn))
    width = (len(columns) + 1) * COLUMN_WIDTH
    for process, operations in drawn.items():
        lane = [" "] * (width + COLUMN_WIDTH)
        for letter, operation in operations:
            start = columns[operation.invoked] * COLUMN_WIDTH
            is_open = operation.completed == NEVER
            end = width - 2 if is_open else columns[operation.completed] * COLUMN_WIDTH
            lane[start : end + 1] = [letter, "├", *"─" * (end - start - 2), "…" if is_open else "┤"]
            if operation.ending != NEVER:
                lane[columns[operation.ending] * COLUMN_WIDTH] = "●" if operation.commit_asked else "○"
            outcome = "" if is_open else operation.outcome.value
            lane[end + 1 : end + 1 + len(outcome)] = outcome
        yield f"  {process.ljust(label_width)}  {''.join(lane).rstrip()}"


def describe(operation: Operation, finding: Finding | None = None) -> str:
    """One line: who, what, how it ended. Of what it did, what the finding is about comes first."""
    about = set(finding.values) if finding is not None else set()
    parts = [_title(operation)]
    sends = [(send.value, send.partition, send.offset) for send in operation.sends]
    if sends:
        sends.sort(key=lambda send: send[0] not in about)
        texts = [
            f"{quote(value)} to {partition}" + ("" if offset is None else f"@{offset}")
            for value, partition, offset in sends[:SHOWN_MAX]
        ]
        parts.append("sends " + ", ".join(texts) + _more(len(sends)))
    if operation.polls:
        parts.append(_polls(operation.polls, about, finding.partition if finding is not None else None))
    for group, partition, offset in operation.commits[:SHOWN_MAX]:
        parts.append(f"commits {partition}@{offset} for {group}")
    for group, partition, fetched in operation.fetched[:SHOWN_MAX]:
        parts.append(f"fetches {partition}@{'none' if fetched is None else fetched} of {group}")
    if operation.ending != NEVER:
        parts.append("asks to commit" if operation.commit_asked else "asks to abort")
    parts.append(operation.outcome.value if operation.completed != NEVER else "no answer recorded")
    return "; ".join(parts)


def _title(operation: Operation) -> str:
    name = operation.kind.value
    if operation.transactional_id is not None:
        name += f" of {operation.transactional_id}"
    if operation.polls or operation.kind in (Kind.POLL, Kind.FINAL_READ):
        name += f", {operation.isolation}"
    end = "" if operation.completed == NEVER else f"-{operation.completed + 1}"
    return f"{operation.process}, events {operation.invoked + 1}{end}: {name}"


def _polls(polls: Iterable[Polled], about: set[Value], partition: str | None) -> str:
    found = [(name, offset, value) for poll in polls for name, pairs in poll.items() for offset, value in pairs]
    found.sort(key=lambda each: (each[2] not in about, each[0] != partition))
    texts = [f"{name}@{offset} {quote(value)}" for name, offset, value in found[:SHOWN_MAX]]
    return "polls " + (", ".join(texts) + _more(len(found)) if found else "nothing")


def _more(count: int) -> str:
    return f" and {count - SHOWN_MAX} more" if count > SHOWN_MAX else ""
