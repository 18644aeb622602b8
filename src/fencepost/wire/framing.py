"""Request and response headers, and length-prefixed frames. Bodies are encoded by `codec`."""

import struct
from collections.abc import Generator
from functools import cache
from typing import Any, NamedTuple, TypeVar

from fencepost.ports import Buffer
from fencepost.wire.catalog import ApiKey, is_flexible
from fencepost.wire.codec import PART_BYTES_MIN, decode, encode_into, encode_parts_in_steps, encoder, join_small
from fencepost.wire.errors import MalformedMessage

_HEADER = struct.Struct(">hhih")
_HEADER_BYTES = _HEADER.size
_PREFIX = struct.Struct(">ii")
CLIENT_ID_BYTES_MAX = 4096
# No client sends any, but one could.
HEADER_TAGS_MAX = 100

M = TypeVar("M")


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body: int
    """Where the body starts in the frame."""


def read_request_header(frame: memoryview, is_known: bool = True) -> RequestHeader:
    """The header of a frame. For an unknown API or version (`is_known` false) only the fixed part can be trusted."""
    try:
        api_key, version, correlation_id, _ = _HEADER.unpack_from(frame)
    except struct.error:
        raise MalformedMessage("request shorter than its header") from None
    if not is_known:
        return RequestHeader(api_key, version, correlation_id, None, len(frame))
    return RequestHeader(api_key, version, *read_known_header(frame, is_flexible(api_key, version)))


def read_known_header(frame: memoryview, flexible: bool) -> tuple[int, str | None, int]:
    """The correlation id, the client id and the start of the body of a frame with a known API and version."""
    try:
        _, _, correlation_id, length = _HEADER.unpack_from(frame)
    except struct.error:
        raise MalformedMessage("request shorter than its header") from None
    end = _HEADER_BYTES
    client_id = None
    if length >= 0:
        end += length
        if end > len(frame) or length > CLIENT_ID_BYTES_MAX:
            raise MalformedMessage("client id longer than the request")
        try:
            client_id = str(frame[_HEADER_BYTES:end], "utf-8")
        except UnicodeDecodeError:
            raise MalformedMessage("client id is not UTF-8") from None
    elif length != -1:
        raise MalformedMessage("negative length of client id")
    if flexible:
        end = end + 1 if end < len(frame) and not frame[end] else _skip_tags(frame, end)
    return correlation_id, client_id, end


def _skip_tags(frame: memoryview, position: int) -> int:
    try:
        count, position = _uvarint(frame, position)
        if count > HEADER_TAGS_MAX:
            raise MalformedMessage("too many tagged fields in the header")
        for _ in range(count):
            _, position = _uvarint(frame, position)
            size, position = _uvarint(frame, position)
            position += size
            if position > len(frame):
                raise MalformedMessage("tagged field longer than the request")
    except IndexError:
        raise MalformedMessage("truncated tagged fields") from None
    return position


def _uvarint(frame: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 35, 7):
        byte = frame[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise MalformedMessage("unsigned varint of more than 5 bytes")


@cache
def _has_response_tags(api_key: int, version: int) -> bool:
    # ApiVersions responses have the oldest header, so that clients can read them before they know the versions.
    return api_key != ApiKey.API_VERSIONS and is_flexible(api_key, version)


def response_frame(api_key: int, version: int, correlation_id: int, message: Any) -> list[Buffer]:
    """A complete response with its length, in pieces to be written."""
    pieces: list[Buffer] = [b"", b"\0"] if _has_response_tags(api_key, version) else [b""]
    encoder(message.schema_name, version)(message, pieces.append)
    size = 4 + sum(map(len, pieces))
    pieces[0] = _PREFIX.pack(size, correlation_id)
    return [b"".join(pieces)] if size < PART_BYTES_MIN else join_small(pieces)


def response_frame_in_steps(
    api_key: int, version: int, correlation_id: int, message: Any
) -> Generator[None, None, list[Buffer]]:
    """The same for a message that may be large: yields where it can be interrupted."""
    parts = yield from encode_parts_in_steps(message, version)
    tags = b"\0" if _has_response_tags(api_key, version) else b""
    size = 4 + len(tags) + sum(map(len, parts))
    return [_PREFIX.pack(size, correlation_id) + tags, *parts]


def request_frame(api_key: int, version: int, correlation_id: int, client_id: str | None, message: Any) -> list[Buffer]:
    name = b"" if client_id is None else client_id.encode()
    header = _HEADER.pack(api_key, version, correlation_id, -1 if client_id is None else len(name)) + name
    pieces: list[Buffer] = [b"", header]
    if is_flexible(api_key, version):
        pieces.append(b"\0")
    encode_into(message, version, pieces.append)
    pieces[0] = struct.pack(">i", sum(map(len, pieces)))
    return join_small(pieces)


def read_response(cls: type[M], api_key: int, version: int, frame: Buffer) -> tuple[int, M]:
    """The correlation id and the message of a response frame (without its length)."""
    view = memoryview(frame)
    if len(view) < 4:
        raise MalformedMessage("response shorter than its header")
    position = 4
    if _has_response_tags(api_key, version):
        position = _skip_tags(view, position)
    return int.from_bytes(view[:4], "big", signed=True), decode(cls, version, view, position)
