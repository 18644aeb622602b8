"""A connection that sends any request, well-formed or not, and returns what came back."""

import socket
import struct
from types import TracebackType
from typing import Any, Self

from tests.peers import schemas
from tests.peers.batches import BatchHeader, read_headers
from tests.peers.schemas import Message
from tests.support.patience import patient

ANSWER_TIMEOUT_SECONDS = patient(20.0)


class ConnectionClosed(Exception):
    """The broker hung up instead of answering."""


class RawClient:
    def __init__(self, address: tuple[str, int], client_id: str = "raw") -> None:
        self._socket = socket.create_connection(address, ANSWER_TIMEOUT_SECONDS)
        self._client_id = client_id
        self._correlation_id = 0

    def send(self, api: str, version: int, message: Message | None = None, body: bytes | None = None) -> int:
        """Sends a request; `body` replaces the encoded message."""
        name = f"{api}Request"
        content = schemas.encode(name, version, message or {}) if body is None else body
        return self.send_raw(schemas.api_key(api), version, content, schemas.is_flexible(name, version))

    def send_raw(self, api_key: int, version: int, body: bytes, flexible_header: bool) -> int:
        self._correlation_id += 1
        client_id = self._client_id.encode()
        header = struct.pack(">hhih", api_key, version, self._correlation_id, len(client_id)) + client_id
        header += b"\0" if flexible_header else b""
        self.send_frame(header + body)
        return self._correlation_id

    def send_frame(self, frame: bytes) -> None:
        self.send_bytes(struct.pack(">i", len(frame)) + frame)

    def send_bytes(self, content: bytes) -> None:
        try:
            self._socket.sendall(content)
        except (ConnectionError, BrokenPipeError) as error:
            raise ConnectionClosed(str(error)) from error

    def receive_frame(self, timeout: float = ANSWER_TIMEOUT_SECONDS) -> bytes:
        self._socket.settimeout(timeout)
        (size,) = struct.unpack(">i", self._read(4))
        return self._read(size)

    def receive(self, api: str, version: int, correlation_id: int | None = None) -> Message:
        frame = self.receive_frame()
        (answered,) = struct.unpack_from(">i", frame)
        assert answered == (self._correlation_id if correlation_id is None else correlation_id)
        start = 4
        if schemas.response_header_is_flexible(api, version):
            assert frame[4] == 0, "no tagged field is defined for a response header"
            start = 5
        return schemas.decode(f"{api}Response", version, frame[start:])

    def call(self, api: str, version: int, message: Message | None = None, body: bytes | None = None) -> Message:
        self.send(api, version, message, body)
        return self.receive(api, version)

    def is_closed(self, timeout: float = 5.0) -> bool:
        """Whether the broker hangs up, without having said anything."""
        self._socket.settimeout(timeout)
        try:
            return self._socket.recv(1) == b""
        except ConnectionError:
            return True
        except TimeoutError:
            return False

    def fetch_batches(self, topic: str, partition: int, offset: int = 0) -> list[BatchHeader]:
        """The headers of all batches of a partition from an offset on, as the broker holds them."""
        found: list[BatchHeader] = []
        while True:
            answer = self.call("Fetch", 12, _fetch(topic, partition, offset))
            part = answer["Responses"][0]["Partitions"][0]
            assert part["ErrorCode"] == 0, part
            batches = list(read_headers(part["Records"] or b""))
            if not batches:
                return found
            found += batches
            offset = batches[-1].base_offset + batches[-1].last_offset_delta + 1

    def _read(self, size: int) -> bytes:
        out = bytearray()
        while len(out) < size:
            try:
                part = self._socket.recv(size - len(out))
            except ConnectionError as error:
                raise ConnectionClosed(str(error)) from error
            if not part:
                raise ConnectionClosed(f"after {len(out)} of {size} bytes")
            out += part
        return bytes(out)

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _fetch(topic: str, partition: int, offset: int) -> dict[str, Any]:
    return {
        "MaxWaitMs": 0,
        "MinBytes": 1,
        "SessionEpoch": -1,
        "Topics": [
            {
                "Topic": topic,
                "Partitions": [{"Partition": partition, "FetchOffset": offset, "PartitionMaxBytes": 1 << 20}],
            }
        ],
    }
