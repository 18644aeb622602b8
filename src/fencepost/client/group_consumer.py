"""A member of a consumer group: follows its assignment, keeps positions, polls records.

Offsets are committed only on request: by `commit`, or by a `transaction` block, which commits them together with the
records sent in it. If a block is aborted, the positions are reset, so that its records are polled again: an abort alone
does not change the positions in a consumer's memory (KAFKA-17582).
"""

import asyncio
import collections
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Self

from fencepost.client.cluster import FETCHING, Cluster
from fencepost.client.errors import ClientClosed, ClientError, OffsetOutOfRange
from fencepost.client.fetching import FETCH_MAX_WAIT_MS, PARTITION_MAX_BYTES, PartitionFetcher
from fencepost.client.kafka_types import CommittedOffset, ConsumedRecord, GroupMetadata, IsolationLevel, Reset
from fencepost.client.membership import (
    HEARTBEAT_INTERVAL_MS,
    MAX_POLL_INTERVAL_MS,
    SESSION_TIMEOUT_MS,
    Membership,
)
from fencepost.client.offsets import commit_offsets, committed_offsets, list_offsets
from fencepost.client.transactions import AsyncTransaction, AsyncTransactionalProducer
from fencepost.topic_partition import TopicPartition

POLL_TIMEOUT_MS = 1_000
POLL_RECORDS_MAX = 500
Listener = Callable[[Sequence[TopicPartition]], None]

_serial = itertools.count()


class NoCommittedOffset(ClientError):
    def __init__(self, group_id: str, partition: TopicPartition) -> None:
        super().__init__(f"group {group_id!r} has no committed offset for {partition}")
        self.group_id = group_id
        self.partition = partition
        self.advice = "commit one, or set auto_offset_reset"


@dataclasses.dataclass(frozen=True, slots=True)
class ConsumerSettings:
    isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED
    auto_offset_reset: Reset | None = Reset.EARLIEST
    """Where to start in a partition without a committed offset; None raises NoCommittedOffset."""
    assignors: tuple[str, ...] = ("range", "cooperative-sticky")
    """In the order of preference. Rebalances are cooperative if all of them are."""
    group_instance_id: str | None = None
    session_timeout_ms: int = SESSION_TIMEOUT_MS
    heartbeat_interval_ms: int = HEARTBEAT_INTERVAL_MS
    max_poll_interval_ms: int = MAX_POLL_INTERVAL_MS
    partition_max_bytes: int = PARTITION_MAX_BYTES
    max_wait_ms: int = FETCH_MAX_WAIT_MS


class AsyncGroupConsumer:
    """Created by a client. One task polls; heartbeats are sent in the background."""

    def __init__(
        self,
        cluster: Cluster,
        group_id: str,
        topics: Iterable[str],
        settings: ConsumerSettings,
        producer: Callable[[str], AsyncTransactionalProducer],
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._producer = producer
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._membership = Membership(
            cluster,
            group_id,
            topics,
            assignors=settings.assignors,
            session_timeout_ms=settings.session_timeout_ms,
            heartbeat_interval_ms=settings.heartbeat_interval_ms,
            max_poll_interval_ms=settings.max_poll_interval_ms,
            group_instance_id=settings.group_instance_id,
        )
        self._fetcher = PartitionFetcher(
            cluster,
            {},
            settings.isolation_level,
            partition_max_bytes=settings.partition_max_bytes,
            max_wait_ms=settings.max_wait_ms,
            purpose=f"{FETCHING} {next(_serial)}",
        )
        self._positions: dict[TopicPartition, int] = {}
        """The offset of the next record for the application; the fetcher may be ahead of it by the buffered records."""
        self._buffered: dict[TopicPartition, collections.deque[ConsumedRecord]] = {}
        self._must_rewind: dict[TopicPartition, int] = {}
        self._block: AsyncConsumedTransaction | None = None
        self._joining: asyncio.Task[None] | None = None
        self._is_closed = False

    async def start(self) -> None:
        """The group is joined by the first poll."""

    async def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            if self._joining is not None:
                self._joining.cancel()
                await asyncio.gather(self._joining, return_exceptions=True)
            await self._membership.leave()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def group_id(self) -> str:
        return self._membership.group_id

    @property
    def assignment(self) -> list[TopicPartition]:
        return sorted(self._positions)

    @property
    def positions(self) -> dict[TopicPartition, int]:
        return dict(self._positions)

    def metadata(self) -> GroupMetadata:
        """The member that is consuming, for `send_offsets`."""
        return self._membership.metadata()

    def seek(self, partition: TopicPartition, offset: int) -> None:
        assert partition in self._positions, "seek in an assigned partition"
        self._must_rewind.pop(partition, None)
        self._place(partition, offset)

    # Polling

    async def poll(
        self, timeout_ms: int = POLL_TIMEOUT_MS, records_max: int = POLL_RECORDS_MAX
    ) -> list[ConsumedRecord]:
        """The next records; empty if none arrive in time. Only this call joins the group and revokes partitions."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        while True:
            if self._is_closed:
                raise ClientClosed
            self._membership.polled()
            if not await self._follow_group(deadline):
                return []
            records = self._take(records_max)
            left = deadline - loop.time()
            if records or left <= 0:
                return records
            if self._positions:
                await self._fetch(left)
            else:
                await self._wait_for_group(left)

    async def _wait_for_group(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._membership.woken.wait()
        except TimeoutError:
            pass

    async def _follow_group(self, deadline: float) -> bool:
        """Joins or rejoins the group if needed. Returns False if that takes longer than the poll: it continues in the
        background."""
        membership = self._membership
        if membership.failure is not None:
            raise membership.failure
        membership.look_for_new_partitions()
        # A block must be able to commit what it has consumed, so it keeps its partitions until it ends.
        is_held = self._block is not None and self._block.has_consumed
        if self._joining is None and membership.must_join and not is_held:
            self._joining = asyncio.create_task(self._join())
        if self._joining is not None:
            left = max(0.0, deadline - asyncio.get_running_loop().time())
            await asyncio.wait([self._joining], timeout=left)
            if not self._joining.done():
                return False
            joining, self._joining = self._joining, None
            joining.result()
        if self._must_rewind:
            await self._rewind()
        return True

    async def _join(self) -> None:
        membership = self._membership
        while membership.must_join:
            owned = self.assignment
            if owned and not (membership.is_cooperative and membership.is_member):
                # Under the eager protocol, and after the group has removed this member, all partitions are revoked
                # first.
                self._give_up(owned)
                owned = []
            assigned = await membership.join(owned)
            revoked = sorted(set(owned) - set(assigned))
            if revoked:
                self._give_up(revoked)
                # Their next owner gets them in the rebalance that follows.
                membership.join_again()
            await self._take_over(sorted(set(assigned) - set(owned)))

    def _give_up(self, partitions: Sequence[TopicPartition]) -> None:
        if self._on_revoked is not None:
            self._on_revoked(partitions)
        for partition in partitions:
            self._positions.pop(partition, None)
            self._buffered.pop(partition, None)
            self._fetcher.drop(partition)
            self._must_rewind.pop(partition, None)

    async def _take_over(self, partitions: Sequence[TopicPartition]) -> None:
        for partition, offset in (await self._begin_at(partitions)).items():
            self._place(partition, offset)
        if partitions and self._on_assigned is not None:
            self._on_assigned(partitions)

    async def _begin_at(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        if not partitions:
            return {}
        committed = await committed_offsets(self._cluster, self.group_id, partitions, require_stable=True)
        found = {partition: offset.offset for partition, offset in committed.items()}
        return found | await self._reset([partition for partition in partitions if partition not in found])

    async def _reset(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        if not partitions:
            return {}
        if self._settings.auto_offset_reset is None:
            raise NoCommittedOffset(self.group_id, partitions[0])
        asked = dict.fromkeys(partitions, int(self._settings.auto_offset_reset))
        listed = await list_offsets(self._cluster, asked, self._settings.isolation_level)
        return {partition: found.offset for partition, found in listed.items()}

    def _place(self, partition: TopicPartition, offset: int) -> None:
        self._positions[partition] = offset
        self._fetcher.seek(partition, offset)
        self._buffered[partition] = collections.deque()

    def _take(self, records_max: int) -> list[ConsumedRecord]:
        taken: list[ConsumedRecord] = []
        start = self.positions
        for partition, waiting in self._buffered.items():
            while waiting and len(taken) < records_max:
                taken.append(waiting.popleft())
                self._positions[partition] = taken[-1].offset + 1
            if not waiting:
                # Control records and aborted records after the last record count as consumed.
                self._positions[partition] = self._fetcher.positions[partition]
        if taken and self._block is not None:
            self._block.consumed(self.metadata(), start)
        return taken

    async def _fetch(self, seconds: float) -> None:
        drained = [partition for partition, waiting in self._buffered.items() if not waiting]
        max_wait_ms = max(1, min(self._settings.max_wait_ms, round(seconds * 1000)))
        try:
            records = await self._fetcher.fetch(drained, max_wait_ms)
        except OffsetOutOfRange as error:
            partition = TopicPartition(error.topic, error.partition)
            self._place(partition, (await self._reset([partition]))[partition])
            return
        for record in records:
            self._buffered[TopicPartition(record.topic, record.partition)].append(record)

    # Committing

    async def commit(self, offsets: Mapping[TopicPartition, CommittedOffset | int] | None = None) -> None:
        """Commit the positions, or the given offsets, outside of any transaction."""
        chosen = self._positions if offsets is None else offsets
        wanted = {partition: CommittedOffset.of(offset) for partition, offset in chosen.items()}
        if wanted:
            await commit_offsets(self._cluster, self.metadata(), wanted)

    async def committed(self) -> dict[TopicPartition, CommittedOffset]:
        return await committed_offsets(self._cluster, self.group_id, self.assignment, require_stable=True)

    def transaction(self, transactional_id: str) -> "AsyncConsumedTransaction":
        """A consume-transform-produce block: commits the offsets of polled records together with the records sent."""
        return AsyncConsumedTransaction(self, self._producer(transactional_id))

    def enter_block(self, block: "AsyncConsumedTransaction") -> None:
        assert self._block is None, "one transaction block at a time"
        self._block = block

    def leave_block(self, *, rewind_to: Mapping[TopicPartition, int] | None = None) -> None:
        """With `rewind_to`, go back to where the block began; the next poll goes back to the committed offsets."""
        self._block = None
        for partition, offset in (rewind_to or {}).items():
            if partition in self._positions:
                self._place(partition, offset)
                self._must_rewind[partition] = offset

    async def _rewind(self) -> None:
        """Goes back to the committed offsets, which are right even if the outcome of a commit is unknown."""
        wanted = self._must_rewind
        committed = await committed_offsets(self._cluster, self.group_id, wanted, require_stable=True)
        for partition, offset in wanted.items():
            found = committed.get(partition)
            self._place(partition, offset if found is None else found.offset)
        self._must_rewind = {}


class AsyncConsumedTransaction(AsyncTransaction):
    """A transaction around a consumer. Poll in it; its end commits offsets and records together, or neither."""

    def __init__(self, consumer: AsyncGroupConsumer, producer: AsyncTransactionalProducer) -> None:
        super().__init__(producer)
        self._consumer = consumer
        self._start: dict[TopicPartition, int] = {}
        self._member: GroupMetadata | None = None

    @property
    def has_consumed(self) -> bool:
        return self._member is not None

    def consumed(self, member: GroupMetadata, start: Mapping[TopicPartition, int]) -> None:
        """Remembers the member as of the first record: if the group removes it later, it must not commit as another
        one."""
        if self._member is None:
            self._member, self._start = member, dict(start)

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self._member, self._start = None, {}
        self._consumer.enter_block(self)
        return self

    async def poll(
        self, timeout_ms: int = POLL_TIMEOUT_MS, records_max: int = POLL_RECORDS_MAX
    ) -> list[ConsumedRecord]:
        return await self._consumer.poll(timeout_ms, records_max)

    async def before_commit(self) -> None:
        if self._member is not None:
            moved = {at: now for at, now in self._consumer.positions.items() if now != self._start.get(at)}
            await self.send_offsets(moved, self._member)

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            await super().__aexit__(kind, error, trace)
        except BaseException:
            self._consumer.leave_block(rewind_to=self._start)
            raise
        self._consumer.leave_block(rewind_to=None if error is None else self._start)
