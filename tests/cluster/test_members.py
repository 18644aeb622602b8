"""A broker of Apache Kafka is a member of the cluster of our controller, and goes on when that is killed."""

import time
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from tests.peers import java
from tests.peers.dump import dump
from tests.peers.fencepost_controller import FencepostController
from tests.peers.kafka_member import ApacheMember
from tests.support.patience import patient

pytestmark = pytest.mark.timeout(180)
ANSWER_SECONDS = patient(30)


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple[FencepostController, ApacheMember]]:
    with (
        FencepostController() as controller,
        ApacheMember(2, controller.cluster_id, controller.voter) as member,
    ):
        yield controller, member


def test_it_is_served_through_a_kill_of_its_controller(cluster: tuple[FencepostController, ApacheMember]) -> None:
    controller, member = cluster
    admin = AdminClient({"bootstrap.servers": member.bootstrap_servers})
    create(admin, "before", 3)
    commit(member, "before", [b"1", b"2"])
    controller.kill()
    commit(member, "before", [b"3"])
    controller.start()
    create(admin, "after", 2)
    commit(member, "after", [b"4"])
    assert consume(member, "before", 3) == {b"1", b"2", b"3"}
    assert consume(member, "after", 1) == {b"4"}
    described = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, "after")])
    (configs,) = [future.result(ANSWER_SECONDS) for future in described.values()]
    assert configs["retention.ms"].value == "12345"


def create(admin: AdminClient, name: str, partitions: int) -> None:
    topic = NewTopic(name, partitions, 1, config={"retention.ms": "12345"})
    (future,) = admin.create_topics([topic], operation_timeout=ANSWER_SECONDS).values()
    future.result(ANSWER_SECONDS)


def commit(member: ApacheMember, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": member.bootstrap_servers, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(ANSWER_SECONDS)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value)
    producer.commit_transaction(ANSWER_SECONDS)


def consume(member: ApacheMember, topic: str, count: int) -> set[bytes]:
    consumer = Consumer({
        "bootstrap.servers": member.bootstrap_servers, "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest",
    })  # fmt: skip
    partitions = consumer.list_topics(topic, ANSWER_SECONDS).topics[topic].partitions
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    found: set[bytes] = set()
    deadline = time.monotonic() + ANSWER_SECONDS
    while len(found) < count:
        assert time.monotonic() < deadline, found
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found.add(message.value())
    consumer.close()
    return found


def test_kafkas_tools_describe_the_quorum_and_read_its_log(cluster: tuple[FencepostController, ApacheMember]) -> None:
    controller, member = cluster
    tool = "org.apache.kafka.tools.MetadataQuorumCommand"
    told = java.run(tool, "--bootstrap-server", member.bootstrap_servers, "describe", "--status")
    assert "LeaderId:               1" in told
    assert f"ClusterId:              {controller.cluster_id}" in told
    (log,) = (controller.data_directory / "__cluster_metadata-0").glob("*.log")
    printed = "\n".join(dump([log], "--cluster-metadata-decoder").by_file[str(log)])
    assert '"REGISTER_BROKER_RECORD"' in printed
    assert '"name":"before"' in printed


def test_it_stops_in_order_and_comes_back(cluster: tuple[FencepostController, ApacheMember]) -> None:
    _, member = cluster
    member.restart()
    assert consume(member, "before", 3) == {b"1", b"2", b"3"}
