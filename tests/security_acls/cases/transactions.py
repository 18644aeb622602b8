"""The transaction calls."""

from typing import Any

from fencepost.wire.acls import AclPermissionType, PatternType
from tests.peers.raw import RawClient
from tests.security_acls.matrix import OP, STRANGER, TOPIC, Body, Names, c, case, g, t, x
from tests.security_acls.scene import Right, settled

_IDENTITY = {"ProducerId": STRANGER, "ProducerEpoch": 0}
case(
    "init producer id",
    "InitProducerId",
    {"TransactionalId": None, "TransactionTimeoutMs": 60_000},
    [c(OP.IDEMPOTENT_WRITE)],
)
case(
    "init producer id by a right to some topic",
    "InitProducerId",
    {"TransactionalId": None, "TransactionTimeoutMs": 60_000},
    [t(OP.READ)],
    [t(OP.WRITE)],
)
case(
    "init producer id by a right to some topics",
    "InitProducerId",
    {"TransactionalId": None, "TransactionTimeoutMs": 60_000},
    [lambda n: Right(OP.WRITE, TOPIC, n.topic, PatternType.PREFIXED)],
    [
        lambda n: Right(OP.WRITE, TOPIC, n.topic[:3], PatternType.PREFIXED, AclPermissionType.DENY),
        lambda n: Right(OP.WRITE, TOPIC, f"other-{n.topic}", PatternType.LITERAL, AclPermissionType.DENY),
        lambda n: Right(OP.WRITE, TOPIC, f"other-{n.topic}", PatternType.PREFIXED, AclPermissionType.DENY),
    ],
)
case(
    "init producer id of a transactional id",
    "InitProducerId",
    lambda n, v: {"TransactionalId": n.id, "TransactionTimeoutMs": 60_000},
    [x(OP.DESCRIBE)],
    [x(OP.WRITE)],
)
case(
    "init producer id for two phases",
    "InitProducerId",
    lambda n, v: {"TransactionalId": n.id, "TransactionTimeoutMs": 60_000, "Enable2Pc": True},
    [x(OP.WRITE)],
    [x(OP.TWO_PHASE_COMMIT)],
    low=6,
    high=6,
)


def added(*second: str) -> Body:
    def body(names: Names, version: int) -> dict[str, Any]:
        topics = [{"Name": name, "Partitions": [0]} for name in (names.topic, *(f"{names.user}-{s}" for s in second))]
        return {
            "V3AndBelowTransactionalId": names.id,
            "V3AndBelowProducerId": STRANGER,
            "V3AndBelowProducerEpoch": 0,
            "V3AndBelowTopics": topics,
        }

    return body


case("add partitions to txn", "AddPartitionsToTxn", added(), [x(OP.WRITE)], [t(OP.WRITE)], high=3)
case(
    "add several partitions to txn",
    "AddPartitionsToTxn",
    added("second", "unknown"),
    [x(OP.WRITE)],
    [t(OP.WRITE)],
    high=3,
)
case(
    "add partitions to txn as a broker",
    "AddPartitionsToTxn",
    lambda n, v: {
        "Transactions": [
            {
                "TransactionalId": n.id,
                **_IDENTITY,
                "VerifyOnly": False,
                "Topics": [{"Name": n.topic, "Partitions": [0]}],
            }
        ]
    },
    [x(OP.WRITE), t(OP.WRITE)],
    [c(OP.CLUSTER_ACTION)],
    low=4,
)
case(
    "add offsets to txn",
    "AddOffsetsToTxn",
    lambda n, v: {"TransactionalId": n.id, **_IDENTITY, "GroupId": n.group},
    [x(OP.WRITE)],
    [g(OP.READ)],
)
case(
    "add offsets to txn the other way round",
    "AddOffsetsToTxn",
    lambda n, v: {"TransactionalId": n.id, **_IDENTITY, "GroupId": n.group},
    [g(OP.READ)],
    [x(OP.WRITE)],
)
case(
    "end txn",
    "EndTxn",
    lambda n, v: {"TransactionalId": n.id, **_IDENTITY, "Committed": True},
    [x(OP.DESCRIBE)],
    [x(OP.WRITE)],
)


def committed_in_transaction(names: Names, version: int) -> dict[str, Any]:
    parts = [{"PartitionIndex": 0, "CommittedOffset": 5, "CommittedMetadata": ""}]
    return {
        "TransactionalId": names.id,
        "GroupId": names.group,
        **_IDENTITY,
        "Topics": [{"Name": names.topic, "Partitions": parts}],
    }


case("txn offset commit", "TxnOffsetCommit", committed_in_transaction, [x(OP.WRITE)], [g(OP.READ)], [t(OP.READ)])
case(
    "txn offset commit the other way round",
    "TxnOffsetCommit",
    committed_in_transaction,
    [t(OP.READ)],
    [g(OP.READ)],
    [x(OP.WRITE)],
)
for _name, _need in (("an administrator", c(OP.ALTER)), ("a broker", c(OP.CLUSTER_ACTION))):
    case(
        f"write txn markers as {_name}",
        "WriteTxnMarkers",
        lambda n, v: {
            "Markers": [
                {
                    **_IDENTITY,
                    "TransactionResult": False,
                    "CoordinatorEpoch": 0,
                    "Topics": [{"Name": n.topic, "PartitionIndexes": [0]}],
                }
            ]
        },
        [t(OP.ALL), _need],
    )


def with_a_transaction(root: RawClient, names: Names) -> None:
    made = settled(root, "InitProducerId", 4, {"TransactionalId": names.id, "TransactionTimeoutMs": 600_000})
    assert made["ErrorCode"] == 0, made
    identity = {"V3AndBelowProducerId": made["ProducerId"], "V3AndBelowProducerEpoch": made["ProducerEpoch"]}
    topics = [{"Name": name, "Partitions": [0]} for name in (names.topic, names.second)]
    answer = settled(
        root, "AddPartitionsToTxn", 3, {"V3AndBelowTransactionalId": names.id, **identity, "V3AndBelowTopics": topics}
    )
    codes = [
        part["PartitionErrorCode"]
        for topic in answer["ResultsByTopicV3AndBelow"]
        for part in topic["ResultsByPartition"]
    ]
    assert codes == [0, 0], answer


case(
    "describe transactions",
    "DescribeTransactions",
    lambda n, v: {"TransactionalIds": [n.id]},
    [x(OP.DESCRIBE)],
    [t(OP.DESCRIBE)],
    prepare=with_a_transaction,
)
case(
    "list transactions",
    "ListTransactions",
    {},
    [x(OP.DESCRIBE)],
    prepare=with_a_transaction,
    keeps="list-transactions-id",
)
