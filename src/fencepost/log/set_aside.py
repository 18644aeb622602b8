"""Keeps what is removed from a damaged log: whole segments, or truncated bytes, as `*.damaged`.

Such files stay in the partition's directory until an operator removes them. No broker reads them.
"""

from collections.abc import Iterator
from itertools import count

from fencepost.log.directory import LogDirectory
from fencepost.log.file_names import LOG_SUFFIX, offset_name
from fencepost.log.indexes import RELATIVE_OFFSET_MAX
from fencepost.wire.batch import (
    BATCH_LENGTH_MIN,
    CURRENT_MAGIC,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_POSITION,
    BatchHeader,
    verify_crc,
)

DAMAGED_SUFFIX = ".damaged"
_COPIED_BYTES = 1 << 20
_MAGIC = bytes([CURRENT_MAGIC])


def ends_of_batches(tail: bytes, first: int) -> Iterator[int]:
    """The offsets after each undamaged batch in damaged bytes, which were assigned once."""
    view = memoryview(tail)
    position = 0
    while position + HEADER_BYTES <= len(tail):
        header = BatchHeader._make(HEADER.unpack_from(tail, position))
        size = LOG_OVERHEAD_BYTES + header.batch_length
        if (
            header.magic == CURRENT_MAGIC
            and header.batch_length >= BATCH_LENGTH_MIN
            and position + size <= len(tail)
            and header.last_offset_delta >= 0
            and first <= header.base_offset <= first + RELATIVE_OFFSET_MAX
            and verify_crc(view, position, header)
        ):
            yield header.next_offset
            position += size
        else:
            magic = tail.find(_MAGIC, position + MAGIC_POSITION + 1)
            if magic < 0:
                return
            position = magic - MAGIC_POSITION


def ends_set_aside(directory: LogDirectory, base: int, first: int) -> Iterator[int]:
    """The same for bytes set aside before, for example by an interrupted repair."""
    for name in directory.names():
        if name.startswith(offset_name(base, LOG_SUFFIX)) and name.endswith(DAMAGED_SUFFIX):
            yield from ends_of_batches(directory.disk.read_bytes(directory.path_of(name)), first)


def _names_aside(base: int) -> Iterator[str]:
    yield offset_name(base, LOG_SUFFIX) + DAMAGED_SUFFIX
    for number in count(2):
        yield f"{offset_name(base, LOG_SUFFIX)}.{number}{DAMAGED_SUFFIX}"


def free_name(directory: LogDirectory, base: int) -> str:
    return next(name for name in _names_aside(base) if not directory.disk.exists(directory.path_of(name)))


def set_bytes_aside(directory: LogDirectory, base: int, tail: bytes) -> str:
    """Writes the removed bytes to a file. An existing file with the same bytes is from an interrupted attempt."""
    disk = directory.disk
    for name in _names_aside(base):
        path = directory.path_of(name)
        if not disk.exists(path):
            break
        if disk.size(path) == len(tail) and disk.read_bytes(path) == tail:
            return name
    unfinished = path + ".tmp"
    file = disk.open(unfinished, create=True)
    file.truncate(0)
    for start in range(0, len(tail), _COPIED_BYTES):
        file.write(start, tail[start : start + _COPIED_BYTES])
    file.sync()
    file.close()
    disk.rename(unfinished, path)
    directory.sync()
    return name
