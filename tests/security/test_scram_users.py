"""Users with SCRAM passwords, made by librdkafka: too few rounds are refused, and who was made outlives kill -9."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from fencepost.client import Admin
from fencepost.client.sasl import AuthenticationFailed
from fencepost.wire.scram import ITERATIONS_MIN
from tests.security.secured import SecuredFencepost
from tests.support.patience import patient

LISTENERS = {"PLAINTEXT": "PLAINTEXT", "SASL_PLAINTEXT": "SASL_PLAINTEXT"}
SECONDS = patient(60.0)


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[SecuredFencepost]:
    with SecuredFencepost(tmp_path, LISTENERS) as running:
        yield running


def upsert(broker: SecuredFencepost, user: str, password: bytes, iterations: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address_of("PLAINTEXT")})
    rounds = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, iterations)
    futures = admin.alter_user_scram_credentials([UserScramCredentialUpsertion(user, rounds, password)])
    futures[user].result(SECONDS)


def topics_seen_by(broker: SecuredFencepost, user: str, password: str) -> list[Any]:
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256"}
    with Admin(
        broker.address_of("SASL_PLAINTEXT"), **login, **{"sasl.username": user, "sasl.password": password}
    ) as admin:
        return list(admin.list_topics())


def test_a_password_with_too_few_rounds_is_refused(secured: SecuredFencepost) -> None:
    with pytest.raises(KafkaException) as refused:
        upsert(secured, "dave", b"daves", ITERATIONS_MIN - 1)
    assert refused.value.args[0].code() == KafkaError.UNACCEPTABLE_CREDENTIAL
    with pytest.raises(AuthenticationFailed):
        topics_seen_by(secured, "dave", "daves")


def test_users_outlive_a_broker_that_is_killed(secured: SecuredFencepost) -> None:
    upsert(secured, "dave", b"daves", ITERATIONS_MIN)
    secured.kill()
    secured.start()
    assert topics_seen_by(secured, "dave", "daves") == []
    with pytest.raises(AuthenticationFailed):
        topics_seen_by(secured, "dave", "guessed")
    upsert(secured, "dave", b"changed", ITERATIONS_MIN * 2)
    with pytest.raises(AuthenticationFailed):
        topics_seen_by(secured, "dave", "daves")
    assert topics_seen_by(secured, "dave", "changed") == []
