"""TLS and SASL settings of a client, from options with Kafka's names.

Option names may have dots or underscores, with or without a leading `kafka.`; values may be strings. Where the names of
Java and librdkafka differ, both are accepted. Reads key and certificate files; opens no connection.
"""

import asyncio
import base64
import dataclasses
import enum
import json
import ssl
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from fencepost.client.errors import ClientError
from fencepost.jaas import InvalidLoginModule, parse_login_module
from fencepost.wire.scram import MECHANISMS as SCRAM_MECHANISMS

TokenProvider = Callable[[], "str | Awaitable[str]"]
PLAIN, OAUTHBEARER = "PLAIN", "OAUTHBEARER"
TOKEN_TIMEOUT_SECONDS = 10
UNSECURED_LIFETIME_SECONDS = 3600
SASL_MECHANISMS = (PLAIN, *SCRAM_MECHANISMS, OAUTHBEARER)


class InvalidOption(ClientError):
    def __init__(self, name: str, reason: str, advice: str = "") -> None:
        super().__init__(f"option {name}: {reason}")
        self.name = name
        self.reason = reason
        self.advice = advice


class SecurityProtocol(enum.Enum):
    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def has_tls(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class Security:
    """The result of `security_of`. `repr` does not show it, because it contains secrets."""

    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    mechanism: str = ""
    username: str = ""
    password: str = ""
    token_provider: TokenProvider | None = None
    tls: ssl.SSLContext | None = None

    def __repr__(self) -> str:
        return f"Security({self.protocol.value}{', ' + self.mechanism if self.mechanism else ''})"


PLAINTEXT = Security()

OPTION_NAMES = frozenset(
    {
        "security.protocol", "sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password", "sasl.jaas.config",
        "sasl.oauthbearer.token", "sasl.oauthbearer.token.provider", "sasl.oauthbearer.token.endpoint.url",
        "sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret", "sasl.oauthbearer.scope",
        "sasl.oauthbearer.client.credentials.client.id", "sasl.oauthbearer.client.credentials.client.secret",
        "ssl.ca.location", "ssl.ca.pem", "ssl.truststore.location", "ssl.truststore.type",
        "ssl.truststore.certificates", "ssl.truststore.password",
        "ssl.certificate.location", "ssl.certificate.pem", "ssl.key.location", "ssl.key.pem",
        "ssl.key.password", "ssl.keystore.location", "ssl.keystore.type", "ssl.keystore.key", "ssl.keystore.password",
        "ssl.keystore.certificate.chain", "ssl.endpoint.identification.algorithm",
        "enable.ssl.certificate.verification",
    }
)  # fmt: skip


def security_of(options: Mapping[str, Any]) -> Security:
    """`options` under Kafka's names, with dots."""
    given = options.get("security.protocol", "PLAINTEXT")
    try:
        protocol = SecurityProtocol(str(given).upper())
    except ValueError:
        known = ", ".join(protocol.value for protocol in SecurityProtocol)
        raise InvalidOption("security.protocol", f"{given!r} is not valid", f"choose from {known}") from None
    security = Security(protocol, tls=_tls_context(options) if protocol.has_tls else None)
    return _with_sasl(security, options) if protocol.has_sasl else security


# SASL


def _with_sasl(security: Security, options: Mapping[str, Any]) -> Security:
    mechanism = str(options.get("sasl.mechanism") or options.get("sasl.mechanisms") or "").upper()
    if mechanism not in SASL_MECHANISMS:
        reason = f"{mechanism!r} is not supported" if mechanism else "is needed"
        raise InvalidOption("sasl.mechanism", reason, f"choose from {', '.join(SASL_MECHANISMS)}")
    jaas = parse_jaas(str(options["sasl.jaas.config"])) if options.get("sasl.jaas.config") else {}
    if mechanism == OAUTHBEARER:
        return dataclasses.replace(security, mechanism=mechanism, token_provider=_token_provider(options, jaas))
    username = options.get("sasl.username") or jaas.get("username")
    password = options.get("sasl.password") or jaas.get("password")
    if not username or password is None:
        raise InvalidOption("sasl.username", "is needed", "give sasl.username and sasl.password, or sasl.jaas.config")
    return dataclasses.replace(security, mechanism=mechanism, username=str(username), password=str(password))


def parse_jaas(text: str) -> dict[str, str]:
    """The options of a login module: `<class> required name="value" ...;`"""
    try:
        return parse_login_module(text).options
    except InvalidLoginModule as error:
        raise InvalidOption(
            "sasl.jaas.config", str(error), 'write: <class> required username="..." password="...";'
        ) from None


def _token_provider(options: Mapping[str, Any], jaas: Mapping[str, str]) -> TokenProvider:
    provider = options.get("sasl.oauthbearer.token.provider")
    if provider is not None:
        if not callable(provider):
            raise InvalidOption("sasl.oauthbearer.token.provider", "is not a function that returns a token")
        return provider  # type: ignore[no-any-return]
    if options.get("sasl.oauthbearer.token"):
        return StaticToken(str(options["sasl.oauthbearer.token"]))
    url = options.get("sasl.oauthbearer.token.endpoint.url")
    if url:
        client_id = (
            options.get("sasl.oauthbearer.client.credentials.client.id")
            or options.get("sasl.oauthbearer.client.id")
            or jaas.get("clientId")
        )
        secret = (
            options.get("sasl.oauthbearer.client.credentials.client.secret")
            or options.get("sasl.oauthbearer.client.secret")
            or jaas.get("clientSecret")
        )
        if not client_id or not secret:
            raise InvalidOption("sasl.oauthbearer.client.id", "is needed with a token endpoint, and so is the secret")
        scope = options.get("sasl.oauthbearer.scope") or jaas.get("scope") or ""
        return ClientCredentials(str(url), str(client_id), str(secret), str(scope))
    if "unsecuredLoginStringClaim_sub" in jaas:
        return UnsecuredToken(jaas["unsecuredLoginStringClaim_sub"])
    raise InvalidOption(
        "sasl.oauthbearer.token.provider",
        "is needed",
        "give a function, a token, or sasl.oauthbearer.token.endpoint.url with client id and secret",
    )


# Sources of tokens. They can be pickled, so that writers in other processes can log in as well.


@dataclasses.dataclass(frozen=True, slots=True)
class StaticToken:
    token: str = dataclasses.field(repr=False)

    def __call__(self) -> str:
        return self.token


@dataclasses.dataclass(frozen=True, slots=True)
class UnsecuredToken:
    """An unsigned JWT, as Kafka accepts it where no keys are configured: for development only."""

    subject: str

    def __call__(self) -> str:
        # In whole seconds: a fraction of a millisecond ahead of the broker's clock would be "issued in the future".
        now = int(time.time())
        claims = {"sub": self.subject, "iat": now, "exp": now + UNSECURED_LIFETIME_SECONDS}
        return f"{_encoded({'alg': 'none'})}.{_encoded(claims)}."


@dataclasses.dataclass(frozen=True, slots=True)
class ClientCredentials:
    """The client credentials grant of OAuth 2.0."""

    url: str
    client_id: str
    client_secret: str = dataclasses.field(repr=False)
    scope: str = ""

    async def __call__(self) -> str:
        return await asyncio.to_thread(self._ask)

    def _ask(self) -> str:
        # Only this grant needs an HTTP client, which takes longer to import than the rest of the module.
        import urllib.parse
        import urllib.request

        form = {"grant_type": "client_credentials"} | ({"scope": self.scope} if self.scope else {})
        basic = base64.b64encode(f"{self.client_id}:{self.client_secret}".encode()).decode()
        request = urllib.request.Request(
            self.url,
            urllib.parse.urlencode(form).encode(),
            {"Authorization": f"Basic {basic}", "Accept": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=TOKEN_TIMEOUT_SECONDS) as answer:
            token: str = json.load(answer)["access_token"]
        return token


def _encoded(part: dict[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")


# TLS


def _tls_context(options: Mapping[str, Any]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    algorithm = options.get("ssl.endpoint.identification.algorithm", "https")
    context.check_hostname = str(algorithm or "").lower() not in ("", "none")
    if str(options.get("enable.ssl.certificate.verification", "true")).lower() == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        _trust(context, options)
    _identify(context, options)
    return context


def _trust(context: ssl.SSLContext, options: Mapping[str, Any]) -> None:
    inline = options.get("ssl.truststore.certificates") or options.get("ssl.ca.pem")
    name = "ssl.ca.location" if options.get("ssl.ca.location") else "ssl.truststore.location"
    file = options.get(name)
    try:
        if inline:
            context.load_verify_locations(cadata=str(inline))
        elif file:
            _require_pem(name, str(file), options.get("ssl.truststore.type"))
            context.load_verify_locations(cafile=str(file))
        else:
            context.load_default_certs()
    except OSError as error:
        raise InvalidOption(name, f"cannot be read: {error}") from None


def _identify(context: ssl.SSLContext, options: Mapping[str, Any]) -> None:
    """The client's own certificate, for brokers that ask for one."""
    chain = options.get("ssl.keystore.certificate.chain") or options.get("ssl.certificate.pem")
    key = options.get("ssl.keystore.key") or options.get("ssl.key.pem")
    store, certificate = options.get("ssl.keystore.location"), options.get("ssl.certificate.location")
    password = options.get("ssl.key.password")
    try:
        if chain and key:
            # The ssl module reads only files, so the key is written to a temporary one.
            with tempfile.NamedTemporaryFile("w", suffix=".pem") as both:
                both.write(f"{key}\n{chain}\n")
                both.flush()
                context.load_cert_chain(both.name, password=password)
        elif certificate:
            context.load_cert_chain(str(certificate), options.get("ssl.key.location"), password)
        elif store:
            _require_pem("ssl.keystore.location", str(store), options.get("ssl.keystore.type"))
            context.load_cert_chain(str(store), password=password)
    except OSError as error:
        raise InvalidOption("ssl.certificate.location", f"cannot be used: {error}") from None


def _require_pem(name: str, file: str, kind: object) -> None:
    if str(kind or "PEM").upper() != "PEM" or file.lower().endswith((".jks", ".p12", ".pfx")):
        raise InvalidOption(
            name,
            "only PEM files are supported",
            "convert it: keytool -importkeystore ... -deststoretype PKCS12, then openssl pkcs12 -in ... -out file.pem",
        )
