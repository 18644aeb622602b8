"""One run of the whole matrix on one broker, in stages that all cases go through together."""

import json
import time
from typing import Any

from fencepost.wire.acls import AclOperation, ResourceType
from tests.interop.cases.peer import LEFT_OUT, error_codes
from tests.peers.raw import ConnectionClosed, RawClient
from tests.security_acls import cases  # noqa: F401 - fills CASES
from tests.security_acls.matrix import CASES, Case
from tests.security_acls.scene import SETTLE_TIMEOUT_SECONDS, Asking, Right, connect, grant, settled

CLOSED = "connection closed"
CANARY = "canary"
# What two brokers name differently or count by themselves; whether it is there at all is compared.
OWN = {
    "ProducerId",
    "TopicId",
    "NodeId",
    "ControllerId",
    "BrokerId",
    "LeaderId",
    "TransactionStartTimeMs",
    "Mechanisms",
}
# Facts that have nothing to do with rights.
ASIDE = {
    *LEFT_OUT, "Configs", "TotalBytes", "UsableBytes", "LogDir", "LogAppendTimeMs", "ApiKeys", "SupportedFeatures",
    "FinalizedFeatures", "FinalizedFeaturesEpoch", "Brokers", "ReplicaNodes", "IsrNodes", "LeaderEpoch", "Rack",
    "EligibleLeaderReplicas", "LastKnownElr", "LastTimestamp", "NodeEndpoints", "CurrentLeader", "PartitionSize",
    "ZkMigrationReady", "IsCordoned",
}  # fmt: skip
NOTHING: tuple[Any, ...] = (None, "", -1, 0, "00000000-0000-0000-0000-000000000000", [], b"")

Transcript = dict[str, list[dict[int, Any]]]
"""By case, for every stage: the answer in each version."""


def transcript(broker: Asking) -> Transcript:
    with connect(broker) as root:
        _prepare(root)
        clients = {case.name: connect(broker, case.user) for case in CASES}
        try:
            found: Transcript = {case.name: [] for case in CASES}
            for stage in range(2 + max(len(case.steps) for case in CASES)):
                grant(root, [(case.user, right) for case in CASES for right in _rights(case, stage)])
                _await_controller(root, broker, stage)
                for case in CASES:
                    if stage < 2 + len(case.steps):
                        found[case.name].append(_answers(clients, broker, case))
            return found
        finally:
            for client in clients.values():
                client.close()


def _await_controller(root: RawClient, broker: Asking, stage: int) -> None:
    """In Apache Kafka broker and controller keep their own copies of the rules. Both hear of changes in their order."""
    topic = {"Name": f"{CANARY}-{stage}", "NumPartitions": 1, "ReplicationFactor": 1}
    grant(root, [(CANARY, Right(AclOperation.CREATE, ResourceType.TOPIC, str(topic["Name"])))])
    deadline = time.monotonic() + SETTLE_TIMEOUT_SECONDS
    with connect(broker, CANARY) as canary:
        while True:
            answer = canary.call("CreateTopics", 5, {"Topics": [topic], "timeoutMs": 30_000, "validateOnly": True})
            if answer["Topics"][0]["ErrorCode"] == 0:
                return
            assert time.monotonic() < deadline, answer
            time.sleep(0.02)


def _rights(case: Case, stage: int) -> list[Right]:
    if stage == 0:
        return []
    if stage == 1:
        return case.wrong_rights()
    return case.rights(stage - 2) if stage - 2 < len(case.steps) else []


def _prepare(root: RawClient) -> None:
    for kind in (0, 1):
        settled(root, "FindCoordinator", 2, {"Key": "any", "KeyType": kind})
    names = [name for case in CASES for name in (case.names.topic, case.names.second)]
    wanted = [{"Name": name, "NumPartitions": 1, "ReplicationFactor": 1} for name in names]
    made = root.call("CreateTopics", 5, {"Topics": wanted, "timeoutMs": 30_000})
    assert set(error_codes(made)) == {0}, made
    # Metadata may name a leader that has yet to learn of it: ask what only the leader answers.
    offsets = [{"Name": name, "Partitions": [{"PartitionIndex": 0, "Timestamp": -1}]} for name in names]
    deadline = time.monotonic() + SETTLE_TIMEOUT_SECONDS
    while set(error_codes(root.call("ListOffsets", 5, {"ReplicaId": -1, "Topics": offsets}))) != {0}:
        assert time.monotonic() < deadline, "the topics never had leaders"
        time.sleep(0.02)
    described = root.call("Metadata", 12, {"Topics": [{"Name": case.names.topic} for case in CASES]})
    ids = {topic["Name"]: topic["TopicId"] for topic in described["Topics"]}
    # No coordinator is still loading when a case speaks to it.
    settled(root, "DescribeGroups", 5, {"Groups": [case.names.group for case in CASES]})
    settled(root, "DescribeTransactions", 0, {"TransactionalIds": [case.names.id for case in CASES]})
    for case in CASES:
        case.names.topic_id = ids[case.names.topic]
        if case.prepare is not None:
            case.prepare(root, case.names)


def _answers(clients: dict[str, RawClient], broker: Asking, case: Case) -> dict[int, Any]:
    found: dict[int, Any] = {}
    for version in case.versions:
        try:
            answer = settled(clients[case.name], case.api, version, case.body(case.names, version))
        except ConnectionClosed:
            clients[case.name].close()
            clients[case.name] = connect(broker, case.user)
            answer = CLOSED
        found[version] = shown(answer, case.keeps)
    return found


def shown(answer: Any, keeps: str = "", field: str = "") -> Any:
    """The answer with what is a broker's own replaced, lists sorted, and of long lists only the case's own items."""
    if isinstance(answer, dict):
        return {key: shown(value, keeps, key) for key, value in answer.items() if key not in ASIDE}
    if field in OWN:
        return "absent" if answer in NOTHING else "present"
    if isinstance(answer, list):
        items = [shown(value, keeps, field) for value in answer]
        if keeps and field in ("Topics", "Groups", "TransactionStates"):
            items = [item for item in items if keeps in json.dumps(item)]
        return sorted(items, key=lambda item: json.dumps(item, sort_keys=True))
    if isinstance(answer, bytes):
        return "bytes" if answer else "no bytes"
    return answer
