"""What the hostile tests need on real sockets: a client without manners, one with, and the broker's memory."""

import os
import socket
import struct
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from fencepost.wire.batch import build_batch
from fencepost.wire.catalog import ApiKey, response_class
from fencepost.wire.framing import read_response, request_frame
from fencepost.wire.messages import FetchRequest, MetadataRequest, ProduceRequest
from tests.support.patience import patient

DEADLINE_SECONDS = patient(20.0)
MIB = 1024 * 1024
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class HungUp(Exception):
    """The broker closed the connection instead of answering."""


class RudeClient:
    """Sends whatever it is told to."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, DEADLINE_SECONDS)
        self._correlation_id = 0

    def send_bytes(self, content: bytes) -> None:
        try:
            self.socket.sendall(content)
        except ConnectionError as error:
            raise HungUp(str(error)) from error

    def send_frame(self, frame: bytes) -> None:
        self.send_bytes(struct.pack(">I", len(frame)) + frame)

    def send(self, key: ApiKey, version: int, message: Any, client_id: str | None = "rude") -> int:
        self._correlation_id += 1
        self.send_bytes(b"".join(request_frame(key, version, self._correlation_id, client_id, message)))
        return self._correlation_id

    def send_body(self, key: int, version: int, body: bytes, *, flexible: bool) -> None:
        """A good header and any body."""
        self.send_frame(struct.pack(">hhih", key, version, 1, -1) + (b"\0" if flexible else b"") + body)

    def receive_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._read(4))
        return self._read(size)

    def receive(self, key: ApiKey, version: int) -> Any:
        return read_response(response_class(key), key, version, self.receive_frame())[1]

    def call(self, key: ApiKey, version: int, message: Any) -> Any:
        correlation_id = self.send(key, version, message)
        answered, message = read_response(response_class(key), key, version, self.receive_frame())
        assert answered == correlation_id
        return message

    def is_hung_up(self) -> bool:
        """Whether the broker hangs up without a word, sooner or later."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True
        except TimeoutError:
            return False

    def is_open(self) -> bool:
        """Whether nothing has come from the broker yet, neither a word nor an end."""
        self.socket.setblocking(False)
        try:
            self.socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except ConnectionError:
            pass
        finally:
            self.socket.settimeout(DEADLINE_SECONDS)
        return False

    def close(self) -> None:
        self.socket.close()

    def _read(self, size: int) -> bytes:
        out = bytearray()
        while len(out) < size:
            try:
                part = self.socket.recv(size - len(out))
            except ConnectionError as error:
                raise HungUp(str(error)) from error
            if not part:
                raise HungUp(f"after {len(out)} of {size} bytes")
            out += part
        return bytes(out)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Canary:
    """A client that minds its own business: it writes a record and reads it back, on one connection all along."""

    def __init__(self, address: tuple[str, int], topic: str = "canary") -> None:
        self._client = RudeClient(address)
        self._topic = topic
        self.count = 0
        wanted = [MetadataRequest.MetadataRequestTopic(name=topic)]
        self._client.call(ApiKey.METADATA, 12, MetadataRequest(topics=wanted, allow_auto_topic_creation=True))

    def sings(self, value_bytes: int = 10) -> float:
        """Seconds that one write and one read took."""
        began = time.monotonic()
        value = (b"tweet %d " % self.count).ljust(value_bytes, b".")
        answer = self._client.call(ApiKey.PRODUCE, 9, produce_request(self._topic, record_batch(value)))
        (partition,) = answer.responses[0].partition_responses
        assert (partition.error_code, partition.base_offset) == (0, self.count), partition
        fetched = self._client.call(ApiKey.FETCH, 12, fetch_request(self._topic, self.count))
        assert value in bytes(fetched.responses[0].partitions[0].records)
        self.count += 1
        return time.monotonic() - began

    def close(self) -> None:
        self._client.close()


def record_batch(*values: bytes, **fields: Any) -> bytes:
    return bytes(build_batch([(int(time.time() * 1000), b"key", value, ()) for value in values], **fields))


def produce_request(topic: str, records: bytes | None, *, acks: int = -1, partition: int = 0) -> ProduceRequest:
    data = ProduceRequest.TopicProduceData
    part = data.PartitionProduceData(index=partition, records=records)
    return ProduceRequest(acks=acks, timeout_ms=5000, topic_data=[data(name=topic, partition_data=[part])])


def fetch_request(
    topic: str,
    offset: int,
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 64 * MIB,
    partition_max_bytes: int = 64 * MIB,
    session_epoch: int = -1,
) -> FetchRequest:
    wanted = FetchRequest.FetchTopic
    partition = wanted.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=partition_max_bytes)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        session_epoch=session_epoch,
        topics=[wanted(topic=topic, partitions=[partition])],
    )


def resident_bytes(process_id: int) -> int:
    with open(f"/proc/{process_id}/statm") as file:
        return int(file.read().split()[1]) * PAGE_BYTES


def eventually(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"{what}: not within {DEADLINE_SECONDS} s"
        time.sleep(0.02)
