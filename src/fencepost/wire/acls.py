"""Kafka's ACL types: resources, patterns, operations and bindings.

The numbers are those of the protocol. Broker, client and command line share these types.
"""

import enum
from typing import Any, NamedTuple

WILDCARD = "*"
"""Matches any name as a LITERAL pattern, and any host."""
WILDCARD_PRINCIPAL = "User:*"
CLUSTER_NAME = "kafka-cluster"
"""The only name of a CLUSTER resource."""


class ResourceType(enum.IntEnum):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(enum.IntEnum):
    UNKNOWN = 0
    ANY = 1
    """In a filter: patterns of any type with this name."""
    MATCH = 2
    """In a filter: every pattern that matches this name."""
    LITERAL = 3
    PREFIXED = 4


class AclOperation(enum.IntEnum):
    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermissionType(enum.IntEnum):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


_OP = AclOperation
# The operations on a resource of each type: the bits of `authorizedOperations`.
SUPPORTED_OPERATIONS: dict[ResourceType, tuple[AclOperation, ...]] = {
    ResourceType.TOPIC: (
        _OP.READ,
        _OP.WRITE,
        _OP.CREATE,
        _OP.DELETE,
        _OP.ALTER,
        _OP.DESCRIBE,
        _OP.DESCRIBE_CONFIGS,
        _OP.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (_OP.READ, _OP.DELETE, _OP.DESCRIBE, _OP.DESCRIBE_CONFIGS, _OP.ALTER_CONFIGS),
    ResourceType.CLUSTER: (
        _OP.CREATE,
        _OP.ALTER,
        _OP.DESCRIBE,
        _OP.CLUSTER_ACTION,
        _OP.DESCRIBE_CONFIGS,
        _OP.ALTER_CONFIGS,
        _OP.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (_OP.WRITE, _OP.DESCRIBE, _OP.TWO_PHASE_COMMIT),
    ResourceType.USER: (_OP.CREATE_TOKENS, _OP.DESCRIBE_TOKENS),
}


class ResourcePattern(NamedTuple):
    """The resources that a rule applies to."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL


class AclBinding(NamedTuple):
    """One rule: allows or denies an operation on the resources of a pattern to a principal from a host."""

    pattern: ResourcePattern
    principal: str
    """For example User:alice; User:* is everybody."""
    host: str
    operation: AclOperation
    permission_type: AclPermissionType


class AclBindingFilter(NamedTuple):
    """Selects rules; None and ANY match everything."""

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission_type: AclPermissionType = AclPermissionType.ANY

    @property
    def is_unknown(self) -> bool:
        """Whether a part is unknown to this version."""
        return 0 in (self.resource_type, self.pattern_type, self.operation, self.permission_type)

    def matches(self, binding: AclBinding) -> bool:
        return (
            self._matches_pattern(binding.pattern)
            and self.principal in (None, binding.principal)
            and self.host in (None, binding.host)
            and self.operation in (AclOperation.ANY, binding.operation)
            and self.permission_type in (AclPermissionType.ANY, binding.permission_type)
        )

    def _matches_pattern(self, pattern: ResourcePattern) -> bool:
        if self.resource_type not in (ResourceType.ANY, pattern.resource_type):
            return False
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, pattern.pattern_type):
            return False
        if self.name is None:
            return True
        if self.pattern_type is not PatternType.MATCH:
            return self.name == pattern.name
        if pattern.pattern_type is PatternType.LITERAL:
            return pattern.name in (self.name, WILDCARD)
        return self.name.startswith(pattern.name)


def exactly(binding: AclBinding) -> AclBindingFilter:
    """The filter that matches this rule alone."""
    pattern = binding.pattern
    return AclBindingFilter(
        pattern.resource_type,
        pattern.name,
        pattern.pattern_type,
        binding.principal,
        binding.host,
        binding.operation,
        binding.permission_type,
    )


def creation_fields(binding: AclBinding) -> dict[str, Any]:
    """The fields of an entry of CreateAcls."""
    return {
        "resource_type": binding.pattern.resource_type,
        "resource_name": binding.pattern.name,
        "resource_pattern_type": binding.pattern.pattern_type,
        "principal": binding.principal,
        "host": binding.host,
        "operation": binding.operation,
        "permission_type": binding.permission_type,
    }


def filter_fields(wanted: AclBindingFilter) -> dict[str, Any]:
    """The fields of DescribeAcls, and of an entry of DeleteAcls."""
    return {
        "resource_type_filter": wanted.resource_type,
        "resource_name_filter": wanted.name,
        "pattern_type_filter": wanted.pattern_type,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission_type,
    }


def known(kind: type[enum.IntEnum], number: int) -> enum.IntEnum:
    """The member of this number, or UNKNOWN."""
    try:
        return kind(number)
    except ValueError:
        return kind(0)
