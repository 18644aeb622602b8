"""Markers of several producers at once leave exactly what the same markers would leave one by one."""

import errno

from hypothesis import given
from hypothesis import strategies as st

from fencepost.config import TopicConfig
from fencepost.wire.batch import MARKER_BYTES
from fencepost.wire.errors import ErrorCode
from tests.peers.markers import Ends
from tests.unit.log.scene import NOW_MS, Scene, batch_of, idempotent, offsets_in

PRODUCERS = range(6)


markers = st.lists(
    st.builds(
        Ends,
        st.sampled_from(PRODUCERS),
        st.integers(0, 2),
        st.integers(0, 2),
        st.booleans() | st.just(True),
        st.sampled_from([0, 1, 2]),
    ),
    max_size=8,
)


def one_by_one(scene: Scene, ends: Ends) -> ErrorCode | None:
    return together(scene, [ends])[0]


def together(scene: Scene, group: list[Ends]) -> list[ErrorCode | None]:
    refusals = scene.log.append_markers(group, leader_epoch=0, now_ms=NOW_MS)
    return [None if refusal is None else refusal.code for refusal in refusals]


def remains(scene: Scene) -> tuple[object, ...]:
    """Everything that readers, producers and the next start will find."""
    log = scene.log
    log.advance_high_watermark(log.log_end_offset)
    open_ones = list(log.producers.transactions.ongoing())
    snapshot = log.producers.take_snapshot()
    aborted = log.aborted_transactions(0, log.log_end_offset)
    last_stable_offset = log.last_stable_offset
    log.check_invariants()
    log.close()
    files = {name: scene.disk.read_bytes(f"{log.directory}/{name}") for name in scene.files()}
    return open_ones, snapshot, aborted, last_stable_offset, files


@given(
    st.lists(st.sampled_from(PRODUCERS), unique=True),
    st.lists(markers, max_size=3),
    st.sampled_from([4096, 200, 0]),
    st.sampled_from([1_000_000, 700, 200]),
)
def test_a_group_leaves_what_its_markers_leave_one_by_one(
    open_ones: list[int], groups: list[list[Ends]], index_interval_bytes: int, segment_bytes: int
) -> None:
    config = TopicConfig(index_interval_bytes=index_interval_bytes, segment_bytes=segment_bytes)
    grouped, single = Scene(config), Scene(config)
    for scene in (grouped, single):
        for producer_id in open_ones:
            scene.append(idempotent(0, "in doubt", producer_id=producer_id, transactional=True))
    for group in groups:
        assert together(grouped, group) == [one_by_one(single, ends) for ends in group]
    assert remains(grouped) == remains(single)


def test_commits_of_a_group_are_one_write() -> None:
    scene = Scene()
    for producer_id in PRODUCERS:
        scene.append(idempotent(0, "in doubt", producer_id=producer_id, transactional=True))
    first = scene.log.log_end_offset
    scene.sync()
    assert together(scene, [Ends(producer_id) for producer_id in PRODUCERS]) == [None] * 6
    assert len(scene.disk.inode(scene.log.segments.active.log_path).pending) == 1
    read = scene.log.read(first, 10_000)
    assert len(read.records) == 6 * MARKER_BYTES
    assert offsets_in(read.records) == list(range(first, first + 6))


def test_a_full_disk_takes_no_marker_of_a_group_and_all_of_them_later() -> None:
    scene = Scene()
    scene.append(batch_of("plain"))
    for producer_id in PRODUCERS:
        scene.append(idempotent(0, "in doubt", producer_id=producer_id, transactional=True))
    before, state = repr(scene.log), scene.log.producers.take_snapshot()
    group = [Ends(producer_id) for producer_id in PRODUCERS]
    scene.disk.fail_write(".log", errno.ENOSPC)
    assert together(scene, group) == [ErrorCode.KAFKA_STORAGE_ERROR] * 6
    assert (repr(scene.log), scene.log.producers.take_snapshot()) == (before, state)
    assert together(scene, group) == [None] * 6
    scene.log.check_invariants()
