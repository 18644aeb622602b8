"""Missing values: lost writes, unseen writes, torn transactions, offsets without outputs.

A value must be readable if its send was acknowledged outside a transaction, or if its transaction was committed:
because the commit was acknowledged, or because another part of it was seen. It is missing if readers passed the
place where it should be, or if the final read of its partition, begun later, does not have it.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from fencepost.history.checks.order import Passage
from fencepost.history.checks.read_values import quote
from fencepost.history.evidence import Entry, Evidence, PartitionEvidence
from fencepost.history.findings import Findings
from fencepost.history.operations import READ_COMMITTED, READ_UNCOMMITTED, Kind, Operation, Outcome, Send, Value


@dataclass(slots=True)
class FinalRead:
    """The last complete reading of one partition at one isolation level."""

    operation: Operation
    start: int
    values: set[Value]
    end: int

    def expects(self, place: int, offset: int | None) -> bool:
        """Whether a value known at this point of the history must be in it."""
        return place < self.operation.invoked and (offset is None or offset >= self.start)


@dataclass(slots=True)
class Missing:
    send: Send
    is_behind: bool
    """Readers got a later value."""
    seen_by: Operation | None
    witness: Operation | None
    """The reader that should have got it."""


def find_final_reads(operations: Iterable[Operation]) -> dict[tuple[str, str], FinalRead]:
    found: dict[tuple[str, str], FinalRead] = {}
    for operation in operations:
        if operation.kind is not Kind.FINAL_READ or operation.outcome is not Outcome.OK:
            continue
        for name, start in operation.final_partitions.items():
            pairs = [pair for poll in operation.polls for pair in poll.get(name, ())]
            end = max((int(offset) for offset, _ in pairs), default=-1)
            found[name, operation.isolation] = FinalRead(operation, start, {value for _, value in pairs}, end)
    return found


def check_missing(
    evidence: Evidence,
    passage: Passage,
    proven_by_offsets: dict[int, Operation],
    findings: Findings,
) -> set[tuple[str, int]]:
    """Returns the places (partition, offset) of what is missing. `proven_by_offsets` gives, by number, the transactions
    whose offsets somebody fetched."""
    finals = find_final_reads(evidence.history.operations)
    gone = _vanished(evidence, finals, findings)
    missing: set[tuple[str, int]] = {(entry_at, offset) for entry_at, offset in gone.places}
    for operation in evidence.history.operations:
        if not operation.sends or not operation.is_committed:
            continue
        if operation.outcome is not Outcome.OK and not operation.is_transaction:
            continue  # independent sends: one proves nothing about another
        lost = [found for send in operation.sends if (found := _missing(send, evidence, passage, finals, gone))]
        if lost:
            missing.update((each.send.partition, each.send.offset) for each in lost if each.send.offset is not None)
            _tell(operation, lost, proven_by_offsets.get(operation.number), evidence, findings)
    return missing


@dataclass(slots=True)
class _Gone:
    places: set[tuple[str, int]]
    by_send: dict[int, tuple[Operation, Operation]]
    """id of the send to (who read it once, whose final read does not have it)"""


def _vanished(evidence: Evidence, finals: dict[tuple[str, str], FinalRead], findings: Findings) -> _Gone:
    """What a read_committed reader got once and the final read does not have."""
    gone = _Gone(set(), {})
    for (name, isolation), final in finals.items():
        partition = evidence.partitions.get(name)
        if partition is None or isolation != READ_COMMITTED:
            continue
        for entry in partition.entries.values():
            reader = entry.committed_by
            if reader is None or entry.value in final.values or partition.may_be_gone(entry.offset):
                continue
            if not final.expects(entry.committed_place, entry.offset):
                continue
            gone.places.add((name, entry.offset))
            send = entry.send
            if send is None or not send.operation.is_committed or not _counts_together(send):
                _tell_lost(partition, entry, reader, final, findings)
            else:
                gone.by_send[id(send)] = (reader, final.operation)
    return gone


def _counts_together(send: Send) -> bool:
    return send.operation.outcome is Outcome.OK or send.operation.is_transaction


def _tell_lost(
    partition: PartitionEvidence, entry: Entry, reader: Operation, final: FinalRead, findings: Findings
) -> None:
    findings.add(
        "lost-write",
        f"{quote(entry.value)} at offset {entry.offset} of {partition.name} was read by {reader.process} and is gone",
        None if entry.send is None else entry.send.operation,
        reader,
        final.operation,
        partition=partition.name,
        values=(entry.value,),
    )


def _missing(
    send: Send,
    evidence: Evidence,
    passage: Passage,
    finals: dict[tuple[str, str], FinalRead],
    gone: _Gone,
) -> Missing | None:
    name, offset = send.partition, send.offset
    vanished = gone.by_send.get(id(send))
    if vanished is not None:
        return Missing(send, True, *vanished)
    partition = evidence.partitions[name]
    if partition.may_be_gone(offset):
        return None
    entry = None if offset is None else partition.entries.get(offset)
    if offset is not None and offset in partition.conflicts:
        return None  # reported as inconsistent offsets
    for isolation in (READ_COMMITTED, READ_UNCOMMITTED):
        is_seen = entry is not None and (isolation == READ_UNCOMMITTED or entry.committed_by is not None)
        if is_seen:
            continue
        final = finals.get((name, isolation))
        if final is not None and send.value not in final.values and final.expects(send.operation.due_at, offset):
            return Missing(send, offset is not None and offset < final.end, None, final.operation)
        if offset is not None and offset in passage.stretches[name, isolation]:
            witness = _next_reader(partition, offset) or passage.denied_to(name, offset)
            return Missing(send, True, None, witness)
    return None


def _next_reader(partition: PartitionEvidence, offset: int) -> Operation | None:
    later = min((each for each in partition.entries if each > offset), default=None)
    return None if later is None else partition.entries[later].read_by


def _tell(
    operation: Operation,
    lost: list[Missing],
    offsets_read_by: Operation | None,
    evidence: Evidence,
    findings: Findings,
) -> None:
    names = ", ".join(f"{quote(each.send.value)} in {each.send.partition}" for each in lost[:3])
    names += f" and {len(lost) - 3} more" if len(lost) > 3 else ""
    first = lost[0]
    values = tuple(each.send.value for each in lost)
    if offsets_read_by is not None:
        findings.add(
            "offsets-without-outputs",
            f"the offsets of a transaction of {operation.process} count for {offsets_read_by.process}, but of its "
            f"outputs {names} cannot be read",
            operation,
            offsets_read_by,
            first.witness,
            partition=first.send.partition,
            values=values,
        )
        return
    others = {id(each.send) for each in lost}
    seen = [send for send in operation.sends if id(send) not in others]
    seen = [send for send in seen if _committed_reader(send, evidence) is not None]
    if operation.is_transaction and seen:
        part = seen[0]
        findings.add(
            "torn-transaction",
            f"{quote(part.value)} in {part.partition} was read, but of the same transaction of {operation.process} "
            f"{names} cannot be read",
            operation,
            _committed_reader(part, evidence),
            first.witness,
            partition=first.send.partition,
            values=values,
        )
        return
    for each in lost:
        send = each.send
        where = send.partition if send.offset is None else f"offset {send.offset} of {send.partition}"
        if each.seen_by is not None:
            how = f"was read by {each.seen_by.process} and is gone"
        elif each.is_behind:
            how = "was acknowledged, and readers who passed it did not get it"
        else:
            how = "was acknowledged, and the final read ends without it"
        findings.add(
            "lost-write" if each.is_behind else "unseen",
            f"{quote(send.value)} at {where} {how}",
            operation,
            each.seen_by,
            each.witness,
            partition=send.partition,
            values=(send.value,),
        )


def _committed_reader(send: Send, evidence: Evidence) -> Operation | None:
    if send.offset is None:
        return None
    entry = evidence.partitions[send.partition].entries.get(send.offset)
    return entry.committed_by if entry is not None and entry.value == send.value else None
