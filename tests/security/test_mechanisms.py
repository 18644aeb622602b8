"""Scenarios 47 and 48 without sockets: SCRAM and tokens from clients who do not keep to the rules."""

import base64
import hashlib
import hmac
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from fencepost.broker.security.conversation import AuthenticationRefused
from fencepost.broker.security.jwt import SignedTokens, TokenRefused, UnsecuredTokens, read_key_set
from fencepost.broker.security.plain import PlainConversation, PlainUsers
from fencepost.broker.security.principal_mapping import InvalidRule, PrincipalMapping
from fencepost.broker.security.scram import Look, ScramConversation, decoy, looks_of
from fencepost.client.sasl import ScramConversation as ScramClient
from fencepost.settings import InvalidSetting
from fencepost.shell.issuer_keys import allowed_url
from fencepost.wire.scram import credential_of, salted_password

SCRAM = "SCRAM-SHA-256"
SALT = b"0123456789abcdef"
CREDENTIAL = credential_of(SCRAM, salted_password(SCRAM, b"secret", SALT, 4096), SALT, 4096)
NOW_MS = 1_800_000_000_000


def scram_server(nonce: str = "servernonce", name: str = "alice") -> ScramConversation:
    users = {name: CREDENTIAL}
    looks = looks_of(users.values())
    return ScramConversation(SCRAM, users.get, lambda name: decoy(SCRAM, b"s" * 32, looks, name), nonce)


def test_a_name_with_escapes_is_the_name_that_was_meant() -> None:
    server, client = scram_server(name="a,b=c"), ScramClient(SCRAM, "a,b=c", "secret", "mine")
    assert b"n=a=2Cb=3Dc," in client.first()
    client.verify(server.respond(client.final(server.respond(client.first()))))
    assert server.identity is not None
    assert server.identity.name == "a,b=c"


@pytest.mark.parametrize(
    "first",
    [
        b"y,,n=alice,r=mine",
        b"p=tls-unique,,n=alice,r=mine",
        b"n,a=bob,n=alice,r=mine",
        b"n,,n=al=2xice,r=mine",
        b"n,,m=ext,n=alice,r=mine",
        b"n,,n=alice",
        b"n,,n=,r=mine",
        b"n,,n=alice,r=",
        b"\xff\xfe",
        b"",
    ],
    ids=["binding y", "binding p", "authzid", "escape", "mandatory", "no nonce", "no name", "empty", "bytes", "none"],
)
def test_a_first_message_out_of_order_is_refused(first: bytes) -> None:
    with pytest.raises(AuthenticationRefused):
        scram_server().respond(first)


@pytest.mark.parametrize("change", ["nonce", "header", "proof"])
def test_a_final_message_that_was_changed_is_refused(change: str) -> None:
    server, client = scram_server(), ScramClient(SCRAM, "alice", "secret", "mine")
    final = client.final(server.respond(client.first())).decode()
    if change == "nonce":
        # CVE-2024-56128: a valid proof for another nonce than the server's.
        final = final.replace("r=mineservernonce", "r=mineothernonce")
    elif change == "header":
        final = final.replace("c=biws", "c=eSws")
    else:
        final = final[:-8] + "AAAAAAA="
    with pytest.raises(AuthenticationRefused):
        server.respond(final.encode())
    assert server.identity is None


def test_what_was_overheard_cannot_be_replayed() -> None:
    heard, client = scram_server("one"), ScramClient(SCRAM, "alice", "secret", "mine")
    first = client.first()
    final = client.final(heard.respond(first))
    heard.respond(final)
    again = scram_server("two")
    again.respond(first)
    with pytest.raises(AuthenticationRefused):
        again.respond(final)
    with pytest.raises(AuthenticationRefused):
        heard.respond(final)


def test_a_name_that_does_not_exist_looks_like_one_that_does() -> None:
    answers = [scram_server().respond(f"n,,n={name},r=mine".encode()) for name in ("alice", "mallory", "mallory")]
    known, unknown, again = (dict(part.split("=", 1) for part in one.decode().split(",")) for one in answers)
    assert unknown == again
    assert unknown["i"] == known["i"]
    assert len(unknown["s"]) == len(known["s"])
    assert unknown["s"] != known["s"]


def test_decoys_look_like_all_the_users_and_not_like_one_of_them() -> None:
    users = [Look(32, 4096), Look(26, 8192), Look(64, 16_384)]
    shown = [decoy(SCRAM, b"s" * 32, users, f"nobody-{number}") for number in range(100)]
    assert {Look.of(one) for one in shown} == set(users)
    assert len({one.salt for one in shown}) == 100


def test_a_decoy_changes_only_when_no_user_looks_like_it_any_more() -> None:
    users = [Look(32, 4096), Look(26, 8192)]
    names = [f"nobody-{number}" for number in range(100)]
    before = {name: decoy(SCRAM, b"s" * 32, users, name) for name in names}
    newcomer = Look(64, 16_384)
    after = {name: decoy(SCRAM, b"s" * 32, [newcomer, *users], name) for name in names}
    moved = {name for name in names if after[name] != before[name]}
    assert {Look.of(after[name]) for name in moved} == {newcomer}
    assert 10 < len(moved) < 60
    assert {name: decoy(SCRAM, b"s" * 32, users, name) for name in names} == before


def test_a_credential_that_no_client_can_use_looks_like_a_decoy() -> None:
    broken = {"empty": CREDENTIAL._replace(salt=b""), "weak": CREDENTIAL._replace(iterations=1)}
    assert looks_of([*broken.values(), CREDENTIAL]) == [Look(len(SALT), 4096)]
    for name in broken:
        server = ScramConversation(SCRAM, broken.get, lambda name: decoy(SCRAM, b"s", [Look(7, 5000)], name), "mine")
        fields = dict(part.split("=", 1) for part in server.respond(f"n,,n={name},r=x".encode()).decode().split(","))
        assert (fields["i"], len(base64.b64decode(fields["s"]))) == ("5000", 7)


@pytest.mark.parametrize(
    "message", [b"bob\0alice\0secret", b"\0alice\0wrong", b"\0mallory\0secret", b"\0alice\0", b"alice", b"\0\0secret"]
)
def test_plain_refuses(message: bytes) -> None:
    conversation = PlainConversation(PlainUsers({"alice": "secret"}))
    with pytest.raises(AuthenticationRefused):
        conversation.respond(message)
    assert conversation.identity is None


# Tokens

KEY = rsa.generate_private_key(65537, 2048)


def part(value: bytes | dict[str, Any]) -> str:
    content = json.dumps(value).encode() if isinstance(value, dict) else value
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def public_keys() -> bytes:
    numbers = KEY.public_key().public_numbers()
    modulus, exponent = (part(one.to_bytes((one.bit_length() + 7) // 8, "big")) for one in (numbers.n, numbers.e))
    return json.dumps({"keys": [{"kty": "RSA", "kid": "k1", "use": "sig", "n": modulus, "e": exponent}]}).encode()


def token(header: dict[str, Any] | None = None, **changes: Any) -> str:
    claims = {"sub": "alice", "iss": "me", "aud": "kafka", "iat": NOW_MS // 1000 - 10, "exp": NOW_MS // 1000 + 600}
    signed = f"{part({'alg': 'RS256', 'kid': 'k1'} | (header or {}))}.{part(claims | changes)}"
    return f"{signed}.{part(KEY.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


def validator() -> SignedTokens:
    keys = read_key_set(public_keys())
    return SignedTokens(lambda: keys, lambda: None, issuer="me", audiences=["kafka"], clock_skew_ms=0)


def confused() -> str:
    """CVE-like key confusion: signed with the public key as if it were a shared secret."""
    public = KEY.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    signed = ".".join(token({"alg": "HS256"}).split(".")[:2])
    return f"{signed}.{part(hmac.digest(public, signed.encode(), hashlib.sha256))}"


def test_a_good_token_names_its_user_and_its_end() -> None:
    assert validator().validate(token(), NOW_MS) == ("alice", NOW_MS + 600_000)


@pytest.mark.parametrize(
    "text",
    [
        token({"alg": "none"}).rpartition(".")[0] + ".",
        confused(),
        token(exp=NOW_MS // 1000 - 1),
        token(iss="somebody else"),
        token(aud=["other"]),
        token(iat=NOW_MS // 1000 + 100),
        token({"kid": "k2"}),
        token({"crit": ["b64"]}),
        token(sub=""),
        token(exp=None),
        token()[:-4] + "AAAA",
        "a.b",
        "",
    ],
    ids=["none", "confusion", "expired", "iss", "aud", "iat", "kid", "crit", "sub", "no exp", "signature", "two", "no"],
)
def test_a_bad_token_is_refused(text: str) -> None:
    with pytest.raises(TokenRefused):
        validator().validate(text, NOW_MS)


def test_unsigned_tokens_count_only_where_they_were_asked_for() -> None:
    unsigned = f"{part({'alg': 'none'})}.{part({'sub': 'alice', 'exp': NOW_MS // 1000 + 5})}."
    assert UnsecuredTokens().validate(unsigned, NOW_MS).name == "alice"
    with pytest.raises(TokenRefused):
        UnsecuredTokens().validate(token(), NOW_MS)


@pytest.mark.parametrize("url", ["file:///etc/passwd", "https://elsewhere/keys", "ftp://ok/keys"])
def test_keys_come_only_from_urls_that_are_allowed(url: str) -> None:
    with pytest.raises(InvalidSetting):
        allowed_url(url, ("https://issuer/keys", "ftp://ok/keys"))
    assert allowed_url("https://issuer/keys", ("https://issuer/keys",))


def test_mapping_rules_as_kafka_reads_them() -> None:
    mapping = PrincipalMapping("RULE:^CN=(.*?),OU=Users.*$/$1/L, RULE:^CN=(.*?),OU=(.*?),O=.*$/$1@$2/")
    assert mapping.name_of("CN=Alice,OU=Users,O=X") == "alice"
    assert mapping.name_of("CN=Bob,OU=Ops,O=X") == "Bob@Ops"
    assert mapping.name_of("CN=Eve") is None
    assert PrincipalMapping("DEFAULT").name_of("CN=Eve") == "CN=Eve"
    with pytest.raises(InvalidRule):
        PrincipalMapping("RULE:^CN=(.*)$/$2/")
