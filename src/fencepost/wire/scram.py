"""The computations of SCRAM (RFC 5802) for client and server: keys, proofs and credentials."""

import hashlib
import hmac
from typing import NamedTuple

ITERATIONS_MIN = 4_096
ITERATIONS_MAX = 16_384
MECHANISMS = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISM_CODES = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""How the calls that describe and alter credentials (KIP-554) name the mechanisms."""


class ScramCredential(NamedTuple):
    """What a server stores instead of a password: sufficient to check a proof, but not to create one."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


class FirstUser(NamedTuple):
    """An initial user, created when the broker starts."""

    name: str
    mechanism: str
    password: str
    iterations: int


def salted_password(mechanism: str, password: bytes, salt: bytes, iterations: int) -> bytes:
    """Deliberately slow (milliseconds): run it in a thread if there is an event loop."""
    return hashlib.pbkdf2_hmac(MECHANISMS[mechanism], password, salt, iterations)


def credential_of(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    stored_key = hashlib.new(MECHANISMS[mechanism], client_key(mechanism, salted)).digest()
    return ScramCredential(salt, iterations, stored_key, server_key(mechanism, salted))


def client_key(mechanism: str, salted: bytes) -> bytes:
    return signature(mechanism, salted, b"Client Key")


def server_key(mechanism: str, salted: bytes) -> bytes:
    return signature(mechanism, salted, b"Server Key")


def signature(mechanism: str, key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, MECHANISMS[mechanism])


def client_proof(mechanism: str, salted: bytes, stored_key: bytes, auth_message: bytes) -> bytes:
    return exclusive_or(client_key(mechanism, salted), signature(mechanism, stored_key, auth_message))


def is_proof_of(mechanism: str, credential: ScramCredential, proof: bytes, auth_message: bytes) -> bool:
    """Whether somebody who knows the password made this proof."""
    expected = signature(mechanism, credential.stored_key, auth_message)
    if len(proof) != len(expected):
        return False
    claimed = hashlib.new(MECHANISMS[mechanism], exclusive_or(proof, expected)).digest()
    return hmac.compare_digest(claimed, credential.stored_key)


def exclusive_or(left: bytes, right: bytes) -> bytes:
    return bytes(one ^ other for one, other in zip(left, right, strict=True))


def name_to_wire(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def name_from_wire(text: str) -> str:
    """Raises ValueError for an equals sign that is not part of an escape, because two users could share such a name."""
    if "=" in text.replace("=2C", "").replace("=3D", ""):
        raise ValueError("a name with an escape that does not exist")
    return text.replace("=2C", ",").replace("=3D", "=")
