"""Accepts connections of a TLS listener: counted against the limits from the first byte on, then as any other."""

import asyncio
import socket
import ssl
from typing import cast

from fencepost.broker.events import AuthenticationFailed, ConnectionRefused
from fencepost.shell.server import LISTEN_BACKLOG, BrokerProtocol, Connections
from fencepost.shell.tls import TlsKeys

_UNREAD_BYTES = 4_096


class TlsHandshake(asyncio.Protocol):
    """One connection until its handshake is done, for no longer than authentication.timeout.ms."""

    def __init__(self, connections: Connections, listener: str, keys: TlsKeys) -> None:
        self._connections = connections
        self._listener = listener
        self._keys = keys
        self._host = ""
        self._transport: asyncio.Transport | None = None
        self.task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self._host = peer[0] if isinstance(peer, tuple) else "local"
        reason = self._connections.refusal(self._host)
        if reason is not None:
            self._connections.node.events.emit(ConnectionRefused(self._host, reason))
            transport.abort()
            return
        # What arrives is for the handshake.
        transport.pause_reading()
        self._transport = transport
        self._connections.begin_handshake(self, self._host)
        self.task = self._connections.loop.create_task(self._shake_hands(transport))

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    async def _shake_hands(self, transport: asyncio.Transport) -> None:
        node, loop = self._connections.node, self._connections.loop
        protocol = TlsBrokerProtocol(self._connections, self._listener)
        failure, secured = "", None
        try:
            secured = await loop.start_tls(
                transport,
                protocol,
                self._keys.context,
                server_side=True,
                ssl_handshake_timeout=node.config.authentication_timeout_ms / 1000,
            )
        except (OSError, ssl.SSLError) as error:
            failure = str(error) or type(error).__name__
            transport.abort()
        finally:
            self._connections.end_handshake(self, self._host)
        if secured is not None:
            protocol.begin(secured)
        elif failure:
            node.events.emit(AuthenticationFailed(0, self._host, self._listener, "TLS", failure))


class TlsBrokerProtocol(BrokerProtocol):
    """The first bytes may come before the end of the handshake is known here: they wait."""

    __slots__ = ("_has_begun", "_has_too_much", "_is_lost")

    def __init__(self, connections: Connections, listener: str) -> None:
        super().__init__(connections, listener)
        self._has_begun = self._has_too_much = self._is_lost = False

    def begin(self, transport: asyncio.Transport) -> None:
        self._has_begun = True
        if self._is_lost or transport.is_closing():
            return
        self.connection_made(transport)
        if self._has_too_much:
            self.drop("more than a first request before the first answer")
        else:
            self._process()

    def get_buffer(self, sizehint: int) -> memoryview:
        view = super().get_buffer(sizehint)
        if len(view) or self._has_begun:
            return view
        self._has_too_much = True
        return memoryview(bytearray(_UNREAD_BYTES))

    def buffer_updated(self, count: int) -> None:
        if self._has_begun:
            super().buffer_updated(count)
        elif not self._has_too_much:
            self._end += count

    def connection_lost(self, error: Exception | None) -> None:
        self._is_lost = True
        super().connection_lost(error)


async def listen_with_tls(connections: Connections, name: str, bound: socket.socket, keys: TlsKeys) -> asyncio.Server:
    """Accept connections of one TLS listener on a socket that is bound already."""
    return await connections.loop.create_server(
        lambda: TlsHandshake(connections, name, keys), sock=bound, backlog=LISTEN_BACKLOG
    )
