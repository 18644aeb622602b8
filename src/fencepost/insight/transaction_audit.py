"""Audits the transactions of one producer, or of all, in every partition of a data directory.

Three faults never occur in a healthy log: a transaction that ended differently in two partitions (torn), one that no
coordinator will ever end (hanging), one that was ended twice in a partition (double-ended). Each is reported only if
the files prove it. Old clients use one epoch for many transactions, and compaction removes coordinator records, so
ambiguous cases are not reported.
"""

import dataclasses
import itertools
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fencepost.insight.data_files import partitions_at
from fencepost.insight.partition_scan import PartitionScan, PartitionTransaction
from fencepost.insight.segment_file import SegmentFile
from fencepost.insight.state_changes import COMPLETE, ONGOING, PREPARED, StateChange, read_state_change
from fencepost.internal_topic_names import CLUSTER_METADATA, TRANSACTION_STATE
from fencepost.log.side_files import parse_partition_directory_name
from fencepost.topic_partition import TopicPartition
from fencepost.wire.errors import MalformedMessage

EVERY_PRODUCER = "*"


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    kind: str
    """torn, hanging or double-ended"""
    producer_id: int
    transactional_id: str | None
    text: str


@dataclasses.dataclass(slots=True)
class TransactionAudit:
    """The transactions of the requested producers in a directory, and the faults found."""

    transactions: list[PartitionTransaction]
    changes: list[StateChange]
    findings: list[Finding]
    has_coordinator_log: bool

    def document(self) -> dict[str, Any]:
        return {
            "partition_transactions": [each.document() for each in self.transactions],
            "state_changes": [each.document() for each in self.changes],
            "findings": [dataclasses.asdict(each) for each in self.findings],
            "has_transaction_state": self.has_coordinator_log,
        }


def audit_transactions(paths: Iterable[Path], who: str) -> TransactionAudit:
    """`who` is a transactional id, a producer id, or `*` for every producer."""
    directories = [directory for path in paths for directory in partitions_at(path)]
    changes: list[StateChange] = []
    scans: list[PartitionScan] = []
    has_coordinator_log = False
    for directory in directories:
        named = parse_partition_directory_name(directory.name)
        if named is None or named[0] == CLUSTER_METADATA:
            continue
        if named[0] == TRANSACTION_STATE:
            has_coordinator_log = True
            changes += _state_changes(directory)
        else:
            scans.append(scan_directory(directory, named))
    changes.sort(key=lambda change: (change.timestamp_ms, change.offset))
    wanted = _producer_ids(who, changes, scans)
    chosen = [each for scan in scans for each in scan.of_producers(wanted)]
    chosen.sort(key=lambda each: (each.first_timestamp_ms, str(each.partition), each.first_offset))
    names = {change.transactional_id for change in changes if change.producer_id in wanted}
    related = [change for change in changes if change.transactional_id in names]
    return TransactionAudit(chosen, related, find_faults(chosen, related, has_coordinator_log), has_coordinator_log)


def scan_directory(directory: Path, partition: TopicPartition) -> PartitionScan:
    scan = PartitionScan(partition)
    for log in sorted(directory.glob("*.log")):
        for batch in SegmentFile(log).batches():
            if not batch.is_valid:
                break
            try:
                scan.feed(batch.header, batch.marker())
            except MalformedMessage:
                break
    return scan


def _state_changes(directory: Path) -> list[StateChange]:
    found = []
    for log in sorted(directory.glob("*.log")):
        for batch in SegmentFile(log).batches():
            if not batch.is_valid:
                break
            if not batch.header.is_control:
                read = (read_state_change(record) for record in batch.records())
                found += [change for change in read if change is not None]
    return found


def _producer_ids(who: str, changes: list[StateChange], scans: list[PartitionScan]) -> set[int]:
    if who == EVERY_PRODUCER:
        return {each.producer_id for scan in scans for each in scan.transactions()} | {
            change.producer_id for change in changes
        }
    by_name = {change.producer_id for change in changes if change.transactional_id == who}
    if not by_name and who.isascii() and who.isdigit():
        by_name = {int(who)}
    return by_name - {-1}


def find_faults(
    transactions: list[PartitionTransaction], changes: list[StateChange], has_coordinator_log: bool
) -> list[Finding]:
    names = {change.producer_id: change.transactional_id for change in changes if change.producer_id >= 0}
    found = [*_torn(transactions, changes, names), *_double_ended(transactions, names)]
    if has_coordinator_log:
        found += _hanging(transactions, changes, names)
    return found


def _torn(transactions: list[PartitionTransaction], changes: list[StateChange], names: dict[int, str]) -> list[Finding]:
    found = []
    by_pair: dict[tuple[int, int], list[PartitionTransaction]] = defaultdict(list)
    for each in transactions:
        if each.marker is not None:
            by_pair[each.producer_id, each.marker.producer_epoch].append(each)
    decisions: dict[tuple[int, int], set[bool]] = defaultdict(set)
    for change in changes:
        if change.state in (*PREPARED, *COMPLETE):
            decisions[change.producer_id, change.producer_epoch].add(change.is_commit)
    for pair, ended in by_pair.items():
        outcomes = decisions.get(pair, set())
        # A marker with a higher epoch than its records belongs to one transaction only, and so do those in other
        # partitions.
        is_one = any(each.record_count and each.marker and each.marker.producer_epoch > each.producer_epoch
                     for each in ended)  # fmt: skip
        kinds = {each.marker.is_commit for each in ended if each.marker is not None}
        if is_one and len(kinds) == 2:
            found.append(_finding("torn", ended[0].producer_id, names, "ended as " + _ends(ended)))
        elif len(outcomes) == 1 and kinds - outcomes and (is_one or len(kinds) == 1):
            decided = "COMMIT" if outcomes == {True} else "ABORT"
            found.append(
                _finding("torn", ended[0].producer_id, names, f"the coordinator decided {decided}; {_ends(ended)}")
            )
    return found


def _double_ended(transactions: list[PartitionTransaction], names: dict[int, str]) -> list[Finding]:
    found = []
    by_place: dict[tuple[TopicPartition, int], list[PartitionTransaction]] = defaultdict(list)
    for each in transactions:
        if each.marker is not None:
            by_place[each.partition, each.producer_id].append(each)
    for (partition, producer_id), ended in by_place.items():
        ended.sort(key=lambda each: each.marker.offset if each.marker else 0)
        for before, after in itertools.pairwise(ended):
            first, second = before.marker, after.marker
            if first is None or second is None or first.producer_epoch != second.producer_epoch or after.record_count:
                continue
            # Old clients end every transaction with the same epoch, and may add a partition that they never write to.
            is_certain = before.producer_epoch < first.producer_epoch or first.is_commit != second.is_commit
            if is_certain:
                both = f"{first.kind} at {first.offset} and {second.kind} at {second.offset}"
                text = f"{partition} has {both}, with no records between"
                found.append(_finding("double-ended", producer_id, names, text))
    return found


def _hanging(
    transactions: list[PartitionTransaction], changes: list[StateChange], names: dict[int, str]
) -> list[Finding]:
    found = []
    latest = {change.transactional_id: change for change in changes}
    for each in transactions:
        if each.marker is not None:
            continue
        state = latest.get(names.get(each.producer_id, ""))
        if state is None or state.state is None:
            why = "no transactional id has this producer id"
        elif state.state in (ONGOING, *PREPARED) and each.partition in state.partitions:
            continue
        else:
            why = f"its coordinator is in state {state.state} and does not know this partition"
        text = f"{each.partition} is open from {each.first_offset} with {each.record_count} records; {why}"
        found.append(_finding("hanging", each.producer_id, names, text))
    return found


def _ends(ended: list[PartitionTransaction]) -> str:
    return ", ".join(f"{each.marker.kind} in {each.partition}" for each in ended if each.marker is not None)


def _finding(kind: str, producer_id: int, names: dict[int, str], text: str) -> Finding:
    return Finding(kind, producer_id, names.get(producer_id), text)
