"""Bytes <-> messages: readers and writers compiled from the schemas, per message and version, on first use.

Bounded: a length is compared with the bytes that are left before anything is allocated, unknown tagged fields are
skipped, and the number of array elements and tagged fields of one message is limited. Any input that does not fit its
schema raises MalformedMessage, nothing else.
"""

import struct
from collections.abc import Callable, Generator
from functools import cache
from typing import Any, TypeVar

from fencepost.ports import Buffer
from fencepost.wire.decoding import DecoderCompiler
from fencepost.wire.encoding import EncoderCompiler
from fencepost.wire.errors import MalformedMessage

M = TypeVar("M")
_LEADING_VERSION = struct.Struct(">h")

# Python objects are larger than their encoding: this limits the number of objects in one message.
MESSAGE_ELEMENTS_MAX = 1_000_000
# Parts of an encoded message of at least this size are passed on without a copy.
PART_BYTES_MIN = 4096
# The number of pieces joined in one step, when a message is encoded in steps.
PIECES_MAX = 1024


@cache
def decoder(name: str, version: int) -> Callable[[Buffer, int, int, list[int]], tuple[Any, int]]:
    return DecoderCompiler(name, version).compile()


@cache
def encoder(name: str, version: int) -> Callable[[Any, Callable[[Buffer], None]], None]:
    return EncoderCompiler(name, version).compile()


@cache
def decoder_in_steps(name: str, version: int) -> Callable[..., Generator[None, None, tuple[Any, int]]]:
    return DecoderCompiler(name, version, in_steps=True).compile()  # type: ignore[return-value]


@cache
def encoder_in_steps(name: str, version: int) -> Callable[[Any, Callable[[Buffer], None]], Generator[None, None, None]]:
    return EncoderCompiler(name, version, in_steps=True).compile()  # type: ignore[return-value]


def decode_in_steps(
    name: str, version: int, view: memoryview, offset: int, elements_max: int
) -> Generator[None, None, tuple[Any, int]]:
    """Like a prefix decoder, for messages that may be large: yields where it can be interrupted."""
    try:
        return (yield from decoder_in_steps(name, version)(view, offset, len(view), [elements_max]))
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise MalformedMessage(f"{name} v{version}: {error}") from None


@cache
def prefix_decoder(name: str, version: int) -> Callable[[memoryview, int, int], tuple[Any, int]]:
    """Reads a message at an offset, with a limited number of array elements. Returns the message and its end."""
    read = decoder(name, version)

    def decode_from(view: memoryview, offset: int, elements_max: int) -> tuple[Any, int]:
        try:
            return read(view, offset, len(view), [elements_max])
        except (struct.error, IndexError, UnicodeDecodeError) as error:
            raise MalformedMessage(f"{name} v{version}: {error}") from None

    return decode_from


def decode_prefix(
    cls: type[M], version: int, buffer: Buffer, offset: int = 0, elements_max: int = MESSAGE_ELEMENTS_MAX
) -> tuple[M, int]:
    """Returns the message at `offset` and its end."""
    view = buffer if type(buffer) is memoryview else memoryview(buffer)
    return prefix_decoder(cls.schema_name, version)(view, offset, elements_max)  # type: ignore[attr-defined]


def decode(cls: type[M], version: int, buffer: Buffer, offset: int = 0, elements_max: int = MESSAGE_ELEMENTS_MAX) -> M:
    """A message that fills the buffer from `offset` to its end."""
    message, end = decode_prefix(cls, version, buffer, offset, elements_max)
    if end != len(buffer):
        raise MalformedMessage(f"{cls.__name__} v{version}: {len(buffer) - end} extra bytes")
    return message


def encode_into(message: Any, version: int, append: Callable[[Buffer], None]) -> None:
    encoder(message.schema_name, version)(message, append)


def encode(message: Any, version: int) -> bytes:
    parts: list[Buffer] = []
    encode_into(message, version, parts.append)
    return b"".join(parts)


def encode_parts(message: Any, version: int) -> list[Buffer]:
    """The encoded message in pieces: small ones joined, large ones (records) as they are."""
    pieces: list[Buffer] = []
    encode_into(message, version, pieces.append)
    return join_small(pieces)


def encode_parts_in_steps(message: Any, version: int) -> Generator[None, None, list[Buffer]]:
    """The same for a message that may be large: yields where it can be interrupted."""
    parts: list[Buffer] = []
    pieces: list[Buffer] = []
    for _ in encoder_in_steps(message.schema_name, version)(message, pieces.append):
        if len(pieces) >= PIECES_MAX:
            parts += join_small(pieces)
            pieces.clear()
        yield
    return parts + join_small(pieces)


def join_small(pieces: list[Buffer]) -> list[Buffer]:
    parts: list[Buffer] = []
    run: list[Buffer] = []
    for piece in pieces:
        if len(piece) < PART_BYTES_MIN:
            run.append(piece)
            continue
        if run:
            parts.append(b"".join(run))
            run = []
        parts.append(piece)
    if run:
        parts.append(b"".join(run))
    return parts


def leading_version(data: Buffer) -> int:
    """The version in front of a key or value of an internal topic's record."""
    if len(data) < _LEADING_VERSION.size:
        raise MalformedMessage("a record of an internal topic without a version")
    (version,) = _LEADING_VERSION.unpack_from(data)
    return int(version)
