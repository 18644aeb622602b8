"""A log is born and retired: after its topic is gone, nothing acts on its files, whoever had begun to."""

from collections.abc import Callable
from pathlib import Path

import pytest

from fencepost.config import TopicConfig
from fencepost.log.cleaner import CleaningAborted, cleanable, compact
from fencepost.log.directory import LogRetired
from fencepost.log.partition_log import PartitionLog
from fencepost.shell.disk import RealDisk
from fencepost.simulation.disk import PowerCut
from fencepost.wire.batch import ControlType
from tests.peers.markers import append_marker
from tests.unit.log.scene import DIRECTORY, NOW_MS, Scene, batch_of, idempotent

COMPACTED = TopicConfig(segment_bytes=400, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)
GONE = DIRECTORY + "-delete"


def scene_of(config: TopicConfig = COMPACTED) -> Scene:
    scene = Scene(config)
    for number in range(12):
        scene.append(batch_of(f"{number}" * 40, key=b"k%d" % (number % 3)))
    scene.sync()
    return scene


def deleted_and_created_again(scene: Scene) -> tuple[PartitionLog, dict[str, bytes]]:
    """The old log, and what the files of the next topic of that name hold."""
    old = scene.log
    old.retire()
    scene.disk.rename(DIRECTORY, GONE)
    scene.open(clean=False)
    scene.append(batch_of("the next topic's"))
    scene.sync()
    return old, contents(scene)


def contents(scene: Scene) -> dict[str, bytes]:
    return {name: scene.disk.read_bytes(f"{DIRECTORY}/{name}") for name in scene.files()}


CALLS: dict[str, Callable[[PartitionLog], object]] = {
    "append": lambda log: log.append_as_leader(batch_of("x"), 0, NOW_MS),
    "append_record": lambda log: log.append_record(batch_of("x"), leader_epoch=0, now_ms=NOW_MS),
    "append_as_follower": lambda log: log.append_as_follower(batch_of("x"), NOW_MS),
    "read": lambda log: log.read(0, 1000),
    "aborted": lambda log: log.aborted_transactions(0, 10),
    "by time": lambda log: log.offset_for_timestamp(0),
    "by largest time": lambda log: log.offset_of_max_timestamp(),
    "roll": lambda log: log.roll(NOW_MS),
    "roll if needed": lambda log: log.roll_if_needed(NOW_MS),
    "retention": lambda log: log.apply_retention(NOW_MS),
    "delete records": lambda log: log.delete_records_before(-1),
    "truncate": lambda log: log.truncate_to(1, NOW_MS),
    "truncate fully": lambda log: log.truncate_fully_and_start_at(1, NOW_MS),
    "replace": lambda log: log.replace_segments(log.segments[:1], []),
    "side files": lambda log: log.flush_side_files(),
    "flush": lambda log: log.flush(),
}


@pytest.mark.parametrize("name", CALLS)
def test_every_call_on_a_retired_log_raises_and_touches_nothing(name: str) -> None:
    scene = scene_of()
    old, before = deleted_and_created_again(scene)
    with pytest.raises(LogRetired):
        CALLS[name](old)
    assert contents(scene) == before


def test_a_marker_for_a_retired_log_is_refused() -> None:
    scene = scene_of(TopicConfig())
    scene.append(idempotent(0, "open", transactional=True))
    old, before = deleted_and_created_again(scene)
    with pytest.raises(LogRetired):
        append_marker(old, ControlType.ABORT, 7, 0, 1, transaction_version=1, leader_epoch=0, now_ms=NOW_MS)
    assert contents(scene) == before
    assert old.take_unsynced() is None


def test_a_pass_of_the_cleaner_over_a_log_that_is_gone_leaves_the_next_topics_files_alone() -> None:
    scene = scene_of()
    steps = compact(cleanable(scene.log, None, NOW_MS), NOW_MS)
    files = next(files for files in steps if files)
    _, before = deleted_and_created_again(scene)
    for file in files:
        file.sync()  # whoever had begun to sync what was compacted does so to the end
    with pytest.raises(CleaningAborted):
        next(steps)
    steps.close()
    assert contents(scene) == before
    scene.disk.power_cut(PowerCut.LOSE_ALL)
    assert scene.open(clean=False, recovery_point=1).log_end_offset == 1


def test_a_sync_that_was_under_way_when_its_log_was_retired_is_no_failure_of_the_disk() -> None:
    scene = scene_of()
    scene.append(batch_of("x"))
    scene.log.roll(NOW_MS)
    request = scene.log.take_unsynced()
    assert request is not None
    old = scene.log
    old.retire()
    scene.disk.rename(DIRECTORY, GONE)
    scene.disk.remove_tree(GONE)
    for file in request.files:
        file.sync()
    old.synced(request)
    assert old.failure is None


def test_a_directory_that_somebody_else_removed_is_a_failure() -> None:
    scene = scene_of()
    scene.append(batch_of("x"))
    scene.log.roll(NOW_MS)
    request = scene.log.take_unsynced()
    assert request is not None
    scene.disk.remove_tree(DIRECTORY)
    with pytest.raises(FileNotFoundError):
        [file.sync() for file in request.files]


def test_what_is_synced_twice_at_a_time_never_counts_more_than_the_first_has_covered() -> None:
    """A topic may move from the page cache to group commit, or be flushed twice: whoever comes second waits."""
    scene = Scene()
    scene.append(batch_of("first"))
    first = scene.log.take_unsynced()
    assert first is not None
    scene.append(batch_of("second"))
    assert scene.log.take_unsynced() is None
    assert scene.log.is_dirty
    scene.log.synced(first)
    assert scene.log.synced_offset == 1
    scene.log.flush()
    assert scene.log.synced_offset == 2


def test_a_sync_that_a_truncation_has_overtaken_moves_no_offset() -> None:
    scene = Scene()
    for _ in range(3):
        scene.append(batch_of("x"))
    request = scene.log.take_unsynced()
    assert request is not None
    scene.log.truncate_to(1, NOW_MS)
    for _ in range(5):
        scene.append(batch_of("y"))
    scene.log.synced(request)
    assert scene.log.synced_offset <= 1, "what was synced is not what is there now"


def test_truncating_behind_the_end_forgets_an_epoch_in_which_nothing_was_written() -> None:
    scene = Scene()
    scene.append(leader_epoch=1)
    scene.log.lead(4)
    scene.log.truncate_to(1, NOW_MS)
    assert scene.log.epochs.entries == ((1, 0),)


def test_an_empty_follower_begins_with_a_batch_in_whose_midst_the_leaders_log_starts() -> None:
    leader, follower = Scene(), Scene()
    leader.append(batch_of("a", "b", "c"))
    leader.append(batch_of("d"))
    follower.log.truncate_fully_and_start_at(2, NOW_MS)
    records = leader.log.read(2, 10_000).records
    assert follower.log.append_as_follower(records, NOW_MS) == 4
    assert follower.log.log_start_offset == 0
    assert bytes(follower.log.read(2, 10_000).records) == bytes(records)
    follower.log.check_invariants()


def test_a_file_that_goes_while_it_is_synced_gives_its_descriptor_back(tmp_path: Path) -> None:
    disk = RealDisk()
    file = disk.open(str(tmp_path / "file"), create=True)
    disk.pin(file)
    file.retire()
    assert disk.open_files == 1, "a sync is using it"
    disk.unpin(file)
    assert disk.open_files == 0
    disk.remove(str(tmp_path / "file"))
    file.sync()  # nothing is left to keep
    with pytest.raises(OSError, match="was retired"):
        file.read(0, 1)
