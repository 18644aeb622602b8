"""Functions of handlers whose requests a coordinator answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fencepost.broker.connection import Call
from fencepost.broker.coordinator_host import CoordinatorHost
from fencepost.broker.handler import Function
from fencepost.broker.slices import Steps
from fencepost.coordinators.context import Caller
from fencepost.coordinators.transactions.ghosts import DropConnection
from fencepost.ports import Now
from fencepost.promise import Promise

if TYPE_CHECKING:
    from fencepost.broker.node import Node

Method = Callable[[Any, Any, int, Caller, Now], Promise[Any]]
MethodInSteps = Callable[[Any, Any, int, Caller, Now], Steps[Any]]


def caller_of(call: Call) -> Caller:
    connection = call.connection
    return Caller(call.client_id or "", connection.peer_host, connection.number)


def routed(host_of: Callable[[Node], CoordinatorHost[Any]], method: Method) -> Function:
    """Hands the request to a coordinator's method."""

    def handle(node: Node, call: Call, request: Any) -> Any:
        host = host_of(node)
        answer = method(host.coordinator, request, call.version, caller_of(call), host.now())
        return answer.value if answer.done else answer

    return handle


def routed_in_slices(host_of: Callable[[Node], CoordinatorHost[Any]], method: MethodInSteps) -> Function:
    """The same for a method whose work grows with what there is to tell."""

    def handle(node: Node, call: Call, request: Any) -> Any:
        host = host_of(node)
        return method(host.coordinator, request, call.version, caller_of(call), host.now())

    return handle


def routed_or_dropped(
    host_of: Callable[[Node], CoordinatorHost[Any]], method: Method, in_steps: MethodInSteps | None = None
) -> Function:
    """The same for calls that may come late, on a connection that the client has replaced: those get no answer, and
    the connection is closed.

    `in_steps` is the method for large requests, where they may take long."""

    def handle(node: Node, call: Call, request: Any) -> Any:
        host = host_of(node)
        if in_steps is not None and call.is_large:
            steps = in_steps(host.coordinator, request, call.version, caller_of(call), host.now())
            return _sliced_unless_dropped(call, steps)
        answer = method(host.coordinator, request, call.version, caller_of(call), host.now())
        if answer.done:
            message = answer.value
            if type(message) is not DropConnection:
                return message
        return _unless_dropped(call, answer)

    return handle


def _sliced_unless_dropped(call: Call, steps: Steps[Any]) -> Steps[Any]:
    message = yield from steps
    return _unless_dropped(call, Promise.resolved(message)) if type(message) is DropConnection else message


def _unless_dropped(call: Call, answer: Promise[Any]) -> Promise[Any]:
    reply: Promise[Any] = Promise()

    def answered(message: Any) -> None:
        if type(message) is DropConnection:
            call.connection.close("a delayed call on a connection that its client has replaced")
        else:
            reply.resolve(message)

    answer.then(answered)
    return reply
