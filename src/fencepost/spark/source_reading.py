"""A task of the source: fetches one range of one partition and gives its rows to Spark.

While Spark takes the rows of one fetch, the next is on its way. Connections are kept from task to task: a Python worker
serves many, and a batch of a few rows must not pay for a handshake.
"""

import logging
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from fencepost.client.cluster import Cluster
from fencepost.client.errors import OffsetOutOfRange, UnknownPartition, UnknownTopic
from fencepost.client.fetching import AbortedTransaction, PartitionFetcher, VisibleBatches
from fencepost.client.kafka_types import IsolationLevel, Reset
from fencepost.client.loop_thread import LoopThread
from fencepost.client.offsets import list_offsets
from fencepost.ports import Buffer
from fencepost.spark.python_workers import freeze_imports
from fencepost.spark.source_errors import DataLoss
from fencepost.spark.source_offsets import OffsetRange
from fencepost.spark.source_options import SourceOptions
from fencepost.topic_partition import TopicPartition

if TYPE_CHECKING:
    import pyarrow

    from fencepost.spark.unpacking import Portion

logger = logging.getLogger(__name__)


class _Line(NamedTuple):
    """A way to a cluster that outlives a task."""

    loop: LoopThread
    cluster: Cluster


_lines: dict[tuple[Any, ...], _Line] = {}


def _line(options: SourceOptions) -> _Line:
    key = (options.bootstrap_servers, *sorted(options.client.items()))
    line = _lines.get(key)
    if line is None:
        loop = LoopThread()

        async def connected() -> Cluster:
            cluster = Cluster(options.bootstrap_servers, **options.client)
            # Brokers may be on their way up again.
            await cluster.retrying(cluster.connect)
            return cluster

        try:
            line = _lines[key] = _Line(loop, loop.run(connected()))
        except BaseException:
            loop.close()
            raise
    return line


def close_lines() -> None:
    """For a process that reads in itself and goes on afterwards; a worker ends with its connections."""
    while _lines:
        _, line = _lines.popitem()
        line.loop.run(line.cluster.close())
        line.loop.close()


class _Fetched(NamedTuple):
    """What PartitionFetcher expects of a reading."""

    records: "list[Portion]"
    next_offset: int


def _portions(
    partition: TopicPartition,
    fetch_offset: int,
    data: Buffer | None,
    isolation_level: IsolationLevel,
    aborted: Iterable[AbortedTransaction],
) -> _Fetched:
    # Here and below: numba's compiled code, which the process that plans the tasks never needs.
    from fencepost.spark.unpacking import Portion
    from fencepost.wire.arrow_records import BatchAt

    view = memoryview(data if data is not None else b"")
    visible = VisibleBatches(partition, fetch_offset, view, isolation_level, aborted)
    batches = [BatchAt(at, header) for at, header in visible]
    return _Fetched([Portion(view, batches, fetch_offset)] if batches else [], visible.next_offset)


def read_range(options: SourceOptions, wanted: OffsetRange) -> "Iterator[pyarrow.RecordBatch]":
    """The rows of a range; fewer, with a warning, where they are gone and `failOnDataLoss` is off."""
    from fencepost.spark.unpacking import Unpacker  # as above

    partition = TopicPartition(wanted.topic, wanted.partition)
    unpacker = Unpacker(partition, wanted.end, include_headers=options.include_headers)
    for portion in _RangeFetcher(options, partition, wanted):
        yield from unpacker.unpack(portion)
    freeze_imports()


class _RangeFetcher:
    def __init__(self, options: SourceOptions, partition: TopicPartition, wanted: OffsetRange) -> None:
        self._options, self._partition, self._wanted = options, partition, wanted
        self._line = _line(options)
        self._fetcher = PartitionFetcher(
            self._line.cluster,
            {partition: wanted.start},
            options.isolation_level,
            partition_max_bytes=options.partition_max_bytes,
            max_wait_ms=options.max_wait_ms,
            read=_portions,
        )
        self._idle_since: float | None = None

    @property
    def _position(self) -> int:
        return self._fetcher.positions[self._partition]

    def __iter__(self) -> "Iterator[Portion]":
        pending = None
        try:
            pending = self._line.loop.start(self._fetch())
            while pending is not None:
                portions = pending.result()
                pending = self._line.loop.start(self._fetch()) if self._position < self._wanted.end else None
                yield from portions
        finally:
            if pending is not None:
                pending.cancel()

    async def _fetch(self) -> "list[Portion]":
        before = self._position
        try:
            portions: list[Any] = list(await self._fetcher.fetch([self._partition]))
        except OffsetOutOfRange as error:
            return self._skip_lost(error)
        except (UnknownTopic, UnknownPartition) as error:
            self._report(str(error))
            self._move_to(self._wanted.end)
            return []
        if self._position == before:
            await self._check_progress()
        else:
            self._idle_since = None
        return portions

    def _skip_lost(self, error: OffsetOutOfRange) -> "list[Portion]":
        """Records that were deleted are at the beginning of a log; a log that is shorter than it was is another one."""
        wanted = self._wanted
        self._report(
            f"Could not read records in offset [{self._position}, {wanted.end}) for topic partition {self._partition}; "
            f"the log holds {error.earliest} to {error.latest}"
        )
        self._move_to(min(error.earliest, wanted.end) if error.earliest > self._position else wanted.end)
        return []

    async def _check_progress(self) -> None:
        """Nothing came. The end was there when the batch was planned, so it will come back, or it is gone."""
        now = time.monotonic()
        self._idle_since = now if self._idle_since is None else self._idle_since
        if (now - self._idle_since) * 1000 < self._options.data_loss_timeout_ms:
            return
        latest = await list_offsets(self._line.cluster, {self._partition: Reset.LATEST}, self._options.isolation_level)
        self._report(
            f"Could not read records in offset [{self._position}, {self._wanted.end}) for topic partition "
            f"{self._partition}; its log ends at {latest[self._partition].offset} and nothing has come for "
            f"{self._options.data_loss_timeout_ms} ms"
        )
        self._move_to(self._wanted.end)

    def _move_to(self, offset: int) -> None:
        self._fetcher.seek(self._partition, offset)

    def _report(self, reason: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLoss(reason)
        logger.warning("some data may have been lost: %s", reason)
