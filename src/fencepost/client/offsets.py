"""Queries and commits of offsets: offsets of partitions by timestamp, and committed offsets of groups."""

import asyncio
import collections
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from fencepost.client import apis
from fencepost.client.cluster import Cluster
from fencepost.client.errors import NOT_THERE, STALE_COORDINATOR, STALE_LEADER, ClientError, check
from fencepost.client.kafka_types import (
    CommittedOffset,
    CoordinatorKind,
    GroupMetadata,
    IsolationLevel,
    ListedOffset,
    by_topic,
)
from fencepost.topic_partition import TopicPartition
from fencepost.wire import messages

T = TypeVar("T")

_GROUP = CoordinatorKind.GROUP
_ListRequest = messages.ListOffsetsRequest
_CommitTopic = messages.OffsetCommitRequest.OffsetCommitRequestTopic
_FetchTopic = messages.OffsetFetchRequest.OffsetFetchRequestTopic


async def list_offsets(
    cluster: Cluster, timestamps: Mapping[TopicPartition, int], isolation_level: IsolationLevel
) -> dict[TopicPartition, ListedOffset]:
    """The offset at each timestamp. Asks all leaders concurrently. `Reset` has the special timestamps."""
    found: dict[TopicPartition, ListedOffset] = {}

    async def attempt() -> None:
        by_leader: dict[int, list[TopicPartition]] = collections.defaultdict(list)
        for partition in timestamps:
            if partition not in found:
                leader = await cluster.leader(partition.topic, partition.partition)
                by_leader[leader.leader].append(partition)
        asked = [ask(node_id, partitions) for node_id, partitions in by_leader.items()]
        for outcome in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    async def ask(node_id: int, partitions: list[TopicPartition]) -> None:
        by_topic: dict[str, list[_ListRequest.ListOffsetsTopic.ListOffsetsPartition]] = collections.defaultdict(list)
        for partition in partitions:
            by_topic[partition.topic].append(
                _ListRequest.ListOffsetsTopic.ListOffsetsPartition(
                    partition_index=partition.partition, timestamp=timestamps[partition]
                )
            )
        request = _ListRequest(
            replica_id=-1,
            isolation_level=int(isolation_level),
            topics=[_ListRequest.ListOffsetsTopic(name=name, partitions=wanted) for name, wanted in by_topic.items()],
            timeout_ms=cluster.request_timeout_ms,
        )
        try:
            answer = await cluster.call_node(node_id, apis.LIST_OFFSETS, request)
        except ClientError:
            for name in by_topic:
                cluster.forget_topic(name)
            raise
        for topic in answer.topics:
            for result in topic.partitions:
                if result.error_code in STALE_LEADER:
                    cluster.forget_topic(topic.name)
                partition = TopicPartition(topic.name, result.partition_index)
                check(result.error_code, f"partition {partition}")
                found[partition] = ListedOffset(result.offset, result.timestamp, result.leader_epoch)

    await cluster.retrying(attempt, fatal=NOT_THERE)
    return found


def check_group(cluster: Cluster, number: int, group_id: str, message: str | None = None) -> None:
    if number in STALE_COORDINATOR:
        cluster.forget_coordinator(_GROUP, group_id)
    check(number, f"group {group_id!r}", message)


async def committed_offsets(
    cluster: Cluster,
    group_id: str,
    partitions: Iterable[TopicPartition] | None = None,
    *,
    require_stable: bool = False,
    with_notes: bool = False,
) -> dict[TopicPartition, CommittedOffset]:
    """The offsets a group has committed, of some partitions or all. `require_stable` waits for open transactions.

    `with_notes`: also entries whose offset is -1, "nothing committed", but which carry metadata.
    """
    wanted = None
    if partitions is not None:
        wanted = [_FetchTopic(name=name, partition_indexes=held) for name, held in by_topic(partitions).items()]
    request = messages.OffsetFetchRequest(group_id=group_id, topics=wanted, require_stable=require_stable)

    async def attempt() -> dict[TopicPartition, CommittedOffset]:
        answer = await cluster.call_coordinator(_GROUP, group_id, apis.OFFSET_FETCH, request)
        check_group(cluster, answer.error_code, group_id)
        offsets = {}
        for topic in answer.topics:
            for partition in topic.partitions:
                check_group(cluster, partition.error_code, group_id)
                if partition.committed_offset >= 0 or (with_notes and partition.metadata):
                    offsets[TopicPartition(topic.name, partition.partition_index)] = CommittedOffset(
                        partition.committed_offset, partition.committed_leader_epoch, partition.metadata or ""
                    )
        return dict(sorted(offsets.items()))

    return await cluster.retrying(attempt)


def topics_to_commit(
    offsets: Mapping[TopicPartition, CommittedOffset], topic_type: Callable[..., T], partition_type: Callable[..., Any]
) -> list[T]:
    """The topics of a request that commits offsets; with and without a transaction they have the same fields."""
    by_topic: dict[str, list[Any]] = collections.defaultdict(list)
    for at, committed in offsets.items():
        partition = partition_type(
            partition_index=at.partition,
            committed_offset=committed.offset,
            committed_leader_epoch=committed.leader_epoch,
            committed_metadata=committed.metadata,
        )
        by_topic[at.topic].append(partition)
    return [topic_type(name=name, partitions=partitions) for name, partitions in by_topic.items()]


async def commit_offsets(
    cluster: Cluster, group: GroupMetadata, offsets: Mapping[TopicPartition, CommittedOffset]
) -> None:
    """Commits as a member of the group, or, if the group has no members, without one."""
    request = messages.OffsetCommitRequest(
        group_id=group.group_id,
        generation_id_or_member_epoch=group.generation_id,
        member_id=group.member_id,
        group_instance_id=group.group_instance_id,
        topics=topics_to_commit(offsets, _CommitTopic, _CommitTopic.OffsetCommitRequestPartition),
    )

    async def attempt() -> None:
        answer = await cluster.call_coordinator(_GROUP, group.group_id, apis.OFFSET_COMMIT, request)
        for topic in answer.topics:
            for partition in topic.partitions:
                check_group(cluster, partition.error_code, group.group_id)

    await cluster.retrying(attempt)
