"""A node that clients can connect to: its connections, what listeners ask of them, and the handlers of requests."""

from collections.abc import Callable, Mapping

from fencepost.broker.connection import Connection
from fencepost.broker.dispatch import Dispatcher
from fencepost.broker.handlers import all_handlers
from fencepost.broker.node import Node, Ports
from fencepost.broker.rights import with_rights
from fencepost.broker.security.listener_security import ListenerSecurity
from fencepost.ports import Buffer
from fencepost.security_config import ListenerConfig


class ServingNode(Node):
    def __init__(self, ports: Ports, data_directory: str, start_settings: Mapping[str, str]) -> None:
        super().__init__(ports, data_directory, start_settings)
        handlers = all_handlers()
        if self.authorizer is not None:
            handlers = with_rights(handlers, self.authorizer)
        self._dispatcher = Dispatcher(self, handlers)
        self.handle = self._dispatcher.handle
        """Takes a connection and a request. An error in it ends this connection and no other."""
        self._securities: dict[str, ListenerSecurity] = {}
        self._connections = 0

    def connect(
        self,
        peer_host: str,
        listener: str,
        write: Callable[[list[Buffer]], None],
        close: Callable[[str], None],
        certificate: bytes | None = None,
    ) -> Connection:
        """`certificate` is the client's, already verified. Raises PermissionError if it names nobody."""
        self._connections += 1
        connection = Connection(
            self._connections,
            peer_host,
            listener,
            self.scheduler,
            write,
            close,
            self._dispatcher.failed,
            self.config.pipelined_requests_max,
            self.config.socket_request_max_bytes,
        )
        security = self._securities.get(listener)
        if security is not None:
            security.protect(connection, certificate)
        return connection

    def secure(self, listener: str) -> ListenerSecurity | None:
        """What a listener asks of its clients, by the settings; None if nothing. Raises InvalidSetting."""
        config = ListenerConfig(listener, self.start_settings)
        if config.protocol == "PLAINTEXT":
            return None
        self._securities[listener] = ListenerSecurity(self, config)
        return self._securities[listener]

    @property
    def calls(self) -> Mapping[int, int]:
        """Requests handled, by API key."""
        return self._dispatcher.calls

    @property
    def calls_with_trailing_bytes(self) -> Mapping[int, int]:
        """Requests that had bytes behind them which were ignored, by API key."""
        return self._dispatcher.calls_with_trailing_bytes
