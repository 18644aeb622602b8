"""Rows of files as lines of text, as Kafka's dump tool prints them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fencepost.insight.file_kinds import FileKind, kind_of
from fencepost.insight.file_rows import Row

# What Java prints for an OptionalLong.
_OPTIONAL = frozenset({"deleteHorizonMs", "currentTxnFirstOffset"})
_NOT_PRINTED = frozenset({"records", "decoded"})


def heading(path: Path) -> Iterator[str]:
    yield f"Dumping {path}"
    kind = kind_of(path)
    if kind is FileKind.LOG:
        yield f"Log starting offset: {int(path.name.split('.')[0])}"
    elif kind is FileKind.METADATA_SNAPSHOT:
        offset, _, epoch = path.stem.partition("-")
        yield f"Snapshot end offset: {int(offset)}, epoch: {int(epoch or 0)}"


def lines(row: Row) -> Iterator[str]:
    yield _line(row)
    for record in row.get("records", ()):
        yield "| " + _line(record)


def _line(row: Row) -> str:
    return " ".join(f"{name}: {_text(name, value)}" for name, value in row.items() if name not in _NOT_PRINTED)


def _text(name: str, value: Any) -> str:
    if name in _OPTIONAL:
        return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list) and name == "headerKeys":
        return f"[{','.join(value)}]"
    if isinstance(value, dict | list):
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return str(value)
