"""The records of __consumer_offsets, held against bytes that Apache Kafka 4.3 wrote."""

import struct

import pytest

from fencepost.coordinators.journal import (
    CommittedOffset,
    GroupEntry,
    OffsetEntry,
    UnknownRecordType,
    decode_entry,
    encode_entry,
)
from fencepost.wire.codec import encode
from fencepost.wire.errors import MalformedMessage
from fencepost.wire.messages import GroupMetadataValue, OffsetCommitValue

# Taken from the log of a broker that served a librdkafka consumer.
NEW_GROUP = (
    "0002000c7374617469632d67726f7570",
    "0003000000000000ffffffff000001a1e044beab00000000",
)
STABLE_GROUP = (
    "0002000c7374617469632d67726f7570",
    "00030008636f6e73756d657200000001000572616e6765002b696e73742d312d31613166313832642d353563392d343465622d62396438"
    "2d356462323766623037346666000001a1e044beab00000001002b696e73742d312d31613166313832642d353563392d343465622d6239"
    "64382d3564623237666230373466660006696e73742d310003617070000a2f3132372e302e302e31000493e00000afc80000001f000300"
    "00000100097075726368617365730000000000000000ffffffff0000000000250000000000010009707572636861736573000000030000"
    "0000000000010000000200000000",
)
COMMIT = (
    "0001000c7374617469632d67726f7570000970757263686173657300000000",
    "0004000000000000000a0000000001000001a1e044bf1a01001009ad2d88cffc44df8b6203339e9b2e0d",
)
COMMIT_WITHOUT_EPOCH = (
    "0001000c73696d706c652d67726f7570000970757263686173657300000001",
    "00040000000000000007ffffffff01000001a1e044bf2601001009ad2d88cffc44df8b6203339e9b2e0d",
)
TOPIC_ID = bytes.fromhex("09ad2d88cffc44df8b6203339e9b2e0d")


@pytest.mark.parametrize("record", [NEW_GROUP, STABLE_GROUP, COMMIT, COMMIT_WITHOUT_EPOCH])
def test_what_kafka_wrote_is_read_and_written_back_byte_for_byte(record: tuple[str, str]) -> None:
    key, value = (bytes.fromhex(part) for part in record)
    assert encode_entry(decode_entry(key, value)) == (key, value)


def test_a_commit_of_kafka_says_what_it_should() -> None:
    key, value = (bytes.fromhex(part) for part in COMMIT)
    expected = CommittedOffset(10, 0, "", 1_794_763_964_186, None, TOPIC_ID)
    assert decode_entry(key, value) == OffsetEntry("static-group", "purchases", 0, expected)


def test_a_generation_of_kafka_says_what_it_should() -> None:
    key, value = (bytes.fromhex(part) for part in STABLE_GROUP)
    entry = decode_entry(key, value)
    assert isinstance(entry, GroupEntry)
    assert entry.value is not None
    (member,) = entry.value.members
    assert (entry.value.generation, entry.value.protocol, entry.value.leader) == (1, "range", member.member_id)
    assert (member.group_instance_id, member.client_id, member.session_timeout) == ("inst-1", "app", 45_000)


def test_a_commit_with_a_retention_is_written_in_the_version_that_can_say_so() -> None:
    entry = OffsetEntry("g", "t", 1, CommittedOffset(5, -1, "m", 1_000, 9_000))
    key, value = encode_entry(entry)
    assert value is not None
    assert struct.unpack_from(">h", value) == (1,)
    assert decode_entry(key, value) == entry


@pytest.mark.parametrize("version", range(5))
def test_offsets_of_every_version_are_read(version: int) -> None:
    message = OffsetCommitValue(offset=5, metadata="m", commit_timestamp=7)
    key, _ = encode_entry(OffsetEntry("g", "t", 1, None))
    value = struct.pack(">h", version) + encode(message, version)
    assert decode_entry(key, value) == OffsetEntry("g", "t", 1, CommittedOffset(5, -1, "m", 7))


@pytest.mark.parametrize("version", range(5))
def test_generations_of_every_version_are_read(version: int) -> None:
    member = GroupMetadataValue.MemberMetadata(member_id="m", session_timeout=9)
    message = GroupMetadataValue(protocol_type="consumer", generation=3, protocol="p", leader="m", members=[member])
    key, _ = encode_entry(GroupEntry("g", None))
    value = struct.pack(">h", version) + encode(message, version)
    entry = decode_entry(key, value)
    assert isinstance(entry, GroupEntry)
    assert entry.value is not None
    assert (entry.value.generation, entry.value.members[0].member_id) == (3, "m")


def test_tombstones_have_no_value() -> None:
    for entry in (OffsetEntry("g", "t", 1, None), GroupEntry("g", None)):
        key, value = encode_entry(entry)
        assert value is None
        assert decode_entry(key, value) == entry


def test_the_oldest_key_type_is_an_offset_too() -> None:
    key, _ = encode_entry(OffsetEntry("g", "t", 1, None))
    assert decode_entry(b"\0\0" + key[2:], None) == OffsetEntry("g", "t", 1, None)


@pytest.mark.parametrize("key_type", [3, 5, 8, 23, -1, 1_000])
def test_key_types_of_other_protocols_are_unknown(key_type: int) -> None:
    with pytest.raises(UnknownRecordType, match=f"key type {key_type}"):
        decode_entry(struct.pack(">h", key_type), b"")


def test_garbage_is_malformed_and_the_future_unknown() -> None:
    key, _ = encode_entry(OffsetEntry("g", "t", 1, None))
    with pytest.raises(MalformedMessage):
        decode_entry(b"\0", None)
    with pytest.raises(MalformedMessage):
        decode_entry(key[:-1], None)
    with pytest.raises(MalformedMessage):
        decode_entry(key, b"\0\4\0")
    with pytest.raises(UnknownRecordType, match="value version 5"):
        decode_entry(key, b"\0\5")
