"""The long run: every example on both brokers and both protocols under random kills, and restarts under faults of
checkpoints, groups and drivers, on both brokers and across them; prints two tables.

python -m tests.spark.chaos [--kills 10] [--restarts 26] [--without-spark 32] [--seed N] [--only NAME] [--histories DIR]
"""

import argparse
import contextlib
import random
import shutil
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.peers.broker_process import BrokerProcess
from tests.peers.fencepost_process import FencepostProcess
from tests.peers.kafka import ApacheKafka
from tests.spark.chaos.examples import FLAKY_SHOP, SHOP, TRANSFERS, Example
from tests.spark.chaos.micro_batches import RestartsWithoutSpark
from tests.spark.chaos.restarts import HEADS as RESTARTS_HEADS
from tests.spark.chaos.restarts import IDLE_FAULTS, RestartsResult, RestartsRun, mount_settings
from tests.spark.chaos.restarts import plan as plan_restarts
from tests.spark.chaos.run import HEADS, VICTIMS, Result, chaos
from tests.spark.sessions import spark_session

CELLS: list[tuple[str, Example, type[BrokerProcess], str]] = [
    ("shop/fencepost/TV2", SHOP, FencepostProcess, "TV2"),
    ("transfers/apache/TV1", TRANSFERS, ApacheKafka, "TV1"),
    ("flaky-shop/apache/TV2", FLAKY_SHOP, ApacheKafka, "TV2"),
    ("transfers/fencepost/TV1", TRANSFERS, FencepostProcess, "TV1"),
]
RESTARTS = [
    # Source and target, and the source's format: Spark's own connector is met, too.
    ("restarts/fencepost", "fencepost", "fencepost", "fencepost"),
    ("restarts/apache, Spark's source", "apache", "apache", "kafka"),
    ("restarts/fencepost to apache, Spark's source", "fencepost", "apache", "kafka"),
    ("restarts/apache to fencepost", "apache", "fencepost", "fencepost"),
]
OTHERS = [
    ("restarts/fencepost", "fencepost", "fencepost"),
    ("restarts/apache", "apache", "apache"),
    ("restarts/fencepost to apache", "fencepost", "apache"),
    ("restarts/apache to fencepost", "apache", "fencepost"),
]
FORGETFUL = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "1000"}


def plan(source: random.Random, count: int) -> list[str]:
    """Every kind of kill, in any order, then more of them."""
    kills = [*VICTIMS, *source.choices(VICTIMS, k=max(0, count - len(VICTIMS)))][:count]
    source.shuffle(kills)
    return kills


def restarts(source: random.Random, counts: tuple[int, int], seed: int, only: str) -> list[RestartsResult]:
    """All in one session of Spark, and as many more as wanted without it. `counts`: of faults in each cell."""
    results: list[RestartsResult] = []
    with_spark, without = counts
    cells = [(*cell, plan_restarts(source, with_spark)) for cell in RESTARTS if with_spark]
    cells += [
        (f"without Spark: {cell[0]}", *cell[1:3], "", plan_restarts(source, without)) for cell in OTHERS if without
    ]
    for kind in ("fencepost", "apache"):
        cells += [(f"idle/{kind}", kind, kind, "fencepost", list(IDLE_FAULTS))] if with_spark else []
        cells += [(f"without Spark: idle/{kind}", kind, kind, "", list(IDLE_FAULTS))] if without else []
    cells = [cell for cell in cells if only in cell[0]]
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="chaos-")))
        settings = {"spark.ui.showConsoleProgress": "false", **mount_settings(directory)}
        is_spark_wanted = any(source_format for _, _, _, source_format, _ in cells)
        spark = stack.enter_context(spark_session(with_connector=True, **settings)) if is_spark_wanted else None
        kinds = {"fencepost": FencepostProcess, "apache": ApacheKafka}
        for broker_settings in ({}, FORGETFUL):
            wanted = [cell for cell in cells if ("idle/" in cell[0]) is bool(broker_settings)]
            with contextlib.ExitStack() as running:
                names = sorted({name for cell in wanted for name in cell[1:3]})
                brokers = {name: running.enter_context(kinds[name](broker_settings)) for name in names}
                for name, read, written, source_format, faults in wanted:
                    print(f"{name}, seed {seed}: {', '.join(faults)}", flush=True)
                    kind = RestartsRun if source_format else RestartsWithoutSpark
                    made = kind(name, spark, brokers[read], brokers[written], directory, seed, source_format)
                    results.append(made.result)
                    try:
                        made.run(faults)
                    except AssertionError as error:
                        print(f"{name} failed: {error}", flush=True)
                        made.result.wrong_words.append(str(error))
    return results


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    print("| " + " | ".join(heads) + " |")
    print("|" + "---|" * len(heads))
    for row in rows:
        print("| " + " | ".join(map(str, row)) + " |")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10, help="of each cell, sleeping drivers included")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31))
    parser.add_argument("--only", default="", help="the cells whose names contain this")
    parser.add_argument("--histories", type=Path, metavar="DIR", help="keep the histories, for fencepost check-history")
    parser.add_argument("--restarts", type=int, default=26, help="faults of each cell of restarts")
    parser.add_argument("--without-spark", type=int, default=32, help="and of each that plays Spark's part")
    given = parser.parse_args()
    source = random.Random(given.seed)
    results: list[Result] = []
    for name, example, kind, protocol in CELLS:
        kills = plan(source, given.kills)
        if given.only not in name or not kills:
            continue
        print(f"{name}, seed {given.seed}: {', '.join(kills)}", flush=True)
        with tempfile.TemporaryDirectory(prefix="chaos-") as directory, kind() as broker:
            results.append(chaos(example, broker, protocol, Path(directory), given.seed, kills))
            print(results[-1].verdict, flush=True)
            if given.histories is not None:
                given.histories.mkdir(parents=True, exist_ok=True)
                shutil.copy(results[-1].history, given.histories / f"{name.replace('/', '-')}.jsonl")
    restarted = restarts(source, (given.restarts, given.without_spark), given.seed, given.only)
    if results:
        table(HEADS, [result.row() for result in results])
    if restarted:
        table(RESTARTS_HEADS, [result.row() for result in restarted])
    faults = sum(result.kills.total() for result in results) + sum(each.faults.total() for each in restarted)
    print(f"{faults} faults, {sum(result.kill_count for result in results)} of them kills, seed {given.seed}")
    is_clean = all(result.verdict.is_clean for result in results) and all(each.is_clean for each in restarted)
    return 0 if faults and is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
