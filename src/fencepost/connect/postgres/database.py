"""What a source asks of the database and changes in it, over an ordinary connection: catalog, publication, slot."""

import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import psycopg
from psycopg import sql

from fencepost.connect.errors import ConnectError, SourceRefused, SourceUnavailable
from fencepost.connect.postgres.decoding import Column, Relation
from fencepost.connect.postgres.lsn import parse_lsn
from fencepost.connect.postgres.stream import connect
from fencepost.connect.postgres.values import TypeInfo

TAKEOVER_SECONDS = 30.0
CHUNK_ROWS = 2_000


class Slot(NamedTuple):
    is_active: bool
    plugin: str
    database: str
    confirmed_lsn: int
    wal_status: str


class Database:
    """One connection, for one task."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._connection = connect(dsn)
        self._types: dict[int, TypeInfo] = {}

    def close(self) -> None:
        self._connection.close()

    def rows(self, query: Any, parameters: Sequence[Any] = ()) -> list[Any]:
        try:
            cursor = self._connection.execute(query, parameters or None)
            return cursor.fetchall() if cursor.description else []
        except psycopg.OperationalError as error:
            raise SourceUnavailable(f"the connection to the database is lost: {error}") from None
        except psycopg.Error as error:
            raise SourceRefused(
                f"the database refuses: {str(error).strip()}", "see the role in docs/sources.md, then start again"
            ) from None

    # The catalog

    def wal_level(self) -> str:
        level: str = self.rows("SELECT current_setting('wal_level')")[0][0]
        return level

    def type_info(self, oid: int) -> TypeInfo:
        found = self._types.get(oid)
        if found is None:
            rows = self.rows(
                "SELECT oid::int8, typname, typtype::text, CASE WHEN typcategory = 'A' THEN typelem::int8 ELSE 0 END, "
                "typbasetype::int8, typtypmod FROM pg_type WHERE oid = %s",
                (oid,),
            )
            # A type that was dropped since: its values stay readable as text.
            found = self._types[oid] = TypeInfo(*rows[0]) if rows else TypeInfo(oid, "text", "b", 0, 0)
        return found

    def relation(self, schema: str, name: str) -> Relation | None:
        """As pgoutput would describe it; None if there is no such table."""
        tables = self.rows(
            "SELECT c.oid::int8, c.relreplident::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE n.nspname = %s AND c.relname = %s AND c.relkind IN ('r', 'p')",
            (schema, name),
        )
        if not tables:
            return None
        oid, identity = tables[0]
        keys = self.key_columns(oid)
        columns = self.rows(
            "SELECT attname, atttypid::int8, atttypmod FROM pg_attribute WHERE attrelid = %s::oid AND attnum > 0 "
            "AND NOT attisdropped AND attgenerated = '' ORDER BY attnum",
            (oid,),
        )
        return Relation(
            oid, schema, name, identity, tuple(Column(each[0], each[0] in keys, *each[1:]) for each in columns)
        )

    def key_columns(self, oid: int) -> list[str]:
        """The primary key; without one, the unique index that is the replica identity."""
        rows = self.rows(
            "SELECT a.attname, i.indisprimary FROM pg_index i "
            "CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY k(n, o) "
            "JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.n "
            "WHERE i.indrelid = %s::oid AND (i.indisprimary OR i.indisreplident) ORDER BY k.o",
            (oid,),
        )
        primary = [name for name, is_primary in rows if is_primary]
        return primary or [name for name, _ in rows]

    # The publication

    def published(self, publication: str) -> set[tuple[str, str]] | None:
        """Its tables; None if there is no such publication."""
        if not self.rows("SELECT 1 FROM pg_publication WHERE pubname = %s", (publication,)):
            return None
        return {
            (schema, name)
            for schema, name in self.rows(
                "SELECT schemaname, tablename FROM pg_publication_tables WHERE pubname = %s", (publication,)
            )
        }

    def publish(self, publication: str, tables: Sequence[tuple[str, str]], *, is_new: bool) -> None:
        listed = sql.SQL(", ").join(sql.Identifier(*table) for table in tables)
        name = sql.Identifier(publication)
        if is_new:
            # Changes of partitions come as changes of the table that people know.
            statement = sql.SQL("CREATE PUBLICATION {} FOR TABLE {} WITH (publish_via_partition_root = true)")
        else:
            statement = sql.SQL("ALTER PUBLICATION {} ADD TABLE {}")
        self.rows(statement.format(name, listed))

    def drop_publication(self, publication: str) -> None:
        self.rows(sql.SQL("DROP PUBLICATION IF EXISTS {}").format(sql.Identifier(publication)))

    # The slot

    def slot(self, name: str) -> Slot | None:
        rows = self.rows(
            "SELECT active, plugin, database, confirmed_flush_lsn::text, coalesce(wal_status, '') "
            "FROM pg_replication_slots WHERE slot_name = %s",
            (name,),
        )
        if not rows:
            return None
        active, plugin, database, confirmed, status = rows[0]
        return Slot(active, plugin or "", database or "", parse_lsn(confirmed or "0/0"), status)

    def release_slot(self, name: str) -> bool:
        """End the walsender that reads the slot. True if there was one."""
        deadline = time.monotonic() + TAKEOVER_SECONDS
        was_active = False
        while True:
            rows = self.rows(
                "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots "
                "WHERE slot_name = %s AND active_pid IS NOT NULL",
                (name,),
            )
            if not rows:
                return was_active
            was_active = True
            if time.monotonic() > deadline:
                raise SourceUnavailable(f"the slot {name} is still taken by another process")
            time.sleep(0.05)

    def drop_slot(self, name: str) -> None:
        self.release_slot(name)
        self.rows("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s", (name,))

    # The snapshot

    def snapshot_rows(self, relation: Relation, snapshot: str) -> Iterator[list[list[bytes | None]]]:
        """The rows of a table as an exported snapshot has them, in chunks, on a connection of its own."""
        columns = sql.SQL(", ").join(sql.Identifier(column.name) for column in relation.columns)
        query = sql.SQL("COPY (SELECT {} FROM {}) TO STDOUT").format(
            columns, sql.Identifier(relation.schema, relation.name)
        )
        with connect(self._dsn) as connection:
            try:
                connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(snapshot))
                chunk: list[list[bytes | None]] = []
                with connection.cursor().copy(query) as copy:
                    for row in copy.rows():
                        chunk.append([None if each is None else _bytes(each) for each in row])
                        if len(chunk) >= CHUNK_ROWS:
                            yield chunk
                            chunk = []
                if chunk:
                    yield chunk
            except psycopg.OperationalError as error:
                raise SourceUnavailable(f"the snapshot was interrupted: {error}") from None
            except psycopg.Error as error:
                raise ConnectError(
                    f"cannot read {relation.schema}.{relation.name}: {str(error).strip()}",
                    "grant SELECT on it to the role, see docs/sources.md",
                ) from None


def _bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)
