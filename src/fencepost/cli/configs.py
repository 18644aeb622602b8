"""`fencepost configs`: describe and alter the settings of topics, brokers and groups."""

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fencepost.cli.connection import BootstrapOrProfile, CommandConfig, Profile, open_admin
from fencepost.cli.options import Json, SetConfig, UnsetConfig, parse_assignments
from fencepost.cli.output import print_json, print_table, run_async, say

if TYPE_CHECKING:
    from fencepost.client.admin import AsyncAdmin
    from fencepost.client.kafka_types import ConfigEntry, ResourceType

# Imports inside functions: each command loads only what it needs, so that it starts quickly.

_EPILOG = """\
\b
Examples:
  fencepost configs describe --topic purchases --all
  fencepost configs describe --broker 1
  fencepost configs alter --topic purchases --set retention.ms=86400000 --unset segment.bytes
  fencepost configs alter --broker-defaults --set log.retention.ms=86400000
"""

app = typer.Typer(help="Show and change settings.", epilog=_EPILOG, no_args_is_help=True)

Topic = Annotated[str | None, typer.Option("--topic", help="Settings of this topic.")]
BrokerId = Annotated[int | None, typer.Option("--broker", metavar="ID", help="Settings of this broker.")]
BrokerDefaults = Annotated[bool, typer.Option("--broker-defaults", help="Dynamic settings of every broker.")]
Group = Annotated[str | None, typer.Option("--group", help="Settings of this group.")]


@app.command()
def describe(
    topic: Topic = None,
    broker: BrokerId = None,
    broker_defaults: BrokerDefaults = False,
    group: Group = None,
    everything: Annotated[bool, typer.Option("--all", help="Include settings that have their default value.")] = False,
    bootstrap_server: BootstrapOrProfile = None,
    command_config: CommandConfig = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Show the settings that were changed, or with --all every setting and where its value comes from."""
    resource_type, name = _resource(topic, broker, broker_defaults, group)

    async def work() -> "list[ConfigEntry]":
        async with open_admin(bootstrap_server, command_config, profile) as admin:
            if topic is not None:
                await admin.describe_topic(topic)
            return await admin.describe_configs(resource_type, name)

    entries = [entry for entry in run_async(work()) if everything or _is_set(entry, resource_type)]
    if as_json:
        print_json(
            {"type": resource_type.name.lower(), "name": name, "configs": [_document(entry) for entry in entries]}
        )
        return
    if not entries:
        say("no setting was changed here; use --all to show the defaults")
        return
    print_table(
        ("name", "value", "source", "changeable"),
        [
            (
                entry.name,
                "(hidden)" if entry.is_sensitive else entry.value,
                entry.source.name,
                "no" if entry.is_read_only else "yes",
            )
            for entry in entries
        ],
    )


@app.command()
def alter(
    topic: Topic = None,
    broker: BrokerId = None,
    broker_defaults: BrokerDefaults = False,
    group: Group = None,
    config: SetConfig = [],  # noqa: B006
    delete_config: UnsetConfig = [],  # noqa: B006
    bootstrap_server: BootstrapOrProfile = None,
    command_config: CommandConfig = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Change settings. Settings that are not named keep their values."""
    resource_type, name = _resource(topic, broker, broker_defaults, group)
    open_it = functools.partial(open_admin, bootstrap_server, command_config, profile)
    alter_resource(open_it, resource_type, name, config, delete_config, as_json=as_json)


def alter_resource(
    open_it: "Callable[[], AsyncAdmin]",
    resource_type: "ResourceType",
    name: str,
    to_set: Sequence[str],
    to_unset: Sequence[str],
    *,
    as_json: bool,
) -> None:
    from fencepost.client.kafka_types import ResourceType

    changes: dict[str, str | None] = {**parse_assignments(to_set, "--set"), **dict.fromkeys(to_unset)}
    if not changes:
        raise typer.BadParameter("give --set NAME=VALUE or --unset NAME", param_hint="--set")

    async def work() -> None:
        async with open_it() as admin:
            if resource_type == ResourceType.TOPIC:
                await admin.describe_topic(name)
            await admin.alter_configs(resource_type, name, changes)

    run_async(work())
    subject = f"{resource_type.name.lower()} {name or 'defaults'}"
    if as_json:
        print_json({"type": resource_type.name.lower(), "name": name, "changed": changes})
        return
    for key, value in changes.items():
        say(f"{subject}: {key} was reset to its default" if value is None else f"{subject}: {key}={value}")


def _resource(
    topic: str | None, broker: int | None, broker_defaults: bool, group: str | None
) -> "tuple[ResourceType, str]":
    from fencepost.client.kafka_types import ResourceType

    chosen = [
        *([(ResourceType.TOPIC, topic)] if topic is not None else []),
        *([(ResourceType.BROKER, str(broker))] if broker is not None else []),
        *([(ResourceType.BROKER, "")] if broker_defaults else []),
        *([(ResourceType.GROUP, group)] if group is not None else []),
    ]
    if len(chosen) != 1:
        raise typer.BadParameter("give one of --topic, --broker, --broker-defaults, --group", param_hint="--topic")
    return chosen[0]


def _is_set(entry: "ConfigEntry", resource_type: "ResourceType") -> bool:
    from fencepost.client.kafka_types import ConfigSource, ResourceType

    if resource_type == ResourceType.TOPIC:
        return entry.source == ConfigSource.TOPIC_CONFIG
    return not entry.is_default


def _document(entry: "ConfigEntry") -> dict[str, Any]:
    return {
        "name": entry.name,
        "value": entry.value,
        "source": entry.source.name,
        "read_only": entry.is_read_only,
        "sensitive": entry.is_sensitive,
    }
