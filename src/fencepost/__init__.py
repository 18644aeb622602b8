"""Fencepost: a transactional log that speaks Kafka's protocol and keeps Kafka's files, in Python."""

from typing import TYPE_CHECKING, Any

from fencepost.version import __version__

if TYPE_CHECKING:
    from fencepost.embedded import Broker

__all__ = ["Broker", "__version__"]


def __getattr__(name: str) -> Any:
    if name == "Broker":
        # The command line and the wire codec must not pay for the broker's imports.
        from fencepost.embedded import Broker

        return Broker
    raise AttributeError(f"module 'fencepost' has no attribute {name!r}")
