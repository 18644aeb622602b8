"""Apache Kafka with listeners of every kind: SASL with and without TLS, TLS that asks for the client's certificate."""

import socket
import subprocess
from pathlib import Path

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.peers.kafka import ApacheKafka
from tests.support.patience import patient

USER, PASSWORD = "alice", "it's, a=secret"
LISTENERS = ("SASL_PLAINTEXT", "SASL_SSL", "SSL", "SHORT")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
SESSION_MS = 2_000
"""How long a session on the listener SHORT lasts."""


class Certificates:
    """An authority, and certificates for the broker (as 127.0.0.1) and for a client, all PEM."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self.authority = directory / "ca.pem"
        _openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test authority",
                 "-keyout", directory / "ca.key", "-out", self.authority)  # fmt: skip
        self.broker = self._signed("broker", "subjectAltName=IP:127.0.0.1")
        self.client = self._signed("client", "subjectAltName=DNS:client")

    def _signed(self, name: str, extension: str) -> Path:
        """A file that holds the key and the certificate."""
        key, request, certificate = (self._directory / f"{name}.{end}" for end in ("key", "csr", "crt"))
        extensions = self._directory / f"{name}.ext"
        extensions.write_text(extension)
        _openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-keyout", key, "-out", request)
        _openssl("x509", "-req", "-days", "2", "-in", request, "-CA", self.authority, "-CAcreateserial",
                 "-CAkey", self._directory / "ca.key", "-extfile", extensions, "-out", certificate)  # fmt: skip
        both = self._directory / f"{name}.pem"
        both.write_text(key.read_text() + certificate.read_text())
        return both


def _openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


class SecuredKafka(ApacheKafka):
    def __init__(self, directory: Path) -> None:
        super().__init__(directory=directory / "broker")
        self.certificates = Certificates(directory / "certificates")
        self.ports: dict[str, int] = {}

    def address_of(self, listener: str) -> str:
        return f"127.0.0.1:{self.ports[listener]}"

    def start(self) -> "SecuredKafka":
        super().start()
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        wanted = [
            UserScramCredentialUpsertion(USER, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
            for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
        ]
        # One call takes each user once.
        for one in wanted:
            for future in admin.alter_user_scram_credentials([one]).values():
                future.result(patient(20))
        return self

    def _forget_ports(self) -> None:
        super()._forget_ports()
        self.ports = {}

    def _write_properties(self) -> Path:
        path = super()._write_properties()
        assert self._ports is not None
        if not self.ports:
            self.ports = dict(zip(LISTENERS, _free_ports(len(LISTENERS)), strict=True))
        broker, controller = self._ports
        names = {"PLAINTEXT": broker, "CONTROLLER": controller, **self.ports}
        protocols = {
            "PLAINTEXT": "PLAINTEXT",
            "CONTROLLER": "PLAINTEXT",
            "SASL_PLAINTEXT": "SASL_PLAINTEXT",
            "SASL_SSL": "SASL_SSL",
            "SSL": "SSL",
            "SHORT": "SASL_PLAINTEXT",
        }
        advertised = {name: port for name, port in names.items() if name != "CONTROLLER"}
        settings = {
            "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in names.items()),
            "advertised.listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in advertised.items()),
            "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in protocols.items()),
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.certificates.broker),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.certificates.authority),
            "listener.name.ssl.ssl.client.auth": "required",
            "listener.name.short.plain.connections.max.reauth.ms": str(SESSION_MS),
            "listener.name.short.connections.max.reauth.ms": str(SESSION_MS),
        }
        logins = {
            "plain": f'plain.PlainLoginModule required user_{USER}="{PASSWORD}"',
            "scram-sha-256": "scram.ScramLoginModule required",
            "scram-sha-512": "scram.ScramLoginModule required",
            "oauthbearer": 'oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker"',
        }
        for listener in ("sasl_plaintext", "sasl_ssl", "short"):
            for mechanism, login in logins.items():
                name = f"listener.name.{listener}.{mechanism}.sasl.jaas.config"
                settings[name] = f"org.apache.kafka.common.security.{login};"
        with path.open("a") as file:
            file.writelines(f"{name}={value}\n" for name, value in settings.items())
        return path


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()
