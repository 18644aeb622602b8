"""Groups and their offsets; FindCoordinator."""

from typing import Any

from tests.peers.raw import RawClient
from tests.security_acls.matrix import OP, Body, Names, c, case, g, t, x
from tests.security_acls.scene import settled


def committed(names: Names, version: int) -> dict[str, Any]:
    topic = {"Name": names.topic} if version < 10 else {"TopicId": names.topic_id}
    parts = [{"PartitionIndex": 0, "CommittedOffset": 5, "CommittedMetadata": ""}]
    return {
        "GroupId": names.group,
        "GenerationIdOrMemberEpoch": -1,
        "RetentionTimeMs": -1,
        "Topics": [{**topic, "Partitions": parts}],
    }


def with_offsets(root: RawClient, names: Names) -> None:
    """A group that has committed offsets of two topics."""
    parts = [{"PartitionIndex": 0, "CommittedOffset": 5, "CommittedMetadata": ""}]
    topics = [{"Name": name, "Partitions": parts} for name in (names.topic, names.second)]
    answer = settled(
        root, "OffsetCommit", 8, {"GroupId": names.group, "GenerationIdOrMemberEpoch": -1, "Topics": topics}
    )
    assert all(part["ErrorCode"] == 0 for topic in answer["Topics"] for part in topic["Partitions"]), answer


def offsets_wanted(everything: bool) -> Body:
    def body(names: Names, version: int) -> dict[str, Any]:
        by_name = {"Name": names.topic} if version < 10 else {"TopicId": names.topic_id}
        topics = None if everything else [{**by_name, "PartitionIndexes": [0]}]
        if version < 8:
            return {"GroupId": names.group, "Topics": topics}
        return {"Groups": [{"GroupId": names.group, "Topics": topics}]}

    return body


case("offset commit", "OffsetCommit", committed, [g(OP.READ)], [t(OP.READ)])
case("offset commit the other way round", "OffsetCommit", committed, [t(OP.READ)], [g(OP.DESCRIBE)], [g(OP.READ)])
case("offset fetch", "OffsetFetch", offsets_wanted(False), [g(OP.DESCRIBE)], [t(OP.DESCRIBE)], prepare=with_offsets)
case(
    "offset fetch of everything",
    "OffsetFetch",
    offsets_wanted(True),
    [g(OP.DESCRIBE)],
    [t(OP.DESCRIBE)],
    prepare=with_offsets,
    low=2,
)
case(
    "offset delete",
    "OffsetDelete",
    lambda n, v: {"GroupId": n.group, "Topics": [{"Name": n.topic, "Partitions": [{"PartitionIndex": 0}]}]},
    [g(OP.DELETE)],
    [t(OP.READ)],
    prepare=with_offsets,
)
for _kind, _name, _need in ((0, "group", g(OP.DESCRIBE)), (1, "transaction", x(OP.DESCRIBE))):
    case(
        f"find coordinator of a {_name}",
        "FindCoordinator",
        lambda n, v, kind=_kind: {
            "Key": n.id if kind else n.group,
            "KeyType": kind,
            **({"CoordinatorKeys": [n.id if kind else n.group, "somebody-else"]} if v >= 4 else {}),
        },
        [_need],
        low=_kind,
    )
case(
    "join group",
    "JoinGroup",
    lambda n, v: {
        "GroupId": n.group,
        "SessionTimeoutMs": 1,
        "RebalanceTimeoutMs": 1,
        "ProtocolType": "consumer",
        "Protocols": [{"Name": "range", "Metadata": b""}],
    },
    [g(OP.DESCRIBE)],
    [g(OP.READ)],
)
_MEMBER = {"GenerationId": 1, "MemberId": "nobody"}
case(
    "sync group",
    "SyncGroup",
    lambda n, v: {"GroupId": n.group, **_MEMBER, "ProtocolType": "consumer", "ProtocolName": "range"},
    [g(OP.READ)],
)
case("heartbeat", "Heartbeat", lambda n, v: {"GroupId": n.group, **_MEMBER}, [g(OP.READ)])
case(
    "leave group",
    "LeaveGroup",
    lambda n, v: {"GroupId": n.group, **({"MemberId": "nobody"} if v < 3 else {"Members": [{"MemberId": "nobody"}]})},
    [g(OP.READ)],
)
case(
    "describe groups",
    "DescribeGroups",
    lambda n, v: {"Groups": [n.group], "IncludeAuthorizedOperations": v >= 3},
    [g(OP.DESCRIBE)],
    [g(OP.DELETE)],
    prepare=with_offsets,
)
case("list groups", "ListGroups", {}, [g(OP.DESCRIBE)], prepare=with_offsets, keeps="list-groups-group")
case(
    "list groups by a right on the cluster",
    "ListGroups",
    {},
    [c(OP.DESCRIBE)],
    prepare=with_offsets,
    keeps="list-groups-by-a-right",
)
case(
    "delete groups",
    "DeleteGroups",
    lambda n, v: {"GroupsNames": [n.group]},
    [g(OP.READ)],
    [g(OP.DELETE)],
    prepare=with_offsets,
)
