"""The event feed as structured log lines: JSON for machines, plain text on a terminal."""

import json
from datetime import UTC, datetime
from typing import TextIO

from fencepost.broker import events
from fencepost.broker.events import event_fields

_ERRORS = (events.HandlerFailed, events.StorageFailed)
_WARNINGS = (
    events.MalformedRequest,
    events.ConnectionRefused,
    events.BatchRefused,
    events.AccessDenied,
    events.CompactionFailed,
)
# Told by metrics, too many for a log.
_SILENT = (events.DuplicateBatch,)


def level_of(event: object) -> str:
    if isinstance(event, _ERRORS):
        return "error"
    return "warning" if isinstance(event, _WARNINGS) else "info"


class EventLog:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_terminal = stream.isatty()

    def write(self, event: object) -> None:
        if isinstance(event, _SILENT):
            return
        time = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        name, fields = type(event).__name__, event_fields(event)
        if self._is_terminal:
            line = f"{time} {level_of(event):7} {name} " + " ".join(f"{key}={value}" for key, value in fields.items())
        else:
            line = json.dumps({"time": time, "level": level_of(event), "event": name, **fields}, default=str)
        try:
            self._stream.write(line + "\n")
            self._stream.flush()
        except OSError:
            # The log's own disk may be full, or its reader gone. Whoever emitted the event is in the midst of
            # something that must not fail for that; metrics and the journal of causes have it, too.
            pass
