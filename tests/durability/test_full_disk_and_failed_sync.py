"""What a disk that fails, or is full, may cost: an error to whoever waits, never a false promise, nothing torn.

A failed sync fails the log directory for good, since the kernel may have dropped the pages (a second sync would succeed
and mean nothing). A full disk refuses appends and takes them again when there is room.
"""

import errno
import os
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost.metadata.log_files import METADATA_DIRECTORY
from fencepost.simulation.disk import PowerCut
from fencepost.simulation.node import SimulatedNode
from fencepost.wire.errors import ErrorCode
from tests.durability.scene import ALL, LEADER, SMALL, Client, log_files
from tests.peers.batches import batch
from tests.peers.fencepost_process import FencepostProcess
from tests.peers.raw import RawClient

TOPIC = "purchases"
STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR
SMALL_DISK_BYTES = 2 << 20


def running(settings: dict[str, str] | None = None, **options: Any) -> tuple[SimulatedNode, Client]:
    machine = SimulatedNode({**SMALL, **(settings or {})}, **options).start()
    client = Client(machine)
    assert client.create_topic(TOPIC, 2) == 0
    return machine, client


# No room for a side file


def test_an_epoch_checkpoint_that_finds_no_room_is_written_later_and_costs_nobody_anything() -> None:
    machine, client = running()
    log = machine.node.partition(TOPIC, 0).log
    checkpoint = f"{log.directory}/leader-epoch-checkpoint"
    machine.disk.fail_write("leader-epoch-checkpoint", errno.ENOSPC)
    assert client.produce(TOPIC, b"first").error_code == 0
    assert not machine.disk.exists(checkpoint)
    assert client.produce(TOPIC, b"second").error_code == 0
    assert machine.disk.read_bytes(checkpoint) == log.epochs.encode()


def test_what_no_epoch_checkpoint_tells_is_read_from_the_batches_after_a_crash() -> None:
    machine, client = running({"log.segment.bytes": "300"})
    assert client.produce(TOPIC, b"of an earlier epoch").error_code == 0
    machine.stop()
    machine.start()
    client = Client(machine)
    for _ in range(40):
        machine.disk.fail_write("leader-epoch-checkpoint", errno.ENOSPC)
    for _ in range(8):
        assert client.produce(TOPIC, bytes(150)).error_code == 0
    log = machine.node.partition(TOPIC, 0).log
    assert len(log.segments) > 2
    machine.scheduler.run_for(120_000)  # the recovery points are written meanwhile
    before = log.epochs.entries
    assert len(before) == 2
    machine.cut_power(PowerCut.LOSE_ALL)
    machine.start()
    assert machine.node.partition(TOPIC, 0).log.epochs.entries[: len(before)] == before


# A failed sync


@pytest.mark.parametrize("seed", range(4))  # before and after the time that the sync takes
def test_everyone_who_waits_for_a_sync_that_fails_gets_a_storage_error(seed: int) -> None:
    machine, client = running(seed=seed)
    assert client.produce(TOPIC, b"kept").base_offset == 0
    others = [Client(machine) for _ in range(4)]
    machine.disk.fail_sync(".log")
    sent = [(one, one.send(TOPIC, {at % 2: one.batch(b"lost")})) for at, one in enumerate(others)]
    for one, correlation_id in sent:
        answer = one.produced(correlation_id)
        assert answer.error_code == STORAGE_ERROR
        assert answer.base_offset == -1


def test_a_failed_sync_is_never_tried_again_into_an_acknowledgement() -> None:
    machine, client = running()
    assert client.produce(TOPIC, b"kept").error_code == 0
    machine.disk.fail_sync(".log")
    assert client.produce(TOPIC, b"lost").error_code == STORAGE_ERROR
    # The disk works again, as far as anyone can see. The same batch again, and others, are refused all the same.
    for acks in (ALL, LEADER):
        for partition in (0, 1):
            answer = client.produce(TOPIC, b"again", partition=partition, acks=acks)
            assert answer.error_code == STORAGE_ERROR
    machine.scheduler.run_for(600_000)
    assert client.produce(TOPIC, b"much later").error_code == STORAGE_ERROR


def test_nothing_new_is_promised_on_a_disk_that_failed() -> None:
    machine, client = running()
    assert client.find_coordinator("billing") == 0
    assert client.commit("billing", TOPIC, 0, 1) == 0
    machine.disk.fail_sync(".log")
    assert client.produce(TOPIC, b"lost").error_code == STORAGE_ERROR
    # As Kafka answers a group whose log cannot be written.
    assert client.commit("billing", TOPIC, 0, 2) != 0
    assert client.create_topic("late") == STORAGE_ERROR
    # Had the topic been made all the same, a batch for it would wait for ever.
    assert client.produce("late", b"x").error_code != 0


def test_readers_are_told_that_the_disk_failed() -> None:
    machine, client = running()
    reader = Client(machine)
    assert client.produce(TOPIC, b"kept").error_code == 0
    waiting = reader.start_fetch(TOPIC, {0: 1}, max_wait_ms=10_000, min_bytes=1)
    machine.disk.fail_sync(".log")
    client.send(TOPIC, {0: client.batch(b"lost")})
    machine.scheduler.run_for(10)
    assert reader.socket.answers[waiting].responses[0].partitions[0].error_code == STORAGE_ERROR


def test_after_a_restart_the_failed_disk_holds_what_was_acknowledged_and_goes_on() -> None:
    machine, client = running()
    assert client.produce(TOPIC, b"kept").error_code == 0
    machine.disk.fail_sync(".log")
    assert client.produce(TOPIC, b"lost").error_code == STORAGE_ERROR
    machine.stop()
    machine.disk.power_cut(PowerCut.LOSE_ALL)
    machine.start()
    client = Client(machine)
    assert client.read_all(TOPIC) == [(0, b"kept")]
    assert client.produce(TOPIC, b"next").base_offset == 1


def test_a_stop_after_a_failed_sync_is_not_taken_for_a_clean_one() -> None:
    machine, client = running()
    machine.disk.fail_sync(".log")
    assert client.produce(TOPIC, b"lost").error_code == STORAGE_ERROR
    machine.stop()
    machine.start()
    assert not machine.node.storage.was_clean


@pytest.mark.parametrize("seed", range(4))
def test_a_directory_sync_that_fails_is_a_failed_sync_too(seed: int) -> None:
    machine, client = running(seed=seed)
    machine.disk.fail_sync(f"{TOPIC}-0")
    assert client.produce(TOPIC, b"lost").error_code == STORAGE_ERROR
    assert client.produce(TOPIC, b"again").error_code == STORAGE_ERROR


def test_a_topic_whose_journal_entry_was_not_synced_is_refused_and_stays_unknown() -> None:
    machine, client = running()
    machine.disk.fail_sync(METADATA_DIRECTORY)
    assert client.create_topic("late") == STORAGE_ERROR
    assert "late" not in client.topics()
    # The journal cannot be trusted any more, so nothing that needs it may be promised.
    assert client.create_topic("later") == STORAGE_ERROR
    assert client.produce(TOPIC, b"x").error_code == STORAGE_ERROR
    machine.cut_power(PowerCut.LOSE_ALL)
    machine.start()
    assert Client(machine).topics().keys() & {TOPIC, "late", "later"} == {TOPIC}


def test_a_write_that_fails_is_refused_and_fails_its_log() -> None:
    machine, client = running()
    assert client.produce(TOPIC, b"kept").error_code == 0
    machine.disk.fail_write(".log", errno.EIO)
    assert client.produce(TOPIC, b"lost").error_code == STORAGE_ERROR
    assert client.produce(TOPIC, b"after").error_code == STORAGE_ERROR
    machine.stop()
    machine.start()
    assert Client(machine).read_all(TOPIC) == [(0, b"kept")]


def test_a_topic_deleted_while_its_sync_runs_does_not_fail_the_disk() -> None:
    for seed in range(6):
        machine, client = running(seed=seed)
        assert client.create_topic("doomed", segment_bytes="300") == 0
        other = Client(machine)
        for _ in range(5):
            client.send("doomed", {0: client.batch(b"x" * 100)})
        machine.scheduler.run_for(1)
        assert machine.flusher.running
        assert other.delete_topic("doomed") == 0
        machine.scheduler.run_for(100)
        assert client.produce(TOPIC, b"fine").error_code == 0
        assert machine.node.storage_failure is None


def test_segments_that_retention_deletes_while_their_sync_runs_do_not_fail_the_disk() -> None:
    for seed in range(6):
        machine, client = running(seed=seed)
        assert client.create_topic("short", segment_bytes="300", retention_bytes="400") == 0
        for number in range(40):
            sent = client.send("short", {0: client.batch(b"%d" % number * 100)})
            machine.scheduler.run_for(1)
            for log in machine.node.logs():
                log.apply_retention(machine.clock.wall_ms())
            if number % 4 == 3:
                assert client.produced(sent).error_code == 0
        assert client.produce(TOPIC, b"fine").error_code == 0
        assert machine.node.storage_failure is None


# A full disk


def fill(machine: SimulatedNode) -> None:
    disk = machine.disk
    disk.capacity_bytes = 1 << 40
    disk.capacity_bytes -= disk.free_bytes("/")


def make_room(machine: SimulatedNode) -> None:
    machine.disk.capacity_bytes = None


def test_a_full_disk_refuses_a_batch_and_takes_it_again_when_there_is_room() -> None:
    machine, client = running()
    assert client.produce(TOPIC, b"before").base_offset == 0
    (path,) = log_files(machine, TOPIC)
    content = machine.disk.read_bytes(path)
    fill(machine)
    for acks in (ALL, LEADER):
        answer = client.produce(TOPIC, b"refused", acks=acks)
        assert answer.error_code == STORAGE_ERROR
        assert "room" in answer.error_message
    assert machine.disk.read_bytes(path) == content
    assert client.read_all(TOPIC) == [(0, b"before")]
    make_room(machine)
    assert client.produce(TOPIC, b"after").base_offset == 1
    assert client.read_all(TOPIC) == [(0, b"before"), (1, b"after")]


def test_an_idempotent_producer_goes_on_where_the_disk_became_full() -> None:
    machine, client = running()
    producer = {"producer_id": client.producer_id(), "producer_epoch": 0}
    assert client.produce(TOPIC, b"0", **producer, base_sequence=0).base_offset == 0
    fill(machine)
    assert client.produce(TOPIC, b"1", **producer, base_sequence=1).error_code == STORAGE_ERROR
    make_room(machine)
    assert client.produce(TOPIC, b"1", **producer, base_sequence=1).base_offset == 1
    assert client.produce(TOPIC, b"2", **producer, base_sequence=2).base_offset == 2


def test_a_disk_that_fills_up_while_a_segment_rolls_leaves_a_log_that_goes_on() -> None:
    machine, client = running({"log.segment.bytes": "1000"})
    expected = []
    for number in range(60):
        # Room for a little less, each time, than a roll with its indexes and snapshot would take.
        fill(machine)
        assert machine.disk.capacity_bytes is not None
        machine.disk.capacity_bytes += number * 7
        value = b"%d" % number + b"." * 300
        answer = client.produce(TOPIC, value)
        if answer.error_code:
            assert answer.error_code == STORAGE_ERROR
            make_room(machine)
            answer = client.produce(TOPIC, value)
        assert answer.error_code == 0
        expected.append((answer.base_offset, value))
    make_room(machine)
    assert client.read_all(TOPIC) == expected
    for end in (machine.stop, machine.crash):
        end()
        machine.start()
        assert Client(machine).read_all(TOPIC) == expected


def test_topics_producer_ids_and_commits_are_refused_while_the_disk_is_full_and_work_again_after() -> None:
    machine, client = running()
    assert client.find_coordinator("billing") == 0
    assert client.commit("billing", TOPIC, 0, 1) == 0
    fill(machine)
    assert client.create_topic("late") == STORAGE_ERROR
    assert "late" not in client.topics()
    assert client.commit("billing", TOPIC, 0, 2) != 0
    assert client.committed("billing", TOPIC, [0]) == {0: 1}
    make_room(machine)
    assert client.create_topic("late") == 0
    assert client.produce("late", b"x").error_code == 0
    assert client.commit("billing", TOPIC, 0, 2) == 0
    machine.stop()
    machine.start()
    client = Client(machine)
    assert client.topics()["late"] == 1
    assert client.find_coordinator("billing") == 0
    assert client.committed("billing", TOPIC, [0]) == {0: 2}


def test_a_topic_for_which_there_is_an_entry_but_no_room_for_files_does_not_exist() -> None:
    """Wherever the room ends while a topic is made, it is there altogether or not at all, now and after a restart."""
    for spare in range(0, 600, 20):
        machine, client = running()
        fill(machine)
        assert machine.disk.capacity_bytes is not None
        machine.disk.capacity_bytes += spare
        code = client.create_topic("late", 3)
        assert code in (0, STORAGE_ERROR)
        make_room(machine)
        assert ("late" in client.topics()) == (code == 0)
        assert client.create_topic("late", 3) == (36 if code == 0 else 0)
        for partition in range(3):
            assert client.produce("late", b"x", partition=partition).base_offset == 0
        machine.crash()
        machine.start()
        assert Client(machine).read_all("late", 2) == [(0, b"x")]


def test_housekeeping_goes_on_after_a_full_disk() -> None:
    """Retention is what makes room again, so a full disk must not end it."""
    machine, client = running({"log.segment.bytes": "1000", "log.retention.ms": "1000000"})
    for _ in range(20):
        assert client.produce(TOPIC, b"." * 300).error_code == 0
    fill(machine)
    machine.scheduler.run_for(400_000)
    make_room(machine)
    machine.scheduler.run_for(1_000_000)
    assert client.produce(TOPIC, b"new").error_code == 0
    machine.scheduler.run_for(400_000)
    assert client.read_all(TOPIC) == [(20, b"new")]


def test_a_stop_on_a_full_disk_ends_and_the_next_start_recovers() -> None:
    machine, client = running()
    assert client.produce(TOPIC, b"kept").error_code == 0
    fill(machine)
    machine.stop()
    make_room(machine)
    machine.start()
    assert not machine.node.storage.was_clean
    assert Client(machine).read_all(TOPIC) == [(0, b"kept")]


def test_a_start_on_a_full_disk_leaves_the_data_as_it_was() -> None:
    machine, client = running()
    assert client.produce(TOPIC, b"kept").error_code == 0
    machine.crash()
    fill(machine)
    with pytest.raises(OSError):
        machine.start()
    machine.crash()
    make_room(machine)
    machine.start()
    assert Client(machine).read_all(TOPIC) == [(0, b"kept")]


# The real thing


@pytest.fixture
def small_file_system(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    directory = tmp_path / "small"
    directory.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK_BYTES}", f"fencepost-{uuid.uuid4().hex[:8]}", str(directory)],
        capture_output=True,
        text=True,
    )
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount a tmpfs: {mounted.stderr.strip()}")
    yield directory
    subprocess.run(["umount", "--lazy", str(directory)], check=True)


def test_a_really_full_file_system_refuses_and_then_takes_batches(small_file_system: Path) -> None:
    ballast = small_file_system / "ballast"
    ballast.write_bytes(bytes(SMALL_DISK_BYTES // 2))
    broker = FencepostProcess({"offsets.topic.num.partitions": "1"}, small_file_system / "broker")
    with broker, RawClient(broker.address) as client:
        topic = {"Name": TOPIC, "NumPartitions": 1, "ReplicationFactor": 1}
        created = client.call("CreateTopics", 5, {"Topics": [topic], "timeoutMs": 1000})
        assert created["Topics"][0]["ErrorCode"] == 0
        value = bytes(100_000)
        codes = [produce(client, value)["ErrorCode"] for _ in range(20)]
        taken = codes.index(STORAGE_ERROR)
        assert taken >= 5
        assert codes == [0] * taken + [STORAGE_ERROR] * (20 - taken)
        assert [one.base_offset for one in client.fetch_batches(TOPIC, 0)] == list(range(taken))
        ballast.unlink()
        assert produce(client, value) == {**produce(client, value), "BaseOffset": taken}
        assert [one.base_offset for one in client.fetch_batches(TOPIC, 0)] == list(range(taken + 2))
        client.close()
        broker.stop()
        broker.start()
        with RawClient(broker.address) as again:
            assert [one.base_offset for one in again.fetch_batches(TOPIC, 0)] == list(range(taken + 2))


def produce(client: RawClient, value: bytes) -> dict[str, Any]:
    data = {"Index": 0, "Records": batch([value])}
    request = {"Acks": -1, "TimeoutMs": 1000, "TopicData": [{"Name": TOPIC, "PartitionData": [data]}]}
    answer: dict[str, Any] = client.call("Produce", 9, request)["Responses"][0]["PartitionResponses"][0]
    return answer


# A restart without a reboot


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("path", [".log", METADATA_DIRECTORY, "__consumer_offsets"])
def test_what_a_failed_sync_left_in_the_page_cache_is_written_again_before_it_counts(seed: int, path: str) -> None:
    machine, client = running(seed=seed)
    assert client.produce(TOPIC, b"kept").error_code == 0
    assert client.find_coordinator("shop") == 0
    machine.disk.fail_sync(path)
    client.send(TOPIC, {0: client.batch(b"in the cache")})
    client.send_commit("shop", TOPIC, 0, 1)
    if path == METADATA_DIRECTORY:
        client.create_topic("late")
    machine.scheduler.run_for(1_000)
    assert machine.node.storage_failure is not None
    machine.crash()
    machine.start()
    # Whatever the restarted broker shows or takes must outlast the loss of everything that is not on the disk.
    client = Client(machine)
    shown = client.read_all(TOPIC)
    assert client.produce(TOPIC, b"after").error_code == 0
    topics = client.topics().keys()
    machine.cut_power(PowerCut.LOSE_ALL)
    machine.start()
    client = Client(machine)
    assert client.topics().keys() == topics
    assert client.read_all(TOPIC) == [*shown, (len(shown), b"after")]


@pytest.mark.parametrize("path", [".log", METADATA_DIRECTORY])
def test_what_a_stop_could_not_sync_is_written_again_before_it_counts(path: str) -> None:
    machine, client = running({"flush": "os"})
    assert client.produce(TOPIC, b"kept").error_code == 0
    machine.disk.fail_sync(path)
    machine.stop()
    machine.start()
    assert not machine.node.storage.was_clean
    client = Client(machine)
    assert client.create_topic("late") == 0
    machine.cut_power(PowerCut.LOSE_ALL)
    machine.start()
    assert {TOPIC, "late"} <= Client(machine).topics().keys()


def test_a_write_that_fails_in_one_log_fails_the_data_directory_and_is_told() -> None:
    machine, client = running()
    assert client.produce(TOPIC, b"kept").error_code == 0
    machine.disk.fail_write(f"{TOPIC}-0", errno.EIO)
    assert client.produce(TOPIC, b"lost").error_code == STORAGE_ERROR
    machine.scheduler.run_for(10)
    assert [type(event).__name__ for event in machine.node.events.recent].count("StorageFailed") == 1
    assert client.produce(TOPIC, b"elsewhere", partition=1).error_code == STORAGE_ERROR
