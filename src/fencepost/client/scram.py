"""SCRAM (RFC 5802) as Kafka speaks it: the client's side of the conversation, with the server's signature checked.

Pure: the nonce is an argument. Kafka does no SASLprep, so names and passwords are taken as they are.
"""

import base64
import hmac

from fencepost.wire.scram import (
    ITERATIONS_MIN,
    MECHANISMS,
    client_proof,
    credential_of,
    name_to_wire,
    salted_password,
    signature,
)

__all__ = ["MECHANISMS", "ScramConversation", "ScramError"]


class ScramError(Exception):
    """The server did not keep to the protocol, or is not who it should be."""


class ScramConversation:
    """`first()`, then `final(server's first)`, then `verify(server's final)`."""

    def __init__(self, mechanism: str, username: str, password: str, nonce: str) -> None:
        self._mechanism = mechanism
        self._password = password.encode()
        self._nonce = nonce
        self._first_bare = f"n={name_to_wire(username)},r={nonce}"
        self._server_signature = b""

    def first(self) -> bytes:
        return f"n,,{self._first_bare}".encode()

    def final(self, server_first: bytes) -> bytes:
        fields = _fields(server_first)
        try:
            nonce, salt, iterations = fields["r"], base64.b64decode(fields["s"]), int(fields["i"])
        except (KeyError, ValueError):
            raise ScramError(f"the server's first message makes no sense: {server_first!r}") from None
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise ScramError("the server's nonce does not go on from ours")
        if iterations < ITERATIONS_MIN:
            raise ScramError(f"{iterations} iterations are too few, {ITERATIONS_MIN} is the least")
        without_proof = f"c={base64.b64encode(b'n,,').decode()},r={nonce}"
        signed = ",".join((self._first_bare, server_first.decode(), without_proof)).encode()
        salted = salted_password(self._mechanism, self._password, salt, iterations)
        credential = credential_of(self._mechanism, salted, salt, iterations)
        proof = client_proof(self._mechanism, salted, credential.stored_key, signed)
        self._server_signature = signature(self._mechanism, credential.server_key, signed)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, server_final: bytes) -> None:
        """The server knows the password's verifier as well, or it is not the one that we wanted to talk to."""
        fields = _fields(server_final)
        if "e" in fields:
            raise ScramError(f"the server refuses: {fields['e']}")
        try:
            signature = base64.b64decode(fields.get("v", ""))
        except ValueError:
            signature = b""
        if not self._server_signature or not hmac.compare_digest(signature, self._server_signature):
            raise ScramError("the server's signature is wrong: it does not know the password")


def _fields(message: bytes) -> dict[str, str]:
    try:
        parts = message.decode().split(",")
    except UnicodeDecodeError:
        raise ScramError("a message that is not text") from None
    return {part[0]: part[2:] for part in parts if part[1:2] == "="}
