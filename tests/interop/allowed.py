"""Where Fencepost answers differently from Apache Kafka on purpose, and why. Everything else must be equal.

An entry that no longer differs fails the tests, so that this list cannot outlive its reasons.
"""

import re
from collections.abc import Iterable

# Topic settings that Fencepost does not have: tiered storage.
ABSENT_TOPIC_CONFIGS = {
    "remote.storage.enable",
    "remote.log.copy.disable",
    "remote.log.delete.on.disable",
    "local.retention.bytes",
    "local.retention.ms",
}

# Features of parts that Fencepost does not have: share and streams groups, KRaft's own metadata, the new groups.
ABSENT_FEATURES = {
    "eligible.leader.replicas.version",
    "group.version",
    "kraft.version",
    "metadata.version",
    "share.version",
    "streams.version",
}

# Case or step -> (paths that may differ, as a regular expression; why).
RAW: dict[str, tuple[str, str]] = {
    "more records counted than there are": (r"ErrorCode|BaseOffset", "records stay opaque on the common path"),
    "fewer records counted than there are": (r"ErrorCode|BaseOffset", "records stay opaque on the common path"),
    "a record body of rubbish": (r"ErrorCode", "INVALID_RECORD; Kafka fails inside and says UNKNOWN_SERVER_ERROR"),
    "an unknown compression": (r"\[.\]\.ErrorCode", "INVALID_RECORD; Kafka fails inside and says UNKNOWN_SERVER_ERROR"),
    "the same partition twice in a request": (
        r".*PartitionResponses",
        "we append both; Kafka drops one of them silently",
    ),
    "metadata by topic id": (
        r"\[2\]\..*",
        "neither name nor id: INVALID_REQUEST for the topic; Kafka fails inside and says UNKNOWN_SERVER_ERROR",
    ),
    "incremental alter configs with strange operations": (
        r"\[1\]\[0\]\.ErrorCode",
        "an unknown operation is INVALID_REQUEST; Kafka fails inside and says UNKNOWN_SERVER_ERROR",
    ),
    "topic settings at the edges of their ranges": (
        r"segment\.bytes=1048575|preallocate=(true|TRUE)",
        "small segments are allowed: a broker at the edge or in a test has little room, and ours cost little; "
        "what would do nothing is refused",
    ),
}

# Cases of test_transaction_parity.
TRANSACTIONS: dict[str, tuple[str, str]] = {
    "markers with odd numbers": (
        r"\[[01]\]\..*ErrorCode",
        "a marker of nobody is INVALID_REQUEST; Kafka fails inside and says UNKNOWN_SERVER_ERROR",
    ),
    "markers for the offsets of a group": (
        r"\[(1|8)\]\..*ErrorCode",
        "a marker of nobody is INVALID_REQUEST; Kafka fails inside and says UNKNOWN_SERVER_ERROR",
    ),
    "end by the epoch before although the last end did not raise it": (
        r"\[(3|4|9|10)\]\..*",
        "the epoch before belongs to a producer that was fenced; Kafka gives it the live producer's",
    ),
    "reading with limits on both sides of what is undecided": (
        r".*aborted",
        "we name the aborted transactions of what was read; Kafka rounds up to its next index entry",
    ),
}

ADMIN: dict[str, tuple[str, str]] = {
    "incrementalAlterConfigs: unknown broker setting": (
        r"answer",
        "Kafka keeps settings it does not know, for plug-ins; we have none",
    ),
}

_LIMITS_ARE_ON = "limits are on by default, and fixed at start"
_AT_START = "certificates are read again when their files change; other settings of a listener are read at the start"
_PEM = "keys and certificates are PEM; Java's stores are refused"
BROKER_SETTINGS: dict[str, str] = {
    "listener.security.protocol.map": "the peer has a listener for its controller; and it is a list",
    "sasl.enabled.mechanisms": "there is no GSSAPI, so none is on unless it is named",
    "ssl.client.auth": _AT_START,
    "ssl.enabled.protocols": _AT_START,
    "ssl.key.password": _AT_START,
    "ssl.keystore.certificate.chain": _AT_START,
    "ssl.keystore.key": _AT_START,
    "ssl.keystore.location": _AT_START,
    "ssl.keystore.password": _AT_START,
    "ssl.keystore.type": _PEM,
    "ssl.truststore.certificates": _AT_START,
    "ssl.truststore.location": _AT_START,
    "ssl.truststore.password": _AT_START,
    "ssl.truststore.type": _PEM,
    "max.connections": _LIMITS_ARE_ON,
    "max.connections.per.ip": _LIMITS_ARE_ON,
    "min.insync.replicas": "eligible leader replicas make it a dynamic default of the cluster",
}


# Library and method, as test_whole_api calls them.
_CREATED_AT_ONCE = "a topic that Metadata creates is there in the same answer; Kafka creates it meanwhile"
WHOLE_API: dict[str, tuple[str, str]] = {
    "kafka-python KafkaAdminClient.describe_metadata_quorum": (
        r"answer",
        "there is no quorum to describe: topics and settings are in a journal of the one broker",
    ),
    "confluent-kafka AdminClient.list_topics": (r"\[2\]\.topics\..*-missing\.(error|partitions\.0)", _CREATED_AT_ONCE),
}


def unexpected(lines: Iterable[str], rule: tuple[str, str] | None) -> list[str]:
    """The differences that no rule allows, and the rule itself if nothing needed it."""
    found = list(lines)
    if rule is None:
        return found
    pattern, reason = rule
    left = [line for line in found if not re.match(rf"({pattern}): ", line)]
    if len(left) == len(found):
        left.append(f"no longer different, strike it from the list: {pattern} ({reason})")
    return left
