"""`fencepost tap` where all is encrypted: TLS and SASL listeners of Apache Kafka behind it, real clients in front."""

import asyncio
import base64
import json
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from aiokafka import AIOKafkaProducer

from fencepost.client import Admin, Client, NewTopic
from tests.faults.clients import FORGIVEN
from tests.faults.test_tap import FENCEPOST, Tap, committed, outcomes
from tests.interop_client.secured import PASSWORD, USER, SecuredKafka
from tests.peers.process import WAIT_TIMEOUT_SECONDS

pytestmark = FORGIVEN


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with SecuredKafka(tmp_path_factory.mktemp("secured")) as broker:
        yield broker


@pytest.fixture
def start_tap(kafka: SecuredKafka, tmp_path: Path) -> Iterator[Callable[..., Tap]]:
    """A tap before a listener; the file of its settings knows the password too, as a user's own would."""
    started: list[Tap] = []

    def start(listener: str, *options: str) -> Tap:
        config = tmp_path / "client.properties"
        config.write_text(
            f"security.protocol={listener}\nssl.truststore.location={kafka.certificates.authority}\n"
            f"ssl.keystore.location={kafka.certificates.client}\nsasl.mechanism=PLAIN\n"
            f"sasl.username={USER}\nsasl.password={PASSWORD}\n"
        )
        host, _, port = kafka.address_of(listener).rpartition(":")
        started.append(Tap((host, int(port)), tmp_path / "calls.tap", "--command-config", str(config), *options))
        return started[-1]

    yield start
    for tap in started:
        tap.stop()


def assert_no_secret(tap: Tap) -> None:
    recorded = tap.recorded()
    assert '"SaslAuthenticate"' in recorded, "that somebody logged in may be seen"
    login = f"\0{USER}\0{PASSWORD}".encode()
    for form in (PASSWORD, json.dumps(PASSWORD)[1:-1], base64.b64encode(login).decode(), login.hex()):
        assert form not in recorded


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_tls_on_both_sides_and_a_login_that_passes_through(
    mechanism: str, kafka: SecuredKafka, start_tap: Callable[..., Tap]
) -> None:
    name = f"tapped-tls-{mechanism}"
    tap = start_tap("SASL_SSL", "--listen-cert", str(kafka.certificates.broker))
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": tap.bootstrap_servers, "transactional.id": name, "log_level": 0,
            "security.protocol": "SASL_SSL", "ssl.ca.location": str(kafka.certificates.authority),
            "sasl.mechanism": mechanism, "sasl.username": USER, "sasl.password": PASSWORD,
        }
    )  # fmt: skip
    producer.init_transactions(WAIT_TIMEOUT_SECONDS)
    for number in range(6):
        producer.begin_transaction()
        producer.produce(name, b"%d" % number, partition=0)
        assert producer.flush(WAIT_TIMEOUT_SECONDS) == 0
        (producer.abort_transaction if number % 2 else producer.commit_transaction)(WAIT_TIMEOUT_SECONDS)

    assert committed(kafka.bootstrap_servers, name) == [b"0", b"2", b"4"]
    assert outcomes(tap, name) == ["commit", "abort"] * 3
    assert_no_secret(tap)


def test_a_plaintext_client_before_a_cluster_that_wants_tls(kafka: SecuredKafka, start_tap: Callable[..., Tap]) -> None:
    name = "tapped-plain"
    tap = start_tap("SASL_SSL")
    login = {"sasl_mechanism": "SCRAM-SHA-256", "sasl_plain_username": USER, "sasl_plain_password": PASSWORD}

    async def transact() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=tap.bootstrap_servers, transactional_id=name, security_protocol="SASL_PLAINTEXT", **login
        )
        await producer.start()
        try:
            async with producer.transaction():
                await producer.send_and_wait(name, b"x", partition=0)
        finally:
            await producer.stop()

    thread = threading.Thread(target=lambda: asyncio.run(transact()))
    thread.start()
    thread.join(WAIT_TIMEOUT_SECONDS)
    assert committed(kafka.bootstrap_servers, name) == [b"x"]
    assert outcomes(tap, name) == ["commit"]
    assert_no_secret(tap)


def test_brokers_that_ask_for_a_certificate_get_that_of_the_tap(
    kafka: SecuredKafka, start_tap: Callable[..., Tap]
) -> None:
    name = "tapped-mutual"
    tap = start_tap("SSL")
    with Admin(tap.bootstrap_servers) as admin:
        admin.create_topic(NewTopic(name, 1))
    with Client(tap.bootstrap_servers) as client, client.transaction(name) as transaction:
        transaction.send(name, b"x", partition=0)
    assert committed(kafka.bootstrap_servers, name) == [b"x"]
    assert outcomes(tap, name) == ["commit"]


def test_the_tap_logs_nobody_in(kafka: SecuredKafka, start_tap: Callable[..., Tap]) -> None:
    tap = start_tap("SASL_SSL", "--listen-cert", str(kafka.certificates.broker))
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": tap.bootstrap_servers, "log_level": 0, "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(kafka.certificates.authority), "sasl.mechanism": "PLAIN",
            "sasl.username": USER, "sasl.password": "mistaken", "error_cb": (refusals := []).append,
        }
    )  # fmt: skip
    deadline = time.monotonic() + WAIT_TIMEOUT_SECONDS
    while not refusals and time.monotonic() < deadline:
        producer.poll(0.2)
    assert any(error.code() == confluent_kafka.KafkaError._AUTHENTICATION for error in refusals), refusals


def test_a_client_is_sent_back_to_the_name_that_it_came_to(kafka: SecuredKafka, start_tap: Callable[..., Tap]) -> None:
    """A certificate for a name would not fit the address behind it."""
    certificate = kafka.certificates._signed("named", "subjectAltName=DNS:localhost")
    tap = start_tap("SSL", "--listen-cert", str(certificate))
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": tap.bootstrap_servers.replace("127.0.0.1", "localhost"), "log_level": 0,
            "broker.address.family": "v4", "security.protocol": "SSL",
            "ssl.ca.location": str(kafka.certificates.authority),
        }
    )  # fmt: skip
    (broker,) = producer.list_topics(timeout=WAIT_TIMEOUT_SECONDS).brokers.values()
    assert f"{broker.host}:{broker.port}" == tap.bootstrap_servers.replace("127.0.0.1", "localhost")


def test_old_tls_is_refused(kafka: SecuredKafka, start_tap: Callable[..., Tap]) -> None:
    import socket

    tap = start_tap("SSL", "--listen-cert", str(kafka.certificates.broker))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(kafka.certificates.authority)
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    host, _, port = tap.bootstrap_servers.rpartition(":")
    with socket.create_connection((host, int(port)), WAIT_TIMEOUT_SECONDS) as plain, pytest.raises(OSError):
        context.wrap_socket(plain, server_hostname=host)


def refusal(*arguments: Any) -> str:
    done = subprocess.run(
        [FENCEPOST, "tap", *map(str, arguments)], capture_output=True, text=True, timeout=WAIT_TIMEOUT_SECONDS
    )
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    return done.stderr


def test_what_cannot_be_used_is_said_in_words(kafka: SecuredKafka, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text("security.protocol=SASL_SSL\n")
    upstream = ("--upstream", kafka.address_of("SASL_SSL"), "--listen", "127.0.0.1:0")
    assert "certificate" in refusal(*upstream, "--command-config", config)
    config.write_text("security.protocol=TLS\n")
    assert "security.protocol" in refusal(*upstream, "--command-config", config)
    assert "cannot use the certificate" in refusal(*upstream, "--listen-cert", tmp_path / "nowhere.pem")
    assert "--listen-key" in refusal(*upstream, "--listen-key", tmp_path / "nowhere.key")
