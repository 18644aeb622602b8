"""The four compression codecs of record batches, as Kafka's clients use them, with a limit on the output.

Bytes in, bytes out. Declared sizes are never trusted: output grows in chunks and stops at the
limit. Knows nothing of records or batches.
"""

import enum
import sys
import zlib
from collections.abc import Callable
from typing import Any, NoReturn

import cramjam
import lz4.frame

from fencepost.ports import Buffer
from fencepost.wire.errors import ErrorCode, KafkaError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CHUNK_BYTES_MIN = 64 * 1024
_EXPECTED_RATIO = 4
_STREAMS_MAX = 1_000
"""Formats that may be strung together; producers write one, and every further one copies what is left."""
_GZIP_WINDOW_BITS = 31
_GZIP_MAGIC = b"\x1f\x8b"

# Snappy as Kafka's Java client frames it (snappy-java's stream), against raw snappy that other clients may send.
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_BYTES = 32 * 1024
_SNAPPY_EXPANSION_MAX = 22
"""Raw snappy's densest element makes 64 bytes of 3."""

_LZ4_FAST_LEVEL = 9
"""Kafka's default level; it means the fast compressor, every other level the thorough one."""
_LZ4_LEVEL_MAX = 12

_ZSTD_WINDOW_LOG_MIN = 23
_ZSTD_WINDOW_LOG_MAX = 27


class Codec(enum.IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


CODEC_OF_COMPRESSION_TYPE = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
"""`compression.type` of a topic; `producer` is not in it."""


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """`level` as in `compression.<codec>.level`; None is Kafka's default."""
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            compressor = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, _GZIP_WINDOW_BITS)
            return compressor.compress(data) + compressor.flush()
        case Codec.SNAPPY:
            return _compress_snappy(data)
        case Codec.LZ4:
            thorough = level is not None and level != _LZ4_FAST_LEVEL
            # Java's reader takes neither linked blocks nor dictionaries.
            framed: bytes = lz4.frame.compress(
                data,
                compression_level=min(level, _LZ4_LEVEL_MAX) if thorough and level is not None else 0,
                block_size=lz4.frame.BLOCKSIZE_MAX64KB,
                block_linked=False,
                store_size=False,
            )
            return framed
        case Codec.ZSTD:
            packed: bytes = zstd.compress(data, 3 if level is None else level)
            return packed
        case _:
            _refuse_codec(codec)


def decompress(codec: int, data: Buffer, max_bytes: int) -> bytes:
    """KafkaError: INVALID_RECORD for data that is not what it claims, MESSAGE_TOO_LARGE for more than `max_bytes`."""
    match codec:
        case Codec.NONE:
            if len(data) > max_bytes:
                _refuse_size(codec, max_bytes)
            return bytes(data)
        case Codec.GZIP:
            return _decompress_gzip(data, max_bytes)
        case Codec.SNAPPY:
            return _decompress_snappy(data, max_bytes)
        case Codec.LZ4:
            return _decompress_frames(Codec.LZ4, data, max_bytes, lz4.frame.LZ4FrameDecompressor, RuntimeError)
        case Codec.ZSTD:
            window_log = min(max(max_bytes.bit_length(), _ZSTD_WINDOW_LOG_MIN), _ZSTD_WINDOW_LOG_MAX)
            options: dict[int, int] = {zstd.DecompressionParameter.window_log_max: window_log}
            return _decompress_frames(
                Codec.ZSTD, data, max_bytes, lambda: zstd.ZstdDecompressor(options=options), zstd.ZstdError
            )
        case _:
            _refuse_codec(codec)


def _compress_snappy(data: Buffer) -> bytes:
    parts = [_XERIAL_HEADER]
    with memoryview(data) as view:
        for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
            block = bytes(cramjam.snappy.compress_raw(bytes(view[start : start + _XERIAL_BLOCK_BYTES])))
            parts += (len(block).to_bytes(4, "big"), block)
    return b"".join(parts)


def _decompress_gzip(data: Buffer, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    produced = 0
    pending: Buffer = data
    chunk = _first_chunk(len(data))
    try:
        for _ in range(_STREAMS_MAX):
            stream = zlib.decompressobj(_GZIP_WINDOW_BITS)
            while not stream.eof:
                part = stream.decompress(pending, min(chunk, max_bytes - produced + 1))
                pending = stream.unconsumed_tail
                if not part and not pending and not stream.eof:
                    _refuse_data(Codec.GZIP, "it ends early")
                parts.append(part)
                produced += len(part)
                if produced > max_bytes:
                    _refuse_size(Codec.GZIP, max_bytes)
                chunk *= 2
            pending = stream.unused_data
            if not pending:
                return b"".join(parts)
            if not pending.startswith(_GZIP_MAGIC):
                _refuse_data(Codec.GZIP, f"{len(pending)} bytes follow its end")
        _refuse_data(Codec.GZIP, f"more than {_STREAMS_MAX} members")
    except zlib.error as error:
        _refuse_data(Codec.GZIP, str(error))


def _decompress_frames(
    codec: Codec, data: Buffer, max_bytes: int, new_stream: Callable[[], Any], failure: type[Exception]
) -> bytes:
    """lz4 and zstd: both libraries stream with the same calls. Neither format has to say its size."""
    parts: list[bytes] = []
    produced = 0
    pending = bytes(data)
    chunk = _first_chunk(len(data))
    try:
        for _ in range(_STREAMS_MAX):
            stream = new_stream()
            while not stream.eof:
                part = stream.decompress(pending, max_length=min(chunk, max_bytes - produced + 1))
                pending = b""
                if not part and not stream.eof and stream.needs_input:
                    _refuse_data(codec, "it ends early")
                parts.append(part)
                produced += len(part)
                if produced > max_bytes:
                    _refuse_size(codec, max_bytes)
                chunk *= 2
            pending = stream.unused_data or b""
            if not pending:
                return parts[0] if len(parts) == 1 else b"".join(parts)
        _refuse_data(codec, f"more than {_STREAMS_MAX} frames")
    except (failure, EOFError) as error:
        _refuse_data(codec, str(error))


def _decompress_snappy(data: Buffer, max_bytes: int) -> bytes:
    with memoryview(data) as view:
        if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
            return _decompress_raw_snappy(bytes(view), max_bytes)
        if len(view) < _XERIAL_HEADER_BYTES:
            _refuse_data(Codec.SNAPPY, "its header is cut off")
        parts: list[bytes] = []
        produced = 0
        position = _XERIAL_HEADER_BYTES
        while position < len(view):
            if bytes(view[position : position + len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC:
                position += _XERIAL_HEADER_BYTES  # streams may be strung together
                continue
            length = int.from_bytes(view[position : position + 4], "big", signed=True)
            position += 4
            if length < 0 or position + length > len(view):
                _refuse_data(Codec.SNAPPY, f"a block of {length} bytes, {len(view) - position} are left")
            part = _decompress_raw_snappy(bytes(view[position : position + length]), max_bytes - produced)
            parts.append(part)
            produced += len(part)
            position += length
        return b"".join(parts)


def _decompress_raw_snappy(block: bytes, max_bytes: int) -> bytes:
    declared = shift = 0
    for byte in block[:5]:
        declared |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    else:
        _refuse_data(Codec.SNAPPY, "its length is cut off")
    if declared > len(block) * _SNAPPY_EXPANSION_MAX:
        _refuse_data(Codec.SNAPPY, f"{len(block)} bytes cannot unpack to the {declared} they declare")
    if declared > max_bytes:
        _refuse_size(Codec.SNAPPY, max_bytes)
    try:
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        _refuse_data(Codec.SNAPPY, str(error))


def _first_chunk(compressed_bytes: int) -> int:
    return max(CHUNK_BYTES_MIN, compressed_bytes * _EXPECTED_RATIO)


def _refuse_codec(codec: int) -> NoReturn:
    raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"unknown compression codec {codec}")


def _refuse_data(codec: Codec, reason: str) -> NoReturn:
    raise KafkaError(ErrorCode.INVALID_RECORD, f"records cannot be decompressed with {codec.name.lower()}: {reason}")


def _refuse_size(codec: int, max_bytes: int) -> NoReturn:
    raise KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE, f"records decompressed with {Codec(codec).name.lower()} exceed {max_bytes} bytes"
    )
