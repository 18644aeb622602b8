"""`python -m bench.profile ROW`: Fencepost alone under one row's load, watched by py-spy.

Prints the functions by own time and writes a flame graph. py-spy is not a dependency: it is looked for
on the path, or given with --py-spy.
"""

import argparse
import collections
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench import load
from bench.__main__ import all_experiments
from bench.experiment import Context
from bench.subjects import PAIRS, Launcher

FUNCTIONS_SHOWN = 40


def show(folded: str) -> None:
    """Own and inclusive time by function, from py-spy's folded stacks."""
    own: collections.Counter[str] = collections.Counter()
    inclusive: collections.Counter[str] = collections.Counter()
    total = 0
    for line in folded.splitlines():
        stack, _, count = line.rpartition(" ")
        frames = stack.split(";")
        total += int(count)
        own[frames[-1]] += int(count)
        for frame in set(frames):
            inclusive[frame] += int(count)
    for name, counter in (("own", own), ("inclusive", inclusive)):
        print(f"\n{name} time, % of {total} samples")
        for frame, samples in counter.most_common(FUNCTIONS_SHOWN):
            print(f"{100 * samples / total:6.1f}  {frame}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.profile", description=__doc__)
    parser.add_argument("row", help="a regular expression; the first row whose name matches")
    parser.add_argument("--py-spy", default=shutil.which("py-spy"), help="the py-spy command")
    parser.add_argument("--seconds", type=int, default=6)
    parser.add_argument("--native", action="store_true", help="look into C extensions too")
    options = parser.parse_args()
    if options.py_spy is None:
        parser.error("py-spy is not on the path (pip install py-spy)")
    rows = [row for row in all_experiments() if row.pair is not None and re.search(options.row, row.name)]
    if not rows:
        parser.error("no such row (see python -m bench --list)")
    row = rows[0]
    launcher = Launcher(load.BENCH / ".work")
    context = Context(launcher, quick=True)
    subject, _ = PAIRS[row.pair or ""](launcher)
    try:
        subject.process.start()
        row.warm_up(context, [subject])
        row.prepare(context, [subject])
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder) / "folded"
            words = [options.py_spy, "record", "-p", str(subject.pid), "-d", str(options.seconds), "-r", "500"]
            words += ["-f", "raw", "-o", str(output), *(["--native"] if options.native else [])]
            watcher = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(0.5)
            while watcher.poll() is None:
                sample = row.sample(context, subject)
                print({name: round(value, 1) for name, value in sample.values.items()}, file=sys.stderr)
            show(output.read_text())
    finally:
        subject.discard()
        context.java.close()
        launcher.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
