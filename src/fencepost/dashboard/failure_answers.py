"""Maps errors to a status code and two texts: what happened, and what to do."""

from typing import Any, NamedTuple

from fencepost.client.errors import (
    BrokerError,
    BrokerUnreachable,
    ClientError,
    NoLeader,
    RequestTimedOut,
    UnknownPartition,
    UnknownTopic,
)
from fencepost.dashboard.abort_action import PlanChanged
from fencepost.dashboard.page_context import BadParameter, NotThere
from fencepost.wire.errors import ErrorCode

_NOT_THERE = (
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
)
_FORBIDDEN = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)


class Failure(NamedTuple):
    status: int
    error: str
    next: str = ""

    def document(self) -> dict[str, Any]:
        return {"error": self.error, "next": self.next}


def failure_of(error: Exception) -> Failure:
    """Raises errors of the page itself again."""
    if isinstance(error, BadParameter):
        return Failure(400, str(error), "correct the URL")
    if isinstance(error, NotThere | UnknownTopic | UnknownPartition):
        return Failure(404, str(error), getattr(error, "advice", ""))
    if isinstance(error, PlanChanged):
        return Failure(409, str(error), "check again what an abort would do")
    if isinstance(error, BrokerUnreachable | RequestTimedOut | NoLeader):
        return Failure(503, str(error), error.advice)
    if isinstance(error, BrokerError):
        if error.code in _NOT_THERE:
            return Failure(404, str(error), error.advice)
        if error.code in _FORBIDDEN:
            return Failure(
                403, str(error), error.advice or "start the page with an account that is allowed to see this"
            )
        return Failure(503 if error.is_retriable else 502, str(error), error.advice)
    if isinstance(error, ClientError):
        return Failure(503 if error.is_retriable else 502, str(error), error.advice)
    raise error
