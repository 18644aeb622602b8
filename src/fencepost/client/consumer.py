"""Reads partitions it is given: from any position, up to what is there now or following, committed only if asked.

`PartitionFetcher` is the part that any consumer needs: positions, fetches to every leader, recovery from moved leaders.
`AsyncPartitionReader` reads assigned partitions with it; a member of a group can do the same with what it is assigned.
"""

import asyncio
import collections
import dataclasses
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any

from fencepost.client import apis
from fencepost.client.cluster import FETCHING, Backoff, Cluster
from fencepost.client.errors import BrokerError, ClientError, OffsetOutOfRange
from fencepost.client.fetched import AbortedTransaction, read_fetched
from fencepost.client.lifetime import Lifetime
from fencepost.client.offsets import list_offsets
from fencepost.client.values import ConsumedRecord, IsolationLevel, ListedOffset, Reset
from fencepost.client.verdicts import STALE_LEADER
from fencepost.topic_partition import TopicPartition
from fencepost.wire import messages
from fencepost.wire.errors import ErrorCode, error_code

FETCH_MAX_WAIT_MS = 500
FETCH_MAX_BYTES = 32 * 1024 * 1024
PARTITION_MAX_BYTES = 1024 * 1024


@dataclasses.dataclass(frozen=True, slots=True)
class AtTimestamp:
    """The first record at or after this time; the end of the log when there is none."""

    timestamp_ms: int


Position = int | Reset | AtTimestamp
"""An offset, or `Reset.EARLIEST`, `Reset.LATEST`, or a time."""


class PartitionFetcher:
    """Fetches from every leader at once. `positions` says where each partition goes on; the owner may move them."""

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
        """`read` turns the bytes of a fetch into what is wanted of it: records, unless told otherwise."""
        self._cluster = cluster
        self._read = read
        self._purpose = purpose
        self.positions = dict(positions)
        self.high_watermarks: dict[TopicPartition, int] = {}
        self._isolation_level = isolation_level
        self._partition_max_bytes = partition_max_bytes
        self.max_wait_ms = max_wait_ms

    async def fetch(self, partitions: Iterable[TopicPartition]) -> list[ConsumedRecord]:
        """One round: a fetch to each leader, until one has an answer for us. Moves the positions."""
        backoff = Backoff(self._cluster.retry_timeout_ms)
        wanted = list(partitions)
        while True:
            before = [self.positions[partition] for partition in wanted]
            records, trouble = await self._round(wanted)
            moved = before != [self.positions[partition] for partition in wanted]
            if records or moved or trouble is None:
                return records
            if not trouble.is_retriable or not await backoff.wait():
                raise trouble

    async def _round(self, wanted: Sequence[TopicPartition]) -> tuple[list[ConsumedRecord], ClientError | None]:
        by_leader: dict[int, list[TopicPartition]] = collections.defaultdict(list)
        trouble: ClientError | None = None
        for partition in wanted:
            try:
                leader = await self._cluster.leader(partition.topic, partition.partition)
                by_leader[leader.leader].append(partition)
            except ClientError as error:
                if not error.is_retriable:
                    raise
                trouble = error
        # With several leaders, data at one must not wait for the long poll of another.
        max_wait_ms = self.max_wait_ms if len(by_leader) <= 1 else min(self.max_wait_ms, 100)
        outcomes = await asyncio.gather(
            *(self._fetch_from(node_id, owned, max_wait_ms) for node_id, owned in by_leader.items())
        )
        records: list[ConsumedRecord] = []
        for found, failure in outcomes:
            records += found
            trouble = trouble or failure
        return records, trouble

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
        trouble: ClientError | None = None
        for topic in answer.responses:
            for result in topic.partitions:
                partition = TopicPartition(topic.topic, result.partition_index)
                try:
                    records += self._take(partition, result)
                except BrokerError as error:
                    trouble = await self._explain(partition, error)
        return records, trouble

    def _take(self, partition: TopicPartition, result: Any) -> list[ConsumedRecord]:
        if result.error_code != ErrorCode.NONE:
            if result.error_code in STALE_LEADER:
                self._cluster.forget_topic(partition.topic)
            raise BrokerError(error_code(result.error_code), f"partition {partition}")
        self.high_watermarks[partition] = result.high_watermark
        aborted = [AbortedTransaction(one.first_offset, one.producer_id) for one in result.aborted_transactions or ()]
        fetched = self._read(partition, self.positions[partition], result.records, self._isolation_level, aborted)
        self.positions[partition] = fetched.next_offset
        records: list[ConsumedRecord] = fetched.records
        return records

    async def _explain(self, partition: TopicPartition, error: BrokerError) -> ClientError:
        """Out of range says only that; a reader needs to know what the range is, or that the topic went away."""
        if error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
            raise await self.out_of_range(partition)
        return error

    async def out_of_range(self, partition: TopicPartition) -> OffsetOutOfRange:
        earliest = await list_offsets(self._cluster, {partition: Reset.EARLIEST}, self._isolation_level)
        latest = await list_offsets(self._cluster, {partition: Reset.LATEST}, self._isolation_level)
        return OffsetOutOfRange(
            partition.topic,
            partition.partition,
            self.positions[partition],
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
                    fetch_offset=self.positions[partition],
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


class AsyncPartitionReader(Lifetime):
    """Reads the given partitions of topics.

    `records()` ends when it has caught up with the end the log had at its start, or follows for ever.
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
        self._cluster = Cluster(bootstrap_servers, **options)
        self._isolation_level = isolation_level
        self._partition_max_bytes = partition_max_bytes
        self._max_wait_ms = max_wait_ms
        self._fetcher: PartitionFetcher | None = None

    async def start(self) -> None:
        await self._cluster.connect()

    async def close(self) -> None:
        await self._cluster.close()

    @property
    def positions(self) -> dict[TopicPartition, int]:
        return {} if self._fetcher is None else dict(self._fetcher.positions)

    async def partitions_of(self, topic: str) -> list[TopicPartition]:
        metadata = await self._cluster.topic(topic)
        return [TopicPartition(topic, partition) for partition in metadata.partitions]

    async def assign(self, starts: Mapping[TopicPartition, Position]) -> None:
        """Take over partitions, each from its position. Replaces an earlier assignment."""
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
            await self._cluster.leader(partition.topic, partition.partition)
        positions.update({partition: found.offset for partition, found in {**listed, **at_end}.items()})
        self._fetcher = PartitionFetcher(
            self._cluster,
            positions,
            self._isolation_level,
            partition_max_bytes=self._partition_max_bytes,
            max_wait_ms=self._max_wait_ms,
        )

    async def assign_topic(self, topic: str, start: Position = Reset.EARLIEST) -> None:
        """Take over every partition. An offset need not be in each of them: it is moved to the nearest that is."""
        partitions = await self.partitions_of(topic)
        if isinstance(start, AtTimestamp | Reset):
            await self.assign(dict.fromkeys(partitions, start))
            return
        earliest = await self._list(dict.fromkeys(partitions, int(Reset.EARLIEST)))
        latest = await self._list(dict.fromkeys(partitions, int(Reset.LATEST)))
        await self.assign({at: max(earliest[at].offset, min(start, latest[at].offset)) for at in partitions})

    async def end_offsets(self) -> dict[TopicPartition, int]:
        """Where the log ends now for this isolation level."""
        listed = await self._list(dict.fromkeys(self.positions, int(Reset.LATEST)))
        return {partition: found.offset for partition, found in listed.items()}

    async def _list(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, ListedOffset]:
        return await list_offsets(self._cluster, timestamps, self._isolation_level) if timestamps else {}

    async def poll(self) -> list[ConsumedRecord]:
        """The next records; empty when none came within the wait."""
        assert self._fetcher is not None, "assign partitions first"
        return await self._fetcher.fetch(self._fetcher.positions)

    async def batches(self, *, follow: bool = False) -> AsyncIterator[list[ConsumedRecord]]:
        """Records in the portions they arrive in."""
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
                # What was appended since the start is for the next reading.
                records = [one for one in records if one.offset < ends[TopicPartition(one.topic, one.partition)]]
            if records:
                yield records

    async def records(self, *, follow: bool = False) -> AsyncIterator[ConsumedRecord]:
        async for portion in self.batches(follow=follow):
            for record in portion:
                yield record
