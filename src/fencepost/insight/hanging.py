"""Finds transactions that no coordinator will ever end, in the whole cluster, oldest first.

A transaction hangs if it is open in a partition, but its coordinator has no open transaction of that producer with that
partition. Both are queried one after the other, so a transaction that ends in between looks as if it hangs. Therefore
every candidate is checked twice: it hangs if it still has the same start the second time.
"""

import asyncio
import dataclasses
from collections.abc import Iterable
from typing import Any

from fencepost.client.errors import ClientError
from fencepost.client.kafka_types import TransactionDescription
from fencepost.insight.cluster_view import ClusterView, OpenTransaction
from fencepost.insight.state_changes import ONGOING, PREPARED
from fencepost.topic_partition import TopicPartition

PARTITIONS_PER_CALL = 500


@dataclasses.dataclass(frozen=True, slots=True)
class HangingTransaction:
    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    start_ms: int | None
    last_timestamp_ms: int
    transactional_id: str | None
    """The transactional id that currently has the producer id; None if there is none."""
    reason: str

    def document(self, now_ms: int) -> dict[str, Any]:
        return {
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
            "coordinator_epoch": self.coordinator_epoch,
            "start_offset": self.start_offset,
            "start_ms": self.start_ms,
            "age_ms": None if self.start_ms is None else now_ms - self.start_ms,
            "last_timestamp_ms": self.last_timestamp_ms,
            "transactional_id": self.transactional_id,
            "reason": self.reason,
        }


def why_hanging(opened: OpenTransaction, description: TransactionDescription | None) -> str | None:
    """None if the coordinator will end it."""
    if description is None:
        return "no coordinator shows an id with its producer id"
    if description.producer_id != opened.producer.producer_id:
        return f"{description.transactional_id} now has another producer id ({description.producer_id})"
    if description.state not in (ONGOING, *PREPARED):
        return f"{description.transactional_id} is in state {description.state}"
    if opened.partition not in description.partitions:
        return f"{description.transactional_id} is {description.state}, but not in this partition"
    return None


async def find_hanging(
    view: ClusterView, topics: Iterable[str] = ()
) -> tuple[list[HangingTransaction], dict[TopicPartition, ClientError]]:
    """The hanging transactions, oldest first, and the partitions that could not be checked. No topics means all
    topics."""
    wanted = set(topics)
    for topic in wanted:
        await view.describe_topic(topic)  # a name that does not exist is an error
    partitions = [
        TopicPartition(topic.name, partition)
        for topic in await view.list_topics()
        for partition in topic.partitions
        if not wanted or topic.name in wanted
    ]
    candidates: list[tuple[OpenTransaction, str]] = []
    refused: dict[TopicPartition, ClientError] = {}
    for at in range(0, len(partitions), PARTITIONS_PER_CALL):
        opened, unseen = await view.open_transactions(partitions[at : at + PARTITIONS_PER_CALL])
        refused.update(unseen)
        candidates += await _unaccounted(view, opened)
    if not candidates:
        return [], refused
    again, _ = await view.open_transactions({opened.partition for opened, _ in candidates})
    still_open = {(opened.partition, opened.producer.producer_id, opened.start_offset): opened for opened in again}
    seen_twice = [
        still_open[key]
        for opened, _ in candidates
        if (key := (opened.partition, opened.producer.producer_id, opened.start_offset)) in still_open
    ]
    confirmed = await _unaccounted(view, seen_twice)
    times = await view.gather_timestamps(opened for opened, _ in confirmed)
    names = await view.names_of(opened.producer.producer_id for opened, _ in confirmed)
    found = [
        HangingTransaction(
            opened.partition,
            opened.producer.producer_id,
            opened.producer.producer_epoch,
            opened.producer.coordinator_epoch,
            opened.start_offset,
            times[opened],
            opened.producer.last_timestamp_ms,
            names[opened.producer.producer_id].transactional_id if opened.producer.producer_id in names else None,
            reason,
        )
        for opened, reason in confirmed
    ]
    return sorted(found, key=lambda each: (each.start_ms or 0, each.partition)), refused


async def _unaccounted(view: ClusterView, opened: list[OpenTransaction]) -> list[tuple[OpenTransaction, str]]:
    names = await view.names_of(each.producer.producer_id for each in opened)
    ids = sorted({listing.transactional_id for listing in names.values()})
    descriptions = dict(
        zip(ids, await asyncio.gather(*map(view.describe_transaction_if_known, ids)), strict=True)
    )  # fmt: skip
    found = []
    for each in opened:
        listing = names.get(each.producer.producer_id)
        reason = why_hanging(each, None if listing is None else descriptions[listing.transactional_id])
        if reason is not None:
            found.append((each, reason))
    return found
