"""Runs many seeds in several processes and adds up the results."""

import dataclasses
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from fencepost.simulation.faults import Fault
from fencepost.simulation.seed_run import Result, replay_command, run_seed

Job = tuple[int, int, frozenset[Fault]]


@dataclasses.dataclass(slots=True)
class Summary:
    seconds: int
    kinds: frozenset[Fault]
    seeds: int = 0
    calls: int = 0
    steps: int = 0
    restarts: int = 0
    late_frames: int = 0
    simulated_ms: int = 0
    busy_seconds: int = 0
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    transactions: Counter[str] = dataclasses.field(default_factory=Counter)
    hits: Counter[str] = dataclasses.field(default_factory=Counter)
    administration: Counter[str] = dataclasses.field(default_factory=Counter)
    failures: list[Result] = dataclasses.field(default_factory=list)

    def add(self, result: Result) -> None:
        self.seeds += 1
        self.calls += result.calls
        self.steps += result.steps
        self.restarts += result.restarts
        self.late_frames += result.late_frames
        self.simulated_ms += result.simulated_ms
        self.busy_seconds += result.seconds
        self.cpu_seconds += result.cpu_seconds
        self.transactions.update(result.transactions)
        self.hits.update(result.hits)
        self.administration.update(result.administration)
        if result.anomalies:
            self.failures.append(result)

    @property
    def never_hit(self) -> list[str]:
        return [kind.value for kind in Fault if kind in self.kinds and not self.hits[kind.value]]

    def replay(self, failure: Result) -> str:
        return replay_command(failure.seed, failure.seconds, self.kinds)

    def as_json(self) -> dict[str, Any]:
        return {
            "seeds": self.seeds,
            "simulated_hours": round(self.simulated_ms / 3_600_000, 3),
            "busy_hours": round(self.busy_seconds / 3_600, 3),
            "calls": self.calls,
            "steps": self.steps,
            "restarts": self.restarts,
            "late_requests": self.late_frames,
            "transactions": {
                "committed": self.transactions["ok"],
                "aborted": self.transactions["fail"],
                "unknown": self.transactions["info"],
            },
            "hits": {kind.value: self.hits[kind.value] for kind in Fault if kind in self.kinds},
            "never_hit": self.never_hit,
            "administration": dict(self.administration),
            "anomalies": sum(len(failure.anomalies) for failure in self.failures),
            "failures": [
                {"seed": failure.seed, "replay": self.replay(failure), "anomalies": list(failure.anomalies[:10])}
                for failure in self.failures
            ],
            "cpu_seconds": round(self.cpu_seconds, 1),
            "wall_seconds": round(self.wall_seconds, 1),
        }


def run_seeds(
    seeds: Iterable[int],
    seconds: int,
    kinds: frozenset[Fault],
    processes: int,
    tell: Callable[[Result, Summary], None] = lambda result, summary: None,
) -> Summary:
    """Every seed, or those that ended before Ctrl-C; `tell` is called after each, in the order in which they end."""
    summary = Summary(seconds, kinds)
    begun = time.perf_counter()
    jobs = [(seed, seconds, kinds) for seed in seeds]
    try:
        for result in _results(jobs, min(processes, len(jobs))):
            summary.add(result)
            summary.wall_seconds = time.perf_counter() - begun
            tell(result, summary)
    except KeyboardInterrupt:
        pass  # what was done so far is worth its figures
    return summary


def _results(jobs: list[Job], processes: int) -> Iterator[Result]:
    if processes <= 1:
        yield from map(_run, jobs)
        return
    # Each has a new interpreter, so that nothing of this process has an influence.
    with multiprocessing.get_context("spawn").Pool(processes, maxtasksperchild=50) as pool:
        yield from pool.imap_unordered(_run, jobs)


def _run(job: Job) -> Result:
    return run_seed(*job)
