"""SASL/PLAIN (RFC 4616): a name and a password in the clear, checked against the users of the listener's login module.

The comparison takes as long for a name that does not exist as for one that does (CVE-2021-38153).
"""

import hashlib
import hmac
from collections.abc import Mapping

from fencepost.broker.security.conversation import AuthenticationRefused, Identity

INVALID = "Authentication failed: Invalid username or password"
USER_PREFIX = "user_"


class PlainUsers:
    """Passwords by name, kept as digests so that comparing them takes the same time whatever their length."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._digests = {name: _digest(password.encode()) for name, password in passwords.items()}
        self._nobody = _digest(b"")

    @classmethod
    def of_login_module(cls, options: Mapping[str, str]) -> "PlainUsers":
        """`user_alice="secret"` of `PlainLoginModule`."""
        return cls(
            {name.removeprefix(USER_PREFIX): text for name, text in options.items() if name.startswith(USER_PREFIX)}
        )

    def __bool__(self) -> bool:
        return bool(self._digests)

    def is_valid(self, name: str, password: bytes) -> bool:
        matches = hmac.compare_digest(self._digests.get(name, self._nobody), _digest(password))
        return matches and name in self._digests


class PlainConversation:
    def __init__(self, users: PlainUsers) -> None:
        self._users = users
        self.identity: Identity | None = None

    def respond(self, message: bytes) -> bytes:
        parts = message.split(b"\0")
        if len(parts) != 3:
            raise AuthenticationRefused(
                f"PLAIN expects three parts, not {len(parts)}",
                "Invalid SASL/PLAIN response: expected 3 tokens, got " + str(len(parts)),
            )
        try:
            asked_for, name = parts[0].decode(), parts[1].decode()
        except UnicodeDecodeError:
            raise AuthenticationRefused("a name that is not UTF-8", INVALID) from None
        if not name:
            raise AuthenticationRefused("no name", "Authentication failed: username not specified")
        if not parts[2]:
            raise AuthenticationRefused(f"{name} gave no password", "Authentication failed: password not specified")
        if not self._users.is_valid(name, parts[2]):
            raise AuthenticationRefused(f"invalid username or password of {name}", INVALID)
        if asked_for not in ("", name):
            # CVE-2017-12610: nobody becomes somebody else by asking.
            raise AuthenticationRefused(
                f"{name} asks to act as {asked_for}",
                "Authentication failed: Client requested an authorization id that is different from username",
            )
        self.identity = Identity(name)
        return b""


def _digest(password: bytes) -> bytes:
    return hashlib.sha256(password).digest()
