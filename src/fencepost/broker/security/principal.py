"""Who a connection speaks for, once it has proved it; Kafka's KafkaPrincipal."""

from typing import NamedTuple

USER = "User"


class Principal(NamedTuple):
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> "Principal":
        """`User:alice` as in super.users and ACLs; the name may hold colons of its own. Raises ValueError."""
        kind, colon, name = text.partition(":")
        if not kind or not colon or not name:
            raise ValueError(f"expected a principal like User:alice, not {text!r}")
        return cls(kind, name)


ANONYMOUS = Principal(USER, "ANONYMOUS")
"""The principal of every connection to a listener that asks for no login."""
