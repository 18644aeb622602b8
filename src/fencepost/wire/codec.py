"""Bytes <-> messages: readers and writers compiled from the schemas, per message and version, on first use.

Bounded: a length is compared with the bytes that are left before anything is allocated, unknown tagged fields are
skipped, and the number of array elements of one message is limited. Any input that does not fit its schema raises
MalformedMessage, nothing else.
"""

import struct
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from fencepost.ports import Buffer
from fencepost.wire.decoding import DecoderCompiler
from fencepost.wire.encoding import EncoderCompiler
from fencepost.wire.errors import MalformedMessage

M = TypeVar("M")

# Python objects are larger than their bytes: this bounds what one message may unfold to, whatever its size.
MESSAGE_ELEMENTS_MAX = 1_000_000
# Parts of an encoded message at least this large are passed on uncopied.
PART_BYTES_MIN = 4096


@cache
def decoder(name: str, version: int) -> Callable[[Buffer, int, int, list[int]], tuple[Any, int]]:
    return DecoderCompiler(name, version).compile()


@cache
def encoder(name: str, version: int) -> Callable[[Any, Callable[[Buffer], None]], None]:
    return EncoderCompiler(name, version).compile()


def decode_prefix(
    cls: type[M], version: int, buffer: Buffer, offset: int = 0, elements_max: int = MESSAGE_ELEMENTS_MAX
) -> tuple[M, int]:
    """A message at `offset` and where it ends."""
    view = buffer if isinstance(buffer, memoryview) else memoryview(buffer)
    try:
        read = decoder(cls.schema_name, version)  # type: ignore[attr-defined]
        return read(view, offset, len(view), [elements_max])
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise MalformedMessage(f"{cls.__name__} v{version}: {error}") from None


_SPARE_BYTES = {"AlterUserScramCredentialsRequest": 1}
"""librdkafka ends this one with a byte too many, and Apache Kafka does not look."""


@cache
def whole_decoder(name: str, version: int) -> Callable[[memoryview, int, int], Any]:
    """Reads a message that fills a buffer from an offset to its end, of at most so many array elements."""
    read = decoder(name, version)
    spare_bytes = _SPARE_BYTES.get(name, 0)

    def decode_whole(view: memoryview, offset: int, elements_max: int) -> Any:
        size = len(view)
        try:
            message, end = read(view, offset, size, [elements_max])
        except (struct.error, IndexError, UnicodeDecodeError) as error:
            raise MalformedMessage(f"{name} v{version}: {error}") from None
        if size - end > spare_bytes:
            raise MalformedMessage(f"{name} v{version}: {size - end} bytes too many")
        return message

    return decode_whole


def decode(cls: type[M], version: int, buffer: Buffer, offset: int = 0, elements_max: int = MESSAGE_ELEMENTS_MAX) -> M:
    """A message that fills the buffer from `offset` to its end."""
    view = buffer if type(buffer) is memoryview else memoryview(buffer)
    return whole_decoder(cls.schema_name, version)(view, offset, elements_max)  # type: ignore[attr-defined, no-any-return]


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
