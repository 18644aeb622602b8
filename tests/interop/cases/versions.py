"""What the brokers say they speak, and every version of the plain calls."""

from typing import Any

from tests.interop.cases.peer import Peer, case, comparable, fetch_request, produce_request
from tests.peers.batches import batch


@case
def produce_in_every_version(peer: Peer) -> Any:
    topic = peer.topic()
    found = []
    for version in range(3, 14):
        request = produce_request(topic, batch())
        if version >= 13:
            request["TopicData"][0] = {
                "TopicId": peer.topic_id(topic),
                "PartitionData": request["TopicData"][0]["PartitionData"],
            }
        found.append(comparable(peer.call("Produce", version, request)))
    return found


@case
def fetch_in_every_version(peer: Peer) -> Any:
    topic = peer.topic()
    peer.fill(topic, 2)
    found = []
    for version in range(4, 19):
        request = fetch_request(topic, 0)
        if version < 7:
            request.pop("SessionEpoch")
        if version >= 13:
            request["Topics"][0] = {"TopicId": peer.topic_id(topic), "Partitions": request["Topics"][0]["Partitions"]}
        found.append(comparable(peer.call("Fetch", version, request)))
    return found


@case
def list_offsets_in_every_version(peer: Peer) -> Any:
    topic = peer.topic()
    peer.fill(topic, 2)
    partitions = [{"PartitionIndex": 0, "Timestamp": timestamp} for timestamp in (-1,)]
    request = {"ReplicaId": -1, "Topics": [{"Name": topic, "Partitions": partitions}]}
    return [comparable(peer.call("ListOffsets", version, request)) for version in range(1, 12)]


@case
def plain_group_calls_in_every_version(peer: Peer) -> Any:
    group = peer.name("g")
    peer.settled("FindCoordinator", 2, {"Key": group, "KeyType": 0})
    calls: list[tuple[str, range, dict[str, Any]]] = [
        ("Heartbeat", range(5), {"GroupId": group, "GenerationId": 1, "MemberId": "m"}),
        ("LeaveGroup", range(3), {"GroupId": group, "MemberId": "m"}),
        ("LeaveGroup", range(3, 6), {"GroupId": group, "Members": [{"MemberId": "m"}]}),
        ("SyncGroup", range(5), {"GroupId": group, "GenerationId": 1, "MemberId": "m"}),
        ("DeleteGroups", range(3), {"GroupsNames": [group]}),
    ]
    return [comparable(peer.settled(api, version, message)) for api, versions, message in calls for version in versions]


@case
def plain_topic_calls_in_every_version(peer: Peer) -> Any:
    topic = peer.topic()
    deletion = {"Topics": [{"Name": topic, "Partitions": [{"PartitionIndex": 0, "Offset": 0}]}], "TimeoutMs": 5000}
    epochs = {"ReplicaId": -1, "Topics": [{"Topic": topic, "Partitions": [{"Partition": 0, "LeaderEpoch": 0}]}]}
    configs = {"Resources": [{"ResourceType": 2, "ResourceName": topic, "ConfigurationKeys": ["retention.ms"]}]}
    alter = {
        "Resources": [{"ResourceType": 2, "ResourceName": topic, "Configs": [{"Name": "retention.ms", "Value": "9"}]}]
    }
    grow = {"Topics": [{"Name": topic, "Count": 1}], "TimeoutMs": 5000}
    logs = {"Topics": [{"Topic": topic, "Partitions": [0]}]}
    calls: list[tuple[str, range, dict[str, Any]]] = [
        ("DeleteRecords", range(3), deletion),
        ("OffsetForLeaderEpoch", range(2, 5), epochs),
        ("DescribeConfigs", range(1, 5), configs),
        ("AlterConfigs", range(3), alter),
        ("IncrementalAlterConfigs", range(2), alter),
        ("CreatePartitions", range(4), grow),
        ("DescribeLogDirs", range(1, 6), logs),
        ("DescribeCluster", range(3), {}),
        ("ListConfigResources", range(1), {}),
        ("ApiVersions", range(3), {}),
    ]
    found = []
    for api, versions, message in calls:
        for version in versions:
            answer = comparable(peer.call(api, version, message))
            if isinstance(answer, dict):
                answer.pop("ApiKeys", None)
            found.append((api, version, answer))
    return found
