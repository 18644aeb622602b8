"""The compiled codecs against themselves, against kio (another reader of the same protocol), and against bad input."""

import importlib
import io
import random
import struct

import pytest
from tests.support.random_messages import random_message

from fencepost.broker.slices import finished
from fencepost.wire import messages
from fencepost.wire.codec import (
    MESSAGE_ELEMENTS_MAX,
    decode,
    decode_in_steps,
    encode,
    encode_parts,
    encode_parts_in_steps,
)
from fencepost.wire.encoding import PackedStructs
from fencepost.wire.errors import MalformedMessage
from fencepost.wire.messages import message_class, message_names, schema_of, snake_case

CASES = [
    pytest.param(name, version, id=f"{name}-v{version}")
    for name in message_names()
    for version in range(schema_of(name)["valid"][0], schema_of(name)["valid"][1] + 1)
]


@pytest.mark.parametrize(("name", "version"), CASES)
def test_what_is_encoded_reads_back_equal(name, version):
    for seed in range(15):
        message = random_message(name, version, random.Random(seed))
        data = encode(message, version)
        assert decode(message_class(name), version, data) == message
        assert b"".join(encode_parts(message, version)) == data


@pytest.mark.parametrize("version", [11, 12])
def test_structs_that_are_packed_already_are_written_like_any_others(version):
    data = messages.FetchResponse.FetchableTopicResponse.PartitionData
    plain = [data.AbortedTransaction(producer_id=n << 40 | n, first_offset=n * 257) for n in range(300)]
    packed = PackedStructs(bytearray(b"".join(struct.pack(">qq", n << 40 | n, n * 257) for n in range(300))), 16)
    for count, listed in ((300, packed), (0, PackedStructs(bytearray(), 16))):
        topics = [
            messages.FetchResponse.FetchableTopicResponse(partitions=[data(aborted_transactions=each, records=b"")])
            for each in (plain[:count], listed)
        ]
        expected, written = (encode(messages.FetchResponse(responses=[topic]), version) for topic in topics)
        assert written == expected


def kio_class(name: str, version: int):
    kind = "request" if name.endswith("Request") else "response" if name.endswith("Response") else None
    if kind is None:
        return None
    api = snake_case(name).removesuffix(f"_{kind}")
    try:
        module = importlib.import_module(f"kio.schema.{api}.v{version}.{kind}")
    except ModuleNotFoundError:
        return None
    return getattr(module, name)


@pytest.mark.parametrize(
    ("name", "version"), [case for case in CASES if str(case.values[0]).endswith(("Request", "Response"))]
)
def test_kio_reads_our_bytes_and_writes_them_back_unchanged(name, version):
    from kio.serial import entity_reader, entity_writer

    schema_class = kio_class(name, version)
    if schema_class is None:
        pytest.skip(f"kio has no {name} v{version}")
    read, write = entity_reader(schema_class), entity_writer(schema_class)
    for seed in range(5):
        data = encode(random_message(name, version, random.Random(seed)), version)
        entity, size = read(data, 0)
        assert size == len(data)
        out = io.BytesIO()
        write(out, entity)
        assert out.getvalue() == data


@pytest.mark.parametrize(("name", "version"), CASES)
def test_damaged_bytes_give_a_message_or_malformed_message_and_nothing_else(name, version):
    source = random.Random(f"{name}{version}")
    data = encode(random_message(name, version, source), version)
    damaged = [data[:cut] for cut in range(0, len(data), max(1, len(data) // 20))]
    damaged += [data + b"\0", b"\xff\xff\xff\xff\x0f", b"\x7f\xff\xff\xff" * 4]
    for _ in range(30):
        flipped = bytearray(data or b"\0")
        flipped[source.randrange(len(flipped))] ^= 1 << source.randrange(8)
        damaged.append(bytes(flipped))
    for candidate in damaged:
        try:
            decode(message_class(name), version, candidate)
        except MalformedMessage:
            pass


def test_an_array_longer_than_the_frame_is_refused_before_anything_is_allocated():
    with pytest.raises(MalformedMessage):
        decode(messages.MetadataRequest, 12, bytes.fromhex("ffffffff0f"))


def test_a_message_cannot_unfold_to_more_elements_than_the_limit():
    count = MESSAGE_ELEMENTS_MAX + 1
    body = count.to_bytes(4, "big") + b"\x00\x00" * count
    with pytest.raises(MalformedMessage, match="too many"):
        decode(messages.MetadataRequest, 0, body)


def test_unknown_tagged_fields_are_skipped():
    plain = encode(messages.ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3)
    assert plain.endswith(b"\0")
    tagged = plain[:-1] + b"\x02" + b"\x05\x03abc" + b"\x63\x00"
    assert decode(messages.ApiVersionsRequest, 3, tagged).client_software_name == "a"


def test_a_tagged_array_must_be_as_long_as_its_tag_says():
    endpoint = struct.pack(">i", 1) + b"\x02h" + struct.pack(">i", 9092) + b"\0" + b"\x01\x05\x01x"
    head = b"\x01" + bytes(4)
    for spare in (0, 1):
        value = b"\x02" + endpoint + bytes(spare)
        data = head + b"\x01\0" + bytes([len(value)]) + value
        if spare:
            with pytest.raises(MalformedMessage, match="another length"):
                decode(messages.ProduceResponse, 10, data)
        else:
            assert decode(messages.ProduceResponse, 10, data).node_endpoints[0].port == 9092


def test_the_worked_transaction_log_example_is_byte_for_byte_kafkas():
    value = messages.TransactionLogValue(
        producer_id=1000,
        producer_epoch=0,
        transaction_timeout_ms=60_000,
        transaction_status=1,
        transaction_partitions=[messages.TransactionLogValue.PartitionsSchema(topic="out", partition_ids=[0, 1])],
        transaction_last_update_timestamp_ms=1700000000005,
        transaction_start_timestamp_ms=1700000000000,
        previous_producer_id=1000,
        client_transaction_version=2,
    )
    assert (b"\0\1" + encode(value, 1)).hex() == (
        "000100000000000003e800000000ea600102046f7574030000000000000001000000018bcfe568050000018bcfe5680002000800000000000003e802020002"
    )


@pytest.mark.parametrize(("name", "version"), CASES)
def test_a_message_is_read_and_written_the_same_in_steps(name, version):
    for seed in range(3):
        message = random_message(name, version, random.Random(seed))
        encoded = encode(message, version)
        assert b"".join(finished(encode_parts_in_steps(message, version))) == encoded
        read = finished(decode_in_steps(name, version, memoryview(encoded), 0, MESSAGE_ELEMENTS_MAX))
        assert read == (decode(message_class(name), version, encoded), len(encoded))


def test_a_large_message_is_read_and_written_in_many_steps():
    names = [f"g{number}" for number in range(10_000)]
    encoded = encode(messages.DescribeGroupsRequest(groups=names), 5)
    reading = decode_in_steps("DescribeGroupsRequest", 5, memoryview(encoded), 0, 10_000)
    assert len(list(reading)) > 100
    group = messages.DescribeGroupsResponse.DescribedGroup
    response = messages.DescribeGroupsResponse(groups=[group(group_id=name) for name in names])
    assert len(list(encode_parts_in_steps(response, 5))) >= 10_000
    assert b"".join(finished(encode_parts_in_steps(response, 5))) == encode(response, 5)
    with pytest.raises(MalformedMessage):
        finished(decode_in_steps("DescribeGroupsRequest", 5, memoryview(encoded), 0, 9_999))
