"""Rows to record batches: Java's partitions, order, every row once, headers; and the split of a first batch."""

import random
import warnings

import pytest

from tests.support.extras import require_arrow

require_arrow()

import pyarrow as pa  # noqa: E402

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from kafka.partitioner.default import murmur2 as oracle

from fencepost.client.partitioner import partition_of_key  # noqa: E402
from fencepost.spark.errors import InvalidOutput  # noqa: E402
from fencepost.spark.packed_batches import PackingPlan  # noqa: E402
from fencepost.spark.packer_task import Packer  # noqa: E402
from fencepost.spark.routing import dense_indexes, salts, spark_hash  # noqa: E402
from fencepost.spark.row_packing import split  # noqa: E402
from fencepost.wire.arrow_records import HEADERS_TYPE, decode_batches  # noqa: E402
from fencepost.wire.batch import read_header  # noqa: E402
from fencepost.wire.compression import Codec  # noqa: E402


def packer(partitions: int = 7, topic: str | None = "out", writers: int = 2, **changes) -> Packer:
    counts = {"out": partitions, "other": 3}
    fields = {
        "topic": topic,
        "partition_counts": counts,
        "indexes": dense_indexes(counts),
        "writers": writers,
        "compression": int(Codec.NONE),
        "batch_bytes": 4_000,
        "bootstrap_servers": ("unused:1",),
        "options": {},
    }
    return Packer(PackingPlan(**{**fields, **changes}))


def pack(how: Packer, *batches) -> list[tuple[int, str, int, list[dict]]]:
    """Each packed batch: salt, topic, partition, its records."""
    packed = []
    for made in how(iter(batches)):
        for row in made.to_pylist():
            records = decode_batches(row["batch"]).to_pylist()
            assert row["records"] == read_header(row["batch"]).record_count == len(records)
            packed.append((row["salt"], row["topic"], row["partition"], records))
    return packed


def rows(count: int, **columns):
    values = [b"value-%d" % number for number in range(count)]
    return pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary()), **columns})


def keys_of(count: int, seed: int = 1) -> list[bytes | None]:
    randomness = random.Random(seed)
    return [randomness.randbytes(randomness.randrange(0, 19)) for _ in range(count)]


def test_keys_go_where_the_java_client_sends_them():
    keys = keys_of(3_000)
    packed = pack(packer(), rows(3_000, key=pa.array(keys, pa.binary())))
    placed = {record["value"]: partition for _, _, partition, records in packed for record in records}
    assert len(placed) == 3_000
    for number, key in enumerate(keys):
        assert placed[b"value-%d" % number] == partition_of_key(key, 7) == (oracle(key) & 0x7FFFFFFF) % 7


def test_keys_in_a_slice_of_an_arrow_column_are_found():
    keys = keys_of(100)
    whole = rows(100, key=pa.array([None, *keys[1:]], pa.binary()))
    packed = pack(packer(), whole.slice(40, 30))
    placed = {record["value"]: (partition, record["key"]) for _, _, partition, held in packed for record in held}
    assert placed == {b"value-%d" % n: (partition_of_key(keys[n], 7), keys[n]) for n in range(40, 70)}


def test_rows_of_one_partition_keep_their_order_over_many_batches_of_input():
    keys = [b"key-%d" % (number % 11) for number in range(5_000)]
    whole = rows(5_000, key=pa.array(keys, pa.binary()))
    packed = pack(packer(), *(whole.slice(start, 500) for start in range(0, 5_000, 500)))
    by_partition: dict[int, list[int]] = {}
    for _, _, partition, records in packed:
        by_partition.setdefault(partition, []).extend(int(record["value"][6:]) for record in records)
    assert sum(map(len, by_partition.values())) == 5_000
    assert all(numbers == sorted(numbers) for numbers in by_partition.values())


def test_rows_without_a_key_fill_partition_after_partition():
    packed = pack(packer(partitions=4), rows(2_000))
    assert sorted(record["value"] for *_, records in packed for record in records) == sorted(
        b"value-%d" % number for number in range(2_000)
    )
    assert {partition for _, _, partition, _ in packed} == {0, 1, 2, 3}


def test_a_partition_that_a_row_names_is_taken_and_must_exist():
    chosen = pa.array([number % 7 if number % 2 else None for number in range(100)], pa.int32())
    keys = keys_of(100)
    packed = pack(packer(), rows(100, key=pa.array(keys, pa.binary()), partition=chosen))
    placed = {record["value"]: partition for _, _, partition, records in packed for record in records}
    for number in range(100):
        expected = number % 7 if number % 2 else partition_of_key(keys[number], 7)
        assert placed[b"value-%d" % number] == expected
    with pytest.raises(InvalidOutput, match="partition 9"):
        pack(packer(), rows(2, partition=pa.array([0, 9], pa.int32())))


def test_rows_may_name_their_topics_and_each_output_partition_has_one_writer():
    topics = pa.array(["out" if number % 3 else "other" for number in range(900)])
    packed = pack(packer(topic=None, writers=4), rows(900, topic=topics, key=pa.array(keys_of(900), pa.binary())))
    for _, topic, _, records in packed:
        assert {int(record["value"][6:]) % 3 == 0 for record in records} == {topic == "other"}
    owners: dict[tuple[str, int], set[int]] = {}
    for salt, topic, partition, _ in packed:
        owners.setdefault((topic, partition), set()).add(salt)
    assert all(len(writers) == 1 for writers in owners.values())
    assert {next(iter(writers)) for writers in owners.values()} == set(salts(4))


def test_a_row_without_a_topic_is_refused():
    with pytest.raises(InvalidOutput, match="topic"):
        pack(packer(topic=None), rows(2, topic=pa.array(["out", None])))


@pytest.mark.parametrize("codec", list(Codec))
def test_headers_nulls_and_compression_survive_packing_and_splitting(codec):
    headers = pa.array([[("a", b"1"), ("b", None)], None, [], [("c", b"")]], HEADERS_TYPE)
    values = pa.array([b"one", None, b"", b"four"], pa.binary())
    keys = pa.array([b"k", None, b"", b"k4"], pa.binary())
    batch = pa.RecordBatch.from_pydict({"value": values, "key": keys, "headers": headers})
    (made,) = packer(partitions=1, compression=int(codec))(iter([batch]))
    (data,) = made.column("batch").to_pylist()
    whole = decode_batches(data).to_pylist()
    assert [record["value"] for record in whole] == [b"one", None, b"", b"four"]
    assert [record["key"] for record in whole] == [b"k", None, b"", b"k4"]
    assert [[(h["key"], h["value"]) for h in record["headers"]] for record in whole] == [
        [("a", b"1"), ("b", None)], [], [], [("c", b"")],
    ]  # fmt: skip
    parts = split(bytearray(data), 3)
    assert [read_header(part).record_count for part in parts] == [3, 1]
    assert {read_header(part).attributes & 7 for part in parts} == {int(codec)}
    again = [record for part in parts for record in decode_batches(part).to_pylist()]
    assert [{**record, "offset": 0} for record in again] == [{**record, "offset": 0} for record in whole]
    assert split(bytearray(data), 4) == [data]


def test_every_writer_has_a_salt_that_sparks_hash_brings_to_it():
    # Of spark.range: hash(0), hash(1), hash(42), hash(-1) for int columns.
    assert [spark_hash(value) for value in (0, 1, 42)] == [933211791, -559580957, 29417773]
    for writers in (1, 2, 3, 16, 200):
        assert [spark_hash(salt) % writers for salt in salts(writers)] == list(range(writers))
