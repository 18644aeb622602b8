"""From bytes to a damaged data directory, and from a started broker to a verdict.

The bytes are what a fuzzer mutates: how the broker ended, which file, and a list of edits. Whatever they are, they mean
some damage. The verdict is the property under test: the broker starts or refuses with a reason, everything that was not
touched is served as before, and nothing is served that was never written.
"""

import copy
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fencepost.broker.events import HandlerFailed
from fencepost.broker.node import Node
from fencepost.broker.storage import WrongDirectory
from fencepost.log.side_files import META_PROPERTIES, CorruptSideFile
from fencepost.metadata.log_files import METADATA_DIRECTORY
from fencepost.metadata.records import UnreadableMetadata
from fencepost.simulation.disk import SimulatedDisk
from fencepost.wire.batch import build_batch, iterate_headers
from fencepost.wire.catalog import ApiKey
from fencepost.wire.errors import ErrorCode, KafkaError, MalformedMessage
from fencepost.wire.messages import FindCoordinatorRequest, OffsetFetchRequest
from tests.durability.scene import EARLIEST, LATEST, Client
from tests.durability.transactional import READ_COMMITTED, committed_in
from tests.fuzz.directory import (
    GROUP,
    PARTITIONS,
    WAYS_TO_END,
    copy_of,
    data_values_in,
    image,
    partition_of,
)

_HEAD = struct.Struct(">BH")
_EDIT = struct.Struct(">BIB")
EDITS_MAX = 8
READS_MAX = 400
# Told apart from everything else by who gets them: the reader of the damaged place.
DAMAGE_CODES = {
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.OFFSET_OUT_OF_RANGE,
}
COORDINATOR_CODES = {
    ErrorCode.NONE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
}
# Without these two a broker does not know who it is or what it has: it may refuse to start, and must say why.
MAY_REFUSE = (META_PROPERTIES, METADATA_DIRECTORY)


@dataclass(frozen=True, slots=True)
class Damage:
    way: str
    path: str
    edits: tuple[tuple[int, int, int], ...]
    """Kind, place, value."""

    @classmethod
    def from_bytes(cls, data: bytes) -> "Damage":
        way, file = _HEAD.unpack_from(data.ljust(_HEAD.size, b"\0"))
        made = WAYS_TO_END[way % len(WAYS_TO_END)]
        paths = image(made).paths()
        body = data[_HEAD.size :]
        edits = [_EDIT.unpack_from(body, at) for at in range(0, len(body) - _EDIT.size + 1, _EDIT.size)]
        return cls(made, paths[file % len(paths)], tuple(edits[:EDITS_MAX]))

    def to_bytes(self) -> bytes:
        head = _HEAD.pack(WAYS_TO_END.index(self.way), image(self.way).paths().index(self.path))
        return head + b"".join(_EDIT.pack(*edit) for edit in self.edits)

    def apply(self, disk: SimulatedDisk) -> None:
        content = bytearray(disk.read_bytes(self.path))
        for kind, place, value in self.edits:
            _edit(content, kind % 6, place, value)
        disk.write_bytes(self.path, bytes(content))
        disk.sync_file_system(self.path)


def _edit(content: bytearray, kind: int, place: int, value: int) -> None:
    at = place % (len(content) + 1)
    if kind == 0 and content:
        content[at % len(content)] ^= 1 << value % 8
    elif kind == 1 and content:
        content[at % len(content)] = value
    elif kind == 2:
        del content[at:]
    elif kind == 3:  # a page that was never written, or that the disk lost
        end = min(at + 1 + 2 * value, len(content))
        content[at:end] = bytes(end - at)
    elif kind == 4:
        content += bytes([value]) * (1 + place % 512)
    elif kind == 5 and len(content) > 1:  # a piece again, where another should be
        size = 1 + value % min(64, len(content))
        source = place // 7 % len(content)
        piece = content[source : source + size]
        content[at : at + len(piece)] = piece


NOTHING_UNKNOWN = 1 << 62


class Refused(Exception):
    """The broker did not start, and said why."""


class DamagedMachine:
    """A machine with one damaged file, started, and asked for everything."""

    def __init__(self, damage: Damage) -> None:
        self.damage = damage
        self.machine, self.content = copy_of(damage.way)
        damage.apply(self.machine.disk)
        self.failures: list[HandlerFailed] = []
        self.harmed = partition_of(damage.path)
        self.unknown_from = NOTHING_UNKNOWN
        """Records of the harmed partition from here on are not judged: the damage consists of them."""

    def run(self) -> None:
        try:
            self._start()
        except Refused:
            return
        client = Client(self.machine)
        self._check_topics(client)
        for at in PARTITIONS:
            self._check_partition(client, at)
        self._check_offsets(client)
        self._check_writes(client)
        self.machine.scheduler.run_for(70_000)  # checkpoints, retention and cleaning meet the damage too
        self._check_partition(Client(self.machine), ("canary", 0))
        assert not self.failures, self.failures[0].traceback
        # What was repaired is repaired for good.
        self.machine.stop()
        self._start()
        for at in PARTITIONS:
            self._check_partition(Client(self.machine), at)
        assert not self.failures, self.failures[0].traceback
        self.machine.crash()

    def _start(self) -> None:
        machine = self.machine
        machine.watch = self._watch  # type: ignore[method-assign]
        try:
            machine.start()
        except (CorruptSideFile, WrongDirectory, UnreadableMetadata) as error:
            machine.crash()
            if not any(name in self.damage.path for name in MAY_REFUSE) or not str(error):
                raise
            raise Refused from error
        machine.scheduler.run_for(100)

    def _watch(self, node: Node) -> None:
        node.events.subscribe(lambda event: self.failures.append(event) if isinstance(event, HandlerFailed) else None)

    # What must still be said

    def _is_harmed(self, at: tuple[str, int]) -> bool:
        return self.harmed == at or METADATA_DIRECTORY in self.damage.path

    def _check_topics(self, client: Client) -> None:
        if METADATA_DIRECTORY not in self.damage.path:
            assert client.topics().keys() >= {topic for topic, _ in PARTITIONS}

    def _check_partition(self, client: Client, at: tuple[str, int]) -> None:
        if at[0] not in self.machine.node.metadata.topics:
            assert METADATA_DIRECTORY in self.damage.path
            return
        for isolation_level in (0, READ_COMMITTED):
            self._check_reads(client, at, isolation_level)

    def _check_reads(self, client: Client, at: tuple[str, int], isolation_level: int) -> None:
        content, is_harmed = self.content, self._is_harmed(at)
        expected: dict[int, Any] = content.committed[at] if isolation_level else content.records[at]
        seen: dict[int, Any] = {}
        log_start = client.offset(*at, EARLIEST)
        end = client.offset(*at, LATEST)
        assert is_harmed or (log_start, end) == (min(content.records[at]) if at[0] != "stock" else 0, end)
        is_whole = True
        offset = max(log_start, 0)
        for _ in range(READS_MAX):
            answer = client.fetch(at[0], {at[1]: offset}, isolation_level=isolation_level, partition_max_bytes=700)
            data = answer.responses[0].partitions[0]
            if data.error_code:
                assert is_harmed, f"{at} answers {data.error_code} at {offset}"
                assert data.error_code in DAMAGE_CODES, data.error_code
                is_whole = False
                offset += 1
                if offset >= end:
                    break
                continue
            if not data.records:
                break
            assert len(data.records) < 1 << 20
            headers = [header for _, header in iterate_headers(memoryview(data.records))]
            assert headers[-1].next_offset > offset, "a reader would ask for the same again"
            try:
                found = committed_in(data, offset) if isolation_level else data_values_in(data.records)
            except (KafkaError, MalformedMessage):
                # A right checksum over something that is no records: brokers serve it unopened, and clients refuse it.
                assert is_harmed, f"{at} serves what nobody can read"
                assert headers[-1].next_offset > self.unknown_from, f"{at} serves what nobody can read"
                found = []
            for record_offset, value in found:
                if is_harmed and record_offset >= self.unknown_from:
                    continue
                assert record_offset in expected, f"{at} has a record at {record_offset} that was never to be seen"
                assert value == expected[record_offset], f"{at} serves {value!r} at {record_offset}"
            seen.update((place, value) for place, value in found if place >= offset)
            offset = headers[-1].next_offset
        else:
            raise AssertionError(f"{at}: reading does not come to an end")
        if not is_harmed:
            assert is_whole
            assert seen == expected, f"{at} was not touched and has lost {expected.keys() - seen.keys()}"

    def _check_offsets(self, client: Client) -> None:
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP])
        (found,) = client.socket.call(ApiKey.FIND_COORDINATOR, 4, request).coordinators
        assert found.error_code in COORDINATOR_CODES, found
        if found.error_code:
            assert self._is_harmed(("__consumer_offsets", 0)), found
            return
        wanted = OffsetFetchRequest.OffsetFetchRequestGroup
        topics = [wanted.OffsetFetchRequestTopics(name="orders", partition_indexes=[0])]
        request = OffsetFetchRequest(groups=[wanted(group_id=GROUP, topics=topics)], require_stable=True)
        (group,) = client.socket.call(ApiKey.OFFSET_FETCH, 8, request).groups
        assert group.error_code in COORDINATOR_CODES, group
        if group.error_code:
            assert self._is_harmed(("__consumer_offsets", 0)), group
            return
        (one,) = group.topics[0].partitions
        assert one.error_code in COORDINATOR_CODES, one
        if not self._is_harmed(("__consumer_offsets", 0)):
            assert (one.error_code, one.committed_offset) == (0, self.content.offsets[0]), one
        elif one.error_code == 0 and self.unknown_from == NOTHING_UNKNOWN:
            assert one.committed_offset in {-1, *self.content.offsets_ever[0]}, one

    def _check_writes(self, client: Client) -> None:
        for topic, partition in PARTITIONS:
            if topic not in self.machine.node.metadata.topics:
                continue
            key = b"oranges" if topic == "stock" else None
            value = b"after the damage"
            batch = build_batch([(self.machine.clock.wall_ms(), key, value, ())])
            answer = client.produced(client.send(topic, {partition: batch}))
            if answer.error_code:
                assert self._is_harmed((topic, partition)), answer
                assert answer.error_code in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (
                    answer
                )
                continue
            offset = answer.base_offset
            self._remember(topic, partition, offset, value)

    def _remember(self, topic: str, partition: int, offset: int, value: bytes) -> None:
        if self.content is image(self.damage.way).content:
            self.content = copy.deepcopy(self.content)
        is_readable = (topic, partition) != ("payments", 1)  # a transaction is open there
        for known in (self.content.records, self.content.committed) if is_readable else (self.content.records,):
            if self._is_harmed((topic, partition)):  # what was cut off may be written over
                kept = known[topic, partition].items()
                known[topic, partition] = {at: one for at, one in kept if at < offset}
            known[topic, partition][offset] = value


def run(data: bytes) -> None:
    DamagedMachine(Damage.from_bytes(data)).run()


def systematic(way: str) -> Iterator[Damage]:
    """Of every file: emptied, cut, zeroed, doubled; and single bits of it."""
    for path in image(way).paths():
        size = image(way).disk.size(path)
        yield Damage(way, path, ((2, 0, 0),))
        yield Damage(way, path, ((2, size // 2, 0),))
        yield Damage(way, path, ((2, max(size - 1, 0), 0),))
        yield Damage(way, path, ((3, 0, 255),))
        yield Damage(way, path, ((3, size // 2, 20),))
        yield Damage(way, path, ((4, 100, 0),))
        yield Damage(way, path, ((4, 100, 0xFF),))
        yield Damage(way, path, ((5, size // 3, 40),))
        step = max(1, size // 40)
        for place in range(0, size, step):
            yield Damage(way, path, ((0, place, place // step),))
