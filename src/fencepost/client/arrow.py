"""Reads ranges of partitions as Arrow record batches. Needs the extra `arrow`; the writing side is `send_batch`.

with ArrowReader("127.0.0.1:9092") as reader:
    for batch in reader.read(TopicPartition("purchases", 0), 0, 1_000_000):
        ...  # a pyarrow.RecordBatch of `wire.arrow_records.SCHEMA`
"""

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from fencepost.client.cluster import Cluster, ClusterSession
from fencepost.client.errors import ClientError
from fencepost.client.fetching import (
    DECOMPRESSED_BATCH_MAX_BYTES,
    FETCH_MAX_BYTES,
    FETCH_MAX_WAIT_MS,
    AbortedTransaction,
    PartitionFetcher,
    VisibleBatches,
)
from fencepost.client.kafka_types import IsolationLevel
from fencepost.client.loop_thread import OwningTwin, iterated
from fencepost.ports import Buffer
from fencepost.topic_partition import TopicPartition
from fencepost.wire.errors import KafkaError

if TYPE_CHECKING:
    import pyarrow

PARTITION_MAX_BYTES = 8 * 1024 * 1024


class MissingExtra(ClientError):
    advice = "pip install 'fencepost[arrow]'"

    def __init__(self, cause: ImportError) -> None:
        super().__init__(f"Arrow arrays need pyarrow and numba: {cause}")


class FetchedColumns(NamedTuple):
    records: "list[pyarrow.RecordBatch]"
    next_offset: int


def read_columns(
    partition: TopicPartition,
    fetch_offset: int,
    data: Buffer | None,
    isolation_level: IsolationLevel,
    aborted: Iterable[AbortedTransaction],
) -> FetchedColumns:
    """Like `fetching.read_fetched`, but returns one record batch, or none if nothing is visible."""
    # Here and below: the extra may be missing. The constructor of a reader reports that.
    from fencepost.wire.arrow_records import BatchAt, decode_batches

    view = memoryview(data if data is not None else b"")
    visible = VisibleBatches(partition, fetch_offset, view, isolation_level, aborted)
    batches = [BatchAt(at, header) for at, header in visible]
    if not batches:
        return FetchedColumns([], visible.next_offset)
    try:
        found = decode_batches(view, batches=batches, from_offset=fetch_offset, max_bytes=DECOMPRESSED_BATCH_MAX_BYTES)
    except KafkaError as error:
        raise visible.corrupt(batches[0].header, str(error)) from None
    return FetchedColumns([found] if found.num_rows else [], visible.next_offset)


class AsyncArrowReader(ClusterSession):
    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED,
        partition_max_bytes: int = PARTITION_MAX_BYTES,
        max_wait_ms: int = FETCH_MAX_WAIT_MS,
        **options: Any,
    ) -> None:
        try:
            # A missing extra is reported here rather than in the middle of a fetch.
            import fencepost.wire.arrow_records  # noqa: F401
        except ImportError as error:
            raise MissingExtra(error) from None
        super().__init__(Cluster(bootstrap_servers, **options))
        self._isolation_level = isolation_level
        self._partition_max_bytes = min(partition_max_bytes, FETCH_MAX_BYTES)
        self._max_wait_ms = max_wait_ms

    async def read(self, partition: TopicPartition, start: int, end: int) -> "AsyncIterator[pyarrow.RecordBatch]":
        """The records from `start` up to, not including, `end`, which must have been written: it waits for them."""
        fetcher = PartitionFetcher(
            self.cluster,
            {partition: start},
            self._isolation_level,
            partition_max_bytes=self._partition_max_bytes,
            max_wait_ms=self._max_wait_ms,
            read=read_columns,
        )
        while fetcher.positions[partition] < end:
            found: list[Any] = list(await fetcher.fetch([partition]))
            for batch in found:
                kept = _before(batch, end)
                if kept.num_rows:
                    yield kept


def _before(batch: Any, end: int) -> Any:
    """The rows below an offset. Offsets grow, so that is a prefix."""
    import numpy  # with the extra, as above

    offsets = batch.column(0).to_numpy()
    return batch.slice(0, int(numpy.searchsorted(offsets, end)))


class ArrowReader(OwningTwin[AsyncArrowReader]):
    def __init__(self, bootstrap_servers: str | Sequence[str], **options: Any) -> None:
        super().__init__(lambda: AsyncArrowReader(bootstrap_servers, **options))

    read = iterated(AsyncArrowReader.read)
