"""Output of the commands: tables and lines for people, JSON for programs, one line per error. Colour only on a
terminal.

Everything is printed through this module, so that a name chosen by somebody else cannot send control sequences to the
terminal.
"""

import os
import sys
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from fencepost.terminal_text import harmless, json_text

# Imports inside functions: each command loads only what it needs, so that it starts quickly.

T = TypeVar("T")

Cell = str | int | None
COLUMN_WIDTH_MAX = 120
"""Longer cells do not widen their column."""


class CommandFailed(Exception):
    """A command failed; `message` says why, `advice` what to do."""

    def __init__(self, message: str, advice: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice


def report(message: str, advice: str = "") -> None:
    line = f"error: {message}" + (f"; {advice}" if advice else "")
    line = harmless(" ".join(line.split()))
    if sys.stderr.isatty() and not os.environ.get("NO_COLOR"):
        line = line.replace("error:", "\033[1;31merror:\033[0m", 1)
    print(line, file=sys.stderr)


def say(text: str = "", *, is_error: bool = False) -> None:
    """Prints a line for people, on standard error if standard output carries data."""
    print(harmless(text), file=sys.stderr if is_error else sys.stdout, flush=True)


def run_async(work: Coroutine[Any, Any, T]) -> T:
    import asyncio

    return asyncio.run(work)


def print_json(document: Any) -> None:
    print(json_text(document, indent=2))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Cell]], *, title: str = "") -> None:
    """Prints aligned columns, on a terminal with rich, in a pipe as plain text of full width."""
    texts = [["-" if cell is None else harmless(str(cell)) for cell in row] for row in rows]
    title = harmless(title)
    numeric = [_is_numeric([row[at] for row in rows]) for at in range(len(columns))]
    if sys.stdout.isatty():
        _print_rich(columns, texts, numeric, title)
        return
    if title:
        print(title)
    widths = [min(max(map(len, cells)), COLUMN_WIDTH_MAX) for cells in zip(columns, *texts, strict=True)]
    for row in [[column.upper() for column in columns], *texts]:
        cells = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        )
        print("  ".join(cells).rstrip())


def _is_numeric(cells: Sequence[Cell]) -> bool:
    return any(isinstance(cell, int) for cell in cells) and not any(isinstance(cell, str) for cell in cells)


def _print_rich(columns: Sequence[str], texts: Sequence[Sequence[str]], numeric: Sequence[bool], title: str) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, title=title or None, title_justify="left", title_style="bold", pad_edge=False)
    for column, right in zip(columns, numeric, strict=True):
        table.add_column(column, justify="right" if right else "left", overflow="fold")
    for row in texts:
        table.add_row(*map(Text, row))
    Console().print(table)
