"""Connections between simulated clients and the broker: late, cut, half-open, held up, sent twice.

Inside one connection everything stays in order; across connections nothing does. A frame may
arrive after its client has given up: a late request. The world provides the clock and the randomness.
"""

import random
import struct
from collections import deque
from collections.abc import Callable

from fencepost.broker.connection import Connection
from fencepost.ports import Buffer
from fencepost.simulation.node import LISTENER, SimulatedNode
from fencepost.simulation.trace import Trace
from fencepost.wire.catalog import ApiKey

_API = struct.Struct(">hh")
KEEPALIVE_MS = 30_000
# A second copy of these on a newer connection cannot be told from the client's own next call before protocol 2, by
# Apache Kafka neither: a duplicate has to come over an older connection, as from a client that timed out.
_LAST_PROTOCOL_1 = {
    ApiKey.END_TXN: 4,
    ApiKey.ADD_PARTITIONS_TO_TXN: 3,
    ApiKey.ADD_OFFSETS_TO_TXN: 4,
    ApiKey.TXN_OFFSET_COMMIT: 4,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 1,
    ApiKey.CREATE_ACLS: 3,
    ApiKey.DELETE_ACLS: 3,
}
# These say nothing of when they were meant: late, nobody could tell them from what the client has asked since.
_NEVER_LATE = frozenset(
    {ApiKey.TXN_OFFSET_COMMIT, ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS}
)


class Network:
    def __init__(self, machine: SimulatedNode, source: random.Random, trace: Trace) -> None:
        self.machine = machine
        self.source = source
        self.trace = trace
        self.links: dict[int, Link] = {}
        self.delay_max_ms = 2
        self.frames = 0
        self.duplicates_wanted = 0
        self.duplicates_made = 0
        self.late_frames = 0
        self.on_request: Callable[[ApiKey], None] = lambda api: None
        self._number = 0

    def set_delay(self, delay_max_ms: int) -> None:
        """Frames take up to so long from now on."""
        self.delay_max_ms = delay_max_ms

    def duplicate(self, count: int) -> None:
        """So many more of the frames that come arrive twice."""
        self.duplicates_wanted += count

    def heal(self, delay_max_ms: int) -> None:
        self.delay_max_ms = delay_max_ms
        self.duplicates_wanted = 0

    def watch_requests(self, on_request: Callable[[ApiKey], None]) -> None:
        """Called with every request that reaches the broker."""
        self.on_request = on_request

    def connect(self, client: str) -> "Link | None":
        """A new connection, or None: nobody listens."""
        process = self.machine.process
        if process is None:
            return None
        self._number += 1
        link = self.links[self._number] = Link(self, self._number, client)
        return link

    def delay_ms(self) -> int:
        return int(self.source.random() * (self.delay_max_ms + 1))

    def broker_died(self) -> None:
        """Every client finds its connection gone, each when it does."""
        for link in list(self.links.values()):
            link.broker_gone()

    def pick(self, source: random.Random) -> "Link | None":
        """Some connection that a client uses."""
        used = [link for link in self.links.values() if link.is_open]
        return source.choice(used) if used else None

    def maybe_duplicate(self, link: "Link", frame: bytes) -> None:
        """Have a copy of this request arrive over a connection of its own; nobody hears the answer."""
        if not self.duplicates_wanted or self.machine.process is None:
            return
        key, version = _API.unpack_from(frame)
        if version <= _LAST_PROTOCOL_1.get(ApiKey(key), -1):
            return
        self.duplicates_wanted -= 1
        self.duplicates_made += 1
        twin = self.connect(f"{link.client}'")
        assert twin is not None
        twin.upstream_delay_ms = self.source.choice((1, 10, 300, 3_000))
        twin.send(frame)
        twin.abandon()


class Link:
    """One connection: the client's end, the broker's end, and what is under way between them."""

    def __init__(self, network: Network, number: int, client: str) -> None:
        self._network = network
        self.number = number
        self.client = client
        machine = network.machine
        assert machine.process is not None
        self._node = machine.node
        self._process_scheduler = machine.process
        self._scheduler = machine.scheduler
        self._connection: Connection = machine.node.connect(client, LISTENER, self._answer, self._closed_by_broker)
        self._connection.when_ready(self._handle)
        self._arrived: deque[bytes] = deque()
        self._arrival_ms = self._answer_ms = 0
        self.is_open = True
        """As the client sees it."""
        self.loses_requests = False
        self.loses_answers = False
        self.upstream_delay_ms = 0
        self.on_frame: Callable[[memoryview], None] = lambda frame: None
        self.on_closed: Callable[[], None] = lambda: None
        self._is_served = True

    # The client's end

    def listen(self, on_frame: Callable[[memoryview], None], on_closed: Callable[[], None]) -> None:
        """What the client's end does with a frame, and when the connection is closed."""
        self.on_frame, self.on_closed = on_frame, on_closed

    def send(self, frame: bytes) -> None:
        """A request without its length."""
        assert self.is_open
        network = self._network
        network.frames += 1
        network.trace.add("send", self.number, frame)
        network.maybe_duplicate(self, frame)
        if self.loses_requests:
            return
        self._upstream(lambda: self._take(frame))

    def abandon(self) -> None:
        """The client closes its end; what it has sent still arrives, then the end of the stream."""
        self.is_open = False
        self._upstream(self.hang_up)

    # Trouble

    def cut(self) -> None:
        """A reset: both ends find out, and what was under way may be lost."""
        self.hang_up()
        self._tell_client()

    def hang_up(self) -> None:
        """The broker's end is gone."""
        if self._is_served:
            self._is_served = False
            self._network.links.pop(self.number, None)
            self._arrived.clear()
            self._connection.closed()

    def half_open(self, *, requests: bool) -> None:
        """From now on nothing goes through in one direction, and neither side notices before the keep-alive does."""
        if requests:
            self.loses_requests = True
        else:
            self.loses_answers = True
        self._scheduler.call_later(KEEPALIVE_MS, self.cut)

    def hold(self, for_ms: int) -> None:
        """Requests take so much longer. The client will have given up, and they arrive all the same."""
        self.upstream_delay_ms = for_ms

    def broker_gone(self) -> None:
        self._is_served = False
        self._network.links.pop(self.number, None)
        self._tell_client()

    # Inside

    def _upstream(self, deliver: Callable[[], None]) -> None:
        now_ms = self._scheduler.clock.monotonic_ms()
        delay_ms = self._network.delay_ms() + self.upstream_delay_ms
        self._arrival_ms = max(self._arrival_ms, now_ms + delay_ms)
        # On the broker's own schedule: a paused broker takes it later, a dead one never.
        self._process_scheduler.call_later(self._arrival_ms - now_ms, deliver)

    def _take(self, frame: bytes) -> None:
        if self._is_served:
            key, version = _API.unpack_from(frame)
            if not self.is_open:
                if key in _NEVER_LATE and version <= _LAST_PROTOCOL_1[ApiKey(key)]:
                    return
                self._network.late_frames += 1
            self._network.on_request(ApiKey(key))
            self._arrived.append(frame)
            self._handle()

    def _handle(self) -> None:
        connection = self._connection
        while self._arrived and connection.is_ready and self._is_served:
            # Handlers stamp batches in place, as they may in a receive buffer.
            self._node.handle(connection, memoryview(bytearray(self._arrived.popleft())))
        if self._is_served:
            connection.flush()

    def _answer(self, parts: list[Buffer]) -> None:
        data = b"".join(parts)
        self._network.trace.add("answer", self.number, data)
        if self.loses_answers or not self.is_open:
            return
        now_ms = self._scheduler.clock.monotonic_ms()
        self._answer_ms = max(self._answer_ms, now_ms + self._network.delay_ms())
        self._scheduler.call_later(self._answer_ms - now_ms, lambda: self._hand_over(data))

    def _hand_over(self, data: bytes) -> None:
        view = memoryview(data)
        position = 0
        while position < len(view) and self.is_open:
            end = position + 4 + int.from_bytes(view[position : position + 4], "big")
            self.on_frame(view[position + 4 : end])
            position = end

    def _closed_by_broker(self, reason: str) -> None:
        self._network.trace.note(f"closed {self.number}: {reason}")
        self.hang_up()
        self._tell_client()

    def _tell_client(self) -> None:
        if self.is_open and not self.loses_answers:
            now_ms = self._scheduler.clock.monotonic_ms()
            self._answer_ms = max(self._answer_ms, now_ms + self._network.delay_ms())
            self._scheduler.call_later(self._answer_ms - now_ms, self._client_hears)

    def _client_hears(self) -> None:
        if self.is_open:
            self.is_open = False
            self.on_closed()
