"""Markers as the coordinator sees them: what is ordered for a decided transaction, and again where it was refused.

Who writes them is not known here: `SendMarkers` may reach another broker. One `Markers` follows one decision. It and
what it hands out hold no cycle, so that nothing of a transaction is left to the garbage collector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from fencepost.coordinators.context import Now
from fencepost.coordinators.transactions.events import MarkerRefused
from fencepost.coordinators.transactions.metadata import TopicPartition, TransactionMetadata
from fencepost.coordinators.transactions.transaction_states import TransactionState
from fencepost.wire.errors import ErrorCode

if TYPE_CHECKING:
    from fencepost.coordinators.transactions.ledger import Ledger

RETRY_BACKOFF_MS = 100

_NO_MARKER_NEEDED = frozenset({ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION})
_NOT_OURS = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
"""Somebody newer is at work on this transaction: it is theirs to complete."""


class MarkerOrder(NamedTuple):
    """Have a marker written to each of these partitions."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    transaction_version: int
    partitions: tuple[TopicPartition, ...]


MarkerDone = Callable[[TopicPartition, ErrorCode], None]
SendMarkers = Callable[[MarkerOrder, MarkerDone], None]
"""Calls back once for each partition: when its marker is durable, or with why it is not. Retries are the caller's."""


class Markers:
    __slots__ = ("_ledger", "_metadata", "_record", "_refused")

    def __init__(self, ledger: Ledger, metadata: TransactionMetadata) -> None:
        self._ledger = ledger
        self._metadata = metadata
        self._record = metadata.record
        self._refused: list[TopicPartition] = []

    def order(self, partitions: Iterable[TopicPartition]) -> None:
        metadata, record, ledger = self._metadata, self._record, self._ledger
        order = MarkerOrder(
            metadata.transactional_id,
            record.producer_id,
            record.producer_epoch,
            ledger.coordinator_epoch(metadata.partition),
            record.state is TransactionState.PREPARE_COMMIT,
            record.client_transaction_version,
            tuple(sorted(partitions)),
        )
        ledger.send_markers(order, self._done)

    def _done(self, partition: TopicPartition, error: ErrorCode) -> None:
        metadata = self._metadata
        awaited = metadata.awaiting_markers
        if metadata.is_abandoned or metadata.record is not self._record or partition not in awaited:
            return
        if error is ErrorCode.NONE or error in _NO_MARKER_NEEDED or self._is_gone(partition, error):
            awaited.discard(partition)
            if not awaited:
                self._ledger.complete(metadata)
        else:
            self._was_refused(partition, error)

    def _is_gone(self, partition: TopicPartition, error: ErrorCode) -> bool:
        if error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return False
        count = self._ledger.topics.partition_count_of(partition[0])
        return count is None or partition[1] >= count

    def _was_refused(self, partition: TopicPartition, error: ErrorCode) -> None:
        ledger, record, transactional_id = self._ledger, self._record, self._metadata.transactional_id
        now = ledger.now()
        if error in _NOT_OURS:
            pair = record.producer_id, record.producer_epoch
            ledger.events(MarkerRefused(transactional_id, *pair, *partition, error, now.wall_ms))
        else:
            self._refused.append(partition)
            ledger.timers.schedule(
                ("markers", transactional_id), now.monotonic_ms + RETRY_BACKOFF_MS, self._order_again
            )

    def _order_again(self, now: Now) -> None:
        refused, self._refused = self._refused, []
        self.order(refused)
