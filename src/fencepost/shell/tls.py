"""The key, certificates and authorities of a listener, as an SSL context that is reloaded with its files.

Connections stay open when the files change; a new context is used for new connections. Incomplete files, or files that
do not match, are ignored until they do.
"""

import os
import ssl
import tempfile
from pathlib import Path

from fencepost.security_config import ListenerConfig
from fencepost.settings import InvalidSetting

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_VERIFY = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_CONVERT = (
    "convert it: keytool -importkeystore -srckeystore FILE -destkeystore FILE.p12 -deststoretype PKCS12, "
    "then openssl pkcs12 -in FILE.p12 -nodes -out FILE.pem"
)


class TlsKeys:
    """`context` is for the next connection."""

    what = "certificates"

    def __init__(self, config: ListenerConfig) -> None:
        """Raises InvalidSetting."""
        self.listener = config.name
        self._config = config
        locations = (config.get("ssl.keystore.location"), config.get("ssl.truststore.location"))
        self._files = [Path(location) for location in locations if location]
        self._seen = _signatures(self._files)
        self.context = make_context(config)

    def refresh(self) -> bool:
        """Whether the files have changed and were read again. If it raises InvalidSetting, the old ones remain
        valid."""
        signatures = _signatures(self._files)
        if signatures == self._seen:
            return False
        # Tried once for each change: a file that is still being written changes again.
        self._seen = signatures
        self.context = make_context(self._config)
        return True


def make_context(config: ListenerConfig) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    versions = [_VERSIONS[name] for name in config.get("ssl.enabled.protocols")]
    if not versions:
        raise InvalidSetting("ssl.enabled.protocols is empty; choose from TLSv1.2, TLSv1.3")
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    # A resumed connection would not present its certificate again, even if it is no longer trusted.
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION  # reach: an ssl.SSLContext
    context.num_tickets = 0
    _identify(context, config)
    _trust(context, config)
    return context


def _identify(context: ssl.SSLContext, config: ListenerConfig) -> None:
    _require_pem(config, "keystore")
    chain, key = config.get("ssl.keystore.certificate.chain"), config.get("ssl.keystore.key")
    location = config.get("ssl.keystore.location")
    if bool(chain) != bool(key):
        raise InvalidSetting("ssl.keystore.certificate.chain and ssl.keystore.key belong together")
    if not chain and not location:
        raise InvalidSetting(
            f"the listener {config.name} speaks TLS and has no certificate: set ssl.keystore.location to a PEM file "
            "with its private key and certificate chain"
        )
    pem = f"{_lines(key)}\n{_lines(chain)}\n".encode() if chain else _read("ssl.keystore.location", location)
    # The ssl module takes files only. The key is there no longer than it takes to read it, and read once: what is
    # checked is what is used.
    with tempfile.NamedTemporaryFile("wb", suffix=".pem") as both:
        both.write(pem)
        both.flush()
        try:
            context.load_cert_chain(both.name, password=config.get("ssl.key.password"))
        except (OSError, ValueError) as error:
            name = location or "ssl.keystore.key"
            raise InvalidSetting(f"{name} cannot be used as the listener's key and certificates: {error}") from None


def _trust(context: ssl.SSLContext, config: ListenerConfig) -> None:
    _require_pem(config, "truststore")
    wanted = client_authentication(config)
    context.verify_mode = _VERIFY[wanted]
    if wanted == "none":
        return
    location = config.get("ssl.truststore.location")
    pem = config.get("ssl.truststore.certificates")
    if not pem and not location:
        raise InvalidSetting(
            f"ssl.client.auth={wanted} needs to know whom to trust: set ssl.truststore.location to a PEM file with the "
            "authorities of the clients' certificates"
        )
    text = _lines(pem) if pem else _read("ssl.truststore.location", location).decode(errors="replace")
    try:
        context.load_verify_locations(cadata=text)
    except (OSError, ValueError) as error:
        raise InvalidSetting(f"{location or 'ssl.truststore.certificates'} holds no authorities: {error}") from None


def client_authentication(config: ListenerConfig) -> str:
    """On a SASL listener the principal comes from SASL: only the listener's own setting asks for a certificate."""
    wanted: str = config.get("ssl.client.auth")
    return "none" if config.has_sasl and not config.has_own("ssl.client.auth") else wanted


def _require_pem(config: ListenerConfig, store: str) -> None:
    kind, location = config.get(f"ssl.{store}.type"), config.get(f"ssl.{store}.location")
    if kind.upper() != "PEM" or location.lower().endswith((".jks", ".p12", ".pfx")):
        raise InvalidSetting(f"ssl.{store}.type={kind} {location}: only PEM is read; {_CONVERT}".replace("  ", " "))
    if config.get(f"ssl.{store}.password"):
        raise InvalidSetting(f"ssl.{store}.password: a PEM file has none; the key's own is ssl.key.password")


def _read(name: str, location: str) -> bytes:
    try:
        content = Path(location).read_bytes()
    except OSError as error:
        raise InvalidSetting(f"{name}: cannot read {location}: {error.strerror}") from None
    if b"-----BEGIN" not in content:
        raise InvalidSetting(f"{name}: {location} is not a PEM file; {_CONVERT}")
    return content


def _lines(text: str) -> str:
    """A PEM text may come on one line of a properties file, as Kafka writes it: with \\n for its ends of line."""
    return text.replace("\\n", "\n")


def _signatures(files: list[Path]) -> list[tuple[int, int, int] | None]:
    return [_signature(file) for file in files]


def _signature(file: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
