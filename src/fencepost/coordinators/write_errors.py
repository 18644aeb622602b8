"""The error that a client gets when an append to an internal topic failed: the log's, in the coordinator's terms."""

from fencepost.wire.errors import ErrorCode

_UNAVAILABLE = dict.fromkeys(
    (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT),
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)
_MOVED = dict.fromkeys((ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR), ErrorCode.NOT_COORDINATOR)
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_FETCH_SIZE)

_FOR_MEMBERS = {**_UNAVAILABLE, **_MOVED, **dict.fromkeys(_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR)}
_FOR_COMMITS = {
    **_UNAVAILABLE,
    **_MOVED,
    **dict.fromkeys(_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
    # Verifying a transaction may fail this way, which older clients do not expect; this one makes them try again.
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}


_FOR_TRANSACTIONS = {
    **_UNAVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    **_MOVED,
    **dict.fromkeys(_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
}


def error_for_transactions(error: ErrorCode) -> ErrorCode:
    """For the calls of transactional producers."""
    return _FOR_TRANSACTIONS.get(error, error)


def error_for_members(error: ErrorCode) -> ErrorCode:
    """For joins and syncs."""
    return _FOR_MEMBERS.get(error, error)


def error_for_commits(error: ErrorCode) -> ErrorCode:
    """For the other calls of groups."""
    return _FOR_COMMITS.get(error, error)
