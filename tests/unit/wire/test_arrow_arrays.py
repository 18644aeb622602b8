"""Arrays by their buffers are what pyarrow's own functions make, and pandas is not imported for them."""

import subprocess
import sys

import pytest
from tests.support.extras import require_arrow

require_arrow()

import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402

from fencepost.wire.arrow_arrays import from_bytes, from_numpy, is_valid, to_numpy  # noqa: E402


def test_arrays_are_what_pyarrow_makes() -> None:
    numbers = np.array([3, -1, 7], np.int32)
    assert from_numpy(numbers, pa.int32()).equals(pa.array(numbers))
    assert from_numpy(numbers[::2], pa.int32()).to_pylist() == [3, 7]
    truths = np.array([True, False, True])
    assert from_numpy(truths, pa.bool_()).equals(pa.array(truths))
    for values, kind in (
        (["a", None, "ä€", ""], pa.string()),
        ([b"a", bytearray(b"\xff"), None], pa.binary()),
        (["a", "b"], pa.string()),
        ([], pa.string()),
    ):
        made = from_bytes(values, kind)
        made.validate(full=True)
        assert made.equals(pa.array(values, kind))


def test_numbers_come_back_from_any_slice() -> None:
    array = pa.array([1, None, 3, 4, None, 6, 7, 8, 9, None], pa.int64())
    for start in range(10):
        part = array.slice(start, 5)
        expected = part.to_pylist()
        assert is_valid(part).tolist() == [value is not None for value in expected]
        found = np.where(is_valid(part), to_numpy(part, np.int64), -1)
        assert found.tolist() == [-1 if value is None else value for value in expected]
    assert to_numpy(pa.array([], pa.int64()), np.int64).tolist() == []


WORK = """
import sys
import numpy as np
import pyarrow as pa
from fencepost.topic_partition import TopicPartition
from fencepost.spark.packed_batches import PackingPlan
from fencepost.spark.packer_task import Packer
from fencepost.spark.row_packing import split
from fencepost.spark.unpacking import Portion, Unpacker
from fencepost.spark import writer_task
from fencepost.wire.arrow_arrays import from_bytes, from_numpy
from fencepost.wire.arrow_records import BatchAt
from fencepost.wire.batch import read_header

columns = {
    "topic": from_bytes(["a", "b", "a"], pa.string()),
    "value": from_bytes([b"1", None, b"3"], pa.binary()),
    "key": from_bytes([b"k", b"l", None], pa.binary()),
    "partition": from_numpy(np.array([0, 1, 0], np.int32), pa.int32()),
}
rows = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
packer = Packer(PackingPlan(None, {"a": 2, "b": 2}, {"a": 0, "b": 2}, 1, 0, 1000, ("127.0.0.1:1",), {}))
packed = list(packer(iter([rows])))
for batch in packed:
    for topic, partition, records, data in writer_task._rows(batch):
        split(data, 1)
        unpacker = Unpacker(TopicPartition(topic, partition), 9, include_headers=True)
        portion = Portion(memoryview(data), [BatchAt(0, read_header(data))], 0)
        print(sum(found.num_rows for found in unpacker.unpack(portion)))
assert "pandas" not in sys.modules, "pandas was imported"
"""


def test_a_worker_reads_packs_and_writes_without_pandas() -> None:
    done = subprocess.run([sys.executable, "-c", WORK], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert sum(map(int, done.stdout.split())) == 3


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere Spark's own daemon is used")
def test_the_daemon_of_workers_has_one_thread_when_it_forks() -> None:
    pytest.importorskip("pyspark")
    program = "from fencepost.spark.worker_daemon import load, thread_count; load(); print(thread_count())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "1", done.stderr
