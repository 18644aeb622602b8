"""API key -> handler: reads a request's header and body, calls its handler, and queues the answer on the connection."""

import struct
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from fencepost.broker.connection import Call, Connection, Staged
from fencepost.broker.events import HandlerFailed, MalformedRequest, TrailingBytesIgnored
from fencepost.promise import Promise
from fencepost.wire.catalog import API_VERSIONS, ApiKey, is_flexible
from fencepost.wire.codec import prefix_decoder
from fencepost.wire.errors import ErrorCode, KafkaError, MalformedMessage
from fencepost.wire.framing import read_known_header, read_request_header
from fencepost.wire.messages import ApiVersionsResponse

if TYPE_CHECKING:
    from fencepost.broker.node import Node

# More than any client asks of a full broker at once; each costs some microseconds of everybody's time.
REQUEST_ELEMENTS_MAX = 100_000
# Of so many kinds of client software the log says that they send trailing bytes; the counter counts them all.
TRAILING_SOFTWARE_MAX = 100
_API = struct.Struct(">HH")


class Handler(NamedTuple):
    function: "Callable[[Node, Call, Any], Any]"
    """Returns the response message, a Promise of it, or None where the request wants no answer."""
    pipelined: bool = False
    """The handler has passed its append point when it returns: the connection's next request may start."""


class _Route(NamedTuple):
    """How one API is read in one version, and who handles it."""

    function: "Callable[[Node, Call, Any], Any]"
    pipelined: bool
    has_header_tags: bool
    decode: Callable[[memoryview, int, int], tuple[Any, int]]


class Dispatcher:
    def __init__(self, node: "Node", handlers: dict[ApiKey, Handler]) -> None:
        assert handlers.keys() == API_VERSIONS.keys(), "advertised and handled APIs differ"
        self._node = node
        self._handlers = {int(key): handler for key, handler in handlers.items()}
        self._routes: dict[tuple[int, int], _Route] = {}
        self.calls = dict.fromkeys(self._handlers, 0)
        self.calls_with_trailing_bytes = dict.fromkeys(self._handlers, 0)
        self._trailing_software: set[str] = set()
        """Whose trailing bytes have been reported."""

    def handle(self, connection: Connection, frame: memoryview) -> None:
        """Handle one request. Whatever is wrong with it ends this connection and touches no other."""
        if connection.guard is not None and connection.guard.takes(frame):
            return
        if len(frame) < 8:
            self._malformed(connection, -1, -1, "request shorter than its header")
            return
        api_key, version = api = _API.unpack_from(frame)
        route = self._routes.get(api) or self._find_route(api_key, version)
        if route is None:
            self._unsupported(connection, frame, api_key, version)
            return
        function, pipelined, has_header_tags, decode = route
        try:
            correlation_id, client_id, body = read_known_header(frame, has_header_tags)
            request, end = decode(frame, body, REQUEST_ELEMENTS_MAX)
        except MalformedMessage as error:
            self._malformed(connection, api_key, version, str(error))
            return
        if end != len(frame):
            self._ignore_trailing_bytes(connection, api_key, version, client_id, len(frame) - end)
        self.calls[api_key] += 1
        call = Call(connection, api_key, version, correlation_id, client_id)
        try:
            answer = function(self._node, call, request)
        except MalformedMessage as error:
            self._malformed(connection, api_key, version, str(error))
            return
        except Exception as error:
            self.failed(call, error)
            return
        if type(answer) is Promise:
            connection.park(call, answer, gate=None if pipelined else answer)
        elif type(answer) is Staged:
            connection.park(call, answer.answer, gate=answer.appended)
        else:
            connection.answer(call, answer)

    def _find_route(self, api_key: int, version: int) -> _Route | None:
        """Made when a version is first asked for; None for what this broker does not speak."""
        handler = self._handlers.get(api_key)
        if handler is None:
            return None
        key = ApiKey(api_key)
        low, high = self._node.api_versions[key]
        if not low <= version <= high:
            return None
        decode = prefix_decoder(f"{key.camel_name}Request", version)
        route = _Route(handler.function, handler.pipelined, is_flexible(api_key, version), decode)
        self._routes[api_key, version] = route
        return route

    def _unsupported(self, connection: Connection, frame: memoryview, api_key: int, version: int) -> None:
        if api_key != ApiKey.API_VERSIONS:
            self._malformed(connection, api_key, version, "unsupported API or version")
            return
        # The one call that must be answered in any version: in the oldest form, with the versions that would do.
        try:
            header = read_request_header(frame, is_known=False)
        except MalformedMessage as error:
            self._malformed(connection, api_key, version, str(error))
            return
        call = Call(connection, api_key, 0, header.correlation_id, None)
        low, high = API_VERSIONS[ApiKey.API_VERSIONS]
        keys = [ApiVersionsResponse.ApiVersion(api_key=api_key, min_version=low, max_version=high)]
        connection.answer(call, ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=keys))

    def _ignore_trailing_bytes(
        self, connection: Connection, api_key: int, version: int, client_id: str | None, trailing_bytes: int
    ) -> None:
        """Some clients send more than their request; Apache Kafka does not look, and neither do we."""
        self.calls_with_trailing_bytes[api_key] += 1
        software = connection.software or "unknown"
        reported = self._trailing_software
        if software in reported or len(reported) >= TRAILING_SOFTWARE_MAX:
            return
        reported.add(software)
        api = ApiKey(api_key).camel_name
        self._node.events.emit(
            TrailingBytesIgnored(software, api, version, trailing_bytes, connection.peer_host, client_id)
        )

    def _malformed(self, connection: Connection, api_key: int, version: int, reason: str) -> None:
        self._node.events.emit(MalformedRequest(connection.number, connection.peer_host, api_key, version, reason))
        connection.close(reason)

    def failed(self, call: Call, error: Exception) -> None:
        """An error of ours, not of the client's: told in full to whoever runs the broker."""
        api = ApiKey(call.api_key).camel_name
        reason = str(error) if isinstance(error, KafkaError) else repr(error)
        trace = "".join(traceback.format_exception(error))
        self._node.events.emit(HandlerFailed(api, call.version, reason, trace))
        call.connection.close(f"{api} failed")
