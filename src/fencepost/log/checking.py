"""What was found on the disk is checked before it is handed on, once: batches, and the index of aborted transactions.

After a clean stop nobody has looked at the segments since another process wrote them, and after a crash only at the
last ones. A damaged batch is refused with CORRUPT_MESSAGE and everything around it is served; a damaged index is made
anew from the batches. What this process wrote itself is not read again to be checked.
"""

from bisect import bisect_right
from typing import TYPE_CHECKING

from fencepost.log.batch_scans import damaged
from fencepost.log.file_names import SNAPSHOT_SUFFIX, TRANSACTION_CHECKSUM_SUFFIX, offset_name
from fencepost.log.open_transactions import AbortedTransaction, AbortedTransactions, CorruptTransactionIndex
from fencepost.log.producer_entries import CorruptSnapshot
from fencepost.log.producers import ProducerStateManager
from fencepost.log.segment import Segment
from fencepost.wire.batch import (
    BATCH_LENGTH_MIN,
    CURRENT_MAGIC,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    BatchHeader,
    verify_crc,
)
from fencepost.wire.errors import KafkaError, MalformedMessage

if TYPE_CHECKING:
    from fencepost.log.partition_log import PartitionLog
    from fencepost.log.reading import ReadResult


def read(
    log: "PartitionLog",
    segment: Segment,
    position: int,
    count: int,
    max_bytes: int,
    offset: int,
    at_least_one_batch: bool,
) -> "ReadResult":
    """Whole batches of `count` bytes from `position`, as far as they are what was written; KafkaError if none is."""
    from fencepost.log.reading import EMPTY_RECORDS, ReadResult, remember

    segment.unchecked_to = min(segment.unchecked_to, segment.size)
    wanted = max(max_bytes, HEADER_BYTES) if at_least_one_batch else max_bytes
    block = segment.file.read(position, min(wanted, count))
    first = _header_at(block, 0)
    if first is not None and at_least_one_batch and len(block) < first.size_bytes <= count:
        block = segment.file.read(position, first.size_bytes)
    end, next_offset, problem = _check(log, segment, memoryview(block), position, count)
    if problem is not None and end == 0:
        raise problem
    if end == 0:
        return ReadResult(EMPTY_RECORDS, offset)
    _note_checked(segment, position, position + end)
    remember(log, next_offset, segment, position + end)
    return ReadResult(block if end == len(block) else memoryview(block)[:end], next_offset)


def _check(
    log: "PartitionLog", segment: Segment, view: memoryview, position: int, count: int
) -> tuple[int, int, KafkaError | None]:
    """How many bytes are good batches, the offset after them, and what is wrong with the one that follows, if it is.

    The CRC does not cover a batch's place, so that is checked against its neighbours: a batch whose offsets do not fit
    between those of the one before and the one after is not served, whichever of them is wrong.
    """
    end, next_offset = 0, segment.base_offset
    segment_end_offset = _end_offset_of(log, segment)
    while end < len(view):
        header = _header_at(view, end)
        if header is None or end + header.size_bytes > len(view):
            is_cut = header is not None and end + header.size_bytes <= count
            if is_cut or (header is None and len(view) < count):
                return end, next_offset, None  # the rest lies behind the limit of this read
            return end, next_offset, damaged(segment.log_path, position + end, "no batch begins here")
        following = end + header.size_bytes
        limit = _base_offset_at(segment, position + following) or segment_end_offset
        if not next_offset <= header.base_offset <= header.last_offset < limit:
            reason = f"offsets {header.base_offset} to {header.last_offset} do not lie from {next_offset} to {limit}"
            return end, next_offset, damaged(segment.log_path, position + end, reason)
        if not verify_crc(view, end, header):
            reason = f"the batch at offset {header.base_offset} does not have its CRC"
            return end, next_offset, damaged(segment.log_path, position + end, reason)
        end, next_offset = following, header.next_offset
    return end, next_offset, None


def _header_at(view: memoryview | bytes, position: int) -> BatchHeader | None:
    if position + HEADER_BYTES > len(view):
        return None
    header = BatchHeader._make(HEADER.unpack_from(view, position))
    if header.batch_length < BATCH_LENGTH_MIN or header.magic != CURRENT_MAGIC:
        return None
    return header


def _base_offset_at(segment: Segment, position: int) -> int | None:
    """Base offset of the next batch in the segment, if there is one and it looks like a batch."""
    if position + LOG_OVERHEAD_BYTES > segment.size:
        return None
    header = _header_at(segment.file.read(position, HEADER_BYTES), 0)
    return None if header is None else header.base_offset


def _end_offset_of(log: "PartitionLog", segment: Segment) -> int:
    at = bisect_right(log._base_offsets, segment.base_offset)
    return log._base_offsets[at] if at < len(log._base_offsets) else log.log_end_offset


def _note_checked(segment: Segment, start: int, end: int) -> None:
    """A reader from the start or at the end narrows what is left; one in between is checked again next time."""
    if start <= segment.unchecked_from:
        segment.unchecked_from = max(segment.unchecked_from, end)
    elif end >= segment.unchecked_to:
        segment.unchecked_to = start
    if segment.unchecked_from >= segment.unchecked_to:
        segment.unchecked_from = segment.unchecked_to = 0


# Aborted transactions


def aborted_of(log: "PartitionLog", segment: Segment) -> AbortedTransactions:
    """A segment's index of aborted transactions, checked when it is first loaded and made anew if it is damaged."""
    aborted = segment.aborted
    if not aborted.is_loaded:
        try:
            aborted.check(segment.base_offset)
            expected = _stored_checksum(log, segment)
            is_good = expected is None or expected == aborted.checksum()
        except CorruptTransactionIndex:
            is_good = False
        if not is_good:
            aborted.replace(_rescan(log, segment))
    return aborted


def _stored_checksum(log: "PartitionLog", segment: Segment) -> bytes | None:
    """None where the segment was sealed by a broker that keeps none, or was not sealed."""
    try:
        return log.disk.read_bytes(segment.path_of(TRANSACTION_CHECKSUM_SUFFIX))
    except FileNotFoundError:
        return None


def _rescan(log: "PartitionLog", segment: Segment) -> list[AbortedTransaction]:
    """What the batches say: state of the producers before the segment, then its markers."""
    producers = ProducerStateManager(log.topic_partition, log.producers.producer_id_expiration_ms)
    start = _load_snapshot_before(log, segment, producers)
    found: list[AbortedTransaction] = []
    for each in log.segments:
        if each.base_offset < start:
            continue
        for batch in each.batches():
            if not verify_crc(batch.block, batch.start, batch.header):
                continue
            try:
                completed = producers.replay_batch(batch.block, batch.start, batch.header)
            except MalformedMessage:
                continue
            if each is segment and completed is not None and completed.is_aborted:
                found.append(
                    AbortedTransaction(
                        completed.producer_id,
                        completed.first_offset,
                        completed.last_offset,
                        completed.last_stable_offset,
                    )
                )
        if each is segment:
            break
    return found


def _load_snapshot_before(log: "PartitionLog", segment: Segment, producers: ProducerStateManager) -> int:
    """Begin with the newest good snapshot at the base of a segment; the base offset of that segment."""
    earlier = [each.base_offset for each in log.segments if each.base_offset <= segment.base_offset]
    for base_offset in reversed(earlier[1:]):
        try:
            data = log.disk.read_bytes(f"{log.directory}/{offset_name(base_offset, SNAPSHOT_SUFFIX)}")
            # As of a time before all timestamps: a producer that has expired since had its transactions all the same.
            producers.load_snapshot(data, log.log_start_offset, 0)
        except (CorruptSnapshot, FileNotFoundError):
            continue
        return base_offset
    return earlier[0]
