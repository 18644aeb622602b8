"""The output of `fencepost run`: one live line on a terminal, a line per batch in a pipe, JSON lines for programs."""

import sys
from typing import TYPE_CHECKING, Any

from fencepost.cli.output import print_table, say
from fencepost.terminal_text import harmless, json_text

if TYPE_CHECKING:
    from fencepost.cli.run_again import SoFar
    from fencepost.spark.adoption import Adoption
    from fencepost.spark.batch_states import BatchState
    from fencepost.spark.pipeline_progress import Progress
    from fencepost.spark.pipelines import Pipeline
    from fencepost.spark.transaction_timeouts import TransactionTimeout


CAUGHT_UP, INTERRUPTED, FAILED = "caught up", "interrupted", "failed"


class View:
    """Counts, and prints a line per batch."""

    def __init__(self) -> None:
        self.batches = 0
        self.rows_in = 0
        self.rows_out = 0
        self.skipped = 0

    def go_on(self, done: "SoFar") -> None:
        """Continue the counts of earlier programs."""
        self.batches, self.rows_in, self.rows_out, self.skipped = done[1:5]

    def starting(self, pipeline: "Pipeline", servers: str) -> None:
        sources, topics = ", ".join(pipeline.definition.read_from), ", ".join(pipeline.definition.topics)
        self._print(f"pipeline {pipeline.name}: {sources} -> {topics} on {servers}; starting Spark")

    def running(self, timeout: "TransactionTimeout") -> None:
        self._print(f"transaction timeout {timeout}")

    def adopting(self, adoption: "Adoption") -> None:
        """Shows what --adopt would do, before asking."""
        self._print(adoption.fact)
        if adoption.partitions:
            shown = [each.document() for each in adoption.partitions]
            rows = [["?" if value is None else value for value in each.values()] for each in shown]
            print_table(("topic", "partition", "group", "would begin at", "read again", "skipped"), rows)
        if adoption.is_known:
            self._print(
                f"with --adopt, {adoption.read_again} offsets would be read and written again, "
                f"{adoption.skipped} would be skipped"
            )
        else:
            self._print("with --adopt, rows may be written again or skipped; ? is not known before the start")

    def batch(self, progress: "Progress") -> None:
        self.batches += 1
        self.rows_in += progress.rows_in
        self.rows_out += progress.rows_out
        self.skipped += progress.transaction == "skipped"
        self._show(progress)

    def meanwhile(self, state: "BatchState") -> None:
        """Called between batches."""

    def stopping(self) -> None:
        self._print("stopping after the current batch; interrupt again to stop at once")

    def restarting(self, reason: str, failures: int, restarts_max: int, delay_seconds: float) -> None:
        self.close()
        say(
            f"{reason}; starting again in {delay_seconds:.0f} s (try {failures} of {restarts_max}). "
            "The interrupted batch is repeated, exactly once",
            is_error=True,
        )

    def close(self) -> None:
        """The query has ended."""

    def ended(self, reason: str, error: str = "", advice: str = "") -> None:
        """Called once, in every case. Errors are printed by `main`."""
        if reason != FAILED:
            self._print(f"{reason}: {self.batches} batches, {self.rows_in} rows in, {self.rows_out} rows out")

    def _show(self, progress: "Progress") -> None:
        self._print(line(self, progress))

    def _print(self, text: str) -> None:
        say(text)


class TerminalView(View):
    """One line that is overwritten."""

    def __init__(self) -> None:
        super().__init__()
        self._is_open = False
        self._text = ""
        self._state: tuple[int, str] = (-1, "")

    def _show(self, progress: "Progress") -> None:
        self._text = line(self, progress)
        self._state = (progress.batch, progress.transaction)
        self._write(self._text)

    def meanwhile(self, state: "BatchState") -> None:
        if (state.batch, state.transaction) != self._state:
            self._state = (state.batch, state.transaction)
            self._write(f"{self._text}  |  batch {state.batch}: transaction {state.transaction}")

    def _write(self, text: str) -> None:
        print(f"\r\033[K{harmless(text)}", end="", flush=True)
        self._is_open = True

    def _print(self, text: str) -> None:
        self.close()
        super()._print(text)

    def close(self) -> None:
        if self._is_open:
            print(flush=True)
            self._is_open = False


class JsonView(View):
    def starting(self, pipeline: "Pipeline", servers: str) -> None:
        definition = pipeline.definition
        self._emit(
            event="starting",
            pipeline=pipeline.name,
            bootstrap_servers=servers,
            sources=definition.read_from,
            topics=definition.topics,
        )

    def running(self, timeout: "TransactionTimeout") -> None:
        self._emit(event="running", transaction_timeout_ms=timeout.ms, transaction_timeout_rule=timeout.rule)

    def adopting(self, adoption: "Adoption") -> None:
        self._emit(
            event="adopting",
            reason=adoption.fact,
            read_again=adoption.read_again if adoption.is_known else None,
            skipped=adoption.skipped if adoption.is_known else None,
            partitions=[each.document() for each in adoption.partitions],
        )

    def stopping(self) -> None:
        self._emit(event="stopping")

    def restarting(self, reason: str, failures: int, restarts_max: int, delay_seconds: float) -> None:
        self._emit(
            event="restarting",
            reason=reason,
            failures=failures,
            restarts_max=restarts_max,
            delay_seconds=delay_seconds,
        )

    def ended(self, reason: str, error: str = "", advice: str = "") -> None:
        self._emit(
            event="ended",
            reason=reason,
            error=error or None,
            advice=advice or None,
            interrupted=reason == INTERRUPTED,
            batches=self.batches,
            rows_in=self.rows_in,
            rows_out=self.rows_out,
            skipped=self.skipped,
        )

    def _show(self, progress: "Progress") -> None:
        self._emit(event="batch", **progress.document())

    def _emit(self, **document: Any) -> None:
        print(json_text(document), flush=True)


def line(view: View, progress: "Progress") -> str:
    lag = "?" if progress.lag is None else f"{progress.lag:,}"
    return (
        f"batch {progress.batch}  in {progress.rows_in:,}  out {progress.rows_out:,}  lag {lag}  "
        f"{progress.batch_ms} ms  transaction {progress.transaction}  "
        f"(so far in {view.rows_in:,}, out {view.rows_out:,})"
    )


def view(*, as_json: bool) -> View:
    if as_json:
        return JsonView()
    return TerminalView() if sys.stdout.isatty() else View()
