"""Power cuts at the disk port: what was acknowledged, read or committed survives the loss of all that was not synced.

A whole broker runs on a simulated disk. The cut comes at random moments of a long run and at every single operation of
a short one, in every way in which a disk can lose data: all of it, a prefix of each file independently of the others
(so that a later write to one file may survive an earlier one to another), sectors torn out of a write, nothing.
"""

import itertools
from collections.abc import Callable, Iterator

import pytest

from fencepost.simulation.disk import PowerCut
from fencepost.simulation.fragile_disk import FragileDisk, MachineDied
from fencepost.simulation.node import SimulatedNode
from tests.durability.scene import SMALL, Client
from tests.durability.workload import Workload

TOPICS = {"purchases": 2, "refunds": 1}


@pytest.mark.parametrize("mode", list(PowerCut))
@pytest.mark.parametrize("seed", range(12))
def test_nothing_promised_is_lost_by_power_cuts_at_random_moments(mode: PowerCut, seed: int) -> None:
    workload = Workload(seed, TOPICS)
    workload.start()
    for _ in range(6):
        for _ in range(workload.source.randint(1, 60)):
            workload.act()
        workload.machine.cut_power(mode)
        workload.start_and_check()
    workload.finish()
    assert sum(len(producer.acknowledged) for producer in workload.producers) > 50


@pytest.mark.parametrize("seed", range(8))
def test_nothing_promised_is_lost_by_cuts_kills_and_clean_stops_in_any_order(seed: int) -> None:
    workload = Workload(seed, TOPICS)
    workload.start()
    for _ in range(10):
        for _ in range(workload.source.randint(1, 40)):
            workload.act()
        match workload.source.choice(("stop", "crash", "cut")):
            case "stop":
                workload.machine.stop()
            case "crash":
                workload.machine.crash()
            case "cut":
                workload.machine.cut_power(workload.source.choice(list(PowerCut)))
        workload.start_and_check()
    workload.finish()


def first_day(workload: Workload) -> None:
    """From an empty disk to the second start: topics, batches, rolled segments, commits, a clean stop, more."""
    workload.start()
    for _ in range(25):
        workload.act()
    workload.machine.scheduler.run_for(10)
    workload.machine.stop()
    workload.start()
    for _ in range(10):
        workload.act()
    workload.machine.scheduler.run_for(10)


def day_after_a_crash(workload: Workload) -> None:
    """A start that has to recover, and what follows."""
    workload.machine.crash()
    workload.start()
    for _ in range(10):
        workload.act()
    workload.machine.scheduler.run_for(10)


def every_moment(
    prepare: Callable[[Workload], None], act: Callable[[Workload], None]
) -> Iterator[tuple[int, Workload]]:
    """The same scenario again and again, each time without power one operation later."""
    for moment in itertools.count():
        disk = FragileDisk()
        workload = Workload(7, {"purchases": 2}, disk)
        prepare(workload)
        disk.left = moment
        try:
            act(workload)
        except MachineDied:
            disk.left = None
            yield moment, workload
        else:
            assert moment > 50, "the scenario hardly touches the disk"
            return


@pytest.mark.parametrize("mode", list(PowerCut))
def test_nothing_promised_is_lost_by_a_power_cut_at_any_single_operation(mode: PowerCut) -> None:
    for moment, workload in every_moment(lambda workload: None, first_day):
        try:
            workload.machine.cut_power(mode)
            workload.start_and_check()
            workload.finish()
        except BaseException as error:
            error.add_note(f"power was lost before operation {moment}")
            raise


@pytest.mark.parametrize("mode", list(PowerCut))
def test_nothing_promised_is_lost_by_a_power_cut_at_any_single_operation_of_a_recovery(mode: PowerCut) -> None:
    for moment, workload in every_moment(first_day, day_after_a_crash):
        try:
            workload.machine.cut_power(mode)
            workload.start_and_check()
            workload.finish()
        except BaseException as error:
            error.add_note(f"power was lost before operation {moment}")
            raise


@pytest.mark.parametrize("mode", list(PowerCut))
@pytest.mark.parametrize("seed", range(5))
def test_records_of_a_deleted_topic_never_come_back_under_a_new_topic_of_its_name(mode: PowerCut, seed: int) -> None:
    machine = SimulatedNode(SMALL, seed=seed).start()
    client = Client(machine)
    assert client.create_topic("purchases", 2) == 0
    assert client.produce("purchases", b"old").error_code == 0
    assert client.delete_topic("purchases") == 0
    assert client.create_topic("purchases", 2) == 0
    machine.scheduler.run_for(seed)
    for _ in range(3):
        machine.cut_power(mode)
        machine.start()
        assert Client(machine).read_all("purchases") == []
    client = Client(machine)
    assert client.produce("purchases", b"new").base_offset == 0
    machine.cut_power(mode)
    machine.start()
    assert Client(machine).read_all("purchases") == [(0, b"new")]


@pytest.mark.parametrize("mode", list(PowerCut))
def test_a_topic_being_made_or_deleted_when_the_power_fails_is_there_or_not_but_never_in_between(
    mode: PowerCut,
) -> None:
    for moment in itertools.count():
        disk = FragileDisk()
        machine = SimulatedNode(SMALL, seed=moment, disk=disk).start()
        client = Client(machine)
        assert client.create_topic("stays", 1) == 0
        disk.left = moment
        done: list[str] = []
        try:
            for round_trip in range(2):
                assert client.create_topic("comes", 2, cleanup_policy="delete", retention_ms="1" * 9) == 0
                done.append("created")
                assert client.produce("comes", b"%d" % round_trip, partition=1).error_code == 0
                done.append("produced")
                assert client.delete_topic("comes") == 0
                done.append("deleted")
        except MachineDied:
            disk.left = None
        else:
            assert moment > 10
            return
        machine.cut_power(mode)
        machine.start()
        client = Client(machine)
        topics = client.topics()
        assert topics["stays"] == 1
        if done and done[-1] != "deleted":
            # What was not answered may have happened.
            assert done[-1] == "produced" or topics.get("comes") == 2
        if "comes" in topics:
            found = client.read_all("comes", 1)
            assert found in ([], [(0, b"%d" % (done.count("deleted")))])
            if done and done[-1] == "produced":
                assert found
            assert client.delete_topic("comes") == 0
        assert client.create_topic("comes", 2) == 0
        assert client.read_all("comes", 1) == []
