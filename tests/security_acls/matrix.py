"""Every API, every version: which rights it takes, step by step.

A case is one request and the rights that it needs, in the order in which brokers look for them. It is sent by a user of
its own without any right, with the right rights on the wrong resources, and after each step of the right ones. The
oracle is Apache Kafka's answer to the same.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fencepost.wire.acls import CLUSTER_NAME, AclOperation, AclPermissionType, ResourceType
from fencepost.wire.catalog import API_VERSIONS, ApiKey
from tests.peers.raw import RawClient
from tests.security_acls.scene import Right

OP = AclOperation
TOPIC, GROUP, ID, CLUSTER = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.TRANSACTIONAL_ID,
    ResourceType.CLUSTER,
)
STRANGER = 777_777


@dataclass(slots=True)
class Names:
    """What a case's request speaks of."""

    user: str
    topic_id: str = ""

    @property
    def topic(self) -> str:
        return f"{self.user}-topic"

    @property
    def second(self) -> str:
        return f"{self.user}-second"

    @property
    def group(self) -> str:
        return f"{self.user}-group"

    @property
    def id(self) -> str:
        return f"{self.user}-id"


Need = tuple[ResourceType, AclOperation] | Callable[[Names], Right]
Body = Callable[[Names, int], dict[str, Any]]


@dataclass(slots=True)
class Case:
    name: str
    api: str
    body: Body
    steps: list[list[Need]]
    versions: range
    prepare: Callable[[RawClient, Names], None] | None = None
    until: int = -1
    """The last step whose answers are compared, for what differs for reasons of its own once it is allowed."""
    keeps: str = ""
    """Of lists of everything there is, only what has this in its name belongs to the case."""
    user: str = ""
    names: Names = field(init=False)

    def __post_init__(self) -> None:
        self.names = Names(self.user)

    def rights(self, step: int) -> list[Right]:
        return [self._right(need, self.names) for need in self.steps[step]]

    def wrong_rights(self) -> list[Right]:
        """The same operations on what the request does not speak of."""
        other = Names(f"other-{self.user}")
        rights = [self._right(need, other) for step in self.steps for need in step]
        return [
            right._replace(resource_type=TOPIC, name="*") if right.resource_type is CLUSTER else right
            for right in rights
            if right.permission is AclPermissionType.ALLOW
        ]

    @staticmethod
    def _right(need: Need, names: Names) -> Right:
        if not isinstance(need, tuple):
            return need(names)
        resource_type, operation = need
        name = {TOPIC: names.topic, GROUP: names.group, ID: names.id, CLUSTER: CLUSTER_NAME}[resource_type]
        return Right(operation, resource_type, name)


CASES: list[Case] = []


def case(
    name: str,
    api: str,
    body: Body | dict[str, Any],
    *steps: list[Need],
    low: int | None = None,
    high: int | None = None,
    **more: Any,
) -> None:
    key = next(key for key in ApiKey if key.camel_name == api)
    first, last = API_VERSIONS[key]
    made = body if callable(body) else lambda names, version: body
    versions = range(first if low is None else low, (last if high is None else high) + 1)
    user = name.replace(" ", "-")
    CASES.append(Case(name, api, made, list(steps), versions, user=user, **more))


def t(operation: AclOperation) -> Need:
    return TOPIC, operation


def g(operation: AclOperation) -> Need:
    return GROUP, operation


def x(operation: AclOperation) -> Need:
    return ID, operation


def c(operation: AclOperation) -> Need:
    return CLUSTER, operation
