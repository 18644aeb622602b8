"""The same bytes to both brokers, the same answers from both: error codes, fields, closed connections."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.interop.allowed import RAW, unexpected
from tests.interop.cases import CASES, Case, Peer
from tests.interop.differences import differences
from tests.peers import schemas
from tests.peers.broker_process import BrokerProcess
from tests.peers.fencepost_process import FencepostProcess
from tests.peers.kafka import ApacheKafka
from tests.peers.raw import RawClient

pytestmark = pytest.mark.timeout(90)

# What Fencepost has to speak; the rest of Kafka's calls it may leave out, but never in other versions.
REQUIRED_APIS = {
    "Produce", "Fetch", "ListOffsets", "Metadata", "OffsetCommit", "OffsetFetch", "FindCoordinator",
    "JoinGroup", "Heartbeat", "LeaveGroup", "SyncGroup", "DescribeGroups", "ListGroups", "ApiVersions",
    "CreateTopics", "DeleteTopics", "DeleteRecords", "InitProducerId", "OffsetForLeaderEpoch", "DescribeAcls",
    "CreateAcls", "DeleteAcls", "DescribeConfigs", "AlterConfigs", "DescribeLogDirs", "CreatePartitions",
    "DeleteGroups", "IncrementalAlterConfigs", "OffsetDelete", "DescribeClientQuotas", "UpdateFeatures",
    "DescribeCluster", "ListConfigResources", "DescribeTopicPartitions",
}  # fmt: skip


@pytest.fixture(scope="module")
def brokers() -> Iterator[tuple[BrokerProcess, BrokerProcess]]:
    with ApacheKafka() as apache, FencepostProcess() as fencepost:
        for broker in (apache, fencepost):
            with Peer(broker, "warm up") as peer:
                # Asking for a coordinator makes the offsets topic; group calls alone do not.
                peer.settled("FindCoordinator", 2, {"Key": "any", "KeyType": 0})
        yield apache, fencepost


def answer_of(broker: BrokerProcess, case: Case) -> Any:
    with Peer(broker, case.name) as peer:
        return case.run(peer)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
def test_both_brokers_answer_alike(case: Case, brokers: tuple[BrokerProcess, BrokerProcess]) -> None:
    expected, found = (answer_of(broker, case) for broker in brokers)
    if case.name.startswith("api versions in an unknown version"):
        # The ranges themselves are compared by the test below.
        expected, found = ((answer[0], answer[1] > 0, answer[3]) for answer in (expected, found))
    problems = unexpected(differences(expected, found), RAW.get(case.name))
    if problems:
        pytest.fail("\n".join(problems), pytrace=False)


def test_every_allowed_difference_belongs_to_a_case() -> None:
    assert set(RAW) <= {case.name for case in CASES}


def test_advertised_versions_are_kafkas(brokers: tuple[BrokerProcess, BrokerProcess]) -> None:
    def ranges(broker: BrokerProcess) -> dict[int, tuple[int, int]]:
        with RawClient(broker.address) as client:
            answer = client.call("ApiVersions", 4, {"ClientSoftwareName": "raw", "ClientSoftwareVersion": "1"})
        return {each["ApiKey"]: (each["MinVersion"], each["MaxVersion"]) for each in answer["ApiKeys"]}

    apache, fencepost = (ranges(broker) for broker in brokers)
    different = {key: (apache.get(key), versions) for key, versions in fencepost.items() if versions != apache.get(key)}
    assert different == {}, "key: (Kafka's range, ours)"
    missing = {api for api in REQUIRED_APIS if schemas.api_key(api) not in fencepost}
    assert missing == set()
