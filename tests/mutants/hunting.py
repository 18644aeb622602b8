"""Kill a mutant: by the first seed that goes wrong, and does not with the good broker, else by its own check."""

import functools
import time
from typing import NamedTuple

from fencepost.simulation.seed_run import run_seed
from tests.mutants.patching import Mutant, broken

SEEDS_MAX = 10
SECONDS = 30


class Kill(NamedTuple):
    mutant: str
    seed: int | None
    """None: killed by its check, or not at all."""
    by: str
    cpu_seconds: float
    is_dead: bool


def hunt(mutant: Mutant, seeds: range, seconds: int = SECONDS) -> Kill:
    begun = time.process_time()
    for seed in seeds:
        with broken(mutant):
            anomalies = run_seed(seed, seconds).anomalies
        if anomalies and is_survived(seed, seconds):
            return Kill(mutant.name, seed, _reason(anomalies[0]), time.process_time() - begun, True)
    if mutant.check is not None:
        try:
            with broken(mutant):
                mutant.check()
        except Exception as error:
            by = f"{mutant.check.__name__} ({type(error).__name__})"
            return Kill(mutant.name, None, by, time.process_time() - begun, True)
    return Kill(mutant.name, None, "", time.process_time() - begun, False)


@functools.cache
def is_survived(seed: int, seconds: int) -> bool:
    """Whether the good broker lives through a seed. One that it does not proves nothing of a mutant."""
    return not run_seed(seed, seconds).anomalies


def hunt_number(job: tuple[int, int]) -> Kill:
    """The mutant of that number with so many seeds; by number, since a patch cannot be sent to another process."""
    from tests.mutants.catalogue import MUTANTS

    number, seeds = job
    return hunt(MUTANTS[number], range(seeds))


def _reason(anomaly: str) -> str:
    """Its class; of an invariant also which, of an exception what was thrown."""
    kind, _, rest = anomaly.partition(": ")
    if kind == "invariant":
        return f"invariant: {rest.partition(':')[0]}"
    if kind == "exception":
        return f"exception: {anomaly.strip().splitlines()[-1][:70]}"
    return kind
