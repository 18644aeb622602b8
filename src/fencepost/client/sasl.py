"""Authenticates a new connection: SaslHandshake, then as many rounds of SaslAuthenticate as the mechanism needs."""

import base64
import hmac
import inspect
import secrets
from typing import Protocol, TypeVar

from fencepost.client import apis
from fencepost.client.apis import Api
from fencepost.client.errors import ClientError
from fencepost.client.security import OAUTHBEARER, PLAIN, Security
from fencepost.wire import messages
from fencepost.wire.errors import ErrorCode, error_code
from fencepost.wire.scram import (
    ITERATIONS_MIN,
    client_proof,
    credential_of,
    name_to_wire,
    salted_password,
    signature,
)

Q = TypeVar("Q")
R = TypeVar("R")

NONCE_BYTES = 24


class FreshConnection(Protocol):
    """What a login needs of a connection."""

    @property
    def address(self) -> str: ...

    async def call(self, api: Api[Q, R], request: Q, timeout_ms: int) -> R: ...


class AuthenticationFailed(ClientError):
    """The broker refused the login. Retrying would not help."""

    advice = "check the user and the password or token, and the mechanism that the listener offers"

    def __init__(self, address: str, mechanism: str, reason: str) -> None:
        super().__init__(f"{address} refused authentication with {mechanism}: {reason}")
        self.address = address
        self.mechanism = mechanism
        self.reason = reason


async def authenticate(connection: FreshConnection, security: Security, timeout_ms: int) -> int:
    """Returns the lifetime of the session in milliseconds; 0 if it is unlimited."""
    mechanism = security.mechanism
    handshake = await connection.call(
        apis.SASL_HANDSHAKE, messages.SaslHandshakeRequest(mechanism=mechanism), timeout_ms
    )
    if handshake.error_code != ErrorCode.NONE:
        offered = ", ".join(handshake.mechanisms) or "nothing"
        raise AuthenticationFailed(connection.address, mechanism, f"it offers {offered}")
    rounds = _Rounds(connection, security, timeout_ms)
    if mechanism == PLAIN:
        await rounds.send(f"\0{security.username}\0{security.password}".encode())
    elif mechanism == OAUTHBEARER:
        await _bear_token(rounds, security)
    else:
        await _prove_password(rounds, security)
    return rounds.session_lifetime_ms


class _Rounds:
    def __init__(self, connection: FreshConnection, security: Security, timeout_ms: int) -> None:
        self._connection = connection
        self._mechanism = security.mechanism
        self._timeout_ms = timeout_ms
        self.session_lifetime_ms = 0

    async def send(self, content: bytes) -> bytes:
        answer = await self._connection.call(
            apis.SASL_AUTHENTICATE, messages.SaslAuthenticateRequest(auth_bytes=content), self._timeout_ms
        )
        if answer.error_code != ErrorCode.NONE:
            raise self.failed(answer.error_message or error_code(answer.error_code).name)
        self.session_lifetime_ms = answer.session_lifetime_ms
        return answer.auth_bytes

    def failed(self, reason: str) -> AuthenticationFailed:
        return AuthenticationFailed(self._connection.address, self._mechanism, reason)


async def _prove_password(rounds: _Rounds, security: Security) -> None:
    conversation = ScramConversation(
        security.mechanism, security.username, security.password, secrets.token_urlsafe(NONCE_BYTES)
    )
    try:
        server_first = await rounds.send(conversation.first())
        conversation.verify(await rounds.send(conversation.final(server_first)))
    except ScramError as error:
        raise rounds.failed(str(error)) from None


async def _bear_token(rounds: _Rounds, security: Security) -> None:
    assert security.token_provider is not None
    try:
        given = security.token_provider()
        token = await given if inspect.isawaitable(given) else given
    except ClientError:
        raise
    except Exception as error:
        raise rounds.failed(f"no token: {error}") from error
    refusal = await rounds.send(f"n,,\x01auth=Bearer {token}\x01\x01".encode())
    if refusal:
        # The server has said why. It expects an acknowledgement before it answers with an error.
        await rounds.send(b"\x01")
        raise rounds.failed(refusal.decode(errors="replace"))


# SCRAM (RFC 5802). Pure: the nonce is an argument. Kafka does no SASLprep: names and passwords are taken as they are.


class ScramError(Exception):
    """The server violated the protocol, or is not the expected one."""


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
            raise ScramError(f"the server's first message is malformed: {server_first!r}") from None
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise ScramError("the server's nonce does not begin with ours")
        if iterations < ITERATIONS_MIN:
            raise ScramError(f"{iterations} iterations are too few; at least {ITERATIONS_MIN} are required")
        without_proof = f"c={base64.b64encode(b'n,,').decode()},r={nonce}"
        signed = ",".join((self._first_bare, server_first.decode(), without_proof)).encode()
        salted = salted_password(self._mechanism, self._password, salt, iterations)
        credential = credential_of(self._mechanism, salted, salt, iterations)
        proof = client_proof(self._mechanism, salted, credential.stored_key, signed)
        self._server_signature = signature(self._mechanism, credential.server_key, signed)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, server_final: bytes) -> None:
        """Check that the server knows the password's verifier. If not, it is not the expected server."""
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
