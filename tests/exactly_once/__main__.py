"""The loops at length, with a table: `python -m tests.exactly_once [--inputs N] [--client NAME ...] [--seed N]`.

Each client runs both loops. The four client libraries share the inputs; Kafka Streams gets as many as each of them.
"""

import argparse
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.exactly_once.loops import LOOPS
from tests.exactly_once.run import CLIENTS, Result, Run, Size

INPUTS = 100_000
LIBRARIES = 4
CLIENT_KILLS = 8
BROKER_KILLS = 5
HEADINGS = (
    "client", "loop", "inputs", "transactions", "aborts", "client kills", "broker kills",
    "seconds", "lost", "duplicated", "disordered", "torn",
)  # fmt: skip


def row(result: Result) -> tuple[str, ...]:
    final, watched = result.final, result.watched
    return (
        result.client,
        result.loop,
        f"{result.inputs:,}",
        f"{result.transactions:,}",
        f"{result.aborts:,}",
        str(result.client_kills),
        str(result.broker_kills),
        f"{result.seconds:.0f}",
        # The worse of both readers; what a reader saw that is gone at the end was torn out of it.
        str(max(final.lost, watched.lost)),
        str(max(final.duplicated, watched.duplicated)),
        str(max(final.disordered, watched.disordered)),
        str(max(final.torn, watched.torn) + result.taken_back + final.invented + watched.invented),
    )


def total(results: list[Result]) -> tuple[str, ...]:
    rows = [row(result) for result in results]
    sums = [sum(int(cell.replace(",", "")) for cell in column) for column in list(zip(*rows, strict=True))[2:]]
    return ("all", "", *(f"{number:,}" for number in sums))


def table(rows: list[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(HEADINGS, *rows, strict=True)]

    def line(cells: tuple[str, ...]) -> str:
        texts = [
            cell.ljust(width) if index < 2 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return "| " + " | ".join(texts) + " |"

    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([line(HEADINGS), rule, *map(line, rows)])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.exactly_once")
    parser.add_argument("--inputs", type=int, default=INPUTS, help="of the four client libraries together")
    parser.add_argument("--client", choices=list(CLIENTS), action="append", help="only this one; several times")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    size = Size(options.inputs // LIBRARIES // len(LOOPS), CLIENT_KILLS, BROKER_KILLS)
    results: list[Result] = []
    failures = 0
    for index, name in enumerate(options.client or CLIENTS):
        for loop in LOOPS.values():
            seed = options.seed + index
            with tempfile.TemporaryDirectory(prefix="exactly-once-") as directory:
                run = Run(CLIENTS[name], loop, size, Path(directory), seed)
                try:
                    result = run.run()
                except AssertionError as failure:
                    print(f"{name} {loop.source}: {failure}", file=sys.stderr, flush=True)
                    failures += 1
                    continue
            results.append(result)
            causes = {
                **Counter({f"aborted: {cause}": times for cause, times in result.aborted.items()}),
                **Counter({f"new producer: {cause}": times for cause, times in result.recreated.items()}),
            }
            print(f"{name} {loop.source}: {result.seconds:.0f} s {causes}", flush=True)
            if not result.is_clean:
                print(result, file=sys.stderr, flush=True)
                failures += 1
    if results:
        print(table([*map(row, results), total(results)]), flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
