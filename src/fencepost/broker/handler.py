"""What a handler declares about its API, so that nothing else has to know the fields of the request.

A declaration names the function that answers, the rights that a request needs (`rights.py`) and the `Shape` of a
request about many things. What follows from it is done in one place for all APIs: `rights.py` takes out of a request
what the caller has no right to and answers for it, `splitting.py` cuts a large request into parts, and an error about
the whole request is answered entry by entry where the protocol wants it so.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from types import GeneratorType, MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from fencepost.broker.connection import Call, Staged
from fencepost.broker.security.access import Access
from fencepost.promise import Promise
from fencepost.wire.acls import AclOperation, ResourceType
from fencepost.wire.errors import ErrorCode

if TYPE_CHECKING:
    from fencepost.broker.node import Node
    from fencepost.broker.slices import Steps

Function = Callable[["Node", Call, Any], Any]
"""Answers a request: with the response, a Promise of it, a `Staged` answer, a generator that returns one of these, or
None if the client wants no answer."""
ErrorAnswer = Callable[[Call, Any, ErrorCode], Any]
"""The response to a request that gets nothing but this error."""

# How many entries one part of a large request has.
PART_ENTRIES = 16
PAYLOAD_BYTES = 131_072
# Each part is written, or checkpointed, on its own: larger parts make fewer writes.
WRITTEN_PART_ENTRIES = 200
# Every entry writes a line to the journal and syncs it.
JOURNAL_PART_ENTRIES = 1
# The request means something only as a whole.
NEVER_SPLIT = 0

MESSAGES = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
}
"""Kafka's words, for responses with a field for them."""


class Shape(NamedTuple):
    """The array of a request that grows with the number of things asked about, and the array that answers it."""

    entries: str
    answers: str
    keys: tuple[str, ...] | None
    """The fields that name an entry; empty: the entry is itself a name or number; None: nothing names it."""
    inner: Shape | None = None
    """The array within each entry, such as the partitions of a topic."""
    part_entries: int = PART_ENTRIES
    answer: type[Any] | None = None
    """The class of an answer. Needed where an entry can be refused before the handler sees it."""
    answer_keys: tuple[str, ...] = ()
    """What the answer calls the keys, where that differs."""
    on_error: Mapping[str, Any] = MappingProxyType({})
    """What a refusal contains besides the keys and the error, where it is not the default of its field."""
    payload: str | None = None
    """The field of an entry that may be large: every `PAYLOAD_BYTES` of it count as an entry."""

    def weight(self, entries: Collection[Any]) -> int:
        """How many entries these count as when a request is cut into parts."""
        weight = len(entries)
        if self.payload is not None:
            weight += sum(len(getattr(entry, self.payload) or ()) for entry in entries) // PAYLOAD_BYTES
        return weight

    def refusals(self, entries: Iterable[Any], error: ErrorCode) -> list[Any]:
        """The answers to entries that get nothing but an error, which goes to the innermost entries."""
        assert self.answer is not None, f"it is not declared how {self.entries} are answered"
        answer, keys = self.answer, self.keys or ()
        fields = [(key, name) for key, name in zip(keys, self.answer_keys or keys, strict=False) if _has(answer, name)]
        refusals = []
        for entry in entries:
            values = dict(self.on_error)
            for key, name in fields:
                values[name] = getattr(entry, key)
            if not keys and self.answer_keys:
                values[self.answer_keys[0]] = entry
            if self.inner is not None:
                values[self.inner.answers] = self.inner.refusals(getattr(entry, self.inner.entries) or (), error)
            else:
                values["error_code"] = error
                if _has(answer, "error_message"):
                    values.setdefault("error_message", MESSAGES.get(error))
            refusals.append(answer(**values))
        return refusals


Check = Callable[[Access, Call, Any], ErrorCode]
"""A right that the request as a whole needs: NONE if the caller has it."""
Resource = tuple[AclOperation, ResourceType, str]
"""What an entry asks to do, and to what."""


class Repeated(enum.Enum):
    """What becomes of entries without the right that a request has more than once."""

    ANSWERED_EACH = "each gets its error"
    ANSWERED_ONCE = "one error for all of them"
    LEFT_TO_HANDLER = "to repeat an entry is an error in itself"


@dataclass(frozen=True, slots=True)
class Each:
    """The right to what each entry of the request's shape names."""

    resource_of: Callable[[Node, Call, Any], Resource | None]
    """None for an entry that the handler refuses for another reason, such as an unknown topic id."""
    instead: AclOperation | None = None
    """An operation on the cluster that is enough for all of them."""
    repeated: Repeated = Repeated.ANSWERED_EACH


Need = Check | Each
"""A right that a request needs; `rights.py` has the usual ones."""


class Handler(NamedTuple):
    function: Function
    pipelined: bool = False
    """The function has passed its append point when it returns: the connection's next request may start."""
    reads_only: bool = False
    """It changes nothing: what is left of it when the client is gone is dropped. Anything else is carried out."""
    shapes: tuple[Shape, ...] = ()
    """More than one where versions differ: the first that a request has entries of counts."""
    needs: tuple[Need, ...] | None = None
    """The rights to check before the function is called, in this order. Every API declares them."""
    on_error: ErrorAnswer | None = None
    """How a request is answered as a whole for which a right is missing."""
    is_answered: Callable[[Any], bool] = lambda request: True
    """Whether the client waits for an answer to this request. If not, an error ends its connection."""

    def shape_of(self, request: Any) -> Shape | None:
        for shape in self.shapes:
            if getattr(request, shape.entries):
                return shape
        return None


def completed(answer: Any, complete: Callable[[Any], Any]) -> Any:
    """What a handler's function returned, with `complete` applied to its response, now or when it is there."""
    kind = type(answer)
    if kind is Staged:
        return Staged(answer.appended, completed(answer.answer, complete))
    if kind is GeneratorType:
        return _completed_in_steps(answer, complete)
    if kind is not Promise:
        return complete(answer)
    promise: Promise[Any] = Promise()
    answer.then(lambda response: promise.resolve(complete(response)))
    return promise


def _completed_in_steps(steps: Steps[Any], complete: Callable[[Any], Any]) -> Steps[Any]:
    return completed((yield from steps), complete)


def _has(message: type[Any], field: str) -> bool:
    return field in message.__slots__
