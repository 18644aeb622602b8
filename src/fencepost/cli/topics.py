"""`fencepost topics`: create, list, describe, alter, delete, add-partitions."""

import base64
import functools
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fencepost.cli.connection import BootstrapOrProfile, CommandConfig, Profile, open_admin
from fencepost.cli.options import INT16_MAX, INT32_MAX, Json, SetConfig, UnsetConfig, parse_assignments
from fencepost.cli.output import print_json, print_table, run_async, say

if TYPE_CHECKING:
    from fencepost.client.admin import AsyncAdmin
    from fencepost.client.kafka_types import TopicMetadata

# Imports inside functions: each command loads only what it needs, so that it starts quickly.

_EPILOG = """\
\b
Examples:
  fencepost topics create purchases --partitions 3 --config retention.ms=86400000
  fencepost topics describe purchases
  fencepost topics alter purchases --set cleanup.policy=compact --unset retention.ms
  fencepost topics add-partitions purchases --partitions 6
"""

app = typer.Typer(help="Create, show and change topics.", epilog=_EPILOG, no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)]
Names = Annotated[list[str], typer.Argument(metavar="TOPIC", help="One or more.", show_default=False)]


@app.command()
def create(
    names: Names,
    partitions: Annotated[
        int | None,
        typer.Option(
            min=1, max=INT32_MAX, metavar="N", help="Number of partitions. Default: the broker's num.partitions."
        ),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(min=1, max=INT16_MAX, metavar="N", help="Replication factor. Default: the broker's choice."),
    ] = None,
    config: SetConfig = [],  # noqa: B006
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Do nothing if the topic exists.")] = False,
    bootstrap_server: BootstrapOrProfile = None,
    command_config: CommandConfig = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Make topics."""
    from fencepost.client.errors import BrokerError
    from fencepost.client.kafka_types import NewTopic
    from fencepost.wire.errors import ErrorCode

    configs = parse_assignments(config, "--config")

    async def work() -> list[dict[str, Any]]:
        made = []
        async with open_admin(bootstrap_server, command_config, profile) as admin:
            for name in names:
                try:
                    topic = await admin.create_topic(
                        NewTopic(name, partitions or -1, replication_factor or -1, configs)
                    )
                except BrokerError as error:
                    if not if_not_exists or error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                        raise
                    made.append({"name": name, "created": False})
                    continue
                made.append(
                    {
                        "name": name,
                        "created": True,
                        "topic_id": topic_id_text(topic.topic_id),
                        "partitions": topic.partitions,
                        "replication_factor": topic.replication_factor,
                    }
                )
        return made

    made = run_async(work())
    if as_json:
        print_json({"topics": made})
        return
    for topic in made:
        if topic["created"]:
            say(f"created topic {topic['name']} with {_count(topic['partitions'], 'partition')}")
        else:
            say(f"topic {topic['name']} already exists")


@app.command("list")
def list_topics(
    internal: Annotated[bool, typer.Option("--internal", help="Include internal topics.")] = False,
    bootstrap_server: BootstrapOrProfile = None,
    command_config: CommandConfig = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """List the topics."""

    async def work() -> "list[TopicMetadata]":
        async with open_admin(bootstrap_server, command_config, profile) as admin:
            return await admin.list_topics()

    topics = [topic for topic in run_async(work()) if internal or not topic.is_internal]
    if as_json:
        print_json({"topics": [_summary(topic) for topic in topics]})
        return
    print_table(
        ("topic", "partitions", "replication factor"),
        [(topic.name, len(topic.partitions), topic.replication_factor) for topic in topics],
    )


@app.command()
def describe(
    names: Annotated[list[str], typer.Argument(metavar="TOPIC", help="Default: all topics but internal ones.")] = [],  # noqa: B006
    bootstrap_server: BootstrapOrProfile = None,
    command_config: CommandConfig = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Show partitions, offsets, replicas and settings of topics."""

    async def work() -> list[dict[str, Any]]:
        async with open_admin(bootstrap_server, command_config, profile) as admin:
            if names:
                topics = [await admin.describe_topic(name) for name in names]
            else:
                topics = [topic for topic in await admin.list_topics() if not topic.is_internal]
            return [await _description(admin, topic) for topic in topics]

    described = run_async(work())
    if as_json:
        print_json({"topics": described})
        return
    for at, topic in enumerate(described):
        if at:
            say()
        say(f"{topic['name']}  id {topic['topic_id']}, {_count(len(topic['partitions']), 'partition')}")
        for name, value in topic["configs"].items():
            say(f"  {name}={value}")
        print_table(
            ("partition", "leader", "earliest", "latest", "replicas", "in sync"),
            [
                (
                    partition["partition"],
                    partition["leader"] if partition["leader"] >= 0 else None,
                    partition["earliest_offset"],
                    partition["latest_offset"],
                    ",".join(map(str, partition["replicas"])),
                    ",".join(map(str, partition["in_sync_replicas"])),
                )
                for partition in topic["partitions"]
            ],
        )


@app.command()
def alter(
    name: Name,
    config: SetConfig = [],  # noqa: B006
    delete_config: UnsetConfig = [],  # noqa: B006
    bootstrap_server: BootstrapOrProfile = None,
    command_config: CommandConfig = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Change settings of a topic. Settings that are not named keep their values."""
    from fencepost.cli.configs import alter_resource
    from fencepost.client.kafka_types import ResourceType

    open_it = functools.partial(open_admin, bootstrap_server, command_config, profile)
    alter_resource(open_it, ResourceType.TOPIC, name, config, delete_config, as_json=as_json)


@app.command()
def delete(
    names: Names,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Do nothing if the topic does not exist.")] = False,
    bootstrap_server: BootstrapOrProfile = None,
    command_config: CommandConfig = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Delete topics and all their records."""
    from fencepost.client.errors import UnknownTopic

    async def work() -> list[dict[str, Any]]:
        gone = []
        async with open_admin(bootstrap_server, command_config, profile) as admin:
            for name in names:
                try:
                    await admin.delete_topic(name)
                except UnknownTopic:
                    if not if_exists:
                        raise
                    gone.append({"name": name, "deleted": False})
                else:
                    gone.append({"name": name, "deleted": True})
        return gone

    gone = run_async(work())
    if as_json:
        print_json({"topics": gone})
        return
    for topic in gone:
        say(f"deleted topic {topic['name']}" if topic["deleted"] else f"topic {topic['name']} does not exist")


@app.command("add-partitions")
def add_partitions(
    name: Name,
    partitions: Annotated[
        int, typer.Option(min=1, max=INT32_MAX, metavar="N", help="New total number of partitions.", show_default=False)
    ],
    bootstrap_server: BootstrapOrProfile = None,
    command_config: CommandConfig = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Add partitions to a topic. Afterwards, keys may map to other partitions than before."""

    async def work() -> None:
        async with open_admin(bootstrap_server, command_config, profile) as admin:
            await admin.add_partitions(name, partitions)

    run_async(work())
    if as_json:
        print_json({"name": name, "partitions": partitions})
    else:
        say(f"topic {name} now has {_count(partitions, 'partition')}")


def topic_id_text(topic_id: bytes) -> str:
    """The id in Kafka's notation."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


async def _description(admin: "AsyncAdmin", topic: "TopicMetadata") -> dict[str, Any]:
    from fencepost.client.kafka_types import ConfigSource, Reset, ResourceType
    from fencepost.topic_partition import TopicPartition

    led = [TopicPartition(topic.name, index) for index, found in topic.partitions.items() if found.leader >= 0]
    earliest = await admin.list_offsets(dict.fromkeys(led, int(Reset.EARLIEST)))
    latest = await admin.list_offsets(dict.fromkeys(led, int(Reset.LATEST)))
    configs = await admin.describe_configs(ResourceType.TOPIC, topic.name)
    partitions = []
    for index, found in topic.partitions.items():
        at = TopicPartition(topic.name, index)
        partitions.append(
            {
                "partition": index,
                "leader": found.leader,
                "leader_epoch": found.leader_epoch,
                "replicas": list(found.replicas),
                "in_sync_replicas": list(found.in_sync_replicas),
                "earliest_offset": earliest[at].offset if at in earliest else None,
                "latest_offset": latest[at].offset if at in latest else None,
            }
        )
    own = {entry.name: entry.value for entry in configs if entry.source == ConfigSource.TOPIC_CONFIG}
    return {**_summary(topic), "partitions": partitions, "configs": own}


def _summary(topic: "TopicMetadata") -> dict[str, Any]:
    return {
        "name": topic.name,
        "topic_id": topic_id_text(topic.topic_id),
        "internal": topic.is_internal,
        "partitions": len(topic.partitions),
        "replication_factor": topic.replication_factor,
    }


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
