"""Group offsets: they advance if and only if the outputs of their transaction are visible.

A group's offset of a partition is a register. A fetch must find the last write that certainly came before,
or one that may have come after that; never one of an aborted transaction, and never one that was not written.
"""

from collections import defaultdict

from fencepost.history.evidence import Evidence
from fencepost.history.findings import Findings
from fencepost.history.operations import NEVER, Operation, Outcome

Register = tuple[str, str]
"""Group and partition."""


class GroupOffsets:
    def __init__(self, evidence: Evidence) -> None:
        self.writes: dict[Register, dict[int, list[Operation]]] = defaultdict(dict)
        """By offset, everyone who tried to commit it."""
        self.fetches: dict[Register, list[tuple[Operation, int | None]]] = defaultdict(list)
        self.read_by: dict[int, Operation] = {}
        """Transactions, by number, whose offsets were fetched and cannot have been written by others."""
        for operation in evidence.history.operations:
            # Of several offsets for one partition the last counts.
            last = {(group, partition): offset for group, partition, offset in operation.commits}
            for register, offset in last.items():
                self.writes[register].setdefault(offset, []).append(operation)
            if operation.outcome is Outcome.OK:
                for group, partition, fetched in operation.fetched:
                    self.fetches[group, partition].append((operation, fetched))
        self._note_proofs()

    def _note_proofs(self) -> None:
        for register, fetches in self.fetches.items():
            writes = self.writes.get(register, {})
            for reader, offset in fetches:
                writers = [] if offset is None else writes.get(offset, [])
                possible = [each for each in writers if each.outcome is not Outcome.FAIL]
                if len(possible) != 1 or possible[0].invoked > reader.completed:
                    continue
                writer = possible[0]
                self.read_by.setdefault(writer.number, reader)
                writer.prove(reader)

    def check(self, findings: Findings) -> None:
        for register, fetches in self.fetches.items():
            writes = self.writes.get(register)
            if writes:
                _check_register(register, writes, fetches, findings)


def _check_register(
    register: Register,
    writes: dict[int, list[Operation]],
    fetches: list[tuple[Operation, int | None]],
    findings: Findings,
) -> None:
    written = {operation.number: offset for offset, operations in writes.items() for operation in operations}
    certain = [each for operations in writes.values() for each in operations if each.due_at != NEVER]
    certain.sort(key=lambda operation: operation.due_at)
    newest: Operation | None = None
    newest_of: dict[str | None, Operation] = {}
    at = 0
    for reader, found in sorted(fetches, key=lambda fetch: fetch[0].invoked):
        while at < len(certain) and certain[at].due_at < reader.invoked:
            writer = certain[at]
            at += 1
            if newest is None or writer.invoked > newest.invoked:
                newest = writer
            same = newest_of.get(writer.transactional_id)
            if same is None or writer.invoked > same.invoked:
                newest_of[writer.transactional_id] = writer
        tried = [] if found is None else writes.get(found, [])
        writers = [each for each in tried if each.invoked < reader.completed]
        possible = [each for each in writers if each.outcome is not Outcome.FAIL]
        if found is not None and not possible:
            _tell_unwritten(register, found, writers, reader, findings)
        elif newest is not None:
            superseded = [_superseded(each, newest, newest_of) for each in possible]
            if all(superseded):
                by = max((each for each in superseded if each), key=lambda each: each.invoked, default=newest)
                _tell_stale(register, found, by, written[by.number], reader, findings)


def _superseded(writer: Operation, newest: Operation, newest_of: dict[str | None, Operation]) -> Operation | None:
    """The certain write that came after this one, if any certainly did."""
    if writer.outcome is Outcome.OK and writer.completed < newest.invoked:
        return newest
    # One holder of a transactional id after the other: the next waits for the transaction of the last.
    same = newest_of.get(writer.transactional_id) if writer.transactional_id is not None else None
    return same if same is not None and same.invoked > writer.invoked else None


def _tell_unwritten(
    register: Register, offset: int, writers: list[Operation], reader: Operation, findings: Findings
) -> None:
    group, partition = register
    if any(each.is_transaction for each in writers):
        findings.add(
            "offsets-without-outputs",
            f"{reader.process} fetched offset {offset} of {partition} for {group}, which only an aborted transaction "
            f"of {writers[0].process} committed",
            *writers[:2],
            reader,
            partition=partition,
        )
        return
    findings.add(
        "phantom-offset",
        f"{reader.process} fetched offset {offset} of {partition} for {group}, which nobody had committed",
        *writers[:1],
        reader,
        partition=partition,
    )


def _tell_stale(
    register: Register, offset: int | None, by: Operation, expected: int, reader: Operation, findings: Findings
) -> None:
    group, partition = register
    found = "no offset" if offset is None else f"offset {offset}"
    findings.add(
        "outputs-without-offsets" if by.sends else "lost-offset-commit",
        f"{reader.process} fetched {found} of {partition} for {group} after {by.process} had committed {expected}",
        by,
        by.proof if by.outcome is Outcome.INFO else None,
        reader,
        partition=partition,
    )
