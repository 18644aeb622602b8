"""A log file on a full disk loses its lines, and nothing else."""

import contextlib
import errno

from fencepost.broker.events import BrokerStopped, EventFeed
from fencepost.shell.event_log import EventLog
from fencepost.simulation.node import SimulatedNode
from tests.durability.scene import SMALL, Client


def test_a_full_disk_under_the_log_file_does_not_reach_whoever_emits_an_event() -> None:
    stream = open("/dev/full", "w")  # noqa: SIM115 - closing it fails, too
    try:
        feed = EventFeed()
        feed.subscribe(EventLog(stream).write)
        heard: list[object] = []
        feed.subscribe(heard.append)
        for _ in range(3):
            feed.emit(BrokerStopped(1))
        assert len(heard) == 3
    finally:
        with contextlib.suppress(OSError):
            stream.close()


class FullStream:
    def isatty(self) -> bool:
        return False

    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "no space left on device")

    def flush(self) -> None: ...


def test_a_broker_whose_log_cannot_be_written_goes_on() -> None:
    machine = SimulatedNode(SMALL)
    machine.watch = lambda node: node.events.subscribe(EventLog(FullStream()).write)  # type: ignore[method-assign]
    machine.start()
    client = Client(machine)
    assert client.create_topic("purchases") == 0
    assert client.produce("purchases", b"x").error_code == 0
