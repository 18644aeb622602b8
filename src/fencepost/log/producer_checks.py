"""The rules by which a leader accepts, answers again or refuses a producer's batch or marker, in Kafka's order.

They look at what a partition remembers of the producer (`producers.py`) and change nothing of it.
"""

import enum
from typing import TYPE_CHECKING

from fencepost.log.producer_entries import BatchMetadata, ProducerEntry, VerificationGuard, first_sequence_of
from fencepost.wire.batch import PRODUCER_EPOCH_MAX, BatchHeader
from fencepost.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from fencepost.log.producers import Marker, ProducerStateManager


class Origin(enum.Enum):
    CLIENT = "client"
    COORDINATOR = "coordinator"
    """Offset commits and markers: no sequences."""
    REPLICATION = "replication"
    """Already checked by a leader: followed, never refused."""


def check_carefully(
    state: "ProducerStateManager",
    header: BatchHeader,
    entry: ProducerEntry | None,
    origin: Origin,
    guard: VerificationGuard | None,
) -> BatchMetadata | None:
    """A batch that is not simply the next one; what comes of it as in `check_append`."""
    if origin is Origin.CLIENT and entry is not None and entry.producer_epoch == header.producer_epoch:
        duplicate = find_duplicate(entry, header.base_sequence, header.last_sequence)
        if duplicate is not None:
            return duplicate
    if header.is_transactional and not state.has_open_transaction(header.producer_id, header.producer_epoch):
        _check_epoch(state, header, entry)
        _check_verified(state, header, guard)
    _check_epoch(state, header, entry)
    if origin is Origin.CLIENT:
        _check_sequence(state, header, entry)
    if entry is not None and entry.current_txn_first_offset >= 0 and not header.is_transactional:
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE,
            f"producer {header.producer_id} has a transaction open in {state.topic_partition} since offset "
            f"{entry.current_txn_first_offset}, but sent a batch that is not transactional",
        )
    return None


def find_duplicate(entry: ProducerEntry, first_sequence: int, last_sequence: int) -> BatchMetadata | None:
    for batch in entry.batches:
        if batch[0] == last_sequence and first_sequence_of(last_sequence, batch[2]) == first_sequence:
            return BatchMetadata(*batch)
    return None


def _check_epoch(state: "ProducerStateManager", header: BatchHeader, entry: ProducerEntry | None) -> None:
    if entry is not None and header.producer_epoch < entry.producer_epoch:
        raise older_epoch(state, header.producer_id, header.producer_epoch, entry)


def older_epoch(
    state: "ProducerStateManager", producer_id: int, producer_epoch: int, entry: ProducerEntry
) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"epoch {producer_epoch} of producer {producer_id} in {state.topic_partition} is older than the last seen "
        f"epoch {entry.producer_epoch}",
    )


def _check_verified(state: "ProducerStateManager", header: BatchHeader, guard: VerificationGuard | None) -> None:
    if not state.verification_enabled or header.is_control:
        return
    verification = state.verification_entry(header.producer_id)
    if guard is None or verification is None or verification.guard is not guard:
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE,
            f"Record was not part of an ongoing transaction: producer {header.producer_id} epoch "
            f"{header.producer_epoch} has none open in {state.topic_partition} and was not verified",
        )


def _check_sequence(state: "ProducerStateManager", header: BatchHeader, entry: ProducerEntry | None) -> None:
    sequence = header.base_sequence
    verification = state.verification_entry(header.producer_id)
    if verification is not None:
        if verification.supports_epoch_bump and sequence != 0 and (entry is None or not entry.batches):
            raise _out_of_order(state, header, "expected sequence 0, nothing of this producer is known")
        if sequence > verification.lowest_sequence:
            raise _out_of_order(state, header, f"{verification.lowest_sequence} (earliest seen sequence)")
    if entry is None:
        return  # forgotten by retention or expiry, or new: any sequence will do
    if header.producer_epoch != entry.producer_epoch:
        if sequence != 0:
            raise _out_of_order(state, header, f"new epoch, {entry.producer_epoch} (current producer epoch)")
    elif sequence != entry.next_sequence:
        raise _out_of_order(state, header, f"{entry.last_sequence} (current end sequence number)")


def _out_of_order(state: "ProducerStateManager", header: BatchHeader, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"Out of order sequence number for producer {header.producer_id} epoch {header.producer_epoch} in "
        f"{state.topic_partition}: {header.base_sequence} (incoming seq. number), {reason}",
    )


def check_marker(state: "ProducerStateManager", marker: "Marker") -> None:
    """Whether a coordinator may end this producer's transaction here; KafkaError if not."""
    entry = state.last_entry(marker.producer_id)
    if entry is None:
        return
    current, producer_epoch = entry.producer_epoch, marker.producer_epoch
    if marker.transaction_version >= 2:
        # The coordinator raised the epoch for this marker. The same epoch again is a marker sent twice, or one of a
        # producer whose epoch cannot rise any more.
        repeated = producer_epoch == current and (
            not entry.has_open_transaction or producer_epoch == PRODUCER_EPOCH_MAX
        )
        stale = producer_epoch <= current and not repeated
    else:
        stale = producer_epoch < current
    if stale:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"marker epoch {producer_epoch} of producer {marker.producer_id} in {state.topic_partition} is not above "
            f"the last seen epoch {current} (transaction version {marker.transaction_version})",
        )
    if marker.coordinator_epoch < entry.coordinator_epoch:
        raise KafkaError(
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            f"coordinator epoch {marker.coordinator_epoch} (zombie) of a marker for producer {marker.producer_id} in "
            f"{state.topic_partition} is older than {entry.coordinator_epoch} (current)",
        )
