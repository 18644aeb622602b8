"""SASL/OAUTHBEARER (RFC 7628, KIP-255): a token in the first message. A bad one is answered with a status, which the
client acknowledges before it is refused."""

import re
from collections.abc import Callable

from fencepost.broker.security.conversation import AuthenticationRefused, Identity
from fencepost.broker.security.tokens import TokenRefused, TokenValidator
from fencepost.wire.scram import name_from_wire

_FIRST = re.compile(r"n,(?:a=(?P<authzid>[^,]*))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7E \t\r\n]+\x01)*)\x01")
_AUTH = re.compile(r"(?:^|\x01)auth=(?P<scheme>\w+) +(?P<token>[-_.a-zA-Z0-9]+) *(?:\x01|$)")
_INVALID_TOKEN = '{"status":"invalid_token"}'
_HEARD = b"\x01"


class OAuthBearerConversation:
    def __init__(self, tokens: TokenValidator, wall_ms: Callable[[], int]) -> None:
        self._tokens = tokens
        self._wall_ms = wall_ms
        self._refusal = ""
        self.identity: Identity | None = None

    def respond(self, message: bytes) -> bytes:
        if self._refusal:
            if message != _HEARD:
                raise AuthenticationRefused(f"{self._refusal}, and then a message that makes no sense")
            raise AuthenticationRefused(self._refusal, _INVALID_TOKEN)
        if self.identity is not None:
            raise AuthenticationRefused("a message after the last one")
        try:
            found = _FIRST.fullmatch(message.decode())
        except UnicodeDecodeError:
            found = None
        bearer = _AUTH.search(found["pairs"]) if found is not None else None
        if found is None or bearer is None or bearer["scheme"].lower() != "bearer":
            raise AuthenticationRefused("the client's first message makes no sense")
        try:
            token = self._tokens.validate(bearer["token"], self._wall_ms())
        except TokenRefused as refused:
            self._refusal = f"token refused: {refused}"
            return _INVALID_TOKEN.encode()
        try:
            asked_for = name_from_wire(found["authzid"] or "")
        except ValueError as error:
            raise AuthenticationRefused(str(error)) from None
        if asked_for not in ("", token.name):
            raise AuthenticationRefused(
                f"{token.name} asks to act as {asked_for}",
                "Authentication failed: Client requested an authorization id that is different from the token's "
                "principal name",
            )
        self.identity = Identity(token.name, token.expires_at_ms)
        return b""
