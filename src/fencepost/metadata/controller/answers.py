"""How refusals look in answers: Kafka's words for an error, or none where the words would only repeat the code."""

from fencepost.wire.errors import ErrorCode, KafkaError

GENERIC_MESSAGES = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
    ErrorCode.UNKNOWN_TOPIC_ID: "This server does not host this topic ID.",
    ErrorCode.ELECTION_NOT_NEEDED: "Leader election not needed for topic partition.",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "The preferred leader was not available.",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "Eligible topic partition leaders are not available.",
}
"""What Kafka says of an error that nobody said more about."""

RECORDS_PER_REQUEST_MAX = 10_000


def generic(code: ErrorCode) -> KafkaError:
    """With the words that belong to the code."""
    return KafkaError(code, GENERIC_MESSAGES[code])


def too_large() -> KafkaError:
    return KafkaError(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")
