"""The admin client of the inspecting commands: further queries, and raw batches of any range of a log.

Uses only Kafka's public APIs and works the same with Fencepost and Apache Kafka.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fencepost.client import apis
from fencepost.client.admin import AsyncAdmin
from fencepost.client.errors import STALE_LEADER, BrokerError, ClientError, check
from fencepost.client.fetching import DECOMPRESSED_BATCH_MAX_BYTES, AbortedTransaction
from fencepost.client.kafka_types import (
    IsolationLevel,
    PartitionMetadata,
    ProducerState,
    Reset,
    TransactionDescription,
    TransactionListing,
)
from fencepost.insight.command_line import CommandLine
from fencepost.insight.partition_scan import PartitionScan
from fencepost.topic_partition import TopicPartition
from fencepost.wire import messages
from fencepost.wire.batch import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    BatchHeader,
    EndTransactionMarker,
    read_header,
    read_marker,
)
from fencepost.wire.errors import ErrorCode, error_code
from fencepost.wire.records import Record, read_records

FETCH_MAX_BYTES = 8 * 1024 * 1024
HIDDEN = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
"""The errors for things that we may not see; managed clusters hide their internal topics this way."""


class PartitionOffsets(NamedTuple):
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int


class OpenTransaction(NamedTuple):
    """A transaction as one partition knows it."""

    partition: TopicPartition
    producer: ProducerState

    @property
    def start_offset(self) -> int:
        return self.producer.transaction_start_offset


class FetchedBatch(NamedTuple):
    header: BatchHeader
    data: memoryview

    def marker(self) -> EndTransactionMarker | None:
        return read_marker(self.data) if self.header.is_control else None

    def records(self) -> Iterator[Record]:
        return read_records(self.data, DECOMPRESSED_BATCH_MAX_BYTES)


class FetchedStretch(NamedTuple):
    """The result of one fetch."""

    batches: list[FetchedBatch]
    aborted: list[AbortedTransaction]
    offsets: PartitionOffsets
    view: memoryview


def java_hash(text: str) -> int:
    """Java's String.hashCode over UTF-16 units, made non-negative as in Kafka's coordinators."""
    value = 0
    units = text.encode("utf-16-be")
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    signed = value - 2**32 if value >= 2**31 else value
    return 0 if signed == -(2**31) else abs(signed)


_ANYWHERE = CommandLine()


class ClusterView(AsyncAdmin):
    def __init__(
        self, bootstrap_servers: str | Sequence[str], command_line: CommandLine = _ANYWHERE, **options: Any
    ) -> None:
        super().__init__(bootstrap_servers, **options)
        self.command_line = command_line
        """Formats commands to paste that connect to this cluster."""

    async def offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionOffsets]:
        wanted = list(partitions)
        if not wanted:
            return {}
        # The stable offset is queried first: it can only grow meanwhile, so it never appears to be above the high
        # watermark.
        earliest = await self.list_offsets(dict.fromkeys(wanted, int(Reset.EARLIEST)))
        stable = await self.list_offsets(dict.fromkeys(wanted, int(Reset.LATEST)), IsolationLevel.READ_COMMITTED)
        latest = await self.list_offsets(dict.fromkeys(wanted, int(Reset.LATEST)))
        return {at: PartitionOffsets(earliest[at].offset, stable[at].offset, latest[at].offset) for at in wanted}

    async def partitions_of(self, topic: str) -> list[TopicPartition]:
        metadata = await self.describe_topic(topic)
        return [TopicPartition(topic, partition) for partition in metadata.partitions]

    async def partition_metadata(self, partition: TopicPartition) -> PartitionMetadata:
        return await self.cluster.leader(partition.topic, partition.partition)

    async def coordinator_partition(self, topic: str, key: str) -> TopicPartition:
        """The partition of an internal topic that stores a group or a transactional id."""
        return TopicPartition(topic, java_hash(key) % len(await self.partitions_of(topic)))

    async def open_transactions(
        self, partitions: Iterable[TopicPartition]
    ) -> tuple[list[OpenTransaction], dict[TopicPartition, ClientError]]:
        """The open transactions, by their start in each partition, and the partitions that could not be queried."""
        described = await self.describe_producers(partitions)
        found, refused = [], {}
        for partition, producers in described.items():
            if isinstance(producers, ClientError):
                refused[partition] = producers
                continue
            found += [OpenTransaction(partition, each) for each in producers if each.transaction_start_offset >= 0]
        found.sort(key=lambda each: (each.partition, each.start_offset))
        return found, refused

    async def names_of(self, producer_ids: Iterable[int]) -> dict[int, TransactionListing]:
        """The transactional ids that currently have these producer ids."""
        wanted = sorted(set(producer_ids))
        if not wanted:
            return {}
        return {each.producer_id: each for each in await self.list_transactions(producer_ids=wanted)}

    async def describe_transaction_if_known(self, transactional_id: str) -> TransactionDescription | None:
        try:
            return await self.describe_transaction(transactional_id)
        except BrokerError as error:
            if error.code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                return None
            raise

    # Reading

    async def fetch(
        self,
        partition: TopicPartition,
        offset: int,
        isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        max_bytes: int = FETCH_MAX_BYTES,
    ) -> FetchedStretch:
        """Whole batches from an offset on; none at the end of the log. Does not wait for new ones."""
        request_type = messages.FetchRequest

        async def attempt() -> FetchedStretch:
            leader = await self.cluster.leader(partition.topic, partition.partition)
            wanted = request_type.FetchTopic.FetchPartition(
                partition=partition.partition, fetch_offset=offset, partition_max_bytes=max_bytes
            )
            request = request_type(
                max_wait_ms=0,
                min_bytes=0,
                max_bytes=max_bytes,
                isolation_level=int(isolation_level),
                topics=[request_type.FetchTopic(topic=partition.topic, partitions=[wanted])],
            )
            answer = await self.cluster.call_node(leader.leader, apis.FETCH, request)
            check(answer.error_code, f"fetch of {partition}")
            result = answer.responses[0].partitions[0]
            if result.error_code in STALE_LEADER:
                self.cluster.forget_topic(partition.topic)
            check(result.error_code, f"partition {partition}")
            listed = result.aborted_transactions or ()
            aborted = [AbortedTransaction(one.first_offset, one.producer_id) for one in listed]
            offsets = PartitionOffsets(result.log_start_offset, result.last_stable_offset, result.high_watermark)
            view = memoryview(result.records or b"")
            return FetchedStretch(_whole_batches(view, offset), aborted, offsets, view)

        return await self.cluster.retrying(attempt, fatal=frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}))

    async def fetch_many(
        self, positions: Mapping[TopicPartition, int], max_bytes: int = FETCH_MAX_BYTES
    ) -> dict[TopicPartition, FetchedStretch | BrokerError]:
        """Fetches all these partitions with one read_uncommitted request per leader. A partition that fails has its
        error.

        Does not retry: a caller that follows a log asks again anyway.
        """
        request_type = messages.FetchRequest
        by_leader: dict[int, dict[str, list[int]]] = {}
        for at in positions:
            leader = await self.cluster.leader(at.topic, at.partition)
            by_leader.setdefault(leader.leader, {}).setdefault(at.topic, []).append(at.partition)

        async def one(node_id: int, topics: dict[str, list[int]]) -> dict[TopicPartition, FetchedStretch | BrokerError]:
            request = request_type(
                max_wait_ms=0,
                min_bytes=0,
                max_bytes=max_bytes,
                isolation_level=int(IsolationLevel.READ_UNCOMMITTED),
                topics=[
                    request_type.FetchTopic(
                        topic=topic,
                        partitions=[
                            request_type.FetchTopic.FetchPartition(
                                partition=number,
                                fetch_offset=positions[TopicPartition(topic, number)],
                                partition_max_bytes=max_bytes,
                            )
                            for number in numbers
                        ],
                    )
                    for topic, numbers in topics.items()
                ],
            )
            answer = await self.cluster.call_node(node_id, apis.FETCH, request)
            check(answer.error_code, f"fetch of {', '.join(topics)}")
            found: dict[TopicPartition, FetchedStretch | BrokerError] = {}
            for topic in answer.responses:
                for result in topic.partitions:
                    at = TopicPartition(topic.topic, result.partition_index)
                    if result.error_code in STALE_LEADER:
                        self.cluster.forget_topic(topic.topic)
                    if result.error_code != ErrorCode.NONE:
                        found[at] = BrokerError(error_code(result.error_code), f"partition {at}")
                        continue
                    offsets = PartitionOffsets(
                        result.log_start_offset, result.last_stable_offset, result.high_watermark
                    )  # fmt: skip
                    view = memoryview(result.records or b"")
                    found[at] = FetchedStretch(_whole_batches(view, positions[at]), [], offsets, view)
            return found

        several = await asyncio.gather(*(one(node_id, topics) for node_id, topics in by_leader.items()))
        return {at: stretch for answers in several for at, stretch in answers.items()}

    async def batches(self, partition: TopicPartition, start: int, end: int) -> AsyncIterator[FetchedBatch]:
        """Every batch that touches [start, end), read uncommitted."""
        position = start
        while position < end:
            stretch = await self.fetch(partition, position)
            if not stretch.batches:
                return
            for batch in stretch.batches:
                if batch.header.base_offset >= end:
                    return
                yield batch
                position = batch.header.next_offset

    async def scan(self, partition: TopicPartition, start: int, end: int) -> PartitionScan:
        scan = PartitionScan(partition)
        async for batch in self.batches(partition, start, end):
            header = batch.header
            if header.base_offset < start and not header.is_control:
                header = header._replace(record_count=records_from(batch.data, header, start))
            scan.feed(header, batch.marker())
        return scan

    async def batch_at(self, partition: TopicPartition, offset: int) -> BatchHeader | None:
        """The batch at an offset; None if it no longer exists."""
        try:
            stretch = await self.fetch(partition, offset, max_bytes=1)
        except BrokerError as error:
            if error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                return None
            raise
        return stretch.batches[0].header if stretch.batches else None

    async def timestamp_at(self, partition: TopicPartition, offset: int) -> int | None:
        header = await self.batch_at(partition, offset)
        return None if header is None else header.base_timestamp

    async def gather_timestamps(self, opened: Iterable[OpenTransaction]) -> dict[OpenTransaction, int | None]:
        listed = list(opened)
        times = await asyncio.gather(*(self.timestamp_at(each.partition, each.start_offset) for each in listed))
        return dict(zip(listed, times, strict=True))


def records_from(data: memoryview, header: BatchHeader, start: int) -> int:
    """How many records of a batch are at or after an offset. Opens the batch only if it begins before the offset."""
    if header.base_offset >= start:
        return header.record_count
    return sum(record.offset >= start for record in read_records(data, DECOMPRESSED_BATCH_MAX_BYTES))


def _whole_batches(view: memoryview, offset: int) -> list[FetchedBatch]:
    found, position = [], 0
    while len(view) - position >= HEADER_BYTES:
        header = read_header(view, position)
        size = LOG_OVERHEAD_BYTES + header.batch_length
        if len(view) - position < size:
            break
        if header.last_offset >= offset:
            found.append(FetchedBatch(header, view[position : position + size]))
        position += size
    return found
