"""`make chaos`: longer runs with random faults, one per seed, and a table of what happened. Status 1 on any anomaly."""

import argparse
import contextlib
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from fencepost.history.finding_text import explain
from tests.chaos.disk import small_file_system
from tests.chaos.run import Chaos

FAULTS = (
    "kill_broker",
    "kill_client",
    "pause_broker",
    "pause_client",
    "cut_connections",
    "lose_answers",
    "hold_end",
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--faults", type=int, default=25, help="in each run")
    parser.add_argument("--work", type=int, default=150, help="operations between two faults")
    parser.add_argument("--only", metavar="FAULT,...", help=f"some of {', '.join(FAULTS)}")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the broker")
    options = parser.parse_args()
    kinds = tuple(options.only.split(",")) if options.only else FAULTS
    settings = dict(each.split("=", 1) for each in options.set)
    print(f"{'SEED':>4} {'SECONDS':>7} {'OK':>7} {'COMMITTED':>9} {'ABORTED':>7} {'UNKNOWN':>7}  FAULTS", flush=True)
    total: Counter[str] = Counter()
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        total += run(seed, options.faults, options.work, kinds, settings)
    print("anomalies: " + (", ".join(f"{count} {name}" for name, count in sorted(total.items())) or "none"))
    return 1 if total else 0


def run(seed: int, faults: int, work: int, wanted: Sequence[str], settings: dict[str, str]) -> Counter[str]:
    dice = random.Random(seed)
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fencepost-chaos-")))
        broker_directory, kinds = None, list(wanted)
        if os.geteuid() == 0 and seed % 2 == 0 and wanted == FAULTS:
            try:
                broker_directory = stack.enter_context(small_file_system(directory / "small")) / "broker"
                kinds.append("fill_disk")
            except pytest.skip.Exception as reason:
                print(f"     no full disk: {reason}")
        plan = [dice.choice(kinds) for _ in range(faults)]
        chaos = Chaos(directory, seed, broker_directory, settings)
        report = chaos.run(plan, work)
    done = report.operations
    ok = sum(count for (_, outcome), count in done.items() if outcome == "ok")
    given = ", ".join(f"{count} {name}" for name, count in sorted(chaos.counts.items()))
    given += f"; {chaos.hung} hung clients started again" if chaos.hung else ""
    print(
        f"{seed:>4} {time.monotonic() - started:>7.0f} {ok:>7} {done['txn', 'ok']:>9} {done['txn', 'fail']:>7} "
        f"{done['txn', 'info']:>7}  {given}",
        flush=True,
    )
    for line in explain(report) if not report.is_clean else ():
        print(f"     {line}")
    return report.counts


if __name__ == "__main__":
    sys.exit(main())
