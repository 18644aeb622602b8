"""Settings of listeners that ask who is there: TLS, SASL, and how one listener or mechanism differs from the others.

`listener.name.external.ssl.keystore.location` is that setting for the listener EXTERNAL alone, and
`listener.name.external.plain.sasl.jaas.config` one that only a mechanism of a listener can have, as in Kafka.
"""

import dataclasses
import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from fencepost.settings import InvalidSetting, Setting, declared_settings, setting

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SASL_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
LISTENER_PREFIX = "listener.name."
JAAS_CONFIG = "sasl.jaas.config"
_DEFAULT_MAP = tuple(f"{name}:{name}" for name in SECURITY_PROTOCOLS)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SecurityConfig:
    # Listeners
    listener_security_protocol_map: tuple[str, ...] = setting(
        "list",
        _DEFAULT_MAP,
        f"What each listener asks of its clients, as NAME:PROTOCOL; protocols are {', '.join(SECURITY_PROTOCOLS)}.",
        pattern=r"\w+:(?:" + "|".join(SECURITY_PROTOCOLS) + ")",
    )
    authentication_timeout_ms: int = setting(
        "int", 10_000, "Fencepost: time a client has to prove who it is, and for its TLS handshake.", minimum=1
    )
    connection_failed_authentication_delay_ms: int = setting(
        "int", 100, "Wait before a failed authentication is answered and its connection closed.", minimum=0
    )
    connections_max_reauth_ms: int = setting(
        "long", 0, "Longest time until a client must authenticate again; 0 is never.", minimum=0
    )

    # TLS
    ssl_keystore_type: str = setting("string", "PEM", "Only PEM is read.")
    ssl_keystore_location: str = setting("string", "", "PEM file with the private key and the certificate chain.")
    ssl_keystore_certificate_chain: str = setting("password", "", "The chain itself as PEM, instead of a file.")
    ssl_keystore_key: str = setting("password", "", "The private key itself as PEM, instead of a file.")
    ssl_keystore_password: str = setting("password", "", "PEM files have none: refused, as in Kafka.")
    ssl_key_password: str = setting("password", "", "Password of the private key, if it is encrypted.")
    ssl_truststore_type: str = setting("string", "PEM", "Only PEM is read.")
    ssl_truststore_location: str = setting("string", "", "PEM file with the authorities of clients' certificates.")
    ssl_truststore_certificates: str = setting("password", "", "The authorities themselves as PEM, instead of a file.")
    ssl_truststore_password: str = setting("password", "", "PEM files have none: refused, as in Kafka.")
    ssl_client_auth: str = setting(
        "string",
        "none",
        "Whether clients show a certificate; on SASL_SSL listeners only with the listener's prefix, as in Kafka.",
        choices=("none", "requested", "required"),
    )
    ssl_enabled_protocols: tuple[str, ...] = setting(
        "list", ("TLSv1.2", "TLSv1.3"), "Versions of TLS; older ones are not offered.", choices=("TLSv1.2", "TLSv1.3")
    )
    ssl_principal_mapping_rules: str = setting(
        "string", "DEFAULT", "From a certificate's subject to a user: RULE:pattern/name/[LU], or DEFAULT."
    )
    ssl_reload_interval_ms: int = setting(
        "int", 5_000, "Fencepost: how often files of keys and certificates are looked at for changes.", minimum=10
    )

    # SASL
    sasl_enabled_mechanisms: tuple[str, ...] = setting(
        "list", (), "Mechanisms of SASL listeners.", choices=SASL_MECHANISMS
    )
    sasl_server_max_receive_size: int = setting(
        "int", 524_288, "Largest request before a client has authenticated.", minimum=1
    )
    sasl_server_callback_handler_class: str = setting(
        "class",
        "",
        "How tokens are checked: Kafka's OAuthBearerValidatorCallbackHandler (signed tokens, what an empty value means "
        "too) or OAuthBearerUnsecuredValidatorCallbackHandler (development only).",
    )
    sasl_oauthbearer_jwks_endpoint_url: str = setting(
        "string", "", "Where the public keys of the issuer of tokens are: an https or file URL that is allowed."
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = setting(
        "long", 3_600_000, "How often those keys are fetched again.", minimum=1
    )
    sasl_oauthbearer_expected_issuer: str = setting("string", "", "What a token must name as its issuer.")
    sasl_oauthbearer_expected_audience: tuple[str, ...] = setting(
        "list", (), "One of these a token must name as its audience."
    )
    sasl_oauthbearer_clock_skew_seconds: int = setting(
        "int", 30, "How far the clock of the issuer may be off.", minimum=0
    )
    sasl_oauthbearer_sub_claim_name: str = setting("string", "sub", "Claim that names the user.")
    sasl_oauthbearer_scope_claim_name: str = setting("string", "scope", "Claim that holds the scope.")
    org_apache_kafka_sasl_oauthbearer_allowed_urls: tuple[str, ...] = setting(
        "list", (), "URLs that keys may be fetched from; none by default (CVE-2025-27817)."
    )


_SETTINGS = declared_settings(SecurityConfig)
_JAAS = Setting(JAAS_CONFIG, "password", "", "The login module of a mechanism, as Kafka writes it.")
_OF_THE_BROKER = frozenset({"listener.security.protocol.map", "org.apache.kafka.sasl.oauthbearer.allowed.urls"})
_PREFIXED = {name: one for name, one in _SETTINGS.items() if name not in _OF_THE_BROKER} | {JAAS_CONFIG: _JAAS}


class ListenerConfig:
    """The settings as one listener has them: its mechanism's own before its own before the broker's."""

    def __init__(self, name: str, texts: Mapping[str, str]) -> None:
        self.name = name
        self._texts = texts
        self._prefix = f"{LISTENER_PREFIX}{name.lower()}."
        self.protocol = protocol_of(name, texts)

    @property
    def has_tls(self) -> bool:
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def has_sasl(self) -> bool:
        return self.protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    def get(self, name: str, mechanism: str = "") -> Any:
        one = _PREFIXED.get(name) or _SETTINGS[name]
        for key in self._keys(name, mechanism):
            if key in self._texts:
                return one.parse(self._texts[key])
        return one.default

    def has_own(self, name: str) -> bool:
        return f"{self._prefix}{name}" in self._texts

    def named(self, name: str, mechanism: str = "") -> str:
        """What to call a setting when it is complained about."""
        return f"{self._prefix}{mechanism.lower()}.{name}" if mechanism else f"{self._prefix}{name}"

    def _keys(self, name: str, mechanism: str) -> Sequence[str]:
        own = [f"{self._prefix}{mechanism.lower()}.{name}"] if mechanism else []
        return [*own, f"{self._prefix}{name}", name]


_PREFIXED_NAME = re.compile(r"listener\.name\.(\w+)\.(?:(plain|scram-sha-256|scram-sha-512|oauthbearer)\.)?(.+)")


def without_listener_settings(texts: Mapping[str, str]) -> dict[str, str]:
    """What is left when those of single listeners, each of them checked, are taken out."""
    rest = {}
    for name, text in texts.items():
        if name.startswith(LISTENER_PREFIX):
            _check_prefixed(name, text)
        else:
            rest[name] = text
    return rest


def unprefixed(name: str) -> str:
    """Of a listener's own setting: the setting that it is one of."""
    found = _PREFIXED_NAME.match(name)
    return name if found is None else found[3]


def _check_prefixed(name: str, text: str) -> None:
    found = _PREFIXED_NAME.match(name)
    if found is None:
        raise InvalidSetting(f"Unknown configuration {name}: write {LISTENER_PREFIX}LISTENER.[MECHANISM.]NAME")
    _, mechanism, rest = found.groups()
    if rest not in _PREFIXED:
        near = difflib.get_close_matches(rest, _PREFIXED, n=1)
        raise InvalidSetting(f"Unknown configuration {name}" + (f"; did you mean {near[0]}?" if near else ""))
    if found[1] != found[1].lower():
        raise InvalidSetting(f"Unknown configuration {name}: the listener's name is written in lower case here")
    if rest == JAAS_CONFIG and mechanism is None:
        raise InvalidSetting(f"Unknown configuration {name}: write {LISTENER_PREFIX}{found[1]}.MECHANISM.{rest}")
    _PREFIXED[rest].parse(text)


def protocol_of(listener: str, texts: Mapping[str, str]) -> str:
    """What a listener asks of its clients.

    A name of one's own means PLAINTEXT as long as nothing secure is configured at all; from then on it must be in the
    map, so that a slip of the pen never opens a door.
    """
    declared = _SETTINGS["listener.security.protocol.map"]
    given = texts.get("listener.security.protocol.map")
    pairs = declared.parse(given) if given is not None else _DEFAULT_MAP
    protocols = {name.upper(): protocol for name, _, protocol in (pair.partition(":") for pair in pairs)}
    if listener.upper() in protocols:
        return str(protocols[listener.upper()])
    is_numbered = re.fullmatch(r"PLAINTEXT[0-9]+", listener)
    if is_numbered or not (given or any(re.match(r"ssl\.|sasl\.|listener\.name\.", name) for name in texts)):
        return "PLAINTEXT"
    raise InvalidSetting(
        f"No security protocol defined for listener {listener}: add {listener}:PROTOCOL to "
        f"listener.security.protocol.map; protocols are {', '.join(SECURITY_PROTOCOLS)}"
    )
