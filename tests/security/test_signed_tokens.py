"""OAUTHBEARER with signed tokens: an issuer publishes its keys, real clients log in by what it signs, keys change."""

import base64
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, utils

from fencepost.client import Admin
from fencepost.client.sasl import AuthenticationFailed
from tests.security.secured import SecuredFencepost, own_options
from tests.support.patience import patient

LISTENER = "SASL_SSL"
AUDIENCE = "kafka"
LIFE_SECONDS = 600
REFRESH_MS = 200
SECONDS = patient(60.0)
COORDINATE_BYTES = 32


class Issuer:
    """Signs tokens, and publishes the keys to check them with at a URL."""

    def __init__(self) -> None:
        self._keys: dict[str, ec.EllipticCurvePrivateKey] = {}
        self.change_key("first")
        issuer = self

        class Published(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(issuer.key_set())

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Published)
        self.url = f"http://127.0.0.1:{self._server.server_port}/keys"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def change_key(self, name: str) -> None:
        self._keys = {name: ec.generate_private_key(ec.SECP256R1())}

    def key_set(self) -> bytes:
        keys = []
        for name, key in self._keys.items():
            point = key.public_key().public_numbers()
            keys.append({"kty": "EC", "crv": "P-256", "kid": name, "x": _number(point.x), "y": _number(point.y)})
        return json.dumps({"keys": keys}).encode()

    def token(self, user: str, **changes: Any) -> str:
        ((name, key),) = self._keys.items()
        now = int(time.time())
        claims = {"sub": user, "iss": self.url, "aud": AUDIENCE, "iat": now, "exp": now + LIFE_SECONDS} | changes
        header = {"alg": "ES256", "kid": name}
        signed = f"{_part(json.dumps(header).encode())}.{_part(json.dumps(claims).encode())}"
        both = utils.decode_dss_signature(key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{signed}.{_part(b''.join(one.to_bytes(COORDINATE_BYTES, 'big') for one in both))}"


def _part(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def _number(value: int) -> str:
    return _part(value.to_bytes(COORDINATE_BYTES, "big"))


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    issuer = Issuer()
    yield issuer
    issuer.close()


@pytest.fixture(scope="module")
def broker(issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredFencepost]:
    with IssuedFencepost(issuer, tmp_path_factory.mktemp("issued")) as running:
        yield running


class IssuedFencepost(SecuredFencepost):
    def __init__(self, issuer: Issuer, directory: Path) -> None:
        super().__init__(directory, {"PLAINTEXT": "PLAINTEXT", LISTENER: LISTENER})
        self._issuer = issuer

    def settings(self) -> dict[str, str]:
        handler = "oauthbearer.sasl.server.callback.handler.class"
        made = {name: value for name, value in super().settings().items() if not name.endswith(handler)}
        return made | {
            "sasl.oauthbearer.jwks.endpoint.url": self._issuer.url,
            "sasl.oauthbearer.jwks.endpoint.refresh.ms": str(REFRESH_MS),
            "org.apache.kafka.sasl.oauthbearer.allowed.urls": self._issuer.url,
            "sasl.oauthbearer.expected.issuer": self._issuer.url,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
        }


def logs_in(broker: SecuredFencepost, token: str) -> bool:
    options = own_options(broker, LISTENER, "OAUTHBEARER") | {"sasl.oauthbearer.token.provider": lambda: token}
    try:
        with Admin(broker.address_of(LISTENER), **options) as admin:
            return bool(admin.describe_cluster().brokers)
    except AuthenticationFailed:
        return False


def test_librdkafka_writes_with_a_token_that_the_issuer_signed(broker: SecuredFencepost, issuer: Issuer) -> None:
    asked: list[str] = []

    def give_token(config: str) -> tuple[str, float]:
        asked.append(config)
        return issuer.token("alice"), time.time() + LIFE_SECONDS

    options = own_options(broker, LISTENER, "OAUTHBEARER") | {"oauth_cb": give_token, "log_level": 0}
    producer = Producer({**options, "bootstrap.servers": broker.address_of(LISTENER)})
    problems: list[KafkaError | None] = []
    producer.produce("signed", b"value", on_delivery=lambda error, _: problems.append(error))
    producer.flush(SECONDS)
    assert problems == [None]
    assert asked


def test_librdkafka_is_refused_with_anybody_elses(broker: SecuredFencepost) -> None:
    stranger = Issuer()
    stranger.close()
    refused = threading.Event()

    def note(error: KafkaError) -> None:
        if error.code() == KafkaError._AUTHENTICATION:
            refused.set()

    options = own_options(broker, LISTENER, "OAUTHBEARER") | {
        "oauth_cb": lambda _: (stranger.token("alice"), time.time() + LIFE_SECONDS),
        "error_cb": note,
        "log_level": 0,
    }
    producer = Producer({**options, "bootstrap.servers": broker.address_of(LISTENER)})
    deadline = time.monotonic() + SECONDS
    while not refused.is_set() and time.monotonic() < deadline:
        producer.poll(0.1)
    assert refused.is_set()
    with pytest.raises(KafkaException):
        producer.list_topics(timeout=1)


def test_a_token_for_another_audience_or_from_another_issuer_or_too_old_is_refused(
    broker: SecuredFencepost, issuer: Issuer
) -> None:
    assert logs_in(broker, issuer.token("alice"))
    for changes in ({"aud": "elsewhere"}, {"iss": "http://elsewhere"}, {"exp": int(time.time()) - 120}):
        assert not logs_in(broker, issuer.token("alice", **changes)), changes


def test_tokens_of_a_new_key_are_good_soon_and_those_of_the_old_one_are_not(
    broker: SecuredFencepost, issuer: Issuer
) -> None:
    old = issuer.token("alice")
    issuer.change_key("second")
    deadline = time.monotonic() + SECONDS
    while not logs_in(broker, issuer.token("alice")):
        assert time.monotonic() < deadline, "the new key does not count"
        time.sleep(REFRESH_MS / 1000)
    assert not logs_in(broker, old)
