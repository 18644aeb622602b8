"""A whole broker on simulated ports, in one thread: request bytes in, response bytes out.

The machine (disk, virtual time) survives the node: `crash` and `cut_power` end the process, `start` begins the next one
with what is left. A client's socket delivers a request only if the connection accepts one, as in the real server.
"""

import random
import struct
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from fencepost.broker.connection import Connection
from fencepost.broker.node import Node, Ports
from fencepost.broker.serving import ServingNode
from fencepost.ports import Buffer
from fencepost.simulation.clock import VirtualClock
from fencepost.simulation.disk import PowerCut, SimulatedDisk
from fencepost.simulation.flusher import SYNC_MS, SimulatedFlusher
from fencepost.simulation.scheduler import ProcessScheduler, SimulatedScheduler
from fencepost.simulation.workers import SimulatedWorkers
from fencepost.wire.catalog import ApiKey, response_class
from fencepost.wire.framing import read_response, request_frame

DATA_DIRECTORY = "/data"
LISTENER = "PLAINTEXT"
ANSWER_TIMEOUT_MS = 60_000


class SeededRandomness:
    def __init__(self, source: random.Random) -> None:
        self._source = source

    def random_bytes(self, count: int) -> bytes:
        return self._source.randbytes(count)


class SimulatedNode:
    """One machine and the broker that runs on it, if one does."""

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        seed: int = 0,
        disk: SimulatedDisk | None = None,
        scheduler: SimulatedScheduler | None = None,
        sync_ms: int = SYNC_MS,
    ) -> None:
        self.settings = dict(settings or {})
        self.source = random.Random(seed)
        self.disk = disk or SimulatedDisk()
        self.scheduler = scheduler or SimulatedScheduler(VirtualClock())
        self.clock = self.scheduler.clock
        self.sync_ms = sync_ms
        self.node: ServingNode
        self.flusher: SimulatedFlusher
        self._process: ProcessScheduler | None = None
        self._sockets: list[SimulatedSocket] = []

    # Life

    @property
    def process(self) -> ProcessScheduler | None:
        """Of the broker, if it runs."""
        return self._process

    def start(self) -> "SimulatedNode":
        self.boot()
        self.scheduler.run_ready()
        return self

    def boot(self) -> None:
        """Start the broker without letting anything else happen yet."""
        assert self._process is None, "it runs already"
        process = self._process = ProcessScheduler(self.scheduler)
        self.flusher = SimulatedFlusher(process, self.source, self.sync_ms)
        workers = SimulatedWorkers(process)
        ports = Ports(self.clock, process, self.disk, self.flusher, SeededRandomness(self.source), workers)
        self.node = ServingNode(ports, DATA_DIRECTORY, self.settings)
        self.node.set_endpoint(LISTENER, "broker", 9092)
        self.watch(self.node)
        self.node.start()

    def set_sync_ms(self, sync_ms: int) -> None:
        """How long a sync takes from now on."""
        self.sync_ms = sync_ms
        if self.process is not None:
            self.flusher.set_sync_ms(sync_ms)

    def watch(self, node: Node) -> None:
        """Called with every new broker before it starts; for those who listen to its events."""

    def stop(self) -> None:
        """Cleanly: syncs under way come to their end, then every log is closed."""
        self.node.quiesce()
        ended: list[bool] = []
        self.node.syncing.stop(lambda: ended.append(True))
        self.scheduler.run_until(lambda: bool(ended), ANSWER_TIMEOUT_MS)
        self.stop_now()

    def stop_now(self) -> None:
        """As above, when no sync is under way."""
        self._disconnect()
        self.node.stop()
        self._die()

    def crash(self) -> None:
        """As kill -9: the process is gone, what it wrote is in the page cache."""
        self._die()
        self._disconnect()

    def cut_power(self, mode: PowerCut) -> None:
        self.crash()
        self.disk.power_cut(mode, self.source)

    def _die(self) -> None:
        if self._process is not None:
            self._process.end()
            self._process = None

    def _disconnect(self) -> None:
        sockets, self._sockets = self._sockets, []
        for socket in sockets:
            socket.hang_up("the broker is gone")

    # Clients

    def connect(self, listener: str = LISTENER, host: str = "client") -> "SimulatedSocket":
        socket = SimulatedSocket(self, listener, host)
        self._sockets.append(socket)
        return socket


class SimulatedSocket:
    """A client's end of a connection."""

    def __init__(self, machine: SimulatedNode, listener: str, host: str) -> None:
        self._machine = machine
        self._node = machine.node
        self._connection: Connection = machine.node.connect(host, listener, self._write, self.hang_up)
        self._connection.when_ready(self._process)
        self._undelivered: deque[bytes] = deque()
        self._correlation_id = 0
        self._kinds: dict[int, tuple[ApiKey, int]] = {}
        self.close_reason: str | None = None
        self.answers: dict[int, Any] = {}
        """Decoded responses by correlation id, in the order of their arrival."""
        self.on_answer: Callable[[int, Any], None] | None = None

    @property
    def is_muted(self) -> bool:
        """Whether the broker does not take this connection's next request now."""
        return not self._connection.is_ready

    def send_frame(self, frame: bytes) -> None:
        """A request without its length, well-formed or not."""
        self._undelivered.append(frame)
        self._process()

    def expect(self, correlation_id: int, api: ApiKey, version: int) -> None:
        """An answer of this kind will come: for a request that is sent as a frame."""
        self._kinds[correlation_id] = (api, version)

    def send(self, api: ApiKey, version: int, message: Any) -> int:
        """Send a request without waiting; its correlation id."""
        self._correlation_id += 1
        self.expect(self._correlation_id, api, version)
        parts = request_frame(api, version, self._correlation_id, "simulated", message)
        self.send_frame(b"".join(parts)[4:])
        return self._correlation_id

    def call(self, api: ApiKey, version: int, message: Any) -> Any:
        """Send a request and let things happen until it is answered."""
        correlation_id = self.send(api, version, message)
        self.wait(correlation_id)
        return self.answers[correlation_id]

    def wait(self, correlation_id: int) -> None:
        self._machine.scheduler.run_until(
            lambda: correlation_id in self.answers or self.close_reason is not None, ANSWER_TIMEOUT_MS
        )
        assert correlation_id in self.answers, f"no answer; closed: {self.close_reason}"

    def hang_up(self, reason: str) -> None:
        if self.close_reason is None:
            self.close_reason = reason
            self._connection.closed()

    def _process(self) -> None:
        connection = self._connection
        while self._undelivered and connection.is_ready and self.close_reason is None:
            # Handlers stamp batches in place, as they may in a receive buffer.
            self._node.handle(connection, memoryview(bytearray(self._undelivered.popleft())))
        if self.close_reason is None:
            connection.flush()

    def _write(self, parts: list[Buffer]) -> None:
        data = b"".join(parts)
        position = 0
        while position < len(data):
            (size,) = struct.unpack_from(">i", data, position)
            frame = data[position + 4 : position + 4 + size]
            position += 4 + size
            (correlation_id,) = struct.unpack_from(">i", frame)
            api, version = self._kinds[correlation_id]
            answer: Any = read_response(response_class(api), api, version, frame)[1]
            self.answers[correlation_id] = answer
            if self.on_answer is not None:
                self.on_answer(correlation_id, answer)
