"""Arrow columns and batches, with `wire.records` as the oracle: the same bytes, the same records, the same refusals."""

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, assume, given, settings
from tests.support.extras import require_arrow

require_arrow()

import pyarrow as pa  # noqa: E402

from fencepost.wire.arrow_records import SCHEMA, BatchAt, decode_batches, encode_batches  # noqa: E402
from fencepost.wire.batch import (  # noqa: E402
    LOG_APPEND_TIME,
    ControlType,
    NewRecord,
    build_batch,
    control_batch,
    iterate_headers,
    read_header,
    seal,
    verify_crc,
)
from fencepost.wire.compression import Codec  # noqa: E402
from fencepost.wire.errors import ErrorCode, KafkaError  # noqa: E402
from fencepost.wire.records import Record, read_records  # noqa: E402

NOW_MS = 1_700_000_000_000
MAX_BYTES = 1 << 24
# Lengths around the places where a varint grows by a byte.
LENGTHS = st.one_of(st.integers(0, 5), st.sampled_from([61, 62, 63, 64, 65, 8_190, 8_191, 8_192]))
CONTENT = st.one_of(st.none(), st.builds(lambda size, byte: bytes([byte]) * size, LENGTHS, st.integers(0, 255)))
HEADERS = st.lists(st.tuples(st.text(max_size=5), CONTENT), max_size=3)
TIMESTAMPS = st.one_of(st.integers(NOW_MS - 200, NOW_MS + 200), st.integers(0, 2**42))
RECORDS = st.lists(st.tuples(TIMESTAMPS, CONTENT, CONTENT, HEADERS), min_size=1, max_size=12)
# The first call compiles.
QUICKLY = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=150)


def as_columns(records: list[NewRecord], kind: pa.DataType | None = None) -> dict[str, object]:
    headers = [[{"key": name, "value": content} for name, content in record[3]] for record in records]
    return {
        "timestamps": pa.array([record[0] for record in records], pa.int64()),
        "keys": pa.array([record[1] for record in records], kind or pa.binary()),
        "values": pa.array([record[2] for record in records], kind or pa.binary()),
        "headers": pa.array(headers, SCHEMA.field("headers").type),
    }


def as_records(batch: pa.RecordBatch) -> list[Record]:
    batch.validate(full=True)
    return [
        Record(
            row["offset"],
            round(row["timestamp"].timestamp() * 1000),
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"]),
        )
        for row in batch.to_pylist()
    ]


def by_the_oracle(data: bytes, from_offset: int = -1) -> list[Record]:
    return [
        record
        for at, header in iterate_headers(data)
        if not header.is_control
        for record in read_records(data, MAX_BYTES, at)
        if record.offset >= from_offset
    ]


@QUICKLY
@given(records=RECORDS)
def test_batches_of_columns_are_those_of_the_oracle_to_the_byte(records: list[NewRecord]) -> None:
    (batch,) = encode_batches(
        **as_columns(records), producer_id=7, producer_epoch=3, base_sequence=5, transactional=True
    )
    assert batch == build_batch(records, producer_id=7, producer_epoch=3, base_sequence=5, transactional=True)


@QUICKLY
@given(batches=st.lists(RECORDS, min_size=1, max_size=4), from_offset=st.integers(-1, 40), codec=st.sampled_from(Codec))
def test_columns_of_batches_are_the_records_of_the_oracle(
    batches: list[list[NewRecord]], from_offset: int, codec: Codec
) -> None:
    data, offset = b"", 0
    for at, records in enumerate(batches):
        timestamp_type = LOG_APPEND_TIME if at % 3 == 2 else 0
        data += build_batch(records, base_offset=offset, compression=codec, timestamp_type=timestamp_type)
        offset += len(records)
        data += control_batch(ControlType.COMMIT, 0, 1, 0, NOW_MS, base_offset=offset)
        offset += 1
    assert as_records(decode_batches(data, from_offset=from_offset)) == by_the_oracle(data, from_offset)


@QUICKLY
@given(records=RECORDS, at=st.integers(61, 5_000), byte=st.integers(0, 255), cut=st.integers(0, 3))
def test_what_the_oracle_refuses_is_refused_and_what_it_reads_is_read(
    records: list[NewRecord], at: int, byte: int, cut: int
) -> None:
    """One byte is changed and some are cut off: both readers see the same, or refuse for the same reason."""
    good = build_batch(records)
    assume(at < len(good) - cut)
    bad = good[: len(good) - cut]
    bad[at] = byte
    bad[8:12] = (len(bad) - 12).to_bytes(4, "big")
    seal(bad, 0, len(bad))
    try:
        expected = by_the_oracle(bytes(bad))
    except KafkaError as error:
        with pytest.raises(KafkaError) as refused:
            decode_batches(bad)
        assert str(refused.value) == str(error)  # noqa: PT017 - two readers are compared
        return
    if all(abs(record.timestamp) < 2**47 for record in expected):  # beyond that Python has no dates
        assert as_records(decode_batches(bad)) == expected


@pytest.mark.parametrize("count", [-1, 0, 2, 2**31 - 1])
def test_a_batch_that_lies_about_its_count_is_refused(count: int) -> None:
    batch = build_batch([(NOW_MS, b"k", b"v", ())])
    batch[57:61] = count.to_bytes(4, "big", signed=True)
    seal(batch, 0, len(batch))
    with pytest.raises(KafkaError) as refused:
        decode_batches(batch)
    assert refused.value.code == ErrorCode.INVALID_RECORD


def test_varints_of_too_many_bits_are_refused() -> None:
    for field in (b"\xff" * 9 + b"\x02", b"\xff" * 10 + b"\x01", b"\x80" * 11):
        body = b"\0" + field + b"\0\1\1\0"
        batch = build_batch([(NOW_MS, None, None, ())])[:61] + bytes([len(body) * 2]) + body
        batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
        seal(batch, 0, len(batch))
        with pytest.raises(KafkaError):
            by_the_oracle(bytes(batch))
        with pytest.raises(KafkaError):
            decode_batches(batch)


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.dictionary(pa.int8(), pa.binary())],
    ids=str,
)
def test_arrays_of_bytes_and_of_text_are_taken_whole_sliced_and_chunked(kind: pa.DataType) -> None:
    expected = [b"a", None, b"", b"ccc", b"dd", None, b"e" * 300]
    array = pa.array(expected, pa.binary())
    array = array.dictionary_encode() if pa.types.is_dictionary(kind) else array.cast(kind)
    padded = pa.concat_arrays([array[:3], array])
    for given_array, wanted in (
        (array, expected),
        (padded[3:], expected),
        (array[2:5], expected[2:5]),
        (array[1:1], []),
        (pa.chunked_array([array[:3], array[3:]]), expected),
    ):
        data = b"".join(encode_batches(given_array, keys=given_array, timestamps=NOW_MS))
        found = by_the_oracle(data)
        assert [(record.key, record.value) for record in found] == [(value, value) for value in wanted]


def test_a_slice_of_headers_is_taken_with_its_own_entries() -> None:
    kind = SCHEMA.field("headers").type
    headers = pa.array(
        [[{"key": "a", "value": b"1"}], None, [], [{"key": "b", "value": None}, {"key": "", "value": b""}]], kind
    )
    values = pa.array([b"0", b"1", b"2", b"3"])
    (batch,) = encode_batches(values[1:], headers=headers[1:], timestamps=NOW_MS)
    assert [record.headers for record in by_the_oracle(bytes(batch))] == [(), (), (("b", None), ("", b""))]
    with pytest.raises(ValueError, match="cannot be null"):
        list(encode_batches(values[:1], headers=pa.array([[{"key": None, "value": b""}]], pa.list_(
            pa.struct([("key", pa.string()), ("value", pa.binary())]))), timestamps=NOW_MS))  # fmt: skip


def test_timestamps_of_any_unit_become_milliseconds() -> None:
    values = pa.array([b"a", b"b"])
    micros = pa.array([NOW_MS * 1000 + 999, NOW_MS * 1000 + 5_000], pa.timestamp("us", tz="Europe/Berlin"))
    (batch,) = encode_batches(values, timestamps=micros)
    assert [record.timestamp for record in by_the_oracle(bytes(batch))] == [NOW_MS, NOW_MS + 5]
    assert read_header(batch).max_timestamp == NOW_MS + 5
    with pytest.raises(ValueError, match="a timestamp is needed"):
        list(encode_batches(values, timestamps=pa.array([1, None], pa.int64())))
    with pytest.raises(ValueError, match="3 keys for 2 rows"):
        list(encode_batches(values, keys=pa.array([b"", b"", b""]), timestamps=1))


@QUICKLY
@given(
    sizes=st.lists(st.integers(0, 400), min_size=1, max_size=60),
    batch_bytes=st.integers(1, 2_000),
    first=st.integers(1, 5),
)
def test_rows_are_cut_into_batches_that_keep_their_limit_and_their_sequence(
    sizes: list[int], batch_bytes: int, first: int
) -> None:
    values = [bytes([at % 256]) * size for at, size in enumerate(sizes)]
    batches = list(
        encode_batches(
            pa.array(values),
            timestamps=NOW_MS,
            batch_bytes=batch_bytes,
            first_records=first,
            producer_id=1,
            producer_epoch=0,
            base_sequence=10,
            compression=Codec.LZ4 if len(sizes) % 2 else Codec.NONE,
        )
    )
    headers = [read_header(batch) for batch in batches]
    assert all(verify_crc(batch, 0, header) for batch, header in zip(batches, headers, strict=True))
    assert headers[0].record_count <= first
    sequence = 10
    for batch, header in zip(batches, headers, strict=True):
        assert header.base_sequence == sequence
        assert header.record_count == 1 or header.compression or len(batch) - 61 <= batch_bytes
        sequence += header.record_count
    assert [record.value for batch in batches for record in read_records(batch, MAX_BYTES)] == values


def test_names_of_headers_that_are_not_text_are_replaced_as_elsewhere() -> None:
    batch = build_batch([(NOW_MS, None, b"v", [("xy", b"1")])])
    batch[batch.index(b"xy")] = 0xFF
    seal(batch, 0, len(batch))
    assert as_records(decode_batches(batch)) == by_the_oracle(bytes(batch))


def test_nothing_is_a_record_batch_without_rows() -> None:
    empty = decode_batches(b"")
    assert (empty.num_rows, empty.schema) == (0, SCHEMA)
    assert list(encode_batches(pa.array([], pa.binary()), timestamps=NOW_MS)) == []
    assert decode_batches(build_batch([(NOW_MS, None, b"v", ())]), batches=[]).num_rows == 0


def test_a_batch_beyond_the_end_is_not_read() -> None:
    batch = bytes(build_batch([(NOW_MS, None, b"v", ())]))
    with pytest.raises(KafkaError):
        decode_batches(batch[:-1], batches=[BatchAt(0, read_header(batch))])
