"""Frames and headers that lie about themselves: refused before anything large is allocated, harming nobody else."""

import struct
from collections.abc import Callable

import pytest

from fencepost.wire.catalog import API_VERSIONS, ApiKey
from fencepost.wire.codec import encode
from fencepost.wire.errors import ErrorCode
from fencepost.wire.messages import ApiVersionsRequest, MetadataRequest
from tests.hostile.sockets import MIB, Canary, HungUp, RudeClient, eventually, resident_bytes
from tests.peers.fencepost_process import FencepostProcess

Connect = Callable[[], RudeClient]
REQUEST_BYTES_MAX = 100 * MIB
ATTACKS = 300
# What some hundred connections may cost: their receive buffers, and what the allocator keeps.
GROWTH_BYTES_MAX = 64 * MIB


def header(key: int, version: int, client_id: bytes | None = None, tags: bytes = b"") -> bytes:
    length = -1 if client_id is None else len(client_id)
    return struct.pack(">hhih", key, version, 5, length) + (client_id or b"") + tags


METADATA_12 = header(ApiKey.METADATA, 12, tags=b"\0")
METADATA_4 = header(ApiKey.METADATA, 4)

BAD_LENGTHS = {
    "all ones": b"\xff\xff\xff\xff",
    "negative": struct.pack(">i", -(2**31)),
    "one byte more than allowed": struct.pack(">i", REQUEST_BYTES_MAX + 1),
    "the largest": struct.pack(">i", 2**31 - 1),
    "zero": struct.pack(">i", 0),
}

BAD_FRAMES = {
    "a body of four bytes": b"\0\x03\0\x0c",
    "a header without its client id": b"\0\x12\0\0\0\0\0\5",
    "ApiVersions of the future without its client id": b"\0\x12\0\x63\0\0\0\5",
    "an array of 2**32 - 2 in five bytes": METADATA_12 + b"\xff\xff\xff\xff\x0f",
    "an array of 2**31 - 1 with four bytes left": METADATA_4 + struct.pack(">i", 2**31 - 1) + b"\0\0\0\0",
    "an array of negative length": METADATA_4 + struct.pack(">i", -2),
    "numbers of 2**31 - 1 in four bytes": header(ApiKey.OFFSET_FETCH, 5)
    + b"\0\1g\0\0\0\1\0\1t"
    + struct.pack(">i", 2**31 - 1)
    + b"\0\0\0\0",
    "a string longer than the frame": METADATA_4 + b"\0\0\0\1" + b"\x7f\xff" + b"abc",
    "a string of negative length": METADATA_4 + b"\0\0\0\1" + b"\x80\0" + b"abc",
    "a null where there is none": METADATA_4 + b"\0\0\0\1" + b"\xff\xff" + b"\0",
    "a compact string above 32,767 bytes": header(ApiKey.FIND_COORDINATOR, 3, tags=b"\0")
    + b"\x82\x80\x02"
    + b"k" * 32_769
    + b"\0\0",
    "a varint of six bytes": METADATA_12 + b"\x80\x80\x80\x80\x80\x01",
    "a varint without an end": METADATA_12 + b"\x80" * 40,
    "a varint of 35 bits": METADATA_12 + b"\xff\xff\xff\xff\x7f",
    "a tag count without an end": header(ApiKey.METADATA, 12, tags=b"\xff" * 10),
    "more tags than bytes": header(ApiKey.METADATA, 12, tags=b"\xff\xff\xff\xff\x0f"),
    "a tag longer than the frame": header(ApiKey.METADATA, 12, tags=b"\x01\x05\xff\x7f"),
    "a client id longer than the frame": struct.pack(">hhih", ApiKey.METADATA, 4, 5, 32_767) + b"abc",
    "a client id of negative length": struct.pack(">hhih", ApiKey.METADATA, 4, 5, -2) + b"\0\0\0\0\0",
    "a client id that is no UTF-8": header(ApiKey.METADATA, 4, b"\xc3\x28") + b"\0\0\0\0\0",
    "a topic that is no UTF-8": METADATA_4 + b"\0\0\0\1" + b"\0\2\xc3\x28" + b"\0",
    "an unknown API": header(999, 0),
    "a negative API": header(-1, 0),
    "a negative version": header(ApiKey.METADATA, -1),
}


@pytest.mark.parametrize("length", BAD_LENGTHS.values(), ids=BAD_LENGTHS.keys())
def test_a_bad_frame_length_ends_the_connection(connect: Connect, canary: Canary, length: bytes) -> None:
    client = connect()
    client.send_bytes(length)
    assert client.is_hung_up()
    canary.sings()


@pytest.mark.parametrize("frame", BAD_FRAMES.values(), ids=BAD_FRAMES.keys())
def test_a_bad_frame_ends_the_connection(connect: Connect, canary: Canary, frame: bytes) -> None:
    client = connect()
    client.send_frame(frame)
    assert client.is_hung_up()
    canary.sings()


def test_hundreds_of_bad_frames_cost_no_memory(connect: Connect, canary: Canary, process: FencepostProcess) -> None:
    canary.sings()
    before = resident_bytes(process.pid)
    attacks = [*BAD_LENGTHS.values(), *(struct.pack(">i", len(frame)) + frame for frame in BAD_FRAMES.values())]
    clients = [connect() for _ in range(ATTACKS)]
    for number, client in enumerate(clients):
        client.send_bytes(attacks[number % len(attacks)])
    assert all(client.is_hung_up() for client in clients)
    canary.sings()
    assert resident_bytes(process.pid) - before < GROWTH_BYTES_MAX


def test_a_length_that_is_never_sent_reserves_no_memory(
    connect: Connect, canary: Canary, process: FencepostProcess
) -> None:
    canary.sings()
    before = resident_bytes(process.pid)
    for _ in range(ATTACKS):
        connect().send_bytes(struct.pack(">i", REQUEST_BYTES_MAX) + METADATA_12)
    canary.sings()
    assert resident_bytes(process.pid) - before < GROWTH_BYTES_MAX


def test_large_requests_that_stop_half_way_do_not_keep_others_from_sending_theirs(
    connect: Connect, canary: Canary
) -> None:
    """Twenty times 100 MiB are more than all requests in arrival may take; but they have not arrived."""
    clients = [connect() for _ in range(20)]
    for client in clients:
        client.send_bytes(struct.pack(">i", REQUEST_BYTES_MAX) + METADATA_12 + bytes(200_000))
    canary.sings(value_bytes=900_000)
    assert all(client.is_open() for client in clients)


def test_unsupported_versions_end_the_connection_but_for_api_versions(connect: Connect, canary: Canary) -> None:
    for key, (low, high) in API_VERSIONS.items():
        for version in {low - 1, high + 1, 99} - {-1}:
            client = connect()
            client.send_frame(header(key, version, tags=b"\0") + bytes(8))
            if key is not ApiKey.API_VERSIONS:
                assert client.is_hung_up(), f"{key.camel_name} {version}"
                continue
            frame = client.receive_frame()
            correlation_id, code, count = struct.unpack_from(">ihi", frame)
            assert (correlation_id, code) == (5, ErrorCode.UNSUPPORTED_VERSION)
            assert struct.unpack_from(">hhh", frame, 10) == (ApiKey.API_VERSIONS, low, high)
            assert len(frame) == 10 + 6 * count
            assert client.call(ApiKey.API_VERSIONS, 0, ApiVersionsRequest()).error_code == 0
            client.close()
    canary.sings()


def test_unknown_tagged_fields_are_skipped_wherever_they_stand(connect: Connect) -> None:
    client = connect()
    in_header = b"\x02" + b"\x05\x03abc" + b"\xff\x7f\x00"
    client.send_frame(header(ApiKey.METADATA, 12, tags=in_header) + b"\x01\0\0" + b"\x01\x77\x03abc")
    assert client.receive(ApiKey.METADATA, 12).topics == []
    topic = bytes(16) + b"\x07canary" + b"\x01\x20\x80\x01" + bytes(128)
    client.send_frame(METADATA_12 + b"\x02" + topic + b"\0\0" + b"\0")
    assert client.receive(ApiKey.METADATA, 12).topics[0].name == "canary"


def test_a_million_topics_in_one_metadata_request_are_too_many(
    connect: Connect, canary: Canary, process: FencepostProcess
) -> None:
    canary.sings()
    before = resident_bytes(process.pid)
    for count in (10**6, 10**6 + 1, 300_000):
        names = b"".join(b"\0\6%06d" % number for number in range(count))
        client = connect()
        client.send_body(ApiKey.METADATA, 4, struct.pack(">i", count) + names + b"\0", flexible=False)
        assert client.is_hung_up()
    canary.sings()
    # The frames themselves, twice; the objects that they would have become are ten times as large.
    assert resident_bytes(process.pid) - before < GROWTH_BYTES_MAX


def test_ten_million_numbers_in_one_request_are_too_many(
    connect: Connect, canary: Canary, process: FencepostProcess
) -> None:
    canary.sings()
    before = resident_bytes(process.pid)
    count = 10**7
    client = connect()
    body = b"\0\1g" + b"\0\0\0\1" + b"\0\1t" + struct.pack(">i", count) + bytes(4 * count)
    client.send_body(ApiKey.OFFSET_FETCH, 5, body, flexible=False)
    assert client.is_hung_up()
    canary.sings()
    assert resident_bytes(process.pid) - before < 4 * count + GROWTH_BYTES_MAX


def test_asking_forty_thousand_times_for_one_topic_is_one_question(connect: Connect, canary: Canary) -> None:
    canary.sings()
    client = connect()
    names = [MetadataRequest.MetadataRequestTopic(name="canary")] * 40_000
    assert len(client.call(ApiKey.METADATA, 12, MetadataRequest(topics=names)).topics) == 1


def test_a_frame_of_the_largest_size_is_taken(connect: Connect, canary: Canary, process: FencepostProcess) -> None:
    canary.sings()
    before = resident_bytes(process.pid)
    client = connect()
    plain = encode(ApiVersionsRequest(client_software_name="rude", client_software_version="1"), 3)
    start = header(ApiKey.API_VERSIONS, 3, tags=b"\0") + plain[:-1]
    # One unknown tagged field fills the rest: one count, one tag, four bytes of length.
    filling = REQUEST_BYTES_MAX - len(start) - 6
    length = bytes((filling & 0x7F | 0x80, filling >> 7 & 0x7F | 0x80, filling >> 14 & 0x7F | 0x80, filling >> 21))
    client.send_frame(start + b"\x01\x05" + length + bytes(filling))
    assert client.receive(ApiKey.API_VERSIONS, 3).error_code == 0
    canary.sings()
    eventually(lambda: resident_bytes(process.pid) - before < GROWTH_BYTES_MAX, "the memory is given back")


def test_requests_behind_a_bad_one_are_not_looked_at(connect: Connect) -> None:
    client = connect()
    good = header(ApiKey.API_VERSIONS, 0)
    bad = BAD_FRAMES["a varint without an end"]
    client.send_bytes(b"".join(struct.pack(">i", len(frame)) + frame for frame in (good, good, bad, good, good)))
    for _ in range(2):
        assert client.receive(ApiKey.API_VERSIONS, 0).error_code == 0
    with pytest.raises(HungUp):
        client.receive_frame()


def test_bodies_of_every_api_that_promise_a_huge_array_are_refused(connect: Connect, canary: Canary) -> None:
    """The first array of most requests stands somewhere in their first bytes: try all places."""
    for key, (low, high) in API_VERSIONS.items():
        for version in (low, high):
            for place in range(0, 24, 4):
                client = connect()
                client.send_frame(
                    header(key, version, tags=b"\0") + bytes(place) + b"\xff\xff\xff\xff\x0f\x7f\xff\xff\xff"
                )
                client.close()
    canary.sings()
