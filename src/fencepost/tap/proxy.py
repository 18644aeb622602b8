"""The proxy: one listener per broker, frames passed on in order and unchanged but for addresses and version limits.

Addresses in answers are replaced by the tap's own, so that clients stay connected to it, and the API versions of a
broker are limited to those that can be decoded. Everything else is passed on unchanged, even if it cannot be decoded.
"""

import asyncio
import itertools
import ssl
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from fencepost.tap.frames import Plain, api_name, newest_version, plain, read_answer, read_request
from fencepost.tap.tls import Encryption, asked_for
from fencepost.wire.catalog import ApiKey
from fencepost.wire.framing import RequestHeader, response_frame

FRAME_BYTES_MAX = 100 * 1024 * 1024 + 4096
CONNECT_TIMEOUT_SECONDS = 10.0
READ_BYTES = 256 * 1024
SHORTEST_REQUEST_BYTES = 10

Address = tuple[str, int]
Observer = Callable[[Plain], None]


class TapFailed(Exception):
    """The tap cannot listen on the given address, or cannot reach the cluster."""


class Tap:
    """`observe` gets every line of the recording immediately."""

    def __init__(
        self,
        upstream: Address,
        listen: Address,
        observe: Observer,
        *,
        with_contents: bool = False,
        encryption: Encryption = Encryption(),
    ) -> None:
        self._encryption = encryption
        self._upstream = upstream
        self._listen = listen
        self._observe = observe
        self._with_contents = with_contents
        self._servers: dict[Address, asyncio.Server] = {}
        self._topics: dict[bytes, str] = {}
        self._calls = itertools.count(1)
        self._connections = itertools.count(1)
        self._links: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> Address:
        host, port = self._servers[self._upstream].sockets[0].getsockname()[:2]
        return host, port

    async def start(self) -> None:
        _, writer = await self._connect(self._upstream)
        writer.close()
        await self._serve(self._upstream, self._listen)
        self._observe({"type": "tap", "format": 1, "time": time.time(), "upstream": _text(self._upstream)})

    async def stop(self) -> None:
        for server in self._servers.values():
            server.close()
        for link in self._links:
            link.cancel()
        await asyncio.gather(*self._links, return_exceptions=True)

    async def _serve(self, broker: Address, listen: Address) -> None:
        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            link = asyncio.ensure_future(self._carry(broker, reader, writer))
            self._links.add(link)
            link.add_done_callback(self._links.discard)

        try:
            self._servers[broker] = await asyncio.start_server(
                accept, *listen, limit=READ_BYTES, ssl=self._encryption.clients
            )
        except OSError as error:
            raise TapFailed(f"cannot listen on {listen[0]}:{listen[1]}: {error.strerror or error}") from None

    async def _connect(self, broker: Address) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
                return await asyncio.open_connection(*broker, limit=READ_BYTES, ssl=self._encryption.upstream)
        except ssl.SSLError as error:
            reason = getattr(error, "verify_message", None) or error.reason or error
            raise TapFailed(f"TLS handshake with {broker[0]}:{broker[1]} failed: {reason}") from None
        except (OSError, TimeoutError) as error:
            reason = getattr(error, "strerror", None) or "no answer"
            raise TapFailed(f"cannot reach {broker[0]}:{broker[1]}: {reason}") from None

    async def _carry(self, broker: Address, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            upstream_reader, upstream_writer = await self._connect(broker)
        except TapFailed:
            # Behaves as if the broker itself were unavailable.
            writer.close()
            return
        link = _Link(self, broker, next(self._connections), writer)
        pumps = [
            asyncio.ensure_future(_pump(reader, upstream_writer, link.take_request)),
            asyncio.ensure_future(_pump(upstream_reader, writer, link.take_answer)),
        ]
        try:
            done, _ = await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            link.lose("the client closed the connection" if pumps[0] in done else "the broker closed the connection")
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            writer.close()
            upstream_writer.close()

    # Shared by the links of all connections

    def note(self, line: Plain) -> None:
        self._observe(line)

    def next_call(self) -> int:
        return next(self._calls)

    def as_plain(self, api: str, message: Any) -> Plain | None:
        if message is None:
            return None
        return plain(api, message, with_contents=self._with_contents, topic_name=self._topics.get)

    def learn_topics(self, message: Any) -> None:
        for topic in message.topics:
            if topic.name is not None:
                self._topics[bytes(topic.topic_id)] = topic.name

    async def listener_for(self, broker: Address, seen_as: str) -> Address:
        """The address for reaching this broker through the tap, with the host name by which the client reached us."""
        if broker not in self._servers:
            await self._serve(broker, (self._listen[0], self._free_port()))
        return seen_as, self._servers[broker].sockets[0].getsockname()[1]

    def _free_port(self) -> int:
        """The port after the last one, so that a firewall can be configured; any free port if the first was chosen
        that way."""
        return self._listen[1] + len(self._servers) if self._listen[1] else 0


@dataclass(slots=True)
class _Asked:
    call: int
    header: RequestHeader


@dataclass(slots=True)
class _Link:
    """One client connection, with its unanswered calls."""

    tap: Tap
    broker: Address
    number: int
    client: asyncio.StreamWriter
    waiting: dict[int, _Asked] = field(default_factory=dict)
    is_opaque: bool = False
    """After a version 0 handshake, frames are not requests."""

    async def take_request(self, frame: memoryview) -> bytes | memoryview:
        if self.is_opaque or len(frame) < SHORTEST_REQUEST_BYTES:
            return frame
        header, message = read_request(frame)
        call = self.tap.next_call()
        peer = self.client.get_extra_info("peername")
        self.tap.note(
            {
                "type": "request", "call": call, "time": time.time(), "connection": self.number,
                "client": _text(peer[:2]), "client_id": header.client_id, "broker": _text(self.broker),
                "api": api_name(header.api_key), "version": header.api_version, "bytes": len(frame),
                "message": self.tap.as_plain(api_name(header.api_key), message),
            }
        )  # fmt: skip
        if header.api_key == ApiKey.PRODUCE and message is not None and message.acks == 0:
            return frame
        self.waiting[header.correlation_id] = _Asked(call, header)
        self.is_opaque = header.api_key == ApiKey.SASL_HANDSHAKE and header.api_version == 0
        return frame

    async def take_answer(self, frame: memoryview) -> bytes | memoryview:
        asked = self.waiting.pop(int.from_bytes(frame[:4], "big", signed=True), None)
        if asked is None:
            return frame
        header = asked.header
        message, version = read_answer(header.api_key, header.api_version, frame) or (None, 0)
        name = api_name(header.api_key)
        if header.api_key == ApiKey.METADATA and message is not None:
            self.tap.learn_topics(message)
        self.tap.note(
            {
                "type": "response", "call": asked.call, "time": time.time(), "bytes": len(frame),
                "message": self.tap.as_plain(name, message),
            }
        )  # fmt: skip
        if message is None:
            return frame
        if header.api_key == ApiKey.API_VERSIONS:
            changed = _limit_versions(message)
        else:
            changed = await self._move_addresses(message)
        if not changed:
            return frame
        pieces = response_frame(header.api_key, version, header.correlation_id, message)
        return memoryview(b"".join(pieces))[4:]

    async def _move_addresses(self, value: Any) -> bool:
        """Replaces every host and port in the answer by the tap's."""
        changed = False
        if isinstance(value, list):
            for each in value:
                if not hasattr(each, "__slots__"):
                    return False
                changed = await self._move_addresses(each) or changed
            return changed
        names = value.__slots__
        if "host" in names and "port" in names and value.port > 0:
            seen_as = asked_for(self.client.get_extra_info("ssl_object")) or self.client.get_extra_info("sockname")[0]
            address = await self.tap.listener_for((value.host, value.port), seen_as)
            value.host, value.port = address  # reach: a message of the wire
            changed = True
        for name in names:
            inner = getattr(value, name)
            if inner and (isinstance(inner, list) or hasattr(inner, "schema_name")):
                changed = await self._move_addresses(inner) or changed
        return changed

    def lose(self, why: str) -> None:
        for asked in self.waiting.values():
            self.tap.note({"type": "lost", "call": asked.call, "time": time.time(), "why": why})
        self.waiting.clear()


def _limit_versions(message: Any) -> bool:
    changed = False
    for api in message.api_keys:
        newest = newest_version(api.api_key)
        if newest is not None and api.max_version > newest:
            api.max_version, changed = newest, True
    return changed


def _text(address: Address) -> str:
    return f"{address[0]}:{address[1]}"


async def _pump(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    take: Callable[[memoryview], Awaitable[bytes | memoryview]],
) -> None:
    """Passes frames from one side to the other until one of them disconnects."""
    try:
        while True:
            size = int.from_bytes(await reader.readexactly(4), "big", signed=True)
            if not 0 <= size <= FRAME_BYTES_MAX:
                return
            frame = await take(memoryview(await reader.readexactly(size)))
            writer.writelines((len(frame).to_bytes(4, "big"), frame))
            await writer.drain()
    except (asyncio.IncompleteReadError, OSError):
        return
