"""Authenticates a fresh connection: SaslHandshake, then as many rounds of SaslAuthenticate as the mechanism takes."""

import inspect
import secrets
from typing import TYPE_CHECKING

from fencepost.client import apis
from fencepost.client.errors import ClientError
from fencepost.client.scram import ScramConversation, ScramError
from fencepost.client.security import OAUTHBEARER, PLAIN, Security
from fencepost.wire import messages
from fencepost.wire.errors import ErrorCode, error_code

if TYPE_CHECKING:
    from fencepost.client.connection import Connection

NONCE_BYTES = 24


class AuthenticationFailed(ClientError):
    """The broker does not let us in. Trying again would not help."""

    advice = "check the user and the password or token, and the mechanism that the listener offers"

    def __init__(self, address: str, mechanism: str, reason: str) -> None:
        super().__init__(f"{address} refuses to authenticate by {mechanism}: {reason}")
        self.address = address
        self.mechanism = mechanism
        self.reason = reason


async def authenticate(connection: "Connection", security: Security, timeout_ms: int) -> int:
    """How long the session lasts, in milliseconds; 0 for as long as the connection does."""
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
    def __init__(self, connection: "Connection", security: Security, timeout_ms: int) -> None:
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
    trouble = await rounds.send(f"n,,\x01auth=Bearer {token}\x01\x01".encode())
    if trouble:
        # The server says why and wants to be told that we have heard; then it refuses.
        await rounds.send(b"\x01")
        raise rounds.failed(trouble.decode(errors="replace"))
