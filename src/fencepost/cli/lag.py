"""`fencepost lag`: how many records a group still has to read."""

from typing import TYPE_CHECKING, Annotated

import typer

from fencepost.cli.connection import BootstrapOrProfile, CommandConfig, Profile, open_view
from fencepost.cli.dump import FOUND
from fencepost.cli.options import Json
from fencepost.cli.output import CommandFailed, print_json, print_table, run_async, say

if TYPE_CHECKING:
    from fencepost.insight.lag import PartitionLag

# Imports inside functions: each command loads only what it needs, so that it starts quickly.

EPILOG = """\
\b
Examples:
  fencepost lag billing                     lag of every partition, in records
  fencepost lag billing --exact --json      count exactly, however large the lag is
  fencepost lag billing --isolation-level read_uncommitted

Control records, aborted records and compacted offsets do not count as lag. `3..5` means that three records will be read
in any case, and two more if open transactions commit; `<=900000` means that there is too much to count without --exact.
Where nothing is committed, lag is counted from the start of the log, as with auto.offset.reset=earliest.
Exit status 3: offsets were deleted unread, or nothing is committed where there are records.
"""

ISOLATION_LEVELS = ("read_uncommitted", "read_committed")


def lag(
    group: Annotated[str, typer.Argument(metavar="GROUP", show_default=False)],
    topic: Annotated[list[str], typer.Option(metavar="TOPIC", help="Only this topic. Can be repeated.")] = [],  # noqa: B006
    exact: Annotated[bool, typer.Option("--exact", help="Count every record, however many there are.")] = False,
    isolation_level: Annotated[
        str, typer.Option(metavar="LEVEL", help="Isolation level of the group: read_committed or read_uncommitted.")
    ] = "read_committed",
    bootstrap_server: BootstrapOrProfile = None,
    command_config: CommandConfig = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Show how many records a group still has to read."""
    from fencepost.client.kafka_types import IsolationLevel

    if isolation_level not in ISOLATION_LEVELS:
        raise typer.BadParameter(
            f"{isolation_level!r} is not one of {', '.join(ISOLATION_LEVELS)}", param_hint="--isolation-level"
        )
    level = IsolationLevel(ISOLATION_LEVELS.index(isolation_level))

    async def work() -> "list[PartitionLag]":
        from fencepost.insight.lag import group_lag

        async with open_view(bootstrap_server, command_config, profile) as view:
            return await group_lag(view, group, topics=topic, isolation_level=level, is_exact=exact)

    found = run_async(work())
    if not found:
        raise CommandFailed(f"group {group!r} has committed no offset" + (" there" if topic else ""))
    total_min, total_max = sum(each.lag_min for each in found), sum(each.lag_max for each in found)
    status = FOUND if any(each.needs_attention for each in found) else 0
    if as_json:
        print_json(
            {
                "group": group,
                "isolation_level": isolation_level,
                "lag_min": total_min,
                "lag_max": total_max,
                "partitions": [each.document() for each in found],
            }
        )
        raise typer.Exit(status)
    print_table(
        ("topic", "partition", "committed", "stable", "end", "lag", "note"),
        [
            (
                each.partition.topic,
                each.partition.partition,
                each.committed_offset,
                each.offsets.last_stable_offset,
                each.offsets.high_watermark,
                lag_text(each),
                _note(each),
            )
            for each in found
        ],
    )
    say(f"{group} has {_span(total_min, total_max)} records to read")
    raise typer.Exit(status)


def lag_text(each: "PartitionLag") -> str:
    if each.count is None:
        return f"<={each.lag_max}"
    return _span(each.lag_min, each.lag_max)


def _span(low: int, high: int) -> str:
    return str(low) if low == high else f"{low}..{high}"


def _note(each: "PartitionLag") -> str:
    notes = []
    if each.committed_offset is None:
        notes.append(f"nothing committed: counted from {each.start_offset}, as auto.offset.reset=earliest reads")
    if each.count is not None and each.count.readable < each.count.certain:
        notes.append(f"{each.count.certain - each.count.readable} wait for an open transaction")
    for pending in each.pending:
        notes.append(f"pending offset {pending.offset} of producer {pending.producer_id}")
    if each.is_unstable and not each.pending:
        notes.append("an offset is pending in a transaction; the cluster hides its value")
    if each.lost_offsets:
        notes.append(f"{each.lost_offsets} offsets were deleted unread")
    return "; ".join(notes)
