"""What the cluster knows of itself, in Kafka's files: what survives torn writes, and what is refused."""

import contextlib
import random

import pytest

from fencepost.broker.cluster_metadata import ClusterMetadata, ForeignMetadata
from fencepost.log.side_files import CorruptSideFile, MetaProperties, encode_uuid
from fencepost.metadata import log_files
from fencepost.metadata.image import BROKER_CONFIG, TOPIC_CONFIG, config_record
from fencepost.metadata.log_files import FIRST_OFFSET, METADATA_DIRECTORY, MetadataLog
from fencepost.metadata.records import MetadataRecord, UnknownRecord, encode_record
from fencepost.simulation.disk import PowerCut, SimulatedDisk
from fencepost.simulation.node import SeededRandomness
from fencepost.wire.acls import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePattern,
    ResourceType,
)
from fencepost.wire.batch import build_batch, iterate_headers
from fencepost.wire.errors import ErrorCode, KafkaError
from fencepost.wire.messages import ClientQuotaRecord, PartitionRecord
from fencepost.wire.scram import ScramCredential

DIRECTORY = f"/data/{METADATA_DIRECTORY}"
PROPERTIES = MetaProperties(encode_uuid(b"c" * 16), 1, encode_uuid(b"d" * 16))
# Longer than a sector, so that a torn write can lose its middle.
LONG = {"retention.ms": "1" * 700}


def a_disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory("/data")
    disk.sync_directory("/")
    return disk


def examined(disk: SimulatedDisk, seed: int = 1) -> ClusterMetadata:
    metadata = ClusterMetadata(
        disk,
        "/data",
        SeededRandomness(random.Random(seed)),
        lambda error: KafkaError(ErrorCode.KAFKA_STORAGE_ERROR),
        lambda: 1_700_000_000_000,
    )
    metadata.examine(1, PROPERTIES.directory_id)
    return metadata


def loaded(disk: SimulatedDisk, *, rewrite: bool = False) -> ClusterMetadata:
    metadata = examined(disk, seed=disk.used_bytes())
    metadata.load(PROPERTIES, rewrite=rewrite)
    return metadata


def segment(disk: SimulatedDisk) -> str:
    """The file that is written."""
    return f"{DIRECTORY}/{[name for name in disk.list(DIRECTORY) if name.endswith('.log')][-1]}"


def add(metadata: ClusterMetadata, name: str, overrides: dict[str, str] | None = None) -> None:
    metadata.add_topic(metadata.draft_topic(name, 3, overrides or {}))


def test_what_was_committed_is_there_after_a_restart() -> None:
    disk = a_disk()
    metadata = loaded(disk)
    add(metadata, "purchases", LONG)
    metadata.set_partition_count("purchases", 5)
    metadata.set_feature("transaction.version", 1)
    metadata.set_topic_overrides("purchases", {"cleanup.policy": "compact"})
    metadata.set_broker_overrides({"log.retention.ms": "1", "log.roll.ms": "2"})
    metadata.set_broker_overrides({"log.roll.ms": "3"})
    metadata.set_cluster_overrides({"message.max.bytes": "4"})
    rule = AclBinding(
        ResourcePattern(ResourceType.TOPIC, "t"), "User:a", "*", AclOperation.READ, AclPermissionType.ALLOW
    )
    other = rule._replace(host="h")
    metadata.add_acls([rule, other, rule])
    metadata.remove_acls([other])
    credential = ScramCredential(b"salt", 4096, b"stored", b"server")
    metadata.set_scram_credentials("al", {"SCRAM-SHA-256": credential, "SCRAM-SHA-512": credential})
    metadata.set_scram_credentials("al", {"SCRAM-SHA-512": None})
    secret = metadata.decoy_secret()
    disk.power_cut(PowerCut.LOSE_ALL)
    again = loaded(disk)
    topic = again.topics["purchases"]
    assert (topic.partition_count, topic.overrides) == (5, {"cleanup.policy": "compact"})
    assert again.topics_by_id[topic.topic_id] is topic
    assert again.features == {"transaction.version": 1}
    assert again.incarnation == metadata.incarnation + 1
    assert [again.leader_epoch(topic, index) for index in range(5)] == [1] * 5
    assert (again.broker_overrides, again.cluster_overrides) == ({"log.roll.ms": "3"}, {"message.max.bytes": "4"})
    assert list(again.acls) == [rule]
    assert again.scram_credentials == {"al": {"SCRAM-SHA-256": credential}}
    assert again.decoy_secret() == secret
    again.delete_topic("purchases")
    assert loaded(disk).topics == {}


def test_a_last_batch_cut_off_anywhere_is_dropped_and_written_over() -> None:
    disk = a_disk()
    metadata = loaded(disk)
    add(metadata, "purchases")
    path = segment(disk)
    whole = disk.read_bytes(path)
    add(metadata, "torn", LONG)
    torn = disk.read_bytes(path)
    for end in range(len(whole), len(torn), 7):
        disk.write_bytes(path, torn[:end])
        again = loaded(disk)
        assert set(again.topics) == {"purchases"}
        add(again, "next")
        assert set(loaded(disk).topics) == {"purchases", "next"}


@pytest.mark.parametrize("hole", range(20, 1500, 100))
def test_a_last_batch_with_a_hole_is_dropped(hole: int) -> None:
    """A power cut may keep the end of a write and lose its beginning."""
    disk = a_disk()
    metadata = loaded(disk)
    add(metadata, "purchases")
    path = segment(disk)
    start = len(disk.read_bytes(path))
    add(metadata, "torn", {**LONG, "segment.ms": "2" * 700})
    data = bytearray(disk.read_bytes(path))
    data[start + hole - 20 : start + hole] = bytes(20)
    disk.write_bytes(path, data)
    again = loaded(disk)
    assert set(again.topics) == {"purchases"}
    add(again, "next")
    assert set(loaded(disk).topics) == {"purchases", "next"}


@pytest.mark.parametrize("mode", list(PowerCut))
def test_a_power_cut_at_any_moment_keeps_all_that_was_committed_before(mode: PowerCut) -> None:
    """Also one in the midst of a start."""
    for seed in range(40):
        source = random.Random(seed)
        disk = a_disk()
        metadata = loaded(disk)
        add(metadata, "purchases", LONG)
        if seed % 2:
            disk.fail_sync(source.choice(["", "quorum-state", ".log", DIRECTORY]))
            with contextlib.suppress(OSError, KafkaError):
                add(loaded(disk, rewrite=bool(seed % 3)), "unsettled", LONG)
            disk.call_off_faults()
        else:
            file = disk.open(segment(disk))
            file.write(file.size(), disk.read_bytes(segment(disk))[-900:])
        disk.power_cut(mode, source)
        assert "purchases" in loaded(disk).topics
        assert "purchases" in loaded(disk, rewrite=True).topics
        assert "purchases" in loaded(disk).topics


def test_a_damaged_batch_in_the_middle_is_no_torn_write_and_is_told() -> None:
    disk = a_disk()
    metadata = loaded(disk)
    add(metadata, "purchases")
    add(metadata, "refunds")
    data = disk.read_bytes(segment(disk))
    disk.write_bytes(segment(disk), data.replace(b"purchases", b"purchased"))
    with pytest.raises(CorruptSideFile, match="damaged, and whole ones follow"):
        examined(disk)


def test_a_damaged_snapshot_and_a_gap_are_told() -> None:
    disk = a_disk()
    metadata = loaded(disk)
    add(metadata, "purchases")
    loaded(disk, rewrite=True)
    (name,) = (name for name in disk.list(DIRECTORY) if name.endswith(".checkpoint"))
    data = disk.read_bytes(f"{DIRECTORY}/{name}")
    for damaged, told in (
        (data.replace(b"purchases", b"purchased"), "CRC"),
        (data[:-10], "cut off"),
        (data[:-75], "does not end"),
    ):
        disk.write_bytes(f"{DIRECTORY}/{name}", damaged)
        with pytest.raises(CorruptSideFile, match=told):
            examined(disk)
    disk.remove(f"{DIRECTORY}/{name}")
    with pytest.raises(CorruptSideFile, match=r"records 0 to .* are missing"):
        examined(disk)


def test_what_this_broker_cannot_take_is_refused_before_anything_is_written() -> None:
    quota = ClientQuotaRecord(
        entity=[ClientQuotaRecord.EntityData(entity_type="user", entity_name=None)], key="producer_byte_rate", value=1.0
    )
    topic_id = b"t" * 16

    def moved(replica: int, directory: bytes) -> MetadataRecord:
        record = PartitionRecord(
            topic_id=topic_id,
            partition_id=0,
            replicas=[replica],
            isr=[replica],
            leader=replica,
            directories=[directory],
        )
        return MetadataRecord(record, 2)

    for records, error, told in (
        ([encode_record(MetadataRecord(quota))], ForeignMetadata, r"user \(default\)"),
        ([encode_record(moved(2, b"d" * 16))], ForeignMetadata, "brokers 2, and this is 1"),
        ([encode_record(moved(1, b"e" * 16))], ForeignMetadata, "another log directory"),
        ([bytes([1, 2, 9, 0])], UnknownRecord, "TopicRecord in version 9"),
        ([bytes([1, 90, 0, 0])], UnknownRecord, "type 90"),
    ):
        disk = a_disk()
        metadata = loaded(disk)
        draft = metadata.draft_topic("t", 1, {})
        draft.topic_id = topic_id
        metadata.add_topic(draft)
        file = disk.open(segment(disk))
        values = [(0, None, value, ()) for value in records]
        epoch, offset = metadata.incarnation, metadata.features_epoch + 1
        file.write(file.size(), build_batch(values, base_offset=offset, partition_leader_epoch=epoch))
        before = {name: disk.read_bytes(f"{DIRECTORY}/{name}") for name in disk.list(DIRECTORY)}
        with pytest.raises(error, match=told):
            examined(disk)
        assert {name: disk.read_bytes(f"{DIRECTORY}/{name}") for name in disk.list(DIRECTORY)} == before


def test_a_change_of_very_many_records_is_one_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_files, "BATCH_RECORDS_BYTES_MAX", 4_000)
    disk = a_disk()
    metadata = loaded(disk)
    path = segment(disk)
    metadata.add_topic(metadata.draft_topic("wide", 300, {}))
    data = disk.read_bytes(path)
    assert len(list(iterate_headers(data))) > 6
    assert loaded(disk).topics["wide"].partition_count == 300
    disk.write_bytes(path, data[:-1])
    again = loaded(disk)
    assert again.topics == {}
    add(again, "next")
    assert set(loaded(disk).topics) == {"next"}


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
    disk.fail_sync(METADATA_DIRECTORY)
    for name in ("purchases", "refunds"):
        with pytest.raises(KafkaError):
            add(metadata, name)
    assert not metadata.topics
    disk.power_cut(PowerCut.LOSE_ALL)
    assert not loaded(disk).topics


def test_a_long_log_becomes_a_snapshot_at_a_start_without_losing_anything() -> None:
    disk = a_disk()
    metadata = loaded(disk)
    add(metadata, "purchases")
    for number in range(1_000):
        metadata.set_topic_overrides("purchases", {"retention.ms": str(number)})
    producer_id = metadata.next_producer_id()
    long_bytes = disk.size(segment(disk))
    assert long_bytes > 65_536
    again = loaded(disk)
    assert disk.size(segment(disk)) < long_bytes / 10
    assert [name for name in disk.list(DIRECTORY) if name.startswith(f"{FIRST_OFFSET:020d}")] == []
    disk.power_cut(PowerCut.LOSE_ALL)
    again = loaded(disk)
    assert again.topics["purchases"].overrides == {"retention.ms": "999"}
    assert again.leader_epoch(again.topics["purchases"], 2) == 2
    assert again.next_producer_id() > producer_id


def test_records_that_nobody_acts_on_are_in_the_snapshots() -> None:
    disk = a_disk()
    loaded(disk)
    log = MetadataLog(disk, "/data")
    log.begin(log.read(), 1, 0)
    foreign = [config_record((TOPIC_CONFIG, "elsewhere"), "a", "b"), config_record((BROKER_CONFIG, ""), "c", "d")]
    log.append(map(encode_record, foreign), 0)
    metadata = loaded(disk, rewrite=True)
    metadata.set_cluster_overrides({"message.max.bytes": "4"})
    metadata.set_cluster_overrides({})
    loaded(disk, rewrite=True)
    assert config_record((BROKER_CONFIG, ""), "c", "d") in log.read().records
    assert config_record((TOPIC_CONFIG, "elsewhere"), "a", "b") in log.read().records
