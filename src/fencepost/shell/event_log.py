"""The event feed as structured log lines: JSON for machines, plain text on a terminal."""

import enum
import json
from datetime import UTC, datetime
from typing import TextIO

from fencepost.broker import events
from fencepost.broker.events import event_fields
from fencepost.coordinators.transactions.events import CoordinatorBehindPartitions
from fencepost.wire.errors import ErrorCode

_ERRORS = (events.HandlerFailed, events.InternalError, events.StorageFailed)
_WARNINGS = (
    events.MalformedRequest,
    events.ConnectionRefused,
    events.BatchRefused,
    events.AccessDenied,
    events.CompactionFailed,
    events.DamageFound,
    events.LogCut,
    events.SideFileDamaged,
    events.StrayFound,
    CoordinatorBehindPartitions,
)


def is_silent(event: object) -> bool:
    """Too frequent for the log; they are counted in metrics."""
    if isinstance(event, events.BatchRefused):
        # The previous transaction is not complete yet, which is normal for producers with consecutive transactions.
        return event.error == ErrorCode.CONCURRENT_TRANSACTIONS.name
    return isinstance(event, events.DuplicateBatch)


def level_of(event: object) -> str:
    if isinstance(event, _ERRORS):
        return "error"
    return "warning" if isinstance(event, _WARNINGS) else "info"


class EventLog:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_terminal = stream.isatty()

    def write(self, event: object) -> None:
        if is_silent(event):
            return
        time = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        name = type(event).__name__
        fields = {key: _shown(value) for key, value in event_fields(event).items()}
        if self._is_terminal:
            line = f"{time} {level_of(event):7} {name} " + " ".join(f"{key}={value}" for key, value in fields.items())
        else:
            line = json.dumps({"time": time, "level": level_of(event), "event": name, **fields}, default=str)
        try:
            self._stream.write(line + "\n")
            self._stream.flush()
        except OSError:
            # The log's disk may be full, or its reader gone. The code that emitted the event must not fail because of
            # that; metrics and the journal of causes have the event as well.
            pass


def _shown(value: object) -> object:
    """Errors with Kafka's names, causes as text."""
    if isinstance(value, ErrorCode):
        return value.name
    return value.name.lower() if isinstance(value, enum.Enum) else value
