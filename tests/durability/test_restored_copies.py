"""Files put back from an older copy, or copied while the broker ran: what was handed out is not handed out again."""

import copy
import random
from collections.abc import Callable

import pytest

from fencepost.broker.directory_repair import DirectoryRepair
from fencepost.broker.events import LogCut, SideFileDamaged
from fencepost.coordinators.transactions.events import CoordinatorBehindPartitions
from fencepost.log.side_files import RECOVERY_POINT_CHECKPOINT
from fencepost.metadata.log_files import METADATA_DIRECTORY
from fencepost.simulation.disk import SimulatedDisk
from fencepost.simulation.node import DATA_DIRECTORY, SeededRandomness, SimulatedNode
from fencepost.wire.batch import iterate_headers
from tests.durability.scene import SMALL, Client
from tests.durability.transactional import TransactionalClient, find_coordinators, read_committed
from tests.fuzz.directory import data_values_in, file_paths

SETTINGS = {**SMALL, "transaction.state.log.num.partitions": "1"}
METADATA = f"{DATA_DIRECTORY}/{METADATA_DIRECTORY}"
STATE = f"{DATA_DIRECTORY}/__transaction_state-0"


def put_back(machine: SimulatedNode, earlier: SimulatedDisk, directory: str) -> None:
    machine.disk.remove_tree(directory)
    machine.disk.make_directory(directory)
    for name in earlier.list(directory):
        machine.disk.write_bytes(f"{directory}/{name}", earlier.read_bytes(f"{directory}/{name}"))


def test_with_older_metadata_no_producer_id_and_no_leader_epoch_comes_back() -> None:
    machine = SimulatedNode(SETTINGS, seed=1).start()
    client = Client(machine)
    assert client.create_topic("orders") == 0
    find_coordinators(client, ["group"], ["shop"])
    older = copy.deepcopy(machine.disk)
    used: set[int] = set()
    for number in range(3):
        producer_id = client.producer_id()
        used.add(producer_id)
        answer = client.produce("orders", b"%d" % number, producer_id=producer_id, producer_epoch=0, base_sequence=0)
        assert answer.error_code == 0
        shop = TransactionalClient(client, f"shop {number}")  # its id leaves a trace at the coordinator alone
        shop.init()
        used.add(shop.producer_id)
        machine.stop()
        machine.start()
        client = Client(machine)
    epoch = machine.node.partition("orders", 0).leader_epoch
    assert client.produce("orders", b"3").error_code == 0
    machine.stop()
    put_back(machine, older, METADATA)

    machine.start()
    assert any(METADATA_DIRECTORY in e.reason for e in machine.node.events.recent if isinstance(e, SideFileDamaged))
    assert machine.node.partition("orders", 0).leader_epoch > epoch
    machine.scheduler.run_for(1_000)
    client = Client(machine)
    producer_id = client.producer_id()
    assert producer_id not in used
    answer = client.produce("orders", b"new", producer_id=producer_id, producer_epoch=0, base_sequence=0)
    assert (answer.error_code, answer.base_offset) == (0, 4)
    machine.stop()
    machine.start()
    assert not [event for event in machine.node.events.recent if isinstance(event, SideFileDamaged)]


@pytest.mark.parametrize("state", ["complete", "ongoing"])
@pytest.mark.parametrize("is_new", [True, False], ids=["TV2", "TV1"])
def test_with_an_older_coordinator_no_epoch_comes_back(is_new: bool, state: str) -> None:
    machine = SimulatedNode(SETTINGS, seed=1).start()
    client = Client(machine)
    assert client.create_topic("orders") == 0
    find_coordinators(client, ["group"], ["shop"])
    written: list[bytes] = []
    used: set[tuple[int, int]] = set()

    def buy(shop: TransactionalClient, value: bytes) -> None:
        used.add((shop.producer_id, shop.producer_epoch))
        shop.produce("orders", 0, value)
        shop.end(is_commit=True)
        machine.scheduler.run_for(100)
        written.append(value)

    shop = TransactionalClient(client, "shop", is_new=is_new)
    shop.init()
    buy(shop, b"first")
    if state == "ongoing":
        shop.produce("orders", 0, b"second")
    earlier = copy.deepcopy(machine.disk)
    if state == "ongoing":
        shop.end(is_commit=True)
        written.append(b"second")
        machine.scheduler.run_for(100)
    for number in range(3):
        shop = TransactionalClient(client, "shop", is_new=is_new)
        shop.init()
        buy(shop, b"later %d" % number)
    machine.crash()
    put_back(machine, earlier, STATE)
    path = f"{DATA_DIRECTORY}/{RECOVERY_POINT_CHECKPOINT}"
    machine.disk.write_bytes(path, earlier.read_bytes(path))

    machine.start()
    machine.scheduler.run_for(1_000)
    assert any(isinstance(event, CoordinatorBehindPartitions) for event in machine.node.events.recent)
    shop = TransactionalClient(Client(machine), "shop", is_new=is_new)
    shop.init()
    assert (shop.producer_id, shop.producer_epoch) not in used
    buy(shop, b"afterwards")
    assert [value for _, value in read_committed(Client(machine), "orders", 0)] == written


# A copy of a running broker


def copy_while_running(machine: SimulatedNode, source: random.Random, live: Callable[[], None]) -> SimulatedDisk:
    """File by file, in any order, while the broker goes on."""
    copied = SimulatedDisk()
    copied.make_directory(DATA_DIRECTORY)
    paths = file_paths(machine.disk, DATA_DIRECTORY)
    source.shuffle(paths)
    for path in paths:
        if machine.disk.exists(path):
            copied.make_directory(path.rpartition("/")[0])
            copied.write_bytes(path, machine.disk.read_bytes(path))
        if source.random() < 0.1:
            live()
    copied.sync_file_system(DATA_DIRECTORY)
    return copied


@pytest.mark.parametrize("seed", range(6))
def test_a_copy_of_a_running_broker_serves_what_was_written_or_says_what_is_missing(seed: int) -> None:
    settings = {**SETTINGS, "log.segment.bytes": "1500", "transaction.state.log.segment.bytes": "2500"}
    machine = SimulatedNode(settings, seed=seed).start()
    client = Client(machine)
    assert client.create_topic("orders", 2) == 0
    find_coordinators(client, ["group"], ["shop", "till"])
    producers = [TransactionalClient(client, "shop"), TransactionalClient(client, "till", is_new=False)]
    for producer in producers:
        producer.init()
    written: list[dict[int, bytes]] = [{}, {}]

    def live() -> None:
        for producer in producers:
            for partition in (0, 1):
                value = b"%d" % len(written[partition]) + b"x" * 90
                written[partition][producer.produce("orders", partition, value)] = value
            producer.end(is_commit=True)
        machine.scheduler.run_for(700)

    for _ in range(10):
        live()
    acknowledged = [set(each) for each in written]
    copied = copy_while_running(machine, random.Random(seed), live)
    machine.crash()
    used = {
        (header.producer_id, header.producer_epoch)
        for path in file_paths(copied, DATA_DIRECTORY)
        if path.endswith(".log")
        for _, header in iterate_headers(memoryview(copied.read_bytes(path)))
    }

    restored = SimulatedNode(settings, seed=seed, disk=copied)
    work = DirectoryRepair(copied, DATA_DIRECTORY, SeededRandomness(restored.source), machine.clock.wall_ms())
    lost = work.survey().damaged
    for each in lost:
        work.accept(each.topic, each.index)
    restored.clock.jump_wall(machine.clock.wall_ms() - restored.clock.wall_ms())
    restored.start()
    restored.scheduler.run_for(5_000)
    told = {(each.topic, each.partition) for each in restored.node.events.recent if isinstance(each, LogCut)}
    told |= {(each.topic, each.index) for each in lost}
    client = Client(restored)
    for partition in (0, 1):
        log = restored.node.partition("orders", partition).log
        found = dict(data_values_in(b"".join(segment.file.read(0, segment.size) for segment in log.segments)))
        assert found.items() <= written[partition].items()
        assert acknowledged[partition] <= found.keys() or ("orders", partition) in told
    for transactional_id, is_new in (("shop", True), ("till", False)):
        producer = TransactionalClient(client, transactional_id, is_new=is_new)
        producer.init()
        assert (producer.producer_id, producer.producer_epoch) not in used
        for partition in (0, 1):
            end_offset = restored.node.partition("orders", partition).log.log_end_offset
            assert producer.produce("orders", partition, b"afterwards") >= end_offset
        producer.end(is_commit=True)
