"""Records must land where Java's client would put them, or keys change partitions with the language of a producer."""

import random
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.client.partitioner import StickyPartitioner, murmur2, partition_of_key

with warnings.catch_warnings(action="ignore"):
    from kafka.partitioner.default import murmur2 as kafka_python_murmur2

# From Apache Kafka's UtilsTest.testMurmur2.
JAVA_VECTORS = [
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"abc", 479470107),
]


@pytest.mark.parametrize(("data", "hashed"), JAVA_VECTORS)
def test_hashes_as_java_does(data: bytes, hashed: int) -> None:
    assert murmur2(data) == hashed & 0xFFFFFFFF


@given(st.binary(max_size=64))
def test_hashes_as_kafka_python_does(data: bytes) -> None:
    assert murmur2(data) == kafka_python_murmur2(data) & 0xFFFFFFFF


@given(st.binary(max_size=20), st.integers(1, 50))
def test_a_key_always_has_a_partition(key: bytes, count: int) -> None:
    assert 0 <= partition_of_key(key, count) < count


def test_a_keyless_record_stays_on_a_partition_until_a_batch_is_full_and_then_goes_to_another() -> None:
    sticky = StickyPartitioner(100, random.Random(7))
    chosen = [sticky.partition("t", [0, 1, 2], 25) for _ in range(12)]
    runs = [chosen[at : at + 4] for at in range(0, 12, 4)]
    assert all(len(set(run)) == 1 for run in runs)
    assert runs[0][0] != runs[1][0] != runs[2][0]


def test_a_partition_that_lost_its_leader_is_left() -> None:
    sticky = StickyPartitioner(1_000_000, random.Random(7))
    first = sticky.partition("t", [0, 1], 10)
    assert sticky.partition("t", [1 - first], 10) == 1 - first


def test_one_partition_is_enough() -> None:
    sticky = StickyPartitioner(10, random.Random(7))
    assert [sticky.partition("t", [0], 25) for _ in range(3)] == [0, 0, 0]
