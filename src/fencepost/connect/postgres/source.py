"""A PostgreSQL database as a source: the tables as they are, then every committed change, in the order of commits.

The position is the LSN behind a commit. A slot of its own keeps the log from there on; it is told of a position only
when Kafka has it, so it is never ahead, and one that is ahead was used by somebody else and is refused.

A table is read once, under a snapshot that a slot exports together with the LSN at which it was taken. Of the changes
that come from the main slot, those of a transaction that the table's snapshot contained are left out: so tables may be
read one after the other, after a crash, or when they are added later, and no row's change is missing or twice.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from fencepost.connect.errors import ConnectError, InvalidSource, SourceRefused
from fencepost.connect.postgres.database import Database
from fencepost.connect.postgres.decoding import (
    Begin,
    Commit,
    Delete,
    Insert,
    Message,
    Relation,
    Truncate,
    Update,
    decode,
)
from fencepost.connect.postgres.lsn import lsn_text, parse_lsn
from fencepost.connect.postgres.shapes import POSTGRES_EPOCH_US, Moment, Outbox, Shape, Table
from fencepost.connect.postgres.stream import Identity, ReplicationStream
from fencepost.connect.records import Portion, Position, Record, Transaction
from fencepost.connect.sources import Boundary, Source, SourcePartition

PORTION_RECORDS = 1_000
GIVEN_AT_ONCE = 4_000
"""Records that one call of `poll` returns at most, roughly."""
HEARTBEAT_SECONDS = 10.0
"""Without changes of its tables the position follows the log this often, so that the database can remove it."""
_DSN_HELP = "give libpq's connection string; a password belongs into PGPASSFILE or a service file"


class PostgresSource(Source):
    """One task. Everything but the tables may be left out; slot and publication are made and named after the source."""

    def __init__(
        self,
        name: str,
        dsn: str,
        *,
        tables: Iterable[str] = (),
        outbox: Outbox | None = None,
        shape: str = "debezium",
        topic: str = "{source}.{schema}.{table}",
        topic_partitions: int | None = 1,
        snapshot: bool = True,
        tombstones: bool = True,
        truncates: bool = False,
        slot: str | None = None,
        publication: str | None = None,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
        boundary: Boundary | str = Boundary.INTERVAL,
        **settings: Any,
    ) -> None:
        """`tables` are named `schema.table` or, in the schema public, `table`. `shape` is `debezium` or `plain`.
        `topic_partitions` is for topics that are missing; None: they are not made. A `publication` that is named exists
        already and is left as it is. `settings` are `max_records` and `linger_ms`."""
        super().__init__(name, boundary=boundary, **settings)
        self.tables = [_table_name(table) for table in tables]
        if outbox is not None and _table_name(outbox.table) not in self.tables:
            self.tables.append(_table_name(outbox.table))
        if not self.tables:
            raise InvalidSource(f"source {name} has no tables", 'name them: tables=["public.orders"]')
        if shape not in ("debezium", "plain"):
            raise InvalidSource(f"source {name}: {shape!r} is not a shape", "choose debezium or plain")
        if not dsn:
            raise InvalidSource(f"source {name} has no database", _DSN_HELP)
        own = "fencepost_" + "".join(each if each.isascii() and each.isalnum() else "_" for each in name.lower())
        self.dsn = dsn
        self.outbox = outbox
        self.is_debezium = shape == "debezium"
        self.has_tombstones = tombstones
        self.has_truncates = truncates
        self.has_snapshot = snapshot
        self.slot = slot or own[:63]
        self.publication = publication or own[:63]
        self.owns_publication = publication is None
        self.heartbeat_seconds = heartbeat_seconds
        self._topic = topic
        self._new_topic_partitions = topic_partitions

    def topic_partitions(self, topic: str) -> int | None:
        return self._new_topic_partitions

    def topic_of(self, relation: Relation) -> str:
        return self._topic.format(source=self.name, schema=relation.schema, table=relation.name)

    def open(self, partition: SourcePartition, position: Position | None) -> "PostgresReader":
        return PostgresReader(self, position)

    def preview(self, partition: SourcePartition, position: Position | None) -> Iterable[str]:
        database, stream = Database(self.dsn), ReplicationStream(self.dsn)
        try:
            identity = stream.identify()
            check_database(self, database, identity, position)
            yield f"database {identity.database} of system {identity.system}, log at {identity.flushed_lsn}"
            published = database.published(self.publication)
            if published is None:
                yield f"would create the publication {self.publication}"
            found = database.slot(self.slot)
            yield (
                f"would create the slot {self.slot}"
                if found is None
                else (
                    f"slot {self.slot} is confirmed up to {lsn_text(found.confirmed_lsn)}"
                    + (", and would be taken over" if found.is_active else "")
                )
            )
            known = {} if position is None else position.get("tables", {})
            for schema, name in self.tables:
                relation = database.relation(schema, name)
                if relation is None:
                    raise _no_table(schema, name)
                key = ", ".join(database.key_columns(relation.oid)) or "none: deletes and updates cannot be replicated"
                is_read = f"{schema}.{name}" not in known and self.has_snapshot
                yield (
                    f"{schema}.{name} to topic {self.topic_of(relation)}, key: {key}"
                    + ("; its rows would be read first" if is_read else "")
                )
        finally:
            stream.close()
            database.close()

    def reset(self, partition: SourcePartition) -> Iterable[str]:
        database = Database(self.dsn)
        try:
            if database.slot(self.slot) is not None:
                database.drop_slot(self.slot)
                yield f"slot {self.slot} dropped"
            if self.owns_publication and database.published(self.publication) is not None:
                database.drop_publication(self.publication)
                yield f"publication {self.publication} dropped"
        finally:
            database.close()


def _table_name(text: str) -> tuple[str, str]:
    schema, separator, name = text.partition(".")
    return (schema, name) if separator else ("public", schema)


def _no_table(schema: str, name: str) -> ConnectError:
    return ConnectError(f"there is no table {schema}.{name}", "create it, or take it out of `tables`")


def check_database(source: PostgresSource, database: Database, identity: Identity, position: Position | None) -> None:
    """Refuse what would lose or repeat changes."""
    level = database.wal_level()
    if level != "logical":
        raise SourceRefused(
            f"the database has wal_level={level}", "set wal_level=logical in postgresql.conf and restart it"
        )
    slot = database.slot(source.slot)
    if slot is not None and (slot.plugin != "pgoutput" or slot.database != identity.database):
        raise SourceRefused(
            f"the slot {source.slot} is of plugin {slot.plugin} and database {slot.database}",
            "name another one: slot=",
        )
    if position is None:
        if slot is not None:
            raise SourceRefused(
                f"the slot {source.slot} exists, at {lsn_text(slot.confirmed_lsn)}, and the source {source.name} has "
                "no position",
                "if it is a leftover, drop it with `fencepost connect reset`; else name another one: slot=",
            )
        return
    if (position["system"], position["database"]) != (identity.system, identity.database):
        raise SourceRefused(
            f"the position is of database {position['database']} of system {position['system']}, and this is "
            f"{identity.database} of system {identity.system}",
            "connect to the database that the position is of, or give it up with `fencepost connect reset`",
        )
    if position["lsn"] is None:
        return
    at, end = parse_lsn(position["lsn"]), parse_lsn(identity.flushed_lsn)
    if at > end:
        raise SourceRefused(
            f"the position {lsn_text(at)} is ahead of the database, which is at {lsn_text(end)}: it is an older copy",
            "connect to the newest copy, or begin anew with `fencepost connect reset`",
        )
    if slot is None:
        raise SourceRefused(
            f"the slot {source.slot} is gone; the position is {lsn_text(at)}, and the database is at {lsn_text(end)}. "
            "Changes between the two may be lost (a slot does not survive a failover)",
            "begin anew with `fencepost connect reset`: the tables are read again",
        )
    if slot.wal_status == "lost":
        raise SourceRefused(
            f"the slot {source.slot} has lost the log behind position {lsn_text(at)} and is confirmed up to "
            f"{lsn_text(slot.confirmed_lsn)}: max_slot_wal_keep_size was exceeded",
            "begin anew with `fencepost connect reset`, and raise max_slot_wal_keep_size",
        )
    if slot.confirmed_lsn > at:
        raise SourceRefused(
            f"the slot {source.slot} is ahead: confirmed up to {lsn_text(slot.confirmed_lsn)}, while the position is "
            f"{lsn_text(at)}. Changes between the two would be lost",
            "the slot was used by somebody else, or the positions are an older copy: begin anew with "
            "`fencepost connect reset`",
        )


class PostgresReader:
    """Reads the log from a position on; before that, the tables that were not read yet."""

    def __init__(self, source: PostgresSource, position: Position | None) -> None:
        self._source = source
        self._database = Database(source.dsn)
        try:
            self._stream = ReplicationStream(source.dsn)
        except BaseException:
            self._database.close()
            raise
        self._identity = self._stream.identify()
        self._tables: dict[int, Table] = {}
        self._is_outbox: dict[int, bool] = {}
        self._read_as_of: dict[int, int] = {}
        """The LSN of the snapshot of a table: it contains what was committed before."""
        self._shape = Shape(
            source.name, self._identity.database, debezium=source.is_debezium, tombstones=source.has_tombstones
        )
        self._lsn: int | None = None
        """Everything before it was given."""
        self._read_tables: dict[str, str] = {}
        self._moment = Moment(0, 0, 0)
        self._commit_lsn = 0
        self._order = 0
        self._records: list[Record] = []
        self._is_in_transaction = False
        self._moved_at = time.monotonic()
        self._given: Iterator[Sequence[Transaction | Portion]] | None = None
        self._is_intent_known = False
        try:
            self._open(position)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._stream.close()
        self._database.close()

    def lag(self) -> int | None:
        """Bytes of the log behind the position."""
        return None if self._lsn is None else max(0, self._stream.server_lsn - self._lsn)

    # The start

    def _open(self, position: Position | None) -> None:
        source, database = self._source, self._database
        check_database(source, database, self._identity, position)
        self._publish()
        if position is None:
            # First the intent, in Kafka: a slot found later without a position is not ours to drop.
            self._given = iter([[self._ended([])]])
            return
        self._is_intent_known = True
        self._read_tables = dict(position["tables"])
        if position["lsn"] is not None:
            self._lsn = parse_lsn(position["lsn"])
        else:
            # An earlier try may have made the slot, and died before its LSN was committed. Dropped here and not later:
            # a zombie that wakes up behind this line cannot drop the slot of its successor.
            database.drop_slot(source.slot)
        self._given = self._begin()

    def _publish(self) -> None:
        source, database = self._source, self._database
        for schema, name in source.tables:
            if database.relation(schema, name) is None:
                raise _no_table(schema, name)
        published = database.published(source.publication)
        missing = [table for table in source.tables if published is None or table not in published]
        if not missing:
            return
        if not source.owns_publication:
            listed = ", ".join(".".join(table) for table in missing)
            raise SourceRefused(
                f"the publication {source.publication} does not contain {listed}",
                "add the tables to it, or leave `publication` out",
            )
        database.publish(source.publication, missing, is_new=published is None)

    def _begin(self) -> Iterator[Sequence[Transaction | Portion]]:
        """Tables that were not read yet, then the stream."""
        source, database = self._source, self._database
        snapshot = as_of = ""
        if self._lsn is None:
            as_of, snapshot = self._stream.create_slot(source.slot)
            self._lsn = parse_lsn(as_of)
            if not source.has_snapshot:
                self._read_tables = dict.fromkeys((".".join(table) for table in source.tables), as_of)
            yield [self._ended([])]
        wanted = [table for table in source.tables if ".".join(table) not in self._read_tables]
        if wanted and not source.has_snapshot:
            # From now on: what was before is in no snapshot.
            self._read_tables.update(dict.fromkeys((".".join(table) for table in wanted), self._identity.flushed_lsn))
            wanted = []
        if wanted and not snapshot:
            temporary = f"{source.slot[:50]}_snapshot"
            database.release_slot(temporary)  # a zombie's, which ends with its connection
            as_of, snapshot = self._stream.create_slot(temporary, is_temporary=True)
        for schema, name in wanted:
            relation = database.relation(schema, name)
            if relation is None:
                raise _no_table(schema, name)
            yield from self._snapshot(relation, snapshot, as_of)
        self._stream.close()
        self._stream = ReplicationStream(source.dsn)
        database.release_slot(source.slot)
        for (schema, name), text in ((_table_name(name), text) for name, text in self._read_tables.items()):
            relation = database.relation(schema, name)
            if relation is not None:
                self._read_as_of[relation.oid] = parse_lsn(text)
        self._stream.start(source.slot, source.publication, self._lsn)

    def _snapshot(self, relation: Relation, snapshot: str, as_of: str) -> Iterator[Sequence[Transaction | Portion]]:
        table = self._table(relation)
        moment = Moment(0, int(time.time() * 1_000_000), parse_lsn(as_of), is_snapshot=True)
        order = 0
        for chunk in self._database.snapshot_rows(relation, snapshot):
            records: list[Record] = []
            for row in chunk:
                order += 1
                records.extend(self._inserted(table, Insert(relation.oid, row), moment, order))
            yield [Portion(records)]
        self._read_tables[f"{relation.schema}.{relation.name}"] = as_of
        yield [self._ended([])]

    # Reading

    def poll(self, timeout_seconds: float) -> Sequence[Transaction | Portion]:
        if self._given is not None:
            given = next(self._given, None)
            if given is not None:
                return given
            self._given = None
        if not self._is_intent_known:
            time.sleep(min(timeout_seconds, 0.01))  # until the intent is committed
            return ()
        found: list[Transaction | Portion] = []
        count = 0
        received = self._stream.read(timeout_seconds)
        while received is not None:
            given_now = self._take(received.lsn, decode(received.data))
            if given_now is not None:
                found.append(given_now)
                count += PORTION_RECORDS if isinstance(given_now, Portion) else 1
                if count >= GIVEN_AT_ONCE:
                    return found
            received = self._stream.read(0)
        if not found and not self._is_in_transaction:
            found.extend(self._heartbeat())
        return found

    def committed(self, position: Position) -> None:
        if not self._is_intent_known:
            self._is_intent_known = True
            self._given = self._begin()
        elif self._given is None and position["lsn"] is not None:
            self._stream.acknowledge(parse_lsn(position["lsn"]))

    def _position(self) -> Position:
        return {
            "lsn": None if self._lsn is None else lsn_text(self._lsn),
            "database": self._identity.database,
            "system": self._identity.system,
            "tables": dict(self._read_tables),
        }

    def _ended(self, records: Iterable[Record]) -> Transaction:
        return Transaction(records, self._position(), ends_kafka_transaction=True)

    def _heartbeat(self) -> Iterator[Transaction]:
        """The log has grown without changes of ours: move the position, so that the database can remove it."""
        idle_lsn = self._stream.idle_lsn
        is_due = time.monotonic() - self._moved_at >= self._source.heartbeat_seconds
        if is_due and self._lsn is not None and idle_lsn > self._lsn:
            self._moved(idle_lsn)
            yield self._ended([])

    def _moved(self, lsn: int) -> None:
        self._lsn = lsn
        self._moved_at = time.monotonic()

    def _take(self, lsn: int, message: Message) -> Transaction | Portion | None:
        match message:
            case Insert() | Update() | Delete():
                self._change(lsn, message)
                if len(self._records) >= PORTION_RECORDS:
                    records, self._records = self._records, []
                    return Portion(records)
            case Begin():
                time_us = message.commit_time_us + POSTGRES_EPOCH_US
                self._moment = Moment(message.transaction_id, time_us, message.commit_lsn)
                self._commit_lsn = message.commit_lsn
                self._order = 0
                self._is_in_transaction = True
            case Commit():
                self._is_in_transaction = False
                self._moved(message.end_lsn)
                records, self._records = self._records, []
                return self._ended(records)
            case Relation():
                self._learn(message)
            case Truncate() if self._source.has_truncates:
                for oid in message.relation_oids:
                    self._truncated(lsn, oid)
        return None

    def _change(self, lsn: int, change: Insert | Update | Delete) -> None:
        oid = change.relation_oid
        if self._commit_lsn < self._read_as_of.get(oid, 0):
            return
        self._order += 1
        table, order = self._tables[oid], self._order
        began = self._moment
        moment = Moment(began.transaction_id, began.commit_time_us, lsn)
        if isinstance(change, Insert):
            self._records.extend(self._inserted(table, change, moment, order))
        elif self._is_outbox[oid]:
            return
        elif isinstance(change, Update):
            self._records.extend(self._shape.update(table, change, moment, order))
        else:
            self._records.extend(self._shape.delete(table, change, moment, order))

    def _inserted(self, table: Table, change: Insert, moment: Moment, order: int) -> Iterable[Record]:
        outbox = self._source.outbox
        if outbox is not None and self._is_outbox[table.relation.oid]:
            return (outbox.record(table, change.new, moment, order),)
        return self._shape.insert(table, change, moment, order)

    def _truncated(self, lsn: int, oid: int) -> None:
        if oid not in self._tables or self._is_outbox[oid] or self._commit_lsn < self._read_as_of.get(oid, 0):
            return
        self._order += 1
        began = self._moment
        moment = Moment(began.transaction_id, began.commit_time_us, lsn)
        self._records.extend(self._shape.truncate(self._tables[oid], moment, self._order))

    def _learn(self, relation: Relation) -> None:
        """Before the first change of a table, and after each change of the table itself."""
        self._table(relation)

    def _table(self, relation: Relation) -> Table:
        outbox, source = self._source.outbox, self._source
        # Under REPLICA IDENTITY FULL every column counts as a key, so the catalog is asked.
        keys = (
            [column.name for column in relation.columns if column.is_key]
            if relation.replica_identity == "d"
            else self._database.key_columns(relation.oid)
        )
        is_outbox = outbox is not None and (relation.schema, relation.name) == _table_name(outbox.table)
        self._is_outbox[relation.oid] = is_outbox
        types: Callable[[int], Any] = self._database.type_info
        table = Table(relation, keys, source.topic_of(relation), types, debezium=source.is_debezium and not is_outbox)
        self._tables[relation.oid] = table
        return table
