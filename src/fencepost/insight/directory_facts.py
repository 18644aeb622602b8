"""The facts of a copied data directory, of Fencepost or of Apache Kafka, read from its files.

The end of the files counts as the high watermark, and the last record of an id in __transaction_state as the state that
its coordinator would report. The directory of one of several brokers has only the partitions of that broker.
"""

import dataclasses
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

from fencepost.client.kafka_types import ProducerState, TransactionDescription
from fencepost.insight.causes import Cause, causes_in
from fencepost.insight.cluster_facts import as_coordinator
from fencepost.insight.cluster_view import OpenTransaction, PartitionOffsets
from fencepost.insight.command_line import CommandLine
from fencepost.insight.data_files import partitions_at
from fencepost.insight.explanation import Coordinator, Holder, IdFacts, NothingKnown, PartitionFacts, timeline
from fencepost.insight.hanging import why_hanging
from fencepost.insight.partition_scan import PartitionTransaction
from fencepost.insight.state_changes import StateChange
from fencepost.insight.transaction_audit import (
    EVERY_PRODUCER,
    TransactionAudit,
    audit_transactions,
    scan_directory,
)
from fencepost.log.side_files import parse_partition_directory_name
from fencepost.topic_partition import TopicPartition


class DirectoryFacts:
    """A `FactSource`."""

    command_line = CommandLine()
    """A directory does not contain the address of its cluster."""

    def __init__(self, path: Path) -> None:
        """Raises NotInspectable if the directory holds no logs."""
        self._path = path
        self._directories = {
            named: directory
            for directory in partitions_at(path)
            if (named := parse_partition_directory_name(directory.name)) is not None
        }
        self._journal: list[Cause] | None = causes_in(path)

    @cached_property
    def _audit(self) -> TransactionAudit:
        return audit_transactions([self._path], EVERY_PRODUCER)

    def now_ms(self) -> int:
        """The time of the last event in the directory: transactions in a copy do not age."""
        audit = self._audit
        times = [change.timestamp_ms for change in audit.changes]
        times += [each.last_timestamp_ms for each in audit.transactions]
        times += [each.marker.timestamp_ms for each in audit.transactions if each.marker is not None]
        times += [cause.time_ms for cause in self._journal or ()]
        return max(times, default=0)

    async def topics(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for at in sorted(self._directories):
            found.setdefault(at.topic, []).append(at.partition)
        return found

    async def causes_of(self, transactional_id: str) -> list[Cause] | None:
        if self._journal is None:
            return None
        return [cause for cause in self._journal if cause.transactional_id == transactional_id]

    async def id_of_producer(self, producer_id: int) -> str | None:
        change = self._latest_of_producer(producer_id)
        if change is not None:
            return change.transactional_id
        return next((cause.transactional_id for cause in self._journal or () if cause.concerns(producer_id)), None)

    async def partitions_open_for(self, producer_id: int) -> list[TopicPartition]:
        found = [
            each.partition for each in self._audit.transactions if each.is_open and each.producer_id == producer_id
        ]
        if not found:
            raise NothingKnown(
                f"{self._path} has no transactional id with the producer id {producer_id}, and it has no open"
                " transaction in any partition"
            )
        return found

    async def partition_facts(self, partitions: Iterable[TopicPartition]) -> list[PartitionFacts]:
        return [self._partition(at) for at in partitions]

    async def id_facts(self, transactional_id: str, *, with_history: bool = False) -> IdFacts:
        changes = [each for each in self._audit.changes if each.transactional_id == transactional_id]
        if not changes:
            raise NothingKnown(f"{self._path} has no record of the transactional id {transactional_id!r}")
        latest = next((each for each in reversed(changes) if each.state is not None), changes[-1])
        producers = {change.producer_id for change in changes}
        written = [each for each in self._audit.transactions if each.producer_id in producers]
        parts = [
            self._partition(each.partition)
            for each in written
            if each.is_open and each.producer_id == latest.producer_id
        ]
        causes = await self.causes_of(transactional_id)
        history = timeline(changes, causes or (), written) if with_history else None
        return IdFacts(_coordinator(latest), parts, [], causes, history)

    def _partition(self, partition: TopicPartition) -> PartitionFacts:
        scan = scan_directory(self._directories[partition], partition)
        logs = sorted(self._directories[partition].glob("*.log"))
        log_start = int(logs[0].stem) if logs else 0
        opened = sorted(scan.open.values(), key=lambda each: each.first_offset)
        stable = opened[0].first_offset if opened else scan.next_offset
        return PartitionFacts(
            partition,
            PartitionOffsets(log_start, stable, scan.next_offset),
            None,
            scan.records_decided_below(scan.next_offset) - scan.records_decided_below(stable),
            scan.open_record_count,
            tuple(self._holder(each) for each in opened),
        )

    def _holder(self, each: PartitionTransaction) -> Holder:
        change = self._latest_of_producer(each.producer_id)
        as_open = OpenTransaction(
            each.partition, ProducerState(each.producer_id, each.producer_epoch, -1, -1, -1, each.first_offset)
        )
        return Holder(
            each.partition,
            each.producer_id,
            each.producer_epoch,
            each.first_offset,
            each.first_timestamp_ms,
            each.record_count,
            None if change is None else _coordinator(change),
            why_hanging(as_open, None if change is None else _description(change)),
        )

    def _latest_of_producer(self, producer_id: int) -> StateChange | None:
        """The latest change of the transactional id that had this producer id last."""
        changes = self._audit.changes
        for change in reversed(changes):
            if change.producer_id == producer_id:
                return next(each for each in reversed(changes) if each.transactional_id == change.transactional_id)
        return None


def _coordinator(change: StateChange) -> Coordinator:
    return dataclasses.replace(as_coordinator(_description(change)), node_id=None)


def _description(change: StateChange) -> TransactionDescription:
    return TransactionDescription(
        change.transactional_id,
        change.state or "expired",
        change.producer_id,
        change.producer_epoch,
        change.timeout_ms,
        change.start_ms,
        -1,
        change.partitions,
    )
