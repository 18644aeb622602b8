"""The server's side of SCRAM (RFC 5802), strict where Kafka had to become so.

A user who does not exist is asked for a proof like any other, under a salt of their own that stays the same, even over
a restart, as long and with as many iterations as some user's who does, and is refused at the end with the same words:
names cannot be probed, neither by what is answered nor by how long it takes.
"""

import base64
import binascii
import hmac
import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from fencepost.broker.security.conversation import AuthenticationRefused, Identity
from fencepost.wire.scram import (
    ITERATIONS_MIN,
    MECHANISMS,
    ScramCredential,
    is_proof_of,
    name_from_wire,
    signature,
)

_NO_BINDING = "n"
_FIRST = re.compile(
    r"(?P<binding>[^,]*),(?:a=(?P<authzid>[^,]*))?,(?P<bare>n=(?P<name>[^,\0]+),r=(?P<nonce>[!-+\--~]+)(?P<more>,.*)?)",
    re.DOTALL,
)
_FINAL = re.compile(
    r"(?P<unproved>c=(?P<binding>[A-Za-z0-9+/=]+),r=(?P<nonce>[!-+\--~]+)(?:,[A-Za-z]=[^,]*)*),p=(?P<proof>[A-Za-z0-9+/=]+)",
    re.DOTALL,
)
LOOKS_MAX = 64
"""How many ways to look decoys choose from; each costs a login a hash."""

Lookup = Callable[[str], ScramCredential | None]


class ScramConversation:
    """One attempt. A second one needs a new conversation, with a new nonce: what was overheard is worth nothing."""

    def __init__(self, mechanism: str, lookup: Lookup, decoy_of: Callable[[str], ScramCredential], nonce: str) -> None:
        """`decoy_of` makes what users who do not exist are asked for."""
        self._mechanism = mechanism
        self._lookup = lookup
        self._decoy_of = decoy_of
        self._nonce = nonce
        self._messages: tuple[str, str] | None = None
        self._name = ""
        self._credential: ScramCredential
        self._is_known = False
        self._header = ""
        self._has_ended = False
        self.identity: Identity | None = None

    def respond(self, message: bytes) -> bytes:
        if self._has_ended:
            raise AuthenticationRefused("a message after the last one")
        try:
            text = message.decode()
        except UnicodeDecodeError:
            raise AuthenticationRefused("a message that is not UTF-8") from None
        if self._messages is None:
            return self._begin(text)
        self._has_ended = True
        return self._end(text, *self._messages)

    def _begin(self, text: str) -> bytes:
        found = _FIRST.fullmatch(text)
        if found is None:
            raise AuthenticationRefused("the client's first message makes no sense")
        if found["binding"] != _NO_BINDING:
            # 'p' binds to a TLS channel, 'y' says that we did not offer that: Kafka takes neither.
            raise AuthenticationRefused(f"channel binding {found['binding']!r} is not supported")
        if "tokenauth=true" in (found["more"] or ""):
            raise AuthenticationRefused("delegation tokens are not supported")
        try:
            self._name = name_from_wire(found["name"])
            asked_for = name_from_wire(found["authzid"] or "")
        except ValueError as error:
            raise AuthenticationRefused(str(error)) from None
        if asked_for not in ("", self._name):
            raise AuthenticationRefused(
                f"{self._name} asks to act as {asked_for}",
                "Authentication failed: Client requested an authorization id that is different from username",
            )
        # Made for everybody, so that it takes the same time.
        decoyed = self._decoy_of(self._name)
        credential = self._lookup(self._name)
        # One that no client can or should use is as good as none.
        self._is_known = credential is not None and is_usable(credential)
        self._credential = credential if credential is not None and self._is_known else decoyed
        self._header = text[: len(text) - len(found["bare"])]
        self._nonce = found["nonce"] + self._nonce
        salt = base64.b64encode(self._credential.salt).decode()
        first = f"r={self._nonce},s={salt},i={self._credential.iterations}"
        self._messages = (found["bare"], first)
        return first.encode()

    def _end(self, text: str, client_first: str, server_first: str) -> bytes:
        found = _FINAL.fullmatch(text)
        if found is None:
            raise AuthenticationRefused("the client's final message makes no sense")
        if not hmac.compare_digest(found["nonce"].encode(), self._nonce.encode()):
            # CVE-2024-56128: without this check an answer to another challenge could be replayed.
            raise AuthenticationRefused(f"{self._name} answers with another nonce than ours")
        try:
            binding = base64.b64decode(found["binding"], validate=True)
            proof = base64.b64decode(found["proof"], validate=True)
        except (binascii.Error, ValueError):
            raise AuthenticationRefused("the client's final message is not base64") from None
        if binding != self._header.encode():
            raise AuthenticationRefused(f"{self._name} repeats another header than the one it began with")
        auth_message = ",".join((client_first, server_first, found["unproved"])).encode()
        is_proved = is_proof_of(self._mechanism, self._credential, proof, auth_message)
        if not (is_proved and self._is_known):
            raise AuthenticationRefused(f"invalid credentials of {self._name}")
        self.identity = Identity(self._name)
        verifier = signature(self._mechanism, self._credential.server_key, auth_message)
        return b"v=" + base64.b64encode(verifier)


class Look(NamedTuple):
    """What a login shows of a credential before anything is proved."""

    salt_bytes: int
    iterations: int

    @classmethod
    def of(cls, credential: ScramCredential) -> "Look":
        return cls(len(credential.salt), credential.iterations)


_USUAL_LOOK = Look(32, ITERATIONS_MIN)


def looks_of(credentials: Iterable[ScramCredential]) -> list[Look]:
    """How the users there are look, each way once."""
    found = {Look.of(credential) for credential in credentials if is_usable(credential)}
    return sorted(found)[:LOOKS_MAX] or [_USUAL_LOOK]


def is_usable(credential: ScramCredential) -> bool:
    return bool(credential.salt) and credential.iterations >= ITERATIONS_MIN


def decoy(mechanism: str, secret: bytes, looks: Sequence[Look], name: str) -> ScramCredential:
    """A credential that nothing proves, for a name that does not exist.

    It looks like that of one of the users, and stays the same as long as some user's looks like that, however the users
    change: each name prefers the looks in an order of its own. `secret` must be the same after a restart.
    """

    def derived(purpose: bytes) -> bytes:
        return signature(mechanism, secret, purpose + name.encode())

    look = max(looks, key=lambda each: derived(b"look %d %d " % each))
    salt = derived(b"salt %d %d " % look)
    while len(salt) < look.salt_bytes:
        salt += signature(mechanism, secret, salt)
    return ScramCredential(salt[: look.salt_bytes], look.iterations, derived(b"stored "), derived(b"server "))


__all__ = ["MECHANISMS", "Look", "ScramConversation", "decoy", "is_usable", "looks_of"]
