"""What comes with every call to a coordinator: who asks, and which topics there are. When it is: `ports.Now`."""

from typing import NamedTuple, Protocol


class Caller(NamedTuple):
    client_id: str
    client_host: str
    """The bare address, as in 127.0.0.1."""
    connection_number: int = -1
    """Accept number: a later connection has a higher one. -1 for calls from inside the broker."""


class Topics(Protocol):
    """What the groups need to know about the topics of the cluster."""

    def name_of(self, topic_id: bytes) -> str | None: ...

    def id_of(self, name: str) -> bytes | None: ...

    def partition_count_of(self, name: str) -> int | None:
        """None when there is no such topic."""
