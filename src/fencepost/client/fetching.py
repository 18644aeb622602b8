"""Fetching: from the positions of partitions to the records that an application may see.

`VisibleBatches` and `read_fetched` are pure: the bytes of a fetch in, records and the next offset out. They take whole
batches only, skip control batches, and leave out aborted transactions for `read_committed`. The next offset moves past
everything skipped, so that a reader gets past control and aborted records at the end of a log.

`PartitionFetcher` is the base of every consumer: positions, fetches from every leader, recovery when leaders change.
`AsyncPartitionReader` reads given partitions from any position, up to the end or beyond.
"""

import asyncio
import collections
import dataclasses
import heapq
import types
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fencepost.client import apis
from fencepost.client.cluster import FETCHING, Backoff, Cluster, ClusterSession
from fencepost.client.errors import STALE_LEADER, BrokerError, ClientError, CorruptRecords, OffsetOutOfRange
from fencepost.client.kafka_types import ConsumedRecord, IsolationLevel, ListedOffset, Reset
from fencepost.client.offsets import list_offsets
from fencepost.ports import Buffer
from fencepost.topic_partition import TopicPartition
from fencepost.wire import messages
from fencepost.wire.batch import (
    CREATE_TIME,
    CURRENT_MAGIC,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    BatchHeader,
    ControlType,
    read_header,
    read_marker,
    verify_crc,
)
from fencepost.wire.errors import ErrorCode, KafkaError, MalformedMessage, error_code
from fencepost.wire.records import read_records

FETCH_MAX_WAIT_MS = 500
FETCH_MAX_BYTES = 32 * 1024 * 1024
PARTITION_MAX_BYTES = 1024 * 1024
SEVERAL_LEADERS_MAX_WAIT_MS = 100
DECOMPRESSED_BATCH_MAX_BYTES = 256 * 1024 * 1024
_TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")


# From bytes to records


class AbortedTransaction(NamedTuple):
    first_offset: int
    producer_id: int


class Fetched(NamedTuple):
    records: list[ConsumedRecord]
    next_offset: int


class VisibleBatches:
    """Yields the batches of a fetch that an application may see, and moves `next_offset` past the others."""

    def __init__(
        self,
        partition: TopicPartition,
        fetch_offset: int,
        view: memoryview,
        isolation_level: IsolationLevel,
        aborted: Iterable[AbortedTransaction],
    ) -> None:
        self._partition = partition
        self._fetch_offset = fetch_offset
        self._view = view
        self._is_committed = isolation_level == IsolationLevel.READ_COMMITTED
        self._to_come = sorted(aborted)
        self._aborted_now: set[int] = set()
        self.next_offset = fetch_offset

    def __iter__(self) -> Iterator[tuple[int, BatchHeader]]:
        """A batch that is cut off at the end is left to the next fetch."""
        view, position = self._view, 0
        while len(view) - position >= HEADER_BYTES:
            header = read_header(view, position)
            if len(view) - position < LOG_OVERHEAD_BYTES + header.batch_length:
                break
            if header.magic != CURRENT_MAGIC:
                raise self.corrupt(header, f"message format {header.magic} is not known")
            if not verify_crc(view, position, header):
                raise self.corrupt(header, "wrong CRC")
            at, position = position, position + header.size_bytes
            if header.last_offset < self._fetch_offset:
                continue
            self.next_offset = header.next_offset
            if self._is_committed and header.has_producer_id and self._is_aborted(at, header):
                continue
            if not header.is_control:
                yield at, header

    def _is_aborted(self, at: int, header: BatchHeader) -> bool:
        while self._to_come and self._to_come[0].first_offset <= header.last_offset:
            self._aborted_now.add(heapq.heappop(self._to_come).producer_id)
        if header.is_control:
            marker = read_marker(self._view, at)
            if marker is not None and marker.control_type == ControlType.ABORT:
                self._aborted_now.discard(header.producer_id)
        return header.is_transactional and header.producer_id in self._aborted_now

    def corrupt(self, header: BatchHeader, reason: str) -> CorruptRecords:
        return CorruptRecords(self._partition.topic, self._partition.partition, header.base_offset, reason)


def read_fetched(
    partition: TopicPartition,
    fetch_offset: int,
    data: Buffer | None,
    isolation_level: IsolationLevel,
    aborted: Iterable[AbortedTransaction],
) -> Fetched:
    """The records at and after `fetch_offset`."""
    records: list[ConsumedRecord] = []
    view = memoryview(data if data is not None else b"")
    topic, index = partition.topic, partition.partition
    visible = VisibleBatches(partition, fetch_offset, view, isolation_level, aborted)
    for at, header in visible:
        kind = _TIMESTAMP_TYPES[header.timestamp_type != CREATE_TIME]
        try:
            for record in read_records(view, DECOMPRESSED_BATCH_MAX_BYTES, at):
                if record.offset >= fetch_offset:
                    records.append(
                        ConsumedRecord(
                            topic,
                            index,
                            record.offset,
                            record.timestamp,
                            kind,
                            record.key,
                            record.value,
                            record.headers,
                        )
                    )
        except (KafkaError, MalformedMessage) as error:
            raise visible.corrupt(header, str(error)) from None
    return Fetched(records, visible.next_offset)


# From positions to fetches


@dataclasses.dataclass(frozen=True, slots=True)
class AtTimestamp:
    """The first record at or after this time; the end of the log if there is none."""

    timestamp_ms: int


Position = int | Reset | AtTimestamp
"""An offset, or `Reset.EARLIEST`, `Reset.LATEST`, or a time."""


class PartitionFetcher:
    """Fetches from every leader at once. Owns the position of each partition, and recovers when leaders move."""

    def __init__(
        self,
        cluster: Cluster,
        positions: Mapping[TopicPartition, int],
        isolation_level: IsolationLevel,
        *,
        partition_max_bytes: int = PARTITION_MAX_BYTES,
        max_wait_ms: int = FETCH_MAX_WAIT_MS,
        purpose: str = FETCHING,
        read: Callable[..., Any] = read_fetched,
    ) -> None:
        """`read` decodes the bytes of a fetch, by default into records."""
        self._cluster = cluster
        self._read = read
        self._purpose = purpose
        self._positions = dict(positions)
        self._isolation_level = isolation_level
        self._partition_max_bytes = partition_max_bytes
        self._max_wait_ms = max_wait_ms

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        """The next offset to fetch from each partition."""
        return types.MappingProxyType(self._positions)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at this offset. Also for a partition without a position."""
        self._positions[partition] = offset

    def drop(self, partition: TopicPartition) -> None:
        self._positions.pop(partition, None)

    async def fetch(self, partitions: Iterable[TopicPartition], max_wait_ms: int | None = None) -> list[ConsumedRecord]:
        """Fetches once from each leader, and again if every fetch fails. Advances the positions."""
        backoff = Backoff(self._cluster.retry_timeout_ms)
        wanted = list(partitions)
        while True:
            before = [self._positions[partition] for partition in wanted]
            records, failure = await self._round(wanted, self._max_wait_ms if max_wait_ms is None else max_wait_ms)
            moved = before != [self._positions[partition] for partition in wanted]
            if records or moved or failure is None:
                return records
            if not failure.is_retriable or not await backoff.wait():
                raise failure

    async def _round(
        self, wanted: Sequence[TopicPartition], max_wait_ms: int
    ) -> tuple[list[ConsumedRecord], ClientError | None]:
        by_leader: dict[int, list[TopicPartition]] = collections.defaultdict(list)
        failure: ClientError | None = None
        for partition in wanted:
            try:
                leader = await self._cluster.leader(partition.topic, partition.partition)
                by_leader[leader.leader].append(partition)
            except ClientError as error:
                if not error.is_retriable:
                    raise
                failure = error
        # With several leaders, data from one must not wait for the long poll of another.
        if len(by_leader) > 1:
            max_wait_ms = min(max_wait_ms, SEVERAL_LEADERS_MAX_WAIT_MS)
        outcomes = await asyncio.gather(
            *(self._fetch_from(node_id, owned, max_wait_ms) for node_id, owned in by_leader.items())
        )
        records: list[ConsumedRecord] = []
        for found, refusal in outcomes:
            records += found
            failure = failure or refusal
        return records, failure

    async def _fetch_from(
        self, node_id: int, partitions: Sequence[TopicPartition], max_wait_ms: int
    ) -> tuple[list[ConsumedRecord], ClientError | None]:
        try:
            connection = await self._cluster.connection_to(node_id, self._purpose)
            answer = await connection.call(
                apis.FETCH, self._request(partitions, max_wait_ms), self._cluster.request_timeout_ms + max_wait_ms
            )
        except ClientError as error:
            if not error.is_retriable:
                raise
            for partition in partitions:
                self._cluster.forget_topic(partition.topic)
            return [], error
        if answer.error_code != ErrorCode.NONE:
            return [], BrokerError(error_code(answer.error_code), f"fetch from broker {node_id}")
        records: list[ConsumedRecord] = []
        failure: ClientError | None = None
        for topic in answer.responses:
            for result in topic.partitions:
                partition = TopicPartition(topic.topic, result.partition_index)
                try:
                    records += self._take(partition, result)
                except BrokerError as error:
                    failure = await self._explain(partition, error)
        return records, failure

    def _take(self, partition: TopicPartition, result: Any) -> list[ConsumedRecord]:
        if result.error_code != ErrorCode.NONE:
            if result.error_code in STALE_LEADER:
                self._cluster.forget_topic(partition.topic)
            raise BrokerError(error_code(result.error_code), f"partition {partition}")
        aborted = [AbortedTransaction(one.first_offset, one.producer_id) for one in result.aborted_transactions or ()]
        fetched = self._read(partition, self._positions[partition], result.records, self._isolation_level, aborted)
        self._positions[partition] = fetched.next_offset
        records: list[ConsumedRecord] = fetched.records
        return records

    async def _explain(self, partition: TopicPartition, error: BrokerError) -> ClientError:
        """The broker only reports that an offset is out of range; adds the range."""
        if error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
            raise await self.out_of_range(partition)
        return error

    async def out_of_range(self, partition: TopicPartition) -> OffsetOutOfRange:
        earliest = await list_offsets(self._cluster, {partition: Reset.EARLIEST}, self._isolation_level)
        latest = await list_offsets(self._cluster, {partition: Reset.LATEST}, self._isolation_level)
        return OffsetOutOfRange(
            partition.topic,
            partition.partition,
            self._positions[partition],
            earliest[partition].offset,
            latest[partition].offset,
        )

    def _request(self, partitions: Sequence[TopicPartition], max_wait_ms: int) -> messages.FetchRequest:
        request_type = messages.FetchRequest
        by_topic: dict[str, list[Any]] = collections.defaultdict(list)
        for partition in partitions:
            known = self._cluster.cached_topic(partition.topic)
            epoch = known.partitions[partition.partition].leader_epoch if known is not None else -1
            by_topic[partition.topic].append(
                request_type.FetchTopic.FetchPartition(
                    partition=partition.partition,
                    current_leader_epoch=epoch,
                    fetch_offset=self._positions[partition],
                    partition_max_bytes=self._partition_max_bytes,
                )
            )
        return request_type(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=FETCH_MAX_BYTES,
            isolation_level=int(self._isolation_level),
            topics=[request_type.FetchTopic(topic=name, partitions=wanted) for name, wanted in by_topic.items()],
        )


class AsyncPartitionReader(ClusterSession):
    """Reads the given partitions of topics.

    `records()` ends at the offset that was the end of the log when it started, or follows the log forever.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        partition_max_bytes: int = PARTITION_MAX_BYTES,
        max_wait_ms: int = FETCH_MAX_WAIT_MS,
        **options: Any,
    ) -> None:
        super().__init__(Cluster(bootstrap_servers, **options))
        self._isolation_level = isolation_level
        self._partition_max_bytes = partition_max_bytes
        self._max_wait_ms = max_wait_ms
        self._fetcher: PartitionFetcher | None = None

    @property
    def positions(self) -> dict[TopicPartition, int]:
        return {} if self._fetcher is None else dict(self._fetcher.positions)

    async def partitions_of(self, topic: str) -> list[TopicPartition]:
        metadata = await self.cluster.topic(topic)
        return [TopicPartition(topic, partition) for partition in metadata.partitions]

    async def assign(self, starts: Mapping[TopicPartition, Position]) -> None:
        """Read these partitions, each from its position. Replaces an earlier assignment."""
        asked = {
            partition: start.timestamp_ms if isinstance(start, AtTimestamp) else int(start)
            for partition, start in starts.items()
            if isinstance(start, AtTimestamp | Reset)
        }
        positions = {
            partition: start
            for partition, start in starts.items()
            if isinstance(start, int) and not isinstance(start, Reset)
        }
        listed = await self._list(asked)
        ends = {partition for partition, found in listed.items() if found.offset < 0}
        at_end = await self._list(dict.fromkeys(ends, int(Reset.LATEST)))
        for partition in starts:
            await self.cluster.leader(partition.topic, partition.partition)
        positions.update({partition: found.offset for partition, found in {**listed, **at_end}.items()})
        self._fetcher = PartitionFetcher(
            self.cluster,
            positions,
            self._isolation_level,
            partition_max_bytes=self._partition_max_bytes,
            max_wait_ms=self._max_wait_ms,
        )

    async def assign_topic(self, topic: str, start: Position = Reset.EARLIEST) -> None:
        """Read every partition of a topic. An offset outside the log is moved to the nearest one inside."""
        partitions = await self.partitions_of(topic)
        if isinstance(start, AtTimestamp | Reset):
            await self.assign(dict.fromkeys(partitions, start))
            return
        earliest = await self._list(dict.fromkeys(partitions, int(Reset.EARLIEST)))
        latest = await self._list(dict.fromkeys(partitions, int(Reset.LATEST)))
        await self.assign({at: max(earliest[at].offset, min(start, latest[at].offset)) for at in partitions})

    async def end_offsets(self) -> dict[TopicPartition, int]:
        """The current end offsets for this isolation level."""
        listed = await self._list(dict.fromkeys(self.positions, int(Reset.LATEST)))
        return {partition: found.offset for partition, found in listed.items()}

    async def _list(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, ListedOffset]:
        return await list_offsets(self.cluster, timestamps, self._isolation_level) if timestamps else {}

    async def poll(self) -> list[ConsumedRecord]:
        """The next records; empty if none arrive in time."""
        assert self._fetcher is not None, "assign partitions first"
        return await self._fetcher.fetch(self._fetcher.positions)

    async def batches(self, *, follow: bool = False) -> AsyncIterator[list[ConsumedRecord]]:
        """Yields records in lists, as they arrive."""
        assert self._fetcher is not None, "assign partitions first"
        fetcher = self._fetcher
        ends = {} if follow else await self.end_offsets()
        for partition, end in ends.items():
            if fetcher.positions[partition] > end:
                raise await fetcher.out_of_range(partition)
        while True:
            wanted = [at for at, position in fetcher.positions.items() if follow or position < ends[at]]
            if not wanted:
                return
            records = await fetcher.fetch(wanted)
            if not follow:
                # Records that were appended since then are left to the next reader.
                records = [one for one in records if one.offset < ends[TopicPartition(one.topic, one.partition)]]
            if records:
                yield records

    async def records(self, *, follow: bool = False) -> AsyncIterator[ConsumedRecord]:
        """Yields the records up to the current end of the log, or forever."""
        async for portion in self.batches(follow=follow):
            for record in portion:
                yield record
