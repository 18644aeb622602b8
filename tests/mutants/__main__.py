"""`make mutants`: hunts every mutant and prints the kill table. Ends with 1 if one lives."""

import argparse
import multiprocessing
import os
import sys

from tests.mutants.catalogue import MUTANTS
from tests.mutants.hunting import SEEDS_MAX, hunt_number


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="only these mutants")
    parser.add_argument("--seeds", type=int, default=SEEDS_MAX, help="seeds to try before its own check")
    given = parser.parse_args()
    chosen = [at for at, mutant in enumerate(MUTANTS) if not given.names or mutant.name in given.names]
    breaks = {mutant.name: mutant.breaks for mutant in MUTANTS}
    print("| mutant | what it breaks | killed by | seed | CPU seconds |\n|---|---|---|---|---|")
    living = []
    with multiprocessing.get_context("spawn").Pool(os.cpu_count()) as pool:
        for kill in pool.imap(hunt_number, [(at, given.seeds) for at in chosen]):
            by = kill.by if kill.is_dead else "**lives**"
            seed = "-" if kill.seed is None else kill.seed
            print(f"| {kill.mutant} | {breaks[kill.mutant]} | {by} | {seed} | {kill.cpu_seconds:.1f} |", flush=True)
            if not kill.is_dead:
                living.append(kill.mutant)
    print(f"\n{len(chosen) - len(living)} of {len(chosen)} mutants die{': ' if living else ''}{', '.join(living)}")
    return 1 if living else 0


if __name__ == "__main__":
    sys.exit(main())
