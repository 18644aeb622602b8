"""Runs the world of one seed and returns the result."""

import dataclasses
import gc
import time
import traceback
from typing import Any

from fencepost.history.operations import Outcome
from fencepost.history.recording import JsonLines
from fencepost.simulation.administered_topics import DEEDS
from fencepost.simulation.fault_actions import carry_out
from fencepost.simulation.faults import Fault
from fencepost.simulation.world import World

ALL_FAULTS = frozenset(Fault)


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    seed: int
    seconds: int
    anomalies: tuple[str, ...]
    digest: str
    events: int
    steps: int
    calls: int
    restarts: int
    late_frames: int
    transactions: dict[str, int]
    """By what their clients know of their end: ok, fail, info."""
    hits: dict[str, int]
    """By fault."""
    administration: dict[str, int]
    """What administrators got done, and how often compaction and retention did their work."""
    simulated_ms: int
    cpu_seconds: float

    def as_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def run_seed(
    seed: int,
    seconds: int,
    kinds: frozenset[Fault] = ALL_FAULTS,
    trace_file: str | None = None,
    history_file: str | None = None,
) -> Result:
    """Exceptions count as anomalies."""
    begun = time.process_time()
    world = World(seed, seconds, kinds, carry_out, keeps_lines=trace_file is not None)
    was_collecting = gc.isenabled()
    gc.disable()  # one world is small, and finding that out again and again takes a sixth of the time
    try:
        anomalies = world.run()
    except Exception:
        anomalies = [f"exception: {traceback.format_exc()}", *world.journal.findings]
    finally:
        if was_collecting:
            gc.enable()
    if trace_file is not None:
        assert world.trace.lines is not None
        with open(trace_file, "w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in world.trace.lines)
    if history_file is not None:
        with JsonLines(history_file) as sink:
            for event in world.journal.events:
                sink(event)
    return Result(
        seed,
        seconds,
        tuple(anomalies),
        world.trace.digest,
        world.trace.events,
        world.steps,
        world.calls,
        world.restarts,
        world.network.late_frames,
        {outcome.value: world.journal.transactions[outcome] for outcome in Outcome},
        {kind.value: world.hits[kind] for kind in Fault},
        {deed: world.topics.done[deed] for deed in DEEDS},
        world.scheduler.clock.monotonic_ms(),
        time.process_time() - begun,
    )


def replay_command(seed: int, seconds: int, kinds: frozenset[Fault]) -> str:
    """The command that repeats the run."""
    chosen = "" if kinds == ALL_FAULTS else " --faults " + ",".join(kind.value for kind in Fault if kind in kinds)
    return f"fencepost simulate --seed {seed} --seconds {seconds}{chosen}"
