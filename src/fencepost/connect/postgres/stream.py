"""The replication connection: commands of the walsender, and the stream of a slot.

psycopg 3 has no class for it, but its `pq` layer has what libpq has, and that is enough. What the server hears of is
decided here alone: nothing is acknowledged because a message was read.
"""

import select
import struct
import time
from typing import Any, NamedTuple

import psycopg
from psycopg import pq

from fencepost.connect.errors import SourceRefused, SourceUnavailable
from fencepost.connect.postgres.lsn import lsn_text
from fencepost.connect.postgres.shapes import POSTGRES_EPOCH_US

# Values come as text, and this is how it is written.
SESSION = "-c datestyle=ISO -c timezone=UTC -c intervalstyle=postgres -c bytea_output=hex -c extra_float_digits=3"
STATUS_SECONDS = 5.0
CONNECT_TIMEOUT_SECONDS = 10
_FOR_NOW = frozenset({"55006", "42710"})
"""A slot that another process still reads, or that another task has just made."""
_CLASSES_FOR_NOW = ("08", "57")
"""Connections, and a server that starts or stops."""
_STATUS = struct.Struct(">cqqqqb")
_DATA_HEAD, _KEEPALIVE = struct.Struct(">qqq"), struct.Struct(">qqb")


class Received(NamedTuple):
    lsn: int
    data: bytes


class Identity(NamedTuple):
    """What IDENTIFY_SYSTEM says."""

    system: str
    timeline: int
    flushed_lsn: str
    database: str


def connect(dsn: str, **parameters: str) -> "psycopg.Connection[Any]":
    """A connection whose values look as the decoders expect. The error of a failed one holds no password."""
    try:
        return psycopg.connect(
            dsn,
            autocommit=True,
            options=SESSION,
            client_encoding="UTF8",
            connect_timeout=CONNECT_TIMEOUT_SECONDS,
            application_name="fencepost connect",
            **parameters,  # type: ignore[arg-type] # any of libpq's
        )
    except psycopg.OperationalError as error:
        raise SourceUnavailable(f"cannot connect to the database: {error}") from None


class ReplicationStream:
    """One walsender. Not for several threads."""

    def __init__(self, dsn: str) -> None:
        self._connection = connect(dsn, replication="database")
        self._pg: Any = self._connection.pgconn
        self._acknowledged = 0
        self._told_at = 0.0
        self.server_lsn = 0
        """How far the server's log is, as it said last."""
        self.idle_lsn = 0
        """Everything before this was sent, said by a keepalive; 0 after each message."""

    def close(self) -> None:
        self._connection.close()

    # Commands

    def identify(self) -> Identity:
        (row,) = self._command("IDENTIFY_SYSTEM")
        return Identity(row[0], int(row[1]), row[2], row[3])

    def create_slot(self, name: str, *, is_temporary: bool = False) -> tuple[str, str]:
        """From which LSN on the slot has changes, and a snapshot of what was before, good until the next command."""
        kind = "TEMPORARY " if is_temporary else ""
        (row,) = self._command(f"CREATE_REPLICATION_SLOT {quoted(name)} {kind}LOGICAL pgoutput (SNAPSHOT 'export')")
        return row[1], row[2]

    def start(self, slot: str, publication: str, lsn: int) -> None:
        publications = quoted(publication).replace("'", "''")
        result = self._pg.exec_(
            f"START_REPLICATION SLOT {quoted(slot)} LOGICAL {lsn_text(lsn)} "
            f"(proto_version '1', publication_names '{publications}')".encode()
        )
        if result.status != pq.ExecStatus.COPY_BOTH:
            self._check_for_now(result, "START_REPLICATION")
            message = result.get_error_message()
            raise SourceRefused(f"the slot {slot} cannot be read from {lsn_text(lsn)}: {message}")
        self._acknowledged = lsn

    def _check_for_now(self, result: Any, command: str) -> None:
        """Raise for a failure that may be over the next time. Messages are translated, so the SQLSTATE decides."""
        state = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
        is_lost = self._pg.status == pq.ConnStatus.BAD
        if is_lost or state in _FOR_NOW or state.startswith(_CLASSES_FOR_NOW):
            raise SourceUnavailable(f"{command} failed: {result.get_error_message()}")

    def _command(self, text: str) -> list[list[str]]:
        command = text.split(" ", 1)[0]
        try:
            result = self._pg.exec_(text.encode())
        except psycopg.Error as error:
            raise SourceUnavailable(f"the connection to the database is lost: {error}") from None
        if result.status != pq.ExecStatus.TUPLES_OK:
            self._check_for_now(result, command)
            raise SourceRefused(
                f"the database refuses {command}: {result.get_error_message()}",
                "see the role, wal_level and max_replication_slots in docs/sources.md",
            )
        return [
            [(result.get_value(row, column) or b"").decode() for column in range(result.nfields)]
            for row in range(result.ntuples)
        ]

    # The stream

    def read(self, timeout_seconds: float) -> Received | None:
        """The next message, waiting so long at most."""
        deadline = time.monotonic() + timeout_seconds
        while True:
            received = self._read_now()
            if received is not None:
                return received
            self._tell_in_time()
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            try:
                select.select([self._pg.socket], [], [], min(left, 1.0))
                self._pg.consume_input()
            except psycopg.Error as error:
                raise SourceUnavailable(f"the connection to the database is lost: {error}") from None

    def _read_now(self) -> Received | None:
        """A message that is here already."""
        while True:
            try:
                size, content = self._pg.get_copy_data(1)
            except psycopg.Error as error:
                raise SourceUnavailable(f"the database ended the stream: {error}") from None
            if size == 0:
                return None
            if size < 0:
                raise SourceUnavailable(f"the database ended the stream {self._pg.get_error_message()}".rstrip())
            kind = content[0]
            if kind == 119:  # w: data
                lsn, server_lsn, _ = _DATA_HEAD.unpack_from(content, 1)
                self.server_lsn = max(self.server_lsn, server_lsn)
                self.idle_lsn = 0
                return Received(lsn, bytes(content[25:]))
            if kind == 107:  # k: keepalive
                end, _, wants_answer = _KEEPALIVE.unpack_from(content, 1)
                self.server_lsn = max(self.server_lsn, end)
                self.idle_lsn = end
                if wants_answer:
                    self._tell()

    def acknowledge(self, lsn: int) -> None:
        """The server may forget everything before this."""
        self._acknowledged = max(self._acknowledged, lsn)
        self._tell()

    def _tell_in_time(self) -> None:
        if time.monotonic() - self._told_at > STATUS_SECONDS:
            self._tell()

    def _tell(self) -> None:
        now_us = int(time.time() * 1_000_000) - POSTGRES_EPOCH_US
        lsn = self._acknowledged
        try:
            self._pg.put_copy_data(_STATUS.pack(b"r", lsn, lsn, lsn, now_us, 0))
            self._pg.flush()
        except psycopg.Error as error:
            raise SourceUnavailable(f"the connection to the database is lost: {error}") from None
        self._told_at = time.monotonic()


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
