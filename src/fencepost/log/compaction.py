"""Decides what compaction keeps of a batch: the newest record of each key, recent tombstones, and no aborted records.

Pure decisions by Kafka's rules: `KeyMap` knows the newest offset of each key in the dirty part of a log,
`CleanedTransactions` follows transactions while a log is read from its start, `BatchFilter` returns what is left of a
batch. `log.cleaner` chooses logs and segments and handles files.
"""

import heapq
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import NamedTuple

from fencepost.log.open_transactions import AbortedTransaction, AbortedTransactions
from fencepost.log.producers import ProducerStateManager
from fencepost.ports import Buffer
from fencepost.wire.batch import (
    COMPRESSION_MASK,
    DELETE_HORIZON_MASK,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
    BatchHeader,
    ControlType,
    read_marker,
)
from fencepost.wire.records import RecordSpan, payload_of, rebuild_batch, scan_records, shift_timestamp

KEY_BYTES_KEPT_MAX = 32
"""A longer key is remembered by its hash, so that the map's memory depends on the number of keys alone."""
_HASH_BYTES = 16
_NO_LIMIT = 2**63


class KeyMap:
    """Maps keys to the offsets of their newest records, for the scanned part of the log."""

    __slots__ = ("_keys_max", "_offsets", "latest_offset")

    def __init__(self, keys_max: int) -> None:
        self._keys_max = keys_max
        self._offsets: dict[bytes | int, int] = {}
        self.latest_offset = -1
        """Records above it are unknown and are kept."""

    def __len__(self) -> int:
        return len(self._offsets)

    def reach(self, offset: int) -> None:
        """Everything up to `offset` has been scanned."""
        if offset > self.latest_offset:
            self.latest_offset = offset

    def take(self, spans: Iterable[RecordSpan], base_offset: int, first_dirty_offset: int) -> bool:
        """Adds the keys of a batch. Returns False if there was no room for all of them; then the map ends before this
        batch.

        The first batch is always added, so that every pass makes progress.
        """
        offsets = self._offsets
        keys_max = self._keys_max if self.latest_offset >= first_dirty_offset else _NO_LIMIT
        for span in spans:
            key, offset = span.key, base_offset + span.offset_delta
            if key is None or offset < first_dirty_offset:
                continue
            identity = key if len(key) <= KEY_BYTES_KEPT_MAX else _hash_of(key)
            if len(offsets) >= keys_max and identity not in offsets:
                return False
            offsets[identity] = offset
        return True

    def is_newest(self, key: bytes, offset: int) -> bool:
        newest = self._offsets.get(key if len(key) <= KEY_BYTES_KEPT_MAX else _hash_of(key))
        return newest is None or offset >= newest


def _hash_of(key: bytes) -> int:
    """A number, so that no short key can be confused with a hash."""
    return int.from_bytes(blake2b(key, digest_size=_HASH_BYTES).digest(), "big")


class _OngoingAbort:
    __slots__ = ("has_batches", "transaction")

    def __init__(self, transaction: AbortedTransaction) -> None:
        self.transaction = transaction
        self.has_batches = False


class CleanedTransactions:
    """Tells which batches belong to aborted transactions, and which markers are no longer needed."""

    __slots__ = ("_aborted", "_index", "_ongoing_aborted", "_ongoing_committed")

    def __init__(self) -> None:
        self._index: AbortedTransactions | None = None
        self._aborted: list[tuple[int, AbortedTransaction]] = []
        self._ongoing_aborted: dict[int, _OngoingAbort] = {}
        self._ongoing_committed: set[int] = set()

    def record_in(self, index: AbortedTransactions) -> None:
        """From here on, aborted transactions that have batches left are recorded in this index, emptied first."""
        index.reset()
        self._index = index

    def add_aborted(self, transactions: Iterable[AbortedTransaction]) -> None:
        for transaction in transactions:
            heapq.heappush(self._aborted, (transaction.first_offset, transaction))

    def on_data(self, header: BatchHeader) -> bool:
        """Whether the batch was aborted."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        aborted = self._ongoing_aborted.get(header.producer_id)
        if aborted is None:
            self._ongoing_committed.add(header.producer_id)
            return False
        aborted.has_batches = True
        return True

    def on_control(self, header: BatchHeader, block: Buffer, start: int) -> bool:
        """Whether the marker is no longer needed."""
        self._begin_up_to(header.last_offset)
        if not header.record_count:
            return True
        marker = read_marker(block, start)
        if marker is None:
            return False
        if marker.control_type == ControlType.COMMIT:
            if header.producer_id in self._ongoing_committed:
                self._ongoing_committed.remove(header.producer_id)
                return False
            return True
        aborted = self._ongoing_aborted.pop(header.producer_id, None)
        if aborted is None or not aborted.has_batches:
            return True
        if self._index is not None:
            self._index.append(aborted.transaction)
        return False

    def _begin_up_to(self, offset: int) -> None:
        while self._aborted and self._aborted[0][0] <= offset:
            _, transaction = heapq.heappop(self._aborted)
            self._ongoing_aborted.setdefault(transaction.producer_id, _OngoingAbort(transaction))


class LastRecord(NamedTuple):
    last_data_offset: int
    """-1 if only a marker is known of the producer."""
    producer_epoch: int


def last_records_of_producers(producers: ProducerStateManager) -> dict[int, LastRecord]:
    """What the log must keep of each producer to rebuild its state."""
    return {
        producer_id: LastRecord(entry.last_data_offset, entry.producer_epoch)
        for producer_id, entry in producers.producers.items()
    }


class BatchFilter:
    """Filters the batches of one pass, in log order."""

    def __init__(
        self,
        keys: KeyMap,
        transactions: CleanedTransactions,
        last_records: Mapping[int, LastRecord],
        *,
        now_ms: int,
        delete_retention_ms: int,
        decompressed_max_bytes: int,
    ) -> None:
        self._keys = keys
        self._transactions = transactions
        self._last_records = last_records
        self._end_offset = -1
        """The end offset of the current segment."""
        self._now_ms = now_ms
        self._delete_retention_ms = delete_retention_ms
        self._decompressed_max_bytes = decompressed_max_bytes

    def begin_segment(self, end_offset: int) -> None:
        """The batches that follow go into a segment that ends at `end_offset`."""
        self._end_offset = end_offset

    def apply(self, header: BatchHeader, block: memoryview, start: int) -> Buffer | None:
        """What is left of the batch at `start`: the same batch, a smaller one, an empty one, or None."""
        if header.is_control:
            is_obsolete = self._transactions.on_control(header, block, start)
            if is_obsolete and header.has_delete_horizon and header.base_timestamp <= self._now_ms:
                return self._emptied(header)
            if not header.record_count:
                return self._emptied(header)
            if is_obsolete and not header.has_delete_horizon:
                payload = payload_of(block, header, self._decompressed_max_bytes, start)
                return self._rebuilt(header, payload, scan_records(payload, header.record_count), new_horizon=True)
            return block[start : start + header.size_bytes]
        if self._transactions.on_data(header) or not header.record_count:
            return self._emptied(header)
        payload = payload_of(block, header, self._decompressed_max_bytes, start)
        spans = scan_records(payload, header.record_count)
        kept = self._kept(header, spans)
        if not kept:
            return self._emptied(header)
        new_horizon = not header.has_delete_horizon and any(span.value_start < 0 for span in kept)
        if len(kept) == len(spans) and not new_horizon:
            return block[start : start + header.size_bytes]
        return self._rebuilt(header, payload, kept, new_horizon=new_horizon)

    def _kept(self, header: BatchHeader, spans: list[RecordSpan]) -> list[RecordSpan]:
        base_offset, keys = header.base_offset, self._keys
        latest_offset, is_newest = keys.latest_offset, keys.is_newest
        tombstones_expired = header.has_delete_horizon and header.base_timestamp <= self._now_ms
        kept = []
        for span in spans:
            offset = base_offset + span.offset_delta
            if offset <= latest_offset:
                if span.key is None or not is_newest(span.key, offset):
                    continue
                if span.value_start < 0 and tombstones_expired:
                    continue
            kept.append(span)
        return kept

    def _rebuilt(self, header: BatchHeader, payload: bytes, kept: list[RecordSpan], *, new_horizon: bool) -> bytearray:
        base_timestamp, attributes = header.base_timestamp, header.attributes
        if new_horizon:
            # The base timestamp becomes the time of removal, so every record's own moves into its delta.
            horizon_ms = self._now_ms + self._delete_retention_ms
            shift = base_timestamp - horizon_ms
            content = b"".join(shift_timestamp(payload, span, span.timestamp_delta + shift) for span in kept)
            attributes |= DELETE_HORIZON_MASK
        else:
            horizon_ms = base_timestamp
            content = b"".join(payload[span.start : span.end] for span in kept)
        if attributes & TIMESTAMP_TYPE_MASK:
            max_timestamp = header.max_timestamp
        else:
            max_timestamp = base_timestamp + max(span.timestamp_delta for span in kept)
        fields = header._replace(base_timestamp=horizon_ms, max_timestamp=max_timestamp, record_count=len(kept))
        return rebuild_batch(fields, content, attributes)

    def _emptied(self, header: BatchHeader) -> bytearray | None:
        """A batch without its records, if it is needed for a producer's state or the end of a segment; otherwise
        None."""
        if header.next_offset != self._end_offset and not self._is_last_of_producer(header):
            return None
        fields = header._replace(base_timestamp=NO_TIMESTAMP, record_count=0)
        return rebuild_batch(fields, b"", header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON_MASK))

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        last = self._last_records.get(header.producer_id)
        if last is None:
            return False
        if last.last_data_offset >= 0:
            return header.last_offset == last.last_data_offset
        return header.is_control and header.producer_epoch == last.producer_epoch
