"""Scenarios 47 and 48 without sockets: SCRAM and tokens from clients who do not keep to the rules."""

import base64
import hashlib
import hmac
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from fencepost.broker.security.conversation import AuthenticationRefused
from fencepost.broker.security.plain import PlainConversation, PlainUsers
from fencepost.broker.security.principal_mapping import InvalidRule, PrincipalMapping
from fencepost.broker.security.scram import Look, ScramConversation, decoy, looks_of
from fencepost.broker.security.signed_tokens import KeysUnusable, SignedTokens, read_key_set
from fencepost.broker.security.tokens import TokenRefused, UnsecuredTokens
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
    headers = {"alg": "RS256", "kid": "k1"} | (header or {})
    present = {name: value for name, value in headers.items() if value is not None}
    signed = f"{part(present)}.{part(claims | changes)}"
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


@pytest.mark.parametrize(
    "header",
    [
        b'["alg"]',
        b'{"alg": 5, "kid": "k1"}',
        b'{"alg": ["RS256"], "kid": "k1"}',
        b'{"alg": "RS256", "kid": 7}',
        b'{"alg": "RS256", "kid": {"a": 1}}',
        b'{"alg": "RS256", "kid": "k1", "b64": false}',
        b'{"alg": "RS256", "kid": "k1", "crit": 5}',
        b'{"alg": "PS256", "kid": "k1"}',
        b'{"alg": "ES256", "kid": "k1"}',
        b'{"alg": "RS256", "kid": "k1", "jwk": {"kty": "oct", "k": "AAAA"}, "jku": 5}',
        b"[" * 40_000,
        b"\xff\xfe",
        b"null",
    ],
)
def test_a_header_that_makes_no_sense_is_refused(header: bytes) -> None:
    signed = f"{part(header)}.{token().split('.')[1]}"
    text = f"{signed}.{part(KEY.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256()))}"
    with pytest.raises(TokenRefused):
        validator().validate(text, NOW_MS)


def test_a_header_may_say_more_than_is_needed() -> None:
    azure = {"nonce": "abc", "x5t": "def", "typ": "JWT", "made-up": ["x" * 2_000]}
    assert validator().validate(token(azure), NOW_MS).name == "alice"


@pytest.mark.parametrize("claims", [b'"alice"', b"[1]", b"{", b"[" * 40_000])
def test_signed_claims_that_are_no_object_are_refused(claims: bytes) -> None:
    signed = f"{part({'alg': 'RS256', 'kid': 'k1'})}.{part(claims)}"
    text = f"{signed}.{part(KEY.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256()))}"
    with pytest.raises(TokenRefused):
        validator().validate(text, NOW_MS)


def test_the_clock_of_the_issuer_may_be_a_little_off() -> None:
    keys = read_key_set(public_keys())
    lenient = SignedTokens(lambda: keys, lambda: None, clock_skew_ms=5_000)
    second = NOW_MS // 1000
    assert lenient.validate(token(exp=second - 4, iat=second - 60), NOW_MS).name == "alice"
    assert lenient.validate(token(iat=second + 4, nbf=second + 5), NOW_MS).name == "alice"
    for late in (token(exp=second - 5, iat=second - 60), token(iat=second + 6), token(nbf=second + 6)):
        with pytest.raises(TokenRefused):
            lenient.validate(late, NOW_MS)


def test_the_claims_that_name_a_user_and_scopes_can_be_chosen() -> None:
    keys = read_key_set(public_keys())
    tokens = SignedTokens(lambda: keys, lambda: None, name_claim="email", scope_claim="scp")
    assert tokens.validate(token(email="a@b", scp=["read"]), NOW_MS).name == "a@b"
    for bad in (token(), token(email="a@b", scp=5), token(email=["a@b"])):
        with pytest.raises(TokenRefused):
            tokens.validate(bad, NOW_MS)


def key_set(**changes: Any) -> dict[str, Any]:
    (entry,) = json.loads(public_keys())["keys"]
    return {name: value for name, value in (entry | changes).items() if value is not None}


def test_a_key_is_used_only_for_its_own_id_and_algorithm() -> None:
    asked_for: list[str] = []

    def accepts(text: str, *entries: dict[str, Any]) -> bool:
        keys = read_key_set(json.dumps({"keys": entries}).encode())
        try:
            SignedTokens(lambda: keys, lambda: asked_for.append(text)).validate(text, NOW_MS)
        except TokenRefused:
            return False
        return True

    anonymous = token({"kid": None})
    assert accepts(token(), key_set(alg="RS256"))
    assert accepts(token(), key_set(kid="other"), key_set())
    assert accepts(anonymous, key_set())
    assert not asked_for
    assert not accepts(anonymous, key_set(), key_set(kid="other"))
    assert not asked_for, "which key is meant cannot be told, however new the keys are"
    assert not accepts(token(), key_set(alg="RS512"))
    assert not accepts(token(), key_set(kid=None))
    assert len(asked_for) == 2


@pytest.mark.parametrize(("curve", "algorithm"), [(ec.SECP256R1(), "ES256"), (ec.SECP384R1(), "ES384")])
def test_tokens_signed_with_a_curve(curve: ec.EllipticCurve, algorithm: str) -> None:
    key = ec.generate_private_key(curve)
    numbers, size = key.public_key().public_numbers(), (curve.key_size + 7) // 8
    entry = {
        "kty": "EC",
        "crv": {"ES256": "P-256", "ES384": "P-384"}[algorithm],
        "kid": "k1",
        "x": part(numbers.x.to_bytes(size, "big")),
        "y": part(numbers.y.to_bytes(size, "big")),
    }
    keys = read_key_set(json.dumps({"keys": [entry]}).encode())
    tokens = SignedTokens(lambda: keys, lambda: None)
    signed = token({"alg": algorithm}).rpartition(".")[0]
    der = key.sign(signed.encode(), ec.ECDSA({"ES256": hashes.SHA256(), "ES384": hashes.SHA384()}[algorithm]))
    raw = b"".join(number.to_bytes(size, "big") for number in decode_dss_signature(der))
    assert tokens.validate(f"{signed}.{part(raw)}", NOW_MS).name == "alice"
    for wrong in (der, raw[:-1], b"\0" * len(raw), b""):
        with pytest.raises(TokenRefused):
            tokens.validate(f"{signed}.{part(wrong)}", NOW_MS)
    with pytest.raises(TokenRefused):
        tokens.validate(token(), NOW_MS)


def test_keys_that_cannot_verify_a_signature_are_passed_over() -> None:
    others = [
        {"kty": "oct", "k": part(b"secret" * 8)},
        {"kty": "OKP", "crv": "Ed25519", "x": part(bytes(32))},
        key_set(use="enc"),
        key_set(alg="PS256"),
        {"kty": "made-up"},
    ]
    assert [key.kid for key in read_key_set(json.dumps({"keys": [*others, key_set()]}).encode())] == ["k1"]


def test_a_private_key_that_was_published_is_used_as_a_public_one() -> None:
    (key,) = read_key_set(json.dumps({"keys": [key_set(d=part(b"1"), p="?")]}).encode())
    assert not key.is_private


WEAK = rsa.generate_private_key(65537, 1024).public_key().public_numbers()


# The library only warns about a weak key.
@pytest.mark.filterwarnings("ignore:Key size should be")
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b'{"keys": 5}',
        b'{"keys": [5]}',
        b'{"keys": []}',
        b'{"keys": [{"kty": "oct", "k": "AAAA"}]}',
        b'{"keys": [{"kty": "RSA"}]}',
        b'{"keys": [{"kty": "RSA", "n": 5, "e": "AQAB"}]}',
        b'{"keys": [{"kty": "EC", "crv": "P-256", "x": "AAAA", "y": "AAAA"}]}',
        json.dumps({"keys": [key_set(n=part(WEAK.n.to_bytes(128, "big")))]}).encode(),
    ],
)
def test_a_key_set_that_is_none_or_too_weak_is_refused(content: bytes) -> None:
    with pytest.raises(KeysUnusable):
        read_key_set(content)


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
