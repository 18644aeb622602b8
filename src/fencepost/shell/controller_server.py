"""Sockets of a controller: frames in, answers out, one request at a time on each connection.

Made for the brokers of one cluster, which are few: no more than `CONNECTIONS_MAX` are served. A request that is not
what it claims to be ends its connection.
"""

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import Callable
from typing import Any, cast

from fencepost.metadata.controller.service import ControllerService, read_api, read_request, refusal
from fencepost.wire.catalog import CONTROLLER_API_VERSIONS, ApiKey
from fencepost.wire.errors import ErrorCode, KafkaError, MalformedMessage
from fencepost.wire.framing import response_frame
from fencepost.wire.messages import ApiVersionsResponse

CONNECTIONS_MAX = 1_000
REQUEST_BYTES_MAX = 100 * 1024 * 1024
UNSERVED_BYTES_MAX = 1024 * 1024
"""What may arrive behind a request that is being served before its sender is made to wait."""
TICK_SECONDS = 0.1
ELECTIONS_INTERVAL_MS = 300_000
"""As in Kafka: how often leaders go back to where they should be."""
_LENGTH_BYTES = 4


class ControllerServer:
    def __init__(
        self, service: ControllerService, now_ms: Callable[[], int], on_failure: Callable[[], object] = lambda: None
    ) -> None:
        """`on_failure` is called once the log cannot be trusted any more."""
        self.service = service
        self.now_ms = now_ms
        self._on_failure = on_failure
        self.connections: set[ControllerConnection] = set()
        self._server: asyncio.Server | None = None
        self._ticking: asyncio.Task[None] | None = None

    async def start(self, bound: socket.socket, *, ticks: bool = True) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: ControllerConnection(self), sock=bound)
        if ticks:
            self._ticking = loop.create_task(self._tick())

    async def _tick(self) -> None:
        elections_ms = self.now_ms() + ELECTIONS_INTERVAL_MS
        while True:
            await asyncio.sleep(TICK_SECONDS)
            if self.service.failure is not None:
                self._on_failure()
                return
            now_ms = self.now_ms()
            self.service.tick(now_ms)
            if now_ms >= elections_ms:
                elections_ms = now_ms + ELECTIONS_INTERVAL_MS
                self.service.elect(now_ms)

    async def stop(self) -> None:
        if self._ticking is not None:
            self._ticking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._ticking
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            connection.close()
        # Closed connections let go of their sockets in the loop's next turn.
        await asyncio.sleep(0)


class ControllerConnection(asyncio.Protocol):
    def __init__(self, server: ControllerServer) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._is_serving = False
        self._frames: deque[bytes] = deque()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if len(self._server.connections) >= CONNECTIONS_MAX:
            self._transport.abort()
            return
        self._server.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._frames.clear()
        self._server.connections.discard(self)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= _LENGTH_BYTES:
            length = int.from_bytes(self._received[:_LENGTH_BYTES], "big", signed=True)
            if not 0 <= length <= REQUEST_BYTES_MAX:
                self.close()
                return
            end = _LENGTH_BYTES + length
            if len(self._received) < end:
                break
            self._frames.append(bytes(self._received[_LENGTH_BYTES:end]))
            del self._received[:end]
        self._serve()
        if self._transport is not None and self._is_serving and sum(map(len, self._frames)) > UNSERVED_BYTES_MAX:
            self._transport.pause_reading()

    def _serve(self) -> None:
        while self._frames and not self._is_serving and self._transport is not None:
            self._is_serving = True
            try:
                self._handle(memoryview(self._frames.popleft()))
            except MalformedMessage:
                self.close()
                return
        if self._transport is not None and not self._is_serving:
            self._transport.resume_reading()

    def _handle(self, frame: memoryview) -> None:
        api_key, version = read_api(frame)
        low, high = CONTROLLER_API_VERSIONS[api_key]
        if not low <= version <= high:
            # Of ApiVersions alone: the oldest answer, which every client reads.
            correlation_id = int.from_bytes(frame[4:8], "big", signed=True)
            self._answer(api_key, 0, correlation_id, ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION))
            return
        correlation_id, request = read_request(frame, api_key, version)
        try:
            promise = self._server.service.handle(request, version, self._server.now_ms())
        except KafkaError as error:
            self._answer(api_key, version, correlation_id, refusal(request, error))
            return
        promise.then(lambda answer: self._answer(api_key, version, correlation_id, answer))

    def _answer(self, api_key: ApiKey, version: int, correlation_id: int, answer: Any) -> None:
        self._is_serving = False
        if self._transport is not None:
            self._transport.writelines(response_frame(api_key, version, correlation_id, answer))
            # Not at once: an answer that was there already would make one request serve the next.
            asyncio.get_running_loop().call_soon(self._serve)
