"""Values in a log: each appears once, at one offset, was sent by some process, and is committed when it is read."""

import json

from fencepost.history.evidence import Entry, Evidence, PartitionEvidence
from fencepost.history.findings import Findings
from fencepost.history.operations import NEVER, Outcome, Value


def check_values(evidence: Evidence, findings: Findings) -> None:
    for partition in evidence.partitions.values():
        _inconsistent_offsets(partition, findings)
        _duplicates(partition, findings)
        for entry in partition.entries.values():
            if entry.value not in partition.attempts:
                _without_writer(evidence, partition, entry, findings)
            elif all(entry.place < send.operation.invoked for send in partition.tries(entry.value)):
                _before_its_send(partition, entry, findings)
            elif entry.send is not None:
                _premature(partition.name, entry, findings)


def quote(value: Value) -> str:
    return json.dumps(value, ensure_ascii=False)


def _inconsistent_offsets(partition: PartitionEvidence, findings: Findings) -> None:
    for offset, told in partition.conflicts.items():
        for (one, other), (first, second) in told.items():
            findings.add(
                "inconsistent-offsets",
                f"offset {offset} of {partition.name} is {quote(one)} to {first.process} and {quote(other)} to "
                f"{second.process}",
                first,
                second,
                partition=partition.name,
                values=(one, other),
            )
    for entry, send in partition.misread:
        findings.add(
            "inconsistent-offsets",
            f"{quote(entry.value)} was acknowledged at offset {send.offset} of {partition.name} and read at "
            f"{entry.offset}",
            send.operation,
            entry.read_by,
            partition=partition.name,
            values=(entry.value,),
        )


def _duplicates(partition: PartitionEvidence, findings: Findings) -> None:
    everywhere: dict[Value, list[Entry]] = {}
    for entry in partition.entries.values():
        everywhere.setdefault(entry.value, []).append(entry)
    for value, entries in everywhere.items():
        if len(entries) == 1:
            continue
        # Readers of uncommitted values see each attempt to write one.
        committed = [entry for entry in entries if entry.committed_by is not None]
        if len(committed) < 2 and len(entries) <= len(list(partition.tries(value))):
            continue
        shown = committed if len(committed) > 1 else entries
        offsets = sorted(entry.offset for entry in shown)
        findings.add(
            "duplicate",
            f"{quote(value)} stands at offsets {', '.join(map(str, offsets))} of {partition.name}",
            *(send.operation for send in list(partition.tries(value))[:2]),
            *(entry.committed_by or entry.read_by for entry in shown[:2]),
            partition=partition.name,
            values=(value,),
        )


def _without_writer(evidence: Evidence, partition: PartitionEvidence, entry: Entry, findings: Findings) -> None:
    # A partition that nobody is recorded to write to, such as a pipeline's input, was written by others.
    if not partition.attempts:
        return
    elsewhere = next((other for other in evidence.partitions.values() if entry.value in other.attempts), None)
    where = "" if elsewhere is None else f"; it was sent to {elsewhere.name}"
    findings.add(
        "phantom-read",
        f"{entry.read_by.process} read {quote(entry.value)} at offset {entry.offset} of {partition.name}, where nobody "
        f"sent it{where}",
        entry.read_by,
        None if elsewhere is None else elsewhere.attempts[entry.value].operation,
        partition=partition.name,
        values=(entry.value,),
    )


def _before_its_send(partition: PartitionEvidence, entry: Entry, findings: Findings) -> None:
    writer = partition.attempts[entry.value].operation
    findings.add(
        "phantom-read",
        f"{entry.read_by.process} read {quote(entry.value)} at offset {entry.offset} of {partition.name} before "
        f"{writer.process} sent it",
        entry.read_by,
        writer,
        partition=partition.name,
        values=(entry.value,),
    )


def _premature(name: str, entry: Entry, findings: Findings) -> None:
    """Reads of what was not committed yet, or never."""
    assert entry.send is not None
    writer = entry.send.operation
    value = quote(entry.value)
    reader = entry.committed_by
    if reader is None:
        return
    if writer.outcome is Outcome.FAIL:
        what = "aborted" if writer.is_transaction else "failed"
        findings.add(
            "aborted-read",
            f"{reader.process} read {value} at offset {entry.offset} of {name}, but {writer.process}'s write {what}",
            writer,
            reader,
            partition=name,
            values=(entry.value,),
        )
    elif writer.is_transaction and (
        reader is writer or (writer.ending != NEVER and entry.committed_place < writer.ending)
    ):
        when = "within the transaction itself" if reader is writer else f"before {writer.process} asked to commit it"
        findings.add(
            "precommitted-read",
            f"{reader.process} read {value} at offset {entry.offset} of {name} {when}",
            writer,
            reader,
            partition=name,
            values=(entry.value,),
        )
