"""Batches that lie about themselves: the protocol's error, no offset, nothing appended, and the connection goes on."""

import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import lz4.frame
import pytest

from fencepost import Broker
from fencepost.wire.catalog import ApiKey
from fencepost.wire.compression import Codec, compress
from fencepost.wire.errors import ErrorCode
from fencepost.wire.messages import CreateTopicsRequest, FindCoordinatorRequest, ListOffsetsRequest, ProduceRequest
from tests.hostile.sockets import MIB, Canary, RudeClient, produce_request, record_batch, resident_bytes
from tests.peers.batches import CONTROL, TRANSACTIONAL, batch
from tests.peers.fencepost_process import FencepostProcess

OPEN, RECOMPRESSED, COMPACTED, SMALL = "open", "recompressed", "compacted", "small"
TOPICS = {
    OPEN: {},
    RECOMPRESSED: {"compression.type": "uncompressed"},
    COMPACTED: {"cleanup.policy": "compact"},
    SMALL: {"max.message.bytes": "1000"},
}
TINY_RECORD = b"\x0e\0\0\0\x02k\x01\0"
COMPRESSED = (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)
# What may be unpacked at a time, twice, and what the allocator keeps.
BOMB_BYTES_MAX = 3 * 64 * MIB
CORRUPT, INVALID, TOO_LARGE = ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD, ErrorCode.MESSAGE_TOO_LARGE


@pytest.fixture(scope="module")
def client(process: FencepostProcess) -> Iterator[RudeClient]:
    with RudeClient(process.address) as made:
        topic = CreateTopicsRequest.CreatableTopic
        made.call(ApiKey.FIND_COORDINATOR, 3, FindCoordinatorRequest(key="any", key_type=0))
        wanted = [
            topic(
                name=name,
                num_partitions=1,
                replication_factor=1,
                configs=[topic.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
            )
            for name, configs in TOPICS.items()
        ]
        answer = made.call(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=wanted, timeout_ms=5000))
        assert {each.error_code for each in answer.topics} == {0}
        yield made


def end_offset(client: RudeClient, topic: str) -> int:
    wanted = ListOffsetsRequest.ListOffsetsTopic
    partition = wanted.ListOffsetsPartition(partition_index=0, timestamp=-1, current_leader_epoch=-1)
    request = ListOffsetsRequest(replica_id=-1, topics=[wanted(name=topic, partitions=[partition])])
    found: int = client.call(ApiKey.LIST_OFFSETS, 7, request).topics[0].partitions[0].offset
    return found


def produce(client: RudeClient, topic: str, records: bytes | None, version: int = 9) -> Any:
    answer = client.call(ApiKey.PRODUCE, version, produce_request(topic, records))
    return answer.responses[0].partition_responses[0]


def check_refused(client: RudeClient, topic: str, records: bytes | None, code: ErrorCode) -> None:
    before = end_offset(client, topic)
    answer = produce(client, topic, records)
    assert (ErrorCode(answer.error_code), answer.base_offset) == (code, -1), answer.error_message
    assert end_offset(client, topic) == before
    assert produce(client, topic, record_batch(b"still good")).base_offset == before


def compressed_batch(codec: int, payload: bytes, count: int) -> bytes:
    return batch([], body=compress(codec, payload), attributes=codec, record_count=count)


def one_record(value_bytes: int) -> bytes:
    """A payload of one record whose value is all zeros: it packs a thousandfold."""
    body = b"\0\0\0" + b"\x02k" + zigzag(value_bytes) + bytes(value_bytes) + b"\0"
    return zigzag(len(body)) + body


def zigzag(value: int) -> bytes:
    value <<= 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


@dataclass(frozen=True)
class Refusal:
    topic: str
    records: Callable[[], bytes | None]
    code: ErrorCode


REFUSALS = {
    "a wrong CRC": Refusal(OPEN, lambda: batch(crc_error=1), CORRUPT),
    "a CRC of another batch": Refusal(OPEN, lambda: batch()[:-1] + b"\1", CORRUPT),
    "magic 0": Refusal(OPEN, lambda: batch(magic=0), INVALID),
    "magic 1": Refusal(OPEN, lambda: batch(magic=1), INVALID),
    "magic 3": Refusal(OPEN, lambda: batch(magic=3), CORRUPT),
    "negative magic": Refusal(OPEN, lambda: batch(magic=-1), CORRUPT),
    "a control batch": Refusal(OPEN, lambda: batch(attributes=CONTROL), INVALID),
    "a commit marker": Refusal(
        OPEN,
        lambda: batch(
            [b"\0\0\0\0\0\0"],
            key=b"\0\0\0\1",
            attributes=CONTROL | TRANSACTIONAL,
            producer_id=4000,
            producer_epoch=0,
            base_sequence=-1,
        ),
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
    "a count of zero": Refusal(OPEN, lambda: batch([], last_offset_delta=0), INVALID),
    "a negative count": Refusal(OPEN, lambda: batch([b"1"], record_count=-1, last_offset_delta=0), INVALID),
    "the largest count": Refusal(COMPACTED, lambda: batch([b"1"], record_count=2**31 - 1), INVALID),
    "a count that does not fit the offsets": Refusal(OPEN, lambda: batch([b"1", b"2"], last_offset_delta=5), INVALID),
    "a negative offset delta": Refusal(OPEN, lambda: batch([b"1"], last_offset_delta=-1), INVALID),
    "a base offset": Refusal(OPEN, lambda: batch(base_offset=17), INVALID),
    "a length beyond the data": Refusal(OPEN, lambda: batch(length_error=10), INVALID),
    "a length short of the data": Refusal(OPEN, lambda: batch(length_error=-3), CORRUPT),
    "a length too small for a header": Refusal(OPEN, lambda: batch(length_error=-60), CORRUPT),
    "a negative length": Refusal(OPEN, lambda: batch(length_error=-(2**30)), CORRUPT),
    "two batches": Refusal(OPEN, lambda: batch() + batch(base_offset=1), INVALID),
    "a batch and a half": Refusal(OPEN, lambda: batch() + batch()[:40], CORRUPT),
    "half a header": Refusal(OPEN, lambda: batch()[:30], INVALID),
    "rubbish": Refusal(OPEN, lambda: b"rubbish" * 20, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    "zeros": Refusal(OPEN, lambda: bytes(100), CORRUPT),
    "no bytes": Refusal(OPEN, lambda: b"", INVALID),
    "an unknown codec": Refusal(OPEN, lambda: batch(attributes=7), INVALID),
    "a timestamp of the far future": Refusal(OPEN, lambda: batch(timestamp=2**62), ErrorCode.INVALID_TIMESTAMP),
    "a producer without a sequence": Refusal(OPEN, lambda: batch(producer_id=7, producer_epoch=0), INVALID),
    "more than the topic takes": Refusal(SMALL, lambda: batch([bytes(2_000)]), TOO_LARGE),
    "more than any topic takes": Refusal(OPEN, lambda: batch([bytes(MIB + 100)]), TOO_LARGE),
    "no key where compaction needs one": Refusal(COMPACTED, lambda: batch([b"1", b"2"], key=None), INVALID),
    "more records than counted": Refusal(COMPACTED, lambda: batch([b"1", b"2"], record_count=1), INVALID),
    "fewer records than counted": Refusal(COMPACTED, lambda: batch([b"1", b"2"], record_count=3), INVALID),
    "records of rubbish": Refusal(COMPACTED, lambda: batch([b"1"], body=b"\xff" * 20), INVALID),
    "a record longer than the batch": Refusal(
        COMPACTED, lambda: batch([b"1"], body=zigzag(9_999) + bytes(20)), INVALID
    ),
    "a key longer than its record": Refusal(
        COMPACTED, lambda: batch([b"1"], body=b"\x10\0\0\0" + zigzag(50) + bytes(4)), INVALID
    ),
    "more headers than bytes": Refusal(
        COMPACTED, lambda: batch([b"1"], body=b"\x1a\0\0\0\x02k\x02v" + b"\xfe\xff\xff\xff\x0f\0"), INVALID
    ),
}


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS.keys())
def test_a_bad_batch_is_refused_and_nothing_is_appended(client: RudeClient, refusal: Refusal) -> None:
    check_refused(client, refusal.topic, refusal.records(), refusal.code)


@pytest.mark.parametrize("topic", [RECOMPRESSED, COMPACTED])
@pytest.mark.parametrize("codec", COMPRESSED, ids=lambda codec: codec.name.lower())
def test_compressed_garbage_is_refused_by_whoever_opens_it(client: RudeClient, topic: str, codec: Codec) -> None:
    packed = compress(codec, one_record(5_000))
    for body in (b"", b"\xff" * 100, packed[:-3], packed[:10], packed + b"junk behind it", packed[::-1]):
        check_refused(client, topic, batch([b"1"], body=body, attributes=codec), INVALID)


BOMBS: dict[str, tuple[Callable[[], bytes], ErrorCode]] = {
    "gzip": (lambda: compressed_batch(Codec.GZIP, one_record(100 * MIB), 1), TOO_LARGE),
    "lz4": (lambda: compressed_batch(Codec.LZ4, one_record(100 * MIB), 1), TOO_LARGE),
    "zstd": (lambda: compressed_batch(Codec.ZSTD, one_record(100 * MIB), 1), TOO_LARGE),
    "lz4 that declares an exabyte": (
        lambda: batch([b"1"], body=_declared_lz4(2**60), attributes=Codec.LZ4),
        INVALID,
    ),
    "zstd with the largest window": (
        lambda: batch([b"1"], body=b"\x28\xb5\x2f\xfd\x00\xf8" + b"\x01\0\0", attributes=Codec.ZSTD),
        INVALID,
    ),
    "snappy that declares four gigabytes": (
        lambda: batch([b"1"], body=b"\xff\xff\xff\xff\x0f" + bytes(50), attributes=Codec.SNAPPY),
        INVALID,
    ),
    "xerial with a chunk of 0xffffffff": (
        lambda: batch(
            [b"1"],
            body=b"\x82SNAPPY\0\0\0\0\1\0\0\0\1" + b"\xff\xff\xff\xff" + bytes(50),
            attributes=Codec.SNAPPY,
        ),
        INVALID,
    ),
    "gzip in gzip": (
        lambda: compressed_batch(Codec.GZIP, compress(Codec.GZIP, compress(Codec.GZIP, bytes(64 * MIB))), 1),
        INVALID,
    ),
    "fifty thousand empty gzip members": (
        lambda: batch([b"1"], body=zlib.compress(b"", 9, 31) * 50_000, attributes=Codec.GZIP),
        INVALID,
    ),
    "ninety thousand empty lz4 frames": (
        lambda: batch([b"1"], body=compress(Codec.LZ4, b"") * 90_000, attributes=Codec.LZ4),
        INVALID,
    ),
    "a hundred thousand empty zstd frames": (
        lambda: batch([b"1"], body=compress(Codec.ZSTD, b"") * 100_000, attributes=Codec.ZSTD),
        INVALID,
    ),
    "five million equal records": (
        lambda: compressed_batch(Codec.ZSTD, TINY_RECORD * 5_000_000, 5_000_000),
        TOO_LARGE,
    ),
    "five million records of the far future": (
        lambda: batch(
            [],
            body=compress(Codec.ZSTD, TINY_RECORD * 5_000_000),
            attributes=Codec.ZSTD,
            record_count=5_000_000,
            timestamp=2**62,
        ),
        ErrorCode.INVALID_TIMESTAMP,
    ),
}


# A topic that takes batches as they are opens only those that it is going to refuse.
TARGETS = [
    *((topic, name) for topic in (RECOMPRESSED, COMPACTED) for name in BOMBS),
    (OPEN, "five million records of the far future"),
]


def _declared_lz4(size: int) -> bytes:
    framed = bytearray(lz4.frame.compress(bytes(100), store_size=True))
    struct.pack_into("<Q", framed, 6, size)
    return bytes(framed)


@pytest.mark.parametrize(("topic", "name"), TARGETS)
def test_a_decompression_bomb_is_refused_in_bounded_memory(
    client: RudeClient,
    canary: Canary,
    process: FencepostProcess,
    topic: str,
    name: str,
) -> None:
    make, code = BOMBS[name]
    records = make()
    assert len(records) < MIB, "a bomb is small"
    peak_reset(process.pid)
    before = resident_bytes(process.pid)
    check_refused(client, topic, records, code)
    assert peak_bytes(process.pid) - before < BOMB_BYTES_MAX
    canary.sings()


def peak_reset(process_id: int) -> None:
    with open(f"/proc/{process_id}/clear_refs", "w") as file:
        file.write("5")


def peak_bytes(process_id: int) -> int:
    with open(f"/proc/{process_id}/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))


def test_a_bomb_that_nobody_opens_is_kept_as_it_came(client: RudeClient) -> None:
    bomb = BOMBS["zstd"][0]()
    before = end_offset(client, OPEN)
    assert produce(client, OPEN, bomb).base_offset == before


def test_writes_to_topics_of_the_broker_and_to_names_that_cannot_be_are_refused(client: RudeClient) -> None:
    expected = {
        "__consumer_offsets": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ".": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "no good": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "x" * 250: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "../../etc/passwd": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "unknown": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    for name, code in expected.items():
        answer = produce(client, name, record_batch(b"v"))
        assert (ErrorCode(answer.error_code), answer.base_offset) == (code, -1), name


def test_good_and_bad_partitions_of_one_request_are_told_apart(client: RudeClient) -> None:
    data = ProduceRequest.TopicProduceData
    before = end_offset(client, OPEN)
    parts = [
        data.PartitionProduceData(index=0, records=batch(crc_error=1)),
        data.PartitionProduceData(index=0, records=batch()),
        data.PartitionProduceData(index=1, records=batch()),
        data.PartitionProduceData(index=-1, records=batch()),
    ]
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data(name=OPEN, partition_data=parts)])
    answers = client.call(ApiKey.PRODUCE, 9, request).responses[0].partition_responses
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [(each.error_code, each.base_offset) for each in answers] == [
        (CORRUPT, -1),
        (0, before),
        (unknown, -1),
        (unknown, -1),
    ]


def test_a_bad_batch_with_acks_0_ends_the_connection(process: FencepostProcess, client: RudeClient) -> None:
    before = end_offset(client, OPEN)
    with RudeClient(process.address) as other:
        other.send(ApiKey.PRODUCE, 9, produce_request(OPEN, batch(crc_error=1), acks=0))
        assert other.is_hung_up()
    assert end_offset(client, OPEN) == before


def test_transactional_batches_need_a_producer_and_a_transaction(client: RudeClient) -> None:
    for fields in (
        {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1},
        {"producer_id": 4_711, "producer_epoch": 0, "base_sequence": 0},
    ):
        before = end_offset(client, OPEN)
        answer = produce(client, OPEN, batch(attributes=TRANSACTIONAL, **fields))
        assert answer.error_code != 0
        assert answer.base_offset == -1
        assert end_offset(client, OPEN) == before


def test_what_was_refused_is_not_there_after_a_restart_either() -> None:
    with Broker(topics={"t": 1}) as broker:
        with RudeClient((broker.host, broker.port)) as client:
            produce(client, "t", batch(crc_error=1))
            produce(client, "t", record_batch(b"good"))
            produce(client, "t", batch(attributes=CONTROL))
        broker.kill()
        broker.restart()
        with RudeClient((broker.host, broker.port)) as client:
            assert end_offset(client, "t") == 1
