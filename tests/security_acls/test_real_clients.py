"""Clients with exactly the rights that they need do their work; with one less they are told what is missing."""

from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from fencepost.client import Admin, BrokerError, Client
from fencepost.wire.acls import AclOperation, ResourceType
from fencepost.wire.errors import ErrorCode
from tests.peers.raw import RawClient
from tests.security_acls.scene import PASSWORD, AskingFencepost, Right, grant
from tests.security_acls.test_known_attacks import make_topic
from tests.support.patience import patient

pytestmark = pytest.mark.timeout(120)

OP, TOPIC, GROUP, ID = (
    AclOperation,
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.TRANSACTIONAL_ID,
)
PATIENCE_SECONDS = patient(60)


def options(broker: AskingFencepost, user: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": "{}:{}".format(*broker.asking_address),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": PASSWORD,
    }


@pytest.fixture
def names(root: RawClient, user: str) -> dict[str, str]:
    return {
        "in": make_topic(root, f"{user}-in"),
        "out": make_topic(root, f"{user}-out"),
        "group": f"{user}-group",
        "id": f"{user}-id",
    }


def copy(broker: AskingFencepost, user: str, names: dict[str, str]) -> None:
    """Reads one record and writes it on, the offset with it."""
    producer = Producer({**options(broker, user), "transactional.id": names["id"]})
    consumer = Consumer(
        {
            **options(broker, user),
            "group.id": names["group"],
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    try:
        producer.init_transactions(PATIENCE_SECONDS)
        # A consumer goes on asking for a topic that it may not read; this says what it asks in vain.
        described = consumer.list_topics(names["in"], PATIENCE_SECONDS).topics[names["in"]]
        if described.error is not None:
            raise KafkaException(described.error)
        consumer.assign([TopicPartition(names["in"], 0, 0)])
        (record,) = consumer.consume(1, PATIENCE_SECONDS)
        if record.error():
            raise KafkaException(record.error())
        producer.begin_transaction()
        failures: list[KafkaError] = []
        producer.produce(
            names["out"], record.value(), on_delivery=lambda error, _: failures.append(error) if error else None
        )
        assert producer.flush(PATIENCE_SECONDS) == 0
        if failures:
            raise KafkaException(failures[0])
        after = [TopicPartition(names["in"], 0, record.offset() + 1)]
        producer.send_offsets_to_transaction(after, consumer.consumer_group_metadata(), PATIENCE_SECONDS)
        producer.commit_transaction(PATIENCE_SECONDS)
    finally:
        consumer.close()


# A read and a write imply that the topic may be described; the idempotent producer needs nothing of the cluster.
NEEDED = [(OP.READ, TOPIC, "in"), (OP.WRITE, TOPIC, "out"), (OP.READ, GROUP, "group"), (OP.WRITE, ID, "id")]
REFUSALS = {
    "in": KafkaError.TOPIC_AUTHORIZATION_FAILED,
    "out": KafkaError.TOPIC_AUTHORIZATION_FAILED,
    "group": KafkaError.GROUP_AUTHORIZATION_FAILED,
    "id": KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


def test_a_copier_needs_four_rights(broker: AskingFencepost, root: RawClient, user: str, names: dict[str, str]) -> None:
    grant(root, [(user, Right(operation, kind, names[which])) for operation, kind, which in NEEDED])
    writer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    writer.produce(names["in"], b"purchase")
    assert writer.flush(PATIENCE_SECONDS) == 0
    copy(broker, user, names)
    reader = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": f"{user}-check"})
    reader.assign([TopicPartition(names["out"], 0, 0)])
    (record,) = reader.consume(1, PATIENCE_SECONDS)
    assert (record.error(), record.value()) == (None, b"purchase")
    reader.close()


@pytest.mark.parametrize("missing", REFUSALS)
def test_a_copier_that_lacks_a_right_is_told_which(
    missing: str, broker: AskingFencepost, root: RawClient, user: str, names: dict[str, str]
) -> None:
    rights = [Right(operation, kind, names[which]) for operation, kind, which in NEEDED if which != missing]
    grant(root, [(user, right) for right in rights])
    writer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    writer.produce(names["in"], b"purchase")
    assert writer.flush(PATIENCE_SECONDS) == 0
    with pytest.raises(KafkaException) as refusal:
        copy(broker, user, names)
    assert refusal.value.args[0].code() == REFUSALS[missing]


def test_the_client_of_this_project_says_what_is_missing(
    broker: AskingFencepost, root: RawClient, user: str, names: dict[str, str]
) -> None:
    login = {name: value for name, value in options(broker, user).items() if name != "bootstrap.servers"}
    address = "{}:{}".format(*broker.asking_address)
    with Admin(address, **login) as admin:
        assert admin.list_topics() == []
        with pytest.raises(BrokerError) as refusal:
            admin.delete_topic(names["in"])
        assert refusal.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    grant(root, [(user, Right(OP.WRITE, TOPIC, names["out"])), (user, Right(OP.WRITE, ID, names["id"]))])
    with Client(address, **login) as client, client.transaction(names["id"]) as transaction:
        transaction.send(names["out"], b"invoice")
    with Admin(address, **login) as admin:
        assert [topic.name for topic in admin.list_topics()] == [names["out"]]
