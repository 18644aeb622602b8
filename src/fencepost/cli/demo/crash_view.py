"""The display of the second act: a live board on a terminal, lines in a pipe, nothing with --json; then the result."""

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fencepost.cli.output import print_table

# Imports inside functions: each command loads only what it needs, so that it starts quickly.

REFRESH_SECONDS = 0.2
ROWS = (
    ("purchases in", "purchases"),
    ("invoices", "invoices"),
    ("shipments", "shipments"),
    ("lost", "lost"),
    ("duplicated", "duplicated"),
    ("torn", "torn"),
    ("disagreeing", "disagreeing"),
    ("crashes survived", "crashes_survived"),
)


class CrashView:
    """Shows nothing; the base class of the other views."""

    def __init__(self, title: str, purchases: int) -> None:
        self.title = title
        self.purchases = purchases
        self.fed = 0

    def note_fed(self, purchases: int) -> None:
        """Records how many purchases were sent to the pipeline."""
        self.fed = purchases

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def event(self, text: str) -> None:
        """Something happened."""

    def show(self, batches: int, counts: Mapping[str, int]) -> None:
        """Called several times a second."""

    def keep_log(self, log: Path) -> None:
        """Called after a failure, before the temporary directory is removed."""
        if log.exists():
            print(log.read_text(errors="replace")[-4_000:], file=sys.stderr)


class PlainCrashView(CrashView):
    def __enter__(self) -> Self:
        print(f"\n{self.title}", flush=True)
        self._begun = time.monotonic()
        return self

    def event(self, text: str) -> None:
        print(f"{time.monotonic() - self._begun:6.1f} s  {text}", flush=True)


class LiveCrashView(CrashView):
    def __init__(self, title: str, purchases: int) -> None:
        from rich.live import Live

        super().__init__(title, purchases)
        self._live = Live(refresh_per_second=8)
        self._events: list[str] = []
        self._begun = time.monotonic()
        self._drawn_at = 0.0
        self._batches = 0
        self._counts: Mapping[str, int] = {}

    def __enter__(self) -> Self:
        self._begun = time.monotonic()
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._draw()
        self._live.__exit__(kind, error, trace)

    def event(self, text: str) -> None:
        self._events.append(f"{time.monotonic() - self._begun:6.1f} s  {text}")
        self._draw()

    def show(self, batches: int, counts: Mapping[str, int]) -> None:
        self._batches, self._counts = batches, counts
        if time.monotonic() - self._drawn_at > REFRESH_SECONDS:
            self._draw()

    def _draw(self) -> None:
        from rich.panel import Panel
        from rich.text import Text

        self._drawn_at = time.monotonic()
        seen = "   ".join(f"{topic} {count:,}" for topic, count in self._counts.items())
        head = f"purchases {self.fed:,}   {seen}   batches {self._batches:,}"
        self._live.update(Panel(Text("\n".join([head, "", *self._events])), title=self.title, title_align="left"))


def crash_view(title: str, purchases: int, *, as_json: bool) -> CrashView:
    if as_json:
        return CrashView(title, purchases)
    return LiveCrashView(title, purchases) if sys.stdout.isatty() else PlainCrashView(title, purchases)


def show_outcome(document: Mapping[str, Any]) -> None:
    print_table(("audit by confluent-kafka, read_committed", "count"), [(label, document[key]) for label, key in ROWS])
    print("every purchase exactly once" if document["exactly_once"] else "NOT exactly once")


def show_comparison(ours: Mapping[str, Any], sink: str, theirs: Mapping[str, Any]) -> None:
    print_table(("the same kills", "Fencepost", sink), [(label, ours[key], theirs[key]) for label, key in ROWS])
