"""The same explanations from a copied data directory, of Fencepost or of Apache Kafka, with nobody to ask.

The end of the files stands for the high watermark, and the last record of an id in __transaction_state for what its
coordinator would say. A directory of one broker of several holds only what that broker had.
"""

from pathlib import Path

from fencepost.client.kafka_types import ProducerState, TransactionDescription
from fencepost.insight.causes import Cause, causes_in
from fencepost.insight.cluster_view import OpenTransaction, PartitionOffsets
from fencepost.insight.explain_online import IdFacts, NothingKnown
from fencepost.insight.explanation import Coordinator, Holder, PartitionFacts
from fencepost.insight.file_kinds import partitions_at
from fencepost.insight.hanging import why_hanging
from fencepost.insight.history import timeline
from fencepost.insight.partition_scan import PartitionScan, PartitionTransaction
from fencepost.insight.state_changes import StateChange
from fencepost.insight.trail import Trail, follow, scan_directory
from fencepost.log.side_files import parse_partition_directory_name
from fencepost.topic_partition import TopicPartition


class DataDirectory:
    def __init__(self, path: Path) -> None:
        """Raises NotInspectable for a directory that is none of a log."""
        self.path = path
        self._directories = {
            TopicPartition(*named): directory
            for directory in partitions_at(path)
            if (named := parse_partition_directory_name(directory.name)) is not None
        }
        self._everything: Trail | None = None
        self.journal: list[Cause] | None = causes_in(path)

    @property
    def everything(self) -> Trail:
        if self._everything is None:
            self._everything = follow([self.path], "*")
        return self._everything

    @property
    def as_of_ms(self) -> int:
        """The last thing that happened here, as far as it left a time: ages count from it, not from today."""
        trail = self.everything
        times = [change.timestamp_ms for change in trail.changes]
        times += [each.last_timestamp_ms for each in trail.transactions]
        times += [each.marker.timestamp_ms for each in trail.transactions if each.marker is not None]
        times += [cause.time_ms for cause in self.journal or ()]
        return max(times, default=0)

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        return sorted(at for at in self._directories if at.topic == topic)

    def explain_partition(self, partition: TopicPartition) -> PartitionFacts:
        if partition not in self._directories:
            raise NothingKnown(f"{self.path} has no partition {partition}")
        scan = scan_directory(self._directories[partition], partition)
        logs = sorted(self._directories[partition].glob("*.log"))
        log_start = int(logs[0].stem) if logs else 0
        opened = sorted(scan.open.values(), key=lambda each: each.first_offset)
        stable = opened[0].first_offset if opened else scan.next_offset
        return PartitionFacts(
            partition,
            PartitionOffsets(log_start, stable, scan.next_offset),
            None,
            _decided_from(scan, stable),
            scan.open_record_count,
            tuple(self._holder(each) for each in opened),
        )

    def _holder(self, each: PartitionTransaction) -> Holder:
        change = self._latest_of_producer(each.producer_id)
        description = None if change is None else _description(change)
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
            why_hanging(as_open, description),
        )

    def _latest_of_producer(self, producer_id: int) -> StateChange | None:
        for change in reversed(self.everything.changes):
            if change.producer_id == producer_id:
                return next(
                    each
                    for each in reversed(self.everything.changes)
                    if each.transactional_id == change.transactional_id
                )
        return None

    def id_of_producer(self, producer_id: int) -> str | None:
        change = self._latest_of_producer(producer_id)
        if change is not None:
            return change.transactional_id
        return next((cause.transactional_id for cause in self.journal or () if cause.concerns(producer_id)), None)

    def causes_of(self, transactional_id: str) -> list[Cause] | None:
        if self.journal is None:
            return None
        return [cause for cause in self.journal if cause.transactional_id == transactional_id]

    def explain_id(self, transactional_id: str, *, with_history: bool = False) -> IdFacts:
        changes = [each for each in self.everything.changes if each.transactional_id == transactional_id]
        if not changes:
            raise NothingKnown(f"{self.path} has no record of the transactional id {transactional_id!r}")
        latest = next((each for each in reversed(changes) if each.state is not None), changes[-1])
        producers = {change.producer_id for change in changes}
        written = [each for each in self.everything.transactions if each.producer_id in producers]
        parts = [
            self.explain_partition(each.partition)
            for each in written
            if each.is_open and each.producer_id == latest.producer_id
        ]
        causes = self.causes_of(transactional_id)
        history = timeline(changes, causes or (), written) if with_history else None
        return IdFacts(_coordinator(latest), parts, [], causes, history)


def _decided_from(scan: PartitionScan, stable: int) -> int:
    """Records behind the last stable offset that are decided already."""
    return scan.records_decided_below(scan.next_offset) - scan.records_decided_below(stable)


def _coordinator(change: StateChange) -> Coordinator:
    return Coordinator(
        change.transactional_id,
        change.state or "expired",
        change.producer_id,
        change.producer_epoch,
        change.timeout_ms,
        change.start_ms,
        None,
        change.partitions,
    )


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
