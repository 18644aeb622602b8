"""The metadata log and its snapshots: Apache Kafka's give the image that it has, and its tool reads what we write."""

import io
import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from fencepost.cli.main import run
from fencepost.insight.segment_file import SegmentFile
from fencepost.metadata.image import MetadataImage
from fencepost.metadata.records import MetadataRecord, decode_record, encode_record
from fencepost.wire.batch import build_batch
from tests.peers.dump import dump
from tests.peers.kafka import ApacheKafka
from tests.peers.raw import RawClient
from tests.support.patience import patient

pytestmark = pytest.mark.timeout(120)
CONFIGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "metadata.log.max.snapshot.interval.ms": "3000",
}
PAYLOAD = re.compile(r"payload: (\{.*\})$")


@pytest.fixture(scope="module")
def written() -> Iterator[Path]:
    """`__cluster_metadata-0` of a broker on which something of every kind was changed; with several snapshots."""
    with ApacheKafka(CONFIGS) as broker:
        with RawClient(broker.address) as client:
            administer(client)
        directory = broker.data_directory / "__cluster_metadata-0"
        deadline = time.monotonic() + patient(60)
        while not any(newest_has_everything(directory)):
            assert time.monotonic() < deadline, "no snapshot came"
            time.sleep(0.2)
        broker.stop()
        yield directory


def administer(client: RawClient) -> None:
    topics = [
        {"Name": "orders", "NumPartitions": 3, "ReplicationFactor": 1,
         "Configs": [{"Name": "cleanup.policy", "Value": "compact"}]},
        {"Name": "gone", "NumPartitions": 1, "ReplicationFactor": 1},
    ]  # fmt: skip
    created = client.call("CreateTopics", 7, {"Topics": topics, "timeoutMs": 30_000})
    assert [topic["ErrorCode"] for topic in created["Topics"]] == [0, 0]
    client.call("DeleteTopics", 6, {"Topics": [{"Name": "gone"}], "TimeoutMs": 30_000})
    client.call("CreatePartitions", 3, {"Topics": [{"Name": "orders", "Count": 5}], "TimeoutMs": 30_000})
    idempotent = {"TransactionalId": None, "TransactionTimeoutMs": 60_000}
    deadline = time.monotonic() + patient(30)
    while client.call("InitProducerId", 4, idempotent)["ErrorCode"]:
        assert time.monotonic() < deadline
    setting = {"Name": "log.cleaner.threads", "ConfigOperation": 0, "Value": "2"}
    changed = {"Resources": [{"ResourceType": 4, "ResourceName": "", "Configs": [setting]}]}
    client.call("IncrementalAlterConfigs", 1, changed)
    salted = {"Name": "al", "Mechanism": 1, "Iterations": 4096, "Salt": b"salt", "SaltedPassword": b"p" * 32}
    client.call("AlterUserScramCredentials", 0, {"Upsertions": [salted]})
    quota = {"Entity": [{"EntityType": "user", "EntityName": "al"}, {"EntityType": "client-id", "EntityName": None}],
             "Ops": [{"Key": "producer_byte_rate", "Value": 1e6, "Remove": False}]}  # fmt: skip
    client.call("AlterClientQuotas", 1, {"Entries": [quota]})
    rule = {"ResourceType": 2, "ResourceName": "or", "ResourcePatternType": 4, "Principal": "User:al", "Host": "*"}
    rules = [{**rule, "Operation": operation, "PermissionType": 3} for operation in (3, 4)]
    client.call("CreateAcls", 3, {"Creations": rules})
    removed = {
        "ResourceTypeFilter": 2, "ResourceNameFilter": None, "PatternTypeFilter": 1, "PrincipalFilter": None,
        "HostFilter": None, "Operation": 4, "PermissionType": 1,
    }  # fmt: skip
    answer = client.call("DeleteAcls", 3, {"Filters": [removed]})
    assert len(answer["FilterResults"][0]["MatchingAcls"]) == 1


def newest_has_everything(directory: Path) -> Iterator[bool]:
    for snapshot in snapshots(directory)[-1:]:
        image = MetadataImage()
        image.apply(record for _, record in read(snapshot))
        yield len(image.acls) == 1 and image.next_producer_id > 0


def snapshots(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.checkpoint"))


def read(file: Path) -> Iterator[tuple[int, MetadataRecord]]:
    for batch in SegmentFile(file).batches():
        if not batch.header.is_control:
            for record in batch.records():
                assert record.value is not None
                yield record.offset, decode_record(record.value)


def image_of(directory: Path, end: int) -> MetadataImage:
    image = MetadataImage()
    (log,) = directory.glob("*.log")
    image.apply(record for offset, record in read(log) if offset < end)
    return image


def as_counter(records: Iterator[MetadataRecord]) -> Counter[bytes]:
    """Without an order, which Kafka's maps do not have: of the features of a registration too."""
    found = []
    for record in records:
        if record.name == "RegisterBrokerRecord":
            record.message.features.sort(key=lambda feature: feature.name)
        found.append(encode_record(record))
    return Counter(found)


def test_the_log_up_to_a_snapshot_gives_the_records_of_the_snapshot(written: Path) -> None:
    assert snapshots(written)
    for snapshot in snapshots(written):
        ours = image_of(written, int(snapshot.name[:20])).to_records()
        assert as_counter(ours) == as_counter(record for _, record in read(snapshot)), snapshot.name
    names = {record.name for _, record in read(snapshots(written)[-1])}
    assert names >= {
        "FeatureLevelRecord", "RegisterBrokerRecord", "RegisterControllerRecord", "TopicRecord", "PartitionRecord",
        "ConfigRecord", "ClientQuotaRecord", "ProducerIdsRecord", "AccessControlEntryRecord",
        "UserScramCredentialRecord",
    }  # fmt: skip


def test_a_snapshot_read_and_written_again_is_the_same_byte_for_byte(written: Path) -> None:
    for snapshot in snapshots(written):
        records = [record for _, record in read(snapshot)]
        image = MetadataImage()
        image.apply(records)
        assert list(map(encode_record, image.to_records())) == list(map(encode_record, records))


def test_kafkas_tool_reads_our_records_as_it_reads_its_own(written: Path, tmp_path: Path) -> None:
    newest = snapshots(written)[-1]
    image = MetadataImage()
    image.apply(record for _, record in read(newest))
    ours = tmp_path / newest.name
    ours.write_bytes(build_batch([(0, None, encode_record(record), ()) for record in image.to_records()]))
    printed = dump([newest, ours], "--cluster-metadata-decoder")
    theirs, mine = (payloads(printed.by_file[str(file)]) for file in (newest, ours))
    assert mine == theirs
    assert len(mine) > 15


def payloads(lines: list[str]) -> list[object]:
    found = (PAYLOAD.search(line) for line in lines)
    decoded = [json.loads(match[1]) for match in found if match]
    return [each for each in decoded if "version" in each]


def test_both_tools_print_the_same(written: Path) -> None:
    files = [*written.glob("*.log"), *snapshots(written)]
    theirs = dump(files, "--cluster-metadata-decoder").text.splitlines()
    with redirect_stdout(io.StringIO()) as output:
        assert run(["dump", *map(str, files), "--print-data-log"]) == 0
    ours = output.getvalue().splitlines()
    assert [line for line in theirs if line in set(ours)] == ours
    assert sum("payload: {" in line for line in ours) > 40
