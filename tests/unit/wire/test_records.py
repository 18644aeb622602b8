"""Records of a batch, against the builders and readers of three other clients, and against batches that lie."""

import warnings

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AioKafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioKafkaBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.records.readers import read_batch as kio_read_batch

from fencepost.wire.batch import build_batch, encode_record, encode_varint, read_header, verify_crc
from fencepost.wire.compression import Codec
from fencepost.wire.errors import ErrorCode, KafkaError
from fencepost.wire.records import (
    InvalidRecords,
    Record,
    check_records,
    convert_batch,
    encode_records,
    payload_of,
    read_records,
    rebuild_batch,
    scan_records,
    shift_timestamp,
    with_log_append_time,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # kafka-python's own use of importlib
    from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
    from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

PLENTY = 1 << 24
NOW = 1_700_000_000_000

unhurried = settings(deadline=None)
fields = st.none() | st.binary(max_size=300)
headers = st.lists(st.tuples(st.text(max_size=20), st.none() | st.binary(max_size=80)), max_size=3)
new_records = st.lists(
    st.tuples(st.integers(NOW, NOW + 10**7), fields, fields, headers.map(tuple)), min_size=1, max_size=30
)
codecs = st.sampled_from(list(Codec))


def simple_batch(count: int = 3, **options) -> bytearray:
    return build_batch([(NOW + i, b"key-%d" % i, b"value-%d" % i, ()) for i in range(count)], **options)


def payload_batch(payload: bytes, count: int) -> bytearray:
    """A batch that says it has `count` records around any bytes at all, under a right CRC."""
    header = read_header(simple_batch())._replace(record_count=count)
    return rebuild_batch(header, payload, 0)


def refusal(batch) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        list(read_records(batch, PLENTY))
    return refused.value.code


@unhurried
@given(new_records, codecs, st.integers(0, 2**40))
def test_records_come_back_as_they_were(records, codec, base_offset):
    batch = build_batch(records, compression=codec, base_offset=base_offset)
    expected = [
        Record(base_offset + index, timestamp, key, value, headers)
        for index, (timestamp, key, value, headers) in enumerate(records)
    ]
    assert list(read_records(batch, PLENTY)) == expected


@pytest.mark.parametrize("builder_class", [AioKafkaBuilder, KafkaPythonBuilder])
@unhurried
@given(records=new_records, codec=st.sampled_from([Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]))
def test_records_of_foreign_builders_are_read(builder_class, records, codec):
    builder = builder_class(2, codec, True, 7, 1, 0, 1 << 24)
    for index, (timestamp, key, value, headers) in enumerate(records):
        assert builder.append(index, timestamp, key, value, list(headers)) is not None
    batch = bytes(builder.build())
    header = read_header(batch)
    assert verify_crc(batch, 0, header)
    assert [(r.timestamp, r.key, r.value, r.headers) for r in read_records(batch, PLENTY)] == records
    check_records(payload_of(batch, header, PLENTY), header, keys_required=False)


@pytest.mark.parametrize("batch_class", [AioKafkaBatch, KafkaPythonBatch])
@unhurried
@given(records=new_records, codec=codecs)
def test_foreign_readers_read_our_records(batch_class, records, codec):
    theirs = batch_class(bytes(build_batch(records, compression=codec)))
    assert theirs.validate_crc()
    assert [(r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs] == records


@unhurried
@given(new_records)
def test_kio_reads_our_records(records):
    batch, _ = kio_read_batch(bytes(build_batch(records)), 0)
    assert [(r.key, r.value) for r in batch.records] == [(key, value) for _, key, value, _ in records]
    assert [[(h.key.decode(), h.value) for h in r.headers] for r in batch.records] == [list(r[3]) for r in records]


@unhurried
@given(new_records, codecs, codecs)
def test_another_codec_changes_nothing_but_the_codec(records, before, after):
    batch = build_batch(records, compression=before, producer_id=7, producer_epoch=1, base_sequence=40)
    header = read_header(batch)
    converted = convert_batch(batch, header, after, PLENTY)
    result = read_header(converted)
    assert verify_crc(converted, 0, result)
    assert result.compression == after
    unchanged = {"batch_length": 0, "crc": 0, "attributes": 0}
    assert result._replace(**unchanged) == header._replace(**unchanged)
    assert list(read_records(converted, PLENTY)) == list(read_records(batch, PLENTY))


def test_log_append_time_overrules_every_record():
    batch = simple_batch(compression=Codec.LZ4)
    header = read_header(batch)
    stamped = with_log_append_time(header, payload_of(batch, header, PLENTY), NOW + 99)
    assert verify_crc(stamped, 0, read_header(stamped))
    assert {record.timestamp for record in read_records(stamped, PLENTY)} == {NOW + 99}
    assert {record.timestamp for record in AioKafkaBatch(bytes(stamped))} == {NOW + 99}


@unhurried
@given(new_records)
def test_a_scan_sees_the_keys_and_tombstones_of_every_record(records):
    batch = build_batch(records)
    header = read_header(batch)
    payload = payload_of(batch, header, PLENTY)
    spans = scan_records(payload, len(records))
    expected = [(key, value is None) for _, key, value, _ in records]
    assert [(span.key, span.value_start < 0) for span in spans] == expected
    assert b"".join(payload[span.start : span.end] for span in spans) == payload


@unhurried
@given(new_records, st.integers(-(2**40), 2**40))
def test_a_record_moved_to_another_base_timestamp_keeps_its_time(records, shift):
    batch = build_batch(records)
    header = read_header(batch)
    payload = payload_of(batch, header, PLENTY)
    moved = b"".join(
        shift_timestamp(payload, span, span.timestamp_delta - shift) for span in scan_records(payload, len(records))
    )
    rebuilt = rebuild_batch(header._replace(base_timestamp=header.base_timestamp + shift), moved, 0)
    assert list(read_records(rebuilt, PLENTY)) == list(read_records(batch, PLENTY))


def test_encoded_records_are_what_a_batch_holds():
    records = [Record(10 + i, NOW + i, b"k", b"v", (("name", b"x"),)) for i in range(3)]
    built = build_batch([(r.timestamp, r.key, r.value, r.headers) for r in records], base_offset=10)
    assert encode_records(records, 10, NOW) == payload_of(built, read_header(built), PLENTY)


class TestLies:
    def test_more_records_declared_than_there_are(self):
        payload = encode_record(0, 0, b"k", b"v", ())
        assert refusal(payload_batch(payload, 2)) == ErrorCode.INVALID_RECORD
        assert refusal(payload_batch(payload, 2**31 - 1)) == ErrorCode.INVALID_RECORD
        assert refusal(payload_batch(payload, -1)) == ErrorCode.INVALID_RECORD

    def test_bytes_behind_the_last_record(self):
        payload = encode_record(0, 0, b"k", b"v", ()) * 2
        assert refusal(payload_batch(payload, 1)) == ErrorCode.INVALID_RECORD

    @pytest.mark.parametrize("length", [-2, -(2**31), 60, 2**31 - 1, 2**35])
    def test_field_lengths_that_do_not_fit(self, length):
        start = b"\0" + encode_varint(0) + encode_varint(0)
        rest = b"v" * 30
        for body in (
            start + encode_varint(length) + rest,
            start + encode_varint(1) + b"k" + encode_varint(length) + rest,
            start + encode_varint(1) + b"k" + encode_varint(1) + b"v" + encode_varint(length) + rest,
            start + encode_varint(-1) + encode_varint(-1) + encode_varint(1) + encode_varint(length) + rest,
            start + encode_varint(-1) + encode_varint(-1) + encode_varint(1) + encode_varint(1) + b"n"
            + encode_varint(length) + rest,
        ):  # fmt: skip
            assert refusal(payload_batch(encode_varint(len(body)) + body, 1)) == ErrorCode.INVALID_RECORD
        assert refusal(payload_batch(encode_varint(length) + start + rest, 1)) == ErrorCode.INVALID_RECORD

    def test_a_record_that_its_fields_do_not_fill(self):
        body = encode_record(0, 0, b"k", b"v", ())[1:] + b"\0"
        assert refusal(payload_batch(encode_varint(len(body)) + body, 1)) == ErrorCode.INVALID_RECORD

    def test_a_varint_without_end(self):
        assert refusal(payload_batch(b"\xff" * 30, 1)) == ErrorCode.INVALID_RECORD

    def test_a_batch_cut_off(self):
        batch = simple_batch()
        for end in (0, 10, 60, 61, len(batch) - 1):
            assert refusal(batch[:end]) == ErrorCode.INVALID_RECORD

    def test_a_batch_that_unpacks_to_too_much(self):
        batch = build_batch([(NOW, None, bytes(100_000), ())], compression=Codec.ZSTD)
        with pytest.raises(KafkaError) as refused:
            read_records(batch, 50_000)
        assert refused.value.code == ErrorCode.MESSAGE_TOO_LARGE

    @unhurried
    @given(st.data())
    def test_flipped_bytes_are_read_or_refused_but_nothing_else(self, data):
        payload = bytearray(payload_of(batch := simple_batch(4), read_header(batch), PLENTY))
        for _ in range(data.draw(st.integers(1, 4))):
            payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
        code = ErrorCode.NONE
        try:
            list(read_records(payload_batch(bytes(payload), 4), PLENTY))
        except KafkaError as error:
            code = error.code
        assert code in (ErrorCode.NONE, ErrorCode.INVALID_RECORD)


class TestChecks:
    def test_a_compacted_topic_names_every_record_without_a_key(self):
        batch = build_batch([(NOW, b"k", b"v", ()), (NOW, None, b"v", ()), (NOW, None, None, ())])
        header = read_header(batch)
        payload = payload_of(batch, header, PLENTY)
        with pytest.raises(InvalidRecords) as refused:
            check_records(payload, header, keys_required=True)
        assert refused.value.code == ErrorCode.INVALID_RECORD
        assert [index for index, _ in refused.value.record_errors] == [1, 2]
        check_records(payload, header, keys_required=False)

    def test_relative_offsets_must_count_from_zero(self):
        batch = build_batch([(NOW, b"k", b"v", ()), (NOW, b"k", b"v", ())], offset_deltas=[0, 2])
        with pytest.raises(KafkaError) as refused:
            check_records(payload_of(batch, read_header(batch), PLENTY), read_header(batch), keys_required=False)
        assert refused.value.code == ErrorCode.INVALID_RECORD

    def test_the_first_of_the_latest_records_is_found(self):
        batch = build_batch([(NOW + delta, b"k", b"v", ()) for delta in (5, 9, 1, 9)])
        summary = check_records(payload_of(batch, read_header(batch), PLENTY), read_header(batch), keys_required=True)
        assert summary == (NOW + 9, 1)
