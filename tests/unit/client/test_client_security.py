"""SCRAM by the book, options by Kafka's names, and secrets that are not shown."""

import base64
import pickle
import ssl
import subprocess
from pathlib import Path

import pytest

from fencepost.client.errors import BrokerUnreachable
from fencepost.client.options import parse_options
from fencepost.client.sasl import AuthenticationFailed, ScramConversation, ScramError
from fencepost.client.security import (
    ClientCredentials,
    InvalidOption,
    SecurityProtocol,
    UnsecuredToken,
    parse_jaas,
    security_of,
)


def test_the_example_of_rfc_7677_is_reproduced() -> None:
    conversation = ScramConversation("SCRAM-SHA-256", "user", "pencil", "rOprNGfwEbeRWgbNEkqO")
    assert conversation.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    server_first = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    assert conversation.final(server_first) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    conversation.verify(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize(
    ("server_first", "complaint"),
    [
        (b"r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "nonce"),
        (b"r=nonce,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "nonce"),
        (b"r=nonce+,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=1", "too few"),
        (b"r=nonce+,s=W22ZaJ0SNY7soEsUEjb6gQ==", "is malformed"),
        (b"\xff", "not text"),
    ],
)
def test_a_server_that_cheats_is_found_out(server_first: bytes, complaint: str) -> None:
    with pytest.raises(ScramError, match=complaint):
        ScramConversation("SCRAM-SHA-512", "user", "secret", "nonce").final(server_first)


@pytest.mark.parametrize("server_final", [b"v=AAAA", b"", b"v=%%%", b"e=other-error", b"v="])
def test_a_server_that_does_not_know_the_password_is_not_believed(server_final: bytes) -> None:
    conversation = ScramConversation("SCRAM-SHA-512", "user", "secret", "nonce")
    conversation.final(b"r=nonce+,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")
    with pytest.raises(ScramError):
        conversation.verify(server_final)


def test_names_with_commas_and_equals_are_escaped() -> None:
    assert ScramConversation("SCRAM-SHA-256", "a=b,c", "", "n").first() == b"n,,n=a=3Db=2Cc,r=n"


def test_jaas_is_understood_with_its_quotes() -> None:
    text = """org.apache.kafka.common.security.scram.ScramLoginModule required
              username="alice" password='it\\'s "quoted"; with = signs' tokenauth=true;"""
    assert parse_jaas(text) == {
        "username": "alice",
        "password": 'it\'s "quoted"; with = signs',
        "tokenauth": "true",
    }
    for wrong in ("", "username=alice", "org.apache.Login required username=alice"):
        with pytest.raises(InvalidOption):
            parse_jaas(wrong)


def test_options_are_kafkas_with_dots_or_underscores_and_strings_are_values() -> None:
    options = parse_options(
        {
            "kafka.client.id": "spark",
            "request.timeout.ms": "1000",
            "metadata_max_age_ms": 5,
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "PLAIN",
            "sasl_username": "alice",
            "kafka.sasl.password": "secret",
        }
    )
    assert (options.client_id, options.request_timeout_ms, options.metadata_max_age_ms) == ("spark", 1000, 5)
    assert options.security.protocol is SecurityProtocol.SASL_PLAINTEXT
    assert (options.security.username, options.security.password) == ("alice", "secret")
    assert "secret" not in repr(options)


@pytest.mark.parametrize(
    ("options", "complaint", "advice"),
    [
        ({"sasl.mechanizm": "PLAIN"}, "is unknown", "sasl.mechanism"),
        ({"request.timeout.ms": "soon"}, "not a number", ""),
        ({"security.protocol": "TLS"}, "is not valid", "SASL_SSL"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, "not supported", "SCRAM-SHA-512"),
        ({"security.protocol": "SASL_SSL"}, "is needed", "OAUTHBEARER"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "is needed", "sasl.jaas.config"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, "is needed", "endpoint"),
        ({"security.protocol": "SSL", "ssl.ca.location": "/nowhere.pem"}, "cannot be read", ""),
        ({"security.protocol": "SSL", "ssl.truststore.location": "trust.jks"}, "only PEM", "keytool"),
    ],
)
def test_options_that_cannot_work_are_refused_with_advice(options: dict[str, str], complaint: str, advice: str) -> None:
    with pytest.raises(InvalidOption, match=complaint) as refused:
        parse_options(options)
    assert advice in refused.value.advice


def test_tls_checks_names_unless_told_not_to(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-subj",
            "/CN=x",
            "-keyout",
            key,
            "-out",
            certificate,
        ],
        check=True,
        capture_output=True,
    )
    options = {"security.protocol": "SSL", "ssl.ca.location": str(certificate)}
    context = security_of(options).tls
    assert context is not None
    assert (context.check_hostname, context.verify_mode) == (True, ssl.CERT_REQUIRED)
    context = security_of({**options, "ssl.endpoint.identification.algorithm": ""}).tls
    assert context is not None
    assert (context.check_hostname, context.verify_mode) == (False, ssl.CERT_REQUIRED)
    inline = {
        "security.protocol": "SSL",
        "ssl.truststore.certificates": certificate.read_text(),
        "ssl.keystore.key": key.read_text(),
        "ssl.keystore.certificate.chain": certificate.read_text(),
    }
    context = security_of(inline).tls
    assert context is not None
    assert len(context.get_ca_certs()) == 1


def test_tokens_come_from_the_login_module_or_an_endpoint() -> None:
    unsecured = security_of(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": 'org.apache.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="alice";',
        }
    ).token_provider
    assert unsecured == UnsecuredToken("alice")
    head, claims, signature = str(unsecured()).split(".")  # type: ignore[misc]
    assert base64.urlsafe_b64decode(head + "==") == b'{"alg": "none"}'
    assert b'"sub": "alice"' in base64.urlsafe_b64decode(claims + "==")
    assert signature == ""
    endpoint = security_of(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1/token",
            "sasl.oauthbearer.client.id": "me",
            "sasl.oauthbearer.client.secret": "hidden",
            "sasl.oauthbearer.scope": "kafka",
        }
    ).token_provider
    assert endpoint == ClientCredentials("http://127.0.0.1/token", "me", "hidden", "kafka")
    assert "hidden" not in repr(endpoint)


def test_errors_survive_the_way_to_another_process() -> None:
    for error in (AuthenticationFailed("a:1", "PLAIN", "no"), BrokerUnreachable("a:1", "gone")):
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), str(copy), copy.reason, copy.advice) == (
            type(error),
            str(error),
            error.reason,
            error.advice,
        )
