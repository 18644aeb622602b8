"""What the auditor's slot says was committed, what read_committed readers see, and what the log files hold."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from fencepost.wire.batch import ControlType, iterate_headers, read_marker
from fencepost.wire.records import read_records
from tests.connect.reading import committed
from tests.peers.postgres import Postgres

AUDITOR = "auditor"
_CHANGE = re.compile(
    r"table public\.(\w+): (INSERT|UPDATE|DELETE): (?:\(no-tuple-data\)|id\[integer\]:(\d+))(?:.*?n\[integer\]:(\d+))?"
)
OPERATIONS = {"INSERT": "c", "UPDATE": "u", "DELETE": "d"}
_VALUE = re.compile(rb'"n":(\d+)')
_KEY = re.compile(rb'"id":(\d+)')


class Change(NamedTuple):
    transaction: str
    operation: str
    id: int
    n: int | None
    """None after a delete."""


@dataclass
class Verdict:
    changes: int
    transactions: int
    lost: int = 0
    twice: int = 0
    disordered: list[str] = field(default_factory=list)
    torn: int = 0
    aborted_batches: int = 0
    kafka_transactions: int = 0

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.twice or self.disordered or self.torn)


def create_auditor(database: Postgres) -> None:
    database.rows(f"SELECT pg_create_logical_replication_slot('{AUDITOR}', 'test_decoding')")


def audited(database: Postgres) -> dict[str, list[Change]]:
    """By table, in the order of commits."""
    found: dict[str, list[Change]] = defaultdict(list)
    transaction = ""
    for (line,) in database.rows(f"SELECT data FROM pg_logical_slot_peek_changes('{AUDITOR}', NULL, NULL)"):
        if line.startswith("BEGIN"):
            transaction = line.split()[1]
        elif (change := _CHANGE.match(line)) is not None:
            table, kind, row, n = change.groups()
            found[table].append(Change(transaction, OPERATIONS[kind], int(row), None if n is None else int(n)))
    return found


def seen(servers: str, topic: str) -> list[tuple[int, Change]]:
    """With the partition."""
    changes = []
    for record in committed(servers, topic):
        headers = dict(record.headers)
        key, value = _KEY.search(record.key or b""), _VALUE.search(record.value or b"")
        assert key is not None
        transaction, operation = (headers["transaction.id"] or b"").decode(), (headers["op"] or b"").decode()
        n = None if value is None else int(value[1])
        changes.append((record.partition, Change(transaction, operation, int(key[1]), n)))
    return changes


def judge(database: Postgres, servers: str, data_directory: Path, tables: Sequence[str], source: str) -> Verdict:
    wanted = audited(database)
    verdict = Verdict(
        sum(map(len, wanted.values())), len({each.transaction for changes in wanted.values() for each in changes})
    )
    for table in tables:
        found = seen(servers, f"{source}.public.{table}")
        _compare(table, wanted[table], found, verdict)
    _look_for_torn(data_directory, [f"{source}.public.{table}" for table in tables], verdict)
    return verdict


def _compare(table: str, wanted: list[Change], found: list[tuple[int, Change]], verdict: Verdict) -> None:
    counts: dict[Change, int] = defaultdict(int)
    for change in wanted:
        counts[change] += 1
    for _, change in found:
        counts[change] -= 1
    verdict.lost += sum(count for count in counts.values() if count > 0)
    verdict.twice -= sum(count for count in counts.values() if count < 0)
    # Within a partition the order is that of the commits, over all keys that are in it.
    place = {change.id: partition for partition, change in found}
    for partition in sorted({partition for partition, _ in found}):
        ours = [change for at, change in found if at == partition]
        theirs = [change for change in wanted if place.get(change.id) == partition]
        if ours != theirs:
            verdict.disordered.append(f"{table}-{partition}")


def _look_for_torn(data_directory: Path, topics: Sequence[str], verdict: Verdict) -> None:
    """Every record of a source transaction carries one producer id and epoch, in all partitions, and ends committed."""
    kafka: dict[str, set[tuple[int, int]]] = defaultdict(set)
    for directory in sorted(data_directory.iterdir()):
        if directory.name.rpartition("-")[0] in topics:
            for transaction, identity in _ended(directory, verdict):
                kafka[transaction].add(identity)
    verdict.torn = sum(len(identities) > 1 for identities in kafka.values())
    verdict.kafka_transactions = len({identity for identities in kafka.values() for identity in identities})


def _ended(directory: Path, verdict: Verdict) -> Iterator[tuple[str, tuple[int, int]]]:
    open_now: dict[int, list[tuple[str, tuple[int, int]]]] = defaultdict(list)
    for segment in sorted(directory.glob("*.log")):
        data = segment.read_bytes()
        for at, header in iterate_headers(data):
            if not header.is_control:
                identity = header.producer_id, header.producer_epoch
                for record in read_records(data, 2**30, at):
                    transaction = (dict(record.headers)["transaction.id"] or b"").decode()
                    open_now[header.producer_id].append((transaction, identity))
                continue
            marker = read_marker(data, at)
            ended = open_now.pop(header.producer_id, [])
            if marker is not None and marker.control_type == ControlType.COMMIT:
                yield from set(ended)
            else:
                verdict.aborted_batches += bool(ended)
