"""Accepts connections of a TLS listener, each with the current certificates.

The listener accepts connections itself, because the event loop would not tell whose handshake failed.
"""

import asyncio
import socket
import ssl
from collections import Counter

from fencepost.broker.events import AuthenticationFailed, ConnectionRefused
from fencepost.shell.server import LISTEN_BACKLOG, BrokerProtocol, Connections
from fencepost.shell.tls import TlsKeys

ACCEPTED_AT_ONCE_MAX = 64
ACCEPT_PAUSE_SECONDS = 0.1
"""After the system could not accept, most often for want of descriptors."""


class TlsListener:
    def __init__(self, connections: Connections, name: str, bound: socket.socket, keys: TlsKeys) -> None:
        """On a socket that is bound already."""
        self._connections = connections
        self._loop = connections.loop
        self._name = name
        self._bound = bound
        self._keys = keys
        self._handshakes: dict[asyncio.Task[None], str] = {}
        """Under way, with the host of each. They count against the limits of connections."""
        self._hosts: Counter[str] = Counter()
        self._resuming: asyncio.TimerHandle | None = None
        bound.setblocking(False)
        bound.listen(LISTEN_BACKLOG)
        self._loop.add_reader(bound.fileno(), self._accept)

    def close(self) -> None:
        if self._bound.fileno() >= 0:
            self._loop.remove_reader(self._bound.fileno())
            self._bound.close()
        if self._resuming is not None:
            self._resuming.cancel()
        for task in self._handshakes:
            task.cancel()

    def _accept(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE_MAX):
            try:
                accepted, address = self._bound.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:
                self._loop.remove_reader(self._bound.fileno())
                self._resuming = self._loop.call_later(ACCEPT_PAUSE_SECONDS, self._resume)
                return
            host = address[0]
            reason = self._connections.refusal(host, len(self._handshakes), self._hosts[host])
            if reason is not None:
                self._connections.node.events.emit(ConnectionRefused(host, reason))
                accepted.close()
                continue
            accepted.setblocking(False)
            task = self._loop.create_task(self._shake_hands(accepted, host))
            self._handshakes[task] = host
            self._hosts[host] += 1
            task.add_done_callback(self._done)

    def _resume(self) -> None:
        self._loop.add_reader(self._bound.fileno(), self._accept)

    async def _shake_hands(self, accepted: socket.socket, host: str) -> None:
        node = self._connections.node
        try:
            await self._loop.connect_accepted_socket(
                lambda: BrokerProtocol(self._connections, self._name),
                accepted,
                ssl=self._keys.context,
                ssl_handshake_timeout=node.config.authentication_timeout_ms / 1000,
            )
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            pass  # a client that just hangs up gives no reason
        except ssl.SSLError as error:
            node.events.emit(AuthenticationFailed(0, host, self._name, "TLS", str(error)))
        except OSError:
            pass  # gone, or too slow

    def _done(self, task: asyncio.Task[None]) -> None:
        host = self._handshakes.pop(task)
        self._hosts[host] -= 1
        if not self._hosts[host]:
            del self._hosts[host]
