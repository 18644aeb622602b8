"""Prometheus metrics about any Kafka cluster: lag in records, held-up partitions, the oldest open transaction.

A collection takes several requests, so it runs at intervals, independently of scrapes. If it fails, the metrics of the
previous one are omitted rather than repeated, and `fencepost_exporter_up` is 0.
"""

import asyncio
import dataclasses
import time
from collections.abc import Callable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from fencepost.client.errors import BrokerError, ClientError
from fencepost.client.kafka_types import IsolationLevel, Reset, TransactionDescription
from fencepost.insight.cluster_view import HIDDEN, ClusterView, PartitionOffsets
from fencepost.insight.hanging import HangingTransaction, find_hanging
from fencepost.insight.lag import PartitionLag, group_lag
from fencepost.insight.state_changes import ONGOING, PREPARED
from fencepost.topic_partition import TopicPartition

INTERVAL_SECONDS = 15.0
HELD_AT_ONCE = 100


@dataclasses.dataclass(frozen=True, slots=True)
class Look:
    """The result of one collection."""

    at_seconds: float
    took_seconds: float
    offsets: dict[TopicPartition, PartitionOffsets]
    states: dict[str, int]
    """Number of transactional ids by the state of their transaction."""
    open: list[TransactionDescription]
    hanging: list[HangingTransaction]
    held_since: dict[TopicPartition, float]
    """Partitions whose readers wait for an open transaction, with the time at which it began."""
    groups: dict[str, list[PartitionLag]]
    unseen: int
    """Number of partitions and groups that the cluster does not show."""


async def look(view: ClusterView, clock: Callable[[], float] = time.time) -> Look:
    began, now = time.monotonic(), clock()
    partitions = [TopicPartition(topic.name, at) for topic in await view.list_topics() for at in topic.partitions]
    offsets = await view.offsets(partitions)
    listed = await view.list_transactions()
    states: dict[str, int] = {}
    for each in listed:
        states[each.state] = states.get(each.state, 0) + 1
    ids = [each.transactional_id for each in listed if each.state in (ONGOING, *PREPARED)]
    described = await asyncio.gather(*map(view.describe_transaction_if_known, ids))
    hanging, refused = await find_hanging(view)
    groups, unseen = {}, len(refused)
    for group in await view.list_groups():
        try:
            groups[group.group_id] = await group_lag(view, group.group_id)
        except BrokerError as error:
            if error.code not in HIDDEN:
                raise
            unseen += 1
    opened = [each for each in described if each is not None]
    held_since = await _held_since(view, offsets, opened, now)
    return Look(now, time.monotonic() - began, offsets, states, opened, hanging, held_since, groups, unseen)


async def _held_since(
    view: ClusterView,
    offsets: dict[TopicPartition, PartitionOffsets],
    opened: list[TransactionDescription],
    now: float,
) -> dict[TopicPartition, float]:
    """By the coordinator's clock if it knows the transaction, otherwise by the first batch."""
    starts = {(at, each.producer_id): each.start_ms for each in opened if each.start_ms > 0 for at in each.partitions}
    held = [at for at, found in offsets.items() if found.last_stable_offset < found.high_watermark]
    found: dict[TopicPartition, float] = {}
    for first in range(0, len(held), HELD_AT_ONCE):
        some = held[first : first + HELD_AT_ONCE]
        batches = await asyncio.gather(*(view.batch_at(at, offsets[at].last_stable_offset) for at in some))
        for at, header in zip(some, batches, strict=True):
            # The batch is not transactional, so the transaction has ended meanwhile.
            if header is not None and header.is_transactional and not header.is_control:
                found[at] = min(starts.get((at, header.producer_id), header.base_timestamp) / 1000, now)
    # A transaction that has ended since the offsets were queried holds up nothing.
    again = await view.list_offsets(dict.fromkeys(found, int(Reset.LATEST)), IsolationLevel.READ_COMMITTED)
    return {at: since for at, since in found.items() if again[at].offset == offsets[at].last_stable_offset}


class ClusterCollector:
    """Collector for Prometheus: the last result as metrics."""

    def __init__(self) -> None:
        self.last: Look | None = None
        self.failures = 0

    async def keep_looking(self, view: ClusterView, interval_seconds: float = INTERVAL_SECONDS) -> None:
        while True:
            try:
                self.last = await look(view)
            except ClientError:
                self.last = None
                self.failures += 1
            await asyncio.sleep(interval_seconds)

    def collect(self) -> Iterator[Metric]:
        last = self.last
        yield _gauge("fencepost_exporter_up", "1 if the last collection succeeded.", int(last is not None))
        yield _gauge("fencepost_exporter_failures", "Failed collections since the start.", self.failures)
        if last is None:
            return
        yield _gauge("fencepost_exporter_look_seconds", "Duration of the last collection.", last.took_seconds)
        yield _gauge("fencepost_exporter_unseen", "Partitions and groups that the cluster does not show.", last.unseen)
        yield from self._transactions(last)
        yield from self._partitions(last)
        yield from self._groups(last)

    def _transactions(self, last: Look) -> Iterator[Metric]:
        states = GaugeMetricFamily("kafka_transactional_ids", "Transactional ids, by state.", labels=["state"])
        for state, count in sorted(last.states.items()):
            states.add_metric([state], count)
        yield states
        ages = [last.at_seconds - each.start_ms / 1000 for each in last.open if each.start_ms > 0]
        yield _gauge(
            "kafka_transaction_oldest_open_age_seconds", "Age of the oldest open transaction.", max(ages, default=0.0)
        )
        yield _gauge(
            "kafka_transactions_hanging", "Transactions that no coordinator ends; see `fencepost txn find-hanging`.",
            len(last.hanging),
        )  # fmt: skip

    def _partitions(self, last: Look) -> Iterator[Metric]:
        labels = ["topic", "partition"]
        behind = GaugeMetricFamily(
            "kafka_partition_last_stable_offset_lag",
            "Offsets between the last stable offset and the high watermark: held back by open transactions.",
            labels=labels,
        )
        stable = GaugeMetricFamily("kafka_partition_last_stable_offset", "The last stable offset.", labels=labels)
        for at, offsets in sorted(last.offsets.items()):
            key = [at.topic, str(at.partition)]
            stable.add_metric(key, offsets.last_stable_offset)
            behind.add_metric(key, offsets.high_watermark - offsets.last_stable_offset)
        held = GaugeMetricFamily(
            "kafka_partition_readers_held_seconds",
            "Age of the transaction that read_committed consumers wait for; 0 if they do not wait.",
            labels=labels,
        )
        for at in sorted(last.offsets):
            since = last.held_since.get(at)
            held.add_metric([at.topic, str(at.partition)], 0.0 if since is None else last.at_seconds - since)
        yield stable
        yield behind
        yield held

    def _groups(self, last: Look) -> Iterator[Metric]:
        labels = ["group", "topic", "partition"]
        least = GaugeMetricFamily(
            "kafka_group_lag_records_min", "Records that will be read in any case.", labels=labels
        )
        most = GaugeMetricFamily(
            "kafka_group_lag_records_max", "Records that will be read if all open transactions commit.", labels=labels
        )
        pending = GaugeMetricFamily(
            "kafka_group_pending_offset", "1 while an open transaction has a pending offset.", labels=labels
        )
        for group, partitions in sorted(last.groups.items()):
            for each in partitions:
                key = [group, each.partition.topic, str(each.partition.partition)]
                least.add_metric(key, each.lag_min)
                most.add_metric(key, each.lag_max)
                pending.add_metric(key, int(each.is_unstable))
        yield least
        yield most
        yield pending


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)
