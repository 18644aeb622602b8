"""A directory of an earlier version: its journal of JSON lines becomes a metadata log, whenever the power fails."""

import copy
import itertools
import random
from typing import Any

import pytest

from fencepost.broker.cluster_metadata import DECOY_SECRET_NAME, ClusterMetadata
from fencepost.broker.earlier_metadata import JOURNAL_BACKUP_NAME, JOURNAL_NAME
from fencepost.broker.json_lines import encode_line
from fencepost.log.side_files import CorruptSideFile, read_meta_properties
from fencepost.metadata.log_files import METADATA_DIRECTORY
from fencepost.simulation.disk import PowerCut, SimulatedDisk
from fencepost.simulation.node import DATA_DIRECTORY, SeededRandomness, SimulatedNode
from fencepost.wire.errors import KafkaError
from fencepost.wire.scram import ScramCredential
from tests.durability.scene import SMALL, Client

JOURNAL = f"{DATA_DIRECTORY}/{JOURNAL_NAME}"
BACKUP = f"{DATA_DIRECTORY}/{JOURNAL_BACKUP_NAME}"
INCARNATION = 7


class PowerLost(Exception):
    pass


class FailingDisk(SimulatedDisk):
    """The power fails before so many changes or syncs."""

    left: int | None = None

    def _count(self) -> None:
        if self.left is not None:
            if self.left == 0:
                raise PowerLost
            self.left -= 1

    def write_to(self, *arguments: Any) -> None:
        self._count()
        super().write_to(*arguments)

    def sync_inode(self, *arguments: Any) -> None:
        self._count()
        super().sync_inode(*arguments)

    def rename(self, source: str, target: str) -> None:
        self._count()
        super().rename(source, target)

    def remove(self, path: str) -> None:
        self._count()
        super().remove(path)

    def sync_directory(self, path: str) -> None:
        self._count()
        super().sync_directory(path)


def earlier_directory() -> tuple[FailingDisk, bytes]:
    """What the broker left behind when it still kept a journal; and the id of its topic."""
    machine = SimulatedNode(SMALL, seed=1)
    disk = FailingDisk()
    disk.make_directory(DATA_DIRECTORY)
    disk.sync_directory("/")
    machine.disk = disk
    machine.start()
    client = Client(machine)
    assert client.create_topic("orders", 2) == 0
    assert client.produce("orders", b"kept").error_code == 0
    topic_id = machine.node.metadata.topics["orders"].topic_id
    machine.stop()
    disk.remove_tree(f"{DATA_DIRECTORY}/{METADATA_DIRECTORY}")
    rule = ["TOPIC", "LITERAL", "orders", "User:al", "*", "READ", "ALLOW"]
    credential = [b"salt".hex(), 4096, b"stored".hex(), b"server".hex()]
    changes: list[dict[str, Any]] = [
        {"op": "start", "incarnation": 1},
        {"op": "create_topic", "name": "gone", "id": "00" * 16, "partitions": 1, "created_in": 1, "internal": False,
         "config": {}},
        {"op": "start", "incarnation": 2},
        {"op": "create_topic", "name": "orders", "id": topic_id.hex(), "partitions": 1, "created_in": 2,
         "internal": False, "config": {"retention.ms": "5"}},
        {"op": "set_partitions", "name": "orders", "partitions": 2},
        {"op": "set_config", "name": "orders", "config": {"retention.ms": "-1"}},
        {"op": "delete_topic", "name": "gone"},
        {"op": "set_broker_config", "config": {"log.retention.ms": "9"}},
        {"op": "set_cluster_config", "config": {"message.max.bytes": "2000000"}},
        {"op": "set_feature", "name": "transaction.version", "level": 1},
        {"op": "add_acls", "acls": [rule, [*rule[:5], "WRITE", "DENY"]]},
        {"op": "remove_acls", "acls": [rule]},
        {"op": "set_scram", "user": "al", "credentials": {"SCRAM-SHA-256": credential}},
        {"op": "decoy_secret", "secret": "ab" * 32},
        {"op": "producer_ids", "next": 5000},
        {"op": "start", "incarnation": INCARNATION},
    ]  # fmt: skip
    disk.write_bytes(JOURNAL, b"".join(map(encode_line, changes)) + b'{"op":"start","inc')
    disk.sync_file_system(DATA_DIRECTORY)
    return disk, topic_id


@pytest.fixture(scope="module")
def earlier() -> tuple[FailingDisk, bytes]:
    return earlier_directory()


def converted(disk: SimulatedDisk, seed: int = 1) -> ClusterMetadata:
    def refusal(error: OSError) -> KafkaError:
        raise error

    properties = read_meta_properties(disk, DATA_DIRECTORY)
    assert properties is not None
    metadata = ClusterMetadata(disk, DATA_DIRECTORY, SeededRandomness(random.Random(seed)), refusal, lambda: 1)
    metadata.examine(1, properties.directory_id)
    metadata.load(properties)
    return metadata


def check(metadata: ClusterMetadata, topic_id: bytes, *, starts: int) -> None:
    assert list(metadata.topics) == ["orders"]
    topic = metadata.topics["orders"]
    assert (topic.topic_id, topic.partition_count, topic.overrides) == (topic_id, 2, {"retention.ms": "-1"})
    # What the earlier version would have led in, had it been started so many times more.
    assert metadata.leader_epoch(topic, 1) == INCARNATION - 2 + starts
    assert metadata.broker_overrides == {"log.retention.ms": "9"}
    assert metadata.cluster_overrides == {"message.max.bytes": "2000000"}
    assert metadata.features == {"transaction.version": 1}
    assert [(rule.principal, rule.operation.name, rule.permission_type.name) for rule in metadata.acls] == [
        ("User:al", "WRITE", "DENY")
    ]
    assert metadata.scram_credentials == {"al": {"SCRAM-SHA-256": ScramCredential(b"salt", 4096, b"stored", b"server")}}
    assert metadata.decoy_secret() == b"\xab" * 32
    assert metadata.next_producer_id() == 5000


def test_nothing_is_lost_and_the_journal_stays_as_a_backup(earlier: tuple[FailingDisk, bytes]) -> None:
    disk, topic_id = copy.deepcopy(earlier)
    before = disk.read_bytes(JOURNAL)
    check(converted(disk), topic_id, starts=1)
    assert disk.read_bytes(BACKUP) == before
    assert not disk.exists(JOURNAL)
    disk.power_cut(PowerCut.LOSE_ALL)
    assert disk.read_bytes(BACKUP) == before
    assert disk.read_bytes(f"{DATA_DIRECTORY}/{DECOY_SECRET_NAME}") == b"\xab" * 32


def test_the_broker_goes_on_with_its_records(earlier: tuple[FailingDisk, bytes]) -> None:
    disk, _ = copy.deepcopy(earlier)
    machine = SimulatedNode(SMALL, seed=2)
    machine.disk = disk
    machine.start()
    client = Client(machine)
    assert dict(client.read_all("orders", 0)) == {0: b"kept"}
    assert client.produce("orders", b"next").base_offset == 1
    assert machine.node.storage.was_clean
    machine.stop()


@pytest.mark.parametrize("mode", list(PowerCut))
def test_the_power_may_fail_at_any_moment_of_it(earlier: tuple[FailingDisk, bytes], mode: PowerCut) -> None:
    for left in itertools.count():
        disk, topic_id = copy.deepcopy(earlier)
        disk.left = left
        try:
            converted(disk)
        except PowerLost:
            disk.left = None
            disk.power_cut(mode, random.Random(left))
            again = converted(disk, seed=left + 2)
            epoch = again.leader_epoch(again.topics["orders"], 1)
            assert epoch in (INCARNATION - 2 + 1, INCARNATION - 2 + 2)
            check(again, topic_id, starts=epoch - (INCARNATION - 2))
        else:
            break
    assert left > 10


def test_a_damaged_line_in_the_middle_is_told_and_nothing_is_written(earlier: tuple[FailingDisk, bytes]) -> None:
    disk, _ = copy.deepcopy(earlier)
    disk.write_bytes(JOURNAL, disk.read_bytes(JOURNAL).replace(b'"name":"orders"', b'"name"#"orders"', 1))
    names = disk.list(DATA_DIRECTORY)
    with pytest.raises(CorruptSideFile, match="line 4 is damaged"):
        converted(disk)
    assert disk.list(DATA_DIRECTORY) == names
