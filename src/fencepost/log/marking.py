"""Ending transactions in a log: the control batches that coordinators order, and the index of what was aborted.

Works on one `PartitionLog`, as its other half. Commits that come together are one write; an abort also has its index
entry to write, and comes by itself.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from fencepost.log.open_transactions import CompletedTransaction
from fencepost.log.producer_checks import check_marker
from fencepost.log.producers import Marker
from fencepost.log.syncables import WrittenFile
from fencepost.wire.batch import MARKER_BYTES, ControlType, control_batch
from fencepost.wire.errors import KafkaError

if TYPE_CHECKING:
    from fencepost.log.partition_log import PartitionLog

Refusals = list[KafkaError | None]
"""For each marker: why it was not written, or None."""


def append_markers(log: "PartitionLog", markers: Sequence[Marker], leader_epoch: int, now_ms: int) -> Refusals:
    refusals: Refusals = []
    for is_commit, run in groupby(markers, lambda marker: marker.is_commit):
        group = list(run)
        if is_commit and len(group) > 1 and _fit_together(log, group, now_ms):
            refusals += _append_commits(log, group, leader_epoch, now_ms)
        else:
            refusals += [_append_one(log, marker, leader_epoch, now_ms) for marker in group]
    return refusals


def _append_one(log: "PartitionLog", marker: Marker, leader_epoch: int, now_ms: int) -> KafkaError | None:
    try:
        _append(log, marker, leader_epoch, now_ms)
    except KafkaError as refusal:
        return refusal
    return None


def _append(log: "PartitionLog", marker: Marker, leader_epoch: int, now_ms: int) -> None:
    if log.failure is not None:
        raise log.storage_error()
    check_marker(log.producers, marker)
    kind = ControlType.COMMIT if marker.is_commit else ControlType.ABORT
    identity = marker.producer_id, marker.producer_epoch
    offset = log.log_end_offset
    batch = control_batch(kind, marker.coordinator_epoch, *identity, now_ms, offset, leader_epoch)
    log._write(batch, len(batch), offset, offset, now_ms, now_ms)
    log.note_epoch(leader_epoch, offset)
    completed = log.producers.apply_marker(kind, *identity, marker.coordinator_epoch, offset, now_ms)
    if completed is not None and completed.is_aborted:
        try:
            note_aborted(log, completed)
        except OSError as error:
            # Without its index entry the marker must not stay: readers would be given aborted records.
            log.truncate_to(offset, now_ms)
            raise log._write_error(error) from error


def note_aborted(log: "PartitionLog", completed: CompletedTransaction) -> None:
    """Raises OSError with nothing changed."""
    aborted = log.active_segment.aborted
    is_new = aborted.file is None
    aborted.append_completed(completed)
    log.note_dirty(WrittenFile(log.disk, aborted.path))
    if is_new:
        log.note_new_names()


def _fit_together(log: "PartitionLog", markers: Sequence[Marker], now_ms: int) -> bool:
    """Whether none decides about another, and no new segment can begin among them."""
    are_independent = len({marker.producer_id for marker in markers}) == len(markers)
    return are_independent and log.failure is None and log._has_room_for(len(markers), MARKER_BYTES, now_ms)


def _append_commits(log: "PartitionLog", markers: Sequence[Marker], leader_epoch: int, now_ms: int) -> Refusals:
    refusals: Refusals = []
    accepted: list[Marker] = []
    for marker in markers:
        try:
            check_marker(log.producers, marker)
        except KafkaError as refusal:
            refusals.append(refusal)
        else:
            refusals.append(None)
            accepted.append(marker)
    first_offset = log.log_end_offset
    batches = [
        control_batch(
            ControlType.COMMIT,
            marker.coordinator_epoch,
            marker.producer_id,
            marker.producer_epoch,
            now_ms,
            offset,
            leader_epoch,
        )
        for offset, marker in enumerate(accepted, first_offset)
    ]
    if batches:
        try:
            log._write_in_segment(batches, MARKER_BYTES, first_offset, now_ms)
        except KafkaError as error:
            return [refusal or error for refusal in refusals]
        log.note_epoch(leader_epoch, first_offset)
        log.producers.apply_commits(accepted, first_offset, now_ms)
    return refusals
