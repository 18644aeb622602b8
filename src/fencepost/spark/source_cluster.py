"""What the driver asks the brokers: which partitions there are, and from where to where they can be read."""

import re
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from fencepost.client.blocking import Admin
from fencepost.client.errors import UnknownPartition, UnknownTopic
from fencepost.client.kafka_types import IsolationLevel, TopicMetadata
from fencepost.spark.source_errors import InvalidSourceOption, UnmatchedTimestamp
from fencepost.spark.source_options import EARLIEST, LATEST, Bound, SourceOptions
from fencepost.topic_partition import TopicPartition

TOPICS_ASKED_SINGLY_MAX = 8
"""Above this one answer with every topic of the cluster is cheaper than one question for each."""


class SourceCluster:
    """One connection for as long as the query runs."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._admin = Admin(options.bootstrap_servers, **options.client)
        self.topic_ids: dict[str, bytes] = {}
        """Of the topics that the last call of `partitions` has found."""

    def close(self) -> None:
        self._admin.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def partitions(self, *, may_lack: Iterable[str] = ()) -> set[TopicPartition]:
        """What is subscribed to, as it is now. Raises UnknownTopic, but for topics that may be gone."""
        subscription = self._options.subscription
        if subscription.partitions:
            named = {partition.topic for partition in subscription.partitions}
            there = self._partitions_of(named, frozenset(may_lack))
            missing = set(subscription.partitions) - there
            lost = sorted(partition for partition in missing if partition.topic not in may_lack)
            if lost:
                count = sum(1 for partition in there if partition.topic == lost[0].topic)
                raise UnknownPartition(lost[0].topic, lost[0].partition, count)
            return set(subscription.partitions) - missing
        if subscription.pattern:
            pattern = re.compile(subscription.pattern)
            listed = self._admin.list_topics()
            return self._of([topic for topic in listed if pattern.fullmatch(topic.name) and not topic.is_internal])
        return self._partitions_of(set(subscription.topics), frozenset(may_lack))

    def _partitions_of(self, names: set[str], may_lack: frozenset[str]) -> set[TopicPartition]:
        if len(names) > TOPICS_ASKED_SINGLY_MAX:
            topics = [topic for topic in self._admin.list_topics() if topic.name in names]
            missing = sorted(names - {topic.name for topic in topics} - may_lack)
            if missing:
                raise UnknownTopic(missing[0])
        else:
            topics = []
            for name in sorted(names):
                try:
                    topics.append(self._admin.describe_topic(name))
                except UnknownTopic:
                    if name not in may_lack:
                        raise
        return self._of(topics)

    def _of(self, topics: list[TopicMetadata]) -> set[TopicPartition]:
        self.topic_ids = {topic.name: topic.topic_id for topic in topics}
        return {TopicPartition(topic.name, partition) for topic in topics for partition in topic.partitions}

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._listed(dict.fromkeys(partitions, EARLIEST))

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The last stable offsets, or the high watermarks of a query that reads uncommitted."""
        return self._listed(dict.fromkeys(partitions, LATEST))

    def high_watermarks(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._listed(dict.fromkeys(partitions, LATEST), IsolationLevel.READ_UNCOMMITTED)

    def at(self, bound: Bound) -> dict[TopicPartition, int]:
        """Every partition's offset at a bound."""
        partitions = self.partitions()
        if bound.everywhere is not None:
            wanted = dict.fromkeys(partitions, bound.everywhere)
        else:
            if set(bound.each) != partitions:
                raise InvalidSourceOption(
                    f"Partitions specified for '{bound.option}' don't match what are assigned. "
                    f"Specified: {_names(bound.each)} Assigned: {_names(partitions)}.",
                    "Name every partition; use -1 for latest, -2 for earliest.",
                )
            wanted = dict(bound.each)
        to_ask = {at: number for at, number in wanted.items() if bound.is_timestamp or number < 0}
        found = self._listed(to_ask)
        unmatched = [partition for partition, offset in found.items() if offset < 0]
        if unmatched:
            is_starting = bound.option.startswith("starting")
            if is_starting and not self._options.unmatched_timestamp_is_latest:
                raise UnmatchedTimestamp(unmatched[0], wanted[unmatched[0]])
            found.update(self.latest(unmatched))
        return {**wanted, **found}

    def _listed(
        self, timestamps: dict[TopicPartition, int], isolation_level: IsolationLevel | None = None
    ) -> dict[TopicPartition, int]:
        if not timestamps:
            return {}
        level = self._options.isolation_level if isolation_level is None else isolation_level
        listed = self._admin.list_offsets(timestamps, level)
        return {partition: found.offset for partition, found in listed.items()}


def _names(partitions: Iterable[TopicPartition]) -> str:
    return "{" + ", ".join(str(partition) for partition in sorted(partitions)) + "}"
