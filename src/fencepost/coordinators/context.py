"""What comes with every call to a coordinator: when it is, who asks, and which topics there are."""

from typing import NamedTuple, Protocol

from fencepost.ports import Clock

# A named tuple's own constructor is a Python function; these are made with every call.
_new_tuple = tuple.__new__


class Now(NamedTuple):
    """One moment on two clocks: time-outs are measured on the first, records are stamped with the second."""

    monotonic_ms: int
    wall_ms: int

    @staticmethod
    def of(clock: Clock) -> "Now":
        return _new_tuple(Now, (clock.monotonic_ms(), clock.wall_ms()))


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
