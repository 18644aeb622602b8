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
from tests.peers.raw import RawClient
from tests.security.secured import USER, SecuredFencepost
from tests.support.patience import patient

LISTENERS = {"PLAINTEXT": "PLAINTEXT", "SASL_PLAINTEXT": "SASL_PLAINTEXT"}
SECONDS = patient(60.0)
UNACCEPTABLE_CREDENTIAL = 93


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


def shown_to(broker: SecuredFencepost, name: str) -> tuple[str, str]:
    """Salt and iterations that a login is asked to use."""
    host, _, port = broker.address_of("SASL_PLAINTEXT").partition(":")
    with RawClient((host, int(port))) as client:
        assert client.call("SaslHandshake", 1, {"Mechanism": "SCRAM-SHA-256"})["ErrorCode"] == 0
        answer = client.call("SaslAuthenticate", 2, {"AuthBytes": f"n,,n={name},r=mine".encode()})
    assert answer["ErrorCode"] == 0, answer
    fields = dict(part.split("=", 1) for part in answer["AuthBytes"].decode().split(","))
    return fields["s"], fields["i"]


def test_a_name_that_does_not_exist_shows_the_same_salt_for_ever(secured: SecuredFencepost) -> None:
    names = [f"nobody-{number}" for number in range(5)]
    before = [shown_to(secured, name) for name in names]
    assert len(set(before)) == len(names)
    # Neither a new user who looks like the one there is, nor a change of that one, nor a restart tells them apart.
    upsert(secured, "dave", b"daves", ITERATIONS_MIN)
    upsert(secured, "dave", b"changed", ITERATIONS_MIN)
    salt = shown_to(secured, "dave")
    secured.kill()
    secured.start()
    assert shown_to(secured, "dave") == salt
    looks = {(len(salt), iterations) for salt, iterations in (shown_to(secured, user) for user in (USER, "dave"))}
    after = [shown_to(secured, name) for name in names]
    assert {(len(salt), iterations) for salt, iterations in after} <= looks
    if len(looks) == 1:
        assert after == before
    secured.stop()
    secured.start()
    assert [shown_to(secured, name) for name in names] == after


@pytest.mark.parametrize("empty", ["Salt", "SaltedPassword"])
def test_an_empty_salt_is_refused(secured: SecuredFencepost, empty: str) -> None:
    host, _, port = secured.address_of("PLAINTEXT").partition(":")
    wanted = {"Name": "dave", "Mechanism": 1, "Iterations": 4096, "Salt": b"s" * 32, "SaltedPassword": b"p" * 32}
    with RawClient((host, int(port))) as client:
        request = {"Deletions": [], "Upsertions": [wanted | {empty: b""}]}
        answer = client.call("AlterUserScramCredentials", 0, request)
        assert answer["Results"][0]["ErrorCode"] == UNACCEPTABLE_CREDENTIAL
        answer = client.call("AlterUserScramCredentials", 0, {"Deletions": [], "Upsertions": [wanted]})
        assert answer["Results"][0]["ErrorCode"] == 0


def test_nobody_else_can_read_the_verifiers(secured: SecuredFencepost) -> None:
    metadata = sorted((secured.data_directory / "__cluster_metadata-0").glob("0*"))
    own = [secured.data_directory / name for name in ("cause-journal.jsonl", "scram-decoy-secret")]
    files = [*metadata, *(file for file in own if file.exists())]
    assert len(files) > 2
    assert [file.stat().st_mode & 0o777 for file in files] == [0o600] * len(files)
    secured.stop()
    for file in files:
        file.chmod(0o644)  # as earlier versions left them
    secured.start()
    assert [file.stat().st_mode & 0o777 for file in files] == [0o600] * len(files)
