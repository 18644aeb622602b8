"""Produce, Fetch, ListOffsets and what else reads or shortens a log."""

from typing import Any

from tests.peers.batches import TRANSACTIONAL, batch
from tests.security_acls.matrix import OP, STRANGER, TOPIC, Body, Names, c, case, t, x
from tests.security_acls.scene import Right


def produced(**batch_fields: Any) -> Body:
    fields = {key: batch_fields.pop(key) for key in ("TransactionalId",) if key in batch_fields}

    def body(names: Names, version: int) -> dict[str, Any]:
        data = [{"Index": 0, "Records": batch([b"value"], **batch_fields)}]
        topic = {"Name": names.topic} if version < 13 else {"TopicId": names.topic_id}
        own = dict.fromkeys(fields, names.id)
        return {"Acks": -1, "TimeoutMs": 5000, "TopicData": [{**topic, "PartitionData": data}], **own}

    return body


IN_A_TRANSACTION = {"attributes": TRANSACTIONAL, "producer_id": STRANGER, "producer_epoch": 0, "base_sequence": 0}

case("produce", "Produce", produced(), [t(OP.WRITE)])
case(
    "produce with a producer id",
    "Produce",
    produced(producer_id=STRANGER, producer_epoch=0, base_sequence=0),
    [t(OP.WRITE)],
    high=12,
)
case(
    "produce in a transaction",
    "Produce",
    produced(TransactionalId=True, **IN_A_TRANSACTION),
    [t(OP.WRITE)],
    [x(OP.WRITE)],
)
case(
    "produce in a transaction the other way round",
    "Produce",
    produced(TransactionalId=True, **IN_A_TRANSACTION),
    [x(OP.WRITE)],
    [t(OP.WRITE)],
)
case("produce in a transaction of nobody", "Produce", produced(**IN_A_TRANSACTION), [t(OP.WRITE)], [x(OP.WRITE)])
case("produce with an id but outside of transactions", "Produce", produced(TransactionalId=True), [t(OP.WRITE)])
case(
    "produce to an internal topic",
    "Produce",
    {
        "Acks": -1,
        "TimeoutMs": 5000,
        "TopicData": [{"Name": "__consumer_offsets", "PartitionData": [{"Index": 0, "Records": batch([b"x"])}]}],
    },
    [lambda names: Right(OP.WRITE, TOPIC, "__consumer_offsets")],
    high=12,
)
case(
    "produce to an allowed and a refused topic",
    "Produce",
    lambda names, version: {
        "Acks": 1,
        "TimeoutMs": 5000,
        "TopicData": [
            {"Name": name, "PartitionData": [{"Index": 0, "Records": batch([b"x"])}]}
            for name in (names.topic, names.second, f"{names.user}-unknown")
        ],
    },
    [t(OP.WRITE)],
    high=12,
)


def fetched(**fields: Any) -> Body:
    def body(names: Names, version: int) -> dict[str, Any]:
        topic = {"Topic": names.topic} if version < 13 else {"TopicId": names.topic_id}
        wanted = [{"Partition": 0, "FetchOffset": 0, "PartitionMaxBytes": 1 << 20}]
        return {
            "MaxWaitMs": 0,
            "MinBytes": 0,
            "SessionEpoch": -1,
            "Topics": [{**topic, "Partitions": wanted}],
            **fields,
        }

    return body


def followed(names: Names, version: int) -> dict[str, Any]:
    who = {"ReplicaId": 2} if version < 15 else {"ReplicaState": {"ReplicaId": 2, "ReplicaEpoch": 0}}
    return fetched(**who)(names, version)


case("fetch", "Fetch", fetched(), [t(OP.READ)])
case("fetch where describing is allowed", "Fetch", fetched(), [t(OP.DESCRIBE)])
case("fetch as a follower", "Fetch", followed, [t(OP.READ)], [c(OP.CLUSTER_ACTION)], until=2)
case(
    "list offsets",
    "ListOffsets",
    lambda n, v: {
        "ReplicaId": -1,
        "Topics": [{"Name": n.topic, "Partitions": [{"PartitionIndex": 0, "Timestamp": -1}]}],
    },
    [t(OP.DESCRIBE)],
)
for _name, _need in (("consumer", t(OP.DESCRIBE)), ("follower", c(OP.CLUSTER_ACTION))):
    case(
        f"offset for leader epoch as a {_name}",
        "OffsetForLeaderEpoch",
        lambda n, v: {
            "ReplicaId": -1,
            "Topics": [
                {"Topic": n.topic, "Partitions": [{"Partition": 0, "CurrentLeaderEpoch": -1, "LeaderEpoch": 0}]}
            ],
        },
        [_need],
    )
case(
    "delete records",
    "DeleteRecords",
    lambda n, v: {"TimeoutMs": 5000, "Topics": [{"Name": n.topic, "Partitions": [{"PartitionIndex": 0, "Offset": 0}]}]},
    [t(OP.DELETE)],
)
case(
    "describe producers",
    "DescribeProducers",
    lambda n, v: {"Topics": [{"Name": n.topic, "PartitionIndexes": [0]}]},
    [t(OP.DESCRIBE)],
    [t(OP.READ)],
)
