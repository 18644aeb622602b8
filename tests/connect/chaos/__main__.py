"""The long run: both brokers under every fault, then the mutants, which must be caught; prints two tables.

python -m tests.connect.chaos [--faults 50] [--seed N] [--only NAME]
"""

import argparse
import random
import sys
import time

from tests.connect.chaos.run import FAULTS, Result, Run
from tests.connect.chaos.worker import MUTANTS, NONE
from tests.peers.broker_process import BrokerProcess
from tests.peers.fencepost_process import FencepostProcess
from tests.peers.kafka import ApacheKafka
from tests.peers.postgres import Postgres

BROKERS: dict[str, type[BrokerProcess]] = {"fencepost": FencepostProcess, "apache": ApacheKafka}
MUTANT_FAULTS = ("takeover", "die before commit", "kill", "die before commit", "takeover", "die before commit")


def plan(source: random.Random, count: int) -> list[str]:
    faults = [FAULTS[at % len(FAULTS)] for at in range(count)]
    source.shuffle(faults)
    return faults


def one(
    broker: type[BrokerProcess], seed: int, faults: list[str], seconds_between: float, mutant: str = NONE
) -> Result:
    with broker() as running, Postgres() as database:
        return Run(running, database, seed, mutant).run(faults, seconds_between)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--faults", type=int, default=49, help="on each broker")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--between", type=float, default=1.5, metavar="SECONDS")
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    source = random.Random(given.seed)
    is_good = True
    print(f"seed {given.seed}")
    for name, broker in BROKERS.items():
        if given.only not in name:
            continue
        result = one(broker, given.seed, plan(source, given.faults), given.between)
        is_good = is_good and result.is_clean
        told = ", ".join(f"{count} {fault}" for fault, count in sorted(result.faults.items()))
        print(f"{name}: {result.seconds:.0f} s; {told}; {result.zombies_fenced} zombies fenced; {result.refused}")
        print(f"  {result.verdict}", flush=True)
    for mutant in MUTANTS:
        if mutant == NONE or given.only not in f"mutant {mutant}":
            continue
        result = one(FencepostProcess, given.seed, list(MUTANT_FAULTS), 1.0, mutant)
        is_good = is_good and not result.is_clean
        how = result.refused or (str(result.verdict) if not result.is_clean else "NOT CAUGHT")
        print(f"mutant {mutant}: {how}", flush=True)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
