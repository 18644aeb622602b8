"""Membership of a group under the classic protocol: join, sync, heartbeats in the background, leave.

Knows nothing of positions or records. The consumer calls `join` when it is ready to revoke partitions; `must_join`
tells it to. Calls that wait for other members use a separate connection.
"""

import asyncio
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from fencepost.client import apis
from fencepost.client.apis import Api
from fencepost.client.assignors import ASSIGNORS, Assignor, Subscription
from fencepost.client.cluster import MEMBERSHIP, Backoff, Cluster
from fencepost.client.errors import BrokerError, ClientError, UnknownTopic
from fencepost.client.kafka_types import CoordinatorKind, GroupMetadata, by_topic
from fencepost.client.offsets import check_group
from fencepost.topic_partition import TopicPartition
from fencepost.wire import messages
from fencepost.wire.codec import decode_prefix, encode
from fencepost.wire.errors import ErrorCode

Q = TypeVar("Q")
R = TypeVar("R")

SESSION_TIMEOUT_MS = 45_000
HEARTBEAT_INTERVAL_MS = 3_000
MAX_POLL_INTERVAL_MS = 300_000
JOIN_GRACE_MS = 5_000
SUBSCRIPTION_VERSION, ASSIGNMENT_VERSION = 3, 0

_GROUP = CoordinatorKind.GROUP
_VERSION = struct.Struct(">h")
_NO_LONGER_A_MEMBER = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})


class UnknownAssignor(ClientError):
    def __init__(self, name: str) -> None:
        super().__init__(f"the assignor {name!r} does not exist")
        self.name = name
        self.advice = f"choose from {', '.join(ASSIGNORS)}"


class Membership:
    def __init__(
        self,
        cluster: Cluster,
        group_id: str,
        topics: Iterable[str],
        *,
        assignors: Sequence[str],
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        heartbeat_interval_ms: int = HEARTBEAT_INTERVAL_MS,
        max_poll_interval_ms: int = MAX_POLL_INTERVAL_MS,
        group_instance_id: str | None = None,
    ) -> None:
        for name in assignors:
            if name not in ASSIGNORS:
                raise UnknownAssignor(name)
        self._cluster = cluster
        self.group_id = group_id
        self.topics = sorted(set(topics))
        self._assignors: list[Assignor] = [ASSIGNORS[name] for name in assignors]
        self._session_timeout_ms = session_timeout_ms
        self._heartbeat_interval_ms = heartbeat_interval_ms
        self._max_poll_interval_ms = max_poll_interval_ms
        self.group_instance_id = group_instance_id
        self.member_id = ""
        self.generation_id = -1
        self.must_join = True
        self.failure: ClientError | None = None
        """An error that rejoining would not fix."""
        self.woken = asyncio.Event()
        """Set when `must_join` or `failure` is."""
        self._counts_assigned: dict[str, int] = {}
        self._missing_topics: list[str] = []
        self._heartbeats: asyncio.Task[None] | None = None
        self._last_poll = 0.0

    @property
    def is_cooperative(self) -> bool:
        """Whether every assignor is cooperative, so that partitions are kept during a rebalance."""
        return all(assignor.is_cooperative for assignor in self._assignors)

    @property
    def is_member(self) -> bool:
        return self.generation_id >= 0

    def metadata(self) -> GroupMetadata:
        return GroupMetadata(self.group_id, self.generation_id, self.member_id, self.group_instance_id)

    def polled(self) -> None:
        """Records that the application is alive."""
        self._last_poll = asyncio.get_running_loop().time()

    # Joining

    async def join(self, owned: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Joins or rejoins, and returns the assigned partitions. Waits for the other members."""
        await self._stop_heartbeats()
        self.polled()
        backoff = Backoff(self._max_poll_interval_ms)
        while True:
            try:
                assigned = await self._join_once(owned if self.is_member else ())
                break
            except BrokerError as error:
                if error.code in (ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.REBALANCE_IN_PROGRESS):
                    continue
                if error.code in _NO_LONGER_A_MEMBER:
                    self._forget_membership()
                    continue
                if not error.is_retriable or not await backoff.wait():
                    raise
            except ClientError as error:
                if not error.is_retriable or not await backoff.wait():
                    raise
        self.must_join = False
        self.woken.clear()
        self._heartbeats = asyncio.create_task(self._beat())
        return assigned

    async def _join_once(self, owned: Sequence[TopicPartition]) -> list[TopicPartition]:
        request_type = messages.JoinGroupRequest
        subscription = self._encode_subscription(owned)
        request = request_type(
            group_id=self.group_id,
            session_timeout_ms=self._session_timeout_ms,
            rebalance_timeout_ms=self._max_poll_interval_ms,
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            protocol_type="consumer",
            protocols=[
                request_type.JoinGroupRequestProtocol(name=assignor.name, metadata=subscription)
                for assignor in self._assignors
            ],
        )
        joined = await self._call(apis.JOIN_GROUP, request, self._max_poll_interval_ms + JOIN_GRACE_MS)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = joined.member_id
        check_group(self._cluster, joined.error_code, self.group_id)
        self.member_id, self.generation_id = joined.member_id, joined.generation_id
        assignments: Mapping[str, Sequence[TopicPartition]] = {}
        is_leader = joined.leader == joined.member_id
        self._counts_assigned, self._missing_topics = {}, []
        if is_leader and not joined.skip_assignment:
            assignments = await self._decide(joined)
        return await self._sync(joined.protocol_name, assignments)

    async def _call(self, api: Api[Q, R], request: Q, timeout_ms: int) -> R:
        """These calls wait for other members, so they have a connection of their own."""
        return await self._cluster.call_coordinator(
            _GROUP, self.group_id, api, request, purpose=MEMBERSHIP, timeout_ms=timeout_ms
        )

    async def _decide(self, joined: messages.JoinGroupResponse) -> dict[str, list[TopicPartition]]:
        members = {
            member.member_id: _decode_subscription(member.metadata, member.group_instance_id)
            for member in joined.members
        }
        counts = {}
        for topic in sorted({topic for member in members.values() for topic in member.topics}):
            try:
                counts[topic] = len((await self._cluster.refresh_topic(topic)).partitions)
            except UnknownTopic:
                # It may be created later; until then it has no partitions to assign.
                continue
        self._counts_assigned = counts
        self._missing_topics = [topic for topic in self.topics if topic not in counts]
        return ASSIGNORS[joined.protocol_name or ""].assign(members, counts)

    async def _sync(
        self, protocol_name: str | None, assignments: Mapping[str, Sequence[TopicPartition]]
    ) -> list[TopicPartition]:
        request_type = messages.SyncGroupRequest
        request = request_type(
            group_id=self.group_id,
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            protocol_type="consumer",
            protocol_name=protocol_name,
            assignments=[
                request_type.SyncGroupRequestAssignment(member_id=member, assignment=_encode_assignment(partitions))
                for member, partitions in assignments.items()
            ],
        )
        synced = await self._call(apis.SYNC_GROUP, request, self._max_poll_interval_ms + JOIN_GRACE_MS)
        check_group(self._cluster, synced.error_code, self.group_id)
        return decode_assignment(synced.assignment)

    def look_for_new_partitions(self) -> None:
        """As the leader of the group, rejoins if the partitions of a topic have changed since the assignment."""
        for topic, count in self._counts_assigned.items():
            known = self._cluster.cached_topic(topic)
            if known is not None and len(known.partitions) != count:
                self.join_again()

    # Heartbeats

    async def _beat(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._heartbeat_interval_ms / 1000)
            if loop.time() - self._last_poll > self._max_poll_interval_ms / 1000:
                # An application that does not poll must not hold partitions that other members could read.
                await self.leave(because="the application has not polled in time")
                self.join_again()
                return
            request = messages.HeartbeatRequest(
                group_id=self.group_id,
                generation_id=self.generation_id,
                member_id=self.member_id,
                group_instance_id=self.group_instance_id,
            )
            try:
                answer = await self._call(apis.HEARTBEAT, request, self._session_timeout_ms)
                check_group(self._cluster, answer.error_code, self.group_id)
            except BrokerError as error:
                if error.code == ErrorCode.REBALANCE_IN_PROGRESS:
                    self.join_again()
                elif error.code in _NO_LONGER_A_MEMBER:
                    self._forget_membership()
                    self.join_again()
                    return
                elif not error.is_retriable:
                    self.failure = error
                    self.woken.set()
                    return
            except ClientError:
                # The coordinator is unreachable for now. The next heartbeat shows whether the session has survived.
                continue
            if self._missing_topics and await self._has_appeared(self._missing_topics):
                self.join_again()

    async def _has_appeared(self, topics: Sequence[str]) -> bool:
        for topic in topics:
            try:
                await self._cluster.refresh_topic(topic)
                return True
            except ClientError:
                continue
        return False

    def join_again(self) -> None:
        """Makes the consumer rejoin with its next poll."""
        self.must_join = True
        self.woken.set()

    def _forget_membership(self) -> None:
        self.generation_id = -1
        self.member_id = ""

    async def _stop_heartbeats(self) -> None:
        task, self._heartbeats = self._heartbeats, None
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def leave(self, because: str = "the consumer was closed") -> None:
        """Leave the group. A static member stays in it, because it is expected back."""
        await self._stop_heartbeats()
        if not self.member_id or self.group_instance_id is not None:
            return
        identity = messages.LeaveGroupRequest.MemberIdentity(member_id=self.member_id, reason=because)
        request = messages.LeaveGroupRequest(group_id=self.group_id, member_id=self.member_id, members=[identity])
        self._forget_membership()
        try:
            await self._cluster.call_coordinator(_GROUP, self.group_id, apis.LEAVE_GROUP, request)
        except ClientError:
            # The session timeout will remove the member.
            pass

    # Bytes

    def _encode_subscription(self, owned: Sequence[TopicPartition]) -> bytes:
        subscription = messages.ConsumerProtocolSubscription
        message = subscription(
            topics=self.topics,
            user_data=None,
            owned_partitions=[
                subscription.TopicPartition(topic=topic, partitions=partitions)
                for topic, partitions in by_topic(owned).items()
            ],
            generation_id=self.generation_id,
            rack_id=None,
        )
        return _VERSION.pack(SUBSCRIPTION_VERSION) + encode(message, SUBSCRIPTION_VERSION)


def _decode_subscription(data: bytes, group_instance_id: str | None) -> Subscription:
    # Newer versions begin with the fields of ours.
    version = max(0, min(_VERSION.unpack_from(data)[0], SUBSCRIPTION_VERSION))
    found, _ = decode_prefix(messages.ConsumerProtocolSubscription, version, data, _VERSION.size)
    owned = [
        TopicPartition(topic.topic, partition) for topic in found.owned_partitions for partition in topic.partitions
    ]
    return Subscription(frozenset(found.topics), tuple(owned), found.generation_id, group_instance_id)


def _encode_assignment(partitions: Sequence[TopicPartition]) -> bytes:
    assignment = messages.ConsumerProtocolAssignment
    message = assignment(
        assigned_partitions=[
            assignment.TopicPartition(topic=topic, partitions=indexes)
            for topic, indexes in by_topic(partitions).items()
        ],
        user_data=None,
    )
    return _VERSION.pack(ASSIGNMENT_VERSION) + encode(message, ASSIGNMENT_VERSION)


def decode_assignment(data: bytes) -> list[TopicPartition]:
    """A member's partitions, from the bytes its group's leader wrote: some version of the consumer protocol."""
    if len(data) < _VERSION.size:
        return []
    version = max(0, min(_VERSION.unpack_from(data)[0], SUBSCRIPTION_VERSION))
    found, _ = decode_prefix(messages.ConsumerProtocolAssignment, version, data, _VERSION.size)
    return sorted(
        TopicPartition(topic.topic, partition) for topic in found.assigned_partitions for partition in topic.partitions
    )
