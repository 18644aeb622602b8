"""The batch header: Kafka's bytes, read and written, and what is not a batch told apart."""

import pytest
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given
from hypothesis import strategies as st

from fencepost.wire.batch import (
    HEADER_BYTES,
    ControlType,
    build_batch,
    control_batch,
    iterate_headers,
    read_header,
    read_marker,
    seal,
    stamp,
    verify_crc,
)
from fencepost.wire.errors import MalformedMessage

NOW_MS = 1_700_000_000_000
COMMIT = (
    "000000000000002a00000042ffffffff02ad320ccb0030000000000000018bcfe568000000018bcfe5680000000000000003e80003"
    "ffffffff000000012000000008000000010c00000000000700"
)


def test_a_commit_marker_has_kafkas_bytes() -> None:
    batch = control_batch(ControlType.COMMIT, 7, 1000, 3, NOW_MS, 42)
    assert batch.hex() == COMMIT
    header = read_header(batch)
    assert (header.is_control, header.is_transactional, header.size_bytes, header.next_offset) == (True, True, 78, 43)
    assert read_marker(batch) == (ControlType.COMMIT, 7)
    assert read_marker(control_batch(ControlType.ABORT, 9, 1000, 3, NOW_MS)) == (ControlType.ABORT, 9)


def test_a_control_batch_of_another_kind_is_no_marker() -> None:
    assert read_marker(build_batch([(NOW_MS, b"\0\0\0\2", b"\0\0", ())], control=True)) is None


def test_a_marker_that_compaction_has_emptied_says_nothing() -> None:
    # As Kafka's consumer has it: compaction keeps the header for the producer's epoch and drops the record.
    emptied = build_batch([], producer_id=7, producer_epoch=1, control=True, transactional=True, last_offset_delta=0)
    assert read_marker(emptied) is None
    assert read_marker(bytes(9) + emptied, 9) is None


@pytest.mark.parametrize("length", [61, 65, 70])
def test_a_marker_that_is_cut_off_is_malformed(length: int) -> None:
    with pytest.raises(MalformedMessage):
        read_marker(bytes.fromhex(COMMIT)[:length])


def test_stamping_leaves_the_crc_alone() -> None:
    batch = build_batch([(NOW_MS, b"k", b"v", ())])
    stamp(batch, 0, 12345, 6)
    header = read_header(batch)
    assert (header.base_offset, header.partition_leader_epoch) == (12345, 6)
    assert verify_crc(batch, 0, header)
    batch[30] ^= 1
    assert not verify_crc(batch, 0, header)
    seal(batch, 0, len(batch))
    assert verify_crc(batch, 0, read_header(batch))


def test_headers_are_found_one_after_the_other() -> None:
    first, second = build_batch([(NOW_MS, None, b"v", ())]), build_batch([(NOW_MS, None, None, ())] * 3)
    found = list(iterate_headers(first + second))
    assert [(position, header.record_count) for position, header in found] == [(0, 1), (len(first), 3)]
    assert list(iterate_headers(b"")) == []


@pytest.mark.parametrize("damage", ["cut in the header", "cut in the records", "negative length", "short length"])
def test_what_is_no_whole_batch_is_malformed(damage: str) -> None:
    batch = build_batch([(NOW_MS, b"k", b"v" * 50, ())])
    match damage:
        case "cut in the header":
            batch = batch[: HEADER_BYTES - 1]
        case "cut in the records":
            batch = batch[:-1]
        case "negative length":
            batch[8:12] = b"\xff\xff\xff\xff"
        case "short length":
            batch[8:12] = b"\0\0\0\x30"
    with pytest.raises(MalformedMessage):
        list(iterate_headers(batch))


def test_sequences_wrap_around() -> None:
    batch = build_batch([(NOW_MS, None, b"v", ())] * 3, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2)
    assert read_header(batch).last_sequence == 0
    assert read_header(build_batch([(NOW_MS, None, b"v", ())])).last_sequence == -1


HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=200)), max_size=3)
RECORDS = st.lists(
    st.tuples(st.integers(0, 2**45), st.none() | st.binary(max_size=200), st.none() | st.binary(max_size=200), HEADERS),
    min_size=1,
    max_size=5,
)


@given(records=RECORDS, compression=st.integers(0, 1), base_offset=st.integers(0, 2**60))
def test_another_client_reads_what_we_build(
    records: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
    compression: int,
    base_offset: int,
) -> None:
    batch = build_batch(records, base_offset=base_offset, compression=compression)
    read = MemoryRecords(bytes(batch)).next_batch()
    assert read is not None
    assert read.validate_crc()
    found = [(record.offset, record.timestamp, record.key, record.value, record.headers) for record in read]
    assert found == [
        (base_offset + at, timestamp, key, value, headers)
        for at, (timestamp, key, value, headers) in enumerate(records)
    ]
