"""Translates the options of `fencepost acls` into ACL bindings and filters."""

import enum
from collections.abc import Iterable, Sequence
from typing import TypeVar

import typer

from fencepost.wire.acls import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    WILDCARD,
    WILDCARD_PRINCIPAL,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
)

_Choice = TypeVar("_Choice", bound=enum.IntEnum)


def choice(kind: type[_Choice], text: str, option: str) -> _Choice:
    """Parses a name as Kafka's tools do: in upper or lower case, with or without underscores."""
    found = {member.name.replace("_", ""): member for member in kind if member > 0}
    wanted = text.upper().replace("_", "").replace("-", "")
    if wanted not in found:
        names = ", ".join(member.name.lower() for member in kind if member > 0)
        raise typer.BadParameter(f"{text!r} is not one of {names}", param_hint=option)
    return found[wanted]


def named_resources(
    topics: Iterable[str], groups: Iterable[str], ids: Iterable[str], users: Iterable[str], cluster: bool
) -> list[tuple[ResourceType, str]]:
    return [
        *((ResourceType.TOPIC, name) for name in topics),
        *((ResourceType.GROUP, name) for name in groups),
        *((ResourceType.TRANSACTIONAL_ID, name) for name in ids),
        *((ResourceType.USER, name) for name in users),
        *([(ResourceType.CLUSTER, CLUSTER_NAME)] if cluster else []),
    ]


def named_patterns(
    resources: Sequence[tuple[ResourceType, str]], how: PatternType
) -> list[tuple[ResourceType, str | None, PatternType]]:
    if not resources:
        return [(ResourceType.ANY, None, how)]
    return [(kind, name, how) for kind, name in resources]


def pattern_of(kind: ResourceType, how: PatternType) -> PatternType:
    """The cluster resource has a single name, so it always has a literal pattern."""
    return PatternType.LITERAL if kind is ResourceType.CLUSTER else how


def rule_holders(
    allowed: Iterable[str], denied: Iterable[str], allow_hosts: Sequence[str], deny_hosts: Sequence[str]
) -> list[tuple[AclPermissionType, str, str]]:
    everybody_allowed = [WILDCARD_PRINCIPAL] if allow_hosts else []
    everybody_denied = [WILDCARD_PRINCIPAL] if deny_hosts else []
    return [
        *(
            (AclPermissionType.ALLOW, who, host)
            for who in list(allowed) or everybody_allowed
            for host in allow_hosts or [WILDCARD]
        ),
        *(
            (AclPermissionType.DENY, who, host)
            for who in list(denied) or everybody_denied
            for host in deny_hosts or [WILDCARD]
        ),
    ]


def filter_holders(
    allowed: Iterable[str], denied: Iterable[str], allow_hosts: Sequence[str], deny_hosts: Sequence[str]
) -> list[tuple[AclPermissionType, str | None, str | None]]:
    """The principals and hosts to match. Without principals every principal matches, without hosts every host."""
    anywhere: list[str | None] = [None]
    return [
        *((AclPermissionType.ALLOW, who, host) for who in allowed for host in list(allow_hosts) or anywhere),
        *((AclPermissionType.DENY, who, host) for who in denied for host in list(deny_hosts) or anywhere),
    ] or [(AclPermissionType.ANY, None, None)]


def wanted_operations(
    resources: Sequence[tuple[ResourceType, str]],
    operations: Sequence[str],
    *,
    producer: bool,
    consumer: bool,
    idempotent: bool,
) -> list[tuple[ResourceType, str, AclOperation]]:
    """Every combination of resource and operation; --producer and --consumer stand for the operations they need."""
    if not resources:
        raise typer.BadParameter("name a resource, for example --topic", param_hint="--topic")
    kinds = {kind for kind, _ in resources}
    if producer or consumer:
        if operations:
            raise typer.BadParameter(
                "--operation cannot be combined with --producer or --consumer, which choose the operations",
                param_hint="--operation",
            )
        if ResourceType.TOPIC not in kinds or (consumer and ResourceType.GROUP not in kinds):
            needed = "--topic and --group" if consumer else "--topic"
            raise typer.BadParameter(f"also give {needed}", param_hint="--consumer" if consumer else "--producer")
        return _usual(resources, producer=producer, consumer=consumer, idempotent=idempotent)
    chosen = [choice(AclOperation, text, "--operation") for text in operations] or [AclOperation.ALL]
    for kind in kinds:
        for operation in chosen:
            if operation > AclOperation.ALL and operation not in SUPPORTED_OPERATIONS[kind]:
                possible = ", ".join(each.name.lower() for each in SUPPORTED_OPERATIONS[kind])
                raise typer.BadParameter(
                    f"{operation.name.lower()} does not apply to a {kind.name.lower()}; choose {possible}, all",
                    param_hint="--operation",
                )
    return [(kind, name, operation) for kind, name in resources for operation in chosen]


def _usual(
    resources: Sequence[tuple[ResourceType, str]], *, producer: bool, consumer: bool, idempotent: bool
) -> list[tuple[ResourceType, str, AclOperation]]:
    op = AclOperation
    usual: dict[ResourceType, dict[AclOperation, None]] = {kind: {} for kind, _ in resources}
    if producer:
        usual[ResourceType.TOPIC] |= dict.fromkeys((op.WRITE, op.DESCRIBE, op.CREATE))
        if ResourceType.TRANSACTIONAL_ID in usual:
            usual[ResourceType.TRANSACTIONAL_ID] |= dict.fromkeys((op.WRITE, op.DESCRIBE))
    if consumer:
        usual[ResourceType.TOPIC] |= dict.fromkeys((op.READ, op.DESCRIBE))
        usual[ResourceType.GROUP] |= {op.READ: None}
    wanted = [(kind, name, operation) for kind, name in resources for operation in usual[kind]]
    return wanted + ([(ResourceType.CLUSTER, CLUSTER_NAME, op.IDEMPOTENT_WRITE)] if idempotent else [])
