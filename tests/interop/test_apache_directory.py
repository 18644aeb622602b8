"""A data directory that Apache Kafka wrote is opened, read and continued by our log code."""

import fcntl
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost.config import TopicConfig
from fencepost.log.partition_log import Checkpoints, PartitionLog
from fencepost.log.side_files import (
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    read_meta_properties,
    read_offset_checkpoint,
    read_partition_metadata,
    take_clean_shutdown,
)
from fencepost.shell.disk import RealDisk
from tests.interop.load import CODECS, CONFIGS, load
from tests.peers.batches import batch, read_headers
from tests.peers.broker_process import BrokerFailed
from tests.peers.dump import dump, files_of
from tests.peers.fencepost_process import FencepostProcess
from tests.peers.kafka import ApacheKafka

pytestmark = pytest.mark.timeout(120)
NOW_MS = int(time.time() * 1000)  # near enough to the load that no producer has expired
PARTITIONS = ("segmented-0", "segmented-1", "compacted-0", "empty-0")


@pytest.fixture(scope="module")
def stopped() -> Iterator[Path]:
    """Apache Kafka's directory after a clean stop."""
    with ApacheKafka(CONFIGS) as broker:
        load(broker)
        broker.stop()
        yield broker.data_directory


@pytest.fixture
def directory(stopped: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(stopped, tmp_path / "data"))


def open_partition(directory: Path, name: str, *, clean: bool) -> PartitionLog:
    topic, _, partition = name.rpartition("-")
    disk = RealDisk()
    key = (topic, int(partition))
    topic_id = read_partition_metadata(disk, str(directory / name))
    assert topic_id is not None
    policy = ("compact",) if topic in ("compacted", "__consumer_offsets") else ("delete",)
    return PartitionLog.open(
        disk,
        str(directory / name),
        topic,
        int(partition),
        topic_id,
        TopicConfig(cleanup_policy=policy, segment_bytes=1_048_576),
        NOW_MS,
        Checkpoints(
            clean,
            read_offset_checkpoint(disk, str(directory), RECOVERY_POINT_CHECKPOINT).get(key, 0) if clean else None,
            read_offset_checkpoint(disk, str(directory), LOG_START_OFFSET_CHECKPOINT).get(key, 0),
        ),
    )


def log_bytes(directory: Path, name: str) -> bytes:
    return b"".join(file.read_bytes() for file in sorted((directory / name).glob("*.log")))


def read_all(log: PartitionLog) -> bytes:
    found, offset = bytearray(), log.log_start_offset
    while offset < log.log_end_offset:
        result = log.read(offset, 1 << 20)
        if not result.records:
            break
        found += result.records
        offset = result.next_offset
    return bytes(found)


def producers_in_snapshot(file: Path) -> set[tuple[int, int, int]]:
    """(producer id, epoch, last sequence), as Apache Kafka's tool reads them."""
    pattern = re.compile(r"producerId: (\d+) producerEpoch: (\d+) .*?lastSequence: (-?\d+)")
    return {tuple(map(int, found)) for found in pattern.findall(dump([file]).text)}  # type: ignore[misc]


@pytest.mark.parametrize("clean", [True, False], ids=["trusted", "scanned"])
@pytest.mark.parametrize("name", PARTITIONS)
def test_a_partition_is_opened_and_read_byte_for_byte(directory: Path, name: str, clean: bool) -> None:
    before = log_bytes(directory, name)
    log = open_partition(directory, name, clean=clean)
    assert read_all(log) == before
    headers = list(read_headers(before))
    assert log.log_end_offset == (headers[-1].base_offset + headers[-1].last_offset_delta + 1 if headers else 0)
    assert log_bytes(directory, name) == before, "opening changes nothing"


@pytest.mark.parametrize("clean", [True, False], ids=["from the snapshot", "from the batches"])
def test_the_producers_are_those_that_kafka_knew(directory: Path, clean: bool) -> None:
    newest = sorted((directory / "segmented-0").glob("*.snapshot"))[-1]
    expected = producers_in_snapshot(newest)
    assert len(expected) == len(CODECS)
    log = open_partition(directory, "segmented-0", clean=clean)
    found = {(p.producer_id, p.producer_epoch, p.last_sequence) for p in log.producers.producers.values()}
    assert found == expected


def test_offsets_and_times_are_found_through_kafkas_indexes(directory: Path) -> None:
    log = open_partition(directory, "segmented-0", clean=True)
    headers = list(read_headers(log_bytes(directory, "segmented-0")))
    for header in headers[:: max(1, len(headers) // 20)]:
        first = next(read_headers(bytes(log.read(header.base_offset, 1 << 20).records)))
        assert first == header
        by_time = log.offset_for_timestamp(header.max_timestamp)
        assert by_time is not None
        assert by_time.timestamp >= header.max_timestamp
        assert by_time.offset <= header.base_offset + header.last_offset_delta


def test_the_side_files_are_read(directory: Path) -> None:
    disk = RealDisk()
    properties = read_meta_properties(disk, str(directory))
    assert properties is not None
    assert properties.node_id == 1
    recovery = read_offset_checkpoint(disk, str(directory), RECOVERY_POINT_CHECKPOINT)
    assert recovery["segmented", 0] == open_partition(directory, "segmented-0", clean=True).log_end_offset
    assert take_clean_shutdown(disk, str(directory))


def test_a_log_begun_by_kafka_and_continued_by_us_is_read_by_kafkas_tool(directory: Path) -> None:
    log = open_partition(directory, "segmented-0", clean=True)
    end = log.log_end_offset
    for n in range(50):
        log.append_as_leader(bytearray(batch([b"continued %d" % n], timestamp=NOW_MS)), leader_epoch=1, now_ms=NOW_MS)
    log.advance_high_watermark(log.log_end_offset)
    log.close()
    assert log.log_end_offset == end + 50
    files = [
        file
        for file in files_of(directory, ".log", ".index", ".timeindex", ".snapshot")
        if file.parent.name == "segmented-0"
    ]
    assert dump(files).complaints() == []


def test_the_offsets_topic_of_kafka_is_opened(directory: Path) -> None:
    names = sorted(
        {
            file.parent.name
            for file in files_of(directory, ".log")
            if file.stat().st_size and "__consumer_offsets" in str(file)
        }
    )
    assert names
    for name in names:
        assert read_all(open_partition(directory, name, clean=False)) == log_bytes(directory, name)


def test_apache_kafka_and_we_keep_each_other_out_of_a_directory(tmp_path: Path) -> None:
    """Java takes record locks, Python programs like to take those of flock: each must see the other's."""
    kafka, ours = ApacheKafka(directory=tmp_path), FencepostProcess(directory=tmp_path)
    with kafka:
        with pytest.raises(BrokerFailed, match="in use by another broker"):
            ours.start()
        kafka.stop()
    # What Kafka's own tool leaves of a new directory, which both can start in.
    shutil.rmtree(kafka.data_directory)
    kafka._format(kafka._write_properties())
    with ours:
        assert "Failed to acquire lock" in failed_start(kafka)
        # A file that somebody deletes is there again before long, and locked.
        (ours.data_directory / ".lock").unlink()
        deadline = time.monotonic() + 60
        while True:
            try:
                with open(ours.data_directory / ".lock", "r+") as lock:
                    fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except FileNotFoundError:
                pass
            except BlockingIOError:
                break
            assert time.monotonic() < deadline
            time.sleep(0.05)
        ours.stop()


def failed_start(broker: ApacheKafka) -> str:
    """All that it says about it, which is much."""
    since = broker.log_file.stat().st_size
    with pytest.raises(BrokerFailed):
        broker.start()
    return broker.log_file.read_bytes()[since:].decode(errors="replace")
