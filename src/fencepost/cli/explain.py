"""`fencepost explain`: one screen that says what holds a partition or a transactional id, and what to do."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fencepost.cli.connection import BootstrapOrProfile, CommandConfig, Profile, open_view
from fencepost.cli.dump import FOUND
from fencepost.cli.options import Json
from fencepost.cli.output import CommandFailed, print_json, run_async, say

if TYPE_CHECKING:
    from fencepost.insight.cluster_view import ClusterView
    from fencepost.insight.explain_text import Explained
    from fencepost.topic_partition import TopicPartition

EPILOG = """\
\b
Examples:
  fencepost explain purchases                 what holds the readers of a topic
  fencepost explain purchases:0
  fencepost explain billing --history         the life of a transactional id as a timeline
  fencepost explain --producer-id 4711
  fencepost explain billing --data ./copied-data-directory

Works on Fencepost and on Apache Kafka; what only Fencepost records is marked so. Exit status 0: healthy, 3: stuck.
"""

STUCK_AFTER_SECONDS = 10.0


def explain(
    what: Annotated[
        str | None, typer.Argument(metavar="[TOPIC[:PARTITION] | TRANSACTIONAL-ID]", show_default=False)
    ] = None,
    producer_id: Annotated[int | None, typer.Option(min=0, metavar="N", help="Explain this producer.")] = None,
    history: Annotated[bool, typer.Option("--history", help="The life of the id as a timeline.")] = False,
    is_id: Annotated[
        bool, typer.Option("--id", help="It is a transactional id, even if a topic is called the same.")
    ] = False,
    stuck_after: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="A transaction may hold readers for so long.")
    ] = STUCK_AFTER_SECONDS,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Read a copied data directory instead of asking a broker.")
    ] = None,
    bootstrap_server: BootstrapOrProfile = None,
    command_config: CommandConfig = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Say what holds a partition or a transactional id, why, and what to do."""
    if (what is None) == (producer_id is None):
        raise typer.BadParameter("give a TOPIC[:PARTITION], a TRANSACTIONAL-ID, or --producer-id")
    from fencepost.insight.explain_online import NothingKnown
    from fencepost.insight.file_kinds import NotInspectable

    async def online() -> "Explained":
        async with open_view(bootstrap_server, command_config, profile) as view:
            return await _online(view, what, producer_id, history, is_id, round(stuck_after * 1000))

    try:
        if data is not None:
            found = _offline(data, what, producer_id, history, is_id, round(stuck_after * 1000))
        else:
            found = run_async(online())
    except (NothingKnown, NotInspectable) as error:
        raise CommandFailed(str(error)) from None
    except OSError as error:
        raise CommandFailed(f"cannot read {error.filename}: {error.strerror}") from None
    if as_json:
        print_json(found.document())
    else:
        for line in found.lines():
            say(line)
    raise typer.Exit(FOUND if found.is_stuck else 0)


async def _online(
    view: "ClusterView", what: str | None, producer_id: int | None, history: bool, is_id: bool, stuck_after_ms: int
) -> "Explained":
    from fencepost.insight.causes import causes_of
    from fencepost.insight.explain_online import (
        NothingKnown,
        explain_id,
        explain_partitions,
        id_of_producer,
        partitions_open_for,
    )
    from fencepost.insight.explain_text import ExplainedId, ExplainedPartitions

    wanted: list[TopicPartition] | None = None
    if producer_id is not None:
        what = await id_of_producer(view, producer_id)
        if what is None:
            wanted = await partitions_open_for(view, producer_id)
            if not wanted:
                raise NothingKnown(
                    f"no coordinator knows the producer id {producer_id}, and no partition has a transaction of it open"
                )
    elif what is not None and not is_id:
        topics = {topic.name: sorted(topic.partitions) for topic in await view.list_topics()}
        wanted = _named_partitions(what, topics)
    now_ms = round(time.time() * 1000)
    if wanted is not None:
        facts = await explain_partitions(view, wanted)
        ids = {
            part.holders[0].coordinator.transactional_id
            for part in facts
            if part.holders and part.holders[0].coordinator
        }
        causes = {each: await causes_of(view, each) for each in sorted(ids)}
        return ExplainedPartitions(facts, causes, now_ms, stuck_after_ms, view.command_line)
    assert what is not None
    described = await view.describe_transaction_if_known(what)
    if described is None:
        raise NothingKnown(f"{what!r} is neither a topic nor a transactional id of this cluster")
    return ExplainedId(await explain_id(view, what, with_history=history), now_ms, stuck_after_ms, view.command_line)


def _offline(
    data: Path, what: str | None, producer_id: int | None, history: bool, is_id: bool, stuck_after_ms: int
) -> "Explained":
    from fencepost.insight.command_line import CommandLine
    from fencepost.insight.explain_offline import DataDirectory
    from fencepost.insight.explain_online import NothingKnown
    from fencepost.insight.explain_text import ExplainedId, ExplainedPartitions

    directory = DataDirectory(data)
    anywhere = CommandLine()  # a directory does not say where its cluster is
    now_ms = directory.as_of_ms
    if producer_id is not None:
        what, is_id = directory.id_of_producer(producer_id), True
        if what is None:
            raise NothingKnown(f"{data} has no transactional id with the producer id {producer_id}")
    assert what is not None
    topic, _, _ = what.partition(":")
    wanted = None
    if not is_id:
        wanted = _named_partitions(what, {topic: [at.partition for at in directory.partitions_of(topic)]})
    if wanted:
        facts = [directory.explain_partition(at) for at in wanted]
        ids = {
            part.holders[0].coordinator.transactional_id
            for part in facts
            if part.holders and part.holders[0].coordinator
        }
        causes = {each: directory.causes_of(each) for each in ids}
        return ExplainedPartitions(facts, causes, now_ms, stuck_after_ms, anywhere)
    return ExplainedId(directory.explain_id(what, with_history=history), now_ms, stuck_after_ms, anywhere)


def _named_partitions(what: str, topics: dict[str, list[int]]) -> "list[TopicPartition] | None":
    """The partitions that TOPIC or TOPIC:PARTITION names; None if no topic is called so."""
    from fencepost.client.errors import UnknownPartition
    from fencepost.topic_partition import TopicPartition

    if topics.get(what):
        return [TopicPartition(what, partition) for partition in topics[what]]
    topic, _, number = what.rpartition(":")
    if not topics.get(topic) or not number.isascii() or not number.isdigit():
        return None
    if int(number) not in topics[topic]:
        raise UnknownPartition(topic, int(number), len(topics[topic]))
    return [TopicPartition(topic, int(number))]
