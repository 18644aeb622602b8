"""The server's side of a socket in virtual time: answers nobody reads are bounded, and then their reader is cut off."""

import struct
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from fencepost.broker.events import ConnectionClosed
from fencepost.shell.server import BrokerProtocol, Connections
from fencepost.shell.turns import Turns
from fencepost.simulation.node import LISTENER, SimulatedNode
from fencepost.simulation.scheduler import SimulatedTimer
from fencepost.wire.catalog import ApiKey
from fencepost.wire.framing import request_frame
from fencepost.wire.messages import ApiVersionsRequest, ProduceRequest
from tests.durability.scene import SMALL, Client

TOPIC = "purchases"
BUFFER_BYTES = 50_000
STALL_MS = 5_000
RECORD_BYTES = 20_000
SETTINGS = {
    **SMALL,
    "response.buffer.max.bytes": str(BUFFER_BYTES),
    "response.stall.timeout.ms": str(STALL_MS),
    "request.frame.timeout.ms": "3000",
    "connections.max.idle.ms": "60000",
    "busy.poll.us": "0",
}


class VirtualLoop:
    """What the server asks of its event loop, in virtual time."""

    def __init__(self, machine: SimulatedNode) -> None:
        self._machine = machine
        self.call_soon = machine.scheduler.call_soon
        self.failures: list[dict[str, Any]] = []
        self.call_exception_handler = self.failures.append

    def time(self) -> float:
        return self._machine.clock.monotonic_ms() / 1000

    def call_later(self, delay: float, callback: Callable[..., None], *arguments: Any) -> SimulatedTimer:
        return self._machine.scheduler.call_later(round(delay * 1000), lambda: callback(*arguments))


class SlowSocket:
    """A client that reads only when told to: a transport that keeps what was written, as the real one does."""

    def __init__(self, machine: SimulatedNode, connections: Connections) -> None:
        self._high_bytes = 0
        self._is_closing = False
        self._is_full = False
        self.unread = bytearray()
        self.is_reading = True
        """Whether the broker still takes requests."""
        self._correlation_id = 0
        self.protocol = BrokerProtocol(connections, LISTENER)
        self.protocol.connection_made(cast(Any, self))

    # The client

    def send_bytes(self, data: bytes) -> None:
        while data and self.is_reading and not self._is_closing:
            room = self.protocol.get_buffer(-1)
            count = min(len(room), len(data))
            room[:count] = data[:count]
            data = data[count:]
            self.protocol.buffer_updated(count)

    def send(self, api: ApiKey, version: int, message: Any) -> None:
        self._correlation_id += 1
        self.send_bytes(b"".join(request_frame(api, version, self._correlation_id, "slow", message)))

    def read(self, count: int) -> bytes:
        data, self.unread = bytes(self.unread[:count]), self.unread[count:]
        if self._is_full and len(self.unread) <= self._high_bytes // 4:
            self._is_full = False
            self.protocol.resume_writing()
        return data

    @property
    def is_cut_off(self) -> bool:
        return self._is_closing

    # What the server asks of its transport

    def writelines(self, parts: Sequence[bytes]) -> None:
        self.unread += b"".join(parts)
        if not self._is_full and len(self.unread) > self._high_bytes:
            self._is_full = True
            self.protocol.pause_writing()

    def set_write_buffer_limits(self, high: int) -> None:
        self._high_bytes = high

    def get_write_buffer_size(self) -> int:
        return len(self.unread)

    def get_extra_info(self, name: str) -> Any:
        return ("192.0.2.1", 4711) if name == "peername" else None

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        self._is_closing = True

    def abort(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self.protocol.connection_lost(None)


class Scene:
    def __init__(self) -> None:
        self.machine = SimulatedNode(SETTINGS).start()
        self.helper = Client(self.machine)
        assert self.helper.create_topic(TOPIC) == 0
        for _ in range(4):
            assert self.helper.produce(TOPIC, bytes(RECORD_BYTES)).error_code == 0
        self.loop = VirtualLoop(self.machine)
        self.connections = Connections(self.machine.node, cast(Any, self.loop), Turns(cast(Any, self.loop)))
        self.connections.start()
        self.socket = SlowSocket(self.machine, self.connections)

    def fetch(self) -> None:
        request = self.helper.fetch_request(TOPIC, {0: 0}, partition_max_bytes=RECORD_BYTES + 1_000)
        self.socket.send(ApiKey.FETCH, 12, request)

    def close_reasons(self) -> list[str]:
        return [event.reason for event in self.machine.node.events.recent if isinstance(event, ConnectionClosed)]


def test_answers_that_nobody_reads_are_bounded_and_no_more_requests_are_taken() -> None:
    scene = Scene()
    for _ in range(3_000):
        scene.fetch()
    one_answer_bytes = RECORD_BYTES + 1_000
    assert BUFFER_BYTES < len(scene.socket.unread) < BUFFER_BYTES + one_answer_bytes
    assert scene.machine.node.calls[ApiKey.FETCH] == 3
    assert not scene.socket.is_reading


def test_a_reader_that_stops_reading_is_cut_off_in_time_and_told_of() -> None:
    scene = Scene()
    for _ in range(10):
        scene.fetch()
    scene.machine.scheduler.run_for(STALL_MS - 100)
    assert not scene.socket.is_cut_off
    scene.machine.scheduler.run_for(2_000)
    assert scene.socket.is_cut_off
    assert scene.close_reasons() == ["answers were not read for response.stall.timeout.ms"]
    assert not scene.connections.open


def test_a_slow_reader_that_goes_on_reading_is_served_to_the_end() -> None:
    scene = Scene()
    for _ in range(10):
        scene.fetch()
    started_ms = scene.machine.clock.monotonic_ms()
    received = bytearray()
    # It takes many times the time-out to read it all, but is never still for so long.
    while scene.socket.unread:
        received += scene.socket.read(1_000)
        scene.machine.scheduler.run_for(500)
        assert not scene.socket.is_cut_off
    assert scene.machine.clock.monotonic_ms() - started_ms > 4 * STALL_MS
    assert frames_in(received) == list(range(1, 11))


def test_a_slow_reader_holds_up_no_other() -> None:
    scene = Scene()
    for _ in range(200):
        scene.fetch()
    other = SlowSocket(scene.machine, scene.connections)
    other.send(ApiKey.FETCH, 12, scene.helper.fetch_request(TOPIC, {0: 0}))
    scene.machine.scheduler.run_ready()
    assert frames_in(other.unread) == [1]


def test_what_a_client_sent_before_it_hung_up_is_done_even_if_it_had_to_wait_for_its_turn() -> None:
    scene = Scene()
    scene.fetch()
    other = SlowSocket(scene.machine, scene.connections)
    partition = ProduceRequest.TopicProduceData.PartitionProduceData
    data = partition(index=0, records=bytes(scene.helper.batch(b"last words")))
    topic = ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[data])
    log = scene.machine.node.partition(TOPIC, 0).log
    end_offset = log.log_end_offset
    other.send(ApiKey.PRODUCE, 9, ProduceRequest(acks=0, timeout_ms=1_000, topic_data=[topic]))
    assert log.log_end_offset == end_offset, "somebody was served in this turn already"
    assert not other.protocol.eof_received()
    assert log.log_end_offset == end_offset + 1
    other.close()
    scene.machine.scheduler.run_ready()
    assert log.log_end_offset == end_offset + 1


def test_a_turn_that_fails_ends_its_own_connection_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    scene.fetch()
    broken, fine = SlowSocket(scene.machine, scene.connections), SlowSocket(scene.machine, scene.connections)
    handle = scene.machine.node.handle

    def fail(connection: Any, frame: memoryview) -> None:
        if connection is broken.protocol._connection:
            raise RuntimeError("not foreseen")
        handle(connection, frame)

    monkeypatch.setattr(scene.machine.node, "handle", fail)
    for socket in (broken, fine):
        socket.send(ApiKey.FETCH, 12, scene.helper.fetch_request(TOPIC, {0: 0}))
    scene.machine.scheduler.run_ready()
    assert broken.is_cut_off
    assert not fine.is_cut_off
    assert frames_in(fine.unread) == [1]
    assert [str(each["exception"]) for each in scene.loop.failures] == ["not foreseen"]


def test_answers_that_are_held_back_for_a_turn_stay_in_order_with_those_that_are_not() -> None:
    scene = Scene()
    scene.fetch()
    other = SlowSocket(scene.machine, scene.connections)
    sent = bytearray()
    for number in range(1, 60):
        if number % 25:
            versions = ApiVersionsRequest(client_software_name="other", client_software_version="1")
            sent += b"".join(request_frame(ApiKey.API_VERSIONS, 3, number, "other", versions))
        else:
            request = scene.helper.fetch_request(TOPIC, {0: 0})
            sent += b"".join(request_frame(ApiKey.FETCH, 12, number, "other", request))
    other.send_bytes(bytes(sent))
    received = bytearray()
    for _ in range(100):
        scene.machine.scheduler.run_ready()
        received += other.read(BUFFER_BYTES)
    assert frames_in(received) == list(range(1, 60))


def test_requests_go_on_when_the_reader_has_caught_up() -> None:
    scene = Scene()
    sent = bytearray()
    for number in range(1, 9):
        request = scene.helper.fetch_request(TOPIC, {0: 0}, partition_max_bytes=RECORD_BYTES + 1_000)
        sent += b"".join(request_frame(ApiKey.FETCH, 12, number, "slow", request))
    scene.socket.send_bytes(bytes(sent))
    received = bytearray()
    while scene.socket.unread:
        received += scene.socket.read(BUFFER_BYTES)
    assert frames_in(received) == list(range(1, 9))


def test_half_a_request_is_waited_for_only_so_long() -> None:
    scene = Scene()
    scene.socket.send_bytes(struct.pack(">i", 1_000) + bytes(10))
    scene.machine.scheduler.run_for(2_900)
    assert not scene.socket.is_cut_off
    scene.machine.scheduler.run_for(2_000)
    assert scene.socket.is_cut_off


def test_an_idle_connection_ends_and_one_with_a_parked_fetch_does_not() -> None:
    scene = Scene()
    waiting = SlowSocket(scene.machine, scene.connections)
    waiting.send(ApiKey.FETCH, 12, scene.helper.fetch_request(TOPIC, {0: 4}, max_wait_ms=300_000))
    scene.machine.scheduler.run_for(65_000)
    assert scene.socket.is_cut_off
    assert not waiting.is_cut_off


def frames_in(data: bytes | bytearray) -> list[int]:
    """The correlation ids of the whole answers."""
    found, position = [], 0
    while position + 8 <= len(data):
        size, correlation_id = struct.unpack_from(">ii", data, position)
        position += 4 + size
        if position <= len(data):
            found.append(correlation_id)
    return found
