"""The transactional requests the benchmark sends, written by hand, and scripts of them for native/transactions.c.

Owns: one fixed version of each request, all of the protocol that every Python client speaks (TV1), and the layout of
a script file. It measures nothing.
"""

import struct
import time
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import crc32c

from bench.wire import Connection, RequestFailed, frame, string, unsigned_varint, varint

PRODUCE, FETCH, FIND_COORDINATOR, INIT_PRODUCER_ID, ADD_PARTITIONS, END = 0, 1, 10, 22, 24, 26
ALTER_CONFIGS, LIST_TRANSACTIONS = 44, 66
OPENS, WRITES, ENDS = 0, 1, 2
RETRIABLE = frozenset({14, 15, 16, 51})
PIPELINED = 100
READY_TIMEOUT_SECONDS = 60.0
BATCH_HEADER_BYTES = 61
TRANSACTIONAL = 0x10
READ_COMMITTED = 1


@dataclass(frozen=True, slots=True)
class Producer:
    transactional_id: str
    producer_id: int
    producer_epoch: int


def _compact(data: bytes) -> bytes:
    return unsigned_varint(len(data) + 1) + data


def _value(number: int, size: int) -> bytes:
    return (b"%d " % number + b"x" * size)[:size]


def _batch(producer: Producer, values: Sequence[bytes]) -> bytes:
    """A transactional batch; the load program fills in the sequence number and the checksum."""
    records = bytearray()
    for delta, value in enumerate(values):
        record = b"\0" + varint(0) + varint(delta) + varint(-1) + varint(len(value)) + value + varint(0)
        records += varint(len(record)) + record
    now_ms, last = int(time.time() * 1000), len(values) - 1
    pair = (producer.producer_id, producer.producer_epoch)
    checked = struct.pack(">hiqqqhii", TRANSACTIONAL, last, now_ms, now_ms, *pair, 0, len(values)) + records
    return struct.pack(">qiibI", 0, len(checked) + 9, -1, 2, crc32c.crc32c(checked)) + checked


@dataclass(frozen=True, slots=True)
class Step:
    kind: int
    frame: bytes
    error_at: int
    error_stride: int = 0
    errors: int = 1
    # Where a batch begins, its size, the number of its sequence counter, its records.
    patches: tuple[tuple[int, int, int, int], ...] = ()

    def packed(self) -> bytes:
        head = struct.pack(
            "=6I", self.kind, self.error_at, self.error_stride, self.errors, len(self.frame), len(self.patches)
        )
        padding = bytes(-len(self.frame) % 4)
        return head + b"".join(struct.pack("=4I", *patch) for patch in self.patches) + self.frame + padding


def add_partitions(producer: Producer, topic: str, partitions: Sequence[int]) -> Step:
    name = topic.encode()
    assert max(len(name), len(partitions)) < 127, "places count on one-byte lengths"
    body = _compact(producer.transactional_id.encode()) + struct.pack(
        ">qh", producer.producer_id, producer.producer_epoch
    )
    body += b"\x02" + _compact(name) + unsigned_varint(len(partitions) + 1)
    body += b"".join(struct.pack(">i", partition) for partition in partitions) + b"\0\0"
    request = frame(ADD_PARTITIONS, 3, 1, body, flexible=True)
    return Step(OPENS, request, 4 + 4 + 1 + 4 + 1 + 1 + len(name) + 1 + 4, 7, len(partitions))


def produce(
    producer: Producer, topic: str, batches: Mapping[int, Sequence[bytes]], sequences: Mapping[int, int]
) -> Step:
    """One request with a batch for each partition; `sequences` names the counter of each."""
    name = topic.encode()
    identity = _compact(producer.transactional_id.encode())
    body = bytearray(identity + struct.pack(">hi", -1, 30_000) + b"\x02" + _compact(name))
    body += unsigned_varint(len(batches) + 1)
    patches = []
    for partition, values in batches.items():
        batch = _batch(producer, values)
        body += struct.pack(">i", partition) + unsigned_varint(len(batch) + 1)
        patches.append((len(body), len(batch), sequences[partition], len(values)))
        body += batch + b"\0"
    request = frame(PRODUCE, 9, 2, bytes(body + b"\0\0"), flexible=True)
    before = len(request) - len(body) - 2
    placed = tuple((before + at, length, counter, records) for at, length, counter, records in patches)
    return Step(WRITES, request, 4 + 4 + 1 + 1 + 1 + len(name) + 1 + 4, 33, len(batches), placed)


def end(producer: Producer, committed: bool = True) -> Step:
    body = _compact(producer.transactional_id.encode())
    body += struct.pack(">qh?", producer.producer_id, producer.producer_epoch, committed) + b"\0"
    return Step(ENDS, frame(END, 3, 3, body, flexible=True), 4 + 4 + 1 + 4)


def transaction_steps(
    producer: Producer, topic: str, batches: Mapping[int, Sequence[bytes]], first_sequence: int, committed: bool = True
) -> list[Step]:
    sequences = {partition: first_sequence + partition for partition in batches}
    return [
        add_partitions(producer, topic, list(batches)),
        produce(producer, topic, batches, sequences),
        end(producer, committed),
    ]


def spread(records: int, partitions: int, first: int, size: int) -> dict[int, list[bytes]]:
    """The records of one transaction, dealt out to the partitions beginning with `first`."""
    batches: dict[int, list[bytes]] = {}
    for number in range(records):
        batches.setdefault((first + number) % partitions, []).append(_value(number, size))
    return batches


def scripts_file(scripts: Sequence[Sequence[Step]]) -> bytes:
    parts = [struct.pack("=I", len(scripts))]
    for script in scripts:
        parts.append(struct.pack("=I", len(script)))
        parts += [step.packed() for step in script]
    return b"".join(parts)


def sequences_file(count: int) -> bytes:
    return array("i", [0] * count).tobytes()


class TransactionalConnection(Connection):
    def await_coordinator(self, transactional_id: str) -> None:
        """Kafka makes its internal topic when the first client asks for a coordinator."""
        deadline = time.monotonic() + READY_TIMEOUT_SECONDS
        while True:
            answer = self.call(frame(FIND_COORDINATOR, 1, 1, string(transactional_id) + b"\1"))
            (error_code,) = struct.unpack_from(">h", answer, 4)
            if not error_code:
                return
            if error_code not in RETRIABLE or time.monotonic() > deadline:
                raise RequestFailed("FindCoordinator", error_code)
            time.sleep(0.02)

    def set_topic_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        """IncrementalAlterConfigs v0."""
        body = struct.pack(">ib", 1, 2) + string(topic) + struct.pack(">i", len(configs))
        body += b"".join(string(name) + b"\0" + string(value) for name, value in configs.items()) + b"\0"
        (error_code,) = struct.unpack_from(">h", self.call(frame(ALTER_CONFIGS, 0, 1, body)), 8)
        if error_code:
            raise RequestFailed("IncrementalAlterConfigs", error_code)

    def producers(self, transactional_ids: Sequence[str], timeout_ms: int = 600_000) -> list[Producer]:
        """InitProducerId for all of them, many in flight at a time."""
        self.await_coordinator(transactional_ids[0])
        found: dict[str, Producer] = {}
        waiting = list(transactional_ids)
        deadline = time.monotonic() + READY_TIMEOUT_SECONDS
        while waiting:
            now, waiting = waiting[:PIPELINED], waiting[PIPELINED:]
            requests = [
                frame(INIT_PRODUCER_ID, 1, number, string(each) + struct.pack(">i", timeout_ms))
                for number, each in enumerate(now)
            ]
            for each, answer in zip(now, self.call_many(requests), strict=True):
                error_code, producer_id, producer_epoch = struct.unpack_from(">hqh", answer, 4)
                if not error_code:
                    found[each] = Producer(each, producer_id, producer_epoch)
                elif error_code in RETRIABLE and time.monotonic() < deadline:
                    waiting.append(each)
                else:
                    raise RequestFailed("InitProducerId", error_code)
            if len(found) < len(transactional_ids) and len(waiting) < PIPELINED:
                time.sleep(0.005)
        return [found[each] for each in transactional_ids]

    def transactions_in(self, state: str) -> int | None:
        """How many transactions are in a state; None while the coordinator is loading."""
        body = b"\x02" + _compact(state.encode()) + b"\x01\0"
        answer = self.call(frame(LIST_TRANSACTIONS, 0, 1, body, flexible=True))
        (error_code,) = struct.unpack_from(">h", answer, 1 + 4)
        if error_code in RETRIABLE:
            return None
        if error_code:
            raise RequestFailed("ListTransactions", error_code)
        position = 1 + 4 + 2
        unknown, position = _read_unsigned_varint(answer, position)
        assert unknown <= 1, "no unknown state filters"
        count, _ = _read_unsigned_varint(answer, position)
        return count - 1

    def fetch_offsets(self, topic: str, first_offset: int, end_offset: int, bytes_max: int) -> tuple[list[int], int]:
        """The offsets a read_committed consumer of partition 0 asks for, and the aborted transactions it is told of."""
        offset, offsets, aborted = first_offset, [], 0
        while offset < end_offset:
            offsets.append(offset)
            answer = self.call(fetch(topic, offset, bytes_max))
            position = 4 + 2 + 4 + 4 + 2 + len(topic.encode()) + 4
            _, error_code, _, _, _, listed = struct.unpack_from(">ihqqqi", answer, position)
            if error_code:
                raise RequestFailed("Fetch", error_code)
            position += 34 + 16 * max(listed, 0) + 4
            (size,) = struct.unpack_from(">i", answer, position)
            aborted += max(listed, 0)
            offset = _next_offset(answer, position + 4, position + 4 + size, offset)
        return offsets, aborted


def fetch(topic: str, offset: int, bytes_max: int) -> bytes:
    """Fetch v11 of partition 0, read_committed, outside of a session."""
    body = struct.pack(">iiiibiii", -1, 500, 1, bytes_max, READ_COMMITTED, 0, -1, 1) + string(topic)
    body += struct.pack(">iiiqqi", 1, 0, -1, offset, -1, bytes_max) + struct.pack(">ih", 0, 0)
    return frame(FETCH, 11, 1, body)


def _next_offset(data: bytes, position: int, stop: int, offset: int) -> int:
    while position + BATCH_HEADER_BYTES <= stop:
        base, length = struct.unpack_from(">qi", data, position)
        if position + 12 + length > stop:
            break
        (last_delta,) = struct.unpack_from(">i", data, position + 23)
        offset = base + last_delta + 1
        position += 12 + length
    return offset


def _read_unsigned_varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
