"""Files that were damaged while the broker was down: what is done about each kind, by name.

Every case starts a whole broker on the damaged directory; `DamagedMachine.run` holds that everything else is served as
before and nothing is served that was never written. The tests say what happens to the damaged part itself.
"""

import pytest

from fencepost.broker.events import DamageFound, SideFileDamaged
from fencepost.log.producers import ProducerStateManager
from fencepost.log.side_files import CorruptSideFile
from fencepost.wire.batch import iterate_headers
from fencepost.wire.catalog import ApiKey
from fencepost.wire.errors import ErrorCode
from fencepost.wire.messages import OffsetFetchRequest
from tests.durability.scene import Client
from tests.durability.transactional import read_committed
from tests.fuzz.damage import Damage, DamagedMachine, systematic
from tests.fuzz.directory import DATA_DIRECTORY, GROUP, PARTITIONS, WAYS_TO_END, file_kind, image

FLIP, CUT = 0, 2
OFFSET_POSITION, LENGTH_POSITION, VALUE_POSITION = 3, 8, 75


def paths(way: str, *parts: str) -> list[str]:
    return [path for path in image(way).paths() if all(part in path for part in parts)]


def started(damage: Damage) -> DamagedMachine:
    """After everything around the damage was found to be well."""
    DamagedMachine(damage).run()
    damaged = DamagedMachine(damage)
    damaged._start()
    return damaged


def events(damaged: DamagedMachine, kind: type) -> list[object]:
    return [event for event in damaged.machine.node.events.recent if isinstance(event, kind)]


@pytest.mark.parametrize("place", [VALUE_POSITION, OFFSET_POSITION, 40], ids=["a value", "the offset", "the header"])
def test_a_damaged_batch_is_refused_and_all_around_it_is_served(place: int) -> None:
    path = paths("stopped", "/orders-0/", ".log")[1]
    positions = [position for position, _ in iterate_headers(image("stopped").disk.read_bytes(path))]
    damaged = started(Damage("stopped", path, ((FLIP, positions[2] + place, 3),)))
    client = Client(damaged.machine)
    first = int(path.rpartition("/")[2][:20])
    codes = {}
    for offset in range(first, first + 18):
        data = client.fetch("orders", {0: offset}, partition_max_bytes=1).responses[0].partitions[0]
        codes[offset] = data.error_code
    assert set(codes.values()) == {0, ErrorCode.CORRUPT_MESSAGE}
    assert codes[first] == 0
    # The offset is not under the CRC: a wrong one may hide what follows it, up to the next index entry.
    assert codes[first + 17] == 0 or place == OFFSET_POSITION
    assert client.produce("orders", b"the log goes on").error_code == 0
    (told,) = {event.reason for event in events(damaged, DamageFound)}
    assert path in told


def test_a_batch_with_a_wrong_length_in_the_last_segment_takes_its_partition_offline_and_no_other() -> None:
    path = paths("stopped", "/orders-0/", ".log")[-1]
    damaged = started(Damage("stopped", path, ((FLIP, LENGTH_POSITION, 4),)))
    client = Client(damaged.machine)
    data = client.fetch("orders", {0: 0}).responses[0].partitions[0]
    assert data.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert client.produce("orders", b"refused").error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert client.produce("canary", b"taken").error_code == 0
    (told,) = events(damaged, DamageFound)
    assert "was synced up to" in told.reason
    # Nothing was cut off: with the bit put right, everything is there again.
    damaged.machine.crash()
    Damage("stopped", path, ((FLIP, LENGTH_POSITION, 4),)).apply(damaged.machine.disk)
    damaged.machine.start()
    assert dict(Client(damaged.machine).read_all("orders")) == image("stopped").content.records["orders", 0]


@pytest.mark.parametrize("way", WAYS_TO_END)
@pytest.mark.parametrize("edit", [(FLIP, 12, 1), (FLIP, 0, 0), (CUT, 0, 0), (CUT, 34, 0), (CUT, 5, 0)], ids=str)
def test_a_damaged_index_of_aborted_transactions_is_made_anew(way: str, edit: tuple[int, int, int]) -> None:
    """Trusted, it would show aborted records to readers of committed ones."""
    for path in paths(way, "/payments-0/", ".txnindex"):
        if path.endswith(".crc"):
            continue
        damaged = started(Damage(way, path, (edit,)))
        expected = image(way).content.committed["payments", 0]
        assert dict(read_committed(Client(damaged.machine), "payments", 0)) == expected
        damaged.machine.crash()


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("place", [2, 6])
def test_a_damaged_index_is_made_anew(suffix: str, place: int) -> None:
    for path in paths("stopped", "/orders-0/", suffix):
        damaged = started(Damage("stopped", path, ((FLIP, place, 2),)))
        client = Client(damaged.machine)
        assert dict(client.read_all("orders")) == image("stopped").content.records["orders", 0]
        assert client.offset("orders", 0, 1) == 0
        damaged.machine.crash()


@pytest.mark.parametrize("way", WAYS_TO_END)
def test_a_lost_or_damaged_snapshot_changes_nothing(way: str) -> None:
    for path in paths(way, "/payments-1/", ".snapshot"):
        damaged = started(Damage(way, path, ((FLIP, 20, 1),)))
        whole = DamagedMachine(Damage(way, path, ()))
        whole._start()
        producers = [one.machine.node.partition("payments", 1).log.producers for one in (damaged, whole)]
        assert state_of(producers[0]) == state_of(producers[1])


def state_of(producers: ProducerStateManager) -> dict[int, tuple[object, ...]]:
    return {
        entry.producer_id: (
            entry.producer_epoch,
            entry.coordinator_epoch,
            entry.current_txn_first_offset,
            entry.last_timestamp,
            entry.last_sequence,
            entry.last_data_offset,
        )
        for entry in producers.producers.values()
    }


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
def test_one_wrong_bit_in_a_coordinator_log_stops_that_coordinator_only(topic: str) -> None:
    """A decision that cannot be read may be the one that counts."""
    # Compaction leaves segments with one empty batch, in which there is no value to be damaged.
    disk = image("stopped").disk
    path = next(path for path in paths("stopped", f"/{topic}-0/", ".log") if disk.size(path) > VALUE_POSITION)
    damaged = started(Damage("stopped", path, ((FLIP, VALUE_POSITION, 1),)))
    (told,) = events(damaged, DamageFound)
    assert (told.topic, "no coordinator" in told.reason) == (topic, True)
    wanted = OffsetFetchRequest.OffsetFetchRequestGroup
    topics = [wanted.OffsetFetchRequestTopics(name="orders", partition_indexes=[0])]
    request = OffsetFetchRequest(groups=[wanted(group_id=GROUP, topics=topics)])
    (group,) = Client(damaged.machine).socket.call(ApiKey.OFFSET_FETCH, 8, request).groups
    is_stopped = group.error_code == ErrorCode.NOT_COORDINATOR
    assert is_stopped == (topic == "__consumer_offsets")


def test_a_damaged_marker_does_not_stop_the_start() -> None:
    """Without the snapshots every marker is read at the start, this one too."""
    path = paths("stopped", "/payments-0/", ".log")[0]
    content = image("stopped").disk.read_bytes(path)
    marker = next(position for position, header in iterate_headers(content) if header.is_control)
    damage = Damage("stopped", path, ((1, marker + 61, 0xFF), (1, marker + 65, 0xFF)))
    damaged = DamagedMachine(damage)
    for snapshot in paths("stopped", "/payments-0/", ".snapshot"):
        damaged.machine.disk.remove(snapshot)
    damaged.run()


def test_a_damaged_line_of_the_cause_journal_is_left_out() -> None:
    (path,) = paths("stopped", "cause-journal.jsonl")
    content = image("stopped").disk.read_bytes(path)
    digit = content.index(b'"producer_epoch":') + len(b'"producer_epoch":')
    whole, damaged = (DamagedMachine(Damage("stopped", path, edits)) for edits in ((), ((FLIP, digit, 0),)))
    counts = []
    for one in (whole, damaged):
        one._start()
        causes = one.machine.node.causes
        counts.append(sum(len(causes.of(name)) for name in ("shop", "till", "open")))
    assert counts[1] == counts[0] - 1


def test_a_damaged_batch_of_the_metadata_log_is_told_with_its_place() -> None:
    (path,) = paths("stopped", "__cluster_metadata-0/", ".log")
    place = image("stopped").disk.read_bytes(path).index(b"payments")
    damaged = DamagedMachine(Damage("stopped", path, ((FLIP, place, 0),)))
    with pytest.raises(CorruptSideFile, match=r"the batch at byte \d+ is damaged"):
        damaged.machine.start()
    damaged.machine.crash()


@pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint"])
@pytest.mark.parametrize("way", WAYS_TO_END)
def test_a_checkpoint_that_cannot_be_read_is_done_without(way: str, name: str) -> None:
    damaged = started(Damage(way, f"{DATA_DIRECTORY}/{name}", ((1, 0, 0xFF),)))
    assert len(events(damaged, SideFileDamaged)) == 1
    client = Client(damaged.machine)
    for at in PARTITIONS[:1]:
        assert dict(client.read_all(*at)) == image(way).content.records[at]


@pytest.mark.parametrize("way", WAYS_TO_END)
def test_there_is_damage_to_every_kind_of_file(way: str) -> None:
    kinds = {file_kind(damage.path) for damage in systematic(way)}
    assert kinds >= {".log", ".index", ".timeindex", ".txnindex", ".txnindex.crc", ".snapshot", "internal .log"}
    assert kinds >= {"internal quorum-state", "cause-journal.jsonl", "leader-epoch-checkpoint", "partition.metadata"}
