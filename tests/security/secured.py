"""Fencepost with listeners of every kind, the keys and certificates for them, and how each client is told of them."""

import socket
import subprocess
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tests.peers.broker_process import BrokerProcess
from tests.peers.fencepost_process import _command
from tests.support.patience import patient

USER, PASSWORD = "alice", "it's, a=secret"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
LISTENERS = {
    "PLAINTEXT": "PLAINTEXT",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "SASL_SSL": "SASL_SSL",
    "SSL": "SSL",
    "SHORT": "SASL_SSL",
}
SESSION_MS = 5_000
"""How long a session on the listener SHORT lasts."""
MAPPING_RULES = "RULE:^CN=(.*?),OU=clients.*$/$1/U,DEFAULT"
_LOGIN = "org.apache.kafka.common.security"
UNSECURED = f"{_LOGIN}.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"


class Authority:
    """Signs certificates, all PEM, keys on a curve because those are quick to make."""

    def __init__(self, directory: Path, name: str = "test authority") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        self._certificate = (
            _builder(self._name, self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.file = directory / f"{name.replace(' ', '-')}.pem"
        self.file.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def sign(self, file: str, subject: x509.Name | None = None) -> Path:
        """A file with a new key and its certificate, replaced as a whole if it is there."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = subject or x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, Path(file).stem)])
        names = [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        certificate = (
            _builder(name, self._name, key)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        path = self._directory / file
        aside = path.with_suffix(".new")
        aside.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
        aside.rename(path)
        return path


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=2))
    )


def client_subject(name: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Example"),
            x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "clients"),
            x509.NameAttribute(NameOID.COMMON_NAME, name),
        ]
    )


class SecuredFencepost(BrokerProcess):
    """`fencepost serve` with a config file, one port for each of the listeners."""

    name = "fencepost"

    def __init__(self, directory: Path, listeners: Mapping[str, str] = LISTENERS, **settings: str) -> None:
        super().__init__(directory=directory / "broker")
        self.authority = Authority(directory / "certificates")
        self.certificate = self.authority.sign("broker.pem")
        self.client_certificate = self.authority.sign("client.pem", client_subject("carol"))
        self.listeners = dict(listeners)
        self.extra = {name.replace("_", "."): value for name, value in settings.items()}
        self.ports: dict[str, int] = {}

    def address_of(self, listener: str) -> str:
        return f"127.0.0.1:{self.ports[listener]}"

    def settings(self) -> dict[str, str]:
        made = {
            "group.initial.rebalance.delay.ms": "0",
            "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in self.listeners.items()),
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "ssl.keystore.location": str(self.certificate),
            "ssl.truststore.location": str(self.authority.file),
            "ssl.principal.mapping.rules": MAPPING_RULES,
            "ssl.reload.interval.ms": "50",
            "listener.name.ssl.ssl.client.auth": "required",
            "listener.name.short.connections.max.reauth.ms": str(SESSION_MS),
        }
        for listener, protocol in self.listeners.items():
            if protocol.startswith("SASL"):
                prefix = f"listener.name.{listener.lower()}."
                made[f"{prefix}plain.sasl.jaas.config"] = (
                    f'{_LOGIN}.plain.PlainLoginModule required user_{USER}="{PASSWORD}" user_bob="bobs";'
                )
                made[f"{prefix}oauthbearer.sasl.server.callback.handler.class"] = UNSECURED
        return made | self.extra

    def start(self) -> Self:
        return self._start_on_free_ports(self._start_once, b"another process has that port")

    def _forget_ports(self) -> None:
        super()._forget_ports()
        self.ports = {}

    def _start_once(self) -> None:
        if not self.ports:
            self.ports = dict(zip(self.listeners, free_ports(len(self.listeners)), strict=True))
        config = self.directory / "broker.properties"
        config.write_text(as_properties(self.settings()))
        users = self.directory / "users"
        users.write_text(
            "".join(f"SCRAM-SHA-{bits}=[name={USER},password={_quoted(PASSWORD)}]\n" for bits in (256, 512))
        )
        listen = [f"--listen={name}://127.0.0.1:{port}" for name, port in self.ports.items()]
        since = self.log_file.stat().st_size if self.log_file.exists() else 0
        command = [*_command(), "serve", "--data", str(self.data_directory), "--config", str(config)]
        self._launch([*command, f"--add-scram=@{users}", *listen])
        for port in self.ports.values():
            self._await_log(f"listening on 127.0.0.1:{port}", since)
        if "PLAINTEXT" in self.ports:
            self.bootstrap_servers = self.address_of("PLAINTEXT")

    def wait_for_log(self, text: str, seconds: float = 30) -> None:
        deadline = time.monotonic() + patient(seconds)
        while text not in self.log_file.read_text(errors="replace"):
            assert time.monotonic() < deadline, f"{text!r} is not in the log:\n{self.log_text()}"
            time.sleep(0.02)


def as_properties(settings: Mapping[str, Any]) -> str:
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def _quoted(text: str) -> str:
    return f'"{text}"'


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def own_options(broker: SecuredFencepost, listener: str, mechanism: str = "") -> dict[str, Any]:
    """For Fencepost's own client, and for librdkafka but for tokens."""
    protocol = broker.listeners[listener]
    options: dict[str, Any] = {"security.protocol": protocol}
    if "SSL" in protocol:
        options["ssl.ca.location"] = str(broker.authority.file)
    if protocol == "SSL":
        options["ssl.certificate.location"] = str(broker.client_certificate)
        options["ssl.key.location"] = str(broker.client_certificate)
    if mechanism:
        options["sasl.mechanism"] = mechanism
    if mechanism and mechanism != "OAUTHBEARER":
        options |= {"sasl.username": USER, "sasl.password": PASSWORD}
    return options


def java_properties(broker: SecuredFencepost, listener: str, mechanism: str = "") -> dict[str, str]:
    protocol = broker.listeners[listener]
    properties = {"bootstrap.servers": broker.address_of(listener), "security.protocol": protocol}
    if "SSL" in protocol:
        properties |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(broker.authority.file)}
    if protocol == "SSL":
        properties |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(broker.client_certificate)}
    if mechanism:
        modules = {
            "PLAIN": f'plain.PlainLoginModule required username="{USER}" password="{PASSWORD}"',
            "OAUTHBEARER": f'oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="{USER}"',
        }
        scram = f'scram.ScramLoginModule required username="{USER}" password="{PASSWORD}"'
        properties["sasl.mechanism"] = mechanism
        properties["sasl.jaas.config"] = f"{_LOGIN}.{modules.get(mechanism, scram)};"
    return properties


def openssl(*arguments: object, text: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["openssl", *map(str, arguments)], input=text, capture_output=True, timeout=patient(60))
