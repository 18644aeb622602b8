"""`fencepost simulate`: runs a broker, clients and faults in virtual time, decided by a seed."""

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from fencepost.cli.options import Json
from fencepost.cli.output import CommandFailed, print_json, print_table

if TYPE_CHECKING:
    from fencepost.simulation.campaign import Summary
    from fencepost.simulation.seed_run import Result

# Imports inside functions: each command loads only what it needs, so that it starts quickly.

EPILOG = """\
\b
Examples:
  fencepost simulate --seed 7                            one run of 60 simulated seconds
  fencepost simulate --seed 0 --seeds 500                500 seeds, on all cores
  fencepost simulate --seed 7 --faults power-torn,twin   only these faults
  fencepost simulate --seed 7 --trace 7.txt              write every event to a file
  fencepost simulate --seed 7 --history 7.jsonl          and then: fencepost check-history 7.jsonl
"""
ANOMALY_LINES_MAX = 5


def simulate(
    seed: Annotated[int, typer.Option(min=0, help="Seed that decides everything that happens.")] = 0,
    seconds: Annotated[int, typer.Option(min=1, help="Simulated seconds with clients and faults.")] = 60,
    faults: Annotated[
        str, typer.Option(metavar="KIND[,...]", help="Kinds of faults to inject; `none` for none, `help` to list them.")
    ] = "",
    seeds: Annotated[
        int, typer.Option(min=1, metavar="COUNT", help="Number of seeds to run, beginning with --seed.")
    ] = 1,
    processes: Annotated[int, typer.Option(min=0, help="Number of processes; 0 for one per core.")] = 0,
    trace: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write every event of the seed to this file.")
    ] = None,
    history: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write the history of the clients to this file, for check-history."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run the broker with clients and faults in virtual time, and check what the clients saw."""
    from fencepost.simulation.campaign import run_seeds
    from fencepost.simulation.faults import Fault, parse_kinds
    from fencepost.simulation.seed_run import ALL_FAULTS, run_seed

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
        print(f"seed {result.seed} failed; repeat it with: {summary.replay(result)}")
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
            ("transactions whose outcome their client does not know", transactions["unknown"]),
            ("anomalies", figures["anomalies"]),
            ("CPU seconds", figures["cpu_seconds"]),
        ],
    )
    print_table(("fault", "hits"), list(figures["hits"].items()))
    print_table(("administration", "times"), list(figures["administration"].items()))
    if summary.seeds == 1 and not summary.failures:
        print("no anomalies")
