"""Fencepost and Apache Kafka take turns on one data directory: nothing that a client was told is lost."""

import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.peers.broker_process import BrokerFailed, BrokerProcess
from tests.peers.dump import dump
from tests.peers.fencepost_process import FencepostProcess
from tests.peers.kafka import ApacheKafka
from tests.peers.raw import RawClient
from tests.support.patience import patient

pytestmark = pytest.mark.timeout(300)
SCRIPT = str(Path(sys.executable).with_name("fencepost"))
LEDGER, OPEN = "ledger", "open"
GROUP = "auditors"
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
FEW = {"offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "3"}


class ApacheKafkaHere(ApacheKafka):
    """With the server.properties that `fencepost kafka-config` prints for the directory."""

    def _write_properties(self) -> Path:
        path = super()._write_properties()
        assert self._ports is not None
        broker, controller = self._ports
        addresses = ["--listen", f"127.0.0.1:{broker}", "--controller", f"127.0.0.1:{controller}"]
        command = [SCRIPT, "kafka-config", "--data", str(self.data_directory), *addresses]
        printed = subprocess.run(command, capture_output=True, text=True)
        assert printed.returncode == 0, printed.stderr
        # A controller waits that long until it believes that a broker which was killed is gone.
        quick = {"broker.session.timeout.ms": "3000", "group.initial.rebalance.delay.ms": "0", **AUTHORIZER}
        path.write_text(printed.stdout + "".join(f"{name}={value}\n" for name, value in quick.items()))
        return path


@dataclass
class Told:
    """What clients were told."""

    ledger: list[bytes] = field(default_factory=list)
    topics: set[str] = field(default_factory=set)
    acls: int = 0
    committed: int = 0
    retention_ms: str = ""


def until_done(call: Any) -> Any:
    """A controller that has just begun, or a coordinator that loads, asks to be asked again."""
    deadline = time.monotonic() + patient(60)
    while True:
        try:
            return call()
        except (AssertionError, KafkaException):
            assert time.monotonic() < deadline
            time.sleep(0.2)


def producer(broker: BrokerProcess, transactional_id: str) -> Producer:
    made = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": transactional_id})
    until_done(lambda: made.init_transactions(patient(30)))
    return made


def administer(broker: BrokerProcess, turn: int, told: Told) -> None:
    name = f"turn-{turn}"
    with RawClient(broker.address) as client:

        def call(api: str, version: int, request: dict[str, Any], answers: str) -> None:
            answer = client.call(api, version, request)
            assert [each["ErrorCode"] for each in answer[answers]] == [0], answer

        if turn == 0:
            wanted = {"Name": LEDGER, "NumPartitions": 1, "ReplicationFactor": 1}
            until_done(lambda: call("CreateTopics", 7, {"Topics": [wanted], "timeoutMs": 30_000}, "Topics"))
            told.topics.add(LEDGER)
        wanted = {"Name": name, "NumPartitions": 2, "ReplicationFactor": 1}
        until_done(lambda: call("CreateTopics", 7, {"Topics": [wanted], "timeoutMs": 30_000}, "Topics"))
        call(
            "CreatePartitions",
            3,
            {"Topics": [{"Name": name, "Count": 3, "Assignments": None}], "TimeoutMs": 30_000},
            "Results",
        )
        told.topics.add(name)
        if turn > 1:
            gone = f"turn-{turn - 2}"
            call("DeleteTopics", 6, {"Topics": [{"Name": gone}], "TimeoutMs": 30_000}, "Responses")
            told.topics.remove(gone)
        told.retention_ms = str(10**9 + turn)
        setting = {"Name": "retention.ms", "ConfigOperation": 0, "Value": told.retention_ms}
        resource = {"ResourceType": 2, "ResourceName": LEDGER, "Configs": [setting]}
        call("IncrementalAlterConfigs", 1, {"Resources": [resource]}, "Responses")
        rule = {"ResourceType": 2, "ResourceName": name, "ResourcePatternType": 3, "Principal": "User:al",
                "Host": "*", "Operation": 3, "PermissionType": 3}  # fmt: skip
        call("CreateAcls", 3, {"Creations": [rule]}, "Results")
        told.acls += 1
        salted = {
            "Name": f"al-{turn}",
            "Mechanism": 1,
            "Iterations": 4096,
            "Salt": b"salt",
            "SaltedPassword": b"p" * 32,
        }
        call("AlterUserScramCredentials", 0, {"Upsertions": [salted]}, "Results")


def work(broker: BrokerProcess, turn: int, told: Told) -> None:
    administer(broker, turn, told)
    writer = producer(broker, "writer")
    for number in range(3):
        writer.begin_transaction()
        told.ledger.append(b"%d.%d" % (turn, number))
        writer.produce(LEDGER, told.ledger[-1])
        writer.commit_transaction(patient(30))
    writer.begin_transaction()
    writer.produce(LEDGER, b"aborted")
    writer.flush(patient(30))
    writer.abort_transaction(patient(30))


def audit(broker: BrokerProcess, turn: int, told: Told) -> None:
    """After a turn, by a client that knows neither broker: whoever serves must know all that was told."""
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": GROUP, "enable.auto.commit": False}
    consumer = Consumer({**settings, "isolation.level": "read_committed", "auto.offset.reset": "error"})
    at = [TopicPartition(LEDGER, 0)]
    if turn:
        (position,) = until_done(lambda: consumer.committed(at, patient(10)))
        assert position.offset == told.committed
    # A new producer of the id ends the transaction that the last turn left open.
    producer(broker, OPEN)
    consumer.assign([TopicPartition(LEDGER, 0, 0)])
    seen: list[bytes] = []
    deadline = time.monotonic() + patient(60)
    while len(seen) < len(told.ledger):
        message = consumer.poll(0.2)
        if message is not None and not message.error():
            seen.append(message.value())
        assert time.monotonic() < deadline, seen
    assert seen == told.ledger
    (position,) = consumer.position(at)
    (committed,) = until_done(
        lambda: consumer.commit(offsets=[TopicPartition(LEDGER, 0, position.offset)], asynchronous=False)
    )
    told.committed = committed.offset
    consumer.close()
    with RawClient(broker.address) as client:
        listed = client.call("Metadata", 12, {"Topics": None})["Topics"]
        shown = {topic["Name"]: len(topic["Partitions"]) for topic in listed if not topic["Name"].startswith("__")}
        assert shown == {name: 1 if name == LEDGER else 3 for name in told.topics}
        everything = {"ResourceTypeFilter": 1, "ResourceNameFilter": None, "PatternTypeFilter": 1,
                      "PrincipalFilter": None, "HostFilter": None, "Operation": 1, "PermissionType": 1}  # fmt: skip
        rules = client.call("DescribeAcls", 3, everything)["Resources"]
        assert sum(len(resource["Acls"]) for resource in rules) == told.acls
        users = client.call("DescribeUserScramCredentials", 0, {"Users": None})["Results"]
        assert [user["User"] for user in sorted(users, key=lambda user: user["User"])] == [
            f"al-{number}" for number in range(told.acls)
        ]
        described = client.call("DescribeConfigs", 4, {"Resources": [
            {"ResourceType": 2, "ResourceName": LEDGER, "ConfigurationKeys": ["retention.ms"]}
        ]})  # fmt: skip
        assert described["Results"][0]["Configs"][0]["Value"] == told.retention_ms


def test_four_turns_of_which_each_side_ends_one_by_a_kill(tmp_path: Path) -> None:
    told = Told()
    for turn in range(4):
        kind: type[BrokerProcess] = ApacheKafkaHere if turn % 2 else FencepostProcess
        broker = kind(directory=tmp_path) if turn % 2 else kind({**AUTHORIZER, **FEW}, directory=tmp_path)
        with broker:
            work(broker, turn, told)
            audit(broker, turn, told)
            left_open = leave_open(broker)
            if turn in (1, 2):
                broker.kill()
            else:
                broker.stop()
            del left_open
    metadata = tmp_path / "data" / "__cluster_metadata-0"
    # The dump tools of both agree on a log that both have written.
    files = sorted(file for file in metadata.iterdir() if file.suffix in (".log", ".checkpoint"))
    theirs = dump(files, "--cluster-metadata-decoder")
    assert theirs.complaints() == []
    done = subprocess.run([SCRIPT, "dump", *map(str, files), "--print-data-log"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    printed = done.stdout.splitlines()
    assert [line for line in theirs.text.splitlines() if line in set(printed)] == printed


def leave_open(broker: BrokerProcess) -> Producer:
    """A transaction that nobody ends before the next turn."""
    left_open = producer(broker, OPEN)
    left_open.begin_transaction()
    left_open.produce(LEDGER, b"undecided")
    assert left_open.flush(patient(30)) == 0
    return left_open


def test_a_directory_that_apache_kafka_began_is_served_and_given_back(tmp_path: Path) -> None:
    """With the features and the voters of Kafka's own format tool, `eligible.leader.replicas.version` 1 among them."""
    told = Told()
    kafka = ApacheKafka({**FEW, **AUTHORIZER}, directory=tmp_path)
    with kafka:
        work(kafka, 0, told)
        audit(kafka, 0, told)
        kafka.stop()
        with FencepostProcess(AUTHORIZER, directory=tmp_path) as ours:
            work(ours, 1, told)
            audit(ours, 1, told)
            ours.stop()
        kafka.start()
        audit(kafka, 2, told)
        kafka.stop()


def test_what_fencepost_cannot_serve_is_refused_and_nothing_is_changed(tmp_path: Path) -> None:
    with ApacheKafka(directory=tmp_path) as kafka, RawClient(kafka.address) as client:
        entity = [{"EntityType": "user", "EntityName": "al"}]
        quota = {"Entity": entity, "Ops": [{"Key": "producer_byte_rate", "Value": 1e6, "Remove": False}]}
        answer = client.call("AlterClientQuotas", 1, {"Entries": [quota]})
        assert answer["Entries"][0]["ErrorCode"] == 0
        kafka.stop()
    data = tmp_path / "data"
    before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file() and path.name != ".lock"}
    with pytest.raises(BrokerFailed, match="client quotas for user al, which Fencepost does not enforce"):
        FencepostProcess(directory=tmp_path).start()
    assert {path: path.read_bytes() for path in data.rglob("*") if path.is_file() and path.name != ".lock"} == before
