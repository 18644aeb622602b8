"""`fencepost dump`: prints the files of a log, and audits the transactions in them."""

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fencepost.cli.output import CommandFailed, print_json, print_table, say
from fencepost.terminal_text import harmless, json_text

if TYPE_CHECKING:
    from fencepost.insight.transaction_audit import TransactionAudit

# Imports inside functions: each command loads only what it needs, so that it starts quickly.

FOUND = 3
"""Exit status: the command succeeded, but it found something that needs attention."""

EPILOG = """\
\b
Examples:
  fencepost dump data/purchases-0                            all files of a partition
  fencepost dump data/purchases-0/*.log --print-data-log     include the records
  fencepost dump data/__transaction_state-20 --print-data-log --json
  fencepost dump data --transaction billing                  follow one transactional id through all partitions
  fencepost dump data --transaction '*'                      all transactional ids

Output lines and field names are those of Kafka's dump tool. Reads the files of Fencepost and of Apache Kafka, and never
writes to them.
Exit status 3: the files are damaged or inconsistent.
"""


def dump(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", show_default=False, help="Files or directories.")],
    deep_iteration: Annotated[bool, typer.Option("--deep-iteration", help="Show every record.")] = False,
    print_data_log: Annotated[
        bool,
        typer.Option("--print-data-log", help="Include keys and payloads; records of internal topics are decoded."),
    ] = False,
    transaction: Annotated[
        str | None,
        typer.Option(
            metavar="WHO", help="Follow a transactional id, a producer id, or '*' for all, through all partitions."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
) -> None:
    """Show the contents of log files."""
    from fencepost.insight.data_files import NotInspectable

    try:
        status = _audit(paths, transaction, as_json) if transaction is not None else _dump(
            paths, deep_iteration, print_data_log, as_json
        )  # fmt: skip
    except NotInspectable as error:
        raise CommandFailed(str(error)) from None
    except OSError as error:
        if error.filename is None:
            raise  # it is the output that failed
        raise CommandFailed(f"cannot read {error.filename}: {error.strerror}") from None
    raise typer.Exit(status)


def _dump(paths: list[Path], deep_iteration: bool, print_data_log: bool, as_json: bool) -> int:
    from fencepost.insight.data_files import Contents, FileKind, Problem, files_at, heading, kind_of, lines, rows_of

    contents = Contents(deep_iteration or print_data_log, print_data_log)
    guarded = sys.stdout.isatty()
    problems: list[str] = []
    for file in [file for path in paths for file in files_at(path)]:
        if not as_json:
            for line in heading(file):
                say(line)
        count = 0
        for row in rows_of(file, contents):
            if isinstance(row, Problem):
                problems.append(f"{file}: {row.text}")
                if as_json:
                    print(json_text({"file": str(file), "problem": row.text}))
                continue
            count += 1
            if as_json:
                kind = kind_of(file)
                print(json_text({"file": str(file), "kind": kind.value if kind else None, **row}))
            else:
                for line in lines(row):
                    print(harmless(line) if guarded else line)
        if not as_json and not count and kind_of(file) is FileKind.OFFSET_INDEX:
            say(f"{file} is empty.")
    sys.stdout.flush()
    for problem in problems:
        say(problem, is_error=True)
    return FOUND if problems else 0


def _audit(paths: list[Path], who: str, as_json: bool) -> int:
    from fencepost.insight.transaction_audit import audit_transactions

    audit = audit_transactions(paths, who)
    if not audit.transactions and not audit.changes:
        raise CommandFailed(
            f"found no transaction of {who!r} in {', '.join(map(str, paths))}",
            "give a transactional id, a producer id, or '*'",
        )
    if as_json:
        print_json(audit.document())
    else:
        _print_audit(audit)
    return FOUND if audit.findings else 0


def _print_audit(audit: "TransactionAudit") -> None:
    print_table(
        ("time", "partition", "producer", "epoch", "first", "last", "records", "end"),
        [
            (
                time_text(each.first_timestamp_ms),
                str(each.partition),
                each.producer_id,
                each.producer_epoch,
                each.first_offset,
                each.last_offset,
                each.record_count,
                "open" if each.marker is None else f"{each.marker.kind} at {each.marker.offset}",
            )
            for each in audit.transactions
        ],
    )
    if audit.changes:
        say()
        print_table(
            ("time", "transactional id", "state", "producer", "epoch", "partitions"),
            [
                (
                    time_text(each.timestamp_ms),
                    each.transactional_id,
                    each.state or "expired",
                    each.producer_id if each.state else None,
                    each.producer_epoch if each.state else None,
                    ", ".join(map(str, each.partitions)) or None,
                )
                for each in audit.changes
            ],
        )
    say()
    if not audit.has_coordinator_log:
        say("the directory has no __transaction_state, so it is not known whether open transactions hang")
    for finding in audit.findings:
        name = finding.transactional_id or f"producer {finding.producer_id}"
        say(f"{finding.kind}: {name}: {finding.text}")
    if not audit.findings:
        say("no transaction is torn, hanging or ended twice")


def time_text(timestamp_ms: int) -> str | None:
    if timestamp_ms < 0:
        return None
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
