"""`fencepost txn`: list, describe, find-hanging, abort."""

import time
from typing import TYPE_CHECKING, Annotated

import typer

from fencepost.cli.connection import BootstrapOrProfile, CommandConfig, Profile, open_view
from fencepost.cli.dump import FOUND, time_text
from fencepost.cli.options import Json
from fencepost.cli.output import CommandFailed, print_json, print_table, run_async, say

if TYPE_CHECKING:
    from fencepost.client.errors import ClientError
    from fencepost.client.kafka_types import TransactionDescription, TransactionListing
    from fencepost.insight.abort_plan import AbortEffect
    from fencepost.insight.cluster_view import ClusterView, OpenTransaction
    from fencepost.insight.hanging import HangingTransaction
    from fencepost.topic_partition import TopicPartition

# Imports inside functions: each command loads only what it needs, so that it starts quickly.

_EPILOG = """\
\b
Examples:
  fencepost txn list --state Ongoing
  fencepost txn describe billing
  fencepost txn find-hanging                        in the whole cluster, oldest first; exit status 3 if there is one
  fencepost txn abort billing                       show what an abort would do
  fencepost txn abort billing --execute             abort it; the producer of that id is fenced
  fencepost txn abort --topic purchases --partition 0 --start-offset 42 --execute    abort a hanging one
"""

app = typer.Typer(help="Show transactions and abort them.", epilog=_EPILOG, no_args_is_help=True)

TransactionalId = Annotated[str, typer.Argument(metavar="TRANSACTIONAL-ID", show_default=False)]


@app.command("list")
def list_transactions(
    state: Annotated[list[str], typer.Option(metavar="STATE", help="Only ids in this state. Can be repeated.")] = [],  # noqa: B006
    producer_id: Annotated[
        list[int], typer.Option(metavar="N", help="Only ids of this producer. Can be repeated.")
    ] = [],  # noqa: B006
    match: Annotated[
        str | None, typer.Option(metavar="REGEX", help="Only ids that match this regular expression as a whole.")
    ] = None,
    bootstrap_server: BootstrapOrProfile = None,
    command_config: CommandConfig = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """List transactional ids and their states."""

    async def work() -> "list[TransactionListing]":
        async with open_view(bootstrap_server, command_config, profile) as view:
            return await view.list_transactions(
                states=state, producer_ids=producer_id, transactional_id_pattern=match
            )  # fmt: skip

    found = run_async(work())
    if as_json:
        rows = [
            {
                "transactional_id": each.transactional_id,
                "producer_id": each.producer_id,
                "state": each.state,
                "coordinator": each.coordinator_id,
            }
            for each in found
        ]
        print_json({"transactions": rows})
        return
    print_table(
        ("transactional id", "producer", "state", "coordinator"),
        [(each.transactional_id, each.producer_id, each.state, each.coordinator_id) for each in found],
    )


@app.command()
def describe(
    transactional_id: TransactionalId,
    bootstrap_server: BootstrapOrProfile = None,
    command_config: CommandConfig = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Show the state of a transactional id and its open transaction in each partition."""

    async def work() -> "tuple[TransactionDescription, list[OpenTransaction]]":
        async with open_view(bootstrap_server, command_config, profile) as view:
            description = await view.describe_transaction(transactional_id)
            opened, _ = await view.open_transactions(description.partitions)
            return description, [each for each in opened if each.producer.producer_id == description.producer_id]

    description, opened = run_async(work())
    now_ms = round(time.time() * 1000)
    starts = {each.partition: each.start_offset for each in opened}
    age_ms = now_ms - description.start_ms if description.start_ms >= 0 else None
    if as_json:
        print_json(
            {
                "transactional_id": transactional_id,
                "state": description.state,
                "producer_id": description.producer_id,
                "producer_epoch": description.producer_epoch,
                "timeout_ms": description.timeout_ms,
                "start_ms": description.start_ms,
                "age_ms": age_ms,
                "coordinator": description.coordinator_id,
                "partitions": [
                    {"topic": at.topic, "partition": at.partition, "start_offset": starts.get(at)}
                    for at in description.partitions
                ],
            }
        )
        return
    say(
        f"{transactional_id}  {description.state}, producer {description.producer_id} epoch"
        f" {description.producer_epoch}, timeout {seconds(description.timeout_ms)},"
        f" coordinator {description.coordinator_id}"
    )
    if age_ms is not None:
        say(f"began {time_text(description.start_ms)}, {seconds(age_ms)} ago")
    print_table(
        ("topic", "partition", "open from"),
        [(at.topic, at.partition, starts.get(at)) for at in description.partitions],
    )


@app.command("find-hanging")
def find_hanging(
    topic: Annotated[list[str], typer.Option(metavar="TOPIC", help="Only this topic. Can be repeated.")] = [],  # noqa: B006
    older_than: Annotated[
        int, typer.Option(min=0, metavar="SECONDS", help="Only transactions that began at least this long ago.")
    ] = 0,
    bootstrap_server: BootstrapOrProfile = None,
    command_config: CommandConfig = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Find open transactions that no coordinator will end, in every partition of the cluster."""

    view = open_view(bootstrap_server, command_config, profile)

    async def work() -> "tuple[list[HangingTransaction], dict[TopicPartition, ClientError]]":
        from fencepost.insight.hanging import find_hanging

        async with view:
            return await find_hanging(view, topic)

    found, refused = run_async(work())
    now_ms = round(time.time() * 1000)
    found = [each for each in found if now_ms - (each.start_ms or 0) >= older_than * 1000]
    if as_json:
        print_json(
            {
                "hanging": [each.document(now_ms) for each in found],
                "not_seen": [{"partition": str(at), "reason": str(why)} for at, why in refused.items()],
            }
        )
    else:
        print_table(
            ("began", "partition", "start offset", "producer", "epoch", "transactional id", "why"),
            [
                (
                    time_text(-1 if each.start_ms is None else each.start_ms),
                    str(each.partition),
                    each.start_offset,
                    each.producer_id,
                    each.producer_epoch,
                    each.transactional_id,
                    each.reason,
                )
                for each in found
            ],
        )
        for partition, why in refused.items():
            say(f"could not check {partition}: {why}")
        for each in found[:1]:
            at = each.partition
            place = ("--topic", at.topic, "--partition", str(at.partition), "--start-offset", str(each.start_offset))
            say(f"to abort the oldest: {view.command_line('txn', 'abort', *place)}")
    raise typer.Exit(FOUND if found else 0)


@app.command()
def abort(
    transactional_id: Annotated[str | None, typer.Argument(metavar="[TRANSACTIONAL-ID]", show_default=False)] = None,
    topic: Annotated[str | None, typer.Option(metavar="TOPIC", help="Topic of a hanging transaction.")] = None,
    partition: Annotated[int | None, typer.Option(min=0, metavar="N", help="Its partition.")] = None,
    start_offset: Annotated[
        int | None, typer.Option(min=0, metavar="OFFSET", help="First offset of the hanging transaction.")
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Abort the transaction; without this option only show what would happen.")
    ] = False,
    bootstrap_server: BootstrapOrProfile = None,
    command_config: CommandConfig = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Abort the transaction of a transactional id through its coordinator, or a hanging one in its partition."""
    place = (topic, partition, start_offset)
    if (transactional_id is None) == (topic is None) or (topic is not None and None in place):
        raise typer.BadParameter("give a TRANSACTIONAL-ID, or --topic, --partition and --start-offset")

    async def work() -> "list[AbortEffect]":
        from fencepost.topic_partition import TopicPartition

        async with open_view(bootstrap_server, command_config, profile) as view:
            if transactional_id is not None:
                return await _abort_id(view, transactional_id, execute)
            assert topic is not None and partition is not None and start_offset is not None  # noqa: PT018
            return await _abort_hanging(view, TopicPartition(topic, partition), start_offset, execute)

    effects = run_async(work())
    if as_json:
        print_json({"executed": execute, "partitions": [each.document() for each in effects]})
        return
    _print_effects(effects, execute)
    if not execute:
        say("nothing was changed; add --execute to apply the change", is_error=True)


async def _abort_id(view: "ClusterView", transactional_id: str, execute: bool) -> "list[AbortEffect]":
    from fencepost.insight.abort_plan import plan_abort
    from fencepost.insight.aborting import NothingToAbort, force_abort, open_parts

    try:
        description, opened = await open_parts(view, transactional_id)
    except NothingToAbort as error:
        raise CommandFailed(str(error)) from None
    effects = await plan_abort(view, opened)
    if execute:
        await force_abort(view, description)
    return effects


async def _abort_hanging(
    view: "ClusterView", partition: "TopicPartition", start_offset: int, execute: bool
) -> "list[AbortEffect]":
    from fencepost.insight.abort_plan import plan_abort
    from fencepost.insight.aborting import NothingToAbort, abort_hanging, hanging_at

    try:
        opened = await hanging_at(view, partition, start_offset)
    except NothingToAbort as error:
        raise CommandFailed(str(error)) from None
    effects = await plan_abort(view, [opened])
    if execute:
        await abort_hanging(view, opened)
    return effects


def _print_effects(effects: "list[AbortEffect]", executed: bool) -> None:
    print_table(
        ("partition", "producer", "from", "records vanish", "records become visible", "readers go to"),
        [
            (
                str(each.partition),
                each.producer_id,
                each.start_offset,
                each.vanishing_records,
                each.visible_records,
                f"{each.last_stable_offset} -> {each.next_last_stable_offset}"
                + (f", held by producer {each.held_by}" if each.held_by is not None else ""),
            )
            for each in effects
        ],
    )
    for each in effects:
        for pending in each.vanishing_offsets:
            say(f"the pending offset {pending.offset} of group {pending.group_id} for {pending.partition} is discarded")
    if executed:
        say("aborted")


def seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:.1f} s" if milliseconds < 600_000 else f"{milliseconds // 60_000} min"
