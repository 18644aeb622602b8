"""Metadata and the topic calls over the raw protocol."""

import time
from typing import Any

from tests.interop.cases.peer import READY_TIMEOUT_SECONDS, Peer, case, comparable
from tests.peers.batches import batch
from tests.support.patience import patient

from tests.interop.cases.groups import commit  # isort: skip

TOPIC_CONFIG = 1
"""The source of a setting that was made for the topic."""

EDGES = {
    "cleanup.policy": ["", "delete,compact", "compact , delete", "delete,delete", "Delete", "none"],
    "compression.type": ["uncompressed", "none", "gzip", "GZIP"],
    "compression.gzip.level": ["-2", "-1", "0", "1", "9", "10"],
    "compression.lz4.level": ["0", "1", "17", "18"],
    "compression.zstd.level": ["-131073", "-131072", "0", "22", "23"],
    "delete.retention.ms": ["-1", "0"],
    "file.delete.delay.ms": ["-1", "0"],
    "flush.messages": ["0", "1", "9223372036854775807", "9223372036854775808"],
    "flush.ms": ["-1", "0"],
    "follower.replication.throttled.replicas": ["", "*", "0:1,1:1", "x", "0:1:2"],
    "index.interval.bytes": ["-1", "0"],
    "max.compaction.lag.ms": ["0", "1"],
    "max.message.bytes": ["-1", "0", "2147483647", "2147483648"],
    "message.timestamp.after.max.ms": ["-1", "0"],
    "message.timestamp.before.max.ms": ["-1", "0"],
    "message.timestamp.type": ["CreateTime", "LogAppendTime", "createtime"],
    "min.cleanable.dirty.ratio": ["-0.1", "0", "1", "1.1", "NaN", "half"],
    "min.compaction.lag.ms": ["-1", "0"],
    "min.insync.replicas": ["0", "1", "5"],
    "preallocate": ["true", "TRUE", "yes", ""],
    "retention.bytes": ["-2", "-1", "0"],
    "retention.ms": ["-2", "-1", "0", " 5 ", "5.0", "0x10", "+5", "1_000", ""],
    "segment.bytes": ["1048575", "1048576", "2147483647"],
    "segment.index.bytes": ["3", "4"],
    "segment.jitter.ms": ["-1", "0"],
    "segment.ms": ["0", "1"],
    "unclean.leader.election.enable": ["false", "maybe"],
}


def create(peer: Peer, version: int = 7, validate_only: bool = False, **topic: Any) -> Any:
    wanted = {"NumPartitions": 1, "ReplicationFactor": 1, **topic}
    answer = peer.call("CreateTopics", version, {"Topics": [wanted], "timeoutMs": 5000, "validateOnly": validate_only})
    found = comparable(answer)["Topics"][0]
    found.pop("Configs", None)
    return found


@case
def metadata_in_every_version(peer: Peer) -> Any:
    topic = peer.topic(partitions=2)
    found = []
    for version in range(14):
        asked = {"Topics": [{"Name": topic}, {"Name": peer.name("unknown")}]}
        if version >= 4:
            asked["AllowAutoTopicCreation"] = False  # type: ignore[assignment]
            found.append(comparable(peer.call("Metadata", version, asked)))
        else:
            asked["Topics"].pop()
            found.append(comparable(peer.call("Metadata", version, asked)))
    return found


@case
def metadata_of_all_and_of_no_topics(peer: Peer) -> Any:
    topic = peer.topic()

    def has_topic(version: int, topics: Any) -> bool:
        return topic in {found["Name"] for found in peer.call("Metadata", version, {"Topics": topics})["Topics"]}

    return [has_topic(0, []), has_topic(1, []), has_topic(1, None), has_topic(12, []), has_topic(12, None)]


@case
def metadata_of_invalid_names(peer: Peer) -> Any:
    names = ["", ".", "..", "no spaces", "x" * 250]
    return [
        comparable(peer.call("Metadata", 9, {"Topics": [{"Name": name}], "AllowAutoTopicCreation": allow}))["Topics"]
        for name in names
        for allow in (False, True)
    ]


@case
def metadata_of_the_same_topic_twice(peer: Peer) -> Any:
    topic = peer.topic()
    return comparable(peer.call("Metadata", 9, {"Topics": [{"Name": topic}, {"Name": topic}]}))["Topics"]


@case
def metadata_by_topic_id(peer: Peer) -> Any:
    topic = peer.topic()
    ids = [peer.topic_id(topic), "00000000-0000-0000-0000-0000000000ff"]
    return [
        comparable(peer.call("Metadata", 12, {"Topics": [{"TopicId": each, "Name": None}]}))["Topics"] for each in ids
    ] + [
        comparable(
            peer.call("Metadata", 12, {"Topics": [{"TopicId": "00000000-0000-0000-0000-000000000000", "Name": None}]})
        )
    ]


@case
def metadata_creates_a_topic_when_asked_to(peer: Peer) -> Any:
    name = peer.name("made")
    asked = {"Topics": [{"Name": name}], "AllowAutoTopicCreation": True}
    first = peer.call("Metadata", 9, asked)["Topics"][0]["ErrorCode"] in (0, 3, 5)
    deadline = time.monotonic() + READY_TIMEOUT_SECONDS
    while (found := peer.call("Metadata", 9, asked)["Topics"][0])["ErrorCode"] and time.monotonic() < deadline:
        time.sleep(0.05)
    return first, comparable(found)


@case
def metadata_with_authorized_operations(peer: Peer) -> Any:
    topic = peer.topic()
    asked = {"Topics": [{"Name": topic}], "IncludeTopicAuthorizedOperations": True}
    old = peer.call("Metadata", 8, {**asked, "IncludeClusterAuthorizedOperations": True})
    new = peer.call("Metadata", 12, asked)
    plain = peer.call("Metadata", 12, {"Topics": [{"Name": topic}]})
    return old["ClusterAuthorizedOperations"], [
        answer["Topics"][0]["TopicAuthorizedOperations"] for answer in (old, new, plain)
    ]


@case
def create_topics_in_every_version(peer: Peer) -> Any:
    return [create(peer, version, Name=peer.name(f"v{version}")) for version in range(2, 8)]


@case
def create_topics_that_cannot_be(peer: Peer) -> Any:
    topic = peer.topic()
    replicas = [{"PartitionIndex": 0, "BrokerIds": [1]}]
    return [
        create(peer, Name=topic),
        create(peer, Name=""),
        create(peer, Name="no spaces"),
        create(peer, Name="x" * 250),
        create(peer, Name=peer.name("a"), NumPartitions=0),
        create(peer, Name=peer.name("b"), NumPartitions=-3),
        create(peer, Name=peer.name("c"), ReplicationFactor=0),
        create(peer, Name=peer.name("d"), ReplicationFactor=9),
        create(peer, Name=peer.name("e"), NumPartitions=-1, ReplicationFactor=-1),
        create(peer, version=3, Name=peer.name("f"), NumPartitions=-1, ReplicationFactor=-1),
        create(peer, Name=peer.name("g"), Assignments=replicas),
        create(peer, Name=peer.name("h"), Configs=[{"Name": "nonsense", "Value": "1"}]),
        create(peer, Name=peer.name("i"), Configs=[{"Name": "retention.ms", "Value": None}]),
        create(peer, Name=peer.name("j"), Configs=[{"Name": "retention.ms", "Value": "x"}]),
        create(peer, Name=peer.name("k"), validate_only=True),
    ]


@case
def topic_settings_at_the_edges_of_their_ranges(peer: Peer) -> Any:
    name = peer.name("edges")
    return {
        f"{setting}={value}": create(peer, validate_only=True, Name=name, Configs=[{"Name": setting, "Value": value}])[
            "ErrorCode"
        ]
        for setting, values in EDGES.items()
        for value in values
    }


@case
def create_the_same_topic_twice_in_a_request(peer: Peer) -> Any:
    wanted = {"Name": peer.name("twice"), "NumPartitions": 1, "ReplicationFactor": 1}
    answer = comparable(peer.call("CreateTopics", 5, {"Topics": [wanted, wanted], "timeoutMs": 5000}))
    return [(topic["Name"], topic["ErrorCode"]) for topic in answer["Topics"]]


@case
def delete_topics_of_every_kind(peer: Peer) -> Any:
    first, second, third = peer.topic("a"), peer.topic("b"), peer.topic("c")
    third_id = peer.topic_id(third)

    def delete(version: int, **fields: Any) -> Any:
        answer = comparable(peer.call("DeleteTopics", version, {"TimeoutMs": 5000, **fields}))
        return sorted(answer["Responses"], key=str)

    return [
        delete(1, TopicNames=[first]),
        delete(5, TopicNames=[first, second, "no spaces"]),
        delete(6, Topics=[{"Name": None, "TopicId": third_id}]),
        delete(6, Topics=[{"Name": None, "TopicId": third_id}]),
        delete(6, Topics=[{"Name": first}]),
        delete(6, Topics=[{"Name": third, "TopicId": third_id}]),
        delete(6, Topics=[{"Name": None}]),
    ]


@case
def delete_topics_that_are_named_twice(peer: Peer) -> Any:
    """They stay, and each has one answer."""
    first, second, third = peer.topic("a"), peer.topic("b"), peer.topic("c")
    first_id = peer.topic_id(first)

    def delete(version: int, **fields: Any) -> Any:
        answer = comparable(peer.call("DeleteTopics", version, {"TimeoutMs": 5000, **fields}))
        return sorted(answer["Responses"], key=str)

    return [
        delete(5, TopicNames=[first, first, second]),
        delete(6, Topics=[{"Name": first}, {"Name": first}]),
        delete(6, Topics=[{"Name": None, "TopicId": first_id}, {"Name": None, "TopicId": first_id}]),
        delete(6, Topics=[{"Name": first}, {"Name": None, "TopicId": first_id}]),
        delete(6, Topics=[{"Name": None, "TopicId": first_id}, {"Name": first}]),
        peer.describe_topic(first)["ErrorCode"],
        peer.describe_topic(third)["ErrorCode"],
        delete(5, TopicNames=[peer.name("unknown"), peer.name("unknown")]),
    ]


@case
def a_deleted_topic_is_gone_for_producers_and_consumers(peer: Peer) -> Any:
    topic = peer.topic()
    peer.fill(topic, 2)
    commit(peer, peer.name("g"), topic, 1)
    peer.call("DeleteTopics", 5, {"TopicNames": [topic], "TimeoutMs": 5000})
    deadline = time.monotonic() + READY_TIMEOUT_SECONDS
    while peer.describe_topic(topic)["ErrorCode"] == 0 and time.monotonic() < deadline:
        time.sleep(0.02)
    return peer.describe_topic(topic)["ErrorCode"], peer.produce(topic, b"x")["ErrorCode"], peer.fetch(topic, 0)


@case
def create_partitions(peer: Peer) -> Any:
    topic = peer.topic(partitions=2)

    def grow(name: str, count: int, version: int = 3, **fields: Any) -> Any:
        wanted = {"Name": name, "Count": count, "Assignments": None, **fields}
        return comparable(peer.call("CreatePartitions", version, {"Topics": [wanted], "TimeoutMs": 5000}))["Results"]

    return [
        grow(topic, 3, 0), grow(topic, 3), grow(topic, 1), grow(topic, -1), grow(peer.name("unknown"), 2),
        grow(topic, 5, Assignments=[{"BrokerIds": [99]}]),
    ]  # fmt: skip


@case
def describe_topic_partitions(peer: Peer) -> Any:
    first, second = peer.topic("a", partitions=3), peer.topic("b", partitions=2)

    def ask(names: list[str], limit: int = 2000, cursor: Any = None) -> Any:
        request = {"Topics": [{"Name": name} for name in names], "ResponsePartitionLimit": limit, "Cursor": cursor}
        return comparable(peer.call("DescribeTopicPartitions", 0, request))

    return [
        ask([first, second]),
        ask([second, first], limit=2),
        ask([first, second], limit=2, cursor={"TopicName": first, "PartitionIndex": 2}),
        ask([peer.name("unknown")]),
        ask(["no spaces"]),
        ask([first], cursor={"TopicName": first, "PartitionIndex": -1}),
    ]


@case
def describe_configs_by_name_and_of_strange_resources(peer: Peer) -> Any:
    topic = peer.topic(retention_ms="5000")

    def ask(kind: int, name: str, keys: list[str] | None, version: int = 4, **fields: Any) -> Any:
        resource = {"ResourceType": kind, "ResourceName": name, "ConfigurationKeys": keys}
        return comparable(peer.call("DescribeConfigs", version, {"Resources": [resource], **fields}))["Results"]

    return [
        ask(2, topic, ["retention.ms", "nonsense"]),
        ask(2, topic, ["retention.ms"], version=1),
        ask(2, topic, ["retention.ms"], IncludeSynonyms=True),
        ask(2, topic, []),
        ask(2, "", ["retention.ms"]),
        ask(2, peer.name("unknown"), ["retention.ms"]),
        ask(4, "99", ["log.retention.ms"]),
        ask(4, "x", ["log.retention.ms"]),
        ask(99, "x", None),
        ask(0, "x", None),
    ]


@case
def alter_configs_the_old_way(peer: Peer) -> Any:
    topic = peer.topic(retention_ms="5000")

    def ask(kind: int, name: str, validate_only: bool = False, **configs: str | None) -> Any:
        settings = [{"Name": key.replace("_", "."), "Value": value} for key, value in configs.items()]
        resource = {"ResourceType": kind, "ResourceName": name, "Configs": settings}
        return comparable(peer.call("AlterConfigs", 2, {"Resources": [resource], "ValidateOnly": validate_only}))[
            "Responses"
        ]

    def overrides(expected: set[str]) -> Any:
        """Kafka's broker hears of a change of its controller a little after the client does."""
        resource = {"ResourceType": 2, "ResourceName": topic, "ConfigurationKeys": ["retention.ms", "segment.bytes"]}
        deadline = time.monotonic() + patient(20)
        while True:
            found = peer.call("DescribeConfigs", 4, {"Resources": [resource]})["Results"][0]["Configs"]
            named = {config["Name"] for config in found if config["ConfigSource"] == TOPIC_CONFIG}
            if named == expected or time.monotonic() > deadline:
                return sorted((config["Name"], config["Value"], config["ConfigSource"]) for config in found)
            time.sleep(0.02)

    return [
        ask(2, topic, segment_bytes="2000000"), overrides({"segment.bytes"}),
        ask(2, topic, validate_only=True, retention_ms="7"), overrides({"segment.bytes"}),
        ask(2, topic, retention_ms="x"), ask(2, topic, nonsense="1"), ask(2, topic, retention_ms=None),
        ask(2, peer.name("unknown"), retention_ms="1"), ask(77, "x", a="1"), ask(2, topic), overrides(set()),
    ]  # fmt: skip


@case
def incremental_alter_configs_with_strange_operations(peer: Peer) -> Any:
    topic = peer.topic()

    def ask(kind: int, name: str, operation: int, key: str = "retention.ms", value: str | None = "1000") -> Any:
        configs = [{"Name": key, "ConfigOperation": operation, "Value": value}]
        resource = {"ResourceType": kind, "ResourceName": name, "Configs": configs}
        return comparable(peer.call("IncrementalAlterConfigs", 1, {"Resources": [resource]}))["Responses"]

    return [
        ask(2, topic, 0),
        ask(2, topic, 9),
        ask(2, topic, 2),
        ask(2, topic, 3),
        ask(2, topic, 1),
        ask(77, "x", 0),
        ask(2, "", 0),
        ask(4, "99", 0),
    ]


@case
def describe_log_dirs(peer: Peer) -> Any:
    topic = peer.topic(partitions=2)
    peer.fill(topic, 1)

    def ask(version: int, partitions: list[int], name: str = topic) -> Any:
        answer = peer.call("DescribeLogDirs", version, {"Topics": [{"Topic": name, "Partitions": partitions}]})
        return comparable(answer)

    found = [ask(version, [0, 1, 7]) for version in (1, 4, 5)] + [ask(4, [0], peer.name("unknown")), ask(4, [])]
    for answer in found:
        for directory in answer.get("Results", []):
            directory["Topics"] = [
                {**each, "Partitions": sorted(each["Partitions"], key=lambda p: p["PartitionIndex"])}
                for each in directory["Topics"]
            ]
    return found


@case
def describe_cluster(peer: Peer) -> Any:
    return [
        comparable(peer.call("DescribeCluster", version, {"IncludeClusterAuthorizedOperations": version == 1}))
        for version in range(3)
    ] + [
        comparable(peer.call("DescribeCluster", 1, {"EndpointType": 2})),
        comparable(peer.call("DescribeCluster", 1, {"EndpointType": 9})),
    ]


@case
def calls_that_need_an_authorizer(peer: Peer) -> Any:
    any_filter = {"ResourceTypeFilter": 1, "PatternTypeFilter": 1, "Operation": 1, "PermissionType": 1}
    creation = {
        "ResourceType": 2,
        "ResourceName": "t",
        "ResourcePatternType": 3,
        "Principal": "User:a",
        "Host": "*",
        "Operation": 3,
        "PermissionType": 3,
    }
    return [
        comparable(peer.call("DescribeAcls", 3, any_filter)),
        comparable(peer.call("CreateAcls", 3, {"Creations": [creation]})),
        comparable(peer.call("DeleteAcls", 3, {"Filters": [any_filter]})),
        comparable(peer.call("DescribeClientQuotas", 1, {"Components": [], "Strict": False})),
    ]


@case
def electing_leaders_of_what_is_and_what_is_not(peer: Peer) -> Any:
    topic, unknown = peer.topic(partitions=2), peer.name("unknown")
    asked = [
        {"Topic": topic, "Partitions": [-1, 0, 1, 2, -(2**31)]},
        {"Topic": topic, "Partitions": [0, 0]},
        {"Topic": unknown, "Partitions": [-1, 0]},
        {"Topic": "", "Partitions": [0]},
    ]
    answers = [
        comparable(
            peer.call("ElectLeaders", version, {"ElectionType": kind, "TopicPartitions": asked, "TimeoutMs": 5000})
        )
        for version, kinds in ((0, (0,)), (1, (0, 1)), (2, (0, 1, 2, -1)))
        for kind in kinds
    ]
    every = peer.call("ElectLeaders", 2, {"ElectionType": 0, "TopicPartitions": None, "TimeoutMs": 5000})
    of_all = [each for each in every["ReplicaElectionResults"] if each["Topic"] == topic]
    return answers, every["ErrorCode"], of_all


@case
def more_replicas_wanted_in_sync_than_there_are(peer: Peer) -> Any:
    """Both brokers want no more of them than the partition has."""
    topic = peer.topic(min_insync_replicas="3")
    return [peer.produce(topic, batch([b"x"]), acks=acks) for acks in (-1, 1)]


@case
def settings_of_groups_and_of_nobody(peer: Peer) -> Any:
    answers = []
    for kind in (32, 16):
        described = {"ResourceType": kind, "ResourceName": "", "ConfigurationKeys": None}
        found = peer.call("DescribeConfigs", 4, {"Resources": [described]})["Results"][0]
        answers.append((found["ErrorCode"], found["ErrorMessage"], found["Configs"]))
    for name, configs in (("", ["nonsense"]), (peer.name("g"), ["nonsense"]), (peer.name("g"), [])):
        for api, operation in (("IncrementalAlterConfigs", {"ConfigOperation": 0}), ("AlterConfigs", {})):
            entries = [{"Name": each, "Value": "1", **operation} for each in configs]
            resource = {"ResourceType": 32, "ResourceName": name, "Configs": entries}
            answers.append(peer.call(api, 1, {"Resources": [resource]})["Responses"])
    return answers


@case
def settings_in_coarser_units_behind_the_finer(peer: Peer) -> Any:
    """Named as synonyms, and only where the finer one has a value."""
    topic = peer.topic(retention_ms="777777")
    names = ["log.retention.ms", "log.retention.minutes", "log.retention.hours", "log.roll.ms", "log.roll.hours"]
    wanted = [
        {"ResourceType": 4, "ResourceName": "1", "ConfigurationKeys": [*names, "log.roll.jitter.ms", "broker.rack"]},
        {"ResourceType": 2, "ResourceName": topic, "ConfigurationKeys": ["retention.ms", "segment.ms", "flush.ms"]},
    ]
    found = peer.call("DescribeConfigs", 4, {"Resources": wanted, "IncludeSynonyms": True})["Results"]
    return [sorted(each["Configs"], key=lambda config: config["Name"]) for each in found]


@case
def replicas_to_be_moved(peer: Peer) -> Any:
    """There is one broker with one directory: only asking for where a replica is can succeed."""
    topic = peer.topic(partitions=2)
    path = peer.call("DescribeLogDirs", 4, {"Topics": None})["Results"][0]["LogDir"]

    def assign(version: int, name: str, *wanted: tuple[int, list[int] | None], **fields: Any) -> Any:
        partitions = [{"PartitionIndex": index, "Replicas": replicas} for index, replicas in wanted]
        request = {"TimeoutMs": 5000, "Topics": [{"Name": name, "Partitions": partitions}], **fields}
        return comparable(peer.call("AlterPartitionReassignments", version, request))

    def move(version: int, *wanted: tuple[str, str, list[int]]) -> Any:
        dirs = [{"Path": where, "Topics": [{"Name": name, "Partitions": some}]} for where, name, some in wanted]
        answer = comparable(peer.call("AlterReplicaLogDirs", version, {"Dirs": dirs}))
        # Kafka answers in the order of a hash table.
        return sorted(
            (result["TopicName"], each["PartitionIndex"], each["ErrorCode"])
            for result in answer["Results"]
            for each in result["Partitions"]
        )

    return [
        assign(0, topic, (0, [1]), (1, None), (0, []), (0, [1, 1]), (2, [1])),
        assign(1, topic, (0, [1]), (0, [1, 7]), AllowReplicationFactorChange=False),
        assign(1, peer.name("missing"), (0, [1]), (0, None)),
        assign(1, topic),
        comparable(peer.call("AlterPartitionReassignments", 1, {"TimeoutMs": 5000, "Topics": []})),
        move(1, (path, topic, [0, 1, 2, -1])),
        move(2, (path, topic, [0]), ("/no/such/directory", topic, [1])),
        move(2, ("/no/such/directory", topic, [0]), (path, topic, [0])),
        # The name of the directory by way of which Kafka moves a replica would be too long.
        move(2, (path, "x" * 230, [0]), ("/no/such/directory", "x" * 230, [1]), (path, "x" * 213, [0, 12])),
        move(2, (path, peer.name("missing"), [0]), ("", topic, [1])),
        move(2),
    ]
