"""Markers of several transactions gather, are written together, and count when they are durable."""

from fencepost.broker.transactions import MarkerSender
from fencepost.coordinators.transactions.effects import MarkerOrder
from fencepost.log.producers import Origin
from fencepost.simulation.clock import VirtualClock
from fencepost.simulation.node import SimulatedNode
from fencepost.simulation.scheduler import SimulatedScheduler
from fencepost.wire.errors import ErrorCode
from tests.durability.scene import SMALL, Client

TOPIC = "purchases"
QUIET_MS = 5
PARTITIONS = ((TOPIC, 0), (TOPIC, 1))
PRODUCERS = (7, 8, 9)


class Scene:
    def __init__(self) -> None:
        scheduler = SimulatedScheduler(VirtualClock(), quiet_after_ms=QUIET_MS)
        settings = {**SMALL, "transaction.partition.verification.enable": "false"}
        self.machine = SimulatedNode(settings, scheduler=scheduler).start()
        client = Client(self.machine)
        assert client.create_topic(TOPIC, 2) == 0
        self.partitions = [self.machine.node.partition(*name) for name in PARTITIONS]
        self.sender = MarkerSender(self.machine.node, self.machine.node.groups.coordinator.runtime)
        self.told: list[tuple[int, int, ErrorCode]] = []
        for producer_id in PRODUCERS:
            for partition in self.partitions:
                batch = client.batch(
                    b"in doubt", producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True
                )
                partition.append(memoryview(batch), Origin.CLIENT, self.machine.clock.wall_ms())
        scheduler.run_for(100)

    def order(self, producer_id: int, *, coordinator_epoch: int = 1, is_commit: bool = True) -> None:
        order = MarkerOrder("", producer_id, 0, coordinator_epoch, is_commit, 1, PARTITIONS)
        self.sender.send(
            order, lambda partition, error: self.told.append((producer_id, partition[1], ErrorCode(error)))
        )

    @property
    def ends(self) -> list[int]:
        return [partition.log.log_end_offset for partition in self.partitions]


def test_markers_wait_for_a_quiet_moment_and_are_told_of_when_they_are_durable() -> None:
    scene = Scene()
    scene.order(7)
    scene.order(8, is_commit=False)
    scene.order(9)
    assert scene.ends == [3, 3]
    scene.machine.scheduler.run_for(QUIET_MS)
    assert scene.ends == [6, 6]
    assert scene.told == [], "written, not synced"
    scene.machine.scheduler.run_for(100)
    assert scene.told == [(producer, index, ErrorCode.NONE) for index in (0, 1) for producer in PRODUCERS]
    for partition in scene.partitions:
        assert partition.log.last_stable_offset == 6
        assert [entry.producer_id for entry in partition.log.aborted_transactions(0, 6)] == [8]


def test_one_that_is_refused_holds_up_no_other() -> None:
    scene = Scene()
    scene.order(7, coordinator_epoch=3)
    scene.machine.scheduler.run_for(100)
    scene.told.clear()
    scene.order(7, coordinator_epoch=2)
    scene.order(9)
    scene.machine.scheduler.run_for(100)
    assert sorted(scene.told) == [
        (7, 0, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
        (7, 1, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
        (9, 0, ErrorCode.NONE),
        (9, 1, ErrorCode.NONE),
    ]


def test_a_topic_that_is_gone_is_told_of() -> None:
    scene = Scene()
    scene.order(7)
    scene.machine.node.delete_topic(TOPIC)
    scene.machine.scheduler.run_for(100)
    assert scene.told == [(7, index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for index in (0, 1)]
