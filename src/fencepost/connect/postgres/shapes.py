"""Changes of rows as records: Debezium's envelope, or the plain row.

Both have the key of the row as JSON, a tombstone behind a delete, and the same headers. A change of the key is a delete
of the old row and a creation of the new one, as in Debezium.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from json.encoder import encode_basestring

from fencepost.connect.postgres.decoding import UNCHANGED, Delete, Insert, Relation, Row, Update
from fencepost.connect.postgres.lsn import lsn_text
from fencepost.connect.postgres.values import Encoder, TypeInfo, encoder
from fencepost.connect.records import Headers, Record, encoded
from fencepost.version import __version__

POSTGRES_EPOCH_US = 946_684_800_000_000
"""2000-01-01 in microseconds since 1970."""
UNAVAILABLE = b'"__debezium_unavailable_value"'


@dataclass(frozen=True, slots=True)
class Moment:
    """Which transaction a change belongs to, and where it is in the write-ahead log."""

    transaction_id: int
    commit_time_us: int
    """Since 1970."""
    lsn: int
    is_snapshot: bool = False


class Table:
    """One table as it was when its rows were written: what its columns are called and how they become JSON."""

    def __init__(
        self,
        relation: Relation,
        key_columns: Sequence[str],
        topic: str,
        types: Callable[[int], TypeInfo],
        *,
        debezium: bool,
    ) -> None:
        self.relation = relation
        self.topic = topic
        self.columns = {column.name: at for at, column in enumerate(relation.columns)}
        self._debezium = debezium
        self._key_at = [self.columns[name] for name in key_columns if name in self.columns]
        self._fields: list[tuple[bytes, Encoder]] = [
            (
                encode_basestring(column.name).encode() + b":",
                encoder(types, column.type_oid, column.type_modifier, debezium=debezium),
            )
            for column in relation.columns
        ]

    @property
    def has_key(self) -> bool:
        return bool(self._key_at)

    def key(self, row: Row) -> bytes | None:
        if not self._key_at:
            return None
        return b"{" + b",".join(self._field(at, row) for at in self._key_at) + b"}"

    def _field(self, at: int, row: Row) -> bytes:
        name, encode = self._fields[at]
        value = row[at]
        if value is None:
            return name + b"null"
        return name + (encode(value) if isinstance(value, bytes) else UNAVAILABLE)

    def json(self, row: Row) -> bytes:
        parts = []
        for (name, encode), value in zip(self._fields, row, strict=True):
            if value is None:
                parts.append(name + b"null")
            elif value is UNCHANGED:
                if self._debezium:
                    parts.append(name + UNAVAILABLE)
            else:
                parts.append(name + encode(value))  # type: ignore[arg-type] # it is bytes: the two others were above
        return b"{" + b",".join(parts) + b"}"

    def text_of(self, row: Row, column: str) -> str | None:
        value = row[self.columns[column]]
        return value.decode() if isinstance(value, bytes) else None


class Shape:
    """Makes records of changes."""

    def __init__(self, source: str, database: str, *, debezium: bool, tombstones: bool) -> None:
        self._source = encode_basestring(source).encode()
        self._database = encode_basestring(database).encode()
        self._debezium = debezium
        self._tombstones = tombstones

    def insert(self, table: Table, change: Insert, moment: Moment, order: int) -> Iterator[Record]:
        yield self._record(table, b"r" if moment.is_snapshot else b"c", None, change.new, moment, order)

    def update(self, table: Table, change: Update, moment: Moment, order: int) -> Iterator[Record]:
        new, old = list(change.new), change.old
        if old is not None and change.is_old_whole:
            # What did not change is in the old row.
            new = [was if value is UNCHANGED else value for was, value in zip(old, new, strict=True)]
        if old is not None and table.has_key and table.key(old) != table.key(new):
            yield self._record(table, b"d", old, None, moment, order, (("__debezium.newkey", table.key(new)),))
            yield from self._tombstone(table, old, moment, order)
            yield self._record(table, b"c", None, new, moment, order, (("__debezium.oldkey", table.key(old)),))
            return
        yield self._record(table, b"u", old if change.is_old_whole else None, new, moment, order)

    def delete(self, table: Table, change: Delete, moment: Moment, order: int) -> Iterator[Record]:
        yield self._record(table, b"d", change.old, None, moment, order)
        yield from self._tombstone(table, change.old, moment, order)

    def truncate(self, table: Table, moment: Moment, order: int) -> Iterator[Record]:
        yield self._record(table, b"t", None, None, moment, order)

    def _tombstone(self, table: Table, old: Row, moment: Moment, order: int) -> Iterator[Record]:
        # The plain shape has no other delete.
        if self._debezium and self._tombstones and table.has_key:
            yield Record(table.topic, None, table.key(old), headers(b"d", moment, order), timestamp_ms=_ms(moment))

    def _record(
        self,
        table: Table,
        operation: bytes,
        before: Row | None,
        after: Row | None,
        moment: Moment,
        order: int,
        more_headers: Headers = (),
    ) -> Record:
        row = after if after is not None else before
        key = None if row is None else table.key(row)
        told = headers(operation, moment, order)
        if more_headers:
            told = (*told, *more_headers)
        if self._debezium:
            value: bytes | None = self._envelope(table, operation, before, after, moment)
        else:
            value = None if after is None else table.json(after)
        return Record(table.topic, value, key, told, None, _ms(moment))

    def _envelope(self, table: Table, operation: bytes, before: Row | None, after: Row | None, moment: Moment) -> bytes:
        now_ns = time.time_ns()
        us = moment.commit_time_us
        relation = table.relation
        return (
            b'{"before":%s,"after":%s,"source":{"version":"fencepost %s","connector":"postgresql","name":%s,'
            b'"ts_ms":%d,"snapshot":"%s","db":%s,"sequence":null,"ts_us":%d,"ts_ns":%d,"schema":%s,"table":%s,'
            b'"txId":%d,"lsn":%d,"xmin":null},"transaction":null,"op":"%s","ts_ms":%d,"ts_us":%d,"ts_ns":%d}'
        ) % (
            b"null" if before is None else table.json(before),
            b"null" if after is None else table.json(after),
            __version__.encode(),
            self._source,
            us // 1000,
            b"true" if moment.is_snapshot else b"false",
            self._database,
            us,
            us * 1000,
            encode_basestring(relation.schema).encode(),
            encode_basestring(relation.name).encode(),
            moment.transaction_id,
            moment.lsn,
            operation,
            now_ns // 1_000_000,
            now_ns // 1000,
            now_ns,
        )


def headers(operation: bytes, moment: Moment, order: int) -> Headers:
    """`transaction.order` counts the changes of a source transaction, over all its tables."""
    return (
        ("op", operation),
        ("transaction.id", str(moment.transaction_id).encode()),
        ("transaction.order", str(order).encode()),
        ("lsn", lsn_text(moment.lsn).encode()),
    )


def _ms(moment: Moment) -> int:
    return moment.commit_time_us // 1000


@dataclass(frozen=True, slots=True)
class Outbox:
    """A table whose rows are messages: each insert becomes one record, in the topic that the row names.

    The columns have the names of Debezium's outbox event router. Updates and deletes of the table are not written.
    """

    table: str
    topic: str = "outbox.event.{aggregatetype}"
    """Columns in braces are replaced by the row's values."""
    key: str = "aggregateid"
    payload: str = "payload"
    headers: Mapping[str, str] | None = None
    """Name of the header to column; by default `id` and, where there is such a column, `eventType`."""

    def record(self, table: Table, row: Row, moment: Moment, order: int) -> Record:
        texts = {name: table.text_of(row, name) for name in table.columns}
        named = self.headers
        if named is None:
            named = {name: column for name, column in (("id", "id"), ("eventType", "type")) if column in texts}
        own = tuple((name, encoded(texts[column])) for name, column in named.items())
        return Record(
            self.topic.format_map(texts),
            texts[self.payload],
            texts[self.key],
            (*own, *headers(b"c", moment, order)),
            None,
            _ms(moment),
        )
