"""Records of internal topics, byte for byte as Apache Kafka 4.3 wrote them, and what its own tool printed of them."""

import pytest

from fencepost.insight.internal_records import decode_record
from fencepost.internal_topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from fencepost.wire.records import Record

GROUP = "6d656d626572732d636f6e73756d6572"
MEMBER = "42386e426c674c4a524879375365646a655041345551"
MEMBER_KEY = '"data":{"groupId":"members-consumer","memberId":"B8nBlgLJRHy7SedjePA4UQ"}}'

CASES = {
    "a member, with a null struct in a tag": (
        f"00050010{GROUP}0016{MEMBER}",
        "000000000872646b61666b610b2f3132372e302e302e31020a7365676d656e74656401000493e00001000100",
        '{"type":"5",' + MEMBER_KEY,
        '{"version":"0","data":{"instanceId":null,"rackId":null,"clientId":"rdkafka","clientHost":"/127.0.0.1",'
        '"subscribedTopicNames":["segmented"],"subscribedTopicRegex":"","rebalanceTimeoutMs":300000,'
        '"serverAssignor":null,"classicMemberMetadata":null}}',
    ),
    "a group, its tag set": (
        f"00030010{GROUP}",
        "000000000002010008184598567501b516",
        '{"type":"3","data":{"groupId":"members-consumer"}}',
        '{"version":"0","data":{"epoch":2,"metadataHash":1748971527400961302}}',
    ),
    "a group, its tag at the default": (
        f"00030010{GROUP}",
        "00000000000300",
        '{"type":"3","data":{"groupId":"members-consumer"}}',
        '{"version":"0","data":{"epoch":3}}',
    ),
    "a current assignment": (
        f"00080010{GROUP}0016{MEMBER}",
        "0000000000020000000000027462db8ace954f7f8cc9f9e884c7aa930300000000000000010100090300000002000000020100",
        '{"type":"8",' + MEMBER_KEY,
        '{"version":"0","data":{"memberEpoch":2,"previousMemberEpoch":0,"state":0,"assignedPartitions":[{"topicId":'
        '"dGLbis6VT3-MyfnohMeqkw","partitions":[0,1],"assignmentEpochs":[2,2]}],"partitionsPendingRevocation":[]}}',
    ),
    "the end of a member": (f"00070010{GROUP}0016{MEMBER}", None, '{"type":"7",' + MEMBER_KEY, "<DELETE>"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_record_is_decoded_as_kafkas_tool_does(name: str) -> None:
    key, value, key_text, payload_text = CASES[name]
    record = Record(0, 0, bytes.fromhex(key), None if value is None else bytes.fromhex(value))
    decoded = decode_record(CONSUMER_OFFSETS, record)
    assert (decoded.key_text, decoded.payload_text) == (key_text, payload_text)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        (None, b"", "has no key"),
        (b"\0", b"", "has no key"),
        (b"\0\x63", b"", "Unknown record type 99 at offset 5"),
        (b"\0\0\0\x04abc", b"\0\1", "Error at offset 5, skipping."),
        (b"\0\0\0\1a", b"\0\x63", "value version 99 is not known"),
        (b"\0\0\0\1a", b"", "the value has no version"),
    ],
)
def test_what_cannot_be_decoded_is_said_in_its_place(key: bytes | None, value: bytes, words: str) -> None:
    decoded = decode_record(TRANSACTION_STATE, Record(5, 0, key, value))
    assert words in decoded.key_text
    assert decoded.payload_text is None
