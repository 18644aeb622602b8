"""List, describe and delete consumer groups; read, commit and delete their offsets."""

import asyncio
from collections.abc import Iterable, Mapping

from fencepost.client import apis
from fencepost.client.cluster import ClusterCalls
from fencepost.client.errors import NOT_THERE, BrokerError, check
from fencepost.client.kafka_types import (
    BrokerAddress,
    CommittedOffset,
    CoordinatorKind,
    GroupDescription,
    GroupListing,
    GroupMember,
    GroupMetadata,
    by_topic,
)
from fencepost.client.membership import decode_assignment
from fencepost.client.offsets import check_group, commit_offsets, committed_offsets
from fencepost.topic_partition import TopicPartition
from fencepost.wire import messages
from fencepost.wire.errors import ErrorCode, MalformedMessage

_GROUP = CoordinatorKind.GROUP


class GroupAdmin(ClusterCalls):
    async def list_groups(
        self, states: Iterable[str] | None = None, types: Iterable[str] | None = None
    ) -> list[GroupListing]:
        request = messages.ListGroupsRequest(states_filter=list(states or ()), types_filter=list(types or ()))

        async def one(node_id: int) -> list[GroupListing]:
            async def attempt() -> list[GroupListing]:
                answer = await self.cluster.call_node(node_id, apis.LIST_GROUPS, request)
                check(answer.error_code, f"groups of broker {node_id}")
                return [
                    GroupListing(group.group_id, group.protocol_type, group.group_state, group.group_type or "classic")
                    for group in answer.groups
                ]

            return await self.cluster.retrying(attempt)

        found = await asyncio.gather(*map(one, self.cluster.brokers))
        return sorted((group for several in found for group in several), key=lambda group: group.group_id)

    async def describe_group(self, group_id: str) -> GroupDescription:
        """Describes a group of the classic or the consumer protocol. Raises GROUP_ID_NOT_FOUND if it does not exist."""
        connection = await self.cluster.any_connection()
        if connection.offers(apis.CONSUMER_GROUP_DESCRIBE):
            try:
                return await self._describe_consumer_protocol(group_id)
            except BrokerError as error:
                # A broker answers this if the group uses the classic protocol or does not exist.
                if error.code not in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
                    raise
        return await self._describe_classic(group_id)

    async def _describe_consumer_protocol(self, group_id: str) -> GroupDescription:
        async def attempt() -> GroupDescription:
            request = messages.ConsumerGroupDescribeRequest(group_ids=[group_id])
            answer = await self.cluster.call_coordinator(_GROUP, group_id, apis.CONSUMER_GROUP_DESCRIBE, request)
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

        return await self.cluster.retrying(attempt, fatal=NOT_THERE)

    async def _describe_classic(self, group_id: str) -> GroupDescription:
        async def attempt() -> GroupDescription:
            request = messages.DescribeGroupsRequest(groups=[group_id])
            answer = await self.cluster.call_coordinator(_GROUP, group_id, apis.DESCRIBE_GROUPS, request)
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

        return await self.cluster.retrying(attempt, fatal=NOT_THERE)

    async def _coordinator(self, group_id: str) -> BrokerAddress:
        return self.cluster.brokers[await self.cluster.coordinator(_GROUP, group_id)]

    def _check(self, number: int, group_id: str, message: str | None = None) -> None:
        check_group(self.cluster, number, group_id, message)

    async def committed_offsets(
        self, group_id: str, *, require_stable: bool = False, with_notes: bool = False
    ) -> dict[TopicPartition, CommittedOffset]:
        """Every offset that the group has committed; `with_notes` includes entries without an offset that carry
        metadata."""
        return await committed_offsets(self.cluster, group_id, require_stable=require_stable, with_notes=with_notes)

    async def commit_offsets(self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Commit offsets for a group without members."""
        await commit_offsets(self.cluster, GroupMetadata(group_id), offsets)

    async def delete_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        request_type = messages.OffsetDeleteRequest
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
                for name, indexes in by_topic(partitions).items()
            ],
        )

        async def attempt() -> None:
            answer = await self.cluster.call_coordinator(_GROUP, group_id, apis.OFFSET_DELETE, request)
            self._check(answer.error_code, group_id)
            for topic in answer.topics:
                for partition in topic.partitions:
                    check(partition.error_code, f"offset of {topic.name}-{partition.partition_index}")

        await self.cluster.retrying(attempt, fatal=NOT_THERE)

    async def delete_group(self, group_id: str) -> None:
        async def attempt() -> None:
            request = messages.DeleteGroupsRequest(groups_names=[group_id])
            answer = await self.cluster.call_coordinator(_GROUP, group_id, apis.DELETE_GROUPS, request)
            (result,) = answer.results
            self._check(result.error_code, group_id)

        await self.cluster.retrying(attempt, fatal=NOT_THERE)


def _assignment(data: bytes) -> list[TopicPartition]:
    """A member's partitions, if they are encoded as consumers do; otherwise none."""
    try:
        return decode_assignment(data)
    except MalformedMessage:
        return []
