"""When a client hears of its commit: before the markers are written, and whatever happens then they are."""

from typing import Any

from fencepost.simulation.node import SimulatedNode, SimulatedSocket
from fencepost.wire.batch import build_batch
from fencepost.wire.catalog import ApiKey
from fencepost.wire.messages import (
    AddPartitionsToTxnRequest,
    CreateTopicsRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ProduceRequest,
)

TOPIC, ID = "invoices", "billing"


def with_open_transaction(machine: SimulatedNode) -> tuple[SimulatedSocket, int]:
    socket = machine.connect()
    topic = CreateTopicsRequest.CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
    socket.call(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[topic]))
    socket.call(ApiKey.FIND_COORDINATOR, 1, FindCoordinatorRequest(key=ID, key_type=1))
    request = InitProducerIdRequest(
        transactional_id=ID, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
    )
    producer_id = socket.call(ApiKey.INIT_PRODUCER_ID, 4, request).producer_id
    added = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=ID,
        v3_and_below_producer_id=producer_id,
        v3_and_below_topics=[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])],
    )
    socket.call(ApiKey.ADD_PARTITIONS_TO_TXN, 3, added)
    record = (machine.clock.wall_ms(), b"key", b"value", ())
    batch = build_batch([record], producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)
    data = ProduceRequest.TopicProduceData.PartitionProduceData(index=0, records=bytes(batch))
    topic_data = [ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[data])]
    produced = ProduceRequest(transactional_id=ID, acks=-1, timeout_ms=1_000, topic_data=topic_data)
    answer = socket.call(ApiKey.PRODUCE, 9, produced)
    assert answer.responses[0].partition_responses[0].error_code == 0
    return socket, producer_id


def test_the_answer_to_a_commit_leaves_before_its_markers_are_written() -> None:
    machine = SimulatedNode({"flush": "os"}).start()
    socket, producer_id = with_open_transaction(machine)
    log = machine.node.partition(TOPIC, 0).log
    ends: list[int] = []

    def answered(correlation_id: int, answer: Any) -> None:
        assert answer.error_code == 0
        ends.append(log.log_end_offset)

    socket.on_answer = answered
    socket.call(ApiKey.END_TXN, 3, EndTxnRequest(transactional_id=ID, producer_id=producer_id, committed=True))
    assert ends == [1], "the record, and no marker yet"
    machine.scheduler.run_ready()
    assert (log.log_end_offset, log.last_stable_offset) == (2, 2)


def test_a_commit_that_was_answered_is_completed_after_a_crash() -> None:
    machine = SimulatedNode({"flush": "os"}).start()
    socket, producer_id = with_open_transaction(machine)
    socket.on_answer = lambda correlation_id, answer: machine.crash()
    socket.send(ApiKey.END_TXN, 3, EndTxnRequest(transactional_id=ID, producer_id=producer_id, committed=True))
    machine.scheduler.run_ready()
    assert machine.node.partition(TOPIC, 0).log.log_end_offset == 1, "it died between the answer and the marker"
    machine.start()
    log = machine.node.partition(TOPIC, 0).log
    assert (log.log_end_offset, log.last_stable_offset) == (2, 2)
