"""Opening a log again: trusting it after a clean stop, checking it after any other."""

from itertools import pairwise

import pytest

from fencepost.config import TopicConfig
from fencepost.log.cleaner import LogCleaner, cleanable, compact, run_to_end
from fencepost.log.file_names import CLEANED_SUFFIX
from fencepost.log.recovery import DamagedLog
from fencepost.log.segment import Segment
from fencepost.log.side_files import GAPLESS_OFFSET_CHECKPOINT, read_offset_checkpoint, read_partition_metadata
from fencepost.simulation.disk import PowerCut
from fencepost.wire.batch import ControlType
from tests.peers.markers import append_marker
from tests.unit.log.scene import DIRECTORY, NOW_MS, TOPIC_ID, Scene, batch_of, idempotent, offsets_in

SMALL = TopicConfig(segment_bytes=1000, index_interval_bytes=200)


def filled(batches: int = 30, config: TopicConfig = SMALL) -> Scene:
    scene = Scene(config)
    for sequence in range(batches):
        scene.append(idempotent(sequence, "v" * 50, timestamp_ms=NOW_MS + sequence), leader_epoch=sequence // 10)
    scene.sync()
    return scene


def path_of(base_offset: int, suffix: str) -> str:
    return f"{DIRECTORY}/{base_offset:020d}{suffix}"


def test_a_clean_stop_needs_no_look_at_anything_but_the_tail() -> None:
    scene = filled()
    before = repr(scene.log)
    scene.log.close()
    # Whoever scanned would stumble over this.
    first = scene.disk.open(path_of(0, ".log"))
    first.write(100, b"\xff" * 100)
    scene.open(clean=True)
    assert repr(scene.log) == before
    assert scene.log.producers.last_entry(7).last_sequence == 29  # type: ignore[union-attr]


def test_closing_an_unchanged_log_writes_nothing() -> None:
    scene = filled()
    scene.log.close()
    scene.open(clean=True)
    syncs = scene.disk.syncs
    scene.log.close()
    assert scene.disk.syncs == syncs


def test_a_new_log_has_its_topic_id_on_disk_and_an_empty_segment() -> None:
    scene = Scene()
    assert scene.files() == [f"{0:020d}.log", "partition.metadata"]
    assert scene.disk.read_bytes(f"{DIRECTORY}/partition.metadata") == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert read_partition_metadata(scene.disk, DIRECTORY) == TOPIC_ID
    scene.log.close()
    scene.disk.power_cut(PowerCut.LOSE_ALL)
    assert scene.open(clean=True).log_end_offset == 0


def test_the_topic_id_that_a_killed_process_had_only_written_is_durable_with_the_first_records() -> None:
    scene = Scene()
    scene.disk.sync_directory("/data")  # as every start does
    scene.open(clean=False)  # killed before anything was synced; the page cache still has it
    scene.append()
    scene.sync()
    scene.disk.power_cut(PowerCut.LOSE_ALL)
    assert read_partition_metadata(scene.disk, DIRECTORY) == TOPIC_ID


@pytest.mark.parametrize("kept_bytes", [1, 12, 60, 61, 100])
def test_a_torn_batch_at_the_end_is_cut_off(kept_bytes: int) -> None:
    scene = filled()
    end, segment = scene.log.log_end_offset, scene.log.segments.active
    whole = segment.size
    torn = bytes(idempotent(30, "v" * 50))[:kept_bytes]
    segment.file.write(whole, torn)
    scene.open(clean=False, recovery_point=end)
    assert scene.log.log_end_offset == end
    assert scene.disk.size(scene.log.segments.active.log_path) == whole
    assert scene.append(idempotent(30, "again"), leader_epoch=2).first_offset == end
    scene.log.check_invariants()


def test_a_tail_of_zeros_is_cut_off() -> None:
    scene = filled()
    segment = scene.log.segments.active
    segment.file.write(segment.size, bytes(5000))
    assert scene.open(clean=False, recovery_point=30).log_end_offset == 30
    scene.log.check_invariants()


def test_the_log_ends_at_the_first_bad_batch_and_later_segments_go() -> None:
    scene = filled()
    bases = [segment.base_offset for segment in scene.log.segments]
    victim = scene.log.segments[1]
    found = victim.find(bases[1] + 2)
    assert found is not None
    victim.file.write(found[0] + 70, b"\xff")
    scene.open(clean=False)
    assert scene.log.log_end_offset == bases[1] + 2
    assert [segment.base_offset for segment in scene.log.segments] == bases[:2]
    later = [name for name in scene.files() if name > f"{bases[2]:020d}" and name[0] == "0"]
    assert later == [f"{base:020d}.log.damaged" for base in bases[2:]], "nothing that was whole is thrown away"
    assert len(scene.log.cuts) == len(later) + 1
    assert f"{bases[1]:020d}.log.damaged" in scene.log.cuts[0]
    assert scene.log.producers.last_entry(7).last_sequence == bases[1] + 1  # type: ignore[union-attr]
    assert scene.log.epochs.latest == (bases[1] + 1) // 10
    scene.log.check_invariants()


def test_what_lies_below_the_recovery_point_is_not_scanned() -> None:
    scene = filled()
    scene.log.segments[0].file.write(70, b"\xff")
    assert scene.open(clean=False, recovery_point=30).log_end_offset == 30


def test_indexes_that_are_lost_or_preallocated_are_made_again() -> None:
    scene = filled()
    expected = [(s.offset_index.encode(), s.max_timestamp) for s in scene.log.segments]
    for segment in scene.log.segments[:-1]:
        scene.disk.write_bytes(segment.path_of(".index"), bytes(1024))
        scene.disk.remove(segment.path_of(".timeindex"))
    scene.open(clean=False)
    assert [(s.offset_index.encode(), s.max_timestamp) for s in scene.log.segments] == expected
    assert scene.log.offset_for_timestamp(NOW_MS + 17) == (NOW_MS + 17, 17, 1)


def test_a_zero_tail_of_an_index_is_no_entry() -> None:
    scene = filled()
    scene.log.close()
    for segment in scene.log.segments:
        for suffix in (".index", ".timeindex"):
            path = segment.path_of(suffix)
            scene.disk.write_bytes(path, scene.disk.read_bytes(path) + bytes(960))
    before = repr(scene.log)
    scene.open(clean=True)
    assert repr(scene.log) == before
    for timestamp in (0, 7, 29):
        assert scene.log.offset_for_timestamp(NOW_MS + timestamp) == (NOW_MS + timestamp, timestamp, timestamp // 10)
    assert scene.log.offset_for_timestamp(NOW_MS + 30) is None
    assert offsets_in(scene.log.read(3, 1).records) == [3]
    scene.log.check_invariants()


def test_a_bad_snapshot_is_passed_over_for_an_older_one() -> None:
    scene = filled()
    scene.log.close()
    newest = max(name for name in scene.files() if name.endswith(".snapshot"))
    scene.disk.write_bytes(f"{DIRECTORY}/{newest}", b"\0\x01garbage")
    scene.open(clean=True)
    assert list(scene.log.producers.last_entry(7).batches) == [  # type: ignore[union-attr]
        (sequence, sequence, 0, NOW_MS + sequence) for sequence in range(25, 30)
    ]


def test_a_lost_epoch_checkpoint_is_rebuilt_from_the_batches() -> None:
    scene = filled()
    scene.log.close()
    scene.disk.remove(f"{DIRECTORY}/leader-epoch-checkpoint")
    for clean in (True, False):
        assert scene.open(clean=clean, recovery_point=30).epochs.entries == ((0, 0), (1, 10), (2, 20))


def test_aborted_transactions_and_open_ones_are_found_again() -> None:
    scene = Scene(SMALL)
    for producer_id in (1, 2, 3):
        scene.append(idempotent(0, "v" * 200, producer_id=producer_id, transactional=True))
    for producer_id, kind in ((1, ControlType.ABORT), (2, ControlType.COMMIT)):
        append_marker(scene.log, kind, producer_id, 0, 1, transaction_version=1, leader_epoch=0, now_ms=NOW_MS)
    expected = scene.log.aborted_transactions(0, 5)
    assert len(expected) == 1
    scene.sync()
    scene.disk.power_cut(PowerCut.LOSE_ALL)
    scene.open(clean=False)
    assert scene.log.aborted_transactions(0, 5) == expected
    assert scene.log.last_stable_offset == 2
    scene.log.close()
    scene.open(clean=True)
    assert scene.log.aborted_transactions(0, 5) == expected
    assert scene.log.last_stable_offset == 2


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("removed", [("index",), ("index", "snapshot")], ids=" and ".join)
def test_aborted_transactions_are_found_again_where_all_indexes_were_removed(
    clean: bool, removed: tuple[str, ...]
) -> None:
    """A segment without aborted transactions has no `.txnindex`, so only the `.index` tells that one is gone."""
    scene = Scene(SMALL)
    for epoch in range(20):
        kind = ControlType.COMMIT if epoch % 3 else ControlType.ABORT
        scene.append(idempotent(0, "v" * 100, producer_id=1, epoch=epoch, transactional=True))
        append_marker(scene.log, kind, 1, epoch, 1, transaction_version=1, leader_epoch=0, now_ms=NOW_MS)
    assert len(scene.log.segments) > 3
    end = scene.log.log_end_offset
    expected = scene.log.aborted_transactions(0, end)
    assert len(expected) == 7
    scene.sync()
    scene.log.close()
    for name in scene.files():
        if any(part in name for part in removed):
            scene.disk.remove(f"{DIRECTORY}/{name}")
    for _ in range(2):  # a second start finds the indexes that the first has made
        scene.open(clean=clean, recovery_point=end)
        assert scene.log.aborted_transactions(0, end) == expected
        assert scene.log.packed_aborted_transactions(0, end)
        scene.log.check_invariants()
        scene.log.close()


def with_a_gap(config: TopicConfig = SMALL) -> Scene:
    """The end of the first segment is not there, and the next segments are."""
    scene = filled(config=config)
    first = scene.log.segments[0]
    found = first.find(5)
    assert found is not None
    first.file.truncate(found[0])
    return scene


def test_a_segment_after_a_gap_in_what_was_never_synced_is_dropped_whatever_the_topics_policy_is() -> None:
    """The end of a segment that was never synced may be lost while the next segment is there."""
    for config in (SMALL, TopicConfig(segment_bytes=1000, cleanup_policy=("compact",))):
        scene = with_a_gap(config)
        later = [segment.base_offset for segment in scene.log.segments[1:]]
        content = [scene.disk.read_bytes(path_of(base, ".log")) for base in later]
        assert scene.open(clean=False).log_end_offset == 5
        assert [scene.disk.read_bytes(path_of(base, ".log.damaged")) for base in later] == content
        assert len(scene.log.cuts) == len(later)


def test_a_gap_below_the_recovery_point_is_damage() -> None:
    with pytest.raises(DamagedLog, match=r"offsets 5 to 7; it was synced up to 30"):
        with_a_gap().open(clean=False, recovery_point=30)


def test_a_gap_is_damage_where_nobody_knows_what_was_synced() -> None:
    with pytest.raises(DamagedLog):
        with_a_gap().open(clean=False, recovery_point=None)


def test_a_gap_below_the_cleaners_checkpoint_was_made_by_compaction() -> None:
    for recovery_point in (0, 30, None):
        scene = with_a_gap()
        assert scene.open(clean=False, recovery_point=recovery_point, clean_offset=30).log_end_offset == 30


@pytest.mark.parametrize("recovery_point", [0, 12, None])
@pytest.mark.parametrize("clean", [False, True])
def test_a_log_that_was_compacted_once_is_whole_whatever_the_policy_is_now(
    clean: bool, recovery_point: int | None
) -> None:
    scene = Scene(TopicConfig(segment_bytes=400, cleanup_policy=("compact",)))
    for number in range(40):
        scene.append(batch_of(f"{number}" * 20, key=b"k%d" % (number % 3)))
    scene.sync()
    run_to_end(compact(cleanable(scene.log, None, NOW_MS), NOW_MS))
    assert sum(1 for segment in scene.log.segments for _ in segment.batches()) < 40
    if clean:
        scene.log.close()
    scene.config = TopicConfig(segment_bytes=400, cleanup_policy=("delete",))
    assert scene.open(clean=clean, recovery_point=recovery_point).log_end_offset == 40
    assert scene.log.log_start_offset == 0
    scene.log.check_invariants()


def test_each_compacted_segment_ends_where_the_next_begins() -> None:
    scene = Scene(TopicConfig(segment_bytes=400, cleanup_policy=("compact",)))
    for number in range(60):
        scene.append(batch_of(f"{number}" * 20, key=b"k%d" % (number if number % 9 == 0 else 1)))
    scene.sync()
    run_to_end(compact(cleanable(scene.log, None, NOW_MS), NOW_MS))
    assert len(scene.log.segments) > 2
    for segment, following in pairwise(scene.log.segments):
        assert segment.closed_end_offset() == following.base_offset


@pytest.mark.parametrize("clean", [False, True])
def test_a_segment_that_is_missing_among_compacted_ones_is_noticed(clean: bool) -> None:
    scene = Scene(TopicConfig(segment_bytes=400, cleanup_policy=("compact",)))
    for number in range(60):
        scene.append(batch_of(f"{number}" * 20, key=b"k%d" % (number if number % 9 == 0 else 1)))
    scene.sync()
    cleaner = LogCleaner(scene.disk, "/data")
    result = run_to_end(cleaner.clean(cleanable(scene.log, None, NOW_MS), NOW_MS))
    clean_offset = result.first_dirty_offset
    assert read_offset_checkpoint(scene.disk, "/data", GAPLESS_OFFSET_CHECKPOINT) == {("purchases", 0): clean_offset}
    bases = [segment.base_offset for segment in scene.log.segments]
    assert 0 < bases[1] < bases[2] <= clean_offset
    scene.log.close()
    checkpoints = {"recovery_point": 60, "clean_offset": clean_offset, "gapless_offset": clean_offset}
    assert scene.open(clean=clean, **checkpoints).log_end_offset == 60
    scene.log.close()
    scene.disk.remove(path_of(bases[1], ".log"))
    with pytest.raises(DamagedLog, match=f"offsets {bases[1]} to {bases[2] - 1}"):
        scene.open(clean=clean, **checkpoints)
    checkpoints["gapless_offset"] = 0  # where Apache Kafka compacts, such holes are common
    assert scene.open(clean=clean, **checkpoints).log_end_offset == 60


@pytest.mark.parametrize("missing", ["first of three", "last", "middle", "all", "directory"])
@pytest.mark.parametrize("clean", [False, True])
def test_what_the_recovery_point_or_a_neighbour_proves_to_be_missing_is_not_served(clean: bool, missing: str) -> None:
    scene = filled()
    bases = [segment.base_offset for segment in scene.log.segments]
    scene.log.close()
    gone = {"last": bases[-1:], "middle": bases[2:3], "all": bases, "first of three": bases[1:4], "directory": []}
    for base in gone[missing]:
        for suffix in (".log", ".index", ".timeindex"):
            scene.disk.remove(path_of(base, suffix))
    if missing == "directory":
        scene.disk.remove_tree(DIRECTORY)
    with pytest.raises(DamagedLog, match=r"missing"):
        scene.open(clean=clean, recovery_point=30)
    assert missing != "directory" or not scene.disk.exists(DIRECTORY), "nothing is made in its place"


def test_leftovers_of_deletion_and_compaction_are_cleared_away() -> None:
    scene = filled()
    scene.log.close()
    for name in (
        "00000000000000000003.log.deleted",
        "00000000000000000000.log.cleaned",
        "00000000000000000000.index.cleaned",
    ):
        scene.disk.write_bytes(f"{DIRECTORY}/{name}", b"left over")
    scene.open(clean=True)
    assert not [name for name in scene.files() if name.endswith((".deleted", ".cleaned"))]
    assert scene.log.log_end_offset == 30


@pytest.mark.parametrize("stop_at", ["before the originals go", "half way", "never"])
def test_a_swap_of_compacted_segments_is_finished_by_whoever_opens_the_log(stop_at: str) -> None:
    scene = filled(config=TopicConfig(segment_bytes=1000, cleanup_policy=("compact",)))
    log = scene.log
    originals = log.segments[:2]
    cleaned = Segment.create(log.directory, 0, NOW_MS, CLEANED_SUFFIX)
    kept = [found for segment in originals for found in segment.batches() if found.header.base_offset % 2]
    for found in kept:
        header = found.header
        content = bytes(found.block[found.start : found.start + header.size_bytes])
        cleaned.append(content, len(content), header.last_offset, header.max_timestamp, 200)
    if stop_at == "never":
        log.replace_segments(originals, [cleaned])
    else:
        cleaned.write_indexes()
        cleaned.rename_files(".swap")
        if stop_at == "half way":
            originals[0].delete()
    scene.open(clean=False)
    assert scene.log.log_end_offset == 30
    offsets = []
    offset = 0
    while offset < 30:
        result = scene.log.read(offset, 10_000)
        offsets += offsets_in(result.records)
        offset = result.next_offset
    assert offsets[: len(kept)] == [found.header.base_offset for found in kept]
    assert offsets[len(kept) :] == list(range(kept[-1].header.base_offset + 1, 30))
    scene.log.check_invariants()


def test_the_largest_timestamp_and_the_first_after_a_time_are_found_in_any_segment() -> None:
    scene = Scene(SMALL)
    for at in range(40):
        scene.append(batch_of("v" * 40, "v" * 40, timestamp_ms=NOW_MS + (at * 7) % 40))
    largest = max(range(40), key=lambda at: (at * 7) % 40)
    assert scene.log.offset_of_max_timestamp() == (NOW_MS + 39, 2 * largest, 0)
    for wanted in range(40):
        first = next(at for at in range(40) if (at * 7) % 40 >= wanted)
        assert scene.log.offset_for_timestamp(NOW_MS + wanted) == (NOW_MS + (first * 7) % 40, 2 * first, 0)
    assert scene.log.offset_for_timestamp(NOW_MS + 40) is None
    assert Scene().log.offset_of_max_timestamp() is None
