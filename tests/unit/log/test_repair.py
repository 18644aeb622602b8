"""Giving up what a log has lost: it opens again, says itself what it lacks, and hands out no offset twice."""

import random
from itertools import pairwise

import pytest

from fencepost.config import TopicConfig
from fencepost.log.cleaner import cleanable, compact, run_to_end
from fencepost.log.dry_run import DryRunDisk
from fencepost.log.partition_log import Checkpoints, LogLimits, PartitionLog
from fencepost.log.recovery import DamagedLog, is_filler
from fencepost.log.repair import examine, repair
from fencepost.ports import Disk
from fencepost.simulation.disk import PowerCut, SimulatedDisk
from fencepost.simulation.fragile_disk import FragileDisk, MachineDied
from fencepost.wire.batch import ControlType
from tests.peers.markers import append_marker
from tests.unit.log.scene import DIRECTORY, NOW_MS, TOPIC_ID, Scene, batch_of, idempotent

DATA = "/data"
SMALL = TopicConfig(segment_bytes=1000, index_interval_bytes=200)
END = 40


def filled(config: TopicConfig = SMALL) -> Scene:
    """Forty records, then a clean stop."""
    scene = Scene(config, disk=FragileDisk())
    for sequence in range(END):
        scene.append(idempotent(sequence, "v" * 50, timestamp_ms=NOW_MS + sequence), leader_epoch=sequence // 10)
    scene.sync()
    scene.log.close()
    scene.disk.sync_file_system(DATA)
    return scene


def opener(scene: Scene, recovery_point: int | None = END):
    def open_log(disk: Disk) -> PartitionLog:
        return PartitionLog.open(
            disk, DIRECTORY, "purchases", 0, TOPIC_ID, scene.config, NOW_MS, Checkpoints(False, recovery_point),
            limits=LogLimits(transaction_verification_enabled=False, decompressed_batch_max_bytes=1 << 20),
        )  # fmt: skip

    return open_log


def bases(scene: Scene) -> list[int]:
    return [int(name[:20]) for name in scene.disk.list(DIRECTORY) if name.endswith(".log")]


def take_segment(scene: Scene, base: int) -> None:
    for name in scene.disk.list(DIRECTORY):
        if name.startswith(f"{base:020d}") and not name.endswith(".snapshot"):
            scene.disk.take_away(f"{DIRECTORY}/{name}")


def overwrite(scene: Scene, base: int, position: int) -> None:
    for at in range(position, position + 20):
        scene.disk.flip_bit(f"{DIRECTORY}/{base:020d}.log", at, 3)


def lose(scene: Scene, what: str) -> None:
    found = bases(scene)
    if what == "the directory":
        scene.disk.take_away(DIRECTORY)
    elif what == "every segment":
        for base in found:
            take_segment(scene, base)
    elif what == "the last segment":
        take_segment(scene, found[-1])
    elif what == "the end of the last segment":
        scene.disk.cut_short(f"{DIRECTORY}/{found[-1]:020d}.log", 200)
    elif what == "a middle segment":
        take_segment(scene, found[2])
    elif what == "two segments, apart":
        take_segment(scene, found[1])
        take_segment(scene, found[3])
    elif what == "bytes in the last segment":
        overwrite(scene, found[-1], 150)
    elif what == "the first bytes of the last segment":
        overwrite(scene, found[-1], 2)
    else:
        raise AssertionError(what)


WAYS = (
    "the directory",
    "every segment",
    "the last segment",
    "the end of the last segment",
    "a middle segment",
    "two segments, apart",
    "bytes in the last segment",
    "the first bytes of the last segment",
)


def tree(disk: SimulatedDisk, directory: str = DATA) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name in disk.list(directory):
        path = f"{directory}/{name}"
        try:
            found[path] = disk.read_bytes(path)
        except FileNotFoundError:
            found |= {path: b"", **tree(disk, path)}
    return found


def offsets_of(log: PartitionLog) -> set[int]:
    return {
        offset
        for segment in log.segments
        for batch in segment.batches()
        if batch.header.record_count
        for offset in range(batch.header.base_offset, batch.header.next_offset)
    }


def check_repaired(scene: Scene, kept: set[int]) -> None:
    log = scene.log = opener(scene)(scene.disk)
    assert log.log_end_offset == END
    assert offsets_of(log) == kept
    log.check_invariants()
    assert scene.append(batch_of("new"), leader_epoch=9).first_offset == END
    covered = [(b.header.base_offset, b.header.next_offset) for s in log.segments for b in s.batches()]
    assert all(end == start for (_, end), (start, _) in pairwise(covered))


@pytest.mark.parametrize("what", WAYS)
def test_a_log_that_lost_something_opens_again_and_says_what_it_lacks(what: str) -> None:
    scene = filled()
    lose(scene, what)
    with pytest.raises(DamagedLog):
        opener(scene)(DryRunDisk(scene.disk, DATA))
    before = tree(scene.disk)
    planned = examine(scene.disk, DATA, DIRECTORY, opener(scene), END)
    assert tree(scene.disk) == before, "looking changes nothing"
    assert repair(scene.disk, DATA, DIRECTORY, opener(scene), END) == planned
    lost = {offset for loss in planned for offset in range(loss.first_offset, loss.next_offset)}
    assert lost
    scene.disk.power_cut(PowerCut.LOSE_ALL)  # what is said to be done is done
    check_repaired(scene, set(range(END)) - lost)
    assert examine(scene.disk, DATA, DIRECTORY, opener(scene), END) == []


@pytest.mark.parametrize("what", WAYS)
def test_a_repair_that_dies_at_any_operation_is_begun_again(what: str) -> None:
    scene = filled()
    lose(scene, what)
    expected = examine(scene.disk, DATA, DIRECTORY, opener(scene), END)
    lost = {offset for loss in expected for offset in range(loss.first_offset, loss.next_offset)}
    operations = 0
    while True:
        modes = [PowerCut.LOSE_ALL, PowerCut.LOSE_NOTHING, PowerCut.TORN, PowerCut.PREFIX]
        for seed, mode in enumerate(modes):
            scene = filled()
            lose(scene, what)
            scene.disk.left = operations
            try:
                repair(scene.disk, DATA, DIRECTORY, opener(scene), END)
            except MachineDied:
                scene.disk.power_cut(mode, random.Random(seed))
                scene.disk.left = None
                repair(scene.disk, DATA, DIRECTORY, opener(scene), END)
                check_repaired(scene, set(range(END)) - lost)
            else:
                assert operations > 2
                return
        operations += 1


@pytest.mark.parametrize("what", WAYS)
def test_a_log_that_forgets_what_came_before_begins_behind_the_loss_wherever_the_repair_is_cut_short(what: str) -> None:
    scene = filled()
    lose(scene, what)
    expected = examine(scene.disk, DATA, DIRECTORY, opener(scene), END, forgets_earlier=True)
    start = expected[-1].next_offset
    operations = 0
    while True:
        for seed, mode in enumerate((PowerCut.LOSE_ALL, PowerCut.LOSE_NOTHING, PowerCut.TORN, PowerCut.PREFIX)):
            scene = filled()
            lose(scene, what)
            kept = {path for path in tree(scene.disk) if path.endswith(".log")}
            scene.disk.left = operations
            is_done = False
            try:
                repair(scene.disk, DATA, DIRECTORY, opener(scene), END, forgets_earlier=True)
                is_done = True
            except MachineDied:
                scene.disk.power_cut(mode, random.Random(seed))
                scene.disk.left = None
                repair(scene.disk, DATA, DIRECTORY, opener(scene), END, forgets_earlier=True)
            scene.disk.left = None
            log = opener(scene)(scene.disk)
            assert (log.log_start_offset, log.log_end_offset) == (start, END)
            assert offsets_of(log) == set(range(start, END))
            left = tree(scene.disk).keys()
            assert all(path in left or f"{path}.damaged" in left for path in kept)
            if is_done:
                return
        operations += 1


def test_bytes_that_were_cut_off_are_kept() -> None:
    scene = filled()
    last = bases(scene)[-1]
    overwrite(scene, last, 150)
    content = scene.disk.read_bytes(f"{DIRECTORY}/{last:020d}.log")
    (loss,) = repair(scene.disk, DATA, DIRECTORY, opener(scene), END)
    assert loss.set_aside == f"{last:020d}.log.damaged"
    kept = scene.disk.read_bytes(f"{DIRECTORY}/{loss.set_aside}")
    assert kept
    assert content.endswith(kept)


def test_offsets_behind_the_damage_are_not_used_again_though_no_checkpoint_knows_them() -> None:
    scene = filled()
    last = bases(scene)[-1]
    overwrite(scene, last, 150)
    recovery_point = last + 2
    (loss,) = repair(scene.disk, DATA, DIRECTORY, opener(scene, recovery_point), recovery_point)
    assert loss.next_offset == END
    assert opener(scene, recovery_point)(scene.disk).log_end_offset == END


def test_a_hole_that_no_single_segment_can_cover_is_covered_by_several() -> None:
    scene = filled()
    far = 5 * 2**31
    (loss,) = repair(scene.disk, DATA, DIRECTORY, opener(scene, far), far)
    assert (loss.first_offset, loss.next_offset) == (END, far)
    scene.log = opener(scene, far)(scene.disk)
    assert scene.log.log_end_offset == far
    assert scene.append(leader_epoch=9).first_offset == far
    scene.log.close()
    assert opener(scene, far)(scene.disk).log_end_offset == far + 1


def test_what_was_given_up_is_not_taken_for_compaction() -> None:
    """Else every later hole would pass for one that compaction made."""
    scene = filled()
    found = bases(scene)
    take_segment(scene, found[3])
    repair(scene.disk, DATA, DIRECTORY, opener(scene), END)
    assert any(is_filler(b.header) for s in opener(scene)(DryRunDisk(scene.disk, DATA)).segments for b in s.batches())
    take_segment(scene, found[1])
    with pytest.raises(DamagedLog):
        opener(scene)(scene.disk)


@pytest.mark.parametrize("what", WAYS)
def test_a_log_that_was_repaired_can_be_compacted(what: str) -> None:
    scene = filled(TopicConfig(segment_bytes=1000, index_interval_bytes=200, cleanup_policy=("compact",)))
    lose(scene, what)
    repair(scene.disk, DATA, DIRECTORY, opener(scene), END)
    scene.log = opener(scene)(scene.disk)
    for number in range(20):
        scene.append(batch_of("new" * 20, key=b"k%d" % (number % 3)), leader_epoch=9)
    scene.sync()
    end = scene.log.log_end_offset
    run_to_end(compact(cleanable(scene.log, None, NOW_MS), NOW_MS))
    kept = offsets_of(scene.log)
    scene.log.close()
    scene.disk.sync_file_system(DATA)
    assert examine(scene.disk, DATA, DIRECTORY, opener(scene, end), end) == []
    log = opener(scene, end)(scene.disk)
    assert log.log_end_offset == end
    assert offsets_of(log) == kept


def all_aborted() -> Scene:
    """Two producers by turns, whose transactions overlap and were all aborted, then a clean stop."""
    scene = Scene(SMALL, disk=FragileDisk())
    sequences = {5: 0, 6: 0}

    def write(producer_id: int) -> None:
        fields = {"producer_id": producer_id, "producer_epoch": 0, "transactional": True}
        scene.append(batch_of("v" * 50, base_sequence=sequences[producer_id], **fields))
        sequences[producer_id] += 1

    write(5)
    for number in range(END // 2):
        write(5 + (number + 1) % 2)
        append_marker(
            scene.log, ControlType.ABORT, 5 + number % 2, 0, 1, transaction_version=1, leader_epoch=0, now_ms=NOW_MS
        )
    scene.sync()
    scene.log.close()
    scene.disk.sync_file_system(DATA)
    return scene


def check_hidden(scene: Scene, end: int) -> None:
    """Whatever readers of committed records get to see was aborted."""
    log = opener(scene, end)(scene.disk)
    assert log.log_end_offset == end
    aborted = log.aborted_transactions(0, end)
    for segment in log.segments:
        for batch in segment.batches():
            header = batch.header
            if header.record_count and not header.is_control and header.base_offset < log.last_stable_offset:
                assert any(
                    each.producer_id == header.producer_id
                    and each.first_offset <= header.base_offset < each.last_offset
                    for each in aborted
                ), f"{header.base_offset} was aborted and is shown"
    log.check_invariants()


@pytest.mark.parametrize(
    "what", ["a middle segment", "two segments, apart", "the last segment", "bytes in the last segment"]
)
def test_records_that_were_aborted_before_the_hole_stay_hidden_wherever_the_repair_is_cut_short(what: str) -> None:
    end = END + 1
    operations = 0
    while True:
        for seed, mode in enumerate((PowerCut.LOSE_ALL, PowerCut.LOSE_NOTHING, PowerCut.TORN, PowerCut.PREFIX)):
            scene = all_aborted()
            lose(scene, what)
            scene.disk.left = operations
            try:
                repair(scene.disk, DATA, DIRECTORY, opener(scene, end), end)
            except MachineDied:
                scene.disk.power_cut(mode, random.Random(seed))
                scene.disk.left = None
                repair(scene.disk, DATA, DIRECTORY, opener(scene, end), end)
                check_hidden(scene, end)
            else:
                scene.disk.left = None
                check_hidden(scene, end)
                assert operations > 5
                return
        operations += 1
