"""The audit of a directory reports what is torn, hangs or was ended twice, and nothing else."""

import asyncio
from pathlib import Path

import pytest

from fencepost.coordinators.transactions.transaction_journal import TransactionJournal
from fencepost.coordinators.transactions.transaction_metadata import TransactionEntry, TransactionRecord
from fencepost.coordinators.transactions.transaction_states import TransactionState
from fencepost.insight.data_files import NotInspectable
from fencepost.insight.directory_facts import DirectoryFacts
from fencepost.insight.explanation import NothingKnown, PartitionsExplanation, Question, explain
from fencepost.insight.transaction_audit import TransactionAudit, audit_transactions
from fencepost.wire.batch import ControlType, build_batch, control_batch, read_header

PRODUCER = 7
COMMIT, ABORT = ControlType.COMMIT, ControlType.ABORT


class Directory:
    """A data directory written by hand, a batch at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ends: dict[str, int] = {}
        self._clock = 1_000_000

    def _append(self, name: str, batch: bytearray) -> None:
        directory = self.path / name
        directory.mkdir(exist_ok=True)
        with open(directory / f"{0:020}.log", "ab") as log:
            log.write(batch)
        self._ends[name] = read_header(batch).next_offset

    def _now(self) -> int:
        self._clock += 10
        return self._clock

    def records(self, name: str, count: int = 2, epoch: int = 0, producer_id: int = PRODUCER) -> None:
        rows = [(self._now(), b"key", b"value", ()) for _ in range(count)]
        batch = build_batch(
            rows, base_offset=self._ends.get(name, 0), producer_id=producer_id, producer_epoch=epoch, transactional=True
        )
        self._append(name, batch)

    def marker(self, name: str, kind: ControlType, epoch: int = 1, producer_id: int = PRODUCER) -> None:
        self._append(name, control_batch(kind, 0, producer_id, epoch, self._now(), self._ends.get(name, 0)))

    def state(self, state: TransactionState, epoch: int, *partitions: str, transactional_id: str = "shop") -> None:
        named = frozenset((each.rpartition("-")[0], int(each.rpartition("-")[2])) for each in partitions)
        start = -1 if state is TransactionState.EMPTY else self._clock
        record = TransactionRecord(PRODUCER, epoch, 60_000, state, named, start, self._clock)
        entry = TransactionJournal(lambda: 2).encode_entry(TransactionEntry(transactional_id, record))
        name = "__transaction_state-0"
        rows = [(self._now(), entry.key, entry.value, ())]
        self._append(name, build_batch(rows, base_offset=self._ends.get(name, 0)))

    def audit_transactions(self, who: str = "shop") -> TransactionAudit:
        return audit_transactions([self.path], who)


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    return Directory(tmp_path)


def kinds(audit: TransactionAudit) -> list[str]:
    return [finding.kind for finding in audit.findings]


def test_transactions_that_ended_alike_everywhere_are_sound(directory: Directory) -> None:
    directory.state(TransactionState.EMPTY, 0)
    for epoch, kind, prepared, complete in (
        (0, COMMIT, TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT),
        (1, ABORT, TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT),
    ):
        directory.state(TransactionState.ONGOING, epoch, "a-0", "b-0")
        for name in ("a-0", "b-0"):
            directory.records(name, epoch=epoch)
        directory.state(prepared, epoch + 1, "a-0", "b-0")
        for name in ("a-0", "b-0"):
            directory.marker(name, kind, epoch + 1)
        directory.state(complete, epoch + 1)
    audit = directory.audit_transactions()
    assert kinds(audit) == []
    assert [
        (str(each.partition), each.record_count, each.marker and each.marker.kind) for each in audit.transactions
    ] == [
        ("a-0", 2, "COMMIT"),
        ("b-0", 2, "COMMIT"),
        ("a-0", 2, "ABORT"),
        ("b-0", 2, "ABORT"),
    ]
    assert audit_transactions([directory.path], str(PRODUCER)).transactions == audit.transactions


def test_a_transaction_with_two_outcomes_is_torn(directory: Directory) -> None:
    for name, kind in (("a-0", COMMIT), ("b-0", ABORT)):
        directory.records(name)
        directory.marker(name, kind)
    (finding,) = directory.audit_transactions("*").findings
    assert finding.kind == "torn"
    assert "COMMIT in a-0, ABORT in b-0" in finding.text


def test_a_marker_against_the_coordinators_decision_is_torn(directory: Directory) -> None:
    directory.records("a-0")
    directory.state(TransactionState.PREPARE_ABORT, 1, "a-0")
    directory.marker("a-0", COMMIT)
    directory.state(TransactionState.COMPLETE_ABORT, 1)
    (finding,) = directory.audit_transactions().findings
    assert (finding.kind, finding.transactional_id) == ("torn", "shop")
    assert "the coordinator decided ABORT; COMMIT in a-0" in finding.text


def test_old_clients_use_one_epoch_for_many_transactions_and_are_not_accused(directory: Directory) -> None:
    """Their transactions cannot be told apart once the coordinator's records are compacted away."""
    for name, kind in (("a-0", COMMIT), ("b-0", ABORT), ("a-0", ABORT)):
        directory.records(name, epoch=3)
        directory.marker(name, kind, epoch=3)
    directory.state(TransactionState.COMPLETE_ABORT, 3)
    assert kinds(directory.audit_transactions()) == []


def test_what_its_coordinator_knows_is_open_and_what_it_does_not_know_hangs(directory: Directory) -> None:
    directory.state(TransactionState.EMPTY, 0)
    directory.records("a-0", count=3)
    directory.state(TransactionState.ONGOING, 0, "a-0")
    assert kinds(directory.audit_transactions()) == []
    directory.records("b-0", count=4)
    (finding,) = directory.audit_transactions().findings
    assert finding.kind == "hanging"
    assert "b-0 is open from 0 with 4 records" in finding.text
    directory.state(TransactionState.PREPARE_COMMIT, 1, "a-0")
    directory.marker("a-0", COMMIT)
    directory.state(TransactionState.COMPLETE_COMMIT, 1)
    assert kinds(directory.audit_transactions()) == ["hanging"]
    directory.records("c-0", producer_id=99)
    by_number = audit_transactions([directory.path], "99")
    assert "no transactional id has this producer id" in by_number.findings[0].text


def test_without_the_coordinators_log_nothing_is_said_to_hang(directory: Directory) -> None:
    directory.records("a-0")
    audit = directory.audit_transactions("*")
    assert (kinds(audit), audit.has_coordinator_log) == ([], False)


def test_a_transaction_ended_twice_is_told(directory: Directory) -> None:
    directory.records("a-0")
    directory.marker("a-0", COMMIT)
    directory.marker("a-0", COMMIT)
    (finding,) = directory.audit_transactions("*").findings
    assert finding.kind == "double-ended"
    assert "a-0 has COMMIT at 2 and COMMIT at 3, with no records between" in finding.text


def test_the_walk_stops_at_a_batch_that_is_broken(directory: Directory) -> None:
    directory.records("a-0")
    directory.marker("a-0", COMMIT)
    (log,) = (directory.path / "a-0").glob("*.log")
    log.write_bytes(log.read_bytes()[:-5])
    (found,) = directory.audit_transactions("*").transactions
    assert found.is_open


def test_a_directory_without_partitions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotInspectable):
        audit_transactions([tmp_path], "*")


def test_a_producer_without_an_id_is_explained_by_its_open_partitions(directory: Directory) -> None:
    directory.records("a-0")
    directory.records("b-0", producer_id=PRODUCER + 1)
    directory.marker("b-0", COMMIT, producer_id=PRODUCER + 1)
    source = DirectoryFacts(directory.path)
    explained = asyncio.run(explain(source, Question(None, PRODUCER)))
    assert isinstance(explained, PartitionsExplanation)
    assert [str(facts.partition) for facts, _ in explained.judged] == ["a-0"]
    assert explained.is_stuck
    with pytest.raises(NothingKnown, match="it has no open transaction in any partition"):
        asyncio.run(explain(source, Question(None, PRODUCER + 1)))
