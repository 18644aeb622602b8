"""One request at its guard: who asks, with which rights, and the way on to the handler."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import GeneratorType
from typing import TYPE_CHECKING, Any, TypeVar

from fencepost.broker.connection import Call, Staged
from fencepost.broker.security.access import Access
from fencepost.broker.slices import Steps
from fencepost.promise import Promise
from fencepost.wire.acls import AclOperation, ResourceType
from fencepost.wire.errors import ErrorCode

if TYPE_CHECKING:
    from fencepost.broker.node import Node

T = TypeVar("T")

MESSAGES = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
}


@dataclass(slots=True, eq=False)
class Visit:
    node: Node
    call: Call
    access: Access
    _handle: Callable[[Node, Call, Any], Any]

    @property
    def version(self) -> int:
        return self.call.version

    def pass_on(self, request: Any, complete: Callable[[Any], Any] | None = None) -> Any:
        """What the handler answers; `complete` is given the message, now or when it comes, and returns what to send."""
        answer = self._handle(self.node, self.call, request)
        return answer if complete is None else _completed(answer, complete)

    def pass_on_with(self, request: Any, name: str, refusals: list[Any]) -> Any:
        """What the handler answers to the part that may pass, and in its list `name` the refusals of the rest."""

        def complete(response: Any) -> Any:
            getattr(response, name).extend(refusals)
            return response

        return self.pass_on(request, complete if refusals else None)

    def split(
        self,
        operation: AclOperation,
        resource_type: ResourceType,
        items: Iterable[T],
        name_of: Callable[[T], str | None] = lambda item: item.name,  # type: ignore[attr-defined]
    ) -> tuple[list[T], list[T]]:
        """Those that may pass and those that may not. One without a name (an id that nobody has) is the handler's."""
        allowed: list[T] = []
        refused: list[T] = []
        for item in items:
            name = name_of(item)
            is_allowed = name is None or self.access.may(operation, resource_type, name)
            (allowed if is_allowed else refused).append(item)
        return allowed, refused

    def name_by_id(self, topic_id: bytes) -> str | None:
        topic = self.node.metadata.topics_by_id.get(topic_id)
        return None if topic is None else topic.name


Guard = Callable[[Visit, Any], Any]


def _completed_in_slices(steps: Steps[Any], complete: Callable[[Any], Any]) -> Steps[Any]:
    return _completed((yield from steps), complete)


def _completed(answer: Any, complete: Callable[[Any], Any]) -> Any:
    if type(answer) is Staged:
        return Staged(answer.appended, _completed(answer.answer, complete))
    if type(answer) is GeneratorType:
        return _completed_in_slices(answer, complete)
    if type(answer) is not Promise:
        return complete(answer)
    completed: Promise[Any] = Promise()
    answer.then(lambda message: completed.resolve(complete(message)))
    return completed
