"""The codecs: what foreign writers make is read, what is too large or broken is refused before it costs memory."""

import gzip
import os
import tracemalloc
import warnings

import cramjam
import lz4.frame
import pytest
from aiokafka.codec import snappy_decode, snappy_encode
from backports import zstd
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fencepost.wire.compression import Codec, compress, decompress
from fencepost.wire.errors import ErrorCode, KafkaError

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # kafka-python's own use of importlib
    from kafka.codec import lz4_decode

REAL_CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
TEXT = b"".join(b"line %d of a log that repeats itself\n" % number for number in range(5000))
PLENTY = 1 << 24

unhurried = settings(deadline=None)
codecs = pytest.mark.parametrize("codec", REAL_CODECS)


def refusal(codec: int, data: bytes, max_bytes: int = PLENTY) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        decompress(codec, data, max_bytes)
    return refused.value.code


EXPECTED_OUTCOMES = (ErrorCode.NONE, ErrorCode.INVALID_RECORD, ErrorCode.MESSAGE_TOO_LARGE)


def outcome(codec: int, data: bytes) -> ErrorCode:
    try:
        decompress(codec, data, 1 << 16)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


@codecs
@unhurried
@given(st.binary(max_size=2000), st.integers(1, 400))
def test_what_goes_in_comes_out(codec, data, repeats):
    content = data * repeats
    assert decompress(codec, compress(codec, content), len(content)) == content


def test_foreign_decoders_read_what_we_compress():
    assert gzip.decompress(compress(Codec.GZIP, TEXT)) == TEXT
    assert snappy_decode(compress(Codec.SNAPPY, TEXT)) == TEXT
    assert lz4_decode(compress(Codec.LZ4, TEXT)) == TEXT
    assert zstd.decompress(compress(Codec.ZSTD, TEXT)) == TEXT


def test_snappy_is_read_framed_as_java_writes_it_and_raw_as_others_do():
    assert decompress(Codec.SNAPPY, snappy_encode(TEXT, xerial_compatible=True), PLENTY) == TEXT
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT)), PLENTY) == TEXT
    strung_together = snappy_encode(b"first ") + snappy_encode(b"second")
    assert decompress(Codec.SNAPPY, strung_together, PLENTY) == b"first second"


def test_frames_that_state_no_size_and_frames_in_a_row_are_read():
    without_size = lz4.frame.compress(TEXT, store_size=False, block_linked=True)
    assert decompress(Codec.LZ4, without_size, PLENTY) == TEXT
    compressor = zstd.ZstdCompressor()
    streamed = compressor.compress(TEXT) + compressor.flush()
    assert decompress(Codec.ZSTD, streamed + zstd.compress(b"more"), PLENTY) == TEXT + b"more"
    assert decompress(Codec.GZIP, gzip.compress(b"one") + gzip.compress(b"two"), PLENTY) == b"onetwo"


@codecs
def test_output_is_capped_to_the_byte(codec):
    packed = compress(codec, TEXT)
    assert decompress(codec, packed, len(TEXT)) == TEXT
    assert refusal(codec, packed, len(TEXT) - 1) == ErrorCode.MESSAGE_TOO_LARGE


@codecs
def test_a_bomb_is_refused_without_the_memory_it_asks_for(codec):
    bomb = compress(codec, bytes(64 << 20))
    tracemalloc.start()
    assert refusal(codec, bomb, 1 << 20) == ErrorCode.MESSAGE_TOO_LARGE
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < (8 << 20) + 4 * len(bomb)


def test_a_declared_length_is_not_believed():
    two_gigabytes = b"\xff\xff\xff\xff\x07" + b"\x00a"
    assert refusal(Codec.SNAPPY, two_gigabytes) == ErrorCode.INVALID_RECORD


@codecs
def test_truncated_data_is_invalid_wherever_it_ends(codec):
    packed = compress(codec, TEXT[:3000] + os.urandom(3000))
    ends = {1, 2, 7, 15, 16, 17, len(packed) // 2, len(packed) - 1}
    for end in ends:
        if codec == Codec.SNAPPY and end == 16:
            assert decompress(codec, packed[:end], PLENTY) == b""  # a stream of no blocks
        else:
            assert refusal(codec, packed[:end]) == ErrorCode.INVALID_RECORD, end


@codecs
@unhurried
@given(st.binary(min_size=1, max_size=300))
@example(b"\x28\xb5\x2f\xfd\xff")
@example(b"\x04\x22\x4d\x18\xff\xff")
def test_garbage_is_refused_or_read_but_nothing_else(codec, garbage):
    for data in (garbage, compress(codec, TEXT)[:20] + garbage):
        assert outcome(codec, data) in EXPECTED_OUTCOMES


@codecs
@unhurried
@given(st.data())
def test_flipped_bits_never_escape_as_another_error(codec, data):
    packed = bytearray(compress(codec, TEXT[:2000]))
    position = data.draw(st.integers(0, len(packed) - 1))
    packed[position] ^= 1 << data.draw(st.integers(0, 7))
    assert outcome(codec, packed) in EXPECTED_OUTCOMES


@pytest.mark.parametrize(("codec", "low", "high"), [(Codec.GZIP, 1, 9), (Codec.LZ4, 9, 12), (Codec.ZSTD, -20, 19)])
def test_a_higher_level_compresses_harder(codec, low, high):
    easy, hard = compress(codec, TEXT, low), compress(codec, TEXT, high)
    assert len(hard) < len(easy)
    assert decompress(codec, hard, PLENTY) == TEXT


def test_an_unknown_codec_is_an_error_of_its_own():
    assert refusal(5, b"data") == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
