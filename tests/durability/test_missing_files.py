"""Files that vanish while the broker is stopped: that is told, the rest is served, and repair is the way back."""

import json
import re
from pathlib import Path

import pytest

from fencepost.broker.directory_repair import DirectoryRepair, Survey
from fencepost.broker.events import DamageFound, SideFileDamaged
from fencepost.cli.main import run
from fencepost.log.side_files import (
    CLEANER_OFFSET_CHECKPOINT,
    GAPLESS_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    CorruptSideFile,
    read_offset_checkpoint,
    write_offset_checkpoint,
)
from fencepost.metadata.log_files import METADATA_DIRECTORY
from fencepost.shell.directory_lock import DirectoryLock
from fencepost.simulation.disk import SimulatedDisk
from fencepost.simulation.node import DATA_DIRECTORY, SeededRandomness, SimulatedNode
from fencepost.wire.batch import build_batch, iterate_headers
from fencepost.wire.catalog import ApiKey
from fencepost.wire.errors import ErrorCode
from fencepost.wire.messages import DeleteRecordsRequest, FindCoordinatorRequest, WriteTxnMarkersRequest
from tests.durability.scene import EARLIEST, Client
from tests.durability.transactional import READ_COMMITTED, TransactionalClient, committed_in
from tests.fuzz.directory import GROUP, PARTITIONS, WAYS_TO_END, Content, copy_of, data_values_in

STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOST = (
    ("orders-0", "directory"),
    ("orders-0", "all"),
    ("orders-0", "last"),
    ("orders-0", "middle"),
    ("payments-0", "directory"),
    ("payments-0", "last"),
    ("payments-0", "middle"),
    ("payments-1", "last"),
    ("stock-0", "last"),
    ("stock-0", "all"),
)
INTERNAL = (
    ("__transaction_state-0", "directory"),
    ("__transaction_state-0", "last"),
    ("__transaction_state-0", "middle"),
    ("__consumer_offsets-0", "directory"),
    ("__consumer_offsets-0", "last"),
)


def tree(disk: SimulatedDisk, directory: str = DATA_DIRECTORY) -> dict[str, bytes | None]:
    found: dict[str, bytes | None] = {}
    for name in disk.list(directory):
        path = f"{directory}/{name}"
        try:
            found[path] = disk.read_bytes(path)
        except FileNotFoundError:
            found |= {path: None, **tree(disk, path)}
    return found


def remove(disk: SimulatedDisk, name: str, what: str) -> None:
    directory = f"{DATA_DIRECTORY}/{name}"
    if what == "directory":
        disk.remove_tree(directory)
    else:
        logs = [each for each in disk.list(directory) if each.endswith(".log")]
        assert len(logs) >= (3 if what == "middle" else 2) or what == "all"
        for each in {"all": logs, "last": logs[-1:], "middle": logs[1:2]}[what]:
            disk.remove(f"{directory}/{each}")
    disk.sync_file_system(DATA_DIRECTORY)


def work_on(machine: SimulatedNode) -> DirectoryRepair:
    return DirectoryRepair(machine.disk, DATA_DIRECTORY, SeededRandomness(machine.source), machine.clock.wall_ms())


def dry_run(machine: SimulatedNode) -> Survey:
    before = tree(machine.disk)
    found = work_on(machine).survey()
    assert tree(machine.disk) == before, "a dry run changes nothing"
    return found


def recovery_point(machine: SimulatedNode, topic: str, index: int) -> int:
    return read_offset_checkpoint(machine.disk, DATA_DIRECTORY, RECOVERY_POINTS)[topic, index]


def split(name: str) -> tuple[str, int]:
    topic, _, index = name.rpartition("-")
    return topic, int(index)


def read(client: Client, at: tuple[str, int], isolation_level: int) -> dict[int, bytes | None]:
    found: dict[int, bytes | None] = {}
    offset = client.offset(*at, EARLIEST)
    while True:
        answer = client.fetch(at[0], {at[1]: offset}, isolation_level=isolation_level, partition_max_bytes=700)
        data = answer.responses[0].partitions[0]
        assert data.error_code == 0, (at, offset, data.error_code)
        if not data.records:
            return found
        headers = [header for _, header in iterate_headers(memoryview(data.records))]
        found |= dict(committed_in(data, offset) if isolation_level else data_values_in(data.records))
        offset = headers[-1].next_offset


def check_others(client: Client, content: Content, lost: str | None) -> None:
    for at in PARTITIONS:
        if f"{at[0]}-{at[1]}" != lost and at != ("stock", 0):
            assert read(client, at, 0) == content.records[at]


def produce(client: Client, topic: str, index: int):
    batch = build_batch([(client.machine.clock.wall_ms(), b"key", b"afterwards", ())])
    return client.produced(client.send(topic, {index: batch}))


def start(machine: SimulatedNode) -> list[DamageFound]:
    machine.start()
    machine.scheduler.run_for(1_000)
    return [event for event in machine.node.events.recent if isinstance(event, DamageFound)]


@pytest.mark.parametrize("is_started_first", [True, False], ids=["started first", "repaired at once"])
@pytest.mark.parametrize(("name", "what"), LOST)
def test_a_partition_that_lost_files_is_offline_until_the_loss_is_accepted(
    name: str, what: str, is_started_first: bool
) -> None:
    machine, content = copy_of("stopped")
    topic, index = split(name)
    synced = recovery_point(machine, topic, index)
    remove(machine.disk, name, what)
    if is_started_first:
        told = start(machine)
        assert [(each.topic, each.partition) for each in told] == [(topic, index)]
        assert "missing" in told[0].reason
        client = Client(machine)
        assert produce(client, topic, index).error_code == STORAGE_ERROR
        fetched = client.fetch(topic, {index: 0}).responses[0].partitions[0]
        assert fetched.error_code == STORAGE_ERROR
        check_others(client, content, name)
        machine.stop()
    (damaged,) = dry_run(machine).damaged
    assert damaged.name == name
    assert not damaged.problem
    lost = {offset for loss in damaged.losses for offset in range(loss.first_offset, loss.next_offset)}
    assert lost
    assert tuple(damaged.losses) == work_on(machine).accept(topic, index)
    assert dry_run(machine).is_whole

    assert start(machine) == []
    client = Client(machine)
    check_others(client, content, name)
    at = (topic, index)
    left = {offset: value for offset, value in content.records[at].items() if offset not in lost}
    assert read(client, at, 0) == left
    for offset in lost & set(range(max(left, default=0))):
        fetched = client.fetch(topic, {index: offset}).responses[0].partitions[0]
        headers = [header for _, header in iterate_headers(memoryview(fetched.records))]
        assert any(header.record_count for header in headers), "some clients cannot go on without a record"
    seen = read(client, at, READ_COMMITTED)
    assert seen.items() <= content.committed[at].items(), "nothing aborted is ever shown"
    answer = produce(client, topic, index)
    assert answer.error_code == 0
    assert answer.base_offset >= synced
    machine.stop()
    assert start(machine) == [], "it is repaired for good"
    assert read(Client(machine), at, 0).keys() == {*left, answer.base_offset}


@pytest.mark.parametrize(("name", "what"), INTERNAL)
def test_a_coordinator_that_lost_its_log_is_out_of_service_until_the_loss_is_accepted(name: str, what: str) -> None:
    machine, content = copy_of("stopped")
    topic, index = split(name)
    synced = recovery_point(machine, topic, index)
    remove(machine.disk, name, what)
    told = start(machine)
    assert {(each.topic, each.partition) for each in told} == {(topic, index)}
    client = Client(machine)
    key_type, key = (1, "shop") if topic == "__transaction_state" else (0, GROUP)
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
    (found,) = client.socket.call(ApiKey.FIND_COORDINATOR, 4, request).coordinators
    if found.error_code == 0 and key_type == 0:
        assert client.commit(GROUP, "orders", 0, 1) != 0
    check_others(client, content, name)
    machine.stop()

    (damaged,) = dry_run(machine).damaged
    assert damaged.name == name
    work_on(machine).accept(topic, index)
    assert start(machine) == []
    client = Client(machine)
    check_others(client, content, name)
    shop = TransactionalClient(client, "shop")
    shop.init()
    shop.produce("canary", 0, b"bought")
    shop.end(is_commit=True)
    assert client.commit(GROUP, "orders", 0, 7) == 0
    assert client.committed(GROUP, "orders", [0]) == {0: 7}
    machine.scheduler.run_for(1_000)
    log = machine.node.partition(topic, index).log
    assert log.log_end_offset > synced
    machine.stop()
    assert start(machine) == []


def producer_epochs(machine: SimulatedNode) -> set[tuple[int, int]]:
    """Every producer id and epoch that any log has seen."""
    return {
        (header.producer_id, header.producer_epoch)
        for path, data in tree(machine.disk).items()
        if data and path.endswith(".log")
        for _, header in iterate_headers(memoryview(data))
        if header.producer_id >= 0
    }


@pytest.mark.parametrize("what", ["directory", "last", "middle", "bytes"])
def test_ids_of_a_repaired_coordinator_get_producer_ids_that_nobody_ever_had(what: str) -> None:
    machine, content = copy_of("stopped")
    used = producer_epochs(machine)
    if what == "bytes":
        directory = f"{DATA_DIRECTORY}/__transaction_state-0"
        name = [each for each in machine.disk.list(directory) if each.endswith(".log")][-1]
        file = machine.disk.open(f"{directory}/{name}")
        file.write(file.size() - 200, bytes(20))
        file.sync()
    else:
        remove(machine.disk, "__transaction_state-0", what)
    (damaged,) = dry_run(machine).damaged
    assert not damaged.problem
    work_on(machine).accept("__transaction_state", 0)
    start(machine)
    client = Client(machine)
    for transactional_id, is_new in (("shop", True), ("till", False), ("open", True)):
        producer = TransactionalClient(client, transactional_id, is_new=is_new)
        producer.init()
        is_known = transactional_id not in damaged.forgotten_ids and what == "middle"
        assert producer.producer_id not in {producer_id for producer_id, _ in used} or is_known
        assert (producer.producer_id, producer.producer_epoch) not in used
        for partition in (0, 1):
            offset = producer.produce("payments", partition, b"from %s" % transactional_id.encode())
            assert offset > max(content.records["payments", partition]), "taken for a retry of an earlier batch"
        producer.end(is_commit=True)
    machine.stop()


@pytest.mark.parametrize("what", ["directory", "last"])
def test_what_a_lost_coordinator_had_open_is_listed_and_ended_by_a_marker(what: str) -> None:
    machine, content = copy_of("stopped")
    assert dry_run(machine).hanging == [], "its coordinator will end what is open"
    remove(machine.disk, "__transaction_state-0", what)
    (hanging,) = dry_run(machine).hanging
    assert (hanging.topic, hanging.index) == ("payments", 1)
    assert content.records["payments", 1][hanging.first_offset] == b"undecided"
    work_on(machine).accept("__transaction_state", 0)
    assert dry_run(machine).hanging == [hanging]
    start(machine)
    client = Client(machine)
    producer = TransactionalClient(client, "open")
    producer.init()
    written = producer.produce("payments", 1, b"afterwards")
    producer.end(is_commit=True)
    assert written not in read(client, ("payments", 1), READ_COMMITTED), "readers wait for what is open"
    wanted = WriteTxnMarkersRequest.WritableTxnMarker
    topics = [wanted.WritableTxnMarkerTopic(name="payments", partition_indexes=[1])]
    marker = wanted(
        producer_id=hanging.producer_id,
        producer_epoch=hanging.producer_epoch,
        transaction_result=False,
        topics=topics,
        coordinator_epoch=0,
    )
    client.socket.call(ApiKey.WRITE_TXN_MARKERS, 1, WriteTxnMarkersRequest(markers=[marker]))
    seen = read(client, ("payments", 1), READ_COMMITTED)
    assert seen == {**content.committed["payments", 1], written: b"afterwards"}
    machine.stop()
    assert dry_run(machine).hanging == []


def test_a_coordinators_segment_that_overlaps_the_next_can_be_given_up() -> None:
    """As in a copy that was made while the cleaner replaced segments."""
    machine, _ = copy_of("stopped")
    directory = f"{DATA_DIRECTORY}/__transaction_state-0"
    names = [each for each in machine.disk.list(directory) if each.endswith(".log")]
    last = machine.disk.read_bytes(f"{directory}/{names[-1]}")
    assert last
    machine.disk.write_bytes(f"{directory}/{names[0]}", last)
    (damaged,) = dry_run(machine).damaged
    assert damaged.name == "__transaction_state-0"
    work_on(machine).accept("__transaction_state", 0)
    assert start(machine) == []
    TransactionalClient(Client(machine), "shop").init()


def test_holes_that_another_cleaner_made_since_are_no_damage() -> None:
    machine, _ = copy_of("stopped")
    clean_offsets = read_offset_checkpoint(machine.disk, DATA_DIRECTORY, CLEANER_OFFSET_CHECKPOINT)
    assert clean_offsets == read_offset_checkpoint(machine.disk, DATA_DIRECTORY, GAPLESS_OFFSET_CHECKPOINT)
    remove(machine.disk, "__transaction_state-0", "middle")
    assert [each.name for each in dry_run(machine).damaged] == ["__transaction_state-0"]
    clean_offsets["__transaction_state", 0] += 1
    write_offset_checkpoint(machine.disk, DATA_DIRECTORY, CLEANER_OFFSET_CHECKPOINT, clean_offsets)
    assert dry_run(machine).is_whole


@pytest.mark.parametrize("is_emptied", [False, True], ids=["removed", "emptied"])
@pytest.mark.parametrize("way", WAYS_TO_END)
@pytest.mark.parametrize("name", [LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINTS])
def test_a_checkpoint_that_is_gone_is_told_and_costs_no_record(name: str, way: str, is_emptied: bool) -> None:
    machine, content = copy_of(way)
    if is_emptied:
        machine.disk.write_bytes(f"{DATA_DIRECTORY}/{name}", b"")
    else:
        machine.disk.remove(f"{DATA_DIRECTORY}/{name}")
    assert start(machine) == []
    (told,) = [event for event in machine.node.events.recent if isinstance(event, SideFileDamaged)]
    assert name in told.reason
    check_others(Client(machine), content, None)
    machine.stop()
    start(machine)
    assert not [event for event in machine.node.events.recent if isinstance(event, SideFileDamaged)]


def test_without_recovery_points_a_missing_end_is_still_missed_if_the_names_tell() -> None:
    machine, _ = copy_of("stopped")
    machine.disk.write_bytes(f"{DATA_DIRECTORY}/{RECOVERY_POINTS}", b"")
    remove(machine.disk, "orders-0", "middle")
    assert [(each.topic, each.partition) for each in start(machine)] == [("orders", 0)]


def test_a_missing_beginning_is_told_once_and_the_rest_is_served() -> None:
    machine, content = copy_of("stopped")
    directory = f"{DATA_DIRECTORY}/orders-0"
    first, second = [each for each in machine.disk.list(directory) if each.endswith(".log")][:2]
    machine.disk.remove(f"{directory}/{first}")
    start_offset = int(second[:20])
    (told,) = start(machine)
    assert (told.topic, told.partition) == ("orders", 0)
    assert f"offsets 0 to {start_offset - 1}" in told.reason
    client = Client(machine)
    left = {offset: value for offset, value in content.records["orders", 0].items() if offset >= start_offset}
    assert read(client, ("orders", 0), 0) == left
    check_others(client, content, "orders-0")
    machine.stop()
    assert start(machine) == []


def test_records_that_were_deleted_are_not_missing() -> None:
    machine, _ = copy_of("stopped")
    start(machine)
    client = Client(machine)
    wanted = DeleteRecordsRequest.DeleteRecordsTopic
    one = wanted.DeleteRecordsPartition(partition_index=0, offset=-1)
    request = DeleteRecordsRequest(topics=[wanted(name="orders", partitions=[one])], timeout_ms=1_000)
    assert client.socket.call(ApiKey.DELETE_RECORDS, 2, request).topics[0].partitions[0].error_code == 0
    machine.stop()
    assert start(machine) == []


def test_records_of_an_offline_partition_cannot_be_deleted() -> None:
    machine, _ = copy_of("stopped")
    remove(machine.disk, "orders-0", "last")
    start(machine)
    client = Client(machine)
    wanted = DeleteRecordsRequest.DeleteRecordsTopic
    for offset in (-1, 0, 1, 1_000_000):
        one = wanted.DeleteRecordsPartition(partition_index=0, offset=offset)
        request = DeleteRecordsRequest(topics=[wanted(name="orders", partitions=[one])], timeout_ms=1_000)
        (answer,) = client.socket.call(ApiKey.DELETE_RECORDS, 2, request).topics[0].partitions
        assert (answer.error_code, answer.low_watermark) == (STORAGE_ERROR, -1)


def test_only_the_partition_that_was_named_is_given_up() -> None:
    machine, _ = copy_of("stopped")
    remove(machine.disk, "orders-0", "last")
    remove(machine.disk, "payments-0", "middle")
    before = {path: data for path, data in tree(machine.disk).items() if "/payments-0" in path}
    assert {each.name for each in dry_run(machine).damaged} == {"orders-0", "payments-0"}
    work_on(machine).accept("orders", 0)
    assert {path: data for path, data in tree(machine.disk).items() if "/payments-0" in path} == before
    assert [each.name for each in dry_run(machine).damaged] == ["payments-0"]


def test_without_its_metadata_the_broker_does_not_start_until_another_is_written() -> None:
    machine, content = copy_of("stopped")
    machine.disk.remove_tree(f"{DATA_DIRECTORY}/{METADATA_DIRECTORY}")
    machine.disk.sync_file_system(DATA_DIRECTORY)
    with pytest.raises(CorruptSideFile, match="fencepost repair"):
        machine.start()
    machine.crash()
    found = dry_run(machine)
    assert found.metadata is not None
    assert {topic.name: topic.partition_count for topic in found.metadata.topics} == {
        "orders": 1,
        "payments": 2,
        "canary": 1,
        "stock": 1,
        "__consumer_offsets": 1,
        "__transaction_state": 1,
    }
    used = max(
        header.producer_id
        for path, data in tree(machine.disk).items()
        if data and path.endswith(".log")
        for _, header in iterate_headers(memoryview(data))
    )
    assert found.metadata.next_producer_id > used
    work_on(machine).accept_metadata()
    assert dry_run(machine).is_whole

    assert start(machine) == []
    client = Client(machine)
    check_others(client, content, None)
    assert client.producer_id() > used
    assert client.committed(GROUP, "orders", [0]) == content.offsets
    for at in PARTITIONS:
        assert produce(client, *at).error_code == 0
    # Nothing is deleted for its age before somebody has said how old records may be.
    machine.clock.jump_wall(30 * 24 * 3_600_000)
    machine.scheduler.run_for(700_000)
    for at in PARTITIONS:
        assert read(client, at, 0).items() >= content.records[at].items()
    machine.stop()


# The command


@pytest.fixture
def real(tmp_path: Path) -> Path:
    """The same directory on a real disk."""
    machine, _ = copy_of("stopped")
    write_out(machine.disk, tmp_path / "data")
    return tmp_path / "data"


def write_out(disk: SimulatedDisk, target: Path) -> None:
    target.mkdir()
    (target / ".lock").touch()
    for path, data in tree(disk).items():
        place = target / path.removeprefix(DATA_DIRECTORY + "/")
        if data is None:
            place.mkdir()
        else:
            place.write_bytes(data)


def bytes_of(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_the_command_says_what_is_lost_and_gives_it_up(real: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = real
    assert run(["repair", "--data", str(data)]) == 0
    assert "nothing is lost" in capsys.readouterr().out
    logs = sorted((data / "orders-0").glob("*.log"))
    logs[1].unlink()
    before = bytes_of(data)
    assert run(["repair", "--data", str(data)]) == 3
    said = capsys.readouterr().out
    first, following = int(logs[1].stem), int(logs[2].stem)
    assert f"lost: offsets {first} to {following - 1}" in said
    command = re.search(r"fencepost (repair --data .* --accept-loss orders-0)", said)
    assert command is not None
    assert run(["repair", "--data", str(data), "--json"]) == 3
    document = json.loads(capsys.readouterr().out)
    assert document["damaged"][0]["lost"][0]["first_offset"] == first
    assert bytes_of(data) == before
    assert run(command[1].split()) == 0
    assert "accepted" in capsys.readouterr().out
    assert run(["repair", "--data", str(data), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["is_whole"]


def test_the_command_refuses_what_it_cannot_do_and_changes_nothing(
    real: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    data = real
    (data / METADATA_DIRECTORY).rename(tmp_path / "kept")
    before = bytes_of(data)
    assert run(["repair", "--data", str(data)]) == 3
    assert "__transaction_state, 1 partition" in capsys.readouterr().out
    for name, told in (("orders-0", "lost nothing"), ("all", "lost nothing"), ("nonsense", "lost nothing")):
        assert run(["repair", "--data", str(data), "--accept-loss", name]) == 1
        assert told in capsys.readouterr().err
    lock = DirectoryLock(data)
    assert run(["repair", "--data", str(data)]) == 1
    assert "a broker is using" in capsys.readouterr().err
    lock.release()
    assert run(["repair", "--data", str(tmp_path)]) == 1
    assert "meta.properties" in capsys.readouterr().err
    (tmp_path / ".lock").unlink()
    assert bytes_of(data) == before
    assert run(["repair", "--data", str(data), "--accept-loss", METADATA_DIRECTORY]) == 0
    assert "written again" in capsys.readouterr().out
