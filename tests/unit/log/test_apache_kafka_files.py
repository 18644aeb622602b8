"""Apache Kafka's dump tool reads what we write; we read what Apache Kafka writes, stopped cleanly or killed."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from fencepost.config import TopicConfig
from fencepost.log.partition_log import Checkpoints, LogLimits, PartitionLog
from fencepost.log.side_files import (
    CLEAN_SHUTDOWN,
    RECOVERY_POINT_CHECKPOINT,
    read_meta_properties,
    read_offset_checkpoint,
    read_partition_metadata,
    take_clean_shutdown,
    write_clean_shutdown,
    write_meta_properties,
    write_offset_checkpoint,
)
from fencepost.shell.disk import RealDisk
from fencepost.wire.batch import ControlType, build_batch
from fencepost.wire.records import read_records
from tests.peers import java
from tests.peers.kafka import ApacheKafka
from tests.peers.markers import append_marker
from tests.support.patience import patient

NOW_MS = 1_700_000_000_000
RECORDS_AND_MARKERS = 1004
SMALL = TopicConfig(segment_bytes=20_000, index_interval_bytes=500)
COMPLAINTS = re.compile(r"mismatch|not found|corrupt|out of order|exception|isvalid: false|exceeds", re.IGNORECASE)


def write_a_log(directory: Path) -> PartitionLog:
    """Five segments: plain, idempotent and transactional batches, aborts and commits, five leader epochs."""
    log = PartitionLog.open(
        RealDisk(), str(directory / "purchases-0"), "purchases", 0, bytes(range(16)), SMALL, NOW_MS,
        Checkpoints(is_clean=True), limits=LogLimits(transaction_verification_enabled=False),
    )  # fmt: skip
    sequences = {0: 0, 1: 0, 2: 0}
    for at in range(500):
        producer_id, count, epoch = at % 4 - 1, 1 + at % 3, 3 + at // 100
        has_producer = producer_id >= 0
        batch = build_batch(
            [(NOW_MS + (at * 7) % 400, b"key", b"value" * 10, (("trace", b"1"),))] * count,
            producer_id=producer_id,
            producer_epoch=0 if has_producer else -1,
            base_sequence=sequences[producer_id] if has_producer else -1,
            transactional=producer_id == 2,
            compression=at % 5,
        )
        log.append_as_leader(batch, leader_epoch=epoch, now_ms=NOW_MS + 400)
        if has_producer:
            sequences[producer_id] += count
        if at % 20 == 19:
            append_marker(
                log, ControlType(at // 20 % 2), 2, 0, 5, transaction_version=1, leader_epoch=epoch, now_ms=NOW_MS + at
            )
    return log


def test_the_dump_tool_reads_every_file_of_a_closed_log_without_a_complaint(tmp_path: Path) -> None:
    log = write_a_log(tmp_path)
    log.close()
    files = sorted(
        path for path in (tmp_path / "purchases-0").iterdir() if path.name[0] == "0" and path.suffix != ".crc"
    )
    assert {path.suffix for path in files} == {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
    output = java.run("org.apache.kafka.tools.DumpLogSegments", "--files", ",".join(map(str, files)))
    assert not COMPLAINTS.findall(output)
    assert output.count("baseOffset: ") == 525
    assert output.count("isvalid: true") == 525
    assert output.count("producerId: 2 producerEpoch: 0 coordinatorEpoch: 5") >= 4  # the snapshots


def test_the_dump_tool_reads_the_index_files_of_a_live_log(tmp_path: Path) -> None:
    log = write_a_log(tmp_path)
    log.flush_side_files()
    active = tmp_path / "purchases-0" / f"{log.segments.active.base_offset:020d}"
    files = [active.with_suffix(suffix) for suffix in (".log", ".index", ".timeindex")]
    output = java.run("org.apache.kafka.tools.DumpLogSegments", "--files", ",".join(map(str, files)))
    assert not COMPLAINTS.findall(output)
    assert f"lastOffset: {log.log_end_offset - 1} " in output


@pytest.fixture
def apache() -> Iterator[ApacheKafka]:
    settings = {"log.index.interval.bytes": "200", "log.segment.bytes": "1048576"}
    with ApacheKafka(settings) as broker:
        yield broker


def fill(broker: ApacheKafka) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for future in admin.create_topics([NewTopic("orders", 1, 1)]).values():
        future.result(patient(30))
    for compression in ("none", "gzip", "lz4", "zstd", "snappy"):
        settings = {
            "bootstrap.servers": broker.bootstrap_servers,
            "enable.idempotence": True,
            "compression.type": compression,
            "linger.ms": 1,
        }
        producer = Producer(settings)
        for number in range(200):
            producer.produce("orders", key=f"{compression}-{number}", value=b"x" * 50)
            if number % 10 == 0:
                producer.flush(patient(30))
        assert producer.flush(patient(30)) == 0
    for outcome in ("commit", "abort"):
        transactional = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": outcome})
        transactional.init_transactions(30)
        transactional.begin_transaction()
        transactional.produce("orders", key=outcome, value=b"y")
        transactional.flush(patient(30))
        (transactional.commit_transaction if outcome == "commit" else transactional.abort_transaction)(30)
        # Kafka does not promise that the next transaction of another producer begins behind this one's marker.
        await_marker(admin, RECORDS_AND_MARKERS - (2 if outcome == "commit" else 0))


def await_marker(admin: AdminClient, end: int) -> None:
    """A marker follows the answer to a commit or abort; once it is there, the stable offset is the end."""
    partition = TopicPartition("orders", 0)
    deadline = time.monotonic() + patient(30)
    while time.monotonic() < deadline:
        asked = admin.list_offsets({partition: OffsetSpec.latest()}, isolation_level=IsolationLevel.READ_COMMITTED)
        if asked[partition].result(patient(30)).offset == end:
            return
        time.sleep(0.05)
    raise AssertionError("the marker did not arrive")


def keys_of(log: PartitionLog) -> list[str]:
    keys, offset = [], log.log_start_offset
    while offset < log.log_end_offset:
        result = log.read(offset, 10_000)
        view, position = memoryview(result.records), 0
        while position < len(view):
            for record in read_records(view, 1 << 20, position):
                assert record.key is not None
                if len(record.key) > 4:  # not a marker
                    keys.append(record.key.decode())
            position += 12 + int.from_bytes(view[position + 8 : position + 12])
        offset = result.next_offset
    return keys


EXPECTED_KEYS = [f"{codec}-{number}" for codec in ("none", "gzip", "lz4", "zstd", "snappy") for number in range(200)]


def open_orders(broker: ApacheKafka, *, clean: bool) -> PartitionLog:
    disk, directory = RealDisk(), str(broker.data_directory)
    partition = f"{directory}/orders-0"
    topic_id = read_partition_metadata(disk, partition)
    assert topic_id is not None
    recovery_points = read_offset_checkpoint(disk, directory, RECOVERY_POINT_CHECKPOINT)
    return PartitionLog.open(
        disk, partition, "orders", 0, topic_id, TopicConfig(index_interval_bytes=200), NOW_MS,
        Checkpoints(clean, recovery_points.get(("orders", 0), 0)),
    )  # fmt: skip


def check_orders(log: PartitionLog) -> None:
    log.check_invariants()
    (aborted,) = log.aborted_transactions(0, log.log_end_offset)
    assert (aborted.first_offset, aborted.last_offset) == (1002, 1003)
    assert len(log.producers.producers) == 7
    assert log.last_stable_offset == log.log_end_offset


def test_we_and_apache_kafka_take_turns_in_one_directory(apache: ApacheKafka) -> None:
    fill(apache)
    apache.stop()
    disk, directory = RealDisk(), str(apache.data_directory)
    properties = read_meta_properties(disk, directory)
    assert properties is not None
    assert (properties.node_id, properties.version) == (1, 1)
    write_meta_properties(disk, directory, properties)
    broker_epoch = json.loads((apache.data_directory / CLEAN_SHUTDOWN).read_text())["brokerEpoch"]
    assert take_clean_shutdown(disk, directory)

    # A scan of everything comes to the same end as trusting the files.
    log, scanned = open_orders(apache, clean=True), open_orders(apache, clean=False)
    for opened in (log, scanned):
        assert keys_of(opened) == [*EXPECTED_KEYS, "commit", "abort"]
        assert opened.log_end_offset == RECORDS_AND_MARKERS
        check_orders(opened)
    assert scanned.offset_for_timestamp(0) == log.offset_for_timestamp(0)
    assert scanned.offset_of_max_timestamp() == log.offset_of_max_timestamp()

    # We append and stop cleanly; Kafka goes on without a recovery.
    appended = log.append_as_leader(
        build_batch([(NOW_MS, b"ours-0", b"z", ())]), leader_epoch=log.leader_epoch, now_ms=NOW_MS
    )
    log.close()
    recovery_points = read_offset_checkpoint(disk, directory, RECOVERY_POINT_CHECKPOINT)
    recovery_points["orders", 0] = log.log_end_offset
    write_offset_checkpoint(disk, directory, RECOVERY_POINT_CHECKPOINT, recovery_points)
    write_clean_shutdown(disk, directory, broker_epoch)
    apache.start()
    told = [line for line in apache.log_file.read_text().splitlines() if "orders-0" in line]
    assert not [line for line in told if "Recovering unflushed segment" in line or "ERROR" in line or "WARN" in line]
    producer = Producer({"bootstrap.servers": apache.bootstrap_servers})
    offsets: list[int] = []
    producer.produce("orders", key="theirs", on_delivery=lambda error, message: offsets.append(message.offset()))
    assert producer.flush(patient(30)) == 0
    assert offsets == [appended.last_offset + 1]

    # Kafka is killed, with its indexes preallocated; we recover.
    apache.kill()
    assert not take_clean_shutdown(disk, directory)
    recovered = open_orders(apache, clean=False)
    assert keys_of(recovered) == [*EXPECTED_KEYS, "commit", "abort", "ours-0", "theirs"]
    check_orders(recovered)
    # Trusting what a killed Kafka left must not go wrong either: the zeros of an index are no entries.
    assert open_orders(apache, clean=True).log_end_offset == recovered.log_end_offset
