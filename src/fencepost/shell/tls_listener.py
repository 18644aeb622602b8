"""Accepts connections of a TLS listener: each under the certificates that are there when it comes."""

import asyncio
import socket
import ssl
import weakref
from typing import Any

from fencepost.broker.events import AuthenticationFailed
from fencepost.shell.server import LISTEN_BACKLOG, BrokerProtocol, Connections
from fencepost.shell.tls import TlsKeys, WatchedHandshake


class CurrentContext(ssl.SSLContext):
    """Stands for the context of the moment, where the event loop wants one for the life of a listener.

    Handshakes that are under way count against max.connections too.
    """

    keys: TlsKeys
    connections: Connections
    handshakes: "weakref.WeakSet[Any]"

    @classmethod
    def of(cls, keys: TlsKeys, connections: Connections) -> "CurrentContext":
        made = cls(ssl.PROTOCOL_TLS_SERVER)
        made.keys, made.connections, made.handshakes = keys, connections, weakref.WeakSet()
        return made

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        if len(self.handshakes) + len(self.connections.open) >= self.connections.limits.total:
            raise ssl.SSLError(self.connections.total_reached)
        made = self.keys.context.wrap_bio(*arguments, **options)
        assert isinstance(made, WatchedHandshake)
        made.on_failure = self._failed
        self.handshakes.add(made)
        return made

    def _failed(self, reason: str) -> None:
        self.connections.node.events.emit(AuthenticationFailed(0, "", self.keys.listener, "TLS", reason))


class TlsBrokerProtocol(BrokerProtocol):
    __slots__ = ("_handshakes",)

    def __init__(self, connections: Connections, listener: str, handshakes: "weakref.WeakSet[Any]") -> None:
        super().__init__(connections, listener)
        self._handshakes = handshakes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._handshakes.discard(transport.get_extra_info("ssl_object"))
        super().connection_made(transport)


async def listen_with_tls(connections: Connections, name: str, bound: socket.socket, keys: TlsKeys) -> asyncio.Server:
    """Accept connections of one TLS listener on a socket that is bound already."""
    context = CurrentContext.of(keys, connections)
    return await connections.loop.create_server(
        lambda: TlsBrokerProtocol(connections, name, context.handshakes),
        sock=bound,
        backlog=LISTEN_BACKLOG,
        ssl=context,
        ssl_handshake_timeout=connections.node.config.authentication_timeout_ms / 1000,
    )
