"""Metadata, and the calls that make, change and delete topics."""

from typing import Any

from fencepost.wire.acls import AclPermissionType, PatternType
from tests.security_acls.matrix import OP, TOPIC, Names, c, case, t
from tests.security_acls.scene import Right


def shown(names: Names, version: int) -> dict[str, Any]:
    wanted = {"Topics": [{"Name": names.topic}], "AllowAutoTopicCreation": False}
    if version >= 8:
        wanted["IncludeTopicAuthorizedOperations"] = True
    if 8 <= version <= 10:
        wanted["IncludeClusterAuthorizedOperations"] = True
    return wanted


case("metadata", "Metadata", shown, [t(OP.DESCRIBE)], [t(OP.READ), c(OP.DESCRIBE)])
case(
    "metadata by id",
    "Metadata",
    lambda n, v: {"Topics": [{"TopicId": n.topic_id, "Name": None}]},
    [t(OP.DESCRIBE)],
    low=12,
)
case(
    "metadata of all topics",
    "Metadata",
    lambda n, v: {"Topics": None if v else []},
    [t(OP.DESCRIBE)],
    keeps="metadata-of-all-topics",
)
case(
    "metadata of a topic to be made",
    "Metadata",
    lambda n, v: {"Topics": [{"Name": f"{n.topic}-new"}], "AllowAutoTopicCreation": True},
    [lambda n: Right(OP.DESCRIBE, TOPIC, f"{n.topic}-new")],
    [lambda n: Right(OP.CREATE, TOPIC, f"{n.topic}-new")],
    until=2,
)
case(
    "metadata with the right through a prefix",
    "Metadata",
    shown,
    [lambda n: Right(OP.DESCRIBE, TOPIC, n.topic[:-2], PatternType.PREFIXED)],
)
case("metadata with the right through a wildcard", "Metadata", shown, [lambda n: Right(OP.WRITE, TOPIC, "*")])
case(
    "metadata with a right from another host",
    "Metadata",
    shown,
    [lambda n: Right(OP.ALL, TOPIC, n.topic, host="127.0.0.2")],
    [lambda n: Right(OP.ALL, TOPIC, n.topic, host="127.0.0.1")],
    low=12,
)
case(
    "metadata denied",
    "Metadata",
    shown,
    [t(OP.ALL)],
    [lambda n: Right(OP.DESCRIBE, TOPIC, n.topic, permission=AclPermissionType.DENY)],
    low=12,
)
case(
    "metadata with another operation denied",
    "Metadata",
    shown,
    [t(OP.ALL)],
    [lambda n: Right(OP.READ, TOPIC, n.topic[:4], PatternType.PREFIXED, AclPermissionType.DENY)],
    low=12,
)
case(
    "describe topic partitions",
    "DescribeTopicPartitions",
    lambda n, v: {"Topics": [{"Name": n.topic}, {"Name": f"{n.topic}-unknown"}]},
    [t(OP.DESCRIBE)],
    [t(OP.ALTER)],
)
case(
    "describe topic partitions of all",
    "DescribeTopicPartitions",
    {"Topics": []},
    [t(OP.DESCRIBE)],
    keeps="describe-topic-partitions-of-all",
)


def creatable(names: Names, version: int) -> dict[str, Any]:
    topic = {"Name": f"{names.topic}-new", "NumPartitions": 1, "ReplicationFactor": 1}
    return {"Topics": [topic], "timeoutMs": 5000, "validateOnly": True}


case(
    "create topics",
    "CreateTopics",
    creatable,
    [lambda n: Right(OP.CREATE, TOPIC, f"{n.topic}-new")],
    [lambda n: Right(OP.DESCRIBE_CONFIGS, TOPIC, f"{n.topic}-new")],
)
case("create topics by a right on the cluster", "CreateTopics", creatable, [c(OP.CREATE)])


def deletable(names: Names, version: int) -> dict[str, Any]:
    if version >= 6:
        return {"Topics": [{"Name": names.topic}, {"Name": f"{names.topic}-unknown"}], "TimeoutMs": 5000}
    return {"TopicNames": [names.topic, f"{names.topic}-unknown"], "TimeoutMs": 5000}


case(
    "delete topics",
    "DeleteTopics",
    deletable,
    [lambda n: Right(OP.DESCRIBE, TOPIC, n.topic, PatternType.PREFIXED)],
    [t(OP.DELETE)],
)
case(
    "delete topics by id",
    "DeleteTopics",
    lambda n, v: {"Topics": [{"TopicId": n.topic_id, "Name": None}], "TimeoutMs": 5000},
    [t(OP.DESCRIBE)],
    [t(OP.DELETE)],
    low=6,
)
case(
    "create partitions",
    "CreatePartitions",
    lambda n, v: {
        "Topics": [{"Name": n.topic, "Count": 2, "Assignments": None}],
        "TimeoutMs": 5000,
        "ValidateOnly": True,
    },
    [t(OP.ALTER)],
)
