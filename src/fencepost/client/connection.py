"""One connection to one broker: frames, correlation ids, pipelining, version negotiation, timeouts.

Kafka answers the requests of a connection in order, so pending requests form a queue. A request that times out closes
the connection, because every later answer would wait for the missing one. Knows nothing of topics or leaders.
"""

import asyncio
import collections
import ssl
import struct
from typing import Any, Generic, NamedTuple, TypeVar

from fencepost.client.apis import API_VERSIONS, Api
from fencepost.client.errors import (
    BrokerUnreachable,
    NotAKafkaBroker,
    NotTrusted,
    RequestTimedOut,
    UnsupportedByBroker,
)
from fencepost.client.kafka_types import format_address
from fencepost.client.options import CONNECT_TIMEOUT_MS
from fencepost.client.security import PLAINTEXT, Security
from fencepost.version import __version__
from fencepost.wire import messages
from fencepost.wire.codec import decode
from fencepost.wire.errors import ErrorCode, MalformedMessage
from fencepost.wire.framing import read_response, request_frame

Q = TypeVar("Q")
R = TypeVar("R")

RESPONSE_MAX_BYTES = 512 * 1024 * 1024
RECEIVE_BUFFER_BYTES = 64 * 1024
SESSION_SHARE = 0.85
"""A session with a limited lifetime is replaced after this share of it."""
_TLS_RECORDS = (0x15, 0x16)
_LENGTH = struct.Struct(">i")
_CORRELATION_ID = struct.Struct(">i")


class SentRequest(NamedTuple, Generic[R]):
    """A request that waits for its answer."""

    api: Api[Any, R]
    version: int
    waiting: "asyncio.Future[memoryview]"


class Connection:
    """Made by `connect`. `call` may be used by many tasks at once; their requests are pipelined."""

    def __init__(self, address: str, protocol: "_Frames", client_id: str) -> None:
        self.address = address
        self._client_id = client_id
        self.broker_versions: dict[int, tuple[int, int]] = {}
        self.features: dict[str, int] = {}
        self.supported_features: dict[str, tuple[int, int]] = {}
        self.features_epoch = -1
        self._protocol = protocol
        self._next_correlation_id = 0
        self._usable_until = float("inf")

    @property
    def is_open(self) -> bool:
        return self._protocol.is_open

    @property
    def is_usable(self) -> bool:
        """Open, and its session does not expire soon: the broker closes connections with expired sessions (KIP-368)."""
        return self._protocol.is_open and asyncio.get_running_loop().time() < self._usable_until

    def rename(self, client_id: str) -> None:
        """Use this client id from the next request on."""
        self._client_id = client_id

    def retire(self) -> None:
        """Close once every request is answered."""
        self._protocol.retire()

    def version_of(self, api: Api[Any, Any]) -> int:
        """The newest version both sides speak."""
        theirs = self.broker_versions.get(api.key)
        if theirs is None or not self.offers(api):
            raise UnsupportedByBroker(self.address, api.name, api.versions, theirs)
        return min(theirs[1], api.version_max)

    def offers(self, api: Api[Any, Any]) -> bool:
        theirs = self.broker_versions.get(api.key)
        return theirs is not None and theirs[1] >= api.version_min and theirs[0] <= api.version_max

    async def call(self, api: Api[Q, R], request: Q, timeout_ms: int) -> R:
        return await self.answer(self.send(api, request), timeout_ms)

    def send(self, api: Api[Q, R], request: Q) -> "SentRequest[R]":
        """Sends a request immediately. The caller must then wait for the `answer`."""
        version = self.version_of(api)
        return SentRequest(api, version, self._send(api, request, version))

    async def answer(self, sent: "SentRequest[R]", timeout_ms: int) -> R:
        api, version, waiting = sent
        frame = await self._wait_for(api, waiting, timeout_ms)
        try:
            return read_response(api.response, api.key, version, frame)[1]  # type: ignore[no-any-return]
        except MalformedMessage as error:
            reason = f"its answer to {api.name} {version} is malformed: {error}"
            self.abort(reason)
            raise NotAKafkaBroker(self.address, reason) from None

    def _send(self, api: Api[Any, Any], request: Any, version: int) -> "asyncio.Future[memoryview]":
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        frame = request_frame(api.key, version, correlation_id, self._client_id, request)
        return self._protocol.send(correlation_id, frame)

    async def _wait_for(self, api: Api[Any, Any], waiting: "asyncio.Future[memoryview]", timeout_ms: int) -> memoryview:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await waiting
        except TimeoutError:
            error = RequestTimedOut(self.address, api.name, timeout_ms)
            self.abort(str(error))
            raise error from None

    async def negotiate(self, timeout_ms: int) -> None:
        """Asks which versions the broker supports. One that does not know our version answers in version 0 with error
        35."""
        version = API_VERSIONS.version_max
        request = messages.ApiVersionsRequest(client_software_name="fencepost", client_software_version=__version__)
        while True:
            frame = await self._wait_for(API_VERSIONS, self._send(API_VERSIONS, request, version), timeout_ms)
            answer = self._decode_api_versions(frame, version)
            if answer.error_code != ErrorCode.UNSUPPORTED_VERSION:
                break
            if version == 0:
                raise NotAKafkaBroker(self.address, "it refuses every version of ApiVersions")
            # An old broker lists the versions it knows; if it lists nothing, try the oldest version.
            offered = [key.max_version for key in answer.api_keys if key.api_key == API_VERSIONS.key]
            version = min(offered[0], version - 1) if offered else 0
        if answer.error_code != ErrorCode.NONE:
            raise NotAKafkaBroker(self.address, f"ApiVersions is answered with error {answer.error_code}")
        self.broker_versions = {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys}
        self.features = {feature.name: feature.max_version_level for feature in answer.finalized_features}
        self.supported_features = {
            feature.name: (feature.min_version, feature.max_version) for feature in answer.supported_features
        }
        self.features_epoch = answer.finalized_features_epoch

    async def authenticate(self, security: Security, timeout_ms: int) -> None:
        # Imported here because most clients do not authenticate.
        from fencepost.client.sasl import authenticate

        lifetime_ms = await authenticate(self, security, timeout_ms)
        if lifetime_ms > 0:
            self._usable_until = asyncio.get_running_loop().time() + lifetime_ms / 1000 * SESSION_SHARE

    def _decode_api_versions(self, frame: memoryview, version: int) -> messages.ApiVersionsResponse:
        # The header of this one answer is never flexible, and a refused version is answered in version 0.
        body = frame[_CORRELATION_ID.size :]
        try:
            if version > 0 and len(body) >= 2 and struct.unpack_from(">h", body)[0] == ErrorCode.UNSUPPORTED_VERSION:
                return decode(messages.ApiVersionsResponse, 0, body)
            return decode(messages.ApiVersionsResponse, version, body)
        except MalformedMessage as error:
            raise NotAKafkaBroker(self.address, f"its answer to ApiVersions is malformed: {error}") from None

    def abort(self, reason: str) -> None:
        self._protocol.fail(reason)

    async def close(self) -> None:
        await self._protocol.close()


async def connect(
    host: str, port: int, client_id: str, timeout_ms: int = CONNECT_TIMEOUT_MS, security: Security = PLAINTEXT
) -> Connection:
    """Opens a connection, authenticates and negotiates versions.

    Raises BrokerUnreachable, NotTrusted, NotAKafkaBroker or AuthenticationFailed.
    """
    address = format_address(host, port)
    loop = asyncio.get_running_loop()
    server_hostname = None if security.tls is None else host
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            _, protocol = await loop.create_connection(
                lambda: _Frames(address), host, port, ssl=security.tls, server_hostname=server_hostname
            )
    except TimeoutError:
        raise BrokerUnreachable(address, f"no connection within {timeout_ms} ms") from None
    except ssl.SSLError as error:
        raise NotTrusted(address, _tls_reason(error)) from None
    except ConnectionError as error:
        handshaking = security.tls is not None and not isinstance(error, ConnectionRefusedError)
        reason = (
            "it closed the connection during the TLS handshake; does the listener use TLS?"
            if handshaking
            else _reason(error)
        )
        raise BrokerUnreachable(address, reason) from None
    except OSError as error:
        raise BrokerUnreachable(address, _reason(error)) from None
    connection = Connection(address, protocol, client_id)
    try:
        try:
            await connection.negotiate(timeout_ms)
        except BrokerUnreachable as error:
            # A broker that is shutting down does this, and so does a listener that expects TLS from a plain client.
            hint = f"is the listener's security.protocol {security.protocol.value}, or one with TLS?"
            raise BrokerUnreachable(address, f"{error.reason} before the first answer; {hint}") from None
        if security.mechanism:
            await connection.authenticate(security, timeout_ms)
    except RequestTimedOut:
        raise NotAKafkaBroker(address, f"it accepted the connection but sent nothing for {timeout_ms} ms") from None
    except BaseException:
        connection.abort("negotiation failed")
        raise
    return connection


def _tls_reason(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    return (error.reason or str(error)).lower().replace("_", " ")


def _reason(error: OSError) -> str:
    if isinstance(error, ConnectionRefusedError) or "Connect call failed" in str(error):
        return "connection refused"
    return (error.strerror or str(error)).lower()


class _Frames(asyncio.BufferedProtocol):
    """Splits the byte stream into frames and passes each to the oldest pending request."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.is_open = False
        self._transport: asyncio.Transport | None = None
        self._waiting: collections.deque[tuple[int, asyncio.Future[memoryview]]] = collections.deque()
        self._reason = "the connection was closed"
        self._closed: asyncio.Future[None] | None = None
        self._received = bytearray(RECEIVE_BUFFER_BYTES)
        self._received_bytes = 0
        # A frame larger than the receive buffer is received in place: no copy of a large fetch.
        self._large: memoryview | None = None
        self._large_bytes = 0
        self._is_retired = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._closed = asyncio.get_running_loop().create_future()
        self.is_open = True

    def send(self, correlation_id: int, parts: list[Any]) -> "asyncio.Future[memoryview]":
        if not self.is_open or self._transport is None:
            raise BrokerUnreachable(self.address, self._reason)
        waiting: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        self._waiting.append((correlation_id, waiting))
        self._transport.writelines(parts)
        return waiting

    def get_buffer(self, sizehint: int) -> Any:
        if self._large is not None:
            return self._large[self._large_bytes :]
        return memoryview(self._received)[self._received_bytes :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._large is not None:
            self._large_bytes += nbytes
            if self._large_bytes == len(self._large):
                frame, self._large = self._large, None
                self._answer(frame)
            return
        self._received_bytes += nbytes
        self._cut_frames()

    def _cut_frames(self) -> None:
        position, end = 0, self._received_bytes
        while end - position >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._received, position)
            if not _CORRELATION_ID.size <= length <= RESPONSE_MAX_BYTES:
                if self._received[position] in _TLS_RECORDS and self._received[position + 1] == 3:
                    self.fail("its listener uses TLS: set security.protocol to SSL or SASL_SSL")
                    return
                self.fail(f"it sent a frame of {length} bytes, which is not Kafka's protocol")
                return
            start = position + _LENGTH.size
            if start + length <= end:
                self._answer(memoryview(bytes(self._received[start : start + length])))
                position = start + length
            elif _LENGTH.size + length > RECEIVE_BUFFER_BYTES:
                self._large = memoryview(bytearray(length))
                self._large_bytes = end - start
                self._large[: self._large_bytes] = memoryview(self._received)[start:end]
                position = end
                break
            else:
                break
        self._received[: end - position] = self._received[position:end]
        self._received_bytes = end - position

    def _answer(self, frame: memoryview) -> None:
        (correlation_id,) = _CORRELATION_ID.unpack_from(frame)
        if not self._waiting or self._waiting[0][0] != correlation_id:
            self.fail(f"it answered request {correlation_id} out of order")
            return
        _, waiting = self._waiting.popleft()
        if not waiting.done():
            waiting.set_result(frame)
        if self._is_retired:
            self.retire()

    def retire(self) -> None:
        self._is_retired = True
        if not self._waiting and self._transport is not None:
            self._transport.close()

    def fail(self, reason: str) -> None:
        if self.is_open:
            self._reason = reason
            self.is_open = False
            assert self._transport is not None
            self._transport.abort()
        self._fail_waiting()

    def _fail_waiting(self) -> None:
        waiting, self._waiting = self._waiting, collections.deque()
        for _, future in waiting:
            if not future.done():
                future.set_exception(BrokerUnreachable(self.address, self._reason))
                # If the caller was cancelled before it could wait, there is no error to report.
                future.exception()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.is_open:
            self._reason = "the connection was closed" if exc is None else str(exc).lower()
        self.is_open = False
        self._fail_waiting()
        if self._closed is not None and not self._closed.done():
            self._closed.set_result(None)

    async def close(self) -> None:
        self.is_open = False
        if self._transport is not None:
            self._transport.close()
        if self._closed is not None:
            await self._closed
