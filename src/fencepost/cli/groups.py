"""`fencepost groups`: list, describe, reset-offsets, delete."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fencepost.cli.connection import BootstrapOrProfile, CommandConfig, Profile, open_admin
from fencepost.cli.options import (
    Json,
    parse_datetime,
    parse_topic_partitions,
)
from fencepost.cli.output import CommandFailed, print_json, print_table, run_async, say

if TYPE_CHECKING:
    from fencepost.client.admin import AsyncAdmin
    from fencepost.client.kafka_types import GroupDescription, GroupListing
    from fencepost.topic_partition import TopicPartition

# Imports inside functions: each command loads only what it needs, so that it starts quickly.

_EPILOG = """\
\b
Examples:
  fencepost groups describe billing
  fencepost groups reset-offsets billing --topic purchases --to-earliest            show what would change
  fencepost groups reset-offsets billing --topic purchases --to-earliest --execute  change it
  fencepost groups reset-offsets billing --topic purchases:0,2 --shift-by -100 --execute
"""

app = typer.Typer(help="Show consumer groups and reset their offsets.", epilog=_EPILOG, no_args_is_help=True)

INACTIVE_STATES = ("Empty", "Dead")


@app.command("list")
def list_groups(
    state: Annotated[list[str], typer.Option(metavar="STATE", help="Only groups in this state. Can be repeated.")] = [],  # noqa: B006
    bootstrap_server: BootstrapOrProfile = None,
    command_config: CommandConfig = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """List the groups."""

    async def work() -> "list[GroupListing]":
        async with open_admin(bootstrap_server, command_config, profile) as admin:
            return await admin.list_groups(states=state)

    groups = run_async(work())
    if as_json:
        print_json(
            {
                "groups": [
                    {
                        "group": group.group_id,
                        "state": group.state,
                        "type": group.type,
                        "protocol_type": group.protocol_type,
                    }
                    for group in groups
                ]
            }
        )
        return
    print_table(("group", "state", "type"), [(group.group_id, group.state, group.type) for group in groups])


@app.command()
def describe(
    group: Annotated[str, typer.Argument(metavar="GROUP", show_default=False)],
    bootstrap_server: BootstrapOrProfile = None,
    command_config: CommandConfig = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Show the members, offsets and lag of a group."""

    async def work() -> "tuple[GroupDescription, list[dict[str, Any]]]":
        async with open_admin(bootstrap_server, command_config, profile) as admin:
            description = await admin.describe_group(group)
            return description, await _positions(admin, description)

    description, positions = run_async(work())
    if as_json:
        print_json(_document(description, positions))
        return
    facts = [description.state, description.type]
    if description.assignor:
        facts.append(f"assignor {description.assignor}")
    say(f"{group}  {', '.join(facts)}, coordinator {description.coordinator.node_id} at {description.coordinator}")
    print_table(
        ("topic", "partition", "committed", "end", "lag", "member"),
        [
            (at["topic"], at["partition"], at["committed_offset"], at["end_offset"], at["lag"], at["member_id"])
            for at in positions
        ],
    )
    if description.members:
        print_table(
            ("member", "client", "host", "partitions"),
            [
                (member.member_id, member.client_id, member.client_host, len(member.assignment))
                for member in description.members
            ],
        )


@app.command("reset-offsets")
def reset_offsets(
    group: Annotated[str, typer.Argument(metavar="GROUP", show_default=False)],
    topic: Annotated[
        list[str], typer.Option(metavar="TOPIC[:0,1]", help="A topic, or some of its partitions. Can be repeated.")
    ] = [],  # noqa: B006
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="All topics for which the group has committed offsets.")
    ] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="Reset to the first record.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="Reset to the end of the log.")] = False,
    to_offset: Annotated[int | None, typer.Option(min=0, metavar="OFFSET", help="Reset to this offset.")] = None,
    to_datetime: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Reset to the first record at or after this time, e.g. 2026-03-01T12:00:00Z."
        ),
    ] = None,
    shift_by: Annotated[
        int | None, typer.Option(metavar="N", help="Move by N records: forward, or back if N is negative.")
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Apply the change; without this option it is only shown.")
    ] = False,
    bootstrap_server: BootstrapOrProfile = None,
    command_config: CommandConfig = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Reset the offsets of an inactive group. Shows the new offsets; changes nothing without --execute."""
    from fencepost.cli.offset_reset import Target, plan_reset
    from fencepost.client.kafka_types import CommittedOffset, Reset

    targets = [
        *([Target(timestamp_ms=int(Reset.EARLIEST))] if to_earliest else []),
        *([Target(timestamp_ms=int(Reset.LATEST))] if to_latest else []),
        *([Target(offset=to_offset)] if to_offset is not None else []),
        *([Target(timestamp_ms=parse_datetime(to_datetime, "--to-datetime"))] if to_datetime is not None else []),
        *([Target(shift=shift_by)] if shift_by is not None else []),
    ]
    if len(targets) != 1:
        raise typer.BadParameter(
            "give one of --to-earliest, --to-latest, --to-offset, --to-datetime, --shift-by", param_hint="--to-earliest"
        )
    if bool(topic) == all_topics:
        raise typer.BadParameter("give --topic or --all-topics", param_hint="--topic")
    wanted = [parse_topic_partitions(text) for text in topic]

    async def work() -> "tuple[dict[TopicPartition, int | None], dict[TopicPartition, int]]":
        async with open_admin(bootstrap_server, command_config, profile) as admin:
            await _check_inactive(admin, group)
            committed = await admin.committed_offsets(group)
            partitions = await _chosen(admin, wanted) if topic else list(committed)
            if not partitions:
                raise CommandFailed(f"group {group!r} has committed no offsets", "name topics with --topic")
            before = {at: committed[at].offset if at in committed else None for at in partitions}
            after = await plan_reset(admin, targets[0], before)
            if execute:
                await admin.commit_offsets(group, {at: CommittedOffset(offset) for at, offset in after.items()})
            return before, after

    before, after = run_async(work())
    rows = [(at.topic, at.partition, before[at], after[at]) for at in sorted(after)]
    if as_json:
        print_json(
            {
                "group": group,
                "executed": execute,
                "offsets": [
                    {"topic": name, "partition": partition, "old_offset": old, "new_offset": new}
                    for name, partition, old, new in rows
                ],
            }
        )
        return
    print_table(("topic", "partition", "old offset", "new offset"), rows)
    if not execute:
        say("nothing was changed; add --execute to apply the change", is_error=True)


@app.command()
def delete(
    groups: Annotated[list[str], typer.Argument(metavar="GROUP", help="One or more.", show_default=False)],
    bootstrap_server: BootstrapOrProfile = None,
    command_config: CommandConfig = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Delete empty groups and their offsets."""

    async def work() -> None:
        async with open_admin(bootstrap_server, command_config, profile) as admin:
            for group in groups:
                await admin.delete_group(group)

    run_async(work())
    if as_json:
        print_json({"deleted": groups})
        return
    for group in groups:
        say(f"deleted group {group}")


async def _check_inactive(admin: "AsyncAdmin", group: str) -> None:
    """Raises CommandFailed if the group has members. One that does not exist yet is accepted, as by Kafka's tool."""
    from fencepost.client.errors import BrokerError, GroupIsActive
    from fencepost.wire.errors import ErrorCode

    try:
        description = await admin.describe_group(group)
    except BrokerError as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return
    if description.state not in INACTIVE_STATES:
        raise GroupIsActive(group, description.state)


async def _chosen(admin: "AsyncAdmin", wanted: list[tuple[str, list[int] | None]]) -> "list[TopicPartition]":
    from fencepost.client.errors import UnknownPartition
    from fencepost.topic_partition import TopicPartition

    chosen = []
    for name, listed in wanted:
        found = await admin.describe_topic(name)
        for partition in listed if listed is not None else found.partitions:
            if partition not in found.partitions:
                raise UnknownPartition(name, partition, len(found.partitions))
            chosen.append(TopicPartition(name, partition))
    return chosen


async def _positions(admin: "AsyncAdmin", description: "GroupDescription") -> list[dict[str, Any]]:
    """Every partition that is committed or assigned, with the committed offset and the end of the log."""
    from fencepost.client.kafka_types import Reset

    committed = await admin.committed_offsets(description.group_id)
    owners = {at: member.member_id for member in description.members for at in member.assignment}
    there = {topic.name: topic for topic in await admin.list_topics()}
    partitions = sorted({*committed, *owners})
    living = [at for at in partitions if at.topic in there and at.partition in there[at.topic].partitions]
    ends = await admin.list_offsets(dict.fromkeys(living, int(Reset.LATEST))) if living else {}
    fresh = [at for at in living if at not in committed]
    # Where nothing is committed, the worst case counts: consumers begin at the start of the log.
    starts = await admin.list_offsets(dict.fromkeys(fresh, int(Reset.EARLIEST))) if fresh else {}
    positions = []
    for at in partitions:
        offset = committed[at].offset if at in committed else None
        end = ends[at].offset if at in ends else None
        start = starts[at].offset if at in starts else offset
        positions.append(
            {
                "topic": at.topic,
                "partition": at.partition,
                "committed_offset": offset,
                "end_offset": end,
                "lag": max(end - start, 0) if end is not None and start is not None else None,
                "member_id": owners.get(at),
            }
        )
    return positions


def _document(description: "GroupDescription", positions: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "group": description.group_id,
        "state": description.state,
        "type": description.type,
        "protocol_type": description.protocol_type,
        "assignor": description.assignor,
        "coordinator": {
            "id": description.coordinator.node_id,
            "host": description.coordinator.host,
            "port": description.coordinator.port,
        },
        "members": [
            {
                "member_id": member.member_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "group_instance_id": member.group_instance_id,
                "assignment": [{"topic": at.topic, "partition": at.partition} for at in member.assignment],
            }
            for member in description.members
        ],
        "offsets": positions,
    }
