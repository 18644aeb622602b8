"""Rights, checked where there is an authorizer: which requests pass, which of their entries do, and what the rest gets.

Each handler declares in `needs` what its API asks for; this module applies it. A right to the request as a whole comes
first (`OnCluster`, `Named`, or a function of the handler's own). `Each` then takes out of the request the entries that
the caller has no right to; the handler answers for those that are left, and the refusals come behind its answers, as in
Kafka. Where the rights decide what an answer may show, or what counts is known only while it is made, the handler asks
`call.access` itself and declares `IN_HANDLER`.

Without an authorizer, handlers are called directly and `call.access` is None.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from fencepost.broker.connection import Call, Connection
from fencepost.broker.handler import MESSAGES, Check, Each, Handler, Need, Repeated, Resource, Shape, completed
from fencepost.broker.security.access import Access
from fencepost.broker.security.authorizer import Authorizer
from fencepost.wire.acls import CLUSTER_NAME, SUPPORTED_OPERATIONS, AclOperation, ResourceType
from fencepost.wire.catalog import ApiKey, response_class
from fencepost.wire.errors import ErrorCode

if TYPE_CHECKING:
    from fencepost.broker.node import Node

ERRORS = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
_ALL_OPERATIONS = {
    resource_type: sum(1 << operation for operation in operations)
    for resource_type, operations in SUPPORTED_OPERATIONS.items()
}


# What a handler declares


@dataclass(frozen=True, slots=True)
class OnCluster:
    operation: AclOperation
    instead: AclOperation | None = None
    """Another operation that is enough."""

    def __call__(self, access: Access, call: Call, request: Any) -> ErrorCode:
        if self.instead is not None and access.could_cluster(self.instead):
            return ErrorCode.NONE
        return ErrorCode.NONE if access.may_cluster(self.operation) else ERRORS[ResourceType.CLUSTER]


@dataclass(frozen=True, slots=True)
class Named:
    """The right to the one resource that a field of the request names."""

    operation: AclOperation
    resource_type: ResourceType
    field: str

    def __call__(self, access: Access, call: Call, request: Any) -> ErrorCode:
        is_allowed = access.may(self.operation, self.resource_type, getattr(request, self.field))
        return ErrorCode.NONE if is_allowed else ERRORS[self.resource_type]


def each(
    operation: AclOperation,
    resource_type: ResourceType,
    field: str = "",
    *,
    topic_id_version: int | None = None,
    instead: AclOperation | None = None,
    repeated: Repeated = Repeated.ANSWERED_EACH,
) -> Each:
    """`field` names the resource; without it the entry is the name. From `topic_id_version` on topics have ids."""
    name_of: Callable[[Any], str] = attrgetter(field) if field else str

    def resource_of(node: Node, call: Call, entry: Any) -> Resource | None:
        if topic_id_version is not None and call.version >= topic_id_version:
            name = node.metadata.name_by_id(entry.topic_id)
            return None if name is None else (operation, resource_type, name)
        return operation, resource_type, name_of(entry)

    return Each(resource_of, instead, repeated)


def _checked_by_handler(access: Access, call: Call, request: Any) -> ErrorCode:
    return ErrorCode.NONE


OPEN: tuple[Need, ...] = ()
"""Anybody may ask."""
IN_HANDLER: tuple[Need, ...] = (_checked_by_handler,)
"""The handler asks `call.access`."""


# How a request is answered as a whole


def error_code(call: Call, request: Any, error: ErrorCode) -> Any:
    """By the error code, and the message if there is a field for it, of the response itself."""
    made = response_class(ApiKey(call.api_key))(error_code=error)
    if hasattr(made, "error_message"):
        made.error_message = MESSAGES.get(error)
    return made


def error_in_entries(shape: Shape) -> Callable[[Call, Any, ErrorCode], Any]:
    """By the same error for every entry of the request."""

    def answer(call: Call, request: Any, error: ErrorCode) -> Any:
        refusals = shape.refusals(getattr(request, shape.entries) or (), error)
        return response_class(ApiKey(call.api_key))(**{shape.answers: refusals})

    return answer


# For handlers that look at rights themselves


def authorized_operations(call: Call, resource_type: ResourceType, name: str) -> int:
    """What the caller may do to a resource, as the bits of a response. Without an authorizer that is everything."""
    if call.access is None:
        return _ALL_OPERATIONS[resource_type]
    return call.access.operations(resource_type, name)


def authorized_cluster_operations(call: Call) -> int:
    if call.access is not None and not call.access.may_cluster(AclOperation.DESCRIBE):
        return 0
    return authorized_operations(call, ResourceType.CLUSTER, CLUSTER_NAME)


# How declarations are applied


def with_rights(handlers: dict[ApiKey, Handler], authorizer: Authorizer) -> dict[ApiKey, Handler]:
    """The same handlers, each with what it needs checked first."""
    undeclared = [key.camel_name for key, handler in handlers.items() if handler.needs is None]
    assert not undeclared, f"no rights are declared for {', '.join(undeclared)}"
    return {key: _with_rights(handler, authorizer) if handler.needs else handler for key, handler in handlers.items()}


def _with_rights(handler: Handler, authorizer: Authorizer) -> Handler:
    needs = handler.needs or ()
    checks: list[Check] = [need for need in needs if not isinstance(need, Each)]
    of_each = next((need for need in needs if isinstance(need, Each)), None)

    def handle(node: Node, call: Call, request: Any) -> Any:
        access = _access_of(node, call.connection, authorizer)
        call.grant(access)
        for check in checks:
            error = check(access, call, request)
            if error is not ErrorCode.NONE:
                return _refused(handler, call, request, error)
        if of_each is not None:
            return _serve_allowed(handler, of_each, node, call, request)
        return handler.function(node, call, request)

    return handler._replace(function=handle)


def _access_of(node: Node, connection: Connection, authorizer: Authorizer) -> Access:
    access = connection.access
    if access is None or access.principal is not connection.principal:
        access = Access(authorizer, connection.principal, connection.peer_host, node.events.emit)
        connection.grant(access)
    return access


def _refused(handler: Handler, call: Call, request: Any, error: ErrorCode) -> Any:
    if not handler.is_answered(request):
        return end_unanswered(call)
    if handler.on_error is not None:
        return handler.on_error(call, request, error)
    shape = handler.shapes[0] if handler.shapes else None
    return (error_code if shape is None else error_in_entries(shape))(call, request, error)


def end_unanswered(call: Call) -> None:
    """The client does not wait for an answer: as in Kafka, only closing the connection can report an error."""
    call.connection.close("a request that wants no answer (acks=0) was refused")


def _serve_allowed(handler: Handler, of_each: Each, node: Node, call: Call, request: Any) -> Any:
    shape, access = handler.shape_of(request), call.access
    assert access is not None
    if shape is None or (of_each.instead is not None and access.could_cluster(of_each.instead)):
        return handler.function(node, call, request)
    allowed: list[Any] = []
    refused: list[tuple[Any, ErrorCode]] = []
    for entry in getattr(request, shape.entries):
        resource = of_each.resource_of(node, call, entry)
        if resource is None or access.may(*resource):
            allowed.append(entry)
        else:
            refused.append((entry, ERRORS[resource[1]]))
    if not refused:
        return handler.function(node, call, request)
    if of_each.repeated is not Repeated.ANSWERED_EACH:
        allowed, refused = _repeated_apart(of_each.repeated, shape, allowed, refused)
    setattr(request, shape.entries, allowed)
    if not handler.is_answered(request):
        handler.function(node, call, request)
        return end_unanswered(call)
    refusals = [answer for entry, error in refused for answer in shape.refusals((entry,), error)]
    if not allowed:
        # To some handlers a request without entries is one about everything.
        return response_class(ApiKey(call.api_key))(**{shape.answers: refusals})
    return completed(handler.function(node, call, request), partial(_with_refusals, shape.answers, refusals))


def _repeated_apart(
    repeated: Repeated, shape: Shape, allowed: list[Any], refused: list[tuple[Any, ErrorCode]]
) -> tuple[list[Any], list[tuple[Any, ErrorCode]]]:
    key_of: Callable[[Any], Any] = attrgetter(*shape.keys) if shape.keys else str
    if repeated is Repeated.ANSWERED_ONCE:
        return allowed, list({key_of(entry): (entry, error) for entry, error in refused}.values())
    counts = Counter(key_of(entry) for entry, _ in refused)
    allowed = allowed + [entry for entry, _ in refused if counts[key_of(entry)] > 1]
    return allowed, [(entry, error) for entry, error in refused if counts[key_of(entry)] == 1]


def _with_refusals(answers: str, refusals: list[Any], response: Any) -> Any:
    if not getattr(response, "error_code", 0):  # an error about the whole request says it all
        getattr(response, answers).extend(refusals)
    return response
