"""ListOffsets: from positions in time to offsets, asked of every leader at once."""

import asyncio
import collections
from collections.abc import Mapping

from fencepost.client import apis
from fencepost.client.cluster import Cluster
from fencepost.client.errors import ClientError
from fencepost.client.values import IsolationLevel, ListedOffset
from fencepost.client.verdicts import NOT_THERE, STALE_LEADER, check
from fencepost.topic_partition import TopicPartition
from fencepost.wire import messages

_Request = messages.ListOffsetsRequest


async def list_offsets(
    cluster: Cluster, timestamps: Mapping[TopicPartition, int], isolation_level: IsolationLevel
) -> dict[TopicPartition, ListedOffset]:
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
        by_topic: dict[str, list[_Request.ListOffsetsTopic.ListOffsetsPartition]] = collections.defaultdict(list)
        for partition in partitions:
            by_topic[partition.topic].append(
                _Request.ListOffsetsTopic.ListOffsetsPartition(
                    partition_index=partition.partition, timestamp=timestamps[partition]
                )
            )
        request = _Request(
            replica_id=-1,
            isolation_level=int(isolation_level),
            topics=[_Request.ListOffsetsTopic(name=name, partitions=wanted) for name, wanted in by_topic.items()],
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
