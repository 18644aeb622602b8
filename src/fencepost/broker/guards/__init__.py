"""Before every handler where there is an authorizer: what of a request may pass, and what is said of the rest.

One file per family of APIs, like the handlers; each says in `GUARDS` which keys it guards. A guard hands its handler
the part of the request that the caller has the rights for, and adds what it refused to the answer, so that handlers
know nothing of ACLs. Without an authorizer none of this is in the way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fencepost.broker.connection import Call
from fencepost.broker.dispatch import Handler
from fencepost.broker.guards.visit import Guard, Visit
from fencepost.broker.security.access import Access
from fencepost.broker.security.authorizer import Authorizer
from fencepost.wire.catalog import ApiKey

if TYPE_CHECKING:
    from fencepost.broker.node import Node


def all_guards() -> dict[ApiKey, Guard | None]:
    """None: open to everybody."""
    from fencepost.broker.guards import cluster, configs, groups, offsets, records, topics, transactions

    families = (cluster, configs, groups, offsets, records, topics, transactions)
    return {key: guard for family in families for key, guard in family.GUARDS.items()}


def guarded(handlers: dict[ApiKey, Handler], authorizer: Authorizer) -> dict[ApiKey, Handler]:
    guards = all_guards()
    unguarded = handlers.keys() - guards.keys()
    assert not unguarded, f"nobody guards {unguarded}"
    return {
        key: handler if (guard := guards[key]) is None else _guarded(handler, guard, authorizer)
        for key, handler in handlers.items()
    }


def _guarded(handler: Handler, guard: Guard, authorizer: Authorizer) -> Handler:
    function = handler.function

    def handle(node: Node, call: Call, request: Any) -> Any:
        connection = call.connection
        access = connection.access
        if access is None or access.principal is not connection.principal:
            access = Access(authorizer, connection.principal, connection.peer_host, node.events.emit)
            connection.access = access
        return guard(Visit(node, call, access, function), request)

    return Handler(handle, handler.pipelined)
