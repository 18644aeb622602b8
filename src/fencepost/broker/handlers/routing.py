"""Functions of handlers whose requests a coordinator answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fencepost.broker.connection import Call
from fencepost.broker.coordinator_host import CoordinatorHost
from fencepost.broker.handler import Function
from fencepost.broker.slices import Steps
from fencepost.coordinators.context import Caller
from fencepost.ports import Now
from fencepost.promise import Promise

if TYPE_CHECKING:
    from fencepost.broker.node import Node

Method = Callable[[Any, Any, int, Caller, Now], Promise[Any]]
MethodInSteps = Callable[[Any, Any, int, Caller, Now], Steps[Any]]


def routed(host_of: Callable[[Node], CoordinatorHost[Any]], method: Method) -> Function:
    """Hands the request to a coordinator's method."""

    def handle(node: Node, call: Call, request: Any) -> Any:
        host = host_of(node)
        answer = method(host.coordinator, request, call.version, call.caller, host.now())
        return answer.value if answer.done else answer

    return handle


def routed_in_slices(host_of: Callable[[Node], CoordinatorHost[Any]], method: MethodInSteps) -> Function:
    """The same for a method whose work grows with the size of its answer."""

    def handle(node: Node, call: Call, request: Any) -> Any:
        host = host_of(node)
        return method(host.coordinator, request, call.version, call.caller, host.now())

    return handle
