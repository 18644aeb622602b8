"""The small files: Kafka's texts, taken as Kafka writes them and refused when they make no sense."""

import pytest

from fencepost.log.indexes import OffsetIndex, TimeIndex
from fencepost.log.leader_epochs import CorruptEpochCheckpoint, LeaderEpochs
from fencepost.log.side_files import (
    CorruptSideFile,
    MetaProperties,
    parse_partition_directory_name,
    read_meta_properties,
    read_offset_checkpoint,
    read_partition_metadata,
    take_clean_shutdown,
    write_clean_shutdown,
    write_meta_properties,
    write_offset_checkpoint,
)
from fencepost.simulation.disk import PowerCut, SimulatedDisk


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory("/data")
    disk.sync_directory("/")
    return disk


def test_meta_properties_are_durable_once_written(disk: SimulatedDisk) -> None:
    assert read_meta_properties(disk, "/data") is None
    properties = MetaProperties("a-cluster", 3, "a-directory")
    write_meta_properties(disk, "/data", properties)
    disk.power_cut(PowerCut.LOSE_ALL)
    assert read_meta_properties(disk, "/data") == properties


def test_meta_properties_of_apache_kafka_are_understood(disk: SimulatedDisk) -> None:
    text = b"#\n#Sun Nov 15 17:00:00 UTC 2026\ncluster.id=abc\ndirectory.id=def\nnode.id=1\nversion=1\n"
    disk.write_bytes("/data/meta.properties", text)
    assert read_meta_properties(disk, "/data") == MetaProperties("abc", 1, "def")


@pytest.mark.parametrize("text", [b"", b"version=1\n", b"version=9\ncluster.id=a\nnode.id=1\n", b"version=x\n"])
def test_meta_properties_that_say_too_little_are_refused(disk: SimulatedDisk, text: bytes) -> None:
    disk.write_bytes("/data/meta.properties", text)
    with pytest.raises(CorruptSideFile, match=r"meta\.properties"):
        read_meta_properties(disk, "/data")


def test_the_mark_of_a_clean_stop_is_good_for_one_start(disk: SimulatedDisk) -> None:
    assert not take_clean_shutdown(disk, "/data")
    write_clean_shutdown(disk, "/data", 42)
    assert disk.read_bytes("/data/.kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":42}'
    disk.power_cut(PowerCut.LOSE_ALL)
    assert take_clean_shutdown(disk, "/data")
    disk.power_cut(PowerCut.LOSE_ALL)
    assert not take_clean_shutdown(disk, "/data")


def test_offset_checkpoints_are_kafkas_text(disk: SimulatedDisk) -> None:
    write_offset_checkpoint(disk, "/data", "recovery-point-offset-checkpoint", {("a", 0): 5, ("b-c", 12): 2**40})
    assert disk.read_bytes("/data/recovery-point-offset-checkpoint") == b"0\n2\na 0 5\nb-c 12 1099511627776\n"
    offsets = read_offset_checkpoint(disk, "/data", "recovery-point-offset-checkpoint")
    assert offsets == {("a", 0): 5, ("b-c", 12): 2**40}
    assert read_offset_checkpoint(disk, "/data", "no such file") == {}


@pytest.mark.parametrize("text", [b"1\n0\n", b"0\n2\na 0 5\n", b"0\n1\na 0\n", b"0\n1\na x 5\n", b"garbage"])
def test_a_checkpoint_that_does_not_add_up_is_refused(disk: SimulatedDisk, text: bytes) -> None:
    disk.write_bytes("/data/checkpoint", text)
    with pytest.raises(CorruptSideFile, match="/data/checkpoint"):
        read_offset_checkpoint(disk, "/data", "checkpoint")


def test_partition_metadata_of_a_partition_cut_short_is_none(disk: SimulatedDisk) -> None:
    assert read_partition_metadata(disk, "/data") is None
    disk.write_bytes("/data/partition.metadata", b"")
    assert read_partition_metadata(disk, "/data") is None
    for text in (b"version: 1\ntopic_id: AAECAwQFBgcICQoLDA0ODw", b"version: 0\ntopic_id: short", b"version: 0"):
        disk.write_bytes("/data/partition.metadata", text)
        with pytest.raises(CorruptSideFile):
            read_partition_metadata(disk, "/data")


@pytest.mark.parametrize(
    ("name", "parsed"),
    [("a-0", ("a", 0)), ("a-b-12", ("a-b", 12)), ("a", None), ("-0", None), ("a-", None), ("a-0.x-delete", None)],
)
def test_partition_directories_are_known_by_their_names(name: str, parsed: tuple[str, int] | None) -> None:
    assert parse_partition_directory_name(name) == parsed


def test_epochs_are_kept_as_kafka_keeps_them() -> None:
    epochs = LeaderEpochs()
    for epoch, offset in ((0, 0), (0, 5), (3, 10), (2, 11), (4, 10)):
        epochs.assign(epoch, offset)
    assert epochs.entries == ((0, 0), (4, 10)), "an epoch that wrote nothing leaves no entry"
    assert epochs.encode() == b"0\n2\n0 0\n4 10\n"
    assert LeaderEpochs.decode(epochs.encode()).entries == epochs.entries
    assert [epochs.epoch_of(offset) for offset in (0, 9, 10, 99)] == [0, 0, 4, 4]


@pytest.mark.parametrize("text", [b"", b"1\n0\n", b"0\n2\n0 0\n", b"0\n1\n0\n", b"0\n1\nx y\n", b"\xff\xfe"])
def test_an_epoch_checkpoint_that_makes_no_sense_is_told(text: bytes) -> None:
    with pytest.raises(CorruptEpochCheckpoint):
        LeaderEpochs.decode(text)


def test_an_offset_index_is_read_up_to_where_it_makes_sense() -> None:
    index = OffsetIndex()
    for offset, position in ((5, 100), (9, 200), (30, 900)):
        index.relative_offsets.append(offset)
        index.positions.append(position)
    data = index.encode()
    assert data == bytes.fromhex("0000000500000064 00000009000000c8 0000001e00000384")
    assert [index.lookup(offset) for offset in (0, 4, 5, 8, 9, 29, 30, 99)] == [0, 0, 100, 100, 200, 200, 900, 900]
    for damaged in (data, data + bytes(80), data + b"\0\0\0", data + bytes.fromhex("0000000700000384")):
        assert OffsetIndex.decode(damaged, 1000).encode() == data
    assert OffsetIndex.decode(data, 900).encode() == data[:16], "no batch starts at the end of the log"
    assert len(OffsetIndex.decode(bytes(64), 1000)) == 0


def test_a_time_index_takes_only_rising_timestamps() -> None:
    index = TimeIndex()
    for timestamp, offset in ((100, 3), (100, 4), (90, 5), (200, 9)):
        index.append(timestamp, offset)
    data = index.encode()
    assert data == bytes.fromhex("000000000000006400000003 00000000000000c800000009")
    assert [index.lookup(timestamp) for timestamp in (99, 100, 199, 200, 300)] == [0, 3, 3, 9, 9]
    assert TimeIndex.decode(data + bytes(120)).encode() == data
    assert TimeIndex.decode(bytes(120)).last() is None
    assert TimeIndex.decode(bytes(12)).last() == (0, 0)
