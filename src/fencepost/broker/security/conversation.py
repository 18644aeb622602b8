"""What every SASL mechanism is to the broker: a conversation that ends with a name, or with a refusal."""

from typing import NamedTuple, Protocol


class Identity(NamedTuple):
    """Who a client has proved to be."""

    name: str
    expires_at_ms: int | None = None
    """Wall clock: when the credential itself ends, if it does."""


class AuthenticationRefused(Exception):
    """`reason` is for the broker's log. `client_message`, if any, goes to the client; it must not help to guess."""

    def __init__(self, reason: str, client_message: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.client_message = client_message


class Conversation(Protocol):
    identity: Identity | None
    """Set once the last message was heard."""

    def respond(self, message: bytes) -> bytes:
        """The answer to the client's next message. Raises AuthenticationRefused."""
