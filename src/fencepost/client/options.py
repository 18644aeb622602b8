"""The options of a client, with Kafka's names: with dots or underscores, with or without a leading `kafka.`."""

import dataclasses
import difflib
from collections.abc import Mapping
from typing import Any

from fencepost.client.security import OPTION_NAMES, PLAINTEXT, InvalidOption, Security, security_of

REQUEST_TIMEOUT_MS = 30_000
RETRY_TIMEOUT_MS = 30_000
CONNECT_TIMEOUT_MS = 10_000
METADATA_MAX_AGE_MS = 300_000


@dataclasses.dataclass(frozen=True, slots=True)
class ClientOptions:
    client_id: str = "fencepost"
    request_timeout_ms: int = REQUEST_TIMEOUT_MS
    retry_timeout_ms: int = RETRY_TIMEOUT_MS
    connect_timeout_ms: int = CONNECT_TIMEOUT_MS
    metadata_max_age_ms: int = METADATA_MAX_AGE_MS
    security: Security = PLAINTEXT


# Names of other clients for the same settings.
_SYNONYMS = {"socket.connection.setup.timeout.ms": "connect.timeout.ms", "socket.timeout.ms": "request.timeout.ms"}


def is_option(name: str) -> bool:
    """Whether this client knows a setting, under any of its spellings."""
    plain = name.removeprefix("kafka.").replace("_", ".")
    return plain in _SYNONYMS or plain in OPTION_NAMES or plain in _own_fields()


def _own_fields() -> "dict[str, dataclasses.Field[Any]]":
    return {
        field.name.replace("_", "."): field for field in dataclasses.fields(ClientOptions) if field.name != "security"
    }


def parse_options(options: Mapping[str, Any]) -> ClientOptions:
    """Raises InvalidOption for an unknown name, and suggests a similar one."""
    own = _own_fields()
    values: dict[str, Any] = {}
    secure: dict[str, Any] = {}
    for given, value in options.items():
        name = given.removeprefix("kafka.").replace("_", ".")
        name = _SYNONYMS.get(name, name)
        if name in OPTION_NAMES:
            secure[name] = value
        elif name in own:
            values[own[name].name] = str(value) if name == "client.id" else _number(given, value)
        else:
            near = difflib.get_close_matches(name, [*own, *OPTION_NAMES, *_SYNONYMS], 1)
            raise InvalidOption(given, "is unknown", f"did you mean {near[0]}?" if near else "")
    return ClientOptions(security=security_of(secure), **values)


def _number(name: str, value: Any) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = -1
    if number < 0:
        raise InvalidOption(name, f"{value!r} is not a number of milliseconds")
    return number
