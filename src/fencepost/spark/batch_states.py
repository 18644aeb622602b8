"""Where each pipeline of this process stands: the batch it is in, and a gate at which it can be held between batches.

Spark's `query.stop()` interrupts a batch wherever it is. That is safe, the transaction is aborted and done again, but
whoever presses Ctrl-C wants the batch under way to be finished. So a stop closes the gate first: the next batch waits
there, with nothing begun, until the query ends.
"""

import dataclasses
import threading
import time
from collections.abc import Mapping

from fencepost.spark.errors import FencepostSparkError

OUTCOMES_KEPT_MAX = 1_000
"""Spark keeps the reports of its last hundred batches."""


class Held(FencepostSparkError):
    """Raised into a batch that stood at the gate when its query was stopped; nothing of it has begun."""


@dataclasses.dataclass
class BatchState:
    """Of one pipeline, as its driver sees it."""

    batch: int = -1
    transaction: str = "none"
    """none, open, committed, or skipped: the batch was committed before a crash, and only its state was computed."""


@dataclasses.dataclass(frozen=True, slots=True)
class BatchOutcome:
    """Of a batch that has ended."""

    transaction: str = "none"
    """committed or skipped; none if the batch is not one of this run."""
    rows_out: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """By topic."""
    transaction_ms: int = 0
    """From its beginning to its commit, with what the function of the pipeline took."""
    committed_at_ms: int | None = None
    """Since 1970."""


class _Gate:
    def __init__(self) -> None:
        self.state = BatchState()
        self.entered_at = 0.0
        self.outcomes: dict[int, BatchOutcome] = {}
        self.changed = threading.Condition()
        self.is_closed = False
        self.is_ended = False
        self.inside = False
        self.waiting = False


_gates: dict[str, _Gate] = {}
_lock = threading.Lock()


def _gate(pipeline: str) -> _Gate:
    with _lock:
        return _gates.setdefault(pipeline, _Gate())


def reset(pipeline: str) -> None:
    """A new run begins."""
    with _lock:
        _gates[pipeline] = _Gate()


def enter(pipeline: str, batch: int) -> None:
    """A batch begins; waits as long as the gate is closed."""
    gate = _gate(pipeline)
    with gate.changed:
        gate.waiting = True
        gate.changed.wait_for(lambda: not gate.is_closed or gate.is_ended)
        gate.waiting = False
        if gate.is_ended:
            raise Held(f"pipeline {pipeline} was stopped before batch {batch} began")
        gate.inside = True
        gate.entered_at = time.monotonic()
        gate.state = BatchState(batch, "open")


def leave(pipeline: str, *, replayed: bool, rows_out: Mapping[str, int]) -> None:
    """The batch under way has ended well; `rows_out` by topic."""
    gate = _gate(pipeline)
    with gate.changed:
        outcome = BatchOutcome(
            "skipped" if replayed else "committed",
            dict(rows_out),
            transaction_ms=round((time.monotonic() - gate.entered_at) * 1000),
            committed_at_ms=None if replayed else time.time_ns() // 1_000_000,
        )
        gate.state = BatchState(gate.state.batch, outcome.transaction)
        gate.outcomes[gate.state.batch] = outcome
        while len(gate.outcomes) > OUTCOMES_KEPT_MAX:
            del gate.outcomes[next(iter(gate.outcomes))]
        gate.inside = False
        gate.changed.notify_all()


def outcome(pipeline: str, batch: int) -> BatchOutcome:
    gate = _gate(pipeline)
    with gate.changed:
        return gate.outcomes.get(batch, BatchOutcome())


def state(pipeline: str) -> BatchState:
    gate = _gate(pipeline)
    with gate.changed:
        return gate.state


def close_gate(pipeline: str) -> None:
    """From now on no batch begins."""
    gate = _gate(pipeline)
    with gate.changed:
        gate.is_closed = True


def is_inside(pipeline: str) -> bool:
    """Whether a batch is under way."""
    gate = _gate(pipeline)
    with gate.changed:
        return gate.inside


def is_waiting(pipeline: str) -> bool:
    """Whether a batch stands at the closed gate."""
    gate = _gate(pipeline)
    with gate.changed:
        return gate.waiting and gate.is_closed


def end(pipeline: str) -> None:
    """Let go whoever waits at the gate."""
    gate = _gate(pipeline)
    with gate.changed:
        gate.is_ended = True
        gate.changed.notify_all()
