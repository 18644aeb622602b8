"""The journal of what the cluster knows of itself: what survives torn writes, and what is refused."""

import random

import pytest

from fencepost.broker.cluster_metadata import JOURNAL_NAME, ClusterMetadata
from fencepost.log.side_files import CorruptSideFile
from fencepost.simulation.disk import PowerCut, SimulatedDisk
from fencepost.simulation.node import SeededRandomness
from fencepost.wire.errors import ErrorCode, KafkaError

PATH = f"/data/{JOURNAL_NAME}"
# Longer than a sector, so that a torn write can lose its middle.
LONG = {"retention.ms": "1" * 700}


def a_disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory("/data")
    disk.sync_directory("/")
    return disk


def loaded(disk: SimulatedDisk) -> ClusterMetadata:
    metadata = ClusterMetadata(
        disk, "/data", SeededRandomness(random.Random(1)), lambda error: KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    )
    metadata.load()
    return metadata


def add(metadata: ClusterMetadata, name: str, overrides: dict[str, str] | None = None) -> None:
    metadata.add_topic(metadata.draft_topic(name, 3, overrides or {}))


def test_what_was_committed_is_there_after_a_restart() -> None:
    disk = a_disk()
    metadata = loaded(disk)
    add(metadata, "purchases", LONG)
    metadata.set_partition_count("purchases", 5)
    metadata.set_feature("transaction.version", 1)
    disk.power_cut(PowerCut.LOSE_ALL)
    again = loaded(disk)
    topic = again.topics["purchases"]
    assert (topic.partition_count, topic.overrides) == (5, LONG)
    assert again.topics_by_id[topic.topic_id] is topic
    assert again.features["transaction.version"] == 1
    assert again.incarnation == metadata.incarnation + 1
    assert again.leader_epoch(topic) == 1


def test_a_last_line_cut_off_anywhere_is_dropped_and_written_over() -> None:
    disk = a_disk()
    metadata = loaded(disk)
    add(metadata, "purchases")
    whole = disk.read_bytes(PATH)
    add(metadata, "torn", LONG)
    torn = disk.read_bytes(PATH)
    for end in range(len(whole), len(torn)):
        disk.write_bytes(PATH, torn[:end])
        again = loaded(disk)
        assert set(again.topics) == {"purchases"}
        add(again, "next")
        assert set(loaded(disk).topics) == {"purchases", "next"}


@pytest.mark.parametrize("hole", range(len('{"op":"create_topic"'), 1500, 100))
def test_a_last_line_with_a_hole_is_dropped(hole: int) -> None:
    """A power cut may keep the end of a write and lose its beginning: the line then ends as a whole one does."""
    disk = a_disk()
    metadata = loaded(disk)
    add(metadata, "purchases")
    start = len(disk.read_bytes(PATH))
    add(metadata, "torn", {**LONG, "segment.ms": "2" * 700})
    data = bytearray(disk.read_bytes(PATH))
    data[start + hole - 20 : start + hole] = bytes(20)
    disk.write_bytes(PATH, data)
    again = loaded(disk)
    assert set(again.topics) == {"purchases"}
    add(again, "next")
    assert set(loaded(disk).topics) == {"purchases", "next"}


@pytest.mark.parametrize("mode", list(PowerCut))
def test_a_power_cut_during_a_write_keeps_all_that_was_committed_before(mode: PowerCut) -> None:
    for seed in range(60):
        disk = a_disk()
        metadata = loaded(disk)
        add(metadata, "purchases", LONG)
        file = disk.open(PATH)
        file.write(file.size(), disk.read_bytes(PATH).splitlines(keepends=True)[-1].replace(b"purchases", b"unsettled"))
        disk.power_cut(mode, random.Random(seed))
        assert "purchases" in loaded(disk).topics


def test_a_damaged_line_in_the_middle_is_no_torn_write_and_is_told() -> None:
    disk = a_disk()
    metadata = loaded(disk)
    add(metadata, "purchases")
    add(metadata, "refunds")
    data = disk.read_bytes(PATH)
    disk.write_bytes(PATH, data.replace(b'"name":"purchases"', b'"name"#"purchases"'))
    with pytest.raises(CorruptSideFile, match="line 2"):
        loaded(disk)


def test_a_producer_id_is_given_out_once_whatever_happens() -> None:
    disk = a_disk()
    given: list[int] = []
    for mode in [*PowerCut] * 3:
        metadata = loaded(disk)
        given += [metadata.next_producer_id() for _ in range(1200)]
        disk.power_cut(mode, random.Random(len(given)))
    assert len(set(given)) == len(given)


def test_a_full_disk_refuses_a_change_and_the_next_one_succeeds() -> None:
    disk = a_disk()
    metadata = loaded(disk)
    disk.capacity_bytes = 1
    with pytest.raises(KafkaError):
        add(metadata, "purchases")
    assert not metadata.topics
    disk.capacity_bytes = None
    add(metadata, "purchases")
    assert set(loaded(disk).topics) == {"purchases"}


def test_a_failed_sync_ends_all_changes() -> None:
    disk = a_disk()
    metadata = loaded(disk)
    disk.fail_sync(JOURNAL_NAME)
    for name in ("purchases", "refunds"):
        with pytest.raises(KafkaError):
            add(metadata, name)
    assert not metadata.topics
    disk.power_cut(PowerCut.LOSE_ALL)
    assert not loaded(disk).topics


def test_a_long_journal_is_shortened_at_a_start_without_losing_anything() -> None:
    disk = a_disk()
    metadata = loaded(disk)
    add(metadata, "purchases")
    for number in range(200):
        metadata.set_topic_overrides("purchases", {"retention.ms": str(number)})
    producer_id = metadata.next_producer_id()
    long_bytes = disk.size(PATH)
    again = loaded(disk)
    assert disk.size(PATH) < long_bytes / 10
    disk.power_cut(PowerCut.LOSE_ALL)
    again = loaded(disk)
    assert again.topics["purchases"].overrides == {"retention.ms": "199"}
    assert again.leader_epoch(again.topics["purchases"]) == 2
    assert again.next_producer_id() > producer_id
