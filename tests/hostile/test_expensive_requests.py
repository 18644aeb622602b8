"""Small requests that ask for a lot: of time, of syncs, of memory, of partitions. The broker has one thread for all."""

import os
from collections.abc import Iterator
from typing import Any

import pytest

from fencepost.broker.fetch_sessions import SESSION_PARTITIONS_MAX
from fencepost.config import TopicConfig
from fencepost.internal_topic_names import CONSUMER_OFFSETS
from fencepost.log.partition_log import PartitionLog
from fencepost.simulation.clock import LOOK_NS
from fencepost.simulation.node import LISTENER, SimulatedNode
from fencepost.wire.batch import build_batch
from fencepost.wire.catalog import ApiKey, response_class
from fencepost.wire.errors import ErrorCode, KafkaError
from fencepost.wire.framing import read_response, request_frame
from fencepost.wire.messages import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    DescribeProducersRequest,
    FetchRequest,
    IncrementalAlterConfigsRequest,
    ListGroupsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    UpdateFeaturesRequest,
    WriteTxnMarkersRequest,
)
from tests.hostile.sockets import produce_request

# Far beyond what any of these takes, far below what they took when their work grew with the square of the request.
pytestmark = pytest.mark.timeout(60)
MANY = 20_000


class Machine:
    """A node without sockets that answers one request at a time."""

    def __init__(self) -> None:
        self.simulated = SimulatedNode({"offsets.topic.num.partitions": "3"}, seed=1).start()
        self.node = self.simulated.node
        self.syncs = 0
        self.written: dict[str, bytes] = {}
        write_atomically = self.simulated.disk.write_atomically

        def counted(path: str, data: Any) -> None:
            self.syncs += 1
            self.written[os.path.basename(path)] = bytes(data)
            write_atomically(path, data)

        self.simulated.disk.write_atomically = counted  # type: ignore[method-assign]

    def call(self, key: ApiKey, version: int, message: Any) -> Any:
        written: list[bytes] = []
        connection = self.node.connect("client", LISTENER, lambda parts: written.append(b"".join(parts)), pytest.fail)
        frame = b"".join(request_frame(key, version, 1, "client", message))[4:]
        self.node.handle(connection, memoryview(bytearray(frame)))
        connection.flush()
        assert self.simulated.scheduler.run_until(lambda: bool(written), 60_000)
        return read_response(response_class(key), key, version, b"".join(written)[4:])[1]


@pytest.fixture
def machine() -> Iterator[Machine]:
    made = Machine()
    made.node.create_topic("orders", 1, {})
    made.node.create_topic("wide", 500, {})
    yield made
    made.simulated.stop()


def test_a_group_named_many_times_is_looked_up_once(machine: Machine) -> None:
    machine.call(ApiKey.METADATA, 12, MetadataRequest(topics=[]))
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    many = [group(group_id="g", topics=None) for _ in range(MANY)]
    assert len(machine.call(ApiKey.OFFSET_FETCH, 8, OffsetFetchRequest(groups=many)).groups) == 1
    described = machine.call(ApiKey.DESCRIBE_GROUPS, 5, DescribeGroupsRequest(groups=["g"] * MANY))
    assert len(described.groups) == 1


def test_many_groups_take_time_in_proportion(machine: Machine) -> None:
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    many = [group(group_id=f"g{number}", topics=None) for number in range(MANY)]
    assert len(machine.call(ApiKey.OFFSET_FETCH, 8, OffsetFetchRequest(groups=many)).groups) == MANY


def test_a_resource_named_many_times_is_described_once(machine: Machine) -> None:
    resource = DescribeConfigsRequest.DescribeConfigsResource
    many = [resource(resource_type=4, resource_name="1", configuration_keys=None) for _ in range(MANY)]
    assert len(machine.call(ApiKey.DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(resources=many)).results) == 1


def test_a_partition_named_many_times_has_its_producers_described_once(machine: Machine) -> None:
    topic = DescribeProducersRequest.TopicRequest
    batch = build_batch([(1_700_000_000_000, None, b"v", ())], producer_id=5, producer_epoch=0, base_sequence=0)
    machine.call(ApiKey.PRODUCE, 9, produce_request("orders", bytes(batch)))
    many = [topic(name="orders", partition_indexes=[0] * 100) for _ in range(100)]
    answer = machine.call(ApiKey.DESCRIBE_PRODUCERS, 0, DescribeProducersRequest(topics=many))
    described = [partition for each in answer.topics for partition in each.partitions]
    assert [len(partition.active_producers) for partition in described] == [1]


def test_a_partition_named_many_times_gets_one_marker(machine: Machine) -> None:
    marker = WriteTxnMarkersRequest.WritableTxnMarker
    topics = [marker.WritableTxnMarkerTopic(name="orders", partition_indexes=[0] * 100) for _ in range(100)]
    request = WriteTxnMarkersRequest(markers=[marker(producer_id=5, producer_epoch=0, topics=topics)])
    answer = machine.call(ApiKey.WRITE_TXN_MARKERS, 1, request)
    told = [partition for topic in answer.markers[0].topics for partition in topic.partitions]
    assert [(partition.partition_index, partition.error_code) for partition in told] == [(0, 0)]
    assert machine.node.partition("orders", 0).log.log_end_offset == 1


def test_many_groups_are_listed_in_slices(machine: Machine) -> None:
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    offset = topic.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    groups = {f"g{number}" for number in range(400)}
    machine.node.create_internal_topic(CONSUMER_OFFSETS)
    machine.simulated.scheduler.run_ready()
    for group in groups:
        committed = OffsetCommitRequest(
            group_id=group, generation_id_or_member_epoch=-1, topics=[topic(name="orders", partitions=[offset])]
        )
        machine.call(ApiKey.OFFSET_COMMIT, 8, committed)
    looks = machine.simulated.clock.work_ns()
    listed = machine.call(ApiKey.LIST_GROUPS, 5, ListGroupsRequest())
    assert {group.group_id for group in listed.groups} == groups
    assert machine.simulated.clock.work_ns() - looks > 10 * LOOK_NS, "others could be served in between"


def test_a_setting_of_the_broker_that_is_no_default_of_topics_does_not_touch_their_logs(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    updated: list[str] = []
    update_config = PartitionLog.update_config

    def counted(log: PartitionLog, config: TopicConfig) -> None:
        updated.append(log.topic)
        update_config(log, config)

    monkeypatch.setattr(PartitionLog, "update_config", counted)
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource

    def set_on_broker(name: str, value: str) -> None:
        change = resource.AlterableConfig(name=name, config_operation=0, value=value)
        altered = [resource(resource_type=4, resource_name="1", configs=[change])]
        answer = machine.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, IncrementalAlterConfigsRequest(resources=altered))
        assert answer.responses[0].error_code == 0

    set_on_broker("log.cleaner.backoff.ms", "15001")
    assert updated == []
    set_on_broker("log.retention.ms", "5000")
    assert updated.count("wide") == 500
    assert {log.config.retention_ms for log in machine.node.logs()} == {5_000}


def test_a_resource_altered_twice_in_one_request_is_refused_and_nothing_is_written(machine: Machine) -> None:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    change = resource.AlterableConfig(name="retention.ms", config_operation=0, value="5")
    many = [resource(resource_type=2, resource_name="orders", configs=[change]) for _ in range(MANY)]
    request = IncrementalAlterConfigsRequest(resources=many)
    answer = machine.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request)
    assert {response.error_code for response in answer.responses} == {ErrorCode.INVALID_REQUEST}
    assert machine.node.metadata.topics["orders"].overrides == {}


def test_records_of_one_partition_deleted_many_times_are_checkpointed_once(machine: Machine) -> None:
    batch = build_batch([(1_700_000_000_000, None, b"v", ()) for _ in range(5)])
    machine.call(ApiKey.PRODUCE, 9, produce_request("orders", bytes(batch)))
    topic = DeleteRecordsRequest.DeleteRecordsTopic
    many = [topic.DeleteRecordsPartition(partition_index=0, offset=number % 4) for number in range(MANY)]
    before = machine.syncs
    request = DeleteRecordsRequest(topics=[topic(name="orders", partitions=many)])
    answer = machine.call(ApiKey.DELETE_RECORDS, 2, request)
    assert answer.topics[0].partitions[-1].low_watermark == 3
    assert machine.syncs - before <= 4


def test_records_of_one_partition_deleted_do_not_write_down_all_others(machine: Machine) -> None:
    batch = build_batch([(1_700_000_000_000, None, b"v", ()) for _ in range(5)])
    machine.call(ApiKey.PRODUCE, 9, produce_request("orders", bytes(batch)))
    topic = DeleteRecordsRequest.DeleteRecordsTopic
    one = [topic.DeleteRecordsPartition(partition_index=0, offset=2)]
    machine.written.clear()
    machine.call(ApiKey.DELETE_RECORDS, 2, DeleteRecordsRequest(topics=[topic(name="orders", partitions=one)]))
    assert machine.written == {"log-start-offset-checkpoint": b"0\n1\norders 0 2\n"}


def test_a_feature_updated_many_times_is_updated_once(machine: Machine) -> None:
    update = UpdateFeaturesRequest.FeatureUpdateKey
    many = [update(feature="transaction.version", max_version_level=2, upgrade_type=1) for _ in range(MANY)]
    epoch = machine.node.metadata.features_epoch
    answer = machine.call(ApiKey.UPDATE_FEATURES, 1, UpdateFeaturesRequest(feature_updates=many))
    assert len(answer.results) == 1
    assert machine.node.metadata.features_epoch <= epoch + 1


def test_one_metadata_request_creates_topics_by_the_hundred_at_most(machine: Machine) -> None:
    topic = MetadataRequest.MetadataRequestTopic
    names = [topic(name=f"t{number}") for number in range(MANY)]
    request = MetadataRequest(topics=names, allow_auto_topic_creation=True)
    first = machine.call(ApiKey.METADATA, 12, request)
    assert len(machine.node.metadata.topics) == 2 + 100
    assert {each.error_code for each in first.topics} == {0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    # The error is one that clients ask again after; then the next hundred come.
    machine.call(ApiKey.METADATA, 12, request)
    assert len(machine.node.metadata.topics) == 2 + 200


@pytest.mark.parametrize("validate_only", [False, True])
def test_one_request_that_would_create_ten_thousand_things_is_refused_as_in_kafka(
    machine: Machine, validate_only: bool
) -> None:
    topic = CreateTopicsRequest.CreatableTopic
    for topics in (
        [topic(name=f"t{number}", num_partitions=1, replication_factor=1) for number in range(6_000)],
        [topic(name="t", num_partitions=10_000, replication_factor=1)],
        [topic(name="t", num_partitions=2**31 - 1, replication_factor=1)],
    ):
        request = CreateTopicsRequest(topics=topics, validate_only=validate_only)
        answer = machine.call(ApiKey.CREATE_TOPICS, 7, request)
        assert {each.error_code for each in answer.topics} == {ErrorCode.POLICY_VIOLATION}
    grow = CreatePartitionsRequest.CreatePartitionsTopic(name="orders", count=10_002, assignments=None)
    answer = machine.call(
        ApiKey.CREATE_PARTITIONS, 3, CreatePartitionsRequest(topics=[grow], validate_only=validate_only)
    )
    assert [each.error_code for each in answer.results] == [ErrorCode.POLICY_VIOLATION]
    assert set(machine.node.metadata.topics) == {"orders", "wide"}


def test_topics_grown_twice_in_one_request_are_refused_in_proportion(machine: Machine) -> None:
    grow = CreatePartitionsRequest.CreatePartitionsTopic
    many = [grow(name=f"t{number // 2}", count=3, assignments=None) for number in range(MANY)]
    answer = machine.call(ApiKey.CREATE_PARTITIONS, 3, CreatePartitionsRequest(topics=many))
    assert len(answer.results) == MANY // 2
    assert {each.error_code for each in answer.results} == {ErrorCode.INVALID_REQUEST}


def test_the_broker_takes_no_more_partitions_than_its_limit(machine: Machine) -> None:
    left = machine.node.config.max_partitions_per_broker - machine.node.partition_total
    topic = CreateTopicsRequest.CreatableTopic
    machine.node.partition_total += left - 1  # as if they were there
    for name, error in (("last", 0), ("too-many", ErrorCode.POLICY_VIOLATION)):
        request = CreateTopicsRequest(topics=[topic(name=name, num_partitions=1, replication_factor=1)])
        assert machine.call(ApiKey.CREATE_TOPICS, 7, request).topics[0].error_code == error
    names = [MetadataRequest.MetadataRequestTopic(name="automatic")]
    answer = machine.call(ApiKey.METADATA, 12, MetadataRequest(topics=names, allow_auto_topic_creation=True))
    assert answer.topics[0].error_code == ErrorCode.POLICY_VIOLATION
    machine.node.partition_total -= left - 1


def session_request(session_id: int, epoch: int, first: int) -> FetchRequest:
    topic = FetchRequest.FetchTopic
    wanted = [topic.FetchPartition(partition=first + number) for number in range(MANY)]
    return FetchRequest(session_id=session_id, session_epoch=epoch, topics=[topic(topic="unknown", partitions=wanted)])


def test_fetch_sessions_hold_a_bounded_number_of_partitions(machine: Machine) -> None:
    sessions = machine.node.fetch_sessions
    for number in range(20):
        sessions.resolve(session_request(0, 0, number * MANY), 12)
        assert sessions.partition_total <= SESSION_PARTITIONS_MAX
    assert len(sessions) == SESSION_PARTITIONS_MAX // MANY


def test_a_fetch_session_cannot_grow_beyond_the_bound_step_by_step(machine: Machine) -> None:
    sessions = machine.node.fetch_sessions
    session = sessions.resolve(session_request(0, 0, 0), 12)
    steps = SESSION_PARTITIONS_MAX // MANY
    for epoch in range(1, steps + 1):
        sessions.resolve(session_request(session.session_id, epoch, epoch * MANY), 12)
    with pytest.raises(KafkaError, match="FETCH_SESSION_ID_NOT_FOUND"):
        sessions.resolve(session_request(session.session_id, steps + 1, 0), 12)
    assert sessions.partition_total == 0
