"""`fencepost acls`: list, add, remove; the options are those of kafka-acls.sh."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from fencepost.cli.acl_rules import (
    choice,
    filter_holders,
    named_patterns,
    named_resources,
    pattern_of,
    rule_holders,
    wanted_operations,
)
from fencepost.cli.connection import BootstrapOrProfile, CommandConfig, Profile, open_admin
from fencepost.cli.options import Json
from fencepost.cli.output import print_json, print_table, run_async, say
from fencepost.wire.acls import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    PatternType,
    ResourcePattern,
)

_EPILOG = """\
\b
Examples:
  fencepost acls add --allow-principal User:shop --producer --topic orders --transactional-id shop
  fencepost acls add --allow-principal User:billing --consumer --topic orders --group billing
  fencepost acls add --allow-principal User:reports --operation read --topic public- --resource-pattern-type prefixed
  fencepost acls add --deny-principal User:mallory --deny-host 10.0.0.66 --operation all --topic '*'
  fencepost acls list --topic orders --resource-pattern-type match        every rule that orders falls under
  fencepost acls remove --allow-principal User:shop --topic orders        every rule of User:shop on it
"""

app = typer.Typer(help="See and change who may do what.", epilog=_EPILOG, no_args_is_help=True)

Topics = Annotated[list[str], typer.Option("--topic", metavar="TOPIC", help="A topic, or * for all; several times.")]
Groups = Annotated[list[str], typer.Option("--group", metavar="GROUP", help="A group, or *; several times.")]
Ids = Annotated[
    list[str], typer.Option("--transactional-id", metavar="ID", help="A transactional id, or *; several times.")
]
Users = Annotated[
    list[str], typer.Option("--user-principal", metavar="USER", help="A user as a resource, or *; several times.")
]
OnCluster = Annotated[bool, typer.Option("--cluster", help="The cluster.")]
Pattern = Annotated[
    str,
    typer.Option(
        "--resource-pattern-type",
        metavar="TYPE",
        help="How names are meant: literal, prefixed; to list and remove also any and match.",
    ),
]
Allowed = Annotated[
    list[str], typer.Option("--allow-principal", metavar="User:NAME", help="Who may; User:* is everybody.")
]
Denied = Annotated[list[str], typer.Option("--deny-principal", metavar="User:NAME", help="Who may not.")]
AllowHosts = Annotated[list[str], typer.Option("--allow-host", metavar="ADDRESS", help="From where they may.")]
DenyHosts = Annotated[list[str], typer.Option("--deny-host", metavar="ADDRESS", help="From where they may not.")]
Operations = Annotated[
    list[str],
    typer.Option("--operation", metavar="OPERATION", help="read, write, create, describe, all, ...; several times."),
]
Producer = Annotated[
    bool, typer.Option("--producer", help="What a producer needs on --topic, and on --transactional-id.")
]
Consumer = Annotated[bool, typer.Option("--consumer", help="What a consumer needs on --topic and --group.")]
Idempotent = Annotated[bool, typer.Option("--idempotent", help="With --producer: also for brokers before Kafka 3.0.")]


@app.command("list")
def list_acls(
    topic: Topics = [],  # noqa: B006
    group: Groups = [],  # noqa: B006
    transactional_id: Ids = [],  # noqa: B006
    user_principal: Users = [],  # noqa: B006
    cluster: OnCluster = False,
    pattern_type: Pattern = "any",
    principal: Annotated[
        list[str], typer.Option("--principal", metavar="User:NAME", help="Only rules about these; several times.")
    ] = [],  # noqa: B006
    bootstrap_server: BootstrapOrProfile = None,
    command_config: CommandConfig = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """List rules: all, or those about some resources or principals."""
    resources = named_resources(topic, group, transactional_id, user_principal, cluster)
    patterns = named_patterns(resources, choice(PatternType, pattern_type, "--resource-pattern-type"))
    principals: list[str | None] = [*principal] or [None]
    filters = [AclBindingFilter(kind, name, how, each) for kind, name, how in patterns for each in principals]

    async def work() -> list[AclBinding]:
        async with open_admin(bootstrap_server, command_config, profile) as admin:
            found: set[AclBinding] = set()
            for each in filters:
                found.update(await admin.describe_acls(each))
            return sorted(found)

    _print(run_async(work()), "rules", as_json)


@app.command()
def add(
    allow_principal: Allowed = [],  # noqa: B006
    deny_principal: Denied = [],  # noqa: B006
    allow_host: AllowHosts = [],  # noqa: B006
    deny_host: DenyHosts = [],  # noqa: B006
    operation: Operations = [],  # noqa: B006
    producer: Producer = False,
    consumer: Consumer = False,
    idempotent: Idempotent = False,
    topic: Topics = [],  # noqa: B006
    group: Groups = [],  # noqa: B006
    transactional_id: Ids = [],  # noqa: B006
    user_principal: Users = [],  # noqa: B006
    cluster: OnCluster = False,
    pattern_type: Pattern = "literal",
    bootstrap_server: BootstrapOrProfile = None,
    command_config: CommandConfig = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Make rules: one for each principal, host, operation and resource. A rule that is there already stays."""
    how = choice(PatternType, pattern_type, "--resource-pattern-type")
    if how not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise typer.BadParameter("a rule is literal or prefixed", param_hint="--resource-pattern-type")
    holders = rule_holders(allow_principal, deny_principal, allow_host, deny_host)
    if not holders:
        raise typer.BadParameter("say who: --allow-principal or --deny-principal", param_hint="--allow-principal")
    resources = named_resources(topic, group, transactional_id, user_principal, cluster)
    wanted = wanted_operations(resources, operation, producer=producer, consumer=consumer, idempotent=idempotent)
    bindings = [
        AclBinding(ResourcePattern(kind, name, pattern_of(kind, how)), who, host, done, permission)
        for kind, name, done in wanted
        for permission, who, host in holders
    ]

    async def work() -> None:
        async with open_admin(bootstrap_server, command_config, profile) as admin:
            await admin.create_acls(bindings)

    run_async(work())
    _print(sorted(bindings), "added", as_json)


@app.command()
def remove(
    allow_principal: Allowed = [],  # noqa: B006
    deny_principal: Denied = [],  # noqa: B006
    allow_host: AllowHosts = [],  # noqa: B006
    deny_host: DenyHosts = [],  # noqa: B006
    operation: Operations = [],  # noqa: B006
    producer: Producer = False,
    consumer: Consumer = False,
    idempotent: Idempotent = False,
    topic: Topics = [],  # noqa: B006
    group: Groups = [],  # noqa: B006
    transactional_id: Ids = [],  # noqa: B006
    user_principal: Users = [],  # noqa: B006
    cluster: OnCluster = False,
    pattern_type: Pattern = "literal",
    bootstrap_server: BootstrapOrProfile = None,
    command_config: CommandConfig = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Delete rules: what is not said is not looked at. At least a resource must be named."""
    how = choice(PatternType, pattern_type, "--resource-pattern-type")
    resources = named_resources(topic, group, transactional_id, user_principal, cluster)
    if not resources:
        raise typer.BadParameter("name the resources whose rules go, for example --topic", param_hint="--topic")
    holders = filter_holders(allow_principal, deny_principal, allow_host, deny_host)
    if operation or producer or consumer:
        wanted = wanted_operations(resources, operation, producer=producer, consumer=consumer, idempotent=idempotent)
    else:
        wanted = [(kind, name, AclOperation.ANY) for kind, name in resources]
    filters = [
        AclBindingFilter(kind, name, pattern_of(kind, how), who, host, done, permission)
        for kind, name, done in wanted
        for permission, who, host in holders
    ]

    async def work() -> list[AclBinding]:
        async with open_admin(bootstrap_server, command_config, profile) as admin:
            return await admin.delete_acls(filters)

    _print(run_async(work()), "removed", as_json)


def _print(bindings: Sequence[AclBinding], word: str, as_json: bool) -> None:
    if as_json:
        print_json({word: [_document(binding) for binding in bindings]})
        return
    if not bindings:
        say("no rules" if word == "rules" else f"nothing {word}")
        return
    print_table(
        ("principal", "host", "may", "operation", "resource", "name", "pattern"),
        [
            (
                binding.principal,
                binding.host,
                binding.permission_type.name.lower(),
                binding.operation.name.lower(),
                binding.pattern.resource_type.name.lower(),
                binding.pattern.name,
                binding.pattern.pattern_type.name.lower(),
            )
            for binding in bindings
        ],
        title="" if word == "rules" else word,
    )


def _document(binding: AclBinding) -> dict[str, Any]:
    return {
        "principal": binding.principal,
        "host": binding.host,
        "permission_type": binding.permission_type.name,
        "operation": binding.operation.name,
        "resource_type": binding.pattern.resource_type.name,
        "resource_name": binding.pattern.name,
        "pattern_type": binding.pattern.pattern_type.name,
    }
