"""What a source gives: records, and the transactions of the source that they belong to."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fencepost.connect.errors import InvalidSource

Position = Mapping[str, Any]
"""Where to go on after a source transaction. It is kept as JSON."""
Headers = Sequence[tuple[str, bytes | None]]


class Record(NamedTuple):
    """One record for Kafka. Key and value are bytes, text, None, or anything that JSON can express."""

    topic: str
    value: Any
    key: Any = None
    headers: Headers = ()
    partition: int | None = None
    """By default the one that Java's client would choose for the key."""
    timestamp_ms: int | None = None
    """By default the time at which the task takes the record."""


@dataclass(frozen=True, slots=True)
class Portion:
    """Some records of a source transaction that goes on. Lets a large one pass through a small memory."""

    records: Iterable[Record]


@dataclass(frozen=True, slots=True)
class Transaction:
    """A source transaction, or the end of one that began with portions. Readers see all of it or nothing."""

    records: Iterable[Record]
    position: Position
    ends_kafka_transaction: bool = False
    """With the boundary `connector`: the Kafka transaction ends here."""


def encoded(content: Any) -> bytes | None:
    """A key or value as Kafka takes it."""
    if content is None or isinstance(content, bytes):
        return content
    if isinstance(content, str):
        return content.encode()
    if isinstance(content, bytearray | memoryview):
        return bytes(content)
    return compact_json(content)


def compact_json(document: Any) -> bytes:
    try:
        return json.dumps(document, ensure_ascii=False, separators=(",", ":"), sort_keys=True, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise InvalidSource(
            f"{document!r} cannot be written as JSON: {error}", "give bytes, text or what JSON can express"
        ) from None
