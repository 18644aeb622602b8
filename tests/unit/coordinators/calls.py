"""Group requests in one line each, for any coordinator that answers `call`: on a stage, or over the wire."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fencepost.wire.codec import encode
from fencepost.wire.errors import ErrorCode
from fencepost.wire.messages import (
    ConsumerProtocolSubscription,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
    TxnOffsetCommitRequest,
)

GROUP = "orders-app"
SESSION_MS = 10_000
REBALANCE_MS = 60_000


class Reply(Protocol):
    """An answer that may still be on its way."""

    @property
    def done(self) -> bool: ...

    @property
    def value(self) -> Any: ...


@dataclass(frozen=True)
class Topic:
    topic_id: bytes
    partition_count: int


class KnownTopics(dict[str, Topic]):
    def name_of(self, topic_id: bytes) -> str | None:
        return next((name for name, topic in self.items() if topic.topic_id == topic_id), None)

    def id_of(self, name: str) -> bytes | None:
        return self[name].topic_id if name in self else None

    def partition_count_of(self, name: str) -> int | None:
        return self[name].partition_count if name in self else None


class GroupCalls:
    topics: KnownTopics

    def call(self, name: str, request: Any, version: int, client_id: str = "app") -> Reply:
        raise NotImplementedError

    def advance(self, milliseconds: int) -> None:
        """Let time pass."""
        raise NotImplementedError

    def join(
        self,
        member_id: str = "",
        *,
        group: str = GROUP,
        version: int = 9,
        instance: str | None = None,
        topics: Sequence[str] = ("orders",),
        protocols: Sequence[str] = ("range",),
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        client_id: str = "app",
        metadata: bytes | None = None,
    ) -> Reply:
        described = subscription(topics) if metadata is None else metadata
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name=p, metadata=described) for p in protocols],
        )
        return self.call("join_group", request, version, client_id)

    def new_id(self, **how: Any) -> str:
        """Ask for a member id, as a client of version 4 or later does first."""
        answer = self.join(**how).value
        assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
        return str(answer.member_id)

    def sync_group(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        group: str = GROUP,
        version: int = 5,
        instance: str | None = None,
        protocol_type: str | None = "consumer",
        protocol: str | None = "range",
    ) -> Reply:
        assignment = SyncGroupRequest.SyncGroupRequestAssignment
        request = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocol_name=protocol,
            assignments=[assignment(member_id=m, assignment=a) for m, a in (assignments or {}).items()],
        )
        return self.call("sync_group", request, version)

    def heartbeat(
        self, member_id: str, generation: int, *, group: str = GROUP, instance: str | None = None, version: int = 4
    ) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=group, generation_id=generation, member_id=member_id, group_instance_id=instance
        )
        return ErrorCode(self.call("heartbeat", request, version).value.error_code)

    def leave(self, *member_ids: str, group: str = GROUP, instance: str | None = None, version: int = 5) -> Reply:
        identity = LeaveGroupRequest.MemberIdentity
        members = [identity(member_id=m, group_instance_id=instance) for m in member_ids]
        request = LeaveGroupRequest(group_id=group, member_id=member_ids[0], members=members)
        return self.call("leave_group", request, version)

    def commit(
        self,
        offsets: dict[tuple[str, int], int],
        *,
        member_id: str = "",
        generation: int = -1,
        group: str = GROUP,
        instance: str | None = None,
        version: int = 9,
        metadata: str | None = "",
        retention_ms: int = -1,
        topic_id: bytes | None = None,
    ) -> Reply:
        topic_class = OffsetCommitRequest.OffsetCommitRequestTopic
        topics: dict[str, Any] = {}
        for (name, partition), offset in offsets.items():
            identity = topic_id if topic_id is not None else self.topics.id_of(name) or bytes(16)
            topic = topics.setdefault(name, topic_class(name=name, topic_id=identity))
            topic.partitions.append(
                topic_class.OffsetCommitRequestPartition(
                    partition_index=partition, committed_offset=offset, committed_metadata=metadata
                )
            )
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance,
            retention_time_ms=retention_ms,
            topics=list(topics.values()),
        )
        return self.call("offset_commit", request, version)

    def commit_error(self, offsets: dict[tuple[str, int], int], **how: Any) -> ErrorCode:
        """The one error that all partitions of a commit were answered with."""
        topics = self.commit(offsets, **how).value.topics
        (error,) = {partition.error_code for topic in topics for partition in topic.partitions}
        return ErrorCode(error)

    def txn_commit(
        self,
        producer_id: int,
        offsets: dict[tuple[str, int], int],
        *,
        member_id: str = "",
        generation: int = -1,
        group: str = GROUP,
        instance: str | None = None,
        version: int = 3,
    ) -> ErrorCode:
        topic_class = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        part = topic_class.TxnOffsetCommitRequestPartition
        request = TxnOffsetCommitRequest(
            transactional_id="tx",
            group_id=group,
            producer_id=producer_id,
            producer_epoch=0,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            topics=[
                topic_class(name=name, partitions=[part(partition_index=index, committed_offset=offset)])
                for (name, index), offset in offsets.items()
            ],
        )
        topics = self.call("txn_offset_commit", request, version).value.topics
        (error,) = {partition.error_code for topic in topics for partition in topic.partitions}
        return ErrorCode(error)

    def fetch(self, *wanted: tuple[str, int], group: str = GROUP, version: int = 9, stable: bool = False) -> Reply:
        """All offsets of the group when nothing is named."""
        group_class = OffsetFetchRequest.OffsetFetchRequestGroup
        named: dict[str, list[int]] = {}
        for name, partition in wanted:
            named.setdefault(name, []).append(partition)
        if version >= 8:
            topics = [
                group_class.OffsetFetchRequestTopics(
                    name=name, topic_id=self.topics.id_of(name) or b"?" * 16, partition_indexes=indexes
                )
                for name, indexes in named.items()
            ]
            groups = [group_class(group_id=group, topics=topics if wanted else None)]
            return self.call("offset_fetch", OffsetFetchRequest(groups=groups, require_stable=stable), version)
        old = [
            OffsetFetchRequest.OffsetFetchRequestTopic(name=name, partition_indexes=indexes)
            for name, indexes in named.items()
        ]
        request = OffsetFetchRequest(group_id=group, topics=old if wanted else None, require_stable=stable)
        return self.call("offset_fetch", request, version)

    def fetched(self, *wanted: tuple[str, int], group: str = GROUP, stable: bool = False) -> dict[tuple[str, int], int]:
        (answer,) = self.fetch(*wanted, group=group, stable=stable).value.groups
        assert answer.error_code == ErrorCode.NONE
        return {(t.name, p.partition_index): p.committed_offset for t in answer.topics for p in t.partitions}

    def delete_offsets(self, *wanted: tuple[str, int], group: str = GROUP) -> Any:
        topic_class = OffsetDeleteRequest.OffsetDeleteRequestTopic
        topics = [
            topic_class(name=name, partitions=[topic_class.OffsetDeleteRequestPartition(partition_index=index)])
            for name, index in wanted
        ]
        return self.call("offset_delete", OffsetDeleteRequest(group_id=group, topics=topics), 0).value

    def describe(self, group: str = GROUP, version: int = 6) -> Any:
        request = DescribeGroupsRequest(groups=[group])
        (answer,) = self.call("describe_groups", request, version).value.groups
        return answer

    def state(self, group: str = GROUP) -> str:
        return str(self.describe(group).group_state)

    def list_groups(self, states: Sequence[str] = (), types: Sequence[str] = ()) -> dict[str, str]:
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
        return {g.group_id: g.group_state for g in self.call("list_groups", request, 5).value.groups}

    def delete_groups(self, *groups: str) -> dict[str, ErrorCode]:
        request = DeleteGroupsRequest(groups_names=list(groups))
        results = self.call("delete_groups", request, 2).value.results
        return {result.group_id: ErrorCode(result.error_code) for result in results}

    # Longer scenes

    def stable_group(self, count: int = 1, *, group: str = GROUP, **how: Any) -> list[str]:
        """Members of a stable group, the leader first; member i is assigned b"share-<i>"."""
        ids = [self.new_id(group=group, **how) for _ in range(count)]
        joins = [self.join(member_id, group=group, **how) for member_id in ids]
        self.advance(0)
        answers = [join.value for join in joins]
        assert {answer.error_code for answer in answers} == {ErrorCode.NONE}
        leader, generation = answers[0].leader, answers[0].generation_id
        shares = {member_id: b"share-%d" % index for index, member_id in enumerate(ids)}
        protocol, kind = answers[0].protocol_name, answers[0].protocol_type
        for member_id in sorted(ids, key=lambda one: one == leader):
            given = shares if member_id == leader else None
            self.sync_group(member_id, generation, given, group=group, protocol=protocol, protocol_type=kind)
        assert self.state(group) == "Stable"
        return sorted(ids, key=lambda one: one != leader)


def subscription(topics: Sequence[str], version: int = 1) -> bytes:
    message = ConsumerProtocolSubscription(topics=list(topics), user_data=None)
    return struct.pack(">h", version) + encode(message, version)
