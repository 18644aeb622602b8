"""Gathers what a running cluster can say of a partition or a transactional id."""

import asyncio
import dataclasses
from collections.abc import Iterable
from typing import Any

from fencepost.client.kafka_types import TransactionDescription
from fencepost.insight.causes import Cause, causes_of
from fencepost.insight.cluster_view import ClusterView, OpenTransaction, PartitionOffsets
from fencepost.insight.explanation import Coordinator, Holder, PartitionFacts
from fencepost.insight.hanging import why_hanging
from fencepost.insight.history import Moment, state_history, timeline, written_by
from fencepost.insight.partition_scan import PartitionScan
from fencepost.topic_partition import TopicPartition

PARTITIONS_PER_CALL = 500


class NothingKnown(Exception):
    """Nobody in the cluster knows what was asked for; the text says who was asked."""


@dataclasses.dataclass(frozen=True, slots=True)
class IdFacts:
    coordinator: Coordinator
    parts: list[PartitionFacts]
    """Of the partitions in which its transaction is open."""
    owed_markers: list[tuple[TopicPartition, int]]
    """Partition and the broker that leads it, of a transaction that is decided."""
    causes: list[Cause] | None
    """None where the broker keeps no journal."""
    history: list[Moment] | None = None
    has_hidden_states: bool = False

    def document(self, now_ms: int) -> dict[str, Any]:
        coordinator = self.coordinator
        return {
            "transactional_id": coordinator.transactional_id,
            "state": coordinator.state,
            "producer_id": coordinator.producer_id,
            "producer_epoch": coordinator.producer_epoch,
            "timeout_ms": coordinator.timeout_ms,
            "start_ms": coordinator.start_ms,
            "coordinator": coordinator.node_id,
            "partitions": [part.document(now_ms) for part in self.parts],
            "owed_markers": [{"partition": str(at), "broker": broker} for at, broker in self.owed_markers],
            "causes": None if self.causes is None else [cause.document() for cause in self.causes],
            "history": None if self.history is None else [moment.document() for moment in self.history],
            "is_transaction_state_hidden": self.has_hidden_states,
        }


async def explain_partitions(view: ClusterView, partitions: Iterable[TopicPartition]) -> list[PartitionFacts]:
    wanted = list(partitions)
    opened, refused = await view.open_transactions(wanted)
    offsets = await view.offsets(wanted)
    names = await view.names_of(each.producer.producer_id for each in opened)
    ids = sorted({listing.transactional_id for listing in names.values()})
    described = await asyncio.gather(*map(view.describe_transaction_if_known, ids))
    descriptions = {each.transactional_id: each for each in described if each is not None}
    facts = []
    for at in wanted:
        here = [each for each in opened if each.partition == at]
        facts.append(
            await _partition_facts(
                view,
                at,
                offsets[at],
                [
                    (each, descriptions.get(names[each.producer.producer_id].transactional_id))
                    if each.producer.producer_id in names
                    else (each, None)
                    for each in here
                ],
                None if at not in refused else str(refused[at]),
            )
        )
    return facts


async def _partition_facts(
    view: ClusterView,
    partition: TopicPartition,
    offsets: PartitionOffsets,
    opened: list[tuple[OpenTransaction, TransactionDescription | None]],
    not_seen: str | None,
) -> PartitionFacts:
    scan = await view.scan(partition, offsets.last_stable_offset, offsets.high_watermark)
    leader = (await view.partition_metadata(partition)).leader
    holders = [
        _holder(each, description, scan)
        for each, description in opened
        # What began after the snapshot holds nobody in it.
        if each.start_offset < offsets.high_watermark
    ]
    waiting = scan.records_decided_below(offsets.high_watermark)
    return PartitionFacts(partition, offsets, leader, waiting, scan.open_record_count, tuple(holders), not_seen)


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


async def explain_id(view: ClusterView, transactional_id: str, *, with_history: bool = False) -> IdFacts:
    description = await view.describe_transaction(transactional_id)
    facts = await explain_partitions(view, description.partitions)
    parts = [
        part for part in facts if any(holder.producer_id == description.producer_id for holder in part.holders)
    ]  # fmt: skip
    owed = []
    if description.state.startswith("Prepare"):
        owed = [(part.partition, -1 if part.leader is None else part.leader) for part in facts]
    causes = await causes_of(view, transactional_id)
    if not with_history:
        return IdFacts(as_coordinator(description), parts, owed, causes)
    changes = await state_history(view, transactional_id)
    touched = {at for change in changes or () for at in change.partitions} | set(description.partitions)
    there = {topic.name: topic.partitions for topic in await view.list_topics()}
    living = sorted(at for at in touched if at.partition in there.get(at.topic, {}))
    producers = {change.producer_id for change in changes or ()} | {description.producer_id}
    written = await written_by(view, producers, living)
    moments = timeline(changes or (), causes or (), written)
    return IdFacts(as_coordinator(description), parts, owed, causes, moments, changes is None)


async def id_of_producer(view: ClusterView, producer_id: int) -> str | None:
    """The transactional id that has a producer id, or by the journal once had it."""
    names = await view.names_of([producer_id])
    if producer_id in names:
        return names[producer_id].transactional_id
    for cause in reversed(await causes_of(view, "") or []):
        if cause.concerns(producer_id) and await view.describe_transaction_if_known(cause.transactional_id):
            return cause.transactional_id
    return None


async def partitions_open_for(view: ClusterView, producer_id: int) -> list[TopicPartition]:
    """Every partition of the cluster in which a producer has a transaction open."""
    partitions = [
        TopicPartition(topic.name, partition) for topic in await view.list_topics() for partition in topic.partitions
    ]
    found = []
    for at in range(0, len(partitions), PARTITIONS_PER_CALL):
        opened, _ = await view.open_transactions(partitions[at : at + PARTITIONS_PER_CALL])
        found += [each.partition for each in opened if each.producer.producer_id == producer_id]
    return found
