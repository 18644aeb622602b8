"""The controller in virtual time: what Apache Kafka is not asked in `tests/cluster`."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from fencepost.internal_topic_names import CLUSTER_METADATA
from fencepost.metadata.controller.features import SUPPORTED
from fencepost.metadata.controller.kept_log import KeptLog
from fencepost.metadata.controller.machine import Controller
from fencepost.metadata.controller.placement import Candidate, StripedPlacer
from fencepost.metadata.controller.service import (
    ControllerService,
    Endpoint,
    MemoryLog,
    bootstrap_records,
    read_api,
)
from fencepost.metadata.controller.state import Call, ControllerSettings
from fencepost.metadata.records import METADATA_TOPIC_ID
from fencepost.ports import Syncable
from fencepost.simulation.disk import SimulatedDisk
from fencepost.simulation.node import SeededRandomness
from fencepost.wire.errors import ErrorCode, KafkaError, MalformedMessage
from fencepost.wire.messages import (
    AllocateProducerIdsRequest,
    AlterPartitionRequest,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    CreateTopicsRequest,
    DescribeQuorumRequest,
    FetchRequest,
    FetchSnapshotRequest,
)

CLUSTER = "cluster"
SESSION_MS = 9_000
LEVELS = [(name, high) for name, (_, high) in SUPPORTED.items()]


class HeldLog(MemoryLog):
    """Syncs when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Callable[[OSError | None], None]] = []

    def sync(self, done: Callable[[OSError | None], None]) -> None:
        self.asked.append(done)

    def finish(self, error: OSError | None = None) -> None:
        waiting, self.asked = self.asked, []
        for done in waiting:
            done(error)


def a_controller() -> Controller:
    return Controller(ControllerSettings(1, CLUSTER), SeededRandomness(random.Random(1)))


def a_service(log: MemoryLog, controller: Controller | None = None) -> ControllerService:
    controller = controller or a_controller()
    epoch = 1
    if isinstance(log, KeptLog):
        for offset, records in log.load():
            controller.take(records, offset)
        epoch = log.begin(1)
    service = ControllerService(
        controller, log, node_id=1, cluster_id=CLUSTER, epoch=epoch, endpoint=Endpoint("127.0.0.1", 9093)
    )
    service.begin(bootstrap_records(LEVELS, 1), 0)
    return service


def registration(broker_id: int, incarnation: int = 1) -> BrokerRegistrationRequest:
    return BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id=CLUSTER,
        incarnation_id=bytes(15) + bytes([incarnation]),
        features=[
            BrokerRegistrationRequest.Feature(name=name, min_supported_version=0, max_supported_version=high)
            for name, high in LEVELS
        ],
        log_dirs=[bytes([broker_id]) * 16],
    )


def joined(service: ControllerService, broker_id: int, now_ms: int = 0) -> int:
    epoch: int = service.handle(registration(broker_id), 4, now_ms).value.broker_epoch
    beat(service, broker_id, epoch, now_ms)
    return epoch


def beat(service: ControllerService, broker_id: int, epoch: int, now_ms: int) -> Any:
    request = BrokerHeartbeatRequest(broker_id=broker_id, broker_epoch=epoch, current_metadata_offset=10**6)
    return service.handle(request, 1, now_ms).value


def a_topic(name: str, partitions: int = 1, replicas: int = 1) -> CreateTopicsRequest:
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas)
    return CreateTopicsRequest(topics=[topic])


def fetch(offset: int, *, leader_epoch: int = 1, last_epoch: int = 0, wait_ms: int = 0) -> FetchRequest:
    partition = FetchRequest.FetchTopic.FetchPartition(
        partition=0, current_leader_epoch=leader_epoch, fetch_offset=offset, last_fetched_epoch=last_epoch
    )
    topic = FetchRequest.FetchTopic(topic=CLUSTER_METADATA, topic_id=METADATA_TOPIC_ID, partitions=[partition])
    return FetchRequest(topics=[topic], max_wait_ms=wait_ms)


def test_an_answer_waits_for_the_disk_and_so_does_everything_decided_after_it() -> None:
    log = HeldLog()
    service = a_service(log)
    log.finish()
    log.finish()
    registered = service.handle(registration(2), 4, 0)
    # It changes nothing, but may have been decided by what is not durable.
    unknown = service.handle(AllocateProducerIdsRequest(broker_id=99, broker_epoch=1), 0, 0)
    assert not registered.done
    assert not unknown.done
    assert service.handle(fetch(0), 17, 0).value.responses[0].partitions[0].high_watermark < log.end_offset
    log.finish()
    assert registered.value.error_code == ErrorCode.NONE
    assert unknown.value.error_code == ErrorCode.STALE_BROKER_EPOCH


def test_nothing_is_answered_any_more_once_a_sync_has_failed() -> None:
    log = HeldLog()
    service = a_service(log)
    log.finish()
    log.finish()
    registered = service.handle(registration(2), 4, 0)
    log.finish(OSError(5, "broken"))
    assert not registered.done
    assert service.failure is not None
    with pytest.raises(KafkaError):
        service.handle(registration(3), 4, 0)


def test_a_fetch_at_the_end_waits_for_records_or_its_time() -> None:
    service = a_service(MemoryLog())
    end = service.handle(fetch(0), 17, 0).value.responses[0].partitions[0].high_watermark
    first, second = (service.handle(fetch(end, last_epoch=1, wait_ms=500), 17, 0) for _ in range(2))
    service.tick(499)
    assert not first.done
    service.handle(registration(2), 4, 499)
    assert first.value.responses[0].partitions[0].records
    assert second.done
    late = service.handle(fetch(end + 1, last_epoch=1, wait_ms=500), 17, 499)
    service.tick(999)
    assert late.value.responses[0].partitions[0].records == b""


@pytest.mark.parametrize(
    ("leader_epoch", "error"),
    [(-1, ErrorCode.INVALID_REQUEST), (0, ErrorCode.FENCED_LEADER_EPOCH), (2, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_whoever_has_another_epoch_learns_who_leads_and_where(leader_epoch: int, error: ErrorCode) -> None:
    answer = a_service(MemoryLog()).handle(fetch(0, leader_epoch=leader_epoch), 17, 0).value
    partition = answer.responses[0].partitions[0]
    assert partition.error_code == error
    assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (1, 1)
    assert (answer.node_endpoints[0].host, answer.node_endpoints[0].port) == ("127.0.0.1", 9093)


def test_a_follower_with_a_longer_history_is_told_where_it_diverges() -> None:
    service = a_service(MemoryLog())
    partition = service.handle(fetch(10**6, last_epoch=1), 17, 0).value.responses[0].partitions[0]
    assert (partition.diverging_epoch.epoch, partition.diverging_epoch.end_offset) == (1, partition.high_watermark)


def test_a_silent_broker_is_fenced_after_its_session_and_not_before() -> None:
    controller = a_controller()
    service = a_service(MemoryLog(), controller)
    joined(service, 2, now_ms=0)
    joined(service, 3, now_ms=5_000)
    service.handle(a_topic("t", 1, 2), 7, 5_000)
    service.tick(SESSION_MS)
    assert fenced(controller) == []
    service.tick(SESSION_MS + 1)
    assert fenced(controller) == [2]
    partition = controller.image.topics["t"].partitions[0]
    assert (partition.leader, partition.isr) == (3, (3,))
    service.tick(5_000 + SESSION_MS + 1)
    assert fenced(controller) == [2, 3]
    partition = controller.image.topics["t"].partitions[0]
    # Nobody leads, and the last who did may again.
    assert (partition.leader, partition.isr, partition.elr) == (-1, (), (3,))


def test_leaders_go_back_to_where_they_should_be() -> None:
    controller = a_controller()
    service = a_service(MemoryLog(), controller)
    first, second = joined(service, 2), joined(service, 3)
    assigned = CreateTopicsRequest.CreatableTopic.CreatableReplicaAssignment(partition_index=0, broker_ids=[2, 3])
    topic = CreateTopicsRequest.CreatableTopic(
        name="t", num_partitions=-1, replication_factor=-1, assignments=[assigned]
    )
    service.handle(CreateTopicsRequest(topics=[topic]), 7, 0)
    fence = BrokerHeartbeatRequest(broker_id=2, broker_epoch=first, current_metadata_offset=10**6, want_fence=True)
    service.handle(fence, 1, 1)
    beat(service, 2, first, 2)
    known = controller.image.topics["t"]
    assert (known.partitions[0].leader, known.partitions[0].isr) == (3, (3,))
    service.elect(3)
    assert known.partitions[0].leader == 3, "the first replica is not in sync"
    states = AlterPartitionRequest.TopicData.PartitionData.BrokerState
    wanted = AlterPartitionRequest.TopicData.PartitionData(
        partition_index=0,
        leader_epoch=known.partitions[0].leader_epoch,
        partition_epoch=known.partitions[0].partition_epoch,
        new_isr_with_epochs=[states(broker_id=2, broker_epoch=first), states(broker_id=3, broker_epoch=second)],
    )
    altered = AlterPartitionRequest.TopicData(topic_id=known.topic_id, partitions=[wanted])
    service.handle(AlterPartitionRequest(broker_id=3, broker_epoch=second, topics=[altered]), 3, 4)
    assert known.partitions[0].leader == 3
    service.elect(5)
    assert known.partitions[0].leader == 2


def fenced(controller: Controller) -> list[int]:
    return [broker_id for broker_id, known in controller.image.brokers.items() if known.is_fenced]


def test_the_quorum_is_described_to_whoever_asks_for_it_by_name() -> None:
    service = a_service(MemoryLog())
    assert service.handle(DescribeQuorumRequest(), 2, 0).value.error_code == ErrorCode.INVALID_REQUEST
    partition = DescribeQuorumRequest.TopicData.PartitionData(partition_index=0)
    topic = DescribeQuorumRequest.TopicData(topic_name=CLUSTER_METADATA, partitions=[partition])
    described = service.handle(DescribeQuorumRequest(topics=[topic]), 2, 0).value.topics[0].partitions[0]
    assert (described.leader_id, described.leader_epoch) == (1, 1)
    assert [voter.replica_id for voter in described.current_voters] == [1]


def test_producer_id_blocks_never_overlap() -> None:
    service = a_service(MemoryLog())
    epoch = joined(service, 2)
    request = AllocateProducerIdsRequest(broker_id=2, broker_epoch=epoch)
    blocks = [service.handle(request, 0, 0).value for _ in range(3)]
    assert [block.producer_id_start for block in blocks] == [0, 1_000, 2_000]
    assert {block.producer_id_len for block in blocks} == {1_000}


def test_there_is_no_snapshot_to_fetch() -> None:
    answer = a_service(MemoryLog()).handle(FetchSnapshotRequest(), 1, 0).value
    assert answer.topics[0].partitions[0].error_code == ErrorCode.SNAPSHOT_NOT_FOUND


def test_a_request_that_no_controller_answers_ends_the_connection() -> None:
    with pytest.raises(MalformedMessage):
        read_api(memoryview(b"\0\0\0\x09"))
    with pytest.raises(MalformedMessage):
        read_api(memoryview(b"\0\x3e\0\x63"))


@pytest.mark.parametrize("seed", range(20))
def test_replicas_are_striped_over_racks_and_brokers(seed: int) -> None:
    racks = [Candidate(number, "abc"[number % 3], is_fenced=False) for number in range(6)]
    placement = StripedPlacer(SeededRandomness(random.Random(seed))).place(60, 3, racks)
    assert all(len({number % 3 for number in replicas}) == 3 for replicas in placement)
    leaders = [replicas[0] for replicas in placement]
    assert max(map(leaders.count, range(6))) - min(map(leaders.count, range(6))) <= 2
    one_fenced = [Candidate(number, None, is_fenced=number == 0) for number in range(3)]
    placement = StripedPlacer(SeededRandomness(random.Random(seed))).place(30, 3, one_fenced)
    assert 0 not in {replicas[0] for replicas in placement}
    assert all(replicas[2] == 0 for replicas in placement)


class AtOnce:
    def sync(self, files: list[Syncable], done: Callable[[OSError | None], None]) -> None:
        for file in files:
            file.sync()
        done(None)


def test_a_log_that_a_crash_has_torn_goes_on_behind_its_last_whole_batch() -> None:
    disk = SimulatedDisk()
    log = KeptLog(disk, AtOnce(), "/data")
    service = a_service(log)
    joined(service, 2)
    service.handle(a_topic("kept"), 7, 0)
    end = log.end_offset
    path = "/data/__cluster_metadata-0/00000000000000000000.log"
    content = disk.read_bytes(path)
    disk.write_bytes(path, content + content[-70:-3])
    again = KeptLog(disk, AtOnce(), "/data")
    second = a_service(again)
    assert again.end_offset == end + 1  # what begins the new epoch
    assert second.handle(a_topic("kept"), 7, 0).value.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    answer = second.handle(fetch(0, leader_epoch=1), 17, 0).value.responses[0].partitions[0]
    assert answer.current_leader.leader_epoch == 2
    (_, records), *_ = (batch for batch in KeptLog(disk, AtOnce(), "/data").load() if batch[1])
    assert records[0].name == "BeginTransactionRecord"


def test_decisions_need_no_log() -> None:
    controller = a_controller()
    controller.take(bootstrap_records(LEVELS, 1), 0)
    decision = controller.decide(a_topic("t"), Call(7, 0))
    assert decision.answer.topics[0].error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert decision.records == []
