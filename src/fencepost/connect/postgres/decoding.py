"""The messages of pgoutput, protocol version 1: bytes in, values out. PostgreSQL's manual, "Logical Replication Message
Formats", is the specification; the types' own text stays as it is.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

_BEGIN, _COMMIT = struct.Struct(">qqI"), struct.Struct(">bqqq")
_OID_COUNT = struct.Struct(">I")
_COLUMN = struct.Struct(">Ii")


class _Unchanged:
    """A value that was stored out of line and did not change: PostgreSQL does not say what it is."""

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED: Final = _Unchanged()
Value = bytes | None | _Unchanged
Row = Sequence[Value]


class MalformedMessage(ValueError):
    """Not a message of pgoutput's protocol version 1."""


class Begin(NamedTuple):
    commit_lsn: int
    """Where the commit record of this transaction begins."""
    commit_time_us: int
    """Since 2000-01-01, PostgreSQL's own epoch."""
    transaction_id: int


class Commit(NamedTuple):
    commit_lsn: int
    end_lsn: int
    commit_time_us: int


class Column(NamedTuple):
    name: str
    is_key: bool
    type_oid: int
    type_modifier: int


class Relation(NamedTuple):
    oid: int
    schema: str
    name: str
    replica_identity: str
    columns: tuple[Column, ...]


class Insert(NamedTuple):
    relation_oid: int
    new: Row


class Update(NamedTuple):
    relation_oid: int
    old: Row | None
    """The key if it changed, the whole row under REPLICA IDENTITY FULL, else None."""
    is_old_whole: bool
    new: Row


class Delete(NamedTuple):
    relation_oid: int
    old: Row
    is_old_whole: bool


class Truncate(NamedTuple):
    relation_oids: tuple[int, ...]
    options: int


class Other(NamedTuple):
    """Types, origins and messages: nothing that a source needs."""

    kind: str


Message = Begin | Commit | Relation | Insert | Update | Delete | Truncate | Other


def decode(data: bytes) -> Message:
    try:
        return _decode(data)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise MalformedMessage(f"{data[:40]!r}...: {error}") from None


def _decode(data: bytes) -> Message:
    match data[:1]:
        case b"I":
            new, _ = _row(data, _expect(data, 5, b"N"))
            return Insert(_oid(data), new)
        case b"U":
            kind = data[5:6]
            if kind == b"N":
                new, _ = _row(data, 6)
                return Update(_oid(data), None, False, new)
            if kind not in (b"K", b"O"):
                raise MalformedMessage(f"an update with {kind!r}")
            old, at = _row(data, 6)
            new, _ = _row(data, _expect(data, at, b"N"))
            return Update(_oid(data), old, kind == b"O", new)
        case b"D":
            kind = data[5:6]
            if kind not in (b"K", b"O"):
                raise MalformedMessage(f"a delete with {kind!r}")
            old, _ = _row(data, 6)
            return Delete(_oid(data), old, kind == b"O")
        case b"B":
            return Begin(*_BEGIN.unpack_from(data, 1))
        case b"C":
            return Commit(*_COMMIT.unpack_from(data, 1)[1:])
        case b"R":
            return _relation(data)
        case b"T":
            count, options = struct.unpack_from(">Ib", data, 1)
            return Truncate(struct.unpack_from(f">{count}I", data, 6), options)
        case b"Y" | b"O" | b"M" as kind:
            return Other(kind.decode())
        case kind:
            raise MalformedMessage(f"a message of kind {kind!r}")


def _oid(data: bytes) -> int:
    oid: int = _OID_COUNT.unpack_from(data, 1)[0]
    return oid


def _expect(data: bytes, at: int, kind: bytes) -> int:
    if data[at : at + 1] != kind:
        raise MalformedMessage(f"{data[at : at + 1]!r} where {kind!r} is due")
    return at + 1


def _row(data: bytes, at: int) -> tuple[Row, int]:
    count = data[at] << 8 | data[at + 1]
    at += 2
    row: list[Value] = []
    for _ in range(count):
        kind = data[at]
        at += 1
        if kind == 116:  # t: text
            end = at + 4 + int.from_bytes(data[at : at + 4], "big")
            if end > len(data):
                raise MalformedMessage("a value longer than its message")
            row.append(data[at + 4 : end])
            at = end
        elif kind == 110:  # n: null
            row.append(None)
        elif kind == 117:  # u: unchanged
            row.append(UNCHANGED)
        else:
            raise MalformedMessage(f"a value of kind {kind}")
    return row, at


def _relation(data: bytes) -> Relation:
    oid = _oid(data)
    schema, at = _text(data, 5)
    name, at = _text(data, at)
    identity = chr(data[at])
    count = data[at + 1] << 8 | data[at + 2]
    at += 3
    columns = []
    for _ in range(count):
        is_key = bool(data[at])
        column, at = _text(data, at + 1)
        type_oid, modifier = _COLUMN.unpack_from(data, at)
        at += _COLUMN.size
        columns.append(Column(column, is_key, type_oid, modifier))
    # An empty namespace stands for pg_catalog.
    return Relation(oid, schema or "pg_catalog", name, identity, tuple(columns))


def _text(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(b"\0", at) if b"\0" in data[at:] else len(data) + 1
    if end > len(data):
        raise MalformedMessage("a name without an end")
    return data[at:end].decode(), end + 1
