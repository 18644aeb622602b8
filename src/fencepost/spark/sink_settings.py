"""What a user says about the sink, checked once: names, brokers, Kafka's options, limits."""

import dataclasses
import difflib
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from fencepost.client.options import is_option, parse_options
from fencepost.client.security import OPTION_NAMES, InvalidOption
from fencepost.client.transaction_calls import TransactionProtocol
from fencepost.spark.batch_decisions import ADOPT_CHOICES
from fencepost.spark.errors import FencepostSparkError
from fencepost.spark.kafka_options import (
    KERBEROS,
    KERBEROS_ADVICE,
    OF_CONSUMERS,
    OF_JAVAS_CLIENTS,
    OF_PRODUCERS,
    asks_for_kerberos,
)
from fencepost.wire.compression import CODEC_OF_COMPRESSION_TYPE, Codec

BATCH_BYTES = 500_000
"""Of a record batch, unless `batch.size` says otherwise."""
_FIXED = {"acks": ("all", "-1"), "enable.idempotence": ("true",)}
"""Producer options that an existing job may carry; exactly-once leaves them one value."""
_CHOSEN_HERE = {
    "transactional.id": "it is the name of the sink",
    "bootstrap.servers": "give bootstrap_servers=",
    "transaction.timeout.ms": "give transaction_timeout_ms=",
    "key.serializer": "rows are written as the bytes they are",
    "value.serializer": "rows are written as the bytes they are",
    "partitioner.class": "rows are placed by their key as Kafka's own producer does; for anything else select a column "
    "`partition`",
    "partitioner.ignore.keys": "leave the column `key` out, or select a column `partition`",
    "interceptor.classes": "nothing here runs in Java; change the rows in the DataFrame",
}
_WITHOUT_EFFECT = OF_PRODUCERS | OF_JAVAS_CLIENTS | OF_CONSUMERS | {
    "isolation.level", "max.partition.fetch.bytes", "fetch.max.wait.ms"
}  # fmt: skip
_CLIENT = ("client.id", "request.timeout.ms", "retry.timeout.ms", "connect.timeout.ms", "metadata.max.age.ms")
_RENAMED = {"default.api.timeout.ms": "retry.timeout.ms"}


@dataclasses.dataclass(frozen=True)
class SinkSettings:
    name: str
    """Of the application: the transactional id, and the group in which input offsets are committed."""
    bootstrap_servers: tuple[str, ...]
    topic: str | None
    options: Mapping[str, Any] = dataclasses.field(repr=False)
    compression: Codec
    batch_bytes: int
    transaction_timeout_ms: int | None
    max_writers: int | None
    adopt: str
    protocol: TransactionProtocol | None
    checkpoint: str | None = None
    source_bootstrap_servers: str | None = None


class SinkOptions(TypedDict, total=False):
    """What may be said to every form of the sink, by name."""

    kafka: Mapping[str, Any] | None
    """Kafka's options: of the producer, TLS, SASL."""
    transaction_timeout_ms: int | None
    max_writers: int | None
    adopt: str
    """`continue` accepts a checkpoint that the group knows nothing of, once; `refuse` is the default."""
    protocol: TransactionProtocol | None
    """None is the newest that the cluster has finalized."""
    checkpoint: str | None
    """Needed only under Spark Connect."""
    source_bootstrap_servers: str | None
    """The cluster that the query reads, if it is another and Spark does not tell: under Spark Connect."""


def sink_settings(
    name: str,
    bootstrap_servers: str | Sequence[str],
    topic: str | None = None,
    *,
    kafka: Mapping[str, Any] | None = None,
    transaction_timeout_ms: int | None = None,
    max_writers: int | None = None,
    adopt: str = "refuse",
    protocol: TransactionProtocol | None = None,
    checkpoint: str | None = None,
    source_bootstrap_servers: str | None = None,
) -> SinkSettings:
    if not name:
        raise FencepostSparkError("the sink needs a name", "it becomes the transactional id and the group id")
    if adopt not in ADOPT_CHOICES:
        raise FencepostSparkError(f"adopt={adopt!r} is not known", f"choose from {', '.join(ADOPT_CHOICES)}")
    for what, number in (("max_writers", max_writers), ("transaction_timeout_ms", transaction_timeout_ms)):
        if number is not None and number < 1:
            raise FencepostSparkError(f"{what}={number} is not possible", "give a number above zero, or leave it out")
    options, compression, batch_bytes = _producer_options(kafka or {})
    try:
        parse_options(options)
    except InvalidOption as error:
        raise FencepostSparkError(f"Kafka option {error.name!r} {error.reason}", error.advice) from None
    servers = tuple(bootstrap_servers.split(",") if isinstance(bootstrap_servers, str) else bootstrap_servers)
    return SinkSettings(
        name, servers, topic, options, compression, batch_bytes, transaction_timeout_ms, max_writers, adopt, protocol,
        checkpoint, source_bootstrap_servers,
    )  # fmt: skip


def _producer_options(kafka: Mapping[str, Any]) -> tuple[dict[str, Any], Codec, int]:
    """What is the producer's in Kafka's configuration; the rest is the client's."""
    options: dict[str, Any] = {}
    compression, batch_bytes = Codec.NONE, BATCH_BYTES
    plain = {given: given.removeprefix("kafka.").replace("_", ".") for given in kafka}
    if asks_for_kerberos({plain[given]: value for given, value in kafka.items()}):
        raise FencepostSparkError(KERBEROS, KERBEROS_ADVICE)
    for given, value in kafka.items():
        name = plain[given]
        if name == "compression.type":
            compression = _codec(value)
        elif name == "batch.size":
            if not str(value).strip().isdecimal():
                raise FencepostSparkError(f"{given}={value} is not a number of bytes", "write 131072, for example")
            batch_bytes = max(1, int(value))
        elif name in _WITHOUT_EFFECT:
            continue
        elif name in _FIXED:
            if str(value).lower() not in _FIXED[name]:
                raise FencepostSparkError(f"{given}={value} is not exactly-once", f"leave {name} out")
        elif name in _CHOSEN_HERE:
            raise FencepostSparkError(f"{given} is not an option of the sink", _CHOSEN_HERE[name])
        else:
            _refuse_misspelt(given, name)
            options[_RENAMED.get(name, name)] = value
    return options, compression, batch_bytes


def _refuse_misspelt(given: str, name: str) -> None:
    if is_option(name) or name in _RENAMED:
        return
    known = {*OPTION_NAMES, *_CLIENT, *_FIXED, "compression.type", "batch.size", *_WITHOUT_EFFECT, *_RENAMED}
    near = difflib.get_close_matches(name, sorted(known), 1)
    prefix = "kafka." if given.startswith("kafka.") else ""
    advice = f"did you mean {prefix + near[0]!r}?" if near else "remove it"
    raise FencepostSparkError(f"Kafka option {given!r} is not known to the sink", advice)


def _codec(value: Any) -> Codec:
    name = str(value).lower()
    if name == "none":
        return Codec.NONE
    if name not in CODEC_OF_COMPRESSION_TYPE:
        known = ", ".join(["none", *(kind for kind in CODEC_OF_COMPRESSION_TYPE if kind != "uncompressed")])
        raise FencepostSparkError(f"compression.type={value} is not known", f"choose from {known}")
    return CODEC_OF_COMPRESSION_TYPE[name]
