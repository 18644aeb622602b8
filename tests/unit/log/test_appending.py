"""What a leader takes, what it refuses and with which of Kafka's codes, and what it does to a batch on the way."""

import errno

import pytest

from fencepost.config import TopicConfig
from fencepost.log.producers import Origin
from fencepost.simulation.disk import PowerCut
from fencepost.wire.batch import (
    LOG_APPEND_TIME,
    ControlType,
    build_batch,
    build_single,
    control_batch,
    read_header,
    seal,
    verify_crc,
)
from fencepost.wire.errors import ErrorCode, KafkaError
from fencepost.wire.records import read_records
from tests.peers.markers import append_marker
from tests.unit.log.scene import DIRECTORY, NOW_MS, Scene, batch_of, idempotent, offsets_in


def refused(scene: Scene, batch: bytearray, **options: object) -> ErrorCode:
    before = repr(scene.log)
    with pytest.raises(KafkaError) as refusal:
        scene.append(batch, **options)
    assert repr(scene.log) == before, "a refused batch leaves no trace"
    return refusal.value.code


def test_offsets_and_leader_epoch_are_stamped_and_the_crc_still_holds() -> None:
    scene = Scene()
    assert scene.append(batch_of("a", "b", "c"), leader_epoch=4) == (0, 2, -1, 0, False)
    assert scene.append(batch_of("d"), leader_epoch=5) == (3, 3, -1, 0, False)
    records = scene.log.read(3, 1000).records
    header = read_header(records)
    assert (header.base_offset, header.partition_leader_epoch) == (3, 5)
    assert verify_crc(records, 0, header)
    assert scene.log.leader_epoch == 5
    assert scene.log.end_offset_for_epoch(4) == (4, 3)


def test_a_batch_with_a_flipped_bit_is_corrupt() -> None:
    batch = batch_of("value")
    batch[-1] ^= 1
    assert refused(Scene(), batch) == ErrorCode.CORRUPT_MESSAGE


def test_a_batch_larger_than_the_topic_takes_is_too_large() -> None:
    scene = Scene(TopicConfig(max_message_bytes=100))
    assert refused(scene, batch_of("v" * 100)) == ErrorCode.MESSAGE_TOO_LARGE
    scene.append(batch_of("v"))


def test_a_batch_larger_than_a_segment_is_refused() -> None:
    assert refused(Scene(TopicConfig(segment_bytes=100)), batch_of("v" * 100)) == ErrorCode.RECORD_LIST_TOO_LARGE


def own_record(scene: Scene, value: bytes = b"state") -> int:
    log = scene.log
    batch = build_single(NOW_MS, b"id", value, base_offset=log.log_end_offset, partition_leader_epoch=5)
    return log.append_record(batch, leader_epoch=5, now_ms=NOW_MS)


def test_a_record_of_a_coordinator_is_written_as_it_was_built() -> None:
    scene = Scene()
    scene.append()
    assert [own_record(scene), own_record(scene)] == [1, 2]
    records = scene.log.read(1, 1000).records
    header = read_header(records)
    assert (header.base_offset, header.partition_leader_epoch) == (1, 5)
    assert verify_crc(records, 0, header)
    assert scene.log.end_offset_for_epoch(0) == (0, 1)
    scene.log.check_invariants()


def test_a_topic_of_log_append_time_stamps_a_coordinators_record_too() -> None:
    scene = Scene(TopicConfig(message_timestamp_type="LogAppendTime"))
    assert [own_record(scene), own_record(scene)] == [0, 1]
    header = read_header(scene.log.read(1, 1000).records)
    assert (header.base_offset, header.timestamp_type) == (1, LOG_APPEND_TIME)


def test_a_coordinators_record_larger_than_the_topic_takes_is_too_large() -> None:
    scene = Scene(TopicConfig(max_message_bytes=100))
    with pytest.raises(KafkaError) as refusal:
        own_record(scene, b"v" * 100)
    assert refusal.value.code == ErrorCode.MESSAGE_TOO_LARGE
    assert scene.log.log_end_offset == 0


@pytest.mark.parametrize(
    ("position", "content", "code"),
    [
        (0, b"\0\0\0\0\0\0\0\x05", ErrorCode.INVALID_RECORD),  # base offset
        (8, b"\0\0\0\x05", ErrorCode.CORRUPT_MESSAGE),  # length
        (8, b"\0\0\x10\0", ErrorCode.INVALID_RECORD),  # longer than what was sent
        (16, b"\x01", ErrorCode.INVALID_RECORD),  # magic of an old format
        (16, b"\x03", ErrorCode.CORRUPT_MESSAGE),  # magic nobody has
        (21, b"\0\x20", ErrorCode.INVALID_RECORD),  # control
        (21, b"\0\x05", ErrorCode.INVALID_RECORD),  # codec
        (23, b"\0\0\0\x01", ErrorCode.INVALID_RECORD),  # last offset delta
        (23, b"\xff\xff\xff\xff", ErrorCode.INVALID_RECORD),
        (57, b"\0\0\0\0", ErrorCode.INVALID_RECORD),  # count
        (57, b"\xff\xff\xff\xff", ErrorCode.INVALID_RECORD),
        (43, b"\0\0\0\0\0\0\0\x07", ErrorCode.INVALID_RECORD),  # producer id without a sequence
    ],
)
def test_a_header_that_no_client_may_send_is_refused(position: int, content: bytes, code: ErrorCode) -> None:
    batch = batch_of("value")
    batch[position : position + len(content)] = content
    seal(batch, 0, len(batch))
    assert refused(Scene(), batch) == code


def test_exactly_one_batch_may_come_at_a_time() -> None:
    assert refused(Scene(), batch_of("a") + batch_of("b")) == ErrorCode.INVALID_RECORD
    assert refused(Scene(), bytearray()) == ErrorCode.INVALID_RECORD
    assert refused(Scene(), bytearray(60)) == ErrorCode.INVALID_RECORD


def test_the_coordinator_may_leave_out_the_sequence() -> None:
    scene = Scene()
    batch = batch_of("offset commit", producer_id=7, producer_epoch=0, transactional=True)
    assert refused(scene, bytearray(batch)) == ErrorCode.INVALID_RECORD
    assert scene.append(batch, origin=Origin.COORDINATOR).first_offset == 0


def test_timestamps_too_far_ahead_or_behind_are_refused() -> None:
    limits = TopicConfig(message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=500)
    scene = Scene(limits)
    assert refused(scene, batch_of("v", timestamp_ms=NOW_MS + 501)) == ErrorCode.INVALID_TIMESTAMP
    assert refused(scene, batch_of("v", timestamp_ms=NOW_MS - 1001)) == ErrorCode.INVALID_TIMESTAMP
    scene.append(batch_of("v", timestamp_ms=NOW_MS + 500))
    scene.append(batch_of("v", timestamp_ms=NOW_MS - 1000))
    scene.append(batch_of("v", timestamp_ms=-1))


def test_log_append_time_is_stamped_under_a_new_crc() -> None:
    scene = Scene(TopicConfig(message_timestamp_type="LogAppendTime"))
    assert scene.append(batch_of("v", timestamp_ms=5)).log_append_time_ms == NOW_MS
    records = scene.log.read(0, 1000).records
    header = read_header(records)
    assert (header.timestamp_type, header.max_timestamp) == (LOG_APPEND_TIME, NOW_MS)
    assert verify_crc(records, 0, header)
    assert [record.timestamp for record in read_records(records, 1000)] == [NOW_MS]


@pytest.mark.parametrize(("name", "codec"), [("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4), ("uncompressed", 0)])
def test_a_topic_with_its_own_codec_recompresses(name: str, codec: int) -> None:
    scene = Scene(TopicConfig(compression_type=name))
    for sent in (0, 3):
        scene.append(batch_of("a" * 100, "b" * 100, compression=sent))
    for offset in (0, 2):
        records = scene.log.read(offset, 1).records
        header = read_header(records)
        assert header.compression == codec
        assert verify_crc(records, 0, header)
        assert [record.value for record in read_records(records, 1000)] == [b"a" * 100, b"b" * 100]


def test_a_compacted_topic_takes_no_record_without_a_key() -> None:
    scene = Scene(TopicConfig(cleanup_policy=("compact",)))
    for codec in (0, 4):
        assert refused(scene, batch_of("v", key=None, compression=codec)) == ErrorCode.INVALID_RECORD
        scene.append(batch_of("v", compression=codec))


def test_a_repeated_batch_is_answered_with_its_first_offsets_and_not_written_again() -> None:
    scene = Scene()
    for sequence in range(5):
        scene.append(idempotent(sequence, f"value {sequence}"))
    for sequence in range(5):
        assert scene.append(idempotent(sequence, f"value {sequence}")) == (sequence, sequence, NOW_MS, 0, True)
    assert scene.log.log_end_offset == 5
    assert refused(scene, idempotent(7, "too early")) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    scene.append(idempotent(0, "new epoch", epoch=1))
    assert refused(scene, idempotent(5, "old epoch")) == ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize("clean", [True, False])
def test_a_repeated_batch_is_still_recognized_after_a_restart(clean: bool) -> None:
    """All five of them, though a snapshot keeps but the last."""
    scene = Scene()
    for sequence in range(8):
        scene.append(idempotent(sequence, f"value {sequence}"))
    scene.log.roll(NOW_MS)
    if clean:
        scene.log.close()
    scene.open(clean=clean)
    for sequence in range(3, 8):
        appended = scene.append(idempotent(sequence, f"value {sequence}"))
        assert (appended.first_offset, appended.duplicate) == (sequence, True)
    assert refused(scene, idempotent(2, "forgotten")) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_readers_of_committed_records_stop_before_an_open_transaction() -> None:
    scene = Scene()
    scene.append(batch_of("plain"))
    scene.append(idempotent(0, "in doubt", transactional=True))
    scene.append(batch_of("plain"))
    log = scene.log
    log.advance_high_watermark(3)
    assert (log.last_stable_offset, log.high_watermark) == (1, 3)
    marker = append_marker(log, ControlType.ABORT, 7, 0, 1, transaction_version=1, leader_epoch=0, now_ms=NOW_MS)
    assert marker == 3
    assert log.last_stable_offset == 1, "the marker itself is above the high watermark"
    log.advance_high_watermark(4)
    assert log.last_stable_offset == 4
    assert [entry[:3] for entry in log.aborted_transactions(0, 4)] == [(7, 1, 3)]
    assert log.aborted_transactions(0, 1) == []
    assert bytes(log.read(3, 1000).records) == control_batch(ControlType.ABORT, 1, 7, 0, NOW_MS, 3, 0)


def test_a_full_disk_refuses_an_append_and_takes_the_next_once_there_is_room() -> None:
    scene = Scene()
    scene.append(idempotent(0, "first"))
    scene.disk.fail_write(".log", errno.ENOSPC)
    assert refused(scene, idempotent(1, "second")) == ErrorCode.KAFKA_STORAGE_ERROR
    assert scene.log.failure is None
    assert scene.append(idempotent(1, "second")).first_offset == 1
    scene.log.check_invariants()


def test_a_full_disk_at_a_roll_changes_nothing() -> None:
    scene = Scene(TopicConfig(segment_bytes=200))
    scene.append(idempotent(0, "v" * 50))
    for file in (".index", ".snapshot"):
        scene.disk.fail_write(file, errno.ENOSPC)
        assert refused(scene, idempotent(1, "v" * 50)) == ErrorCode.KAFKA_STORAGE_ERROR
    assert scene.append(idempotent(1, "v" * 50)).first_offset == 1
    assert len(scene.log.segments) == 2
    scene.log.check_invariants()


def test_a_full_disk_at_the_index_of_aborted_transactions_takes_the_marker_back() -> None:
    scene = Scene()
    scene.append(idempotent(0, "in doubt", transactional=True))
    scene.disk.fail_write(".txnindex", errno.ENOSPC)
    with pytest.raises(KafkaError):
        append_marker(scene.log, ControlType.ABORT, 7, 0, 1, transaction_version=1, leader_epoch=0, now_ms=NOW_MS)
    assert scene.log.log_end_offset == 1
    assert scene.log.producers.has_open_transaction(7, 0)
    append_marker(scene.log, ControlType.ABORT, 7, 0, 1, transaction_version=1, leader_epoch=0, now_ms=NOW_MS)
    assert len(scene.log.aborted_transactions(0, 2)) == 1
    scene.log.check_invariants()


def test_a_failed_sync_fails_the_log_for_good() -> None:
    scene = Scene()
    scene.append(batch_of("never acknowledged"))
    scene.disk.fail_sync(".log")
    with pytest.raises(OSError, match="error"):
        scene.log.flush()
    for call in (
        lambda: scene.append(),
        lambda: scene.log.read(0, 100),
        lambda: scene.log.roll(NOW_MS),
        lambda: scene.log.truncate_to(0, NOW_MS),
        lambda: scene.log.delete_records_before(0),
    ):
        with pytest.raises(KafkaError) as refusal:
            call()
        assert refusal.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert scene.log.synced_offset == 0


def test_an_io_error_on_a_write_fails_the_log() -> None:
    scene = Scene()
    scene.disk.fail_write(".log", errno.EIO)
    assert refused(scene, batch_of("value")) == ErrorCode.KAFKA_STORAGE_ERROR
    assert scene.log.failure is not None


def test_dirty_files_are_all_it_takes_to_survive_a_power_cut() -> None:
    scene = Scene(TopicConfig(segment_bytes=300))
    for _ in range(6):
        scene.append(batch_of("v" * 50))
    assert len(scene.log.segments) > 1
    scene.sync()
    assert not scene.log.is_dirty
    scene.append(batch_of("lost"))
    scene.disk.power_cut(PowerCut.LOSE_ALL)
    scene.open(clean=False, recovery_point=6)
    assert scene.log.log_end_offset == 6
    scene.log.check_invariants()


def test_a_follower_takes_batches_as_they_are_and_refuses_what_it_has() -> None:
    leader, follower = Scene(), Scene()
    leader.append(idempotent(0, "a", transactional=True), leader_epoch=2)
    append_marker(leader.log, ControlType.ABORT, 7, 0, 1, transaction_version=1, leader_epoch=3, now_ms=NOW_MS)
    records = leader.log.read(0, 1000).records
    assert follower.log.append_as_follower(records, NOW_MS) == 2
    assert follower.log.read(0, 1000) == leader.log.read(0, 1000)
    assert follower.log.epochs.entries == leader.log.epochs.entries
    assert follower.log.aborted_transactions(0, 2) == leader.log.aborted_transactions(0, 2)
    with pytest.raises(KafkaError):
        follower.log.append_as_follower(records, NOW_MS)


def test_reading_gives_whole_batches_within_the_limit_and_at_least_one_where_asked() -> None:
    scene = Scene(TopicConfig(index_interval_bytes=0))
    batch = bytes(batch_of("v" * 100))
    for _ in range(10):
        scene.append(bytearray(batch))
    size, log = len(batch), scene.log
    assert offsets_in(log.read(2, 3 * size).records) == [2, 3, 4]
    assert offsets_in(log.read(2, 3 * size + size // 2).records) == [2, 3, 4]
    assert offsets_in(log.read(2, 1).records) == [2]
    assert log.read(2, size - 1, at_least_one_batch=False).records == b""
    assert offsets_in(log.read(7, 100 * size).records) == [7, 8, 9]
    assert offsets_in(log.read(0, 100 * size, upper_bound=4).records) == [0, 1, 2, 3]
    assert log.read(4, 100 * size, upper_bound=4) == (b"", 4)
    assert log.read(10, 100) == (b"", 10)
    for offset in (-1, 11):
        with pytest.raises(KafkaError) as refusal:
            log.read(offset, 100)
        assert refusal.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_read_at_the_end_of_a_segment_goes_on_in_the_next() -> None:
    scene = Scene()
    scene.append()
    assert scene.log.read(0, 1000).next_offset == 1
    assert scene.log.read(1, 1000).records == b""
    scene.log.roll(NOW_MS)
    scene.append()
    assert offsets_in(scene.log.read(1, 1000).records) == [1]
    assert offsets_in(scene.log.read(0, 1000).records) == [0]


def test_reading_in_the_middle_of_a_batch_returns_that_batch() -> None:
    scene = Scene()
    scene.append(batch_of(*"abcdef"))
    scene.append(batch_of("g"))
    assert offsets_in(scene.log.read(4, 1000).records) == [0, 6]


def test_an_error_while_reading_fails_the_log() -> None:
    scene = Scene()
    scene.append()
    scene.log.segments.active.close()
    scene.disk.remove(f"{DIRECTORY}/{0:020d}.log")
    with pytest.raises(KafkaError) as refusal:
        scene.log.read(0, 100)
    assert refusal.value.code == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_batch_of_many_records_counts_them_all() -> None:
    scene = Scene()
    assert scene.append(build_batch([(NOW_MS, None, b"", ())] * 1000)).last_offset == 999
    assert scene.log.log_end_offset == 1000


def test_jitter_makes_segments_roll_earlier_and_each_at_its_own_time() -> None:
    scene = Scene(TopicConfig(segment_ms=10_000, segment_jitter_ms=4_000))
    ages = []
    for _ in range(20):
        base_offset = scene.log.segments.active.base_offset
        began_ms = scene.now_ms
        while scene.log.segments.active.base_offset == base_offset:
            scene.now_ms += 100
            scene.append(batch_of("value", timestamp_ms=scene.now_ms))
        ages.append(scene.now_ms - began_ms)
    assert all(5_900 <= age <= 10_200 for age in ages), ages
    assert len(set(ages)) > 5, ages


def test_jitter_is_the_same_after_a_restart() -> None:
    def age_at_roll(scene: Scene, *, reopened: bool) -> int:
        scene.append(batch_of("first", timestamp_ms=scene.now_ms))
        scene.sync()
        if reopened:
            scene.open(clean=False)
        began_ms = scene.now_ms
        while len(scene.log.segments) == 1:
            scene.now_ms += 10
            scene.append(batch_of("value", timestamp_ms=scene.now_ms))
        return scene.now_ms - began_ms

    config = TopicConfig(segment_ms=10_000, segment_jitter_ms=9_000)
    assert age_at_roll(Scene(config), reopened=False) == age_at_roll(Scene(config), reopened=True) < 10_000
