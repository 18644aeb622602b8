"""Tokens that an issuer has signed, verified with its public keys by joserfc (RFC 7515, 7517, 7518, 7519).

The token does not choose how it is checked. Only the algorithms listed here count, all of which sign with a private
key; a key must be of the algorithm's own kind, so that a public key is never taken for a shared secret; and a token
with critical extensions is refused, because none is supported.

joserfc and cryptography come with the extra `security`. Import this module only where signed tokens are configured.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from joserfc.errors import JoseError
from joserfc.jwk import ECKey, JWKRegistry, RSAKey
from joserfc.jws import CompactSignature, JWSRegistry, extract_compact, validate_compact

from fencepost.broker.security.tokens import (
    TOKEN_BYTES_MAX,
    TokenRefused,
    Validated,
    check_length,
    check_times,
    json_object,
    name_in,
)

RSA_BITS_MIN = 2048
ALGORITHMS = ("RS256", "RS384", "RS512", "ES256", "ES384", "ES512")
_CURVES = ("P-256", "P-384", "P-521")
# Of a key set only the public parts are read: a private key that was published by mistake is not used as one.
_PUBLIC_PARTS = ("kty", "kid", "alg", "use", "n", "e", "crv", "x", "y")
# What hostile input makes joserfc raise besides its own errors.
_MALFORMED = (JoseError, ValueError, TypeError, KeyError, RecursionError)

Key = RSAKey | ECKey


class KeysUnusable(Exception):
    """Why a set of keys cannot be used."""


class _Registry(JWSRegistry):
    # The length of the whole token is checked already.
    max_header_length = TOKEN_BYTES_MAX
    max_payload_length = TOKEN_BYTES_MAX
    max_signature_length = TOKEN_BYTES_MAX


_REGISTRY = _Registry(algorithms=ALGORITHMS, strict_check_header=False)


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
        """`unknown_key` is called for a token whose key is not among `keys`: the key may be newer than they are."""
        self._keys = keys
        self._unknown_key = unknown_key
        self._issuer = issuer
        self._audiences = frozenset(audiences)
        self._clock_skew_ms = clock_skew_ms
        self._name_claim = name_claim
        self._scope_claim = scope_claim

    def validate(self, text: str, now_ms: int) -> Validated:
        claims = self._verified_claims(text)
        if self._issuer and claims.get("iss") != self._issuer:
            raise TokenRefused(f"issued by {claims.get('iss')!r}, not by {self._issuer!r}")
        if self._audiences and self._audiences.isdisjoint(_texts(claims.get("aud"))):
            raise TokenRefused(f"meant for {claims.get('aud')!r}, not for {', '.join(sorted(self._audiences))}")
        expires_at_ms = check_times(claims, now_ms, self._clock_skew_ms, needs_issue_time=True)
        scope = claims.get(self._scope_claim, "")
        if not isinstance(scope, str) and not (isinstance(scope, list) and all(isinstance(s, str) for s in scope)):
            raise TokenRefused(f"the claim {self._scope_claim} is neither a text nor a list of texts")
        return Validated(name_in(claims, self._name_claim), expires_at_ms)

    def _verified_claims(self, text: str) -> Mapping[str, Any]:
        check_length(text)
        try:
            token = extract_compact(text.encode(), registry=_REGISTRY)
            header = dict(token.headers())
        except _MALFORMED:
            raise TokenRefused("not a signed JSON web token") from None
        if header.get("alg") not in ALGORITHMS:
            raise TokenRefused(f"algorithm {header.get('alg')!r}; only {', '.join(ALGORITHMS)} count")
        if "crit" in header or "b64" in header:
            raise TokenRefused("it has critical extensions, and none is supported")
        candidates = self._candidates(header)
        if not any(_is_signed_by(token, key) for key in candidates):
            raise TokenRefused("the signature is wrong")
        return json_object(token.payload)

    def _candidates(self, header: Mapping[str, Any]) -> list[Key]:
        algorithm, key_id = header["alg"], header.get("kid")
        candidates = [key for key in self._keys() if key_id in (None, key.kid) and _can_verify(key, algorithm)]
        if not candidates:
            self._unknown_key()
            raise TokenRefused(f"no key for {algorithm} and kid {key_id!r}")
        if len(candidates) > 1 and key_id is None:
            raise TokenRefused("it does not say which of several keys signed it")
        return candidates


def _can_verify(key: Key, algorithm: str) -> bool:
    try:
        _REGISTRY.get_alg(algorithm).check_key(key)
    except JoseError:
        return False
    return True


def _is_signed_by(token: CompactSignature, key: Key) -> bool:
    try:
        return validate_compact(token, key, registry=_REGISTRY)
    except _MALFORMED as error:
        raise TokenRefused(f"malformed: {error}") from None


def _texts(value: Any) -> list[str]:
    return [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, str)]


def read_key_set(data: bytes) -> list[Key]:
    """The public keys of a JSON web key set that can verify signatures. Others in it are passed over."""
    try:
        entries = json.loads(data)["keys"]
        keys = [key for key in map(_key, entries) if key is not None]
    except (*_MALFORMED, AttributeError) as error:
        raise KeysUnusable(f"this is no JSON web key set: {error!r}") from None
    if not keys:
        raise KeysUnusable(f"it contains no key for any of {', '.join(ALGORITHMS)}")
    return keys


def _key(entry: Mapping[str, Any]) -> Key | None:
    if entry.get("use", "sig") != "sig" or entry.get("alg", "RS256") not in ALGORITHMS:
        return None
    if entry.get("kty") != "RSA" and not (entry.get("kty") == "EC" and entry.get("crv") in _CURVES):
        return None
    key = JWKRegistry.import_key({name: entry[name] for name in _PUBLIC_PARTS if name in entry})
    assert isinstance(key, RSAKey | ECKey)
    if isinstance(key, RSAKey) and key.raw_value.key_size < RSA_BITS_MIN:
        raise ValueError(f"an RSA key of {key.raw_value.key_size} bits; the minimum is {RSA_BITS_MIN}")
    return key
