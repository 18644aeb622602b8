"""The server's side of SCRAM (RFC 5802), strict where Kafka had to become so.

A user who does not exist is asked for a proof like any other, under a salt of their own that stays the same, and is
refused at the end with the same words: names cannot be probed, neither by what is answered nor by how long it takes.
"""

import base64
import binascii
import hmac
import re
from collections.abc import Callable

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
_SALT_BYTES = 26

Lookup = Callable[[str], ScramCredential | None]


class ScramConversation:
    """One attempt. A second one needs a new conversation, with a new nonce: what was overheard is worth nothing."""

    def __init__(self, mechanism: str, lookup: Lookup, template: ScramCredential, nonce: str) -> None:
        """`template` is what users who do not exist are made to look like; see `decoy`."""
        self._mechanism = mechanism
        self._lookup = lookup
        self._template = template
        self._nonce = nonce
        self._messages: tuple[str, str] | None = None
        self._name = ""
        self._credential = template
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
        decoyed = decoy(self._mechanism, self._template, self._name)
        credential = self._lookup(self._name)
        self._is_known = credential is not None
        self._credential = credential or decoyed
        if self._credential.iterations < ITERATIONS_MIN:
            raise AuthenticationRefused(f"the credential of {self._name} has only {self._credential.iterations} rounds")
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


def decoy(mechanism: str, template: ScramCredential, name: str) -> ScramCredential:
    """A credential that looks like the template's, is always the same for the same name, and that nothing proves."""

    def derived(purpose: bytes) -> bytes:
        return signature(mechanism, template.server_key, purpose + name.encode())

    salt = derived(b"salt")
    while len(salt) < len(template.salt):
        salt += signature(mechanism, template.server_key, salt)
    return ScramCredential(salt[: len(template.salt)], template.iterations, derived(b"stored"), derived(b"server"))


def template_of(mechanism: str, first: ScramCredential | None, secret: bytes) -> ScramCredential:
    """What decoys are made after: the first credential there is, so that they cannot be told from it."""
    if first is not None:
        return first
    size = len(signature(mechanism, secret, b""))
    return ScramCredential(secret[:_SALT_BYTES].ljust(_SALT_BYTES, b"\0"), ITERATIONS_MIN, bytes(size), secret)


__all__ = ["MECHANISMS", "ScramConversation", "decoy", "template_of"]
