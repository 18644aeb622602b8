"""Sockets: receives bytes, passes frames to the node, sends answers. The only server-side module that uses the network.

Receives into one buffer per connection, which grows only for a frame in progress, and only as its bytes arrive; a
large frame is never copied to another buffer, and stays where it is while it is served. Reading continues while the
connection is muted, until the buffer is full, so that a disconnected client is noticed. A client that does not read
its answers is disconnected.
"""

import asyncio
import mmap
import socket
from collections import Counter
from dataclasses import dataclass
from typing import cast

from fencepost.broker.connection import Connection
from fencepost.broker.events import AuthenticationFailed, ConnectionClosed, ConnectionRefused
from fencepost.broker.serving import ServingNode
from fencepost.config import BrokerConfig
from fencepost.ports import Buffer
from fencepost.shell.busy_poll import BusyPoll
from fencepost.shell.descriptors import DescriptorShares
from fencepost.shell.turns import Turns
from fencepost.wire.catalog import ApiKey

RECEIVE_BUFFER_BYTES = 65_536
# A buffer of up to this size is kept for the next frame; a larger one is released.
RETAINED_BUFFER_BYTES = 2_097_152
# A connection that fills its buffer with whole requests gets a larger one, which needs fewer turns of the event loop.
BUSY_BUFFER_BYTES = 524_288
# A larger buffer is mapped for the whole frame at once, so that it need not be copied when it grows. The system gives
# the memory as it is filled.
COPIED_BUFFER_BYTES_MAX = 1_048_576
# Large requests come in streams, and their senders need the processor more than the broker does.
BUSY_POLL_REQUEST_BYTES_MAX = 4_096
# Small answers wait for the end of a turn; what is large, or much, must count as unread before the next request begins.
HELD_ANSWER_BYTES_MAX = 4_096
HELD_ANSWERS_MAX = 16
SWEEP_INTERVAL_SECONDS = 1.0
# A lower limit suggests few clients, perhaps on one machine.
SHARED_CONNECTIONS_MIN = 16
LISTEN_BACKLOG = 1024
# A peer whose network died is noticed after two minutes, not after the two hours that systems take by default.
KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 6}


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    total: int
    per_host: int
    descriptors: int | None = None
    """The limit of the process, if that and not max.connections limits the total."""


def connection_limits(config: BrokerConfig, shares: DescriptorShares, *, is_per_ip_given: bool) -> ConnectionLimits:
    """By default, one address cannot use up all connections."""
    total, per_host = shares.connections, config.max_connections_per_ip
    if not is_per_ip_given and total >= SHARED_CONNECTIONS_MIN:
        per_host = min(per_host, total * 3 // 4)
    return ConnectionLimits(total, per_host, shares.limit if total < config.max_connections else None)


class Connections:
    """The open connections and the memory of incoming requests, with the limits on both."""

    def __init__(
        self,
        node: ServingNode,
        loop: asyncio.AbstractEventLoop,
        turns: Turns,
        limits: ConnectionLimits | None = None,
    ) -> None:
        self.node = node
        self.limits = limits or ConnectionLimits(node.config.max_connections, node.config.max_connections_per_ip)
        self.loop = loop
        self.turns = turns
        self.open: dict[BrokerProtocol, None] = {}
        self.by_host: Counter[str] = Counter()
        self.receiving_bytes = 0
        self._unread: dict[BrokerProtocol, int] = {}
        """Unread bytes of answers by connection, in the order in which the readers fell behind."""
        self.busy_poll = BusyPoll(loop, node.config.busy_poll_us)
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._timer = self.loop.call_later(SWEEP_INTERVAL_SECONDS, self._sweep)

    def close_all(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for protocol in list(self.open):
            protocol.close("the broker is stopping")

    def abort_all(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for protocol in list(self.open):
            protocol.abort()

    def left(self, host: str) -> None:
        self.by_host[host] -= 1
        if not self.by_host[host]:
            del self.by_host[host]

    def refusal(self, host: str, others: int = 0, others_of_host: int = 0) -> str | None:
        """Why a connection is refused, if it is; `others` counts connections during their handshake."""
        limits = self.limits
        if len(self.open) + others >= limits.total:
            return self.total_reached
        if self.by_host[host] + others_of_host >= limits.per_host:
            return f"max.connections.per.ip={limits.per_host} reached"
        return None

    @property
    def total_reached(self) -> str:
        limits = self.limits
        if limits.descriptors is None:
            return f"max.connections={limits.total} reached"
        return (
            f"{limits.total} connections are open, and the process may have no more than {limits.descriptors} "
            "descriptors, some of which the log needs; raise that limit (ulimit -n)"
        )

    def reserve(self, extra_bytes: int, asking: "BrokerProtocol") -> bool:
        """Whether a buffer may grow. If memory is short, empty buffers are released first, then the largest one is
        dropped."""
        if not self._has_room_for(extra_bytes):
            for protocol in self.open:
                protocol.shrink_if_empty()
        while not self._has_room_for(extra_bytes):
            largest = max(self.open, key=lambda protocol: protocol.buffer_bytes)
            if largest.buffer_bytes <= asking.buffer_bytes:
                return False
            largest.drop("receive.buffers.max.bytes reached, and this was the largest request")
        self.receiving_bytes += extra_bytes
        return True

    def fell_behind(self, protocol: "BrokerProtocol", unread_bytes: int) -> None:
        self._note_unread(protocol, unread_bytes)
        while self.node.unread_bytes > self.node.config.response_buffers_max_bytes:
            slowest = next(iter(self._unread))
            self._note_unread(slowest, 0)
            # Deferred, because this is called while writing to its socket.
            self.loop.call_soon(slowest.drop, "response.buffers.max.bytes reached, and this reader waits longest")

    def caught_up(self, protocol: "BrokerProtocol") -> None:
        self._note_unread(protocol, 0)

    def _note_unread(self, protocol: "BrokerProtocol", unread_bytes: int) -> None:
        self.node.count_unread(unread_bytes - self._unread.get(protocol, 0))
        if unread_bytes:
            self._unread[protocol] = unread_bytes
        else:
            self._unread.pop(protocol, None)

    def _has_room_for(self, extra_bytes: int) -> bool:
        return self.receiving_bytes + extra_bytes <= self.node.config.receive_buffers_max_bytes

    def _sweep(self) -> None:
        now = self.loop.time()
        for protocol in list(self.open):
            protocol.check_deadlines(now)
        self._timer = self.loop.call_later(SWEEP_INTERVAL_SECONDS, self._sweep)


class BrokerProtocol(asyncio.BufferedProtocol):
    __slots__ = (
        "_buffer",
        "_connection",
        "_connections",
        "_end",
        "_frame_since",
        "_held",
        "_host",
        "_is_paused",
        "_is_waiting",
        "_last_activity",
        "_listener",
        "_loop",
        "_node",
        "_room",
        "_stalled_since",
        "_start",
        "_transport",
        "_turns",
        "_unread_bytes",
        "_view",
    )

    def __init__(self, connections: Connections, listener: str) -> None:
        self._connections = connections
        self._node = connections.node
        self._turns = connections.turns
        self._loop = connections.loop
        self._listener = listener
        self._buffer: bytearray | mmap.mmap = bytearray(RECEIVE_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._room = RECEIVE_BUFFER_BYTES
        """So much of the buffer may be filled."""
        self._start = 0
        self._end = 0
        self._is_paused = False
        self._is_waiting = False
        self._held: list[Buffer] = []
        self._frame_since: float | None = None
        self._stalled_since: float | None = None
        self._unread_bytes = 0
        self._last_activity = self._loop.time()
        self._connection: Connection | None = None
        self._transport: asyncio.Transport | None = None
        self._host = ""

    # Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self._host = peer[0] if isinstance(peer, tuple) else "local"
        reason = self._connections.refusal(self._host)
        if reason is not None:
            self._node.events.emit(ConnectionRefused(self._host, reason))
            transport.abort()
            return
        self._connections.open[self] = None
        self._connections.by_host[self._host] += 1
        raw = transport.get_extra_info("socket")
        if raw is not None and raw.family != socket.AF_UNIX:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in KEEPALIVE.items():
                if hasattr(socket, name):
                    raw.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        transport.set_write_buffer_limits(high=self._node.config.response_buffer_max_bytes)
        secured = transport.get_extra_info("ssl_object")
        certificate = None if secured is None else secured.getpeercert(binary_form=True)
        try:
            self._connection = self._node.connect(self._host, self._listener, self._write, self.close, certificate)
        except PermissionError as error:
            self._connections.open.pop(self)
            self._connections.left(self._host)
            self._node.events.emit(AuthenticationFailed(0, self._host, self._listener, "TLS", str(error)))
            transport.abort()
            return
        self._connection.when_ready(self._process)

    def connection_lost(self, error: Exception | None) -> None:
        if self._connection is None:
            return
        self._connections.open.pop(self, None)
        self._connections.left(self._host)
        self._release_buffer()
        self._connections.caught_up(self)
        self._connection.closed()

    def get_buffer(self, sizehint: int) -> memoryview:
        # Never empty: reading is paused while the buffer is full. Nothing may be closed in here, uvloop would crash.
        return self._view[self._end : self._room]

    def buffer_updated(self, count: int) -> None:
        self._connections.busy_poll.arrived()
        self._end += count
        self._last_activity = self._loop.time()
        if self._turns.is_first() or self._end == self._room:
            self._process()
        elif not self._is_waiting:
            self._is_waiting = True
            self._turns.wait(self, ends_transaction=self._ends_transaction())

    def _ends_transaction(self) -> bool:
        """Whether the next request is EndTxn, as far as it is there."""
        at = self._start + 4
        return self._end > at + 1 and not self._view[at] and self._view[at + 1] == ApiKey.END_TXN

    def serve(self) -> None:
        self._is_waiting = False
        try:
            self._process()
        except Exception as error:
            # Reported like a failed callback of the event loop; closes only this connection.
            self._loop.call_exception_handler({"message": "a connection's turn failed", "exception": error})
            self.abort()

    def _write(self, parts: list[Buffer]) -> None:
        held = self._held
        if (
            self._turns.holds_answers
            and len(parts) == 1
            and len(parts[0]) <= HELD_ANSWER_BYTES_MAX
            and len(held) < HELD_ANSWERS_MAX
        ):
            if not held:
                self._turns.hold(self)
            held += parts
        else:
            assert self._transport is not None
            self._held = []
            self._transport.writelines([*held, *parts] if held else parts)

    def send(self) -> None:
        held, self._held = self._held, []
        if held and self._transport is not None and not self._transport.is_closing():
            self._transport.writelines(held)

    def eof_received(self) -> bool:
        # The end overtakes what waits for its turn; with acks=0 nobody would send that again.
        if self._is_waiting:
            self.serve()
        return False

    def pause_writing(self) -> None:
        self._stalled_since = self._loop.time()
        if self._transport is not None:
            self._unread_bytes = self._transport.get_write_buffer_size()
            self._connections.fell_behind(self, self._unread_bytes)

    def resume_writing(self) -> None:
        self._stalled_since = None
        self._connections.caught_up(self)
        self._process()

    # Frames

    def _process(self) -> None:
        """Passes on every complete request that may start now, then writes the available answers."""
        connection = self._connection
        transport = self._transport
        if connection is None or connection.is_closed or transport is None or transport.is_closing():
            return
        node = self._node
        view = self._view
        start, end = self._start, self._end
        was_full = end == self._room
        handled = size = 0
        while connection.is_ready and self._stalled_since is None:
            if end - start < 4:
                break
            size = view[start] << 24 | view[start + 1] << 16 | view[start + 2] << 8 | view[start + 3]
            if size > connection.request_max_bytes:
                self.close(f"request of {size} bytes is over {self._request_limit()}")
                return
            stop = start + 4 + size
            if stop > end:
                break
            node.handle(connection, view[start + 4 : stop])
            start = stop
            handled += 1
            if connection.frame_is_kept:
                connection.frame_left()
                self._start, self._end = start, end
                self._leave_buffer()
                view, start, end = self._view, self._start, self._end
            if connection.is_closed or transport.is_closing():
                return
            if not connection.is_ready:
                connection.flush()
        connection.flush()
        if connection.is_closed:
            return
        if start == end:
            start = end = 0
            self._frame_since = None
        elif not connection.is_ready:
            # Complete requests are waiting here, so the client is not slow.
            self._frame_since = None
        elif handled or self._frame_since is None:
            self._frame_since = self._loop.time()
        self._start, self._end = start, end
        if handled == 1 and size <= BUSY_POLL_REQUEST_BYTES_MAX and connection.is_idle:
            self._connections.busy_poll.answered(self)
        if was_full and handled > 1 and self._room < BUSY_BUFFER_BYTES:
            self._grow(self._room)
        elif end == 0:
            if self._room > RETAINED_BUFFER_BYTES:
                self.shrink_if_empty()
        elif end == self._room:
            self._make_room()
        if self._end < self._room:
            self._resume_reading()
        else:
            self._pause_reading()

    def _request_limit(self) -> str:
        is_trusted = self._connection is None or self._connection.admission is None
        return "socket.request.max.bytes" if is_trusted else "sasl.server.max.receive.size"

    def _make_room(self) -> None:
        """Moves received bytes to the front, or grows the buffer if it is full with the frame in progress.

        It grows with the bytes received, not with the declared length. Behind a waiting request it stays full.
        """
        held = self._end - self._start
        missing_bytes = 4 + int.from_bytes(self._view[self._start : self._start + 4], "big") - held
        if self._start:
            self._view[:held] = bytes(self._view[self._start : self._end])
        elif missing_bytes > 0 and self._connection is not None and self._connection.is_ready:
            self._grow(min(held, missing_bytes))
            return
        self._start, self._end = 0, held

    def _grow(self, extra_bytes: int) -> None:
        if not self._connections.reserve(extra_bytes, self):
            self.close("receive.buffers.max.bytes reached")
            return
        self._room += extra_bytes
        if self._room > len(self._buffer):
            size = self._room
            if size > COPIED_BUFFER_BYTES_MAX:
                frame_bytes = 4 + int.from_bytes(self._view[self._start : self._start + 4], "big")
                self._move_to(mmap.mmap(-1, max(size, frame_bytes)))
            else:
                self._move_to(bytearray(size))

    def _move_to(self, buffer: bytearray | mmap.mmap) -> None:
        """What has arrived and is not served goes on in another buffer."""
        held = self._end - self._start
        view = memoryview(buffer)
        view[:held] = self._view[self._start : self._end]
        self._buffer, self._view = buffer, view
        self._start, self._end = 0, held

    def _leave_buffer(self) -> None:
        """A request that is being served keeps this buffer. What came behind it goes on in another."""
        held = self._end - self._start
        room = max(RECEIVE_BUFFER_BYTES, held)
        self._connections.receiving_bytes -= self._room - room
        self._room = room
        self._move_to(bytearray(room))

    @property
    def buffer_bytes(self) -> int:
        return self._room

    def shrink_if_empty(self) -> None:
        if self._end == 0:
            self._release_buffer()

    def _release_buffer(self) -> None:
        extra_bytes = self._room - RECEIVE_BUFFER_BYTES
        if extra_bytes:
            self._connections.receiving_bytes -= extra_bytes
            self._room = RECEIVE_BUFFER_BYTES
            self._buffer = bytearray(RECEIVE_BUFFER_BYTES)
            self._view = memoryview(self._buffer)
            self._start = self._end = 0

    def _pause_reading(self) -> None:
        if not self._is_paused and self._transport is not None and not self._transport.is_closing():
            self._is_paused = True
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._is_paused and self._transport is not None and not self._transport.is_closing():
            self._is_paused = False
            self._transport.resume_reading()

    # Ends

    def close(self, reason: str) -> None:
        connection = self._connection
        if self._transport is None or self._transport.is_closing():
            return
        if connection is not None:
            connection.flush()
            self.send()
            self._node.events.emit(ConnectionClosed(connection.number, self._host, reason))
            connection.closing()
        # What was already answered still goes out, but nobody waits for it for long.
        self._transport.close()
        transport = self._transport
        self._loop.call_later(5, transport.abort)

    def check_deadlines(self, now: float) -> None:
        config = self._node.config
        if self._transport is None:
            return
        unread_bytes, before_bytes = self._transport.get_write_buffer_size(), self._unread_bytes
        self._unread_bytes = unread_bytes
        if unread_bytes < before_bytes:
            # Slow, but reading: neither stalled nor idle.
            self._last_activity = now
        if self._stalled_since is not None:
            if unread_bytes < before_bytes:
                self._stalled_since = now
                self._connections.fell_behind(self, unread_bytes)
            elif (now - self._stalled_since) * 1000 > config.response_stall_timeout_ms:
                self.drop("answers were not read for response.stall.timeout.ms")
        elif self._frame_since is not None:
            if (now - self._frame_since) * 1000 > config.request_frame_timeout_ms:
                self.drop("a request did not arrive whole within request.frame.timeout.ms")
        elif (
            config.connections_max_idle_ms >= 0
            and (now - self._last_activity) * 1000 > config.connections_max_idle_ms
            and self._connection is not None
            and self._connection.is_idle
        ):
            self.close("idle for connections.max.idle.ms")

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def drop(self, reason: str) -> None:
        """Closes the connection immediately and releases its memory."""
        connection = self._connection
        if connection is not None and self._transport is not None:
            self._node.events.emit(ConnectionClosed(connection.number, self._host, reason))
            connection.closing()
            self._transport.abort()
            self._release_buffer()


async def listen(connections: Connections, name: str, bound: socket.socket) -> asyncio.Server:
    """Accepts connections of one listener on a bound socket."""
    return await connections.loop.create_server(
        lambda: BrokerProtocol(connections, name), sock=bound, backlog=LISTEN_BACKLOG
    )
