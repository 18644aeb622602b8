"""What `fencepost connect` shows: a table that is redrawn on a terminal, lines in a pipe, JSON lines for programs."""

import shutil
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any

from fencepost.cli.output import report, say
from fencepost.terminal_text import harmless, json_text

PROGRESS_SECONDS = 1.0
POSITION_WIDTH_MAX = 48


@dataclass
class _Row:
    """A task since the last time something was printed, and in all."""

    state: str = "starting"
    records: int = 0
    records_since: int = 0
    transactions_since: int = 0
    source_transactions_since: int = 0
    bytes_since: int = 0
    position: Any = None
    lag: int | None = None
    rate: float = 0.0
    milliseconds_max: int = 0
    printed_at: float = 0.0


class View:
    """Gathers commits, and prints a line per task and second at most. Called by the threads of the tasks."""

    def __init__(self) -> None:
        self._rows: dict[str, _Row] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._ticker = threading.Thread(target=self._tick, name="view", daemon=True)
        self._ticker.start()

    def starting(self, servers: str, tasks: list[str]) -> None:
        with self._lock:
            self._rows = {task: _Row() for task in tasks}
            self.print_event("starting", "", {"bootstrap_servers": servers, "tasks": tasks})

    def told(self, event: str, task: str, /, **facts: Any) -> None:
        with self._lock:
            row = self._rows.setdefault(task, _Row())
            if event == "committed":
                row.state = "running"
                row.records += facts["records"]
                row.records_since += facts["records"]
                row.bytes_since += facts["bytes"]
                row.transactions_since += 1
                row.source_transactions_since += facts["source_transactions"]
                row.milliseconds_max = max(row.milliseconds_max, facts["milliseconds"])
                row.position, row.lag = facts["position"], facts["lag"]
                if time.monotonic() - row.printed_at >= PROGRESS_SECONDS:
                    self._progress(task, row)
                return
            if row.transactions_since:
                self._progress(task, row)
            row.state = {"started": "running", "heartbeat": "idle", "reset": "stopped"}.get(event, event)
            row.position = facts.get("position", row.position)
            self.print_event(event, task, facts)

    def ended(self, reason: str) -> None:
        self._closed.set()
        self._ticker.join()
        with self._lock:
            self._print_waiting(PROGRESS_SECONDS * -1)
            records = sum(row.records for row in self._rows.values())
            self.print_event("ended", "", {"reason": reason, "records": records})

    def _tick(self) -> None:
        while not self._closed.wait(PROGRESS_SECONDS / 2):
            with self._lock:
                self._print_waiting(PROGRESS_SECONDS)
                self.redraw()

    def _print_waiting(self, seconds: float) -> None:
        for task, row in self._rows.items():
            if row.transactions_since and time.monotonic() - row.printed_at >= seconds:
                self._progress(task, row)
            elif time.monotonic() - row.printed_at > 3 * PROGRESS_SECONDS:
                row.rate = 0.0

    def _progress(self, task: str, row: _Row) -> None:
        now = time.monotonic()
        row.rate = row.records_since / max(now - row.printed_at, PROGRESS_SECONDS) if row.printed_at else 0.0
        facts = {
            "records": row.records_since,
            "bytes": row.bytes_since,
            "kafka_transactions": row.transactions_since,
            "source_transactions": row.source_transactions_since,
            "records_total": row.records,
            "milliseconds_max": row.milliseconds_max,
            "position": row.position,
            "lag": row.lag,
        }
        row.printed_at = now
        row.records_since = row.bytes_since = row.transactions_since = row.source_transactions_since = 0
        row.milliseconds_max = 0
        self.print_event("progress", task, facts)

    # What differs

    def redraw(self) -> None:
        """Only a terminal is drawn again."""

    def print_event(self, event: str, task: str, facts: dict[str, Any]) -> None:
        if event == "failed":
            report(facts["error"], facts["advice"])
            return
        say(line(event, task, facts))


def line(event: str, task: str, facts: dict[str, Any]) -> str:
    match event:
        case "starting":
            return f"to {facts['bootstrap_servers']}: {', '.join(facts['tasks'])}"
        case "started":
            epoch = f"producer {facts['producer_id']}, epoch {facts['producer_epoch']}"
            return f"{task}: from position {json_text(facts['position'])} as {facts['transactional_id']} ({epoch})"
        case "progress":
            lag = "" if facts["lag"] is None else f", lag {facts['lag']:,}"
            return (
                f"{task}: {facts['records']:,} records of {facts['source_transactions']:,} transactions "
                f"in {facts['kafka_transactions']} commits, position {json_text(facts['position'])}{lag}"
            )
        case "retrying":
            return f"{task}: {facts['reason']}; trying again in {facts['seconds']} s"
        case "waiting":
            return f"{task}: waiting, {facts['reason']}"
        case "reset":
            return f"{task}: {facts['did']}"
        case "ended":
            return f"{facts['reason']}: {facts['records']:,} records written"
        case _:
            return f"{task}: {event}" + (f", {json_text(facts)}" if facts else "")


class JsonView(View):
    def print_event(self, event: str, task: str, facts: dict[str, Any]) -> None:
        document = {"event": event, **({"task": task} if task else {}), **facts}
        print(json_text(document), flush=True)


class TerminalView(View):
    """A table of the tasks that is written over; what is not progress is printed above it."""

    def __init__(self) -> None:
        self._drawn_lines = 0
        super().__init__()

    def print_event(self, event: str, task: str, facts: dict[str, Any]) -> None:
        if event != "progress":
            self._erase()
            super().print_event(event, task, facts)
        self.redraw()

    def redraw(self) -> None:
        if not self._rows:
            return
        self._erase()
        rows = [("task", "state", "records", "per second", "lag", "position")]
        for task, row in self._rows.items():
            position = json_text(row.position)
            if len(position) > POSITION_WIDTH_MAX:
                position = position[: POSITION_WIDTH_MAX - 1] + "…"
            lag = "-" if row.lag is None else f"{row.lag:,}"
            rows.append((task, row.state, f"{row.records:,}", f"{row.rate:,.0f}", lag, position))
        columns = shutil.get_terminal_size().columns
        widths = [max(len(row[at]) for row in rows) for at in range(6)]
        for row_texts in rows:
            cells = [
                text.rjust(width) if at in (2, 3, 4) else text.ljust(width)
                for at, (text, width) in enumerate(zip(row_texts, widths, strict=True))
            ]
            # A line that wraps would not be erased.
            print(harmless("  ".join(cells).rstrip())[:columns])
        sys.stdout.flush()
        self._drawn_lines = len(rows)

    def _erase(self) -> None:
        if self._drawn_lines:
            sys.stdout.write(f"\033[{self._drawn_lines}A\033[J")
            self._drawn_lines = 0


def view(*, as_json: bool) -> View:
    if as_json:
        return JsonView()
    return TerminalView() if sys.stdout.isatty() else View()
