"""Holds a connection back until it has proved who it is: between the dispatcher and the SASL state machine.

While it lasts, requests are small, come one at a time and within a deadline. A failure is answered late, so that
guessing is slow, and ends the connection. An authenticated connection without an end of its session is left alone.
"""

import struct
from typing import TYPE_CHECKING, Any

from fencepost.broker.connection import Call, Connection
from fencepost.broker.events import AuthenticationFailed
from fencepost.broker.security.sasl_server import Mechanism, SaslServer, State, Verdict
from fencepost.ports import Timer
from fencepost.promise import Promise

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fencepost.broker.node import Node


class Authentication:
    """The admission of one connection of a SASL listener."""

    def __init__(
        self, node: "Node", connection: Connection, mechanisms: "Mapping[str, Mechanism]", request_max_bytes: int
    ) -> None:
        self._node = node
        self._connection = connection
        self._sasl = SaslServer(mechanisms, node.clock.wall_ms, node.clock.monotonic_ms)
        connection.hold_back(self, request_max_bytes)
        connection.on_closed[self] = self._forget_deadline
        self._deadline: Timer | None = node.scheduler.call_later(
            node.config.authentication_timeout_ms, self._deadline_reached
        )

    @property
    def mechanisms(self) -> list[str]:
        return list(self._sasl.mechanisms)

    @property
    def is_stranger(self) -> bool:
        return not self._sasl.is_authenticated

    def takes(self, frame: memoryview) -> bool:
        """Whether a request was dealt with here and goes no further."""
        if self._sasl.state is State.AUTHENTICATE_BARE:
            self._authenticate_bare(frame)
            return True
        if len(frame) < 4:
            refusal: str | None = "half a header"
        else:
            refusal = self._sasl.refusal_of(frame[0] << 8 | frame[1], frame[2] << 8 | frame[3])
        if refusal is not None:
            self._tell(refusal)
            self._connection.close(refusal)
            return True
        return False

    def handshake(self, version: int, mechanism: str) -> Verdict:
        # While a session is renewed, one without an end is under admission again.
        verdict = self._sasl.handshake(version, mechanism)
        if not self._sasl.is_authenticated:
            self._connection.hold_again()
        return verdict

    def authenticate(self, content: bytes) -> Verdict:
        verdict = self._sasl.authenticate(content)
        if self._sasl.is_authenticated and verdict.failure is None:
            self._admit()
        return verdict

    def delayed(self, message: Any, failure: str) -> Promise[Any]:
        """An answer that ends the connection, given only after a while."""
        self._tell(failure)
        answer: Promise[Any] = Promise()

        def end() -> None:
            answer.resolve(message)
            self._connection.close(f"authentication failed: {failure}")

        self._node.scheduler.call_later(self._node.config.connection_failed_authentication_delay_ms, end)
        return answer

    def _admit(self) -> None:
        self._forget_deadline()
        assert self._sasl.principal is not None
        self._connection.admit(self._sasl.principal, has_session_end=self._sasl.has_session_end)

    def _authenticate_bare(self, frame: memoryview) -> None:
        call = Call(self._connection, -1, 0, 0, None)
        verdict = self.authenticate(bytes(frame))
        if verdict.failure is not None:
            # This old form has no way to say what is wrong.
            answer = self.delayed(None, verdict.failure)
            self._connection.park(call, answer, gate=answer)
        else:
            self._connection.answer(call, [struct.pack(">i", len(verdict.content)), verdict.content])

    def _deadline_reached(self) -> None:
        self._deadline = None
        if not self._connection.is_closed:
            self._tell("not within authentication.timeout.ms")
            self._connection.close("not authenticated within authentication.timeout.ms")

    def _forget_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _tell(self, reason: str) -> None:
        connection = self._connection
        self._node.events.emit(
            AuthenticationFailed(
                connection.number, connection.peer_host, connection.listener_name, self._sasl.mechanism, reason
            )
        )
