"""Record batches made by hand, right or wrong on purpose, and read back header by header."""

import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import crc32c

HEADER = struct.Struct(">qiibIhiqqqhii")
CRC_STARTS_AT = 21
TRANSACTIONAL, CONTROL = 0x10, 0x20
# Recent, so that no broker's retention takes the records away under a test; fixed, so that two brokers get the same.
RECENTLY_MS = int(time.time() * 1000) - 120_000


@dataclass(frozen=True, slots=True)
class BatchHeader:
    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def compression(self) -> int:
        return self.attributes & 7


def read_headers(content: bytes) -> Iterator[BatchHeader]:
    """The headers of the whole batches; a fetch may end in the middle of one."""
    position = 0
    while position + HEADER.size <= len(content):
        header = BatchHeader(*HEADER.unpack_from(content, position))
        end = position + 12 + header.length
        if end > len(content):
            return
        assert crc32c.crc32c(content[position + CRC_STARTS_AT : end]) == header.crc
        yield header
        position = end


def batch(
    values: Sequence[bytes | None] = (b"value",),
    *,
    key: bytes | None = b"key",
    base_offset: int = 0,
    magic: int = 2,
    attributes: int = 0,
    timestamp: int = RECENTLY_MS,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    record_count: int | None = None,
    last_offset_delta: int | None = None,
    body: bytes | None = None,
    length_error: int = 0,
    crc_error: int = 0,
) -> bytes:
    """One batch; the arguments that end in `_error` and the counts let it lie about itself."""
    records = b"".join(_record(n, key, value) for n, value in enumerate(values)) if body is None else body
    count = len(values) if record_count is None else record_count
    last = count - 1 if last_offset_delta is None else last_offset_delta
    checked = struct.pack(
        ">hiqqqhii", attributes, last, timestamp, timestamp, producer_id, producer_epoch, base_sequence, count
    )
    checked += records
    crc = crc32c.crc32c(checked) ^ crc_error
    rest = struct.pack(">ibI", -1, magic, crc) + checked
    return struct.pack(">qi", base_offset, len(rest) + length_error) + rest


def _record(offset_delta: int, key: bytes | None, value: bytes | None) -> bytes:
    body = b"\0" + _zigzag(0) + _zigzag(offset_delta)
    for content in (key, value):
        body += _zigzag(-1) if content is None else _zigzag(len(content)) + content
    body += _zigzag(0)
    return _zigzag(len(body)) + body


def _zigzag(value: int) -> bytes:
    value = value << 1 ^ value >> 63
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
