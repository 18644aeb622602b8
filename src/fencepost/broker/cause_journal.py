"""Why it happened, per transactional id: the last fencings, aborts, time-outs and refusals, kept over restarts.

Listens to the event feed and keeps every event that names a transactional id, the last few of each id. They go to a
bounded file of JSON lines, unsynced: an explanation is worth a lot, but not a sync. Tools ask for it over the wire
(`handlers/causes.py`) or read the file.
"""

import enum
from collections import OrderedDict, deque
from operator import itemgetter
from typing import Any

from fencepost.broker.events import event_fields
from fencepost.broker.json_lines import decode_line, encode_line
from fencepost.ports import Clock, Disk, File

JOURNAL_NAME = "cause-journal.jsonl"
ENTRIES_PER_ID_MAX = 32
IDS_MAX = 10_000
_Remembered = tuple[int, bytes]
"""When it happened, and its line as it is in the file, which is begun anew from these."""


class CauseJournal:
    def __init__(self, disk: Disk, directory: str, clock: Clock, max_bytes: int) -> None:
        self._disk = disk
        self._path = f"{directory}/{JOURNAL_NAME}"
        self._clock = clock
        self._max_bytes = max_bytes
        self._file: File | None = None
        self._end = 0
        self._by_id: OrderedDict[str, deque[_Remembered]] = OrderedDict()

    def load(self) -> None:
        if self._disk.exists(self._path):
            for line in self._disk.read_bytes(self._path).splitlines():
                try:
                    entry = decode_line(line, "event")
                    self._remember(entry["transactional_id"], int(entry.get("time_ms", 0)), encode_line(entry))
                except (ValueError, KeyError, TypeError):
                    continue  # torn by a crash or damaged: the rest is still worth reading
        self._rewrite()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def of(self, transactional_id: str) -> list[dict[str, Any]]:
        """What happened to an id, oldest first."""
        return [_decoded(line) for _, line in self._by_id.get(transactional_id, ())]

    def recent(self, limit: int) -> list[dict[str, Any]]:
        """The last of all ids, oldest first."""
        remembered = sorted((each for several in self._by_id.values() for each in several), key=itemgetter(0))
        return [_decoded(line) for _, line in remembered[-limit:]]

    def on_event(self, event: object) -> None:
        transactional_id = getattr(event, "transactional_id", None)
        if transactional_id is None or self._file is None:
            return
        now_ms = self._clock.wall_ms()
        entry = {"event": type(event).__name__, "time_ms": now_ms}
        entry.update((name, _plain(value)) for name, value in event_fields(event).items())
        line = encode_line(entry)
        self._remember(transactional_id, now_ms, line)
        try:
            if self._end + len(line) > self._max_bytes:
                self._rewrite()
            else:
                self._file.write(self._end, line)
                self._end += len(line)
        except OSError:
            pass  # a full or failed disk is reported elsewhere; what is in memory can still be read

    def _remember(self, transactional_id: str, time_ms: int, line: bytes) -> None:
        entries = self._by_id.get(transactional_id)
        if entries is None:
            entries = self._by_id[transactional_id] = deque(maxlen=ENTRIES_PER_ID_MAX)
            if len(self._by_id) > IDS_MAX:
                self._by_id.popitem(last=False)
        entries.append((time_ms, line))
        self._by_id.move_to_end(transactional_id)

    def _rewrite(self) -> None:
        """Begin the file anew with what is remembered; of the ids used longest ago only what fits into half of it."""
        self.close()
        lines: deque[bytes] = deque()
        size = 0
        for entries in reversed(self._by_id.values()):
            block = b"".join([line for _, line in entries])
            size += len(block)
            if size > self._max_bytes // 2:
                break
            lines.appendleft(block)
        self._disk.write_bytes(self._path, b"".join(lines))
        self._file = self._disk.open(self._path)
        self._end = self._file.size()


def _decoded(line: bytes) -> dict[str, Any]:
    return decode_line(line, "event")


def _plain(value: object) -> object:
    if isinstance(value, enum.Enum):
        return value.name
    return value if isinstance(value, int | str | float | bool | None) else str(value)
