"""TLS and SASL against Apache Kafka's listeners: every mechanism, with and without TLS, and every way to be refused."""

import base64
import json
import pickle
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from fencepost.client import Admin, Client, NewTopic, PartitionReader, Producer
from fencepost.client.errors import BrokerUnreachable, ClientError, NotAKafkaBroker, NotTrusted
from fencepost.client.sasl import AuthenticationFailed
from fencepost.client.security import UnsecuredToken
from tests.interop_client.secured import MECHANISMS, PASSWORD, SESSION_MS, USER, SecuredKafka


@pytest.fixture(scope="module")
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    # The client's side is under test, and only Apache Kafka has such listeners.
    with SecuredKafka(tmp_path_factory.mktemp("secured")) as broker:
        yield broker


def options_for(kafka: SecuredKafka, listener: str, mechanism: str) -> dict[str, Any]:
    options: dict[str, Any] = {"security.protocol": listener, "request.timeout.ms": 10_000}
    if "SSL" in listener:
        options["ssl.ca.location"] = str(kafka.certificates.authority)
    if listener == "SSL":
        options["ssl.certificate.location"] = str(kafka.certificates.client)
    if mechanism == "OAUTHBEARER":
        options |= {"sasl.mechanism": mechanism, "sasl.oauthbearer.token.provider": UnsecuredToken(USER)}
    elif mechanism:
        options |= {"sasl.mechanism": mechanism, "sasl.username": USER, "sasl.password": PASSWORD}
    return options


@pytest.mark.parametrize(
    ("listener", "mechanism"),
    [("SSL", ""), *((listener, mechanism) for listener in ("SASL_PLAINTEXT", "SASL_SSL") for mechanism in MECHANISMS)],
)
def test_a_transaction_through_every_listener(kafka: SecuredKafka, listener: str, mechanism: str) -> None:
    options, address = options_for(kafka, listener, mechanism), kafka.address_of(listener)
    topic = f"secured-{listener}-{mechanism}".rstrip("-")
    with Admin(address, **options) as admin:
        admin.create_topic(NewTopic(topic, 2))
    with Client(address, **options) as client:
        with client.transaction(topic) as transaction:
            transaction.send(topic, b"x" * 100_000, partition=0)
            # A writer in another process must be able to authenticate too.
            handle = pickle.loads(pickle.dumps(transaction.handle()))
            assert PASSWORD not in repr(handle)
            with handle.writer() as writer:
                writer.send(topic, b"y", partition=1)
        with client.consumer(f"group-{topic}", topic, max_wait_ms=100) as consumer:
            found = []
            while len(found) < 2:
                found += consumer.poll()
    assert {record.value for record in found} == {b"x" * 100_000, b"y"}


def test_names_and_passwords_may_come_as_a_login_module(kafka: SecuredKafka) -> None:
    login = f'org.apache.kafka.common.security.scram.ScramLoginModule required username="{USER}" password="{PASSWORD}";'
    options = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-512", "sasl_jaas_config": login}
    with Admin(kafka.address_of("SASL_PLAINTEXT"), **options) as admin:
        assert len(admin.describe_cluster().brokers) == 1


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password_is_refused_at_once_and_is_not_shown(kafka: SecuredKafka, mechanism: str) -> None:
    options = options_for(kafka, "SASL_PLAINTEXT", mechanism) | {"sasl.password": "mistaken"}
    started = time.monotonic()
    with pytest.raises(AuthenticationFailed) as refused:
        Producer(kafka.address_of("SASL_PLAINTEXT"), **options)
    assert refused.value.mechanism == mechanism
    assert "mistaken" not in str(refused.value)
    assert time.monotonic() - started < 10


def test_a_wrong_token_is_refused(kafka: SecuredKafka) -> None:
    expired = _token({"sub": USER, "iat": 1, "exp": 2})
    options = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token": expired,
    }
    with pytest.raises(AuthenticationFailed):
        Admin(kafka.address_of("SASL_PLAINTEXT"), **options)


def _token(claims: dict[str, object]) -> str:
    parts = [
        base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in ({"alg": "none"}, claims)
    ]
    return ".".join([*parts, ""])


def test_tokens_are_fetched_from_an_endpoint(kafka: SecuredKafka) -> None:
    asked: list[tuple[str, str]] = []

    class Endpoint(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            asked.append((self.headers["Authorization"], body))
            answer = json.dumps({"access_token": UnsecuredToken(USER)(), "token_type": "Bearer"}).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Endpoint)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        options = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": f"http://127.0.0.1:{server.server_port}/token",
            "sasl.oauthbearer.client.id": "me",
            "sasl.oauthbearer.client.secret": "secret",
            "sasl.oauthbearer.scope": "kafka",
        }
        with Admin(kafka.address_of("SASL_PLAINTEXT"), **options) as admin:
            admin.list_topics()
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    basic = base64.b64encode(b"me:secret").decode()
    assert asked[0] == (f"Basic {basic}", "grant_type=client_credentials&scope=kafka")


def test_a_mechanism_that_is_not_offered_is_named_with_those_that_are(kafka: SecuredKafka) -> None:
    kafka.certificates.authority.read_text()
    with pytest.raises(ClientError) as refused:
        Admin(kafka.bootstrap_servers, **options_for(kafka, "SASL_PLAINTEXT", "PLAIN"))
    # The plaintext listener knows no SASL at all.
    assert isinstance(refused.value, AuthenticationFailed | BrokerUnreachable)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"ssl.ca.location": None}, "certificate"),
        ({"bootstrap": "localhost"}, "localhost"),
    ],
)
def test_a_broker_that_cannot_prove_its_name_is_not_trusted(
    kafka: SecuredKafka, changes: dict[str, Any], complaint: str
) -> None:
    options = options_for(kafka, "SASL_SSL", "PLAIN")
    address = kafka.address_of("SASL_SSL")
    if host := changes.pop("bootstrap", None):
        address = address.replace("127.0.0.1", host)
    options = {name: value for name, value in {**options, **changes}.items() if value is not None}
    with pytest.raises(NotTrusted, match=complaint):
        Admin(address, **options)


def test_the_check_of_names_can_be_switched_off(kafka: SecuredKafka) -> None:
    options = options_for(kafka, "SASL_SSL", "PLAIN") | {"ssl.endpoint.identification.algorithm": ""}
    with Admin(kafka.address_of("SASL_SSL").replace("127.0.0.1", "localhost"), **options) as admin:
        admin.describe_cluster()


def test_a_broker_that_asks_for_our_certificate_says_so(kafka: SecuredKafka) -> None:
    options = options_for(kafka, "SSL", "")
    del options["ssl.certificate.location"]
    with pytest.raises(ClientError, match=r"(?i)certificate"):
        Admin(kafka.address_of("SSL"), **options)


def test_plaintext_to_a_tls_port_and_tls_to_a_plaintext_port_are_told_apart(kafka: SecuredKafka) -> None:
    with pytest.raises((NotAKafkaBroker, BrokerUnreachable), match="TLS"):
        Admin(kafka.address_of("SASL_SSL"))
    options = options_for(kafka, "SASL_SSL", "PLAIN") | {"connect_timeout_ms": 3_000}
    with pytest.raises(ClientError, match="TLS"):
        Admin(kafka.bootstrap_servers, **options)


def test_sessions_that_the_broker_limits_are_renewed_in_time(kafka: SecuredKafka) -> None:
    options = options_for(kafka, "SASL_PLAINTEXT", "SCRAM-SHA-256")
    topic, count = "short-sessions", 0
    with Admin(kafka.address_of("SHORT"), **options) as admin:
        admin.create_topic(NewTopic(topic, 1))
    ends = time.monotonic() + 3 * SESSION_MS / 1000
    with Client(kafka.address_of("SHORT"), **options) as client:
        while time.monotonic() < ends:
            with client.transaction(topic) as transaction:
                transaction.send(topic, b"%d" % count)
            count += 1
    with PartitionReader(kafka.address_of("SHORT"), **options) as reader:
        reader.assign_topic(topic)
        assert [record.value for record in reader.records()] == [b"%d" % number for number in range(count)]
    assert "Connection was expired" not in kafka.log_file.read_text(errors="replace")
