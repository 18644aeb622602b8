"""Kill -9 before the first regular checkpoint, and files that are damaged or gone at the next start."""

import pytest

from fencepost.broker.events import DamageFound, LogCut
from fencepost.broker.housekeeping import ROLLS_PER_CHECKPOINT_MS
from fencepost.simulation.node import SimulatedNode
from fencepost.wire.errors import ErrorCode
from tests.durability.scene import SMALL, Client, log_files

SETTINGS = {**SMALL, "log.segment.bytes": "1000"}
ROUNDS = 20


def killed(rest_ms: int) -> SimulatedNode:
    """A broker that was killed so long after segments were rolled; all of it was acknowledged and is on the disk."""
    machine = SimulatedNode(SETTINGS, seed=1).start()
    client = Client(machine)
    assert client.create_topic("orders") == 0
    for number in range(ROUNDS):
        assert client.produce("orders", b"%d" % number + b"x" * 90).error_code == 0
    machine.scheduler.run_for(rest_ms)
    machine.crash()
    assert len(log_files(machine, "orders")) >= 3
    return machine


def harm(machine: SimulatedNode, how: str) -> None:
    victim = log_files(machine, "orders")[1]
    if how == "removed":
        machine.disk.remove(victim)
    else:
        machine.disk.open(victim).write(100, b"\xff")


def test_a_middle_segment_that_was_synced_is_missed_soon_after_the_roll() -> None:
    machine = killed(rest_ms=2 * ROLLS_PER_CHECKPOINT_MS)
    harm(machine, "removed")
    before = {path: machine.disk.read_bytes(path) for path in log_files(machine, "orders")}
    machine.start()
    (told,) = [event for event in machine.node.events.recent if isinstance(event, DamageFound)]
    assert told.topic == "orders"
    assert Client(machine).produce("orders", b"again").error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert {path: machine.disk.read_bytes(path) for path in log_files(machine, "orders")} == before


def test_damage_in_a_middle_segment_that_was_synced_costs_nothing_behind_it() -> None:
    machine = killed(rest_ms=2 * ROLLS_PER_CHECKPOINT_MS)
    harm(machine, "damaged")
    before = {path: machine.disk.read_bytes(path) for path in log_files(machine, "orders")}
    machine.start()
    assert {path: machine.disk.read_bytes(path) for path in log_files(machine, "orders")} == before
    assert Client(machine).produce("orders", b"again").base_offset == ROUNDS


@pytest.mark.parametrize("how", ["removed", "damaged"])
def test_before_that_later_segments_are_set_aside_and_told(how: str) -> None:
    machine = killed(rest_ms=0)
    harm(machine, how)
    before = {path: machine.disk.read_bytes(path) for path in log_files(machine, "orders")}
    machine.start()
    assert [event for event in machine.node.events.recent if isinstance(event, LogCut)]
    left = {path: machine.disk.read_bytes(path) for path in log_files(machine, "orders")}
    for path, content in before.items():
        aside = machine.disk.read_bytes(f"{path}.damaged") if machine.disk.exists(f"{path}.damaged") else b""
        assert left.get(path, b"") + aside == content, "no byte of a whole batch is gone"
