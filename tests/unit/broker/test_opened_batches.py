"""Batches that have to be opened before they are appended: bounded per request, in slices, in order, as at once."""

from collections.abc import Iterator
from typing import Any

import pytest

from fencepost.simulation.node import SimulatedNode, SimulatedSocket
from fencepost.wire.batch import build_batch, read_header
from fencepost.wire.catalog import ApiKey
from fencepost.wire.compression import Codec
from fencepost.wire.errors import ErrorCode
from fencepost.wire.messages import FetchRequest, IncrementalAlterConfigsRequest, ProduceRequest
from fencepost.wire.records import convert_batch, read_records

TIME_MS = 1_700_000_000_000


@pytest.fixture
def machine() -> Iterator[SimulatedNode]:
    made = SimulatedNode({"flush": "os", "opened.records.max": "50000", "message.max.bytes": "5000000"}, seed=1).start()
    made.node.create_topic("compacted", 3, {"cleanup.policy": "compact"})
    made.node.create_topic("converted", 1, {"compression.type": "lz4"})
    made.node.create_topic("plain", 1, {})
    yield made
    made.stop()


def batch_of(
    count: int, codec: Codec = Codec.ZSTD, key: bytes | None = b"k", value: bytes = b"v", **more: Any
) -> bytes:
    records = [(TIME_MS, key, value, ()) for _ in range(count)]
    plain = build_batch(records, **more)
    return bytes(convert_batch(plain, read_header(plain), codec, 1 << 26))


def produce(*batches: tuple[str, int, bytes], acks: int = -1) -> ProduceRequest:
    topic = ProduceRequest.TopicProduceData
    data = [
        topic(name=name, partition_data=[topic.PartitionProduceData(index=index, records=batch)])
        for name, index, batch in batches
    ]
    return ProduceRequest(acks=acks, timeout_ms=1_000, topic_data=data)


def codes(answer: Any) -> list[int]:
    return [one.error_code for topic in answer.responses for one in topic.partition_responses]


def stored(socket: SimulatedSocket, topic: str) -> bytes:
    wanted = FetchRequest.FetchTopic
    asked = wanted.FetchPartition(partition=0, partition_max_bytes=10_000_000)
    request = FetchRequest(max_bytes=10_000_000, topics=[wanted(topic=topic, partitions=[asked])])
    return bytes(socket.call(ApiKey.FETCH, 12, request).responses[0].partitions[0].records)


def test_a_batch_of_many_records_is_checked_in_slices_while_others_are_served(machine: SimulatedNode) -> None:
    busy, other = machine.connect(), machine.connect()
    told: list[str] = []
    busy.on_answer = lambda number, _: told.append(f"busy {number}")
    other.on_answer = lambda number, _: told.append("other")
    first = busy.send(ApiKey.PRODUCE, 9, produce(("compacted", 0, batch_of(40_000))))
    second = busy.send(ApiKey.PRODUCE, 9, produce(("compacted", 0, batch_of(1, Codec.NONE))))
    other.send(ApiKey.PRODUCE, 9, produce(("plain", 0, batch_of(1, Codec.NONE))))
    busy.wait(second)
    assert told == ["other", f"busy {first}", f"busy {second}"]
    offsets = [busy.answers[number].responses[0].partition_responses[0].base_offset for number in (first, second)]
    assert offsets == [0, 40_000]
    assert machine.node.slices.slices >= 3


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("count", [1, 300, 5_000])
def test_what_is_converted_before_the_append_is_what_was_sent(machine: SimulatedNode, codec: Codec, count: int) -> None:
    socket = machine.connect()
    sent = batch_of(count, codec, value=b"value" * 20)
    assert codes(socket.call(ApiKey.PRODUCE, 9, produce(("converted", 0, sent)))) == [0]
    found = stored(socket, "converted")
    assert read_header(found).attributes & 7 == Codec.LZ4
    assert [record.value for record in read_records(found, 1 << 26)] == [b"value" * 20] * count


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_record_without_a_key_is_named_as_it_is_at_once(machine: SimulatedNode, codec: Codec) -> None:
    socket = machine.connect()
    answers = []
    for count in (2, 1_000):
        answer = socket.call(ApiKey.PRODUCE, 9, produce(("compacted", 0, batch_of(count, codec, key=None))))
        answers.append(answer.responses[0].partition_responses[0])
    assert [answer.error_code for answer in answers] == [ErrorCode.INVALID_RECORD] * 2
    assert [len(answer.record_errors) for answer in answers] == [2, 1_000]
    assert answers[0].error_message == answers[1].error_message
    assert answers[0].log_start_offset == answers[1].log_start_offset == 0


def test_what_a_request_may_have_opened_is_bounded_and_the_rest_is_taken(machine: SimulatedNode) -> None:
    socket = machine.connect()
    many = batch_of(30_000)
    request = produce(("compacted", 0, many), ("compacted", 1, many), ("plain", 0, many))
    answer = socket.call(ApiKey.PRODUCE, 9, request)
    assert codes(answer) == [0, ErrorCode.MESSAGE_TOO_LARGE, 0]
    assert codes(socket.call(ApiKey.PRODUCE, 9, produce(("compacted", 1, many)))) == [0]


def test_the_batches_of_a_request_share_what_they_may_unpack_to() -> None:
    machine = SimulatedNode({"flush": "os", "decompressed.batch.max.bytes": "1000000"}, seed=1).start()
    machine.node.create_topic("compacted", 3, {"cleanup.policy": "compact"})
    zeros = batch_of(1, value=bytes(600_000))
    answer = machine.connect().call(ApiKey.PRODUCE, 9, produce(*(("compacted", index, zeros) for index in range(3))))
    assert codes(answer) == [0, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.MESSAGE_TOO_LARGE]
    machine.stop()


def test_a_batch_with_a_wrong_checksum_is_corrupt_and_not_opened(machine: SimulatedNode) -> None:
    broken = bytearray(batch_of(1_000))
    broken[-1] ^= 1
    answer = machine.connect().call(ApiKey.PRODUCE, 9, produce(("compacted", 0, bytes(broken))))
    assert codes(answer) == [ErrorCode.CORRUPT_MESSAGE]


def test_a_sequence_is_judged_when_the_batch_is_appended(machine: SimulatedNode) -> None:
    socket, other = machine.connect(), machine.connect()
    batch = batch_of(20_000, producer_id=7, producer_epoch=0, base_sequence=0)
    first = socket.send(ApiKey.PRODUCE, 9, produce(("compacted", 0, batch)))
    assert first not in socket.answers
    # The same batch on another connection: whoever is appended second is the duplicate.
    second = other.send(ApiKey.PRODUCE, 9, produce(("compacted", 0, batch)))
    socket.wait(first)
    other.wait(second)
    answers = [socket.answers[first], other.answers[second]]
    assert [one.responses[0].partition_responses[0].base_offset for one in answers] == [0, 0]
    assert machine.node.partition("compacted", 0).log.log_end_offset == 20_000


def test_a_topic_that_changes_while_its_batch_is_opened_gets_it_as_it_asks_then(machine: SimulatedNode) -> None:
    socket, admin = machine.connect(), machine.connect()
    sent = socket.send(ApiKey.PRODUCE, 9, produce(("compacted", 0, batch_of(20_000))))
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    change = resource.AlterableConfig(name="compression.type", config_operation=0, value="gzip")
    altered = resource(resource_type=2, resource_name="compacted", configs=[change])
    admin.send(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, IncrementalAlterConfigsRequest(resources=[altered]))
    socket.wait(sent)
    assert codes(socket.answers[sent]) == [0]
    assert read_header(stored(socket, "compacted")).attributes & 7 == Codec.GZIP


def test_a_topic_deleted_while_its_batch_is_opened_is_unknown(machine: SimulatedNode) -> None:
    socket = machine.connect()
    sent = socket.send(ApiKey.PRODUCE, 9, produce(("compacted", 0, batch_of(20_000))))
    machine.node.delete_topic("compacted")
    socket.wait(sent)
    assert codes(socket.answers[sent]) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize("acks", [-1, 1, 0])
def test_a_produce_to_very_many_partitions_is_appended_in_slices(machine: SimulatedNode, acks: int) -> None:
    machine.node.create_topic("wide", 600, {})
    socket = machine.connect()
    topic = ProduceRequest.TopicProduceData
    parts = [topic.PartitionProduceData(index=index, records=batch_of(1, Codec.NONE)) for index in range(600)]
    request = ProduceRequest(acks=acks, timeout_ms=1_000, topic_data=[topic(name="wide", partition_data=parts)])
    sent = socket.send(ApiKey.PRODUCE, 9, request)
    machine.scheduler.run_for(1_000)
    assert socket.close_reason is None
    assert [partition.log.log_end_offset for partition in machine.node.partitions["wide"]] == [1] * 600
    if acks:
        answered = socket.answers[sent].responses
        assert [one.index for one in answered[0].partition_responses] == list(range(600))
        assert len(answered) == 1
