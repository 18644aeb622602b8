"""The table a reader sees and the JSON a program reads. Neither names the machine or its paths."""

import datetime
import importlib.metadata
import json
import os
import platform
import re
import statistics
import subprocess
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from tests.peers.build import BUILD

from bench.load import native
from bench.machine import has_slow_python
from bench.runner import Outcome, Row

FOREIGN_CORES_NOTED = 0.15


def _number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _cpu(row: Row) -> str:
    if row.cpu_per_work is None:
        return ""
    ours, theirs = row.cpu_per_work
    if row.work_unit == "request":
        return f"{ours * 1e6:.0f} / {theirs * 1e6:.0f} us"
    return f"{ours * 1e3:.2f} / {theirs * 1e3:.2f} ms"


def _target(row: Row) -> str:
    if row.target is None:
        return ""
    sign = "<=" if row.metric.lower_is_better else ">="
    if row.metric.difference_target is not None:
        return f"{sign} + {row.target:g} {row.metric.unit}"
    unit = f" {row.metric.unit}" if row.metric.absolute_target is not None else ""
    return f"{sign} {row.target:g}{unit}" + (" (client)" if row.client_bound else "")


def print_table(outcome: Outcome, console: Console) -> None:
    """One table per pair of brokers: almost always one, and a small one for Fencepost alone."""
    for names in dict.fromkeys(row.names for row in outcome.rows):
        table = Table(title=f"{names[0]} and {names[1]}, median of the paired ratios", title_justify="left")
        for column in ("row", "unit"):
            table.add_column(column, overflow="fold")
        for column in (*names, "ratio", "min..max", "broker CPU", "CPU ratio", "target", ""):
            table.add_column(column, justify="right")
        for row in (row for row in outcome.rows if row.names == names):
            verdict = {None: "", True: "[green]met[/]", False: "[red]missed[/]"}[row.met]
            table.add_row(
                row.name,
                row.metric.unit,
                _number(statistics.median(row.ours)),
                _number(statistics.median(row.theirs)),
                f"[bold]{row.ratio:.2f}[/]",
                f"{min(row.ratios):.2f}..{max(row.ratios):.2f}",
                _cpu(row),
                "" if row.cpu_ratio is None else f"{row.cpu_ratio:.2f}",
                _target(row),
                verdict,
            )
        console.print(table)
    console.print("Ratio: left / right. Broker CPU: left / right, per MB of record values or per request.")
    console.print("(client): the client used more CPU than the broker on both sides, so it sets the pace.")
    busiest = max((row.other_broker_cores or 0.0 for row in outcome.rows), default=0.0)
    console.print(f"The broker that was not under load stayed up and used at most {busiest:.2f} of a core.")
    foreign = max((row.foreign_cores or 0.0 for row in outcome.rows), default=0.0)
    if foreign > FOREIGN_CORES_NOTED:
        console.print(
            f"[yellow]Other programs used up to {foreign:.2f} cores during a sample: do not trust the numbers.[/]"
        )
    for name, reason in outcome.failures.items():
        console.print(f"[red]not measured[/] {name}: {reason}")


def markdown(outcome: Outcome) -> str:
    """The rows as they are in docs/benchmarks.md."""
    lines = [
        "| row | | Fencepost | Apache Kafka | ratio | pairs | broker CPU ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in outcome.rows:
        cells = (
            row.experiment,
            f"{row.metric.key}, {row.metric.unit}",
            _number(statistics.median(row.ours)),
            _number(statistics.median(row.theirs)),
            f"**{row.ratio:.2f}**",
            f"{min(row.ratios):.2f}..{max(row.ratios):.2f}",
            "" if row.cpu_ratio is None else f"{row.cpu_ratio:.2f}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    lines += [f"\nNot measured: {name}: {reason}" for name, reason in outcome.failures.items()]
    return "\n".join(lines)


def _first(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    return found[1] if found else "unknown"


def environment() -> dict[str, Any]:
    java = subprocess.run(["java", "-version"], capture_output=True, text=True).stderr
    jars = " ".join(path.name for path in (BUILD / "lib").glob("kafka-clients-*.jar"))
    versions = {name: importlib.metadata.version(name) for name in ("fencepost", "uvloop", "confluent-kafka")}
    processor = _first(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    memory = int(_first(r"MemTotal:\s*(\d+)", Path("/proc/meminfo").read_text()))
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "versions": {
            **versions,
            "apache-kafka": _first(r"kafka-clients-([0-9.]+)\.jar", jars),
            "java": _first(r'version "([^"]+)"', java),
            "python": platform.python_version() + " without optimisations" * has_slow_python(),
            "kernel": platform.release(),
        },
        "machine": {"cores": os.cpu_count(), "processor": processor, "memory_gb": round(memory / 1e6, 1)},
        "load_program": "C" if native() else "Python (no C compiler)",
    }


def write_json(outcome: Outcome, command_line: str, path: Path) -> None:
    rows = [
        {
            "row": row.experiment,
            "metric": row.metric.key,
            "unit": row.metric.unit,
            "brokers": row.names,
            "ratio": row.ratio,
            "ratios": row.ratios,
            "samples": {"ours": row.ours, "theirs": row.theirs},
            "cpu_seconds_per": row.work_unit,
            "cpu_seconds": row.cpu_per_work,
            "cpu_ratio": row.cpu_ratio,
            "broker_cores": row.broker_cores,
            "client_cores": row.client_cores,
            "client_bound": row.client_bound,
            "other_broker_cores": row.other_broker_cores,
            "foreign_cores": row.foreign_cores,
            "target": row.target,
            "lower_is_better": row.metric.lower_is_better,
            "met": row.met,
        }
        for row in outcome.rows
    ]
    document = {
        "command": command_line,
        **environment(),
        "rows": rows,
        "not_measured": outcome.failures,
        "complete": outcome.is_complete,
    }
    path.write_text(json.dumps(document, indent=1) + "\n")
