"""What a broker does by itself, in rounds over all partitions."""

from fencepost.broker.events import SegmentsDeleted
from fencepost.broker.housekeeping import PARTITIONS_PER_SLICE, SLICE_PAUSE_MS
from fencepost.simulation.node import SimulatedNode
from tests.durability.scene import SMALL, Client

INTERVAL_MS = 200
ROUNDS = 5


def test_retention_comes_to_the_last_partition_however_many_topics_are_made_meanwhile() -> None:
    machine = SimulatedNode({**SMALL, "log.retention.check.interval.ms": str(INTERVAL_MS)}, seed=1).start()
    node = machine.node
    node.create_topic("many", 2 * PARTITIONS_PER_SLICE + 1, {})
    node.create_topic("last", 1, {"retention.ms": "1", "segment.bytes": "1000"})
    client = Client(machine)
    for _ in range(10):
        assert client.produce("last", b"x" * 300).error_code == 0
    pauses = ROUNDS * INTERVAL_MS // SLICE_PAUSE_MS
    for number in range(pauses):
        machine.scheduler.run_for(SLICE_PAUSE_MS)
        node.create_topic(f"topic-{number}", 1, {})
    assert any(isinstance(event, SegmentsDeleted) and event.topic == "last" for event in node.events.recent)
