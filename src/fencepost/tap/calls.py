"""Calls: request, client, broker and answer, built from the lines of a recording."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from fencepost.tap.frames import Plain
from fencepost.wire.errors import ErrorCode


@dataclass(slots=True)
class Call:
    number: int
    api: str
    version: int
    client_id: str | None
    client: str
    """The client's address, with the number of the connection, because addresses can be reused."""
    connection: int
    broker: str
    asked_at: float
    request: Plain | None
    answered_at: float | None = None
    response: Plain | None = None
    lost: str | None = None
    """Why no answer can arrive any more."""

    @property
    def seconds(self) -> float | None:
        return None if self.answered_at is None else self.answered_at - self.asked_at

    @property
    def transactional_ids(self) -> list[str]:
        request = self.request or {}
        names = [request.get("transactional_id"), request.get("v3_and_below_transactional_id")]
        names += [each.get("transactional_id") for each in request.get("transactions") or []]
        if self.api == "FindCoordinator" and request.get("key_type") == TRANSACTION_KEY_TYPE:
            names += [request.get("key"), *(request.get("coordinator_keys") or [])]
        return list(dict.fromkeys(name for name in names if name))

    @property
    def errors(self) -> list[str]:
        """The distinct names of the errors in the answer."""
        return list(dict.fromkeys(_error_name(code) for code in _error_codes(self.response) if code != 0))


TRANSACTION_KEY_TYPE = 1


def _error_codes(value: Any) -> Iterator[int]:
    if isinstance(value, list):
        for each in value:
            yield from _error_codes(each)
    elif isinstance(value, dict):
        for name, inner in value.items():
            if name == "error_code":
                yield inner
            elif isinstance(inner, (list, dict)):
                yield from _error_codes(inner)


def _error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


@dataclass(slots=True)
class Recording:
    """Calls in the order in which they were made."""

    upstream: str = ""
    calls: dict[int, Call] = field(default_factory=dict)

    def add(self, line: Plain) -> Call | None:
        """Adds one line of a recording. Returns the call it belongs to."""
        kind = line.get("type")
        if kind == "tap":
            self.upstream = line["upstream"]
            return None
        if kind == "request":
            call = Call(
                line["call"], line["api"], line["version"], line["client_id"], line["client"], line["connection"],
                line["broker"], line["time"], line["message"],
            )  # fmt: skip
            self.calls[call.number] = call
            return call
        found = self.calls.get(line.get("call", -1))
        if found is not None and kind == "response":
            found.answered_at, found.response = line["time"], line["message"]
        elif found is not None and kind == "lost":
            found.lost = line["why"]
        return found

    def transactional_ids(self) -> list[str]:
        return list(dict.fromkeys(name for call in self.calls.values() for name in call.transactional_ids))

    def of(self, transactional_id: str) -> list[Call]:
        return [call for call in self.calls.values() if transactional_id in call.transactional_ids]


def recording_of(lines: Iterable[Plain]) -> Recording:
    recording = Recording()
    for line in lines:
        recording.add(line)
    return recording
