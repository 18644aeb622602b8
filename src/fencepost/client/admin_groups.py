"""List, describe and delete consumer groups; read, commit and delete their offsets."""

import asyncio
import collections
from collections.abc import Iterable, Mapping

from fencepost.client import apis
from fencepost.client.cluster import Cluster
from fencepost.client.errors import BrokerError
from fencepost.client.values import (
    BrokerAddress,
    CommittedOffset,
    CoordinatorKind,
    GroupDescription,
    GroupListing,
    GroupMember,
    TopicPartition,
)
from fencepost.client.verdicts import NOT_THERE, STALE_COORDINATOR, check
from fencepost.wire import messages
from fencepost.wire.codec import decode_prefix
from fencepost.wire.errors import ErrorCode, MalformedMessage

_GROUP = CoordinatorKind.GROUP
_VERSION_BYTES = 2
_CommittedPartition = messages.OffsetCommitRequest.OffsetCommitRequestTopic.OffsetCommitRequestPartition


class GroupAdmin:
    _cluster: Cluster

    async def list_groups(
        self, states: Iterable[str] | None = None, types: Iterable[str] | None = None
    ) -> list[GroupListing]:
        request = messages.ListGroupsRequest(states_filter=list(states or ()), types_filter=list(types or ()))

        async def one(node_id: int) -> list[GroupListing]:
            async def attempt() -> list[GroupListing]:
                answer = await self._cluster.call_node(node_id, apis.LIST_GROUPS, request)
                check(answer.error_code, f"groups of broker {node_id}")
                return [
                    GroupListing(group.group_id, group.protocol_type, group.group_state, group.group_type or "classic")
                    for group in answer.groups
                ]

            return await self._cluster.retrying(attempt)

        found = await asyncio.gather(*map(one, self._cluster.brokers))
        return sorted((group for several in found for group in several), key=lambda group: group.group_id)

    async def describe_group(self, group_id: str) -> GroupDescription:
        """One group, of the classic protocol or the consumer protocol. Raises GROUP_ID_NOT_FOUND when there is none."""
        connection = await self._cluster.any_connection()
        if connection.offers(apis.CONSUMER_GROUP_DESCRIBE):
            try:
                return await self._describe_consumer_protocol(group_id)
            except BrokerError as error:
                # This is how a broker says that the group speaks the classic protocol, or does not exist.
                if error.code not in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
                    raise
        return await self._describe_classic(group_id)

    async def _describe_consumer_protocol(self, group_id: str) -> GroupDescription:
        async def attempt() -> GroupDescription:
            request = messages.ConsumerGroupDescribeRequest(group_ids=[group_id])
            answer = await self._cluster.call_coordinator(_GROUP, group_id, apis.CONSUMER_GROUP_DESCRIBE, request)
            (group,) = answer.groups
            self._check(group.error_code, group_id, group.error_message)
            members = [
                GroupMember(
                    member.member_id,
                    member.client_id,
                    member.client_host,
                    member.instance_id,
                    sorted(
                        TopicPartition(topic.topic_name, partition)
                        for topic in member.assignment.topic_partitions
                        for partition in topic.partitions
                    ),
                )
                for member in group.members
            ]
            coordinator = await self._coordinator(group_id)
            return GroupDescription(
                group_id, "consumer", group.group_state, "consumer", group.assignor_name, coordinator, members
            )

        return await self._cluster.retrying(attempt, fatal=NOT_THERE)

    async def _describe_classic(self, group_id: str) -> GroupDescription:
        async def attempt() -> GroupDescription:
            request = messages.DescribeGroupsRequest(groups=[group_id])
            answer = await self._cluster.call_coordinator(_GROUP, group_id, apis.DESCRIBE_GROUPS, request)
            (group,) = answer.groups
            self._check(group.error_code, group_id, group.error_message)
            if group.group_state == "Dead" and not group.members:
                raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id!r}")
            members = [
                GroupMember(
                    member.member_id,
                    member.client_id,
                    member.client_host,
                    member.group_instance_id,
                    _assignment(member.member_assignment) if group.protocol_type in ("", "consumer") else (),
                )
                for member in group.members
            ]
            coordinator = await self._coordinator(group_id)
            return GroupDescription(
                group_id, "classic", group.group_state, group.protocol_type, group.protocol_data, coordinator, members
            )

        return await self._cluster.retrying(attempt, fatal=NOT_THERE)

    async def _coordinator(self, group_id: str) -> BrokerAddress:
        return self._cluster.brokers[await self._cluster.coordinator(_GROUP, group_id)]

    def _check(self, number: int, group_id: str, message: str | None = None) -> None:
        if number in STALE_COORDINATOR:
            self._cluster.forget_coordinator(_GROUP, group_id)
        check(number, f"group {group_id!r}", message)

    async def committed_offsets(
        self, group_id: str, *, require_stable: bool = False
    ) -> dict[TopicPartition, CommittedOffset]:
        """Every offset the group has committed."""

        async def attempt() -> dict[TopicPartition, CommittedOffset]:
            request = messages.OffsetFetchRequest(group_id=group_id, topics=None, require_stable=require_stable)
            answer = await self._cluster.call_coordinator(_GROUP, group_id, apis.OFFSET_FETCH, request)
            self._check(answer.error_code, group_id)
            offsets = {}
            for topic in answer.topics:
                for partition in topic.partitions:
                    self._check(partition.error_code, group_id)
                    if partition.committed_offset >= 0:
                        offsets[TopicPartition(topic.name, partition.partition_index)] = CommittedOffset(
                            partition.committed_offset, partition.committed_leader_epoch, partition.metadata or ""
                        )
            return dict(sorted(offsets.items()))

        return await self._cluster.retrying(attempt)

    async def commit_offsets(self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Commit for a group that has no members now."""
        request_type = messages.OffsetCommitRequest
        by_topic: dict[str, list[_CommittedPartition]] = collections.defaultdict(list)
        for partition, committed in offsets.items():
            by_topic[partition.topic].append(
                _CommittedPartition(
                    partition_index=partition.partition,
                    committed_offset=committed.offset,
                    committed_leader_epoch=committed.leader_epoch,
                    committed_metadata=committed.metadata,
                )
            )
        request = request_type(
            group_id=group_id,
            topics=[
                request_type.OffsetCommitRequestTopic(name=name, partitions=partitions)
                for name, partitions in by_topic.items()
            ],
        )

        async def attempt() -> None:
            answer = await self._cluster.call_coordinator(_GROUP, group_id, apis.OFFSET_COMMIT, request)
            for topic in answer.topics:
                for partition in topic.partitions:
                    self._check(partition.error_code, group_id)

        await self._cluster.retrying(attempt)

    async def delete_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        request_type = messages.OffsetDeleteRequest
        by_topic: dict[str, list[int]] = collections.defaultdict(list)
        for partition in partitions:
            by_topic[partition.topic].append(partition.partition)
        request = request_type(
            group_id=group_id,
            topics=[
                request_type.OffsetDeleteRequestTopic(
                    name=name,
                    partitions=[
                        request_type.OffsetDeleteRequestTopic.OffsetDeleteRequestPartition(partition_index=index)
                        for index in indexes
                    ],
                )
                for name, indexes in by_topic.items()
            ],
        )

        async def attempt() -> None:
            answer = await self._cluster.call_coordinator(_GROUP, group_id, apis.OFFSET_DELETE, request)
            self._check(answer.error_code, group_id)
            for topic in answer.topics:
                for partition in topic.partitions:
                    check(partition.error_code, f"offset of {topic.name}-{partition.partition_index}")

        await self._cluster.retrying(attempt, fatal=NOT_THERE)

    async def delete_group(self, group_id: str) -> None:
        async def attempt() -> None:
            request = messages.DeleteGroupsRequest(groups_names=[group_id])
            answer = await self._cluster.call_coordinator(_GROUP, group_id, apis.DELETE_GROUPS, request)
            (result,) = answer.results
            self._check(result.error_code, group_id)

        await self._cluster.retrying(attempt, fatal=NOT_THERE)


def _assignment(data: bytes) -> list[TopicPartition]:
    """A member's partitions, from the bytes its group's leader wrote: some version of the consumer protocol."""
    if len(data) < _VERSION_BYTES:
        return []
    version = min(int.from_bytes(data[:_VERSION_BYTES], "big", signed=True), 3)
    try:
        assignment, _ = decode_prefix(messages.ConsumerProtocolAssignment, max(version, 0), data, _VERSION_BYTES)
    except MalformedMessage:
        return []
    return sorted(
        TopicPartition(topic.topic, partition)
        for topic in assignment.assigned_partitions
        for partition in topic.partitions
    )
