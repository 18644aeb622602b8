"""What an operator leaves in a data directory stays there, stops nobody, and is never taken for a log."""

from pathlib import Path

import pytest

from fencepost.broker.events import DamageFound, StrayFound
from fencepost.embedded import Broker
from fencepost.shell.disk import RealDisk
from fencepost.simulation.node import DATA_DIRECTORY, SimulatedNode
from tests.durability.scene import SMALL, Client

TOPIC = "purchases"


def stopped() -> SimulatedNode:
    machine = SimulatedNode(SMALL).start()
    client = Client(machine)
    assert client.create_topic(TOPIC) == 0
    assert client.produce(TOPIC, b"x").error_code == 0
    machine.stop()
    return machine


def told(machine: SimulatedNode, kind: type) -> list[str]:
    found: list[str] = []
    machine.watch = lambda node: node.events.subscribe(  # type: ignore[method-assign]
        lambda event: found.append(event.reason) if isinstance(event, kind) else None
    )
    machine.start()
    return found


def test_directories_that_only_look_like_a_partition_of_ours_stay_as_they_are() -> None:
    machine = stopped()
    disk = machine.disk
    kept = ["backup-20261118/copy.tar", f"{TOPIC}-0.before-delete/00000000000000000000.log", "notes-2026", "x-²/file"]
    for name in kept:
        path = f"{DATA_DIRECTORY}/{name}"
        disk.make_directory(path.rpartition("/")[0])
        disk.write_bytes(path, b"mine")
    machine.start()
    assert Client(machine).read_all(TOPIC) == [(0, b"x")]
    assert [disk.read_bytes(f"{DATA_DIRECTORY}/{name}") for name in kept] == [b"mine"] * len(kept)


FOREIGN = ["backup.snapshot", "aaaaaaaaaaaaaaaaaaaa.log", "mine.deleted", "mine.swap", "mine.cleaned"]


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize("clean", [True, False])
def test_names_in_a_partitions_directory_that_are_no_segments_are_left_alone(name: str, clean: bool) -> None:
    machine = stopped()
    path = f"{DATA_DIRECTORY}/{TOPIC}-0/{name}"
    machine.disk.write_bytes(path, b"mine")
    if not clean:
        machine.disk.remove(f"{DATA_DIRECTORY}/.kafka_cleanshutdown")
    machine.start()
    assert Client(machine).read_all(TOPIC) == [(0, b"x")]
    assert machine.disk.read_bytes(path) == b"mine"


def test_a_log_of_a_deleted_topic_that_was_put_back_is_not_the_new_topics() -> None:
    machine = stopped()
    directory, saved = f"{DATA_DIRECTORY}/{TOPIC}-0", f"{DATA_DIRECTORY}/saved"
    client = Client(machine.start())
    for number in range(10):
        assert client.produce(TOPIC, b"old %d" % number).error_code == 0
    machine.stop()
    machine.disk.rename(directory, saved)
    machine.disk.make_directory(directory)
    client = Client(machine.start())
    assert client.delete_topic(TOPIC) == 0
    assert client.create_topic(TOPIC) == 0
    assert client.produce(TOPIC, b"new").base_offset == 0
    machine.stop()
    machine.disk.rename(directory, f"{DATA_DIRECTORY}/new")
    machine.disk.rename(saved, directory)
    strays = told(machine, StrayFound)
    assert strays == [f"{directory} belongs to no topic; it was set aside as {directory}.1-stray"]
    assert machine.node.partition(TOPIC, 0).failure is not None, "its own log is missing"
    machine.stop()
    machine.disk.rename(f"{DATA_DIRECTORY}/new", directory)
    assert told(machine, DamageFound) == []
    assert Client(machine).read_all(TOPIC) == [(0, b"new")]


def test_a_topic_whose_directory_is_a_link_can_be_deleted(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    with Broker(data=tmp_path / "data", topics={TOPIC: 1}):
        pass
    directory = tmp_path / "data" / f"{TOPIC}-0"
    directory.rename(elsewhere)
    directory.symlink_to(elsewhere)
    RealDisk().remove_tree(str(directory))
    assert not directory.is_symlink()
    assert elsewhere.is_dir(), "what the link named belongs to whoever made it"
