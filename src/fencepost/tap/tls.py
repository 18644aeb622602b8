"""TLS on both sides of the tap: as a client of the cluster, and with its own certificate towards clients.

The two sides are independent, so that the tap can decode what passes. The tap does not authenticate: SASL passes
through it, from the client to the broker, and is never recorded.
"""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fencepost.client.security import security_of

PROTOCOL = "security.protocol"


@dataclass(frozen=True, slots=True)
class Encryption:
    upstream: ssl.SSLContext | None = None
    clients: ssl.SSLContext | None = None


def upstream_context(settings: Mapping[str, Any]) -> ssl.SSLContext | None:
    """From client settings; None if they do not use TLS. Raises InvalidOption.

    Ignores credentials: otherwise everyone who can connect to the tap would be authenticated.
    """
    given = str(settings.get(PROTOCOL, "PLAINTEXT")).upper()
    return security_of({**settings, PROTOCOL: given.removeprefix("SASL_")}).tls


def listening_context(certificate: str, key: str | None) -> ssl.SSLContext:
    """Raises OSError, including SSLError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    context.sni_callback = _remember
    return context


def _remember(connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
    connection.asked_for = name  # type: ignore[attr-defined]


def asked_for(connection: ssl.SSLObject | None) -> str | None:
    """The server name that the client sent in the TLS handshake; None for an IP address."""
    return getattr(connection, "asked_for", None)
