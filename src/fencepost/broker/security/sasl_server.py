"""One connection's way to a principal, as Kafka's SaslServerAuthenticator walks it; bytes and times in, verdicts out.

ApiVersions at most once, then SaslHandshake, then SaslAuthenticate until the mechanism is content. Nothing else is let
in before that. Afterwards the same way may be walked again (KIP-368), with the same mechanism to the same principal.
"""

import enum
from collections.abc import Callable, Mapping
from typing import NamedTuple

from fencepost.broker.security.conversation import AuthenticationRefused, Conversation, Identity
from fencepost.broker.security.principal import USER, Principal
from fencepost.wire.catalog import API_VERSIONS, ApiKey
from fencepost.wire.errors import ErrorCode

REAUTHENTICATION_INTERVAL_MS = 1_000


class State(enum.Enum):
    FRESH = "FRESH"
    """Nothing was said yet."""
    HANDSHAKE = "HANDSHAKE"
    AUTHENTICATE = "AUTHENTICATE"
    AUTHENTICATE_BARE = "AUTHENTICATE_BARE"
    """After SaslHandshake 0: the mechanism's messages are frames of their own, without a header."""
    AUTHENTICATED = "AUTHENTICATED"
    FAILED = "FAILED"


_ADMITTED = {
    State.FRESH: (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE),
    State.HANDSHAKE: (ApiKey.SASL_HANDSHAKE,),
    State.AUTHENTICATE: (ApiKey.SASL_AUTHENTICATE,),
}


class Mechanism(NamedTuple):
    begin: Callable[[], Conversation]
    max_reauth_ms: int = 0
    """Longest session; 0 is as long as the credential lasts."""


class Verdict(NamedTuple):
    error: ErrorCode = ErrorCode.NONE
    client_message: str | None = None
    content: bytes = b""
    session_lifetime_ms: int = 0
    failure: str | None = None
    """Why this connection ends, for the broker's log. None: it goes on."""


ILLEGAL_STATE = Verdict(
    ErrorCode.ILLEGAL_SASL_STATE, "SaslAuthenticate request received after successful authentication"
)


class SaslServer:
    def __init__(
        self, mechanisms: Mapping[str, Mechanism], wall_ms: Callable[[], int], monotonic_ms: Callable[[], int]
    ) -> None:
        self.mechanisms = mechanisms
        self._wall_ms = wall_ms
        self._monotonic_ms = monotonic_ms
        self.state = State.FRESH
        self.mechanism = ""
        self.principal: Principal | None = None
        self._conversation: Conversation | None = None
        self._session_ends_ms: int | None = None
        self._last_reauthentication_ms: int | None = None

    @property
    def is_authenticated(self) -> bool:
        return self.state is State.AUTHENTICATED

    @property
    def has_session_end(self) -> bool:
        return self._session_ends_ms is not None

    def refusal_of(self, api_key: int, version: int) -> str | None:
        """Why a request may not even be read now; None if it may."""
        if self.state is State.AUTHENTICATED:
            # SaslHandshake is how a session that is over is renewed.
            is_over = self._session_ends_ms is not None and self._monotonic_ms() >= self._session_ends_ms
            if is_over and api_key != ApiKey.SASL_HANDSHAKE:
                return "the session is over and was not renewed"
            return None
        admitted = _ADMITTED.get(self.state, ())
        if api_key in admitted:
            # A version that we do not speak is answered with those that we do, and asked for again.
            if api_key == ApiKey.API_VERSIONS and version <= API_VERSIONS[ApiKey.API_VERSIONS][1]:
                self.state = State.HANDSHAKE
            return None
        expected = " or ".join(key.camel_name for key in admitted) or "nothing"
        return f"request {api_key} during authentication, where {expected} belongs"

    def handshake(self, version: int, mechanism: str) -> Verdict:
        if self.is_authenticated:
            refusal = self._reauthentication_refusal(mechanism)
            if refusal is not None:
                return refusal
        if mechanism not in self.mechanisms:
            self.state = State.FAILED
            return Verdict(ErrorCode.UNSUPPORTED_SASL_MECHANISM, failure=f"mechanism {mechanism[:64]!r} is not offered")
        self.mechanism = mechanism
        self._conversation = self.mechanisms[mechanism].begin()
        self.state = State.AUTHENTICATE if version else State.AUTHENTICATE_BARE
        return Verdict()

    def _reauthentication_refusal(self, mechanism: str) -> Verdict | None:
        now_ms, last_ms = self._monotonic_ms(), self._last_reauthentication_ms
        if last_ms is not None and now_ms - last_ms < REAUTHENTICATION_INTERVAL_MS:
            return ILLEGAL_STATE
        self._last_reauthentication_ms = now_ms
        if mechanism != self.mechanism:
            self.state = State.FAILED
            reason = f"reauthentication by {mechanism[:64]!r} instead of {self.mechanism}"
            return Verdict(ErrorCode.UNSUPPORTED_SASL_MECHANISM, failure=reason)
        return None

    def authenticate(self, content: bytes) -> Verdict:
        if self.state not in (State.AUTHENTICATE, State.AUTHENTICATE_BARE) or self._conversation is None:
            return ILLEGAL_STATE
        try:
            answer = self._conversation.respond(content)
            if self._conversation.identity is not None:
                return self._completed(self._conversation.identity, answer)
        except AuthenticationRefused as refused:
            self.state = State.FAILED
            self._conversation = None
            client_message = refused.client_message or (
                "Authentication failed during authentication due to invalid credentials with SASL mechanism "
                f"{self.mechanism}"
            )
            return Verdict(ErrorCode.SASL_AUTHENTICATION_FAILED, client_message, failure=refused.reason)
        return Verdict(content=answer)

    def _completed(self, identity: Identity, answer: bytes) -> Verdict:
        principal = Principal(USER, identity.name)
        if self.principal not in (None, principal):
            raise AuthenticationRefused(
                f"{self.principal} reauthenticates as {principal}",
                f"Cannot change principals during re-authentication from {self.principal} to {principal}",
            )
        self.principal = principal
        self._conversation = None
        self.state = State.AUTHENTICATED
        lifetime_ms = self._session_lifetime_ms(identity)
        self._session_ends_ms = None if lifetime_ms is None else self._monotonic_ms() + lifetime_ms
        return Verdict(content=answer, session_lifetime_ms=lifetime_ms or 0)

    def _session_lifetime_ms(self, identity: Identity) -> int | None:
        limits = []
        if identity.expires_at_ms is not None:
            limits.append(max(0, identity.expires_at_ms - self._wall_ms()))
        if self.mechanisms[self.mechanism].max_reauth_ms:
            limits.append(self.mechanisms[self.mechanism].max_reauth_ms)
        return min(limits, default=None)
