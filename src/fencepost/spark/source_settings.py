"""Which `kafka.*` options the source takes: those with an effect, those with nothing to act on, those that are refused.

The table in docs/spark-source-options.md is this module in prose; a test compares them.
"""

import difflib
from collections.abc import Mapping
from typing import Any

from fencepost.client.options import parse_options
from fencepost.client.security import OPTION_NAMES as SECURITY_OPTIONS
from fencepost.client.security import InvalidOption
from fencepost.spark.kafka_options import (
    KERBEROS,
    KERBEROS_ADVICE,
    OF_CONSUMERS,
    OF_JAVAS_CLIENTS,
    OF_PRODUCERS,
    asks_for_kerberos,
)
from fencepost.spark.source_errors import InvalidSourceOption

PREFIX = "kafka."

BOOTSTRAP_SERVERS = "bootstrap.servers"
ISOLATION_LEVEL = "isolation.level"
PARTITION_MAX_BYTES = "max.partition.fetch.bytes"
FETCH_MAX_WAIT_MS = "fetch.max.wait.ms"
READING_OPTIONS = frozenset({BOOTSTRAP_SERVERS, ISOLATION_LEVEL, PARTITION_MAX_BYTES, FETCH_MAX_WAIT_MS})

# A function does not fit into an option of Spark, which is text.
CLIENT_OPTIONS = (SECURITY_OPTIONS - {"sasl.oauthbearer.token.provider"}) | {
    "client.id",
    "request.timeout.ms",
    "retry.timeout.ms",
    "connect.timeout.ms",
    "metadata.max.age.ms",
    "socket.connection.setup.timeout.ms",
}
RENAMED = {"default.api.timeout.ms": "retry.timeout.ms"}

WITHOUT_EFFECT = (
    OF_CONSUMERS | OF_JAVAS_CLIENTS | OF_PRODUCERS | {"acks", "enable.idempotence", "batch.size", "compression.type"}
)

REFUSED = {
    "auto.offset.reset": "Instead set the source option 'startingOffsets' to 'earliest' or 'latest' to specify where to"
    " start. Structured Streaming manages which offsets are consumed internally. Note that 'startingOffsets' only"
    " applies when a new streaming query is started, and that resuming will always pick up from where the query left"
    " off.",
    "enable.auto.commit": "Offsets are kept in the checkpoint of the query; exactly_once() commits them to a group.",
    "interceptor.classes": "Nothing here runs in Java.",
    "key.deserializer": "Keys are bytes; cast or parse the column in the DataFrame.",
    "value.deserializer": "Values are bytes; cast or parse the column in the DataFrame.",
}

KNOWN = READING_OPTIONS | CLIENT_OPTIONS | WITHOUT_EFFECT | frozenset(RENAMED) | frozenset(REFUSED)


def client_options(given: Mapping[str, str]) -> dict[str, Any]:
    """What the client is given of the `kafka.*` options. Raises for what is not one, or is not understood."""
    wanted: dict[str, Any] = {}
    if asks_for_kerberos(
        {name.removeprefix(PREFIX): value for name, value in given.items() if name.startswith(PREFIX)}
    ):
        raise InvalidSourceOption(KERBEROS, KERBEROS_ADVICE)
    for full, value in given.items():
        if not full.startswith(PREFIX):
            continue
        name = full.removeprefix(PREFIX)
        if name in REFUSED:
            raise InvalidSourceOption(f"Kafka option '{name}' is not supported.", REFUSED[name])
        if name not in KNOWN:
            near = difflib.get_close_matches(name, sorted(KNOWN - frozenset(REFUSED)), 1)
            advice = f"Did you mean '{PREFIX}{near[0]}'?" if near else "Remove it."
            raise InvalidSourceOption(f"Kafka option '{name}' is not known to this source.", advice)
        name = RENAMED.get(name, name)
        if name in CLIENT_OPTIONS:
            wanted[name] = value
    try:
        parse_options(wanted)
    except InvalidOption as error:
        raise InvalidSourceOption(f"Kafka option '{error.name}': {error.reason}.", error.advice) from None
    return wanted
