"""Answers that get lost between the broker and our producer: written once all the same."""

import asyncio
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost.client import AsyncAdmin, AsyncPartitionReader, AsyncProducer, NewTopic
from tests.peers.broker_process import BrokerProcess
from tests.peers.fencepost_process import FencepostProcess

PRODUCE = 0


class LossyProxy:
    """Forwards whole frames. Every third answer to a Produce is swallowed, and the connection cut."""

    def __init__(self) -> None:
        self.target = ("", 0)
        self.swallowed = 0
        self._produced = 0
        self._server: asyncio.Server | None = None

    async def start(self, port: int, target: tuple[str, int]) -> None:
        self.target = target
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        broker_reader, broker_writer = await asyncio.open_connection(*self.target)
        try:
            while True:
                request = await _frame(reader)
                broker_writer.write(request)
                answer = await _frame(broker_reader)
                if struct.unpack_from(">h", request, 4)[0] == PRODUCE:
                    self._produced += 1
                    if self._produced % 3 == 0:
                        self.swallowed += 1
                        return
                writer.write(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            broker_writer.close()


async def _frame(reader: asyncio.StreamReader) -> bytes:
    length = await reader.readexactly(4)
    return length + await reader.readexactly(struct.unpack(">i", length)[0])


class Advertising(FencepostProcess):
    """A broker that tells its clients to come through the proxy."""

    def __init__(self, port: int, directory: Path) -> None:
        super().__init__({"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}, directory)


@pytest.fixture
def proxied(tmp_path: Path) -> Iterator[tuple[BrokerProcess, int]]:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    with Advertising(port, tmp_path / "broker") as broker:
        yield broker, port


def test_records_whose_answers_were_lost_are_written_once_and_in_order(proxied: tuple[BrokerProcess, int]) -> None:
    broker, port = proxied

    async def scenario() -> None:
        proxy = LossyProxy()
        await proxy.start(port, broker.address)
        address = f"127.0.0.1:{port}"
        async with AsyncAdmin(address) as admin:
            await admin.create_topic(NewTopic("t", 2))
        async with AsyncProducer(address, batch_bytes=500) as producer:
            futures = [await producer.send("t", b"%d" % at, partition=at % 2) for at in range(600)]
            await producer.flush()
            offsets = [future.result().offset for future in futures]
        assert offsets == [at // 2 for at in range(600)]
        async with AsyncPartitionReader(address) as reader:
            await reader.assign_topic("t")
            read = [(record.partition, record.value) async for record in reader.records()]
        for partition in (0, 1):
            assert [value for at, value in read if at == partition] == [b"%d" % at for at in range(partition, 600, 2)]
        assert proxy.swallowed > 3
        proxy.close()

    asyncio.run(scenario())
