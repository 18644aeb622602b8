"""The transactions of one partition, found by reading its batches in order, from files or from fetches.

Counts records, not offsets. Knows no coordinator: a transaction that is open here may already be decided.
"""

import dataclasses
from collections.abc import Collection
from typing import Any

from fencepost.topic_partition import TopicPartition
from fencepost.wire.batch import BatchHeader, ControlType, EndTransactionMarker


@dataclasses.dataclass(frozen=True, slots=True)
class Marker:
    is_commit: bool
    offset: int
    timestamp_ms: int
    producer_epoch: int
    coordinator_epoch: int

    @property
    def kind(self) -> str:
        return "COMMIT" if self.is_commit else "ABORT"


@dataclasses.dataclass(slots=True)
class PartitionTransaction:
    """The part of a transaction in one partition; without records if there is only a marker."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    first_offset: int
    last_offset: int
    record_count: int
    first_timestamp_ms: int
    last_timestamp_ms: int
    marker: Marker | None = None

    @property
    def is_open(self) -> bool:
        return self.marker is None

    def document(self) -> dict[str, Any]:
        return {
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
            "first_offset": self.first_offset,
            "last_offset": self.last_offset,
            "records": self.record_count,
            "first_timestamp_ms": self.first_timestamp_ms,
            "last_timestamp_ms": self.last_timestamp_ms,
            "end": None if self.marker is None else self.marker.kind,
            "marker_offset": None if self.marker is None else self.marker.offset,
            "marker_epoch": None if self.marker is None else self.marker.producer_epoch,
            "marker_timestamp_ms": None if self.marker is None else self.marker.timestamp_ms,
        }


class PartitionScan:
    def __init__(self, partition: TopicPartition, next_offset: int = 0) -> None:
        """`next_offset` is where the scan begins."""
        self.partition = partition
        self.open: dict[int, PartitionTransaction] = {}
        self.ended: list[PartitionTransaction] = []
        self.next_offset = next_offset
        self.pieces: list[tuple[int, int, PartitionTransaction | None]] = []
        """Base offset, records and transaction of every batch of records, in order."""

    def feed(self, header: BatchHeader, marker: EndTransactionMarker | None) -> None:
        self.next_offset = header.next_offset
        if header.is_control:
            if marker is not None:
                self._end(header, marker)
        elif header.is_transactional:
            self.pieces.append((header.base_offset, header.record_count, self._grow(header)))
        else:
            self.pieces.append((header.base_offset, header.record_count, None))

    def transactions(self) -> list[PartitionTransaction]:
        """Ended ones first."""
        return [*self.ended, *self.open.values()]

    def of_producers(self, producer_ids: Collection[int]) -> list[PartitionTransaction]:
        return [each for each in self.transactions() if each.producer_id in producer_ids]

    def forget_ended(self, producer_ids: Collection[int], kept_max: int) -> bool:
        """Forgets what a long scan does not need: counted batches, ended transactions of other producers, and all but
        the last ones of these producers. Returns True if some of theirs were forgotten."""
        self.pieces.clear()
        own = [each for each in self.ended if each.producer_id in producer_ids]
        self.ended = own[-kept_max:]
        return len(own) > kept_max

    @property
    def open_record_count(self) -> int:
        return sum(transaction.record_count for transaction in self.open.values())

    def records_decided_below(self, offset: int) -> int:
        """The number of records before an offset that read_committed consumers get."""
        return sum(
            count
            for base_offset, count, transaction in self.pieces
            if base_offset < offset
            and (transaction is None or (transaction.marker is not None and transaction.marker.is_commit))
        )

    def _grow(self, header: BatchHeader) -> PartitionTransaction:
        current = self.open.get(header.producer_id)
        if current is None:
            current = self.open[header.producer_id] = PartitionTransaction(
                self.partition,
                header.producer_id,
                header.producer_epoch,
                header.base_offset,
                header.last_offset,
                header.record_count,
                header.max_timestamp,
                header.max_timestamp,
            )
            return current
        current.last_offset = header.last_offset
        current.record_count += header.record_count
        current.last_timestamp_ms = header.max_timestamp
        current.producer_epoch = header.producer_epoch
        return current

    def _end(self, header: BatchHeader, marker: EndTransactionMarker) -> None:
        ended = self.open.pop(header.producer_id, None)
        if ended is None:
            ended = PartitionTransaction(
                self.partition,
                header.producer_id,
                header.producer_epoch,
                header.base_offset,
                header.base_offset,
                0,
                header.max_timestamp,
                header.max_timestamp,
            )
        ended.marker = Marker(
            marker.control_type == ControlType.COMMIT,
            header.base_offset,
            header.max_timestamp,
            header.producer_epoch,
            marker.coordinator_epoch,
        )
        self.ended.append(ended)
