"""SaslHandshake (0-1) and SaslAuthenticate (0-2): how a connection proves who it is. Open to everybody.

Which of them may come when is decided in `security/sasl_server.py`. From v1 on the answer to SaslAuthenticate has the
lifetime of the session. After SaslHandshake v0 the mechanism's messages come without headers (`authentication.py`).
"""

from typing import TYPE_CHECKING

from fencepost.broker.connection import Call
from fencepost.broker.handler import Handler
from fencepost.broker.rights import OPEN
from fencepost.broker.security.sasl_server import ILLEGAL_STATE
from fencepost.promise import Promise
from fencepost.wire.catalog import ApiKey
from fencepost.wire.errors import ErrorCode
from fencepost.wire.messages import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

if TYPE_CHECKING:
    from fencepost.broker.node import Node


def sasl_handshake(
    node: "Node", call: Call, request: SaslHandshakeRequest
) -> SaslHandshakeResponse | Promise[SaslHandshakeResponse]:
    login = call.connection.login
    if login is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    verdict = login.handshake(call.version, request.mechanism)
    if verdict.error is ErrorCode.ILLEGAL_SASL_STATE:
        return SaslHandshakeResponse(error_code=verdict.error)
    response = SaslHandshakeResponse(error_code=verdict.error, mechanisms=login.mechanisms)
    return response if verdict.failure is None else login.delayed(response, verdict.failure)


def sasl_authenticate(
    node: "Node", call: Call, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse | Promise[SaslAuthenticateResponse]:
    login = call.connection.login
    verdict = ILLEGAL_STATE if login is None else login.authenticate(bytes(request.auth_bytes))
    response = SaslAuthenticateResponse(
        error_code=verdict.error,
        error_message=verdict.client_message,
        auth_bytes=verdict.content,
        session_lifetime_ms=verdict.session_lifetime_ms,
    )
    if login is None or verdict.failure is None:
        return response
    return login.delayed(response, verdict.failure)


HANDLERS = {
    ApiKey.SASL_HANDSHAKE: Handler(sasl_handshake, needs=OPEN),
    ApiKey.SASL_AUTHENTICATE: Handler(sasl_authenticate, needs=OPEN),
}
