"""`python -m bench`: chooses the rows, runs them, prints the table and writes the JSON."""

import argparse
import os
import re
import signal
import sys
from pathlib import Path

import pytest
from rich.console import Console

from bench import (
    dashboard,
    lifecycle,
    load,
    machine,
    neighbours,
    report,
    requests,
    scale,
    spark,
    throughput,
    transaction_growth,
    transactions,
)
from bench.experiment import Context, Experiment
from bench.runner import Runner, say
from bench.subjects import Launcher

PAIRS_FULL, PAIRS_QUICK = 7, 2
TABLE_COLUMNS = 180
SLOW_PYTHON = (
    "this Python was built without --enable-optimizations (pyenv's default) and takes up to half as long again as "
    "those of distributions; for figures that count: rm -rf .venv; make bench PYTHON=/usr/bin/python3"
)


def all_experiments() -> list[Experiment]:
    rows = [*lifecycle.experiments(), *requests.experiments(), *throughput.experiments()]
    rows += [*transactions.experiments(), *scale.experiments(), *transaction_growth.experiments()]
    rows += neighbours.experiments()
    return rows + dashboard.experiments() + spark.experiments()


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Fencepost and Apache Kafka side by side.")
    parser.add_argument("--pairs", type=int, help=f"alternating pairs per row (default {PAIRS_FULL})")
    parser.add_argument("--rows", default="", metavar="REGEX", help="only rows whose name matches")
    parser.add_argument("--list", action="store_true", help="print the names of the rows and end")
    parser.add_argument("--quick", action="store_true", help="few pairs, short samples, fewer rows: three minutes")
    parser.add_argument("--markdown", action="store_true", help="print the table as docs/benchmarks.md has it")
    parser.add_argument("--json", type=Path, default=load.BENCH / "results.json", metavar="FILE")
    parser.add_argument(
        "--patience", type=float, default=10.0, metavar="SECONDS", help="how long a row waits for a quiet machine"
    )
    parser.add_argument("--work", type=Path, default=load.BENCH / ".work", help="directory for both brokers' data")
    parser.add_argument(
        "--self-check", action="store_true", help="Apache Kafka against itself: every ratio should be about 1"
    )
    parser.add_argument(
        "--spark-records", type=int, default=20_000_000, metavar="N", help="records of the Spark rows, topic to topic"
    )
    return parser.parse_args(arguments)


def main() -> int:
    options = parse()
    chosen = [row for row in all_experiments() if re.search(options.rows, row.name)]
    if options.quick and not options.rows:
        chosen = [row for row in chosen if row.in_quick]
    if options.list:
        print("\n".join(row.name for row in chosen))
        return 0
    pairs = options.pairs or (PAIRS_QUICK if options.quick else PAIRS_FULL)
    if load.native() is None:
        say("no C compiler: librdkafka is driven from Python, which is the bottleneck in many rows")
    if machine.has_slow_python():
        say(SLOW_PYTHON)
    # An installed package has its bytecode cached; with this set every start would compile the sources again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # A run that is told to end takes its brokers with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    launcher = Launcher(options.work.resolve(), options.self_check)
    context = Context(launcher, options.quick, spark_records=options.spark_records)
    runner = Runner(context, pairs, options.patience)
    outcome = runner.outcome
    try:
        runner.run(chosen)
    except (KeyboardInterrupt, SystemExit):
        outcome.is_complete = False
        say("cut short: the table holds the rows that were done")
    except pytest.skip.Exception as missing:
        say(f"cannot run: {missing}")
        return 2
    finally:
        context.java.close()
        context.java_transactions.close()
        launcher.close()
    if options.markdown:
        print(report.markdown(outcome))
    else:
        report.print_table(outcome, Console(width=TABLE_COLUMNS))
    words = ["python -m bench", f"--pairs {pairs}", "--quick" * options.quick, "--self-check" * options.self_check]
    words.append(f"--rows {options.rows!r}" if options.rows else "")
    report.write_json(outcome, " ".join(word for word in words if word), options.json)
    return 1 if outcome.failures or not outcome.is_complete else 0


if __name__ == "__main__":
    sys.exit(main())
