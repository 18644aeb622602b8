"""Real clients on secured listeners: every mechanism that each of them has, a transaction, its records read back."""

import json
import subprocess
import sys
import time
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from fencepost.client import Admin, Client, NewTopic
from fencepost.client.sasl import AuthenticationFailed
from fencepost.client.security import UnsecuredToken
from tests.peers import java
from tests.peers.build import REPOSITORY
from tests.security.secured import (
    MECHANISMS,
    PASSWORD,
    SESSION_MS,
    USER,
    SecuredFencepost,
    as_properties,
    java_properties,
    own_options,
)
from tests.support.patience import patient

WAYS = [("SSL", ""), *(("SASL_SSL", mechanism) for mechanism in MECHANISMS)]
VALUES = {b"first", b"last"}
SECONDS = patient(60.0)


def topic_for(client: str, listener: str, mechanism: str) -> str:
    return f"{client}-{listener}-{mechanism}".rstrip("-")


def with_token(options: dict[str, Any], mechanism: str) -> dict[str, Any]:
    return options | ({"sasl.oauthbearer.token.provider": UnsecuredToken(USER)} if mechanism == "OAUTHBEARER" else {})


# Our own


@pytest.mark.parametrize(("listener", "mechanism"), [*WAYS, *(("SASL_PLAINTEXT", one) for one in MECHANISMS)])
def test_fencepost_writes_and_reads(broker: SecuredFencepost, listener: str, mechanism: str) -> None:
    options = with_token(own_options(broker, listener, mechanism), mechanism)
    topic = topic_for("own", listener, mechanism)
    with Admin(broker.address_of(listener), **options) as admin:
        admin.create_topic(NewTopic(topic, 2))
    with Client(broker.address_of(listener), **options) as client:
        with client.transaction(topic) as transaction:
            transaction.send(topic, b"x" * 300_000, partition=0)
            transaction.send(topic, b"last", partition=1)
        with client.consumer(f"group-{topic}", topic, max_wait_ms=100) as consumer:
            found: list[bytes | None] = []
            while len(found) < 2:
                found += [record.value for record in consumer.poll()]
    assert sorted(found, key=len) == [b"last", b"x" * 300_000]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password_and_a_name_that_does_not_exist_are_refused_alike(
    broker: SecuredFencepost, mechanism: str
) -> None:
    options = own_options(broker, "SASL_SSL", mechanism)
    told = []
    for changed in ({"sasl.password": "mistaken"}, {"sasl.username": "mallory"}):
        with pytest.raises(AuthenticationFailed) as refused:
            Admin(broker.address_of("SASL_SSL"), **(options | changed))
        told.append(refused.value.reason)
    assert told[0] == told[1]
    assert "mistaken" not in broker.log_file.read_text()


# librdkafka


def confluent_options(broker: SecuredFencepost, listener: str, mechanism: str) -> dict[str, Any]:
    options = own_options(broker, listener, mechanism) | {"bootstrap.servers": broker.address_of(listener)}
    if mechanism == "OAUTHBEARER":
        options |= {"sasl.oauthbearer.config": f"principal={USER}", "enable.sasl.oauthbearer.unsecure.jwt": True}
    return options


@pytest.mark.parametrize(("listener", "mechanism"), WAYS)
def test_confluent_kafka_writes_and_reads(broker: SecuredFencepost, listener: str, mechanism: str) -> None:
    options, topic = confluent_options(broker, listener, mechanism), topic_for("confluent", listener, mechanism)
    producer = Producer(options | {"transactional.id": topic})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    producer.produce(topic, b"first")
    producer.produce(topic, b"last")
    producer.commit_transaction(SECONDS)
    consumer = Consumer(
        options | {"group.id": topic, "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    )
    consumer.subscribe([topic])
    found: set[bytes | None] = set()
    deadline = time.monotonic() + SECONDS
    while found != VALUES and time.monotonic() < deadline:
        found |= {message.value() for message in consumer.consume(10, 0.2) if message.error() is None}
    consumer.close()
    assert found == VALUES


def test_confluent_kafka_is_told_that_its_password_is_wrong(broker: SecuredFencepost) -> None:
    options = confluent_options(broker, "SASL_SSL", "SCRAM-SHA-512") | {"sasl.password": "mistaken"}
    errors: list[KafkaError] = []
    producer = Producer(options | {"error_cb": errors.append, "log_level": 0})
    deadline = time.monotonic() + SECONDS
    while not any(error.code() == KafkaError._AUTHENTICATION for error in errors) and time.monotonic() < deadline:
        producer.poll(0.1)
    assert any(error.code() == KafkaError._AUTHENTICATION for error in errors), errors


def test_confluent_kafka_renews_its_session_in_the_middle_of_a_transaction(broker: SecuredFencepost) -> None:
    options = confluent_options(broker, "SHORT", "SCRAM-SHA-256")
    topic, failed = "confluent-short", []
    producer = Producer(options | {"transactional.id": topic, "error_cb": failed.append})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    ends, count = time.monotonic() + 2.5 * SESSION_MS / 1000, 0
    while time.monotonic() < ends:
        producer.produce(topic, b"%d" % count)
        assert producer.flush(SECONDS) == 0
        count += 1
        time.sleep(0.05)
    producer.commit_transaction(SECONDS)
    assert committed_values(broker, topic) == [b"%d" % number for number in range(count)]
    assert failed == []


# aiokafka and kafka-python


@pytest.mark.parametrize("client", ["aiokafka", "kafka-python"])
def test_python_clients_write_and_read_by_every_mechanism(broker: SecuredFencepost, client: str) -> None:
    ways = [
        {
            "topic": topic_for(client, listener, mechanism),
            "bootstrap": broker.address_of(listener),
            "protocol": broker.listeners[listener],
            "mechanism": mechanism,
            "authority": str(broker.authority.file),
            "certificate": str(broker.client_certificate) if listener == "SSL" else "",
            "user": USER,
            "password": PASSWORD,
        }
        for listener, mechanism in WAYS
    ]
    command = [sys.executable, "-m", "tests.security.python_clients", client, json.dumps(ways)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patient(110), cwd=REPOSITORY)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert answers == [{"topic": way["topic"], "values": ["first", "last"]} for way in ways], done.stderr[-3000:]


# Java


def test_java_writes_and_reads_by_every_mechanism_and_renews_its_session_in_a_transaction(
    broker: SecuredFencepost,
) -> None:
    wrong = java_properties(broker, "SASL_SSL", "SCRAM-SHA-256")
    wrong["sasl.jaas.config"] = wrong["sasl.jaas.config"].replace(PASSWORD, "mistaken")
    held_ms = 2 * SESSION_MS
    runs: list[dict[str, Any]] = [
        {
            "name": mechanism or listener,
            "topic": topic_for("java", listener, mechanism),
            "properties": java_properties(broker, listener, mechanism),
        }
        for listener, mechanism in WAYS
    ]
    runs += [
        {
            "name": "renewed",
            "topic": "java-short",
            "properties": java_properties(broker, "SHORT", "PLAIN"),
            "holdMs": held_ms,
        },
        {"name": "wrong", "topic": "java-wrong", "properties": wrong},
    ]
    answers = {one["name"]: one for one in java.run_json_lines("SecureProgram", json.dumps({"runs": runs}))}
    for listener, mechanism in WAYS:
        assert answers[mechanism or listener].get("values") == ["first", "last"], answers
    renewed = answers["renewed"].get("values", [])
    assert {"first", "last"} < set(renewed), answers["renewed"]
    assert answers["wrong"]["error"] == "SaslAuthenticationException"


def test_kafkas_own_tools_set_describe_and_remove_scram_users(broker: SecuredFencepost, tmp_path: Any) -> None:
    config = tmp_path / "client.properties"
    config.write_text(as_properties(java_properties(broker, "SASL_SSL", "SCRAM-SHA-512")))
    where = ("--bootstrap-server", broker.address_of("SASL_SSL"), "--command-config", str(config))
    of_carol = ("--entity-type", "users", "--entity-name", "carol")
    tool = "kafka.admin.ConfigCommand"
    java.run(tool, *where, *of_carol, "--alter", "--add-config", "SCRAM-SHA-256=[iterations=8192,password=carols]")
    assert "iterations=8192" in java.run(tool, *where, *of_carol, "--describe")
    carol = own_options(broker, "SASL_SSL", "SCRAM-SHA-256") | {"sasl.username": "carol", "sasl.password": "carols"}
    with Admin(broker.address_of("SASL_SSL"), **carol) as admin:
        assert admin.describe_cluster().brokers
    java.run(tool, *where, *of_carol, "--alter", "--delete-config", "SCRAM-SHA-256")
    with pytest.raises(AuthenticationFailed):
        Admin(broker.address_of("SASL_SSL"), **carol)


def committed_values(broker: SecuredFencepost, topic: str) -> list[bytes | None]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.address_of("PLAINTEXT"),
            "group.id": f"all-{topic}",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe([topic])
    found: list[bytes | None] = []
    try:
        while True:
            for message in consumer.consume(500, 0.2):
                error = message.error()
                if error is None:
                    found.append(message.value())
                elif error.code() == KafkaError._PARTITION_EOF:
                    return found
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()
