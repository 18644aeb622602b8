"""Bytes behind a request are ignored, as Apache Kafka ignores them: counted, and reported once per client software."""

import pytest

from fencepost.broker.dispatch import TRAILING_SOFTWARE_MAX
from fencepost.broker.events import MalformedRequest, TrailingBytesIgnored
from fencepost.simulation.node import LISTENER, SimulatedNode, SimulatedSocket
from fencepost.wire.catalog import API_VERSIONS, ApiKey, request_class
from fencepost.wire.framing import request_frame
from fencepost.wire.messages import ApiVersionsRequest, MetadataRequest
from tests.durability.scene import SMALL

# librdkafka 2.3 to 2.16 sends this behind an all-topics Metadata request.
TRAILING = b"\0\0\0"


@pytest.fixture(scope="module")
def machine() -> SimulatedNode:
    return SimulatedNode(SMALL).start()


def frame_of(key: ApiKey, version: int, message: object) -> bytes:
    return b"".join(request_frame(key, version, 5, "client", message))[4:]


def outcome(machine: SimulatedNode, key: ApiKey, version: int, frame: bytes) -> str:
    socket = machine.connect(LISTENER)
    socket.expect(5, key, version)
    socket.send_frame(frame)
    machine.scheduler.run_until(lambda: 5 in socket.answers or socket.close_reason is not None, 10_000)
    socket.hang_up("asked")
    return repr(type(socket.answers.get(5))) + repr(socket.close_reason)


def greeted(machine: SimulatedNode, software: str) -> SimulatedSocket:
    socket = machine.connect(LISTENER)
    socket.call(
        ApiKey.API_VERSIONS, 3, ApiVersionsRequest(client_software_name=software, client_software_version="2.16.1")
    )
    return socket


def send_with_trailing_bytes(socket: SimulatedSocket) -> None:
    socket.expect(5, ApiKey.METADATA, 12)
    socket.send_frame(frame_of(ApiKey.METADATA, 12, MetadataRequest(topics=None)) + TRAILING)
    assert socket.close_reason is None
    assert socket.answers.pop(5).brokers


@pytest.mark.parametrize("key", API_VERSIONS, ids=lambda key: key.camel_name)
def test_they_change_no_answer_of_any_api_and_version(machine: SimulatedNode, key: ApiKey) -> None:
    low, high = API_VERSIONS[key]
    for version in range(low, high + 1):
        frame = frame_of(key, version, request_class(key)())
        before = machine.node.calls_with_trailing_bytes[key]
        expected = outcome(machine, key, version, frame)
        assert outcome(machine, key, version, frame + TRAILING) == expected
        assert machine.node.calls_with_trailing_bytes[key] == before + 1


def test_they_are_reported_once_for_each_client_software() -> None:
    machine = SimulatedNode(SMALL).start()
    for software in ("librdkafka", "librdkafka", "segmentio"):
        socket = greeted(machine, software)
        for _ in range(3):
            send_with_trailing_bytes(socket)
    reports = [event for event in machine.node.events.recent if isinstance(event, TrailingBytesIgnored)]
    assert [(report.software, report.api, report.version, report.trailing_bytes) for report in reports] == [
        ("librdkafka 2.16.1", "Metadata", 12, 3),
        ("segmentio 2.16.1", "Metadata", 12, 3),
    ]
    assert machine.node.calls_with_trailing_bytes[ApiKey.METADATA] == 9


def test_a_client_that_changes_its_name_cannot_fill_the_log() -> None:
    machine = SimulatedNode(SMALL).start()
    for number in range(TRAILING_SOFTWARE_MAX + 10):
        send_with_trailing_bytes(greeted(machine, f"client{number}"))
    reports = [event for event in machine.node.events.recent if isinstance(event, TrailingBytesIgnored)]
    assert len(reports) == TRAILING_SOFTWARE_MAX
    assert machine.node.calls_with_trailing_bytes[ApiKey.METADATA] == TRAILING_SOFTWARE_MAX + 10


def test_a_request_that_ends_early_stays_an_error() -> None:
    machine = SimulatedNode(SMALL).start()
    socket = machine.connect(LISTENER)
    socket.send_frame(frame_of(ApiKey.METADATA, 12, MetadataRequest(topics=[]))[:-1])
    assert socket.close_reason is not None
    assert isinstance(machine.node.events.recent[-1], MalformedRequest)
