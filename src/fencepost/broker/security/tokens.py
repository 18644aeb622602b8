"""JSON web tokens as Kafka's validators take them: which claims a token must have, and which user it names.

The tokens of an issuer are signed (`signed_tokens.py`, by a library). The unsigned ones here are for development only.
What both must say is the same, and is checked here with the broker's own clock.
"""

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

TOKEN_BYTES_MAX = 65_536
_TIME_SECONDS_MAX = 1e12


class TokenRefused(Exception):
    """Why a token is not accepted."""


class Validated(NamedTuple):
    name: str
    expires_at_ms: int


class TokenValidator(Protocol):
    def validate(self, text: str, now_ms: int) -> Validated:
        """Raises TokenRefused."""


class UnsecuredTokens:
    """Kafka's OAuthBearerUnsecuredValidatorCallbackHandler: no signature at all. For development only."""

    def __init__(self, *, clock_skew_ms: int = 0, name_claim: str = "sub") -> None:
        self._clock_skew_ms = clock_skew_ms
        self._name_claim = name_claim

    def validate(self, text: str, now_ms: int) -> Validated:
        check_length(text)
        parts = text.split(".")
        if len(parts) != 3:
            raise TokenRefused(f"{len(parts)} parts instead of three")
        header, claims = (json_object(_decoded(part)) for part in parts[:2])
        if header.get("alg") != "none" or parts[2]:
            raise TokenRefused("signed, where unsigned tokens are configured")
        expires_at_ms = check_times(claims, now_ms, self._clock_skew_ms, needs_issue_time=False)
        return Validated(name_in(claims, self._name_claim), expires_at_ms)


def check_length(text: str) -> None:
    if len(text) > TOKEN_BYTES_MAX:
        raise TokenRefused(f"longer than {TOKEN_BYTES_MAX} bytes")


def check_times(claims: Mapping[str, Any], now_ms: int, skew_ms: int, *, needs_issue_time: bool) -> int:
    """When the token expires, by the wall clock."""
    expires, issued, begins = (_seconds(claims, name) for name in ("exp", "iat", "nbf"))
    if expires is None or (issued is None and needs_issue_time):
        raise TokenRefused("it does not say when it was issued and when it expires")
    if now_ms - skew_ms >= expires * 1000:
        raise TokenRefused("expired")
    for name, time in (("iat", issued), ("nbf", begins)):
        if time is not None and now_ms + skew_ms < time * 1000:
            raise TokenRefused(f"not valid yet ({name})")
    if issued is not None and issued > expires:
        raise TokenRefused("it expires before it was issued")
    return int(expires * 1000)


def name_in(claims: Mapping[str, Any], claim: str) -> str:
    name = claims.get(claim)
    if not isinstance(name, str) or not name.strip():
        raise TokenRefused(f"the claim {claim} names nobody")
    return name


def json_object(content: bytes) -> Mapping[str, Any]:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        raise TokenRefused("a part that is not JSON") from None
    if not isinstance(value, dict):
        raise TokenRefused("a part that is not a JSON object")
    return value


def _seconds(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _TIME_SECONDS_MAX:
        raise TokenRefused(f"the claim {name} is not a time")
    return value


def _decoded(part: str) -> bytes:
    try:
        return base64.b64decode(part.encode("ascii") + b"=" * (-len(part) % 4), b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise TokenRefused("a part that is not base64url") from None
