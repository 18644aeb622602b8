"""`fencepost simulate`: whole worlds of broker, clients and faults in virtual time, each from its seed."""

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from fencepost.cli.options import Json
from fencepost.cli.output import CommandFailed, print_json, print_table

if TYPE_CHECKING:
    from fencepost.simulation.campaign import Summary
    from fencepost.simulation.run import Result

# Imports inside functions: a command loads only what it needs, so that each starts quickly.

EPILOG = """\
\b
Examples:
  fencepost simulate --seed 7                            one world of 60 simulated seconds
  fencepost simulate --seed 0 --seeds 500                five hundred, on all cores
  fencepost simulate --seed 7 --faults power-torn,twin   only these faults
  fencepost simulate --seed 7 --trace 7.txt              with every event in a file
  fencepost simulate --seed 7 --history 7.jsonl          and then: fencepost check-history 7.jsonl
"""
ANOMALY_LINES_MAX = 5


def simulate(
    seed: Annotated[int, typer.Option(min=0, help="Decides everything that happens.")] = 0,
    seconds: Annotated[int, typer.Option(min=1, help="Simulated seconds in which clients work and things fail.")] = 60,
    faults: Annotated[
        str, typer.Option(metavar="KIND[,...]", help="Only these kinds of faults; `none` for none, `help` lists them.")
    ] = "",
    seeds: Annotated[int, typer.Option(min=1, metavar="COUNT", help="So many seeds, from --seed on.")] = 1,
    processes: Annotated[int, typer.Option(min=0, help="Processes to use; 0 for one per core.")] = 0,
    trace: Annotated[str | None, typer.Option(metavar="FILE", help="Write every event of the seed there.")] = None,
    history: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write the clients' history there, for check-history.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run the broker, its clients and their misfortunes in virtual time, and judge what they saw."""
    from fencepost.simulation.campaign import run_seeds
    from fencepost.simulation.faults import Fault, parse_kinds
    from fencepost.simulation.run import ALL_FAULTS, run_seed

    if faults == "help":
        print("\n".join(kind.value for kind in Fault))
        return
    names = [] if faults == "none" else [name for name in faults.split(",") if name]
    try:
        kinds = parse_kinds(names) if faults else ALL_FAULTS
    except ValueError as error:
        raise typer.BadParameter(f"{error}; `--faults help` lists them", param_hint="--faults") from None
    if trace is not None or history is not None:
        run_seed(seed, seconds, kinds, trace, history)
    summary = run_seeds(
        range(seed, seed + seeds), seconds, kinds, processes or os.cpu_count() or 1, _silent if as_json else _tell
    )
    if as_json:
        print_json(summary.as_json())
    else:
        _show(summary)
    if summary.failures:
        raise CommandFailed(
            f"{len(summary.failures)} of {summary.seeds} seeds failed", summary.replay(summary.failures[0])
        )


def _silent(result: "Result", summary: "Summary") -> None:
    return None


def _tell(result: "Result", summary: "Summary") -> None:
    if result.anomalies:
        print(f"seed {result.seed} failed; again: {summary.replay(result)}")
        for anomaly in result.anomalies[:ANOMALY_LINES_MAX]:
            print(f"  {anomaly}")
    if summary.seeds % 10 == 0:
        print(
            f"{summary.seeds} seeds, {summary.calls} calls, {len(summary.failures)} failed, "
            f"{summary.wall_seconds:.0f} s",
            file=sys.stderr,
        )


def _show(summary: "Summary") -> None:
    figures = summary.as_json()
    transactions = figures["transactions"]
    print_table(
        ("what", "how many"),
        [
            ("seeds", figures["seeds"]),
            ("simulated hours", figures["simulated_hours"]),
            ("client calls", figures["calls"]),
            ("restarts of the broker", figures["restarts"]),
            ("requests that arrived after their client gave up", figures["late_requests"]),
            ("transactions committed", transactions["committed"]),
            ("transactions aborted", transactions["aborted"]),
            ("transactions whose client never learnt their end", transactions["unknown"]),
            ("anomalies", figures["anomalies"]),
            ("CPU seconds", figures["cpu_seconds"]),
        ],
    )
    print_table(("fault", "hits"), list(figures["hits"].items()))
    print_table(("administration", "times"), list(figures["administration"].items()))
    if summary.seeds == 1 and not summary.failures:
        print("no anomalies")
