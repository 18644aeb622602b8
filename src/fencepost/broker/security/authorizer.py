"""Who may do what: the one place that decides, with the semantics of Kafka's StandardAuthorizer.

Pure: rules in, verdicts out. A rule applies to a resource if its pattern does (the same name, a prefix of it, or `*`),
its principal and host are the caller's or open, and its operation is the one asked for, ALL, or for ALLOW one that
implies it. One DENY that applies outweighs every ALLOW. Where nothing applies the answer is no, unless no rule speaks
of the resource at all and `allow.everyone.if.no.acl.found` says otherwise.

Rules are kept as bits, one per operation, under the pattern, the principal and the host they name. A question is then a
handful of look-ups, however many rules there are.
"""

import ipaddress
from collections.abc import Iterable
from functools import lru_cache

from fencepost.broker.security.principal import Principal
from fencepost.wire.acls import (
    WILDCARD,
    WILDCARD_PRINCIPAL,
    AclBinding,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
)

_EVERY_OPERATION = sum(1 << operation for operation in AclOperation if operation > AclOperation.ALL)
_IMPLIED = {
    AclOperation.READ: AclOperation.DESCRIBE,
    AclOperation.WRITE: AclOperation.DESCRIBE,
    AclOperation.DELETE: AclOperation.DESCRIBE,
    AclOperation.ALTER: AclOperation.DESCRIBE,
    AclOperation.ALTER_CONFIGS: AclOperation.DESCRIBE_CONFIGS,
}
HOSTS_REMEMBERED = 4_096
# A name that no rule mentions: what holds for it holds for any name (Kafka uses this very word).
_ANY_NAME = "hardcode"


class _Rules:
    """What one principal, from one host, is allowed and denied on one pattern."""

    __slots__ = ("allowed", "denied", "given")

    def __init__(self) -> None:
        self.given: set[tuple[AclOperation, AclPermissionType]] = set()
        self.allowed = 0
        self.denied = 0

    def settle(self) -> None:
        self.allowed = self.denied = 0
        for operation, permission in self.given:
            bits = _EVERY_OPERATION if operation is AclOperation.ALL else 1 << operation
            if permission is AclPermissionType.DENY:
                self.denied |= bits
            else:
                implied = _IMPLIED.get(operation)
                self.allowed |= bits if implied is None else bits | 1 << implied


_Holder = tuple[str, str]
"""A principal and a host, either of them possibly open."""
_Pattern = dict[_Holder, _Rules]


class _Resources:
    """The rules about one type of resource, by the pattern they name."""

    __slots__ = ("_of_holder", "_prefix_counts", "literal", "prefix_lengths", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, _Pattern] = {}
        self.prefixed: dict[str, _Pattern] = {}
        self.prefix_lengths: list[int] = []
        self._prefix_counts: dict[int, int] = {}
        self._of_holder: dict[_Holder, dict[tuple[PatternType, str], _Rules]] = {}

    def change(self, binding: AclBinding, *, adds: bool) -> None:
        _, name, pattern_type = binding.pattern
        patterns = self.literal if pattern_type is PatternType.LITERAL else self.prefixed
        pattern = patterns.get(name)
        if pattern is None:
            pattern = patterns[name] = {}
            self._count_prefix(pattern_type, name, 1)
        holder = (binding.principal, _canonical_host(binding.host))
        held = self._of_holder.setdefault(holder, {})
        rules = pattern.get(holder)
        if rules is None:
            rules = pattern[holder] = held[pattern_type, name] = _Rules()
        if adds:
            rules.given.add((binding.operation, binding.permission_type))
        else:
            rules.given.discard((binding.operation, binding.permission_type))
        rules.settle()
        if not rules.given:
            del pattern[holder], held[pattern_type, name]
        if not held:
            del self._of_holder[holder]
        if not pattern:
            del patterns[name]
            self._count_prefix(pattern_type, name, -1)

    def _count_prefix(self, pattern_type: PatternType, name: str, change: int) -> None:
        if pattern_type is PatternType.PREFIXED:
            length = len(name)
            self._prefix_counts[length] = self._prefix_counts.get(length, 0) + change
            if not self._prefix_counts[length]:
                del self._prefix_counts[length]
            self.prefix_lengths = sorted(self._prefix_counts)

    def applying_to(self, name: str) -> list[_Pattern]:
        """The rules of every pattern that a name falls under."""
        found = [rules for key in (name, WILDCARD) if (rules := self.literal.get(key)) is not None]
        if name == WILDCARD:
            found = found[:1]
        for length in self.prefix_lengths:
            if length > len(name):
                break
            rules = self.prefixed.get(name[:length])
            if rules is not None:
                found.append(rules)
        return found

    def held_by(self, holders: Iterable[_Holder]) -> dict[tuple[PatternType, str], list[_Rules]]:
        found: dict[tuple[PatternType, str], list[_Rules]] = {}
        for holder in holders:
            for pattern, rules in self._of_holder.get(holder, {}).items():
                found.setdefault(pattern, []).append(rules)
        return found


class Authorizer:
    def __init__(self, super_users: Iterable[Principal] = (), *, allow_if_no_acl: bool = False) -> None:
        self._super_users = frozenset(map(str, super_users))
        self._allow_if_no_acl = allow_if_no_acl
        self._resources = {kind: _Resources() for kind in ResourceType if kind > ResourceType.ANY}
        self.version = 0
        """Grows with every change of the rules, for caches of decisions."""

    def add(self, bindings: Iterable[AclBinding]) -> None:
        self._change(bindings, adds=True)

    def remove(self, bindings: Iterable[AclBinding]) -> None:
        self._change(bindings, adds=False)

    def _change(self, bindings: Iterable[AclBinding], *, adds: bool) -> None:
        self.version += 1
        for binding in bindings:
            self._resources[binding.pattern.resource_type].change(binding, adds=adds)

    def authorize(
        self, principal: Principal, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        if str(principal) in self._super_users:
            return True
        patterns = self._resources[resource_type].applying_to(name)
        if not patterns:
            return self._allow_if_no_acl
        bit = 1 << operation
        holders = _holders(principal, host)
        is_allowed = False
        for pattern in patterns:
            for holder in holders:
                rules = pattern.get(holder)
                if rules is not None:
                    if rules.denied & bit:
                        return False
                    is_allowed = is_allowed or rules.allowed & bit != 0
        return is_allowed

    def authorize_by_resource_type(
        self, principal: Principal, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Whether the operation is allowed on at least one resource of the type, whatever its name."""
        if self.authorize(principal, host, operation, resource_type, _ANY_NAME):
            return True
        bit = 1 << operation
        allowed: list[tuple[PatternType, str]] = []
        denied: set[tuple[PatternType, str]] = set()
        held = self._resources[resource_type].held_by(_holders(principal, host))
        for pattern, several in held.items():
            if any(rules.denied & bit for rules in several):
                denied.add(pattern)
            if any(rules.allowed & bit for rules in several):
                allowed.append(pattern)
        if (PatternType.LITERAL, WILDCARD) in denied:
            return False
        if (PatternType.LITERAL, WILDCARD) in allowed:
            return True
        return any(
            pattern not in denied
            and not any((PatternType.PREFIXED, pattern[1][:end]) in denied for end in range(1, len(pattern[1]) + 1))
            for pattern in allowed
        )


def _holders(principal: Principal, host: str) -> tuple[_Holder, ...]:
    name, address = str(principal), _canonical_host(host)
    return (name, address), (name, WILDCARD), (WILDCARD_PRINCIPAL, address), (WILDCARD_PRINCIPAL, WILDCARD)


@lru_cache(HOSTS_REMEMBERED)
def _canonical_host(text: str) -> str:
    """One address has many spellings in IPv6; an IPv4 address seen through an IPv6 socket is the same host."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return text
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)
