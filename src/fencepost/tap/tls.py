"""TLS on either side of the tap: towards the cluster as a client, towards clients with a certificate of its own.

The two sides are apart, so that what passes can be read in between. Nobody logs in here: SASL goes through, from the
client to the broker, and is never shown.
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
    """From a client's settings; None where these speak of no TLS. Raises InvalidOption.

    Settings for a login are not read: everyone who can connect to the tap would be logged in.
    """
    given = str(settings.get(PROTOCOL, "PLAINTEXT")).upper()
    return security_of({**settings, PROTOCOL: given.removeprefix("SASL_")}).tls


def listening_context(certificate: str, key: str | None) -> ssl.SSLContext:
    """Raises OSError (of which SSLError is one)."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    context.sni_callback = _remember
    return context


def _remember(connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
    connection.asked_for = name  # type: ignore[attr-defined]


def asked_for(connection: ssl.SSLObject | None) -> str | None:
    """The name by which a client reached us, which our certificate bears; an address is not said by TLS."""
    return getattr(connection, "asked_for", None)
