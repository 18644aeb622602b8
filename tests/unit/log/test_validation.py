"""What a refusal tells about a batch, and what is done to one whose header claims more than a client may."""

import pytest

from fencepost.config import TopicConfig
from fencepost.log.validation import NotOneBatch
from fencepost.wire.batch import CREATE_TIME, LOG_APPEND_TIME, build_batch, read_header, verify_crc
from fencepost.wire.errors import ErrorCode, KafkaError
from fencepost.wire.records import InvalidRecords, read_records
from tests.unit.log.scene import NOW_MS, Scene, batch_of

LZ4 = 3


def records_at_fault(scene: Scene, batch: bytearray) -> tuple[ErrorCode, list[int]]:
    with pytest.raises(InvalidRecords) as refusal:
        scene.append(batch)
    return refusal.value.code, [index for index, _ in refusal.value.record_errors]


@pytest.mark.parametrize("codec", [0, LZ4])
def test_the_records_with_timestamps_out_of_bounds_are_named(codec: int) -> None:
    scene = Scene(TopicConfig(message_timestamp_after_max_ms=500))
    timestamps = (NOW_MS, NOW_MS + 501, NOW_MS + 500, NOW_MS + 999)
    batch = build_batch([(timestamp, b"k", b"v", ()) for timestamp in timestamps], compression=codec)
    assert records_at_fault(scene, batch) == (ErrorCode.INVALID_TIMESTAMP, [1, 3])


def test_the_records_without_a_key_are_named_on_a_compacted_topic() -> None:
    scene = Scene(TopicConfig(cleanup_policy=("compact",)))
    batch = build_batch([(NOW_MS, key, b"v", ()) for key in (b"k", None, b"", None)])
    assert records_at_fault(scene, batch) == (ErrorCode.INVALID_RECORD, [1, 3])


def test_a_client_cannot_claim_the_time_of_the_log() -> None:
    scene = Scene()
    scene.append(batch_of("v", timestamp_ms=NOW_MS - 5, timestamp_type=LOG_APPEND_TIME))
    records = scene.log.read(0, 1000).records
    header = read_header(records)
    assert header.timestamp_type == CREATE_TIME
    assert verify_crc(records, 0, header)
    assert [record.timestamp for record in read_records(records, 1000)] == [NOW_MS - 5]


@pytest.mark.parametrize(("kind", "timestamp_ms"), [("CreateTime", -1), ("LogAppendTime", NOW_MS)])
def test_the_time_of_the_log_is_refused_where_it_cannot_be_taken_back(kind: str, timestamp_ms: int) -> None:
    scene = Scene(TopicConfig(message_timestamp_type=kind))
    batch = batch_of("a", "b", timestamp_ms=timestamp_ms, timestamp_type=LOG_APPEND_TIME)
    assert records_at_fault(scene, batch) == (ErrorCode.INVALID_TIMESTAMP, [0, 1])


@pytest.mark.parametrize("rest", [b"x", b"x" * 100, batch_of("v")[:-1]])
def test_bytes_behind_a_batch_that_are_no_batch_are_corrupt(rest: bytes) -> None:
    with pytest.raises(KafkaError) as refusal:
        Scene().append(batch_of("v") + rest)
    assert refusal.value.code == ErrorCode.CORRUPT_MESSAGE


def test_a_second_batch_is_told_apart_from_what_is_wrong_with_the_first() -> None:
    with pytest.raises(NotOneBatch):
        Scene().append(batch_of("v") + batch_of("w"))
