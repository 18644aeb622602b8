"""One connection against a peer that plays tricks: versions, order, garbage, silence."""

import asyncio
import struct
from collections.abc import Awaitable, Callable

import pytest

from fencepost.client import apis
from fencepost.client.connection import Connection, connect
from fencepost.client.errors import BrokerUnreachable, NotAKafkaBroker, RequestTimedOut, UnsupportedByBroker
from fencepost.wire import messages
from fencepost.wire.framing import read_request_header, response_frame

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
ApiVersion = messages.ApiVersionsResponse.ApiVersion


def api_versions(version: int, correlation_id: int, error_code: int = 0, **offered: tuple[int, int]) -> bytes:
    keys = {"metadata": 3, "api_versions": 18, "fetch": 1}
    message = messages.ApiVersionsResponse(
        error_code=error_code,
        api_keys=[ApiVersion(api_key=keys[name], min_version=a, max_version=b) for name, (a, b) in offered.items()],
    )
    return b"".join(response_frame(18, version, correlation_id, message))


async def next_frame(reader: asyncio.StreamReader) -> memoryview:
    (length,) = struct.unpack(">i", await reader.readexactly(4))
    return memoryview(await reader.readexactly(length))


def against(serve: Answer, scenario: Callable[[str, int], Awaitable[None]]) -> None:
    async def main() -> None:
        async def serve_and_close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await serve(reader, writer)
            except (asyncio.IncompleteReadError, ConnectionError):
                pass
            finally:
                writer.close()

        server = await asyncio.start_server(serve_and_close, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        async with server:
            await scenario(host, port)

    asyncio.run(main())


async def negotiate(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    header = read_request_header(await next_frame(reader))
    writer.write(api_versions(header.api_version, header.correlation_id, metadata=(0, 9), api_versions=(0, 4)))


def metadata_answer(correlation_id: int, cluster_id: str) -> bytes:
    message = messages.MetadataResponse(cluster_id=cluster_id)
    return b"".join(response_frame(3, 9, correlation_id, message))


def test_the_newest_version_that_both_speak_is_used() -> None:
    async def scenario(host: str, port: int) -> None:
        connection = await connect(host, port, "test")
        assert connection.version_of(apis.METADATA) == 9
        with pytest.raises(UnsupportedByBroker, match="does not support it"):
            connection.version_of(apis.FETCH)
        await connection.close()

    against(negotiate, scenario)


def test_a_broker_that_refuses_our_api_versions_is_asked_again_with_an_older_one() -> None:
    asked: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            header = read_request_header(await next_frame(reader))
            asked.append(header.api_version)
            if header.api_version > 2:
                # As every broker answers a version it does not know: in version 0, naming what it does know.
                writer.write(api_versions(0, header.correlation_id, 35, api_versions=(0, 2)))
            else:
                writer.write(api_versions(header.api_version, header.correlation_id, metadata=(0, 7)))

    async def scenario(host: str, port: int) -> None:
        connection = await connect(host, port, "test")
        assert connection.version_of(apis.METADATA) == 7
        await connection.close()

    against(serve, scenario)
    assert asked == [4, 2]


def test_pipelined_requests_get_their_own_answers() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await negotiate(reader, writer)
        headers = [read_request_header(await next_frame(reader)) for _ in range(3)]
        answers = b"".join(metadata_answer(header.correlation_id, f"answer {at}") for at, header in enumerate(headers))
        # In odd pieces, as a network may deliver them.
        for at in range(0, len(answers), 7):
            writer.write(answers[at : at + 7])
            await writer.drain()
        await reader.read()

    async def scenario(host: str, port: int) -> None:
        connection = await connect(host, port, "test")
        calls = [connection.call(apis.METADATA, messages.MetadataRequest(topics=[]), 5_000) for _ in range(3)]
        answers = await asyncio.gather(*calls)
        assert [answer.cluster_id for answer in answers] == ["answer 0", "answer 1", "answer 2"]
        await connection.close()

    against(serve, scenario)


def test_an_answer_larger_than_the_receive_buffer_arrives_whole_and_so_does_the_one_behind_it() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await negotiate(reader, writer)
        first, second = [read_request_header(await next_frame(reader)) for _ in range(2)]
        topic = messages.MetadataResponse.MetadataResponseTopic
        large = messages.MetadataResponse(topics=[topic(name=f"topic-{at:0200d}") for at in range(2_000)])
        writer.write(b"".join(response_frame(3, 9, first.correlation_id, large)))
        writer.write(metadata_answer(second.correlation_id, "behind"))
        await reader.read()

    async def scenario(host: str, port: int) -> None:
        connection = await connect(host, port, "test")
        calls = [connection.call(apis.METADATA, messages.MetadataRequest(topics=[]), 5_000) for _ in range(2)]
        large, behind = await asyncio.gather(*calls)
        assert [topic.name for topic in large.topics] == [f"topic-{at:0200d}" for at in range(2_000)]
        assert behind.cluster_id == "behind"
        await connection.close()

    against(serve, scenario)


def call_after_negotiation(serve: Answer, timeout_ms: int = 5_000) -> Exception:
    """What a Metadata call raises when `serve` has the say after the negotiation."""
    raised: list[Exception] = []

    async def negotiate_then_serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await negotiate(reader, writer)
        await next_frame(reader)
        await serve(reader, writer)

    async def scenario(host: str, port: int) -> None:
        connection: Connection = await connect(host, port, "test")
        try:
            await connection.call(apis.METADATA, messages.MetadataRequest(topics=[]), timeout_ms)
        except Exception as error:
            raised.append(error)
        assert not connection.is_open
        await connection.close()

    against(negotiate_then_serve, scenario)
    return raised[0]


def test_a_peer_that_stays_silent_times_out_and_the_connection_is_given_up() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    error = call_after_negotiation(silent, timeout_ms=50)
    assert isinstance(error, RequestTimedOut)
    assert error.is_retriable


def test_a_peer_that_hangs_up_is_unreachable() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        return

    assert isinstance(call_after_negotiation(hang_up), BrokerUnreachable)


@pytest.mark.parametrize(
    "garbage",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x01\x00",
        b"\x00\x00\x00\x04\x00\x00\x70\x00",
    ],
)
def test_garbage_ends_the_connection_without_an_allocation_of_its_size(garbage: bytes) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(garbage)
        await reader.read()

    assert isinstance(call_after_negotiation(talk), BrokerUnreachable)


def test_an_answer_that_does_not_parse_says_so() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(struct.pack(">iib", 6, 1, 0) + b"\x00")
        await reader.read()

    assert isinstance(call_after_negotiation(talk), NotAKafkaBroker)


def test_nobody_listening_is_told_with_the_address() -> None:
    async def scenario() -> None:
        server = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        server.close()
        await server.wait_closed()
        with pytest.raises(BrokerUnreachable, match=f"127.0.0.1:{port}: connection refused"):
            await connect("127.0.0.1", port, "test")

    asyncio.run(scenario())
