"""API key -> handler: reads a request's header and body, calls its handler, and queues the answer on the connection.

A large request is read, and its answer written, in slices (`slices.py`), and a handler may return a generator, to be
run in slices. Meanwhile the connection's next request waits.
"""

import struct
import traceback
from collections.abc import Callable
from functools import partial
from types import GeneratorType
from typing import TYPE_CHECKING, Any, NamedTuple

from fencepost.broker.connection import Call, Connection, LargeCall, Staged
from fencepost.broker.events import HandlerFailed, MalformedRequest, TrailingBytesIgnored
from fencepost.broker.handler import NEVER_SPLIT, Function, Handler
from fencepost.broker.slices import FREED_AT_ONCE, Steps, entries_of, let_go
from fencepost.broker.splitting import serve_in_parts
from fencepost.promise import Promise
from fencepost.wire.catalog import API_VERSIONS, ApiKey, is_flexible
from fencepost.wire.codec import decode_in_steps, prefix_decoder
from fencepost.wire.errors import ErrorCode, KafkaError, MalformedMessage
from fencepost.wire.framing import read_known_header, read_request_header, response_frame_in_steps
from fencepost.wire.messages import ApiVersionsResponse

if TYPE_CHECKING:
    from fencepost.broker.node import Node

# A larger request is read in slices. Of a Produce most bytes are records, which stay closed here: it is one with many
# entries, topics and partitions together, or with so many bytes that they cannot be written at once.
LARGE_REQUEST_BYTES = 8_192
LARGE_PRODUCE_ENTRIES = 250
LARGE_PRODUCE_BYTES = 4_194_304
# A request of that size is not copied to be read in slices: it keeps the buffer that it was received in.
KEPT_FRAME_BYTES_MIN = 262_144
# Of a request before the login: more than enough for every API that is allowed then.
STRANGERS_ELEMENTS_MAX = 1_000
# For how many kinds of client software the log mentions trailing bytes. The counter counts all of them.
TRAILING_SOFTWARE_MAX = 100
_API = struct.Struct(">HH")


class _Route(NamedTuple):
    """How one API is read in one version, and who handles it."""

    function: Function
    pipelined: bool
    has_header_tags: bool
    decode: Callable[[memoryview, int, int], tuple[Any, int]]
    bytes_max: int
    """A larger request is read in slices, and so is a Produce with more entries than `elements_at_once_max`."""
    elements_at_once_max: int
    elements_max: int


_Routes = dict[tuple[int, int], _Route]


class Dispatcher:
    def __init__(self, node: "Node", handlers: dict[ApiKey, Handler]) -> None:
        assert handlers.keys() == API_VERSIONS.keys(), "advertised and handled APIs differ"
        self._node = node
        self._slices = node.slices
        self._elements_max = node.config.request_elements_max
        self._handlers = {int(key): handler for key, handler in handlers.items()}
        self._routes: _Routes = {}
        self._strangers_routes: _Routes = {}
        self.calls = dict.fromkeys(self._handlers, 0)
        self.calls_with_trailing_bytes = dict.fromkeys(self._handlers, 0)
        self._large_bytes = 0
        """The size of all large requests that are being served."""
        self._trailing_software: set[str] = set()
        """Client software whose trailing bytes have been reported."""

    def handle(self, connection: Connection, frame: memoryview) -> None:
        """Handle one request. An error in it ends this connection and no other."""
        routes = self._routes
        if connection.admission is not None:
            if connection.admission.takes(frame):
                return
            if connection.admission.is_stranger:
                routes = self._strangers_routes
        size = len(frame)
        if size < 8:
            self._malformed(connection, -1, -1, "request shorter than its header")
            return
        api_key, version = api = _API.unpack_from(frame)
        route = routes.get(api) or self._find_route(api_key, version, routes)
        if route is None:
            self._unsupported(connection, frame, api_key, version)
            return
        function, pipelined, has_header_tags, decode, bytes_max, elements_max, _ = route
        try:
            correlation_id, client_id, body = read_known_header(frame, has_header_tags)
        except MalformedMessage as error:
            self._malformed(connection, api_key, version, str(error))
            return
        if size > bytes_max:
            self._handle_large(LargeCall(connection, api_key, version, correlation_id, client_id), route, frame, body)
            return
        try:
            request, end = decode(frame, body, elements_max)
        except MalformedMessage as error:
            if api_key == ApiKey.PRODUCE and size > LARGE_PRODUCE_ENTRIES:
                # It may be large rather than malformed. Reading it in slices shows which.
                large = LargeCall(connection, api_key, version, correlation_id, client_id)
                self._handle_large(large, route, frame, body)
            else:
                self._malformed(connection, api_key, version, str(error))
            return
        if end != size:
            self._ignore_trailing_bytes(connection, api_key, version, client_id, size - end)
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
        kind = type(answer)
        if kind is Promise:
            connection.park(call, answer, gate=None if pipelined else answer)
        elif kind is Staged:
            connection.park(call, answer.answer, gate=answer.appended)
        elif kind is GeneratorType:
            self._in_slices(call, self._served(call, pipelined, answer), size)
        else:
            connection.answer(call, answer)

    # Large ones

    def _handle_large(self, call: Call, route: _Route, frame: memoryview, body: int) -> None:
        if self._large_bytes + len(frame) > self._node.config.receive_buffers_max_bytes:
            call.connection.close("receive.buffers.max.bytes reached by large requests under way")
            return
        if len(frame) < KEPT_FRAME_BYTES_MIN:
            # Copied, because the next bytes of the connection are received into the same buffer.
            frame = memoryview(bytearray(frame))
        else:
            call.connection.keep_frame()
        steps = self._served_large(call, route, frame, body)
        self._in_slices(call, steps, len(frame))

    def _in_slices(self, call: Call, steps: "Steps[Promise[Any] | Staged]", received_bytes: int) -> None:
        """Answer what the steps return. What they raise ends the connection."""
        connection = call.connection
        shares = self._node.processor_shares
        if shares is not None:
            call.charge(shares.bill(connection.principal, connection.peer_host, received_bytes))
        appended: Promise[None] = Promise()
        reply: Promise[Any] = Promise()

        def failed(error: Exception) -> None:
            if isinstance(error, MalformedMessage):
                self._malformed(connection, call.api_key, call.version, str(error))
            else:
                self.failed(call, error)

        def served(answer: Promise[Any] | Staged) -> None:
            if type(answer) is Staged:
                answer.answer.then(reply.resolve)
                answer.appended.then(appended.resolve)
            else:
                assert type(answer) is Promise
                answer.then(reply.resolve)
                answer.then(lambda _: appended.resolve(None))

        is_wanted = (lambda: not connection.is_closed) if self._handlers[call.api_key].reads_only else None
        try:
            result = self._slices.run(steps, failed, is_wanted, bill=call.bill)
        except Exception as error:
            failed(error)
            return
        result.then(served)
        connection.park(call, reply, gate=appended)

    def _served_large(self, call: Call, route: _Route, frame: memoryview, body: int) -> "Steps[Promise[Any] | Staged]":
        self._large_bytes += len(frame)
        entries: list[Any] = []
        try:
            answer = yield from self._read_and_served(call, route, frame, body, entries)
        finally:
            self._large_bytes -= len(frame)
        self._let_go_later(call, entries)
        return answer

    def _read_and_served(
        self, call: Call, route: _Route, frame: memoryview, body: int, entries: list[Any]
    ) -> "Steps[Promise[Any] | Staged]":
        """`entries` keeps the parts of the request alive, so that they are not all freed at once."""
        name = f"{ApiKey(call.api_key).camel_name}Request"
        connection = call.connection
        request, end = yield from decode_in_steps(name, call.version, frame, body, route.elements_max)
        if end != len(frame):
            self._ignore_trailing_bytes(connection, call.api_key, call.version, call.client_id, len(frame) - end)
        self.calls[call.api_key] += 1
        yield None
        entries += entries_of(request)
        shape = self._handlers[call.api_key].shape_of(request)
        answer: Any
        if shape is None or shape.part_entries == NEVER_SPLIT:
            answer = route.function(self._node, call, request)
        else:
            answer = yield from serve_in_parts(shape, request, partial(route.function, self._node, call))
        return (yield from self._served(call, route.pipelined, answer))

    def _served(self, call: Call, pipelined: bool, answer: Any) -> "Steps[Promise[Any] | Staged]":
        """The handler's answer, its message encoded in slices."""
        if type(answer) is GeneratorType:
            answer = yield from answer
        if type(answer) is Staged:
            return Staged(answer.appended, self._encoded_later(call, answer.answer))
        if type(answer) is Promise:
            later = self._encoded_later(call, answer)
            return Staged(Promise.resolved(None), later) if pipelined else later
        return Promise.resolved((yield from self._encoded(call, answer)))

    def _encoded_later(self, call: Call, answer: Promise[Any]) -> Promise[Any]:
        encoded: Promise[Any] = Promise()

        def answered(message: Any) -> None:
            try:
                steps = self._encoded(call, message)
                self._slices.run(steps, partial(self.failed, call), bill=call.bill).then(encoded.resolve)
            except Exception as error:
                self.failed(call, error)

        answer.then(answered)
        return encoded

    def _encoded(self, call: Call, message: Any) -> "Steps[Any]":
        if message is None or type(message) is list:
            return message
        bill = call.bill
        if bill is not None:
            clock = self._node.clock
            throttle_time_ms = bill.answering(clock.cpu_ns(), clock.monotonic_ms())
            if throttle_time_ms and hasattr(message, "throttle_time_ms"):
                message.throttle_time_ms = throttle_time_ms
        frame = yield from response_frame_in_steps(call.api_key, call.version, call.correlation_id, message)
        if bill is not None:
            bill.sent(sum(map(len, frame)))
        self._let_go_later(call, entries_of(message))
        return frame

    def _let_go_later(self, call: Call, entries: list[Any]) -> None:
        if len(entries) > FREED_AT_ONCE:
            self._slices.run(let_go(entries), partial(self.failed, call), starts_at_once=False)

    def _find_route(self, api_key: int, version: int, routes: _Routes) -> _Route | None:
        """Made for the first request of a version; None for a version that this broker does not speak."""
        handler = self._handlers.get(api_key)
        if handler is None:
            return None
        key = ApiKey(api_key)
        low, high = self._node.api_versions[key]
        if not low <= version <= high:
            return None
        decode = prefix_decoder(f"{key.camel_name}Request", version)
        limits = (LARGE_REQUEST_BYTES, self._elements_max, self._elements_max)
        if routes is self._strangers_routes:
            limits = (LARGE_REQUEST_BYTES, STRANGERS_ELEMENTS_MAX, STRANGERS_ELEMENTS_MAX)
        elif key is ApiKey.PRODUCE:
            limits = (LARGE_PRODUCE_BYTES, LARGE_PRODUCE_ENTRIES, self._elements_max)
        route = _Route(handler.function, handler.pipelined, is_flexible(api_key, version), decode, *limits)
        routes[api_key, version] = route
        return route

    def _unsupported(self, connection: Connection, frame: memoryview, api_key: int, version: int) -> None:
        if api_key != ApiKey.API_VERSIONS:
            self._malformed(connection, api_key, version, "unsupported API or version")
            return
        # The one call that is answered in any version: in the oldest form, with the versions that are supported.
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
        """Some clients send more bytes than their request has. Apache Kafka ignores them, too."""
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
        """An error of the broker's, not of the client's: the event feed gets all of it."""
        api = ApiKey(call.api_key).camel_name
        reason = str(error) if isinstance(error, KafkaError) else repr(error)
        trace = "".join(traceback.format_exception(error))
        self._node.events.emit(HandlerFailed(api, call.version, reason, trace))
        call.connection.close(f"{api} failed")
