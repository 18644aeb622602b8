"""The long run: every example on both brokers and both protocols under random kills; prints a table.

python -m tests.spark.chaos [--kills 10] [--seed N] [--only shop/fencepost/TV2] [--histories DIR]
"""

import argparse
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.peers.broker_process import BrokerProcess
from tests.peers.fencepost_process import FencepostProcess
from tests.peers.kafka import ApacheKafka
from tests.spark.chaos.examples import FLAKY_SHOP, SHOP, TRANSFERS, Example
from tests.spark.chaos.run import HEADS, VICTIMS, Result, chaos

CELLS: list[tuple[str, Example, type[BrokerProcess], str]] = [
    ("shop/fencepost/TV2", SHOP, FencepostProcess, "TV2"),
    ("transfers/apache/TV1", TRANSFERS, ApacheKafka, "TV1"),
    ("flaky-shop/apache/TV2", FLAKY_SHOP, ApacheKafka, "TV2"),
    ("transfers/fencepost/TV1", TRANSFERS, FencepostProcess, "TV1"),
]


def plan(source: random.Random, count: int) -> list[str]:
    """Every kind of kill, in any order, then more of them."""
    kills = [*VICTIMS, *source.choices(VICTIMS, k=max(0, count - len(VICTIMS)))][:count]
    source.shuffle(kills)
    return kills


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10, help="of each cell, sleeping drivers included")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31))
    parser.add_argument("--only", default="", help="the cells whose names contain this")
    parser.add_argument("--histories", type=Path, metavar="DIR", help="keep the histories, for fencepost check-history")
    given = parser.parse_args()
    source = random.Random(given.seed)
    results: list[Result] = []
    for name, example, kind, protocol in CELLS:
        kills = plan(source, given.kills)
        if given.only not in name:
            continue
        print(f"{name}, seed {given.seed}: {', '.join(kills)}", flush=True)
        with tempfile.TemporaryDirectory(prefix="chaos-") as directory, kind() as broker:
            results.append(chaos(example, broker, protocol, Path(directory), given.seed, kills))
            print(results[-1].verdict, flush=True)
            if given.histories is not None:
                given.histories.mkdir(parents=True, exist_ok=True)
                shutil.copy(results[-1].history, given.histories / f"{name.replace('/', '-')}.jsonl")
    print("| " + " | ".join(HEADS) + " |")
    print("|" + "---|" * len(HEADS))
    for result in results:
        print("| " + " | ".join(map(str, result.row())) + " |")
    print(f"{sum(result.kill_count for result in results)} kills, seed {given.seed}")
    return 0 if results and all(result.verdict.is_clean for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
