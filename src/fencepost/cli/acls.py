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
  fencepost acls list --topic orders --resource-pattern-type match        every rule that applies to orders
  fencepost acls remove --allow-principal User:shop --topic orders        every rule of User:shop for orders
"""

app = typer.Typer(help="List and change access rules (ACLs).", epilog=_EPILOG, no_args_is_help=True)

Topics = Annotated[
    list[str], typer.Option("--topic", metavar="TOPIC", help="A topic, or * for all topics. Can be repeated.")
]
Groups = Annotated[
    list[str], typer.Option("--group", metavar="GROUP", help="A consumer group, or * for all. Can be repeated.")
]
Ids = Annotated[
    list[str],
    typer.Option("--transactional-id", metavar="ID", help="A transactional id, or * for all. Can be repeated."),
]
Users = Annotated[
    list[str],
    typer.Option("--user-principal", metavar="USER", help="A user as a resource, or * for all. Can be repeated."),
]
OnCluster = Annotated[bool, typer.Option("--cluster", help="The cluster.")]
Pattern = Annotated[
    str,
    typer.Option(
        "--resource-pattern-type",
        metavar="TYPE",
        help="Pattern type of the names: literal or prefixed; list and remove also take any and match.",
    ),
]
Allowed = Annotated[
    list[str], typer.Option("--allow-principal", metavar="User:NAME", help="Principal to allow; User:* is everybody.")
]
Denied = Annotated[list[str], typer.Option("--deny-principal", metavar="User:NAME", help="Principal to deny.")]
AllowHosts = Annotated[list[str], typer.Option("--allow-host", metavar="ADDRESS", help="Host to allow.")]
DenyHosts = Annotated[list[str], typer.Option("--deny-host", metavar="ADDRESS", help="Host to deny.")]
Operations = Annotated[
    list[str],
    typer.Option("--operation", metavar="OPERATION", help="read, write, create, describe, all, .... Can be repeated."),
]
Producer = Annotated[
    bool, typer.Option("--producer", help="The operations that a producer needs on --topic and --transactional-id.")
]
Consumer = Annotated[
    bool, typer.Option("--consumer", help="The operations that a consumer needs on --topic and --group.")
]
Idempotent = Annotated[
    bool, typer.Option("--idempotent", help="With --producer: also what idempotence needs on brokers before Kafka 3.0.")
]


@app.command("list")
def list_acls(
    topic: Topics = [],  # noqa: B006
    group: Groups = [],  # noqa: B006
    transactional_id: Ids = [],  # noqa: B006
    user_principal: Users = [],  # noqa: B006
    cluster: OnCluster = False,
    pattern_type: Pattern = "any",
    principal: Annotated[
        list[str],
        typer.Option("--principal", metavar="User:NAME", help="Only rules for this principal. Can be repeated."),
    ] = [],  # noqa: B006
    bootstrap_server: BootstrapOrProfile = None,
    command_config: CommandConfig = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """List the access rules, all of them or those for given resources and principals."""
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
    """Add access rules, one for each combination of principal, host, operation and resource. Existing rules are
    kept."""
    how = choice(PatternType, pattern_type, "--resource-pattern-type")
    if how not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise typer.BadParameter("new rules are either literal or prefixed", param_hint="--resource-pattern-type")
    holders = rule_holders(allow_principal, deny_principal, allow_host, deny_host)
    if not holders:
        raise typer.BadParameter("give --allow-principal or --deny-principal", param_hint="--allow-principal")
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
    """Remove the access rules that match every given option. At least one resource is required."""
    how = choice(PatternType, pattern_type, "--resource-pattern-type")
    resources = named_resources(topic, group, transactional_id, user_principal, cluster)
    if not resources:
        raise typer.BadParameter(
            "name the resources whose rules to remove, for example with --topic", param_hint="--topic"
        )
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
