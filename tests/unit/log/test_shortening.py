"""Rolling, retention, DeleteRecords and truncation."""

import pytest

from fencepost.config import TopicConfig
from fencepost.log.indexes import RELATIVE_OFFSET_MAX
from fencepost.simulation.disk import PowerCut
from fencepost.wire.batch import build_batch
from fencepost.wire.errors import ErrorCode, KafkaError
from tests.unit.log.scene import NOW_MS, Scene, batch_of, idempotent, offsets_in

HOUR_MS = 3_600_000


def base_offsets(scene: Scene) -> list[int]:
    return [segment.base_offset for segment in scene.log.segments]


def filled(config: TopicConfig, batches: int = 10) -> Scene:
    """A segment per batch, an hour between them."""
    scene = Scene(config)
    for at in range(batches):
        scene.append(batch_of("v" * 100, timestamp_ms=NOW_MS - (batches - at) * HOUR_MS))
    scene.log.advance_high_watermark(batches)
    return scene


ONE_BATCH = TopicConfig(segment_bytes=200, retention_ms=-1)


def test_a_segment_is_rolled_when_the_next_batch_does_not_fit() -> None:
    size = len(batch_of("v"))
    scene = Scene(TopicConfig(segment_bytes=2 * size))
    for _ in range(5):
        scene.append(batch_of("v"))
    assert base_offsets(scene) == [0, 2, 4]
    assert f"{2:020d}.snapshot" in scene.files()


def test_a_segment_is_rolled_when_its_first_record_is_too_old_for_the_new_one() -> None:
    scene = Scene(TopicConfig(segment_ms=1000))
    for age_ms in (1000, 500, 0):
        scene.append(batch_of("v", timestamp_ms=NOW_MS - age_ms))
    assert base_offsets(scene) == [0]
    scene.append(batch_of("v", timestamp_ms=NOW_MS + 1))
    assert base_offsets(scene) == [0, 3]
    scene.log.close()
    scene.open(clean=True)
    scene.append(batch_of("v", timestamp_ms=NOW_MS + 1001))
    scene.append(batch_of("v", timestamp_ms=NOW_MS + 1002))
    assert base_offsets(scene) == [0, 3, 5], "the first timestamp is read back from the file"


def test_a_segment_without_timestamps_is_rolled_by_the_clock() -> None:
    scene = Scene(TopicConfig(segment_ms=1000))
    scene.append(batch_of("v", timestamp_ms=-1))
    scene.now_ms += 1000
    scene.append(batch_of("v", timestamp_ms=-1))
    assert not scene.log.roll_if_needed(scene.now_ms)
    scene.now_ms += 1
    scene.append(batch_of("v", timestamp_ms=-1))
    assert base_offsets(scene) == [0, 2]
    assert scene.log.roll_if_needed(scene.now_ms + 1001)
    assert base_offsets(scene) == [0, 2, 3]


def test_a_segment_is_rolled_when_its_index_is_full() -> None:
    scene = Scene(TopicConfig(index_interval_bytes=0, segment_index_bytes=6 * 8))
    for _ in range(9):
        scene.append(batch_of("v"))
    assert base_offsets(scene) == [0, 7], "the first batch needs no entry"
    assert len(scene.log.segments[0].offset_index) == 6


def test_a_segment_is_rolled_before_a_relative_offset_overflows() -> None:
    scene = Scene()
    scene.log.append_as_follower(build_batch([(NOW_MS, None, b"v", ())]), NOW_MS)
    far = RELATIVE_OFFSET_MAX
    scene.log.append_as_follower(build_batch([(NOW_MS, None, b"v", ())], base_offset=far), NOW_MS)
    assert base_offsets(scene) == [0]
    scene.log.append_as_follower(build_batch([(NOW_MS, None, b"v", ())], base_offset=far + 1), NOW_MS)
    assert base_offsets(scene) == [0, far + 1]
    assert offsets_in(scene.log.read(5, 1000).records) == [far]
    scene.log.check_invariants()


def test_retention_by_size_deletes_oldest_segments_and_keeps_at_least_the_limit() -> None:
    scene = filled(TopicConfig(segment_bytes=200, retention_bytes=500, retention_ms=-1))
    size = scene.log.segments[0].size
    assert scene.log.apply_retention(NOW_MS) == 10 - (500 // size + 1)
    assert scene.log.size_bytes >= 500
    assert scene.log.log_start_offset == base_offsets(scene)[0]
    with pytest.raises(KafkaError) as refusal:
        scene.log.read(0, 100)
    assert refusal.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    scene.log.check_invariants()


def test_retention_by_age_goes_by_the_newest_record_of_a_segment() -> None:
    scene = filled(TopicConfig(segment_bytes=200, retention_ms=5 * HOUR_MS))
    assert scene.log.apply_retention(NOW_MS) == 5
    assert base_offsets(scene) == [5, 6, 7, 8, 9]
    assert not [name for name in scene.files() if name < f"{5:020d}"]


def test_when_everything_is_too_old_the_log_goes_on_in_an_empty_segment() -> None:
    scene = filled(TopicConfig(segment_bytes=200, retention_ms=HOUR_MS))
    assert scene.log.apply_retention(NOW_MS + 24 * HOUR_MS) == 10
    assert (scene.log.log_start_offset, scene.log.log_end_offset, base_offsets(scene)) == (10, 10, [10])
    assert scene.log.apply_retention(NOW_MS + 48 * HOUR_MS) == 0
    assert scene.append().first_offset == 10
    scene.log.check_invariants()


def test_retention_spares_what_is_above_the_high_watermark() -> None:
    scene = Scene(TopicConfig(segment_bytes=200, retention_ms=HOUR_MS))
    for _ in range(5):
        scene.append(batch_of("v" * 100, timestamp_ms=NOW_MS - 24 * HOUR_MS))
    scene.log.advance_high_watermark(2)
    assert scene.log.apply_retention(NOW_MS) == 2
    assert scene.log.log_start_offset == 2


def test_retention_leaves_a_compacted_topic_alone() -> None:
    scene = filled(TopicConfig(segment_bytes=200, retention_ms=HOUR_MS, cleanup_policy=("compact",)))
    assert scene.log.apply_retention(NOW_MS) == 0


def test_delete_records_moves_the_log_start_into_a_segment_and_drops_those_below() -> None:
    scene = Scene(TopicConfig(segment_bytes=250))
    for _ in range(4):
        scene.append(batch_of(*"abcde"))
    scene.log.advance_high_watermark(20)
    assert base_offsets(scene) == [0, 10]
    assert scene.log.delete_records_before(13) == 13
    assert base_offsets(scene) == [10]
    assert offsets_in(scene.log.read(13, 1000).records) == [10, 15]
    assert scene.log.delete_records_before(3) == 13, "never back"
    with pytest.raises(KafkaError) as refusal:
        scene.log.delete_records_before(21)
    assert refusal.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert scene.log.delete_records_before(-1) == 20
    scene.log.check_invariants()


def test_the_log_start_survives_a_restart_if_it_is_remembered() -> None:
    scene = filled(ONE_BATCH)
    scene.log.delete_records_before(4)
    scene.log.close()
    scene.open(clean=True, log_start_offset=4)
    assert scene.log.log_start_offset == 4
    scene.disk.power_cut(PowerCut.LOSE_NOTHING)
    assert scene.open(clean=False).log_start_offset == 4, "segments below are gone"


def test_a_log_start_beyond_all_that_is_left_begins_there() -> None:
    scene = Scene()
    scene.append(batch_of("a", "b"))
    scene.log.close()
    scene.open(clean=True, log_start_offset=7)
    assert (scene.log.log_start_offset, scene.log.log_end_offset) == (7, 7)
    assert scene.append().first_offset == 7
    assert offsets_in(scene.log.read(7, 1000).records) == [7]
    scene.log.check_invariants()


def test_truncation_cuts_at_a_batch_and_forgets_what_producers_did_after_it() -> None:
    scene = Scene(TopicConfig(segment_bytes=300))
    for sequence in range(0, 12, 2):
        scene.append(idempotent(sequence, "v" * 50, "v"), leader_epoch=sequence)
    assert len(scene.log.segments) > 1
    scene.log.advance_high_watermark(12)
    scene.log.truncate_to(5, NOW_MS)
    assert (scene.log.log_end_offset, scene.log.high_watermark) == (4, 4)
    assert scene.log.epochs.entries == ((0, 0), (2, 2))
    entry = scene.log.producers.last_entry(7)
    assert entry is not None
    assert entry.last_sequence == 3
    assert scene.append(idempotent(4, "again", "again"), leader_epoch=20).first_offset == 4
    scene.log.check_invariants()


def test_what_was_truncated_does_not_come_back_after_a_power_cut() -> None:
    scene = Scene(TopicConfig(segment_bytes=300))
    for sequence in range(6):
        scene.append(idempotent(sequence, "old" * 20))
    scene.sync()
    scene.log.truncate_to(2, NOW_MS)
    scene.disk.power_cut(PowerCut.LOSE_ALL)
    assert scene.open(clean=False).log_end_offset == 2


def test_truncating_below_the_log_start_begins_anew() -> None:
    scene = filled(ONE_BATCH)
    scene.log.delete_records_before(5)
    scene.log.truncate_to(3, NOW_MS)
    assert (scene.log.log_start_offset, scene.log.log_end_offset, base_offsets(scene)) == (3, 3, [3])
    scene.log.truncate_fully_and_start_at(100, NOW_MS)
    assert scene.append().first_offset == 100
    scene.log.check_invariants()


def test_epochs_follow_the_log_start() -> None:
    scene = Scene(TopicConfig(segment_bytes=200))
    for epoch in range(5):
        scene.append(batch_of("v" * 100), leader_epoch=epoch)
    scene.log.advance_high_watermark(5)
    scene.log.delete_records_before(3)
    assert scene.log.epochs.entries == ((3, 3), (4, 4))
    assert scene.log.end_offset_for_epoch(4) == (4, 5)
    assert scene.log.end_offset_for_epoch(3) == (3, 4)
    assert scene.log.end_offset_for_epoch(1) == (1, 3)
    assert scene.log.end_offset_for_epoch(9) == (-1, -1)
    assert scene.log.end_offset_for_epoch(-1) == (-1, -1)
