"""What one listener asks of its clients, made from its settings: mechanisms, users, tokens, certificates."""

import base64
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from fencepost.broker.authentication import Authentication
from fencepost.broker.connection import Connection
from fencepost.broker.security.conversation import Conversation
from fencepost.broker.security.distinguished_name import subject_of
from fencepost.broker.security.oauth_bearer import OAuthBearerConversation
from fencepost.broker.security.plain import PlainConversation, PlainUsers
from fencepost.broker.security.principal import ANONYMOUS, USER, Principal
from fencepost.broker.security.principal_mapping import InvalidRule, PrincipalMapping
from fencepost.broker.security.sasl_server import Mechanism
from fencepost.broker.security.scram import Look, ScramConversation, decoy, looks_of
from fencepost.broker.security.tokens import TokenValidator, UnsecuredTokens
from fencepost.jaas import InvalidLoginModule, LoginModule, parse_login_module
from fencepost.security_config import JAAS_CONFIG, ListenerConfig
from fencepost.settings import InvalidSetting
from fencepost.wire.scram import ScramCredential

if TYPE_CHECKING:
    from fencepost.broker.node import Node
    from fencepost.broker.security.signed_tokens import Key

NONCE_BYTES = 24
_HANDLERS = "org.apache.kafka.common.security.oauthbearer."
SIGNED_TOKENS = (
    "",
    f"{_HANDLERS}OAuthBearerValidatorCallbackHandler",
    f"{_HANDLERS}secured.OAuthBearerValidatorCallbackHandler",
)
UNSECURED_TOKENS = f"{_HANDLERS}internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"


class KeySet:
    """The public keys that tokens are checked with. The shell fetches them."""

    def __init__(self) -> None:
        self.keys: Iterable[Key] = ()
        self._on_unknown_key: Callable[[], None] = lambda: None

    def replace(self, keys: "Iterable[Key]") -> None:
        self.keys = keys

    def when_key_is_unknown(self, on_unknown_key: Callable[[], None]) -> None:
        """Call this when a token comes whose key is not in the set."""
        self._on_unknown_key = on_unknown_key

    def key_is_unknown(self) -> None:
        self._on_unknown_key()


class ListenerSecurity:
    def __init__(self, node: "Node", config: ListenerConfig) -> None:
        """Raises InvalidSetting."""
        self._node = node
        self._looks: dict[str, tuple[int, list[Look]]] = {}
        """How users of a mechanism look, as of a version of the metadata."""
        self.config = config
        self.key_set = KeySet()
        """Filled only if signed tokens are taken."""
        self.needs_keys = False
        try:
            self._mapping = PrincipalMapping(config.get("ssl.principal.mapping.rules"))
        except InvalidRule as error:
            raise InvalidSetting(str(error)) from None
        self._mechanisms = self._made_mechanisms() if config.has_sasl else {}
        self._request_max_bytes: int = config.get("sasl.server.max.receive.size")

    def protect(self, connection: Connection, certificate: bytes | None) -> None:
        """Give a new connection its principal, or hold it back until it has one. Raises PermissionError."""
        if self.config.has_sasl:
            Authentication(self._node, connection, self._mechanisms, self._request_max_bytes)
        else:
            connection.identify(ANONYMOUS if certificate is None else self._certified(certificate))

    def _certified(self, certificate: bytes) -> Principal:
        subject = subject_of(certificate)
        name = self._mapping.name_of(subject)
        if not name:
            raise PermissionError(f"no rule of ssl.principal.mapping.rules matches {subject}")
        return Principal(USER, name)

    # Mechanisms

    def _made_mechanisms(self) -> dict[str, Mechanism]:
        config = self.config
        enabled = config.get("sasl.enabled.mechanisms")
        if not enabled:
            raise InvalidSetting(
                f"the listener {config.name} asks for SASL, but sasl.enabled.mechanisms is empty; "
                "set it to some of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER"
            )
        return {
            name: Mechanism(self._conversations(name), config.get("connections.max.reauth.ms", name))
            for name in enabled
        }

    def _conversations(self, mechanism: str) -> Callable[[], Conversation]:
        if mechanism == "PLAIN":
            return self._plain()
        if mechanism == "OAUTHBEARER":
            return self._oauth_bearer()
        return lambda: self._scram(mechanism)

    def _login_module(self, mechanism: str) -> LoginModule:
        text = self.config.get(JAAS_CONFIG, mechanism)
        try:
            return parse_login_module(text) if text else LoginModule("", {})
        except InvalidLoginModule as error:
            raise InvalidSetting(f"{self.config.named(JAAS_CONFIG, mechanism)}: {error}") from None

    def _plain(self) -> Callable[[], Conversation]:
        users = PlainUsers.of_login_module(self._login_module("PLAIN").options)
        if not users:
            raise InvalidSetting(
                f"PLAIN has no users: set {self.config.named(JAAS_CONFIG, 'PLAIN')} to "
                'org.apache.kafka.common.security.plain.PlainLoginModule required user_NAME="PASSWORD";'
            )
        return lambda: PlainConversation(users)

    def _scram(self, mechanism: str) -> Conversation:
        def lookup(name: str) -> ScramCredential | None:
            return self._node.metadata.scram_credentials.get(name, {}).get(mechanism)

        secret, looks = self._node.metadata.decoy_secret(), self._looks_of(mechanism)
        nonce = base64.urlsafe_b64encode(self._node.randomness.random_bytes(NONCE_BYTES)).decode()
        return ScramConversation(mechanism, lookup, lambda name: decoy(mechanism, secret, looks, name), nonce)

    def _looks_of(self, mechanism: str) -> list[Look]:
        metadata = self._node.metadata
        version, looks = self._looks.get(mechanism, (-1, []))
        if version != metadata.version:
            every = metadata.scram_credentials.values()
            looks = looks_of(each[mechanism] for each in every if mechanism in each)
            self._looks[mechanism] = (metadata.version, looks)
        return looks

    def _oauth_bearer(self) -> Callable[[], Conversation]:
        tokens = self._token_validator()
        return lambda: OAuthBearerConversation(tokens, self._node.clock.wall_ms)

    def _token_validator(self) -> TokenValidator:
        config, mechanism = self.config, "OAUTHBEARER"
        handler = config.get("sasl.server.callback.handler.class", mechanism)
        if handler == UNSECURED_TOKENS:
            options = self._login_module(mechanism).options
            return UnsecuredTokens(
                clock_skew_ms=int(options.get("unsecuredValidatorAllowableClockSkewMs", "0")),
                name_claim=options.get("unsecuredValidatorPrincipalClaimName", "sub"),
            )
        if handler not in SIGNED_TOKENS:
            raise InvalidSetting(
                f"{config.named('sasl.server.callback.handler.class', mechanism)}={handler}: this broker runs no Java; "
                f"it knows {SIGNED_TOKENS[1]} and {UNSECURED_TOKENS}"
            )
        if not config.get("sasl.oauthbearer.jwks.endpoint.url", mechanism):
            raise InvalidSetting(
                "OAUTHBEARER needs the keys of the issuer: set sasl.oauthbearer.jwks.endpoint.url, or, for development "
                f"only, sasl.server.callback.handler.class={UNSECURED_TOKENS}"
            )
        self.needs_keys = True
        try:
            # Needs packages of the extra `security`, which only this kind of listener requires.
            from fencepost.broker.security.signed_tokens import SignedTokens
        except ImportError:
            raise InvalidSetting(
                "signed tokens need the packages cryptography and joserfc: pip install 'fencepost[security]'"
            ) from None
        return SignedTokens(
            lambda: self.key_set.keys,
            self.key_set.key_is_unknown,
            issuer=config.get("sasl.oauthbearer.expected.issuer", mechanism),
            audiences=config.get("sasl.oauthbearer.expected.audience", mechanism),
            clock_skew_ms=1000 * config.get("sasl.oauthbearer.clock.skew.seconds", mechanism),
            name_claim=config.get("sasl.oauthbearer.sub.claim.name", mechanism),
            scope_claim=config.get("sasl.oauthbearer.scope.claim.name", mechanism),
        )
