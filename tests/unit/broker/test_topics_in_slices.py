"""Many partitions are created in slices: others are served meanwhile, and nobody sees a topic that is half there."""

from collections.abc import Iterator
from typing import Any

import pytest

from fencepost.simulation.node import DATA_DIRECTORY, SimulatedNode, SimulatedSocket
from fencepost.wire.catalog import ApiKey
from fencepost.wire.errors import ErrorCode
from fencepost.wire.messages import (
    ApiVersionsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    MetadataRequest,
)

MANY = 2_000


@pytest.fixture
def machine() -> Iterator[SimulatedNode]:
    made = SimulatedNode({"max.partitions.per.broker": "3000"}, seed=1).start()
    made.node.create_topic("small", 1, {})
    yield made
    made.stop()


def create(socket: SimulatedSocket, *topics: tuple[str, int]) -> int:
    topic = CreateTopicsRequest.CreatableTopic
    wanted = [topic(name=name, num_partitions=count, replication_factor=1) for name, count in topics]
    return socket.send(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=wanted))


def codes(answer: Any, field: str) -> list[int]:
    return [each.error_code for each in getattr(answer, field)]


@pytest.mark.parametrize("topics", [[("wide", MANY)], [(f"t{number}", 1) for number in range(MANY)]])
def test_others_are_served_while_partitions_are_created(machine: SimulatedNode, topics: list[tuple[str, int]]) -> None:
    admin, other = machine.connect(), machine.connect()
    sent = create(admin, *topics)
    assert sent not in admin.answers
    served = 0
    while sent not in admin.answers:
        other.call(ApiKey.API_VERSIONS, 0, ApiVersionsRequest())
        served += 1
        machine.scheduler.step(machine.clock.monotonic_ms() + 1_000)
    assert served >= 10
    assert set(codes(admin.answers[sent], "topics")) == {0}
    assert machine.node.partition_total == 1 + MANY


def test_a_topic_in_the_making_is_not_there_for_anybody_and_nothing_else_is_done_to_it(machine: SimulatedNode) -> None:
    admin, other = machine.connect(), machine.connect()
    sent = create(admin, ("wide", MANY))
    topic = MetadataRequest.MetadataRequestTopic
    request = MetadataRequest(topics=[topic(name="wide")], allow_auto_topic_creation=True)
    assert codes(other.call(ApiKey.METADATA, 12, request), "topics") == [ErrorCode.LEADER_NOT_AVAILABLE]
    again = create(other, ("wide", 1))
    other.wait(again)
    assert codes(other.answers[again], "topics") == [ErrorCode.REASSIGNMENT_IN_PROGRESS]
    # Its partitions count before they are there.
    too_many = create(other, ("more", 1_500))
    other.wait(too_many)
    assert codes(other.answers[too_many], "topics") == [ErrorCode.POLICY_VIOLATION]
    assert sent not in admin.answers
    admin.wait(sent)
    assert codes(admin.answers[sent], "topics") == [0]
    assert len(machine.node.partitions["wide"]) == MANY


def test_a_topic_that_grows_is_not_deleted_meanwhile(machine: SimulatedNode) -> None:
    admin, other = machine.connect(), machine.connect()
    grow = CreatePartitionsRequest.CreatePartitionsTopic(name="small", count=MANY, assignments=None)
    sent = admin.send(ApiKey.CREATE_PARTITIONS, 3, CreatePartitionsRequest(topics=[grow]))
    delete = DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name="small")])
    refused = other.call(ApiKey.DELETE_TOPICS, 6, delete)
    assert codes(refused, "responses") == [ErrorCode.REASSIGNMENT_IN_PROGRESS]
    assert sent not in admin.answers
    admin.wait(sent)
    assert codes(admin.answers[sent], "results") == [0]
    assert codes(other.call(ApiKey.DELETE_TOPICS, 6, delete), "responses") == [0]


def test_a_broker_that_stops_in_the_midst_of_it_starts_without_the_topic(machine: SimulatedNode) -> None:
    sent = create(machine.connect(), ("wide", MANY))
    assert sent
    machine.stop()
    machine.start()
    assert set(machine.node.metadata.topics) == {"small"}
    socket = machine.connect()
    again = create(socket, ("wide", 10))
    socket.wait(again)
    assert codes(socket.answers[again], "topics") == [0]


def test_others_are_served_while_a_wide_topic_is_deleted_and_its_directories_go(machine: SimulatedNode) -> None:
    machine.node.create_topic("wide", MANY, {})
    admin, other = machine.connect(), machine.connect()
    delete = DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name="wide")])
    sent = admin.send(ApiKey.DELETE_TOPICS, 6, delete)
    assert sent not in admin.answers
    topic = MetadataRequest.MetadataRequestTopic
    request = MetadataRequest(topics=[topic(name="wide")], allow_auto_topic_creation=False)
    answer = other.call(ApiKey.METADATA, 12, request)
    assert codes(answer, "topics") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    again = create(other, ("wide", 1))
    other.wait(again)
    assert codes(other.answers[again], "topics") == [ErrorCode.REASSIGNMENT_IN_PROGRESS]
    assert sent not in admin.answers
    admin.wait(sent)
    assert codes(admin.answers[sent], "responses") == [0]
    machine.scheduler.run_for(1_000)
    assert not [name for name in machine.disk.list(DATA_DIRECTORY) if name.startswith("wide-")]
    anew = create(other, ("wide", 1))
    other.wait(anew)
    assert codes(other.answers[anew], "topics") == [0]
