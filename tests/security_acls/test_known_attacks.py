"""What once got past Apache Kafka's ACLs, and what must never get past ours; on living connections."""

from typing import Any

import pytest

from fencepost.wire.acls import CLUSTER_NAME, AclOperation, AclPermissionType, PatternType, ResourceType
from tests.interop.cases.peer import fetch_request, produce_request
from tests.peers.batches import TRANSACTIONAL, batch
from tests.peers.raw import RawClient
from tests.security_acls.scene import AskingFencepost, Right, connect, grant, revoke, settled

OP, TOPIC, ID = AclOperation, ResourceType.TOPIC, ResourceType.TRANSACTIONAL_ID
UNKNOWN_MAPPING = 49
TOPIC_REFUSED, GROUP_REFUSED, CLUSTER_REFUSED, ID_REFUSED = 29, 30, 31, 53


def make_topic(root: RawClient, name: str) -> str:
    wanted = [{"Name": name, "NumPartitions": 1, "ReplicationFactor": 1}]
    made = root.call("CreateTopics", 5, {"Topics": wanted, "timeoutMs": 10_000})
    assert made["Topics"][0]["ErrorCode"] == 0, made
    return name


def produced(client: RawClient, topic: str, records: bytes, version: int = 9, **fields: Any) -> int:
    answer = client.call("Produce", version, produce_request(topic, records, **fields))
    code: int = answer["Responses"][0]["PartitionResponses"][0]["ErrorCode"]
    return code


def fetched(client: RawClient, topic: str, version: int = 12, **fields: Any) -> tuple[int, bytes]:
    answer = client.call("Fetch", version, fetch_request(topic, 0, **fields))
    (part,) = answer["Responses"][0]["Partitions"]
    return part["ErrorCode"], part["Records"] or b""


def end_offset(root: RawClient, topic: str) -> int:
    wanted = [{"Name": topic, "Partitions": [{"PartitionIndex": 0, "Timestamp": -1}]}]
    answer = root.call("ListOffsets", 5, {"ReplicaId": -1, "Topics": wanted})
    found: int = answer["Topics"][0]["Partitions"][0]["Offset"]
    return found


def test_cve_2018_17196_a_crafted_produce_does_not_get_around_the_transactional_id(
    broker: AskingFencepost, root: RawClient, user: str
) -> None:
    """Whoever may write to a topic may not write in a transaction for that, however the request is made up."""
    topic, victim = make_topic(root, f"{user}-topic"), f"{user}-victim"
    made = settled(root, "InitProducerId", 4, {"TransactionalId": victim, "TransactionTimeoutMs": 60_000})
    assert made["ErrorCode"] == 0, made
    grant(root, [(user, Right(OP.WRITE, TOPIC, topic)), (user, Right(OP.WRITE, ID, f"{user}-own"))])
    in_transaction = batch(
        [b"forged"],
        attributes=TRANSACTIONAL,
        producer_id=made["ProducerId"],
        producer_epoch=made["ProducerEpoch"],
        base_sequence=0,
    )
    with connect(broker, user) as client:
        for version in range(3, 13):
            assert produced(client, topic, in_transaction, version, TransactionalId=victim) == ID_REFUSED
            assert produced(client, topic, in_transaction, version, TransactionalId=None) == ID_REFUSED
        # Behind a batch that is none of a transaction's: every batch counts, not the first.
        data = [{"Index": 0, "Records": records} for records in (batch([b"plain"]), in_transaction)]
        request = {"Acks": -1, "TimeoutMs": 5000, "TopicData": [{"Name": topic, "PartitionData": data}]}
        for transactional_id in (victim, None):
            answer = client.call("Produce", 9, {**request, "TransactionalId": transactional_id})
            codes = [part["ErrorCode"] for part in answer["Responses"][0]["PartitionResponses"]]
            assert codes == [ID_REFUSED, ID_REFUSED]
        # Under an own id, with somebody else's producer: the coordinator knows whose it is.
        assert produced(client, topic, in_transaction, 9, TransactionalId=f"{user}-own") != 0
    assert end_offset(root, topic) == 0


@pytest.mark.parametrize(("version", "commit_version"), [(11, 4), (12, 5)])
def test_an_open_transaction_takes_nothing_under_another_transactional_id(
    broker: AskingFencepost, root: RawClient, user: str, version: int, commit_version: int
) -> None:
    """The intruder may write to the topic, to the group and under its own id, and knows the victim's producer."""
    topic, group = make_topic(root, f"{user}-topic"), f"{user}-group"
    victim, own = f"{user}-victim", f"{user}-own"
    made = settled(root, "InitProducerId", 4, {"TransactionalId": victim, "TransactionTimeoutMs": 60_000})
    assert made["ErrorCode"] == 0, made
    identity = {"ProducerId": made["ProducerId"], "ProducerEpoch": made["ProducerEpoch"]}
    if version < 12:
        added = {
            "V3AndBelowTransactionalId": victim,
            "V3AndBelowProducerId": made["ProducerId"],
            "V3AndBelowProducerEpoch": made["ProducerEpoch"],
            "V3AndBelowTopics": [{"Name": topic, "Partitions": [0]}],
        }
        assert settled(root, "AddPartitionsToTxn", 3, added)["ResultsByTopicV3AndBelow"][0]["Name"] == topic
        settled(root, "AddOffsetsToTxn", 3, {"TransactionalId": victim, "GroupId": group, **identity})

    def in_transaction(sequence: int) -> bytes:
        return batch(
            [b"%d" % sequence],
            attributes=TRANSACTIONAL,
            producer_id=made["ProducerId"],
            producer_epoch=made["ProducerEpoch"],
            base_sequence=sequence,
        )

    def committed(client: RawClient, transactional_id: str, offset: int) -> int:
        offsets = [{"Name": topic, "Partitions": [{"PartitionIndex": 0, "CommittedOffset": offset}]}]
        request = {"TransactionalId": transactional_id, "GroupId": group, **identity, "Topics": offsets}
        answer = settled(client, "TxnOffsetCommit", commit_version, request)
        code: int = answer["Topics"][0]["Partitions"][0]["ErrorCode"]
        return code

    assert produced(root, topic, in_transaction(0), version, TransactionalId=victim) == 0
    assert committed(root, victim, 1) == 0
    rights = [Right(OP.WRITE, TOPIC, topic), Right(OP.READ, TOPIC, topic), Right(OP.WRITE, ID, own)]
    grant(root, [(user, right) for right in (*rights, Right(OP.READ, ResourceType.GROUP, group))])
    with connect(broker, user) as intruder:
        for name in (own, f"{user}-unused"):
            assert produced(intruder, topic, in_transaction(1), version, TransactionalId=name) != 0
            assert committed(intruder, name, 666) != 0
        opened = settled(intruder, "InitProducerId", 4, {"TransactionalId": own, "TransactionTimeoutMs": 60_000})
        assert opened["ErrorCode"] == 0, opened
        assert produced(intruder, topic, in_transaction(1), version, TransactionalId=own) == UNKNOWN_MAPPING
        assert committed(intruder, own, 666) == UNKNOWN_MAPPING
    assert end_offset(root, topic) == 1
    # The victim goes on as if nothing had been.
    assert produced(root, topic, in_transaction(1), version, TransactionalId=victim) == 0
    assert committed(root, victim, 2) == 0


def test_cve_2018_1288_a_client_that_says_it_is_a_broker_reads_nothing(
    broker: AskingFencepost, root: RawClient, user: str
) -> None:
    topic = make_topic(root, f"{user}-topic")
    assert produced(root, topic, batch([b"secret"])) == 0
    described = root.call("Metadata", 12, {"Topics": [{"Name": topic}]})
    topic_id = described["Topics"][0]["TopicId"]
    # Even the right to read it as a consumer is none to read as a broker: what brokers read is not yet committed.
    grant(root, [(user, Right(OP.READ, TOPIC, f"{user}-", PatternType.PREFIXED))])
    with connect(broker, user) as client:
        assert fetched(client, topic)[0] == 0
        for version in range(4, 19):
            who = {"ReplicaId": 1} if version < 15 else {"ReplicaState": {"ReplicaId": 1, "ReplicaEpoch": 0}}
            request = fetch_request(topic, 0, **who)
            if version >= 13:
                request["Topics"] = [{"TopicId": topic_id, "Partitions": request["Topics"][0]["Partitions"]}]
            answer = client.call("Fetch", version, request)
            (part,) = answer["Responses"][0]["Partitions"]
            assert (part["ErrorCode"], part["Records"] or b"") == (TOPIC_REFUSED, b"")


def test_a_refused_produce_without_acknowledgement_ends_the_connection(
    broker: AskingFencepost, root: RawClient, user: str
) -> None:
    topic = make_topic(root, f"{user}-topic")
    with connect(broker, user) as client:
        client.send("Produce", 9, produce_request(topic, batch([b"x"]), acks=0))
        assert client.is_closed()
    assert end_offset(root, topic) == 0


def test_rights_that_were_taken_away_are_gone_on_living_connections(
    broker: AskingFencepost, root: RawClient, user: str
) -> None:
    topic = make_topic(root, f"{user}-topic")
    with connect(broker, user) as client:
        assert produced(client, topic, batch([b"before"])) == TOPIC_REFUSED
        grant(root, [(user, Right(OP.WRITE, TOPIC, topic)), (user, Right(OP.READ, TOPIC, topic))])
        assert produced(client, topic, batch([b"between"])) == 0
        session = client.call("Fetch", 12, fetch_request(topic, 0, SessionEpoch=0))
        assert session["Responses"][0]["Partitions"][0]["ErrorCode"] == 0
        assert session["SessionId"]
        # One that waits: whatever comes after the right is gone is not for it.
        waiting = fetch_request(topic, 1, MaxWaitMs=15_000, MinBytes=1)
        waits = client.send("Fetch", 12, waiting)
        revoke(root, user)
        assert produced(root, topic, batch([b"after"])) == 0
        (part,) = client.receive("Fetch", 12, waits)["Responses"][0]["Partitions"]
        assert (part["ErrorCode"], part["Records"] or b"") == (TOPIC_REFUSED, b"")
        # The session names no topic any more, and must not be a way around.
        later = {"SessionId": session["SessionId"], "SessionEpoch": 1, "MaxWaitMs": 0, "MinBytes": 0}
        (part,) = client.call("Fetch", 12, later)["Responses"][0]["Partitions"]
        assert (part["ErrorCode"], part["Records"] or b"") == (TOPIC_REFUSED, b"")
        assert produced(client, topic, batch([b"late"])) == TOPIC_REFUSED


def test_a_deny_outweighs_every_right_at_once(broker: AskingFencepost, root: RawClient, user: str) -> None:
    topic = make_topic(root, f"{user}-topic")
    grant(root, [(user, Right(OP.ALL, TOPIC, "*")), (user, Right(OP.ALL, TOPIC, topic))])
    with connect(broker, user) as client:
        assert produced(client, topic, batch([b"x"])) == 0
        grant(root, [(user, Right(OP.WRITE, TOPIC, user, PatternType.PREFIXED, AclPermissionType.DENY))])
        assert produced(client, topic, batch([b"x"])) == TOPIC_REFUSED
        assert fetched(client, topic)[0] == 0


@pytest.mark.parametrize("internal", ["__consumer_offsets", "__transaction_state"])
def test_the_internal_topics_are_written_by_the_broker_alone(
    internal: str, broker: AskingFencepost, root: RawClient, user: str
) -> None:
    with connect(broker, user) as client:
        assert produced(client, internal, batch([b"x"])) == TOPIC_REFUSED
        grant(root, [(user, Right(OP.ALL, TOPIC, "*"))])
        assert produced(client, internal, batch([b"x"])) == 17
        marker = {
            "ProducerId": 1,
            "ProducerEpoch": 0,
            "TransactionResult": True,
            "CoordinatorEpoch": 0,
            "Topics": [{"Name": internal, "PartitionIndexes": [0]}],
        }
        answer = client.call("WriteTxnMarkers", 1, {"Markers": [marker]})
        assert answer["Markers"][0]["Topics"][0]["Partitions"][0]["ErrorCode"] == CLUSTER_REFUSED
    assert produced(root, internal, batch([b"x"])) == 17, "not even the super user"


def test_the_journal_of_causes_is_for_who_may_describe_the_transactional_id(
    broker: AskingFencepost, root: RawClient, user: str
) -> None:
    name = f"{user}-id"

    def asked(client: RawClient, resource: str) -> int:
        wanted = {"ResourceType": 100, "ResourceName": resource, "ConfigurationKeys": None}
        code: int = client.call("DescribeConfigs", 4, {"Resources": [wanted]})["Results"][0]["ErrorCode"]
        return code

    with connect(broker, user) as client:
        assert (asked(client, name), asked(client, "")) == (ID_REFUSED, CLUSTER_REFUSED)
        grant(root, [(user, Right(OP.DESCRIBE, ID, name))])
        assert (asked(client, name), asked(client, "")) == (0, CLUSTER_REFUSED)
        grant(root, [(user, Right(OP.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME))])
        assert (asked(client, name), asked(client, "")) == (0, 0)


def test_metadata_makes_no_topic_for_who_may_not(broker: AskingFencepost, root: RawClient, user: str) -> None:
    topic = f"{user}-new"

    def asked(client: RawClient) -> int:
        answer = client.call("Metadata", 12, {"Topics": [{"Name": topic}], "AllowAutoTopicCreation": True})
        code: int = answer["Topics"][0]["ErrorCode"]
        return code

    with connect(broker, user) as client:
        assert asked(client) == TOPIC_REFUSED
        grant(root, [(user, Right(OP.DESCRIBE, TOPIC, topic))])
        assert asked(client) == TOPIC_REFUSED
        grant(root, [(user, Right(OP.CREATE, TOPIC, topic))])
        assert asked(client) == 0


def test_rules_outlast_kill_nine(user: str) -> None:
    with AskingFencepost([user]) as broker:
        with connect(broker) as root:
            topic = make_topic(root, "kept")
            grant(root, [(user, Right(OP.WRITE, TOPIC, topic)), (user, Right(OP.READ, TOPIC, topic))])
            gone = {**Right(OP.READ, TOPIC, topic).creation(user)}
            filter_ = {
                "ResourceTypeFilter": gone["ResourceType"],
                "ResourceNameFilter": topic,
                "PatternTypeFilter": 3,
                "PrincipalFilter": f"User:{user}",
                "HostFilter": None,
                "Operation": gone["Operation"],
                "PermissionType": 1,
            }
            assert len(root.call("DeleteAcls", 3, {"Filters": [filter_]})["FilterResults"][0]["MatchingAcls"]) == 1
        broker.kill()
        broker.start()
        with connect(broker, user) as client:
            assert produced(client, topic, batch([b"x"])) == 0
            assert fetched(client, topic)[0] == TOPIC_REFUSED
