"""From an error number in an answer to an exception, or to nothing."""

from fencepost.client.errors import BrokerError
from fencepost.wire.errors import ErrorCode, error_code

# Kafka calls these retriable because a new topic spreads slowly; for a question about a named one they are the answer.
NOT_THERE = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_ID})

# What a client knows of a partition's leader is stale.
STALE_LEADER = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REPLICA_NOT_AVAILABLE,
    }
)

STALE_COORDINATOR = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})


def check(number: int, subject: str, message: str | None = None) -> None:
    if number != ErrorCode.NONE:
        raise BrokerError(error_code(number), subject, message)
