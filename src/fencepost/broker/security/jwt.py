"""JSON web tokens: read strictly, verified against public keys only (RFC 7515, 7517, 7519).

The token does not choose how it is checked. Only signatures by private keys count, the key must be of the algorithm's
own kind (a public key is never used as a shared secret), and whatever is not understood is refused.
"""

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

TOKEN_BYTES_MAX = 65_536
RSA_BITS_MIN = 2048
_RSA_HASHES = {"RS256": "SHA256", "RS384": "SHA384", "RS512": "SHA512"}
_CURVES = {"ES256": ("P-256", 32, "SHA256"), "ES384": ("P-384", 48, "SHA384"), "ES512": ("P-521", 66, "SHA512")}
ALGORITHMS = (*_RSA_HASHES, *_CURVES)


class TokenRefused(Exception):
    """Why a token does not count."""


class KeysUnusable(Exception):
    """Why a set of keys cannot be used."""


class Token(NamedTuple):
    header: Mapping[str, Any]
    claims: Mapping[str, Any]
    signed: bytes
    signature: bytes


class Key(NamedTuple):
    """One public key of a key set."""

    key_id: str | None
    kind: str
    """RSA, or the curve's name."""
    algorithm: str | None
    verify: Callable[[str, bytes, bytes], bool]
    """(algorithm, signature, signed bytes) -> whether it is this key's."""


class Validated(NamedTuple):
    name: str
    expires_at_ms: int


class TokenValidator(Protocol):
    def validate(self, text: str, now_ms: int) -> Validated:
        """Raises TokenRefused."""


def parse_token(text: str) -> Token:
    if len(text) > TOKEN_BYTES_MAX:
        raise TokenRefused("longer than any token should be")
    parts = text.split(".")
    if len(parts) != 3:
        raise TokenRefused(f"{len(parts)} parts instead of three")
    return Token(_object(parts[0]), _object(parts[1]), f"{parts[0]}.{parts[1]}".encode(), _decoded(parts[2]))


class SignedTokens:
    """Kafka's OAuthBearerValidatorCallbackHandler."""

    def __init__(
        self,
        keys: Callable[[], Iterable[Key]],
        unknown_key: Callable[[], None],
        *,
        issuer: str = "",
        audiences: Iterable[str] = (),
        clock_skew_ms: int = 30_000,
        name_claim: str = "sub",
        scope_claim: str = "scope",
    ) -> None:
        """`unknown_key` is told of a token whose key is not among `keys`: it may be newer than they are."""
        self._keys = keys
        self._unknown_key = unknown_key
        self._issuer = issuer
        self._audiences = frozenset(audiences)
        self._clock_skew_ms = clock_skew_ms
        self._name_claim = name_claim
        self._scope_claim = scope_claim

    def validate(self, text: str, now_ms: int) -> Validated:
        token = parse_token(text)
        self._check_signature(token)
        claims = token.claims
        if self._issuer and claims.get("iss") != self._issuer:
            raise TokenRefused(f"issued by {claims.get('iss')!r}, not by {self._issuer!r}")
        if self._audiences and self._audiences.isdisjoint(_texts(claims.get("aud"))):
            raise TokenRefused(f"meant for {claims.get('aud')!r}, not for {', '.join(sorted(self._audiences))}")
        expires_at_ms = _check_times(claims, now_ms, self._clock_skew_ms, needs_issue_time=True)
        scope = claims.get(self._scope_claim, "")
        if not isinstance(scope, str) and not (isinstance(scope, list) and all(isinstance(s, str) for s in scope)):
            raise TokenRefused(f"the claim {self._scope_claim} is neither a text nor a list of texts")
        return Validated(_name(claims, self._name_claim), expires_at_ms)

    def _check_signature(self, token: Token) -> None:
        algorithm = token.header.get("alg")
        if algorithm not in ALGORITHMS:
            raise TokenRefused(f"algorithm {algorithm!r}; only {', '.join(ALGORITHMS)} count")
        if "crit" in token.header:
            raise TokenRefused("it has critical extensions, and none is understood")
        kind = "RSA" if algorithm in _RSA_HASHES else _CURVES[algorithm][0]
        key_id = token.header.get("kid")
        candidates = [
            key
            for key in self._keys()
            if key.kind == kind and key.algorithm in (None, algorithm) and key_id in (None, key.key_id)
        ]
        if not candidates:
            self._unknown_key()
            raise TokenRefused(f"no key for {algorithm} and kid {key_id!r}")
        if len(candidates) > 1 and key_id is None:
            raise TokenRefused("it does not say which of several keys signed it")
        if not any(key.verify(algorithm, token.signature, token.signed) for key in candidates):
            raise TokenRefused("the signature is wrong")


class UnsecuredTokens:
    """Kafka's OAuthBearerUnsecuredValidatorCallbackHandler: no signature at all. For development only."""

    def __init__(self, *, clock_skew_ms: int = 0, name_claim: str = "sub") -> None:
        self._clock_skew_ms = clock_skew_ms
        self._name_claim = name_claim

    def validate(self, text: str, now_ms: int) -> Validated:
        token = parse_token(text)
        if token.header.get("alg") != "none" or token.signature:
            raise TokenRefused("signed, where unsigned tokens are configured")
        expires_at_ms = _check_times(token.claims, now_ms, self._clock_skew_ms, needs_issue_time=False)
        return Validated(_name(token.claims, self._name_claim), expires_at_ms)


def read_key_set(data: bytes) -> list[Key]:
    """The public keys of a JSON web key set that can check signatures. Others in it are passed over."""
    try:
        entries = json.loads(data)["keys"]
        keys = [key for key in map(_key, entries) if key is not None]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise KeysUnusable(f"this is no JSON web key set: {error!r}") from None
    if not keys:
        raise KeysUnusable(f"there is no key in it for any of {', '.join(ALGORITHMS)}")
    return keys


def _key(entry: Mapping[str, Any]) -> Key | None:
    if entry.get("use", "sig") != "sig" or entry.get("alg", "RS256") not in ALGORITHMS:
        return None
    kind, key_id, algorithm = entry.get("kty"), entry.get("kid"), entry.get("alg")
    if kind == "RSA":
        return Key(key_id, "RSA", algorithm, _rsa_verifier(_number(entry["n"]), _number(entry["e"])))
    if kind == "EC" and entry.get("crv") in {curve for curve, _, _ in _CURVES.values()}:
        curve = str(entry["crv"])
        return Key(key_id, curve, algorithm, _curve_verifier(curve, _number(entry["x"]), _number(entry["y"])))
    return None


def _rsa_verifier(modulus: int, exponent: int) -> Callable[[str, bytes, bytes], bool]:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import padding, rsa

    if modulus.bit_length() < RSA_BITS_MIN:
        raise ValueError(f"an RSA key of {modulus.bit_length()} bits; {RSA_BITS_MIN} is the least")
    key = rsa.RSAPublicNumbers(exponent, modulus).public_key()

    def verify(algorithm: str, signature: bytes, signed: bytes) -> bool:
        try:
            key.verify(signature, signed, padding.PKCS1v15(), getattr(hashes, _RSA_HASHES[algorithm])())
        except InvalidSignature:
            return False
        return True

    return verify


def _curve_verifier(curve: str, x: int, y: int) -> Callable[[str, bytes, bytes], bool]:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

    curves: dict[str, ec.EllipticCurve] = {"P-256": ec.SECP256R1(), "P-384": ec.SECP384R1(), "P-521": ec.SECP521R1()}
    key = ec.EllipticCurvePublicNumbers(x, y, curves[curve]).public_key()

    def verify(algorithm: str, signature: bytes, signed: bytes) -> bool:
        _, size, digest = _CURVES[algorithm]
        if len(signature) != 2 * size:
            return False
        pair = int.from_bytes(signature[:size], "big"), int.from_bytes(signature[size:], "big")
        try:
            key.verify(encode_dss_signature(*pair), signed, ec.ECDSA(getattr(hashes, digest)()))
        except InvalidSignature:
            return False
        return True

    return verify


def _check_times(claims: Mapping[str, Any], now_ms: int, skew_ms: int, *, needs_issue_time: bool) -> int:
    """The end of the token's life, by the wall clock."""
    expires, issued, begins = (_seconds(claims, name) for name in ("exp", "iat", "nbf"))
    if expires is None or (issued is None and needs_issue_time):
        raise TokenRefused("it does not say when it was issued and when it expires")
    if now_ms - skew_ms >= expires * 1000:
        raise TokenRefused("expired")
    for name, time in (("iat", issued), ("nbf", begins)):
        if time is not None and now_ms + skew_ms < time * 1000:
            raise TokenRefused(f"its time has not come yet ({name})")
    if issued is not None and issued > expires:
        raise TokenRefused("it expires before it was issued")
    return int(expires * 1000)


def _seconds(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        raise TokenRefused(f"the claim {name} is not a time")
    return value


def _name(claims: Mapping[str, Any], claim: str) -> str:
    name = claims.get(claim)
    if not isinstance(name, str) or not name.strip():
        raise TokenRefused(f"the claim {claim} names nobody")
    return name


def _texts(value: Any) -> list[str]:
    return [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, str)]


def _object(part: str) -> Mapping[str, Any]:
    try:
        value = json.loads(_decoded(part))
    except (ValueError, RecursionError):
        raise TokenRefused("a part that is not JSON") from None
    if not isinstance(value, dict):
        raise TokenRefused("a part that is not a JSON object")
    return value


def _decoded(part: str) -> bytes:
    try:
        return base64.b64decode(part.encode("ascii") + b"=" * (-len(part) % 4), b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise TokenRefused("a part that is not base64url") from None


def _number(text: str) -> int:
    return int.from_bytes(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), "big")
