"""SCRAM (RFC 5802) as Kafka speaks it: the client's side of the conversation, with the server's signature checked.

Pure: the nonce is an argument. Kafka does no SASLprep, so names and passwords are taken as they are.
"""

import base64
import hashlib
import hmac

ITERATIONS_MIN = 4096
MECHANISMS = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


class ScramError(Exception):
    """The server did not keep to the protocol, or is not who it should be."""


class ScramConversation:
    """`first()`, then `final(server's first)`, then `verify(server's final)`."""

    def __init__(self, mechanism: str, username: str, password: str, nonce: str) -> None:
        self._hash = MECHANISMS[mechanism]
        self._password = password.encode()
        self._nonce = nonce
        name = username.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={name},r={nonce}"
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
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, iterations)
        client_key = self._hmac(salted, b"Client Key")
        stored_key = hashlib.new(self._hash, client_key).digest()
        signature = self._hmac(stored_key, signed)
        proof = bytes(key ^ sign for key, sign in zip(client_key, signature, strict=True))
        self._server_signature = self._hmac(self._hmac(salted, b"Server Key"), signed)
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

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash)


def _fields(message: bytes) -> dict[str, str]:
    try:
        parts = message.decode().split(",")
    except UnicodeDecodeError:
        raise ScramError("a message that is not text") from None
    return {part[0]: part[2:] for part in parts if part[1:2] == "="}
