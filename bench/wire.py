"""The few Kafka requests the benchmark itself sends, written by hand and independent of both brokers.

Owns: encoding of Produce, Metadata, CreateTopics, DeleteTopics and ListOffsets in one fixed version
each, and a blocking connection. It measures nothing.
"""

import socket
import struct
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

import crc32c

PRODUCE, LIST_OFFSETS, METADATA, CREATE_TOPICS, DELETE_TOPICS = 0, 2, 3, 19, 20
PRODUCE_VERSION = 10  # the highest that librdkafka sends
UNKNOWN_TOPIC_OR_PARTITION = 3
CLIENT_ID = b"bench"
TIMEOUT_SECONDS = 30.0
READY_TIMEOUT_SECONDS = 30.0


class RequestFailed(Exception):
    """The broker answered with an error code."""

    def __init__(self, request: str, error_code: int) -> None:
        super().__init__(f"{request} was answered with error code {error_code}")
        self.error_code = error_code


def string(value: str) -> bytes:
    data = value.encode()
    return struct.pack(">h", len(data)) + data


def unsigned_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint(value: int) -> bytes:
    return unsigned_varint(value << 1 if value >= 0 else (-value << 1) - 1)


def frame(api_key: int, version: int, correlation_id: int, body: bytes, flexible: bool = False) -> bytes:
    header = struct.pack(">hhih", api_key, version, correlation_id, len(CLIENT_ID)) + CLIENT_ID
    payload = header + (b"\0" if flexible else b"") + body
    return struct.pack(">i", len(payload)) + payload


def record_batch(values: Sequence[bytes], timestamp_ms: int) -> bytes:
    records = bytearray()
    for delta, value in enumerate(values):
        record = b"\0" + varint(0) + varint(delta) + varint(-1) + varint(len(value)) + value + varint(0)
        records += varint(len(record)) + record
    last = len(values) - 1
    checked = struct.pack(">hiqqqhii", 0, last, timestamp_ms, timestamp_ms, -1, -1, -1, len(values)) + records
    checksum: int = crc32c.crc32c(checked)
    return struct.pack(">qiibI", 0, len(checked) + 9, -1, 2, checksum) + checked


def produce_request(topic: str, partition: int, batch: bytes, acks: int = -1) -> bytes:
    name = topic.encode()
    assert len(name) < 127, "produce_error_offset counts on a one-byte length"
    body = b"\0" + struct.pack(">hi", acks, 30_000) + b"\x02" + unsigned_varint(len(name) + 1) + name
    body += b"\x02" + struct.pack(">i", partition) + unsigned_varint(len(batch) + 1) + batch + b"\0\0\0"
    return frame(PRODUCE, PRODUCE_VERSION, 1, body, flexible=True)


def produce_error_offset(topic: str) -> int:
    """Where the error code stands in the answer to `produce_request`, its length prefix included."""
    return 4 + 4 + 1 + 1 + 1 + len(topic.encode()) + 1 + 4


class Connection:
    """One blocking connection, one request in flight."""

    def __init__(self, address: tuple[str, int], timeout: float = TIMEOUT_SECONDS) -> None:
        self._socket = socket.create_connection(address, timeout)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def call(self, request: bytes) -> bytes:
        """The body of the answer, after its correlation id."""
        self._socket.sendall(request)
        (size,) = struct.unpack(">i", self._receive(4))
        return self._receive(size)[4:]

    def call_many(self, requests: Sequence[bytes]) -> list[bytes]:
        """All in flight at once; the bodies of the answers in order."""
        self._socket.sendall(b"".join(requests))
        answers = []
        for _ in requests:
            (size,) = struct.unpack(">i", self._receive(4))
            answers.append(self._receive(size)[4:])
        return answers

    def _receive(self, size: int) -> bytes:
        data = bytearray(size)
        view = memoryview(data)
        have = 0
        while have < size:
            got = self._socket.recv_into(view[have:])
            if not got:
                raise ConnectionError("the broker closed the connection")
            have += got
        return bytes(data)

    def brokers(self) -> int:
        """How many brokers Metadata names: the first real answer of a broker that starts."""
        body = self.call(frame(METADATA, 1, 2, struct.pack(">i", 0)))
        (count,) = struct.unpack_from(">i", body)
        return int(count)

    def topics(self) -> int:
        """How many topics Metadata names when asked for all of them."""
        body = self.call(frame(METADATA, 1, 3, struct.pack(">i", -1)))
        (brokers,) = struct.unpack_from(">i", body)
        position = 4
        for _ in range(brokers):
            (host,) = struct.unpack_from(">h", body, position + 4)
            position += 4 + 2 + host + 4
            (rack,) = struct.unpack_from(">h", body, position)
            position += 2 + max(rack, 0)
        (count,) = struct.unpack_from(">i", body, position + 4)
        return int(count)

    def create_topics(self, topics: Mapping[str, int], configs: Mapping[str, str]) -> None:
        settings = struct.pack(">i", len(configs)) + b"".join(string(n) + string(v) for n, v in configs.items())
        body = struct.pack(">i", len(topics))
        for topic, partitions in topics.items():
            body += string(topic) + struct.pack(">ihi", partitions, 1, 0) + settings
        answer = self.call(frame(CREATE_TOPICS, 4, 4, body + struct.pack(">i?", 60_000, False)))
        self._check_topics("CreateTopics", answer, has_message=True)

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        """Creates a topic and returns once every partition can be written and read."""
        self.create_topics({topic: partitions}, configs)
        deadline = time.monotonic() + READY_TIMEOUT_SECONDS
        while True:
            try:
                self.end_offset(topic, partitions)
                return
            except RequestFailed:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def delete_topics(self, topics: Sequence[str]) -> None:
        body = struct.pack(">i", len(topics)) + b"".join(string(topic) for topic in topics)
        answer = self.call(frame(DELETE_TOPICS, 3, 5, body + struct.pack(">i", 60_000)))
        self._check_topics("DeleteTopics", answer, has_message=False)

    def _check_topics(self, request: str, answer: bytes, has_message: bool) -> None:
        (count,) = struct.unpack_from(">i", answer, 4)
        position = 8
        for _ in range(count):
            (length,) = struct.unpack_from(">h", answer, position)
            position += 2 + length
            (error_code,) = struct.unpack_from(">h", answer, position)
            position += 2
            if has_message:
                (length,) = struct.unpack_from(">h", answer, position)
                position += 2 + max(length, 0)
            if error_code:
                raise RequestFailed(request, error_code)

    def end_offset(self, topic: str, partitions: int) -> int:
        """The sum of the partitions' latest offsets."""
        body = struct.pack(">ibi", -1, 0, 1) + string(topic) + struct.pack(">i", partitions)
        body += b"".join(struct.pack(">iq", partition, -1) for partition in range(partitions))
        answer = self.call(frame(LIST_OFFSETS, 2, 6, body))
        position = 4 + 4 + 2 + len(topic.encode()) + 4
        total = 0
        for _ in range(partitions):
            error_code, _, offset = struct.unpack_from(">hqq", answer, position + 4)
            if error_code:
                raise RequestFailed("ListOffsets", error_code)
            total += offset
            position += 4 + 2 + 8 + 8
        return total
