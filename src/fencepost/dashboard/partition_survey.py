"""The offsets of every partition of the cluster, queried at most every two seconds for all viewers.

The leader is asked who holds up a partition only if the last stable offset has not moved, because the answer lists all
producers of the partition, possibly thousands.
"""

import asyncio
import dataclasses
import time
from collections.abc import Callable
from typing import Any

from fencepost.client.errors import ClientError
from fencepost.client.kafka_types import IsolationLevel, Reset, TopicMetadata
from fencepost.dashboard.transaction_model import TransactionModel
from fencepost.insight.cluster_view import ClusterView, OpenTransaction, PartitionOffsets
from fencepost.topic_partition import TopicPartition

INTERVAL_SECONDS = 2.0
INTERVAL_MAX_SECONDS = 20.0
TOPICS_SECONDS = 10.0
LOG_STARTS_SECONDS = 60.0
SHARE_MAX = 0.05
"""Maximum share of time spent on surveys: a large cluster is surveyed less often."""
HOLDERS_PER_SURVEY_MAX = 10
HELD_SHOWN_MAX = 50


@dataclasses.dataclass(frozen=True, slots=True)
class Holder:
    producer_id: int
    producer_epoch: int
    start_ms: int | None


@dataclasses.dataclass(frozen=True, slots=True)
class SurveyedPartition:
    partition: TopicPartition
    leader: int | None
    offsets: PartitionOffsets

    @property
    def is_held(self) -> bool:
        return self.offsets.last_stable_offset < self.offsets.high_watermark


@dataclasses.dataclass(frozen=True, slots=True)
class HeldSince:
    last_stable_offset: int
    since_ms: int
    surveys: int
    """The number of surveys that found it unchanged."""


class Survey:
    def __init__(self, view: ClusterView, now_ms: Callable[[], int]) -> None:
        self._view = view
        self._now_ms = now_ms
        self.partitions: dict[TopicPartition, SurveyedPartition] = {}
        self.leaderless: list[TopicPartition] = []
        self.at_ms = 0
        self._held: dict[TopicPartition, HeldSince] = {}
        self._holders: dict[tuple[TopicPartition, int], Holder] = {}
        self._topics: list[TopicMetadata] = []
        self._log_starts: dict[TopicPartition, int] = {}
        self._due = self._topics_due = self._log_starts_due = float("-inf")
        self._lock = asyncio.Lock()

    async def topics(self) -> list[TopicMetadata]:
        if time.monotonic() >= self._topics_due:
            self._topics = await self._view.list_topics()
            self._topics_due = time.monotonic() + TOPICS_SECONDS
        return self._topics

    async def refresh(self) -> None:
        """Makes a survey unless the last one is recent."""
        async with self._lock:
            began = time.monotonic()
            if began < self._due:
                return
            try:
                await self._survey()
            except ClientError:
                self._due = self._topics_due = float("-inf")
                raise
            took = time.monotonic() - began
            self._due = began + max(INTERVAL_SECONDS, min(took / SHARE_MAX, INTERVAL_MAX_SECONDS))

    async def _survey(self) -> None:
        leaders: dict[TopicPartition, int] = {}
        self.leaderless = []
        for topic in await self.topics():
            for number, metadata in topic.partitions.items():
                at = TopicPartition(topic.name, number)
                if metadata.leader < 0:
                    self.leaderless.append(at)
                else:
                    leaders[at] = metadata.leader
        if time.monotonic() >= self._log_starts_due or leaders.keys() - self._log_starts.keys():
            earliest = await self._view.list_offsets(dict.fromkeys(leaders, int(Reset.EARLIEST)))
            self._log_starts = {at: listed.offset for at, listed in earliest.items()}
            self._log_starts_due = time.monotonic() + LOG_STARTS_SECONDS
        # The stable offset is queried first: it can only grow until the high watermark is queried.
        latest_of = dict.fromkeys(leaders, int(Reset.LATEST))
        stable = await self._view.list_offsets(latest_of, IsolationLevel.READ_COMMITTED)
        latest = await self._view.list_offsets(latest_of)
        self.partitions = {
            at: SurveyedPartition(
                at, leader, PartitionOffsets(self._log_starts[at], stable[at].offset, latest[at].offset)
            )
            for at, leader in leaders.items()
        }
        self.at_ms = self._now_ms()
        self._note_held()
        await self._find_holders()

    def _note_held(self) -> None:
        held = {}
        for at, surveyed in self.partitions.items():
            if not surveyed.is_held:
                continue
            stable, before = surveyed.offsets.last_stable_offset, self._held.get(at)
            if before is not None and before.last_stable_offset == stable:
                held[at] = dataclasses.replace(before, surveys=before.surveys + 1)
            else:
                held[at] = HeldSince(stable, self.at_ms, 1)
        self._held = held

    async def _find_holders(self) -> None:
        self._holders = {
            key: holder
            for key, holder in self._holders.items()
            if key[0] in self._held and self._held[key[0]].last_stable_offset == key[1]
        }
        wanted = [
            at
            for at, held in self._held.items()
            if held.surveys > 1 and (at, held.last_stable_offset) not in self._holders
        ]
        opened, _ = await self._view.open_transactions(wanted[:HOLDERS_PER_SURVEY_MAX])
        first: dict[TopicPartition, OpenTransaction] = {}
        for each in opened:
            first.setdefault(each.partition, each)
        found = [each for at, each in first.items() if each.start_offset == self._held[at].last_stable_offset]
        times = await self._view.gather_timestamps(found)
        for each in found:
            producer = each.producer
            self._holders[each.partition, each.start_offset] = Holder(
                producer.producer_id, producer.producer_epoch, times[each]
            )

    def held(self, model: TransactionModel, after_ms: int) -> dict[TopicPartition, dict[str, Any]]:
        """The partitions that are held up for unusually long, the longest first.

        Under load nearly every partition is held up briefly, which is not reported.
        """
        now_ms = self._now_ms()
        rows: list[tuple[TopicPartition, dict[str, Any]]] = []
        for at, since in self._held.items():
            if since.surveys < 2:
                continue  # another transaction may hold it up next time; then the offset moves
            surveyed = self.partitions[at]
            holder = self._holders.get((at, since.last_stable_offset))
            row = model.holder_of(at) if holder is None else model.row_of_producer(holder.producer_id)
            if row is not None and (row.start_ms is None or row.start_ms > since.since_ms):
                row = None  # it has changed since: this is not the transaction that the survey found
            start_ms = since.since_ms
            if row is not None and row.start_ms is not None:
                start_ms = row.start_ms
            elif holder is not None and holder.start_ms is not None:
                start_ms = min(holder.start_ms, start_ms)
            # As of the survey: it may have ended since.
            if self.at_ms - start_ms < after_ms:
                continue
            document = {
                "topic": at.topic,
                "partition": at.partition,
                "last_stable_offset": since.last_stable_offset,
                "high_watermark": surveyed.offsets.high_watermark,
                "transactional_id": None if row is None else row.transactional_id,
                "producer_id": row.producer_id if row else holder.producer_id if holder else None,
                "start_ms": start_ms,
                "age_ms": max(now_ms - start_ms, 0),
            }
            rows.append((at, document))
        rows.sort(key=lambda each: (-each[1]["age_ms"], each[0]))
        return dict(rows)

    def open_count(self, at: TopicPartition, model: TransactionModel) -> int:
        """The number of open transactions; those unknown to their coordinators are counted once they are found."""
        count = len(model.open_in.get(at, ()))
        since = self._held.get(at)
        if since is None:
            return count
        return max(count, int((at, since.last_stable_offset) in self._holders))
