"""Fuzz every target for some time: `python -m tests.fuzz --seconds 60 [--target NAME] [--keep]`.

With `--keep` the repository's corpus becomes the smallest set of inputs, old and new, that reaches what they all reach.
An input that breaks something is left in `.fuzz/` and named; make it a test before it is mended.
"""

import argparse
import importlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.fuzz import corpus
from tests.fuzz.targets import TARGETS

WORK = Path(".fuzz")
PACKAGE = "/fencepost/"
LENGTH_MAX = 6_000
LIMITS = (f"-max_len={LENGTH_MAX}", "-timeout=20", "-rss_limit_mb=1500", "-print_final_stats=1")


def fuzz(target: str, seconds: int) -> bool:
    grown = WORK / target
    corpus.write(grown, importlib.import_module(f"tests.fuzz.{target}").first_inputs())
    command = [sys.executable, "-m", "tests.fuzz.run", target, *LIMITS, f"-max_total_time={seconds}"]
    command += [f"-artifact_prefix={WORK}/broken-{target}-", str(grown)]
    kept = corpus.ROOT / target
    if kept.exists():
        command.append(str(kept))
    return subprocess.run(command).returncode == 0


def keep(target: str) -> None:
    """Smallest first, whatever reaches a line of the broker that nothing before it reached."""
    run = importlib.import_module(f"tests.fuzz.{target}").run
    candidates = {path.read_bytes() for path in (*corpus.inputs(target), *(WORK / target).iterdir())}
    reached: set[tuple[str, int]] = set()
    kept = []
    for data in sorted((data for data in candidates if len(data) <= LENGTH_MAX), key=lambda data: (len(data), data)):
        lines = lines_reached(lambda data=data: run(data))
        if not lines <= reached:
            reached |= lines
            kept.append(data)
    shutil.rmtree(corpus.ROOT / target, ignore_errors=True)
    corpus.write(corpus.ROOT / target, kept)
    print(f"{target}: {len(kept)} of {len(candidates)} inputs reach {len(reached)} lines")


def lines_reached(call: Callable[[], None]) -> set[tuple[str, int]]:
    lines: set[tuple[str, int]] = set()

    def trace(frame: Any, event: str, argument: object) -> Any:
        if PACKAGE not in frame.f_code.co_filename:
            return None
        if event == "line":
            lines.add((frame.f_code.co_filename, frame.f_lineno))
        return trace

    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(None)
    return lines


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=int, default=60)
    options.add_argument("--target", choices=TARGETS, action="append")
    options.add_argument("--keep", action="store_true")
    chosen = options.parse_args()
    is_good = True
    for target in chosen.target or TARGETS:
        print(f"== {target}, {chosen.seconds} s", flush=True)
        is_good &= fuzz(target, chosen.seconds)
        if chosen.keep and is_good:
            keep(target)
    sys.exit(not is_good)


if __name__ == "__main__":
    main()
