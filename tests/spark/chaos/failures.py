"""Tasks of a pipeline's own function that fail: by chance, and once by plan. Each leaves a file, so they are counted.

Imported by the driver and by whoever counts; executors get the function by value and import nothing of this.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

DIRECTORY, SEED = "CHAOS_FAILURES", "CHAOS_SEED"
CHANCE_OF_A_ROW = 0.005
PLANTED = "purchase-000050"
"""The first task that meets this one fails."""


def failures_environment(directory: Path, seed: int) -> dict[str, str]:
    place = directory / "failures"
    place.mkdir(parents=True, exist_ok=True)
    return {DIRECTORY: str(place), SEED: str(seed)}


def planted_failures(directory: Path) -> Counter[str]:
    return Counter(each.name.partition("-")[0] for each in (directory / "failures").iterdir())


def sometimes_failing(environment: Mapping[str, str] = os.environ) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """For `mapInArrow` over purchases. The dice of a task are seeded by what Spark calls it, so that another try may
    succeed."""
    place, seed, chance, planted = environment[DIRECTORY], environment[SEED], CHANCE_OF_A_ROW, PLANTED

    def fail_sometimes(batches: Iterator[Any]) -> Iterator[Any]:
        import os
        import random

        from pyspark import TaskContext

        context = TaskContext.get()
        task = f"{context.stageId()}-{context.partitionId()}-{context.taskAttemptId()}"
        dice = random.Random(f"{seed} {os.getpid()} {task}")

        def fail(kind: str, mode: str) -> None:
            with open(f"{place}/{kind}", mode):
                pass
            raise RuntimeError(f"a task that fails: {kind}")

        for batch in batches:
            if planted in batch.column("purchase_id").to_pylist() and not os.path.exists(f"{place}/planted"):
                fail("planted", "x")
            if dice.random() < 1 - (1 - chance) ** batch.num_rows:
                fail(f"chance-{os.getpid()}-{task}", "w")
            yield batch

    return fail_sometimes
