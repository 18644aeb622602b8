"""From bytes to a batch with a right CRC and anything in it, at the end of a log that a broker then opens.

Damage is found by the CRC; this is about what it does not find. Records of `__transaction_state` and
`__consumer_offsets` above all, which the coordinators read at every start, and control batches among records.
"""

import random
import struct

from fencepost.simulation.disk import SimulatedDisk
from fencepost.simulation.node import DATA_DIRECTORY
from fencepost.wire.batch import assemble_batch, encode_record, iterate_headers
from tests.fuzz.damage import Damage, DamagedMachine
from tests.fuzz.directory import image

TARGETS = ("__transaction_state-0", "__consumer_offsets-0", "payments-0")
_HEAD = struct.Struct(">BBB")
_LENGTH = struct.Struct(">H")
ATTRIBUTES = (0, 0, 0, 0x10, 0x30, 0x20, 1, 2, 3, 4)


class Extended(DamagedMachine):
    def __init__(self, data: bytes) -> None:
        head = data.ljust(_HEAD.size, b"\0")
        path = last_log(TARGETS[head[0] % len(TARGETS)])
        super().__init__(Damage("stopped", path, ()))
        self.unknown_from = extend(self.machine.disk, path, data)


def run(data: bytes) -> None:
    Extended(data).run()


def last_log(directory: str) -> str:
    return [path for path in image("stopped").paths() if f"/{directory}/" in path and path.endswith(".log")][-1]


def extend(disk: SimulatedDisk, path: str, data: bytes) -> int:
    """Add a batch to a log; its offset."""
    _, attributes, count = _HEAD.unpack_from(data.ljust(_HEAD.size, b"\0"))
    content = disk.read_bytes(path)
    last = [header for _, header in iterate_headers(content)][-1]
    records = _records(data[_HEAD.size :])
    body = b"".join(records)
    batch = assemble_batch(
        body,
        base_offset=last.next_offset,
        partition_leader_epoch=last.partition_leader_epoch,
        attributes=ATTRIBUTES[attributes % len(ATTRIBUTES)],
        last_offset_delta=max(len(records) - 1, 0),
        base_timestamp=last.max_timestamp,
        max_timestamp=last.max_timestamp,
        producer_id=count % 4 - 1,
        producer_epoch=0 if count % 4 else -1,
        base_sequence=-1,
        record_count=count // 4 if count >= 200 else len(records),
    )
    disk.write_bytes(path, content + bytes(batch))
    disk.sync_file_system(DATA_DIRECTORY)
    return last.next_offset


def _records(data: bytes) -> list[bytes]:
    """Keys and values, each with its length in front; a length of 65535 means none. What is left over is raw."""
    fields: list[bytes | None] = []
    position = 0
    while position + _LENGTH.size <= len(data) and len(fields) < 16:
        (size,) = _LENGTH.unpack_from(data, position)
        position += _LENGTH.size
        fields.append(None if size == 0xFFFF else data[position : position + size])
        position += 0 if size == 0xFFFF else size
    pairs = [tuple(fields[at : at + 2]) for at in range(0, len(fields) - 1, 2)]
    return [encode_record(at, 0, pair[0], pair[1], ()) for at, pair in enumerate(pairs)]


def pack(target: int, attributes: int, count: int, fields: list[bytes | None]) -> bytes:
    lengths = b"".join(_LENGTH.pack(0xFFFF) if field is None else _LENGTH.pack(len(field)) + field for field in fields)
    return _HEAD.pack(target, attributes, count) + lengths


def first_inputs() -> list[bytes]:
    """The records that are there already, whole and cut, and markers."""
    from fencepost.wire.records import read_records

    source = random.Random(1)
    made = []
    for target, directory in enumerate(TARGETS):
        content = image("stopped").disk.read_bytes(last_log(directory))
        view = memoryview(content)
        for position, header in iterate_headers(view):
            batch = view[position : position + header.size_bytes]
            for record in read_records(batch, 1 << 20):
                fields = [record.key, record.value]
                attributes = 4 if header.is_control else 3 if header.is_transactional else 0
                made.append(pack(target, attributes, 1, fields))
                cut = [None if field is None else field[: source.randrange(len(field) + 1)] for field in fields]
                made.append(pack(target, attributes, 1, cut))
    return made
