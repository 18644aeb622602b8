"""The typed feed: what happened and why.

Every refusal and every change of state worth telling is a frozen dataclass handed to `EventFeed.emit`. Log lines,
metrics and the tools that explain a broker to people all read this feed; none of them is called by name.
"""

import dataclasses
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

RECENT_EVENTS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class BrokerStarted:
    node_id: int
    incarnation: int
    topics: int
    partitions: int
    was_clean: bool


@dataclass(frozen=True, slots=True)
class BrokerStopped:
    node_id: int


@dataclass(frozen=True, slots=True)
class ConnectionRefused:
    peer: str
    reason: str


@dataclass(frozen=True, slots=True)
class ConnectionClosed:
    connection: int
    peer: str
    reason: str


@dataclass(frozen=True, slots=True)
class AuthenticationFailed:
    """A client did not prove who it is. Never contains what it sent.

    Where the handshake of TLS failed there was no connection yet, and its number is 0.
    """

    connection: int
    peer: str
    listener: str
    mechanism: str
    reason: str


@dataclass(frozen=True, slots=True)
class KeysReloaded:
    """Files of keys or certificates have changed: new connections see the new ones, old ones stay."""

    listener: str
    what: str


@dataclass(frozen=True, slots=True)
class KeysNotReloaded:
    """They have changed and cannot be used: what was read before still counts."""

    listener: str
    what: str
    reason: str


@dataclass(frozen=True, slots=True)
class MalformedRequest:
    connection: int
    peer: str
    api_key: int
    version: int
    reason: str


@dataclass(frozen=True, slots=True)
class TrailingBytesIgnored:
    """A client sends bytes behind its requests that belong to none. Reported once for each kind of client software."""

    software: str
    api: str
    version: int
    trailing_bytes: int
    peer: str
    client_id: str | None


@dataclass(frozen=True, slots=True)
class HandlerFailed:
    api: str
    version: int
    error: str
    traceback: str


@dataclass(frozen=True, slots=True)
class InternalError:
    """A fault of ours outside any request; the broker went on."""

    where: str
    reason: str
    trace: str


@dataclass(frozen=True, slots=True)
class TopicCreated:
    topic: str
    partitions: int
    automatically: bool


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    topic: str


@dataclass(frozen=True, slots=True)
class BatchRefused:
    topic: str
    partition: int
    error: str
    reason: str
    producer_id: int
    producer_epoch: int
    base_sequence: int
    transactional_id: str | None
    peer: str
    client_id: str | None


@dataclass(frozen=True, slots=True)
class DuplicateBatch:
    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    first_offset: int


@dataclass(frozen=True, slots=True)
class AccessDenied:
    """A client asked for what the ACLs do not allow. Emitted once for each right that a connection asks for."""

    principal: str
    host: str
    operation: str
    resource_type: str
    resource_name: str


@dataclass(frozen=True, slots=True)
class AclsChanged:
    principal: str
    added: int
    removed: int


@dataclass(frozen=True, slots=True)
class DamageFound:
    """Bytes on the disk are not what was written. They are not served; what is around them is."""

    topic: str
    partition: int
    reason: str


@dataclass(frozen=True, slots=True)
class LogCut:
    """Recovery cut a log in front of whole batches. They are set aside, and no reader gets them."""

    topic: str
    partition: int
    reason: str


@dataclass(frozen=True, slots=True)
class SideFileDamaged:
    """A file that can be done without; what it said was found out in another way, or is lost."""

    reason: str


@dataclass(frozen=True, slots=True)
class StrayFound:
    """Something in the data directory that belongs to no topic, and what became of it."""

    reason: str


@dataclass(frozen=True, slots=True)
class StorageFailed:
    directory: str
    reason: str


@dataclass(frozen=True, slots=True)
class SegmentsDeleted:
    topic: str
    partition: int
    segments: int
    log_start_offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class PartitionCompacted:
    topic: str
    partition: int
    bytes_before: int
    bytes_after: int


@dataclass(frozen=True, slots=True)
class CompactionFailed:
    topic: str
    partition: int
    reason: str


class EventFeed:
    """Hands every event to all listeners, and keeps the last ones for later readers."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[object], None]] = []
        self.recent: deque[object] = deque(maxlen=RECENT_EVENTS_MAX)

    def subscribe(self, listener: Callable[[object], None]) -> None:
        self._listeners.append(listener)

    def emit(self, event: object) -> None:
        self.recent.append(event)
        for listener in self._listeners:
            listener(event)


def event_fields(event: object) -> dict[str, object]:
    """An event as plain data, for log lines and JSON."""
    assert dataclasses.is_dataclass(event)
    return {field.name: getattr(event, field.name) for field in dataclasses.fields(event)}
