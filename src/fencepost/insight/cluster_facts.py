"""The facts of a running cluster, gathered over the wire from its brokers."""

import asyncio
import time
from collections.abc import Iterable

from fencepost.client.errors import BrokerError
from fencepost.client.kafka_types import TransactionDescription
from fencepost.insight.causes import Cause, causes_of
from fencepost.insight.cluster_view import HIDDEN, ClusterView, OpenTransaction, PartitionOffsets
from fencepost.insight.command_line import CommandLine
from fencepost.insight.explanation import Coordinator, Holder, IdFacts, NothingKnown, PartitionFacts, timeline
from fencepost.insight.hanging import why_hanging
from fencepost.insight.partition_scan import PartitionScan, PartitionTransaction
from fencepost.insight.state_changes import StateChange, read_state_change
from fencepost.internal_topic_names import TRANSACTION_STATE
from fencepost.topic_partition import TopicPartition

PARTITIONS_PER_CALL = 500
SCANNED_OFFSETS_MAX = 200_000
"""Records of a partition that a history reads; older ones are not counted."""


class ClusterFacts:
    """A `FactSource`."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view

    @property
    def command_line(self) -> CommandLine:
        return self._view.command_line

    def now_ms(self) -> int:
        return round(time.time() * 1000)

    async def topics(self) -> dict[str, list[int]]:
        return {topic.name: sorted(topic.partitions) for topic in await self._view.list_topics()}

    async def causes_of(self, transactional_id: str) -> list[Cause] | None:
        return await causes_of(self._view, transactional_id)

    async def id_of_producer(self, producer_id: int) -> str | None:
        names = await self._view.names_of([producer_id])
        if producer_id in names:
            return names[producer_id].transactional_id
        for cause in reversed(await causes_of(self._view, "") or []):
            if cause.concerns(producer_id) and await self._view.describe_transaction_if_known(cause.transactional_id):
                return cause.transactional_id
        return None

    async def partitions_open_for(self, producer_id: int) -> list[TopicPartition]:
        partitions = [TopicPartition(topic, each) for topic, held in (await self.topics()).items() for each in held]
        found = []
        for at in range(0, len(partitions), PARTITIONS_PER_CALL):
            opened, _ = await self._view.open_transactions(partitions[at : at + PARTITIONS_PER_CALL])
            found += [each.partition for each in opened if each.producer.producer_id == producer_id]
        if not found:
            raise NothingKnown(
                f"no coordinator knows the producer id {producer_id}, and it has no open transaction in any partition"
            )
        return found

    async def partition_facts(self, partitions: Iterable[TopicPartition]) -> list[PartitionFacts]:
        wanted, view = list(partitions), self._view
        opened, refused = await view.open_transactions(wanted)
        offsets = await view.offsets(wanted)
        names = await view.names_of(each.producer.producer_id for each in opened)
        ids = sorted({listing.transactional_id for listing in names.values()})
        described = await asyncio.gather(*map(view.describe_transaction_if_known, ids))
        descriptions = {each.transactional_id: each for each in described if each is not None}
        holders: dict[TopicPartition, list[tuple[OpenTransaction, TransactionDescription | None]]] = {}
        for each in opened:
            listing = names.get(each.producer.producer_id)
            description = None if listing is None else descriptions.get(listing.transactional_id)
            holders.setdefault(each.partition, []).append((each, description))
        return [
            await self._partition(at, offsets[at], holders.get(at, []), str(refused[at]) if at in refused else None)
            for at in wanted
        ]

    async def _partition(
        self,
        partition: TopicPartition,
        offsets: PartitionOffsets,
        opened: list[tuple[OpenTransaction, TransactionDescription | None]],
        not_seen: str | None,
    ) -> PartitionFacts:
        scan = await self._view.scan(partition, offsets.last_stable_offset, offsets.high_watermark)
        leader = (await self._view.partition_metadata(partition)).leader
        holders = [
            _holder(each, description, scan)
            for each, description in opened
            # A transaction that began after the offsets were read cannot hold up anything before them.
            if each.start_offset < offsets.high_watermark
        ]
        waiting = scan.records_decided_below(offsets.high_watermark)
        return PartitionFacts(partition, offsets, leader, waiting, scan.open_record_count, tuple(holders), not_seen)

    async def id_facts(self, transactional_id: str, *, with_history: bool = False) -> IdFacts:
        description = await self._view.describe_transaction_if_known(transactional_id)
        if description is None:
            raise NothingKnown(f"{transactional_id!r} is neither a topic nor a transactional id of this cluster")
        coordinator = as_coordinator(description)
        facts = await self.partition_facts(description.partitions)
        parts = [
            part for part in facts if any(holder.producer_id == description.producer_id for holder in part.holders)
        ]  # fmt: skip
        owed = []
        if description.state.startswith("Prepare"):
            owed = [(part.partition, -1 if part.leader is None else part.leader) for part in facts]
        causes = await self.causes_of(transactional_id)
        if not with_history:
            return IdFacts(coordinator, parts, owed, causes)
        changes = await self._state_changes(transactional_id)
        touched = {at for change in changes or () for at in change.partitions} | set(description.partitions)
        there = await self.topics()
        living = sorted(at for at in touched if at.partition in there.get(at.topic, ()))
        producers = {change.producer_id for change in changes or ()} | {description.producer_id}
        moments = timeline(changes or (), causes or (), await self._written_by(producers, living))
        return IdFacts(coordinator, parts, owed, causes, moments, changes is None)

    async def _state_changes(self, transactional_id: str) -> list[StateChange] | None:
        """The records of an id in __transaction_state, oldest first; None if the cluster hides that topic."""
        try:
            partition = await self._view.coordinator_partition(TRANSACTION_STATE, transactional_id)
            offsets = (await self._view.offsets([partition]))[partition]
            found = []
            async for batch in self._view.batches(partition, offsets.log_start_offset, offsets.high_watermark):
                if batch.header.is_control:
                    continue
                changes = (read_state_change(record) for record in batch.records())
                found += [change for change in changes if change and change.transactional_id == transactional_id]
            return found
        except BrokerError as error:
            if error.code in HIDDEN:
                return None
            raise

    async def _written_by(
        self, producer_ids: set[int], partitions: Iterable[TopicPartition]
    ) -> list[PartitionTransaction]:
        wanted = list(partitions)
        offsets = await self._view.offsets(wanted)
        found: list[PartitionTransaction] = []
        for at in wanted:
            start = max(offsets[at].log_start_offset, offsets[at].high_watermark - SCANNED_OFFSETS_MAX)
            scan = await self._view.scan(at, start, offsets[at].high_watermark)
            found += scan.of_producers(producer_ids)
        return found


def _holder(each: OpenTransaction, description: TransactionDescription | None, scan: PartitionScan) -> Holder:
    own = scan.open.get(each.producer.producer_id)
    return Holder(
        each.partition,
        each.producer.producer_id,
        each.producer.producer_epoch,
        each.start_offset,
        None if own is None else own.first_timestamp_ms,
        0 if own is None else own.record_count,
        None if description is None else as_coordinator(description),
        why_hanging(each, description),
    )


def as_coordinator(description: TransactionDescription) -> Coordinator:
    return Coordinator(
        description.transactional_id,
        description.state,
        description.producer_id,
        description.producer_epoch,
        description.timeout_ms,
        description.start_ms,
        description.coordinator_id,
        tuple(description.partitions),
    )
