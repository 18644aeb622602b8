"""One classic group: its members, its generation, and the table of its states.

Owns the rules that need nothing but the group itself: which transitions are legal, which protocol is chosen, who leads,
who may act in whose name. Time-outs, replies and records are the business of `rebalance` and its neighbours.
"""

import dataclasses
import enum
from collections import Counter
from collections.abc import Iterable, Sequence

from fencepost.coordinators.illegal_transition import IllegalTransition
from fencepost.coordinators.journal import NO_TIMESTAMP
from fencepost.promise import Promise
from fencepost.wire.codec import decode_prefix
from fencepost.wire.errors import ErrorCode, KafkaError, MalformedMessage
from fencepost.wire.messages import (
    ConsumerProtocolSubscription,
    GroupMetadataValue,
    JoinGroupResponse,
    SyncGroupResponse,
)

CONSUMER_PROTOCOL_TYPE = "consumer"
UNKNOWN_MEMBER_ID = ""
NO_GENERATION = -1

Protocols = tuple[tuple[str, bytes], ...]
"""Names with the member's metadata for each, in the member's order of preference."""


class GroupState(enum.Enum):
    """The values are the names that clients see."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


PREDECESSORS: dict[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.EMPTY, GroupState.STABLE, GroupState.COMPLETING_REBALANCE}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: frozenset(GroupState),
}
"""The transition table: from which states each state may be entered."""


@dataclasses.dataclass(slots=True, eq=False)
class Member:
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    assignment: bytes = b""
    awaiting_join: Promise[JoinGroupResponse] | None = None
    awaiting_sync: Promise[SyncGroupResponse] | None = None
    is_new: bool = False

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def has_satisfied_heartbeat(self) -> bool:
        """A member whose join or sync is parked here cannot heartbeat, and need not; a new one must still come back."""
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)

    def metadata_for(self, protocol: str | None) -> bytes:
        return dict(self.protocols)[protocol] if protocol is not None else b""


class Group:
    def __init__(self, group_id: str, partition: int, state_timestamp_ms: int | None) -> None:
        self.group_id = group_id
        self.partition = partition
        self.state = GroupState.EMPTY
        self.previous_state = GroupState.DEAD
        self.state_timestamp_ms = state_timestamp_ms
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static_member_ids: dict[str, str] = {}
        # Ids that were given out with MEMBER_ID_REQUIRED and have not come back yet.
        self.pending_join_ids: set[str] = set()
        # Members of this generation that have not asked for their assignment yet; a dict for its order.
        self.pending_sync_ids: dict[str, None] = {}
        self.subscribed_topics: frozenset[str] | None = None
        # A member joined while the first rebalance waits for company: it may wait a little longer.
        self.new_member_added = False
        # How many members support each protocol.
        self._supporters: Counter[str] = Counter()

    # States

    def is_in(self, *states: GroupState) -> bool:
        return self.state in states

    def transition_to(self, target: GroupState, wall_ms: int) -> None:
        if self.state not in PREDECESSORS[target]:
            raise IllegalTransition(self.group_id, self.state.value, target.value)
        self.previous_state = self.state
        self.state = target
        self.state_timestamp_ms = wall_ms

    @property
    def can_rebalance(self) -> bool:
        return self.state in PREDECESSORS[GroupState.PREPARING_REBALANCE]

    def begin_next_generation(self, wall_ms: int) -> None:
        self.generation_id += 1
        self.protocol = self.select_protocol() if self.members else None
        self.subscribed_topics = self.compute_subscribed_topics()
        self.transition_to(GroupState.COMPLETING_REBALANCE if self.members else GroupState.EMPTY, wall_ms)
        self.pending_sync_ids.clear()

    # Members

    @property
    def has_all_members_joined(self) -> bool:
        return not self.pending_join_ids and all(m.awaiting_join is not None for m in self.members.values())

    @property
    def awaiting_join_count(self) -> int:
        return sum(member.awaiting_join is not None for member in self.members.values())

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def is_leader(self, member_id: str) -> bool:
        return self.leader_id == member_id

    def add(self, member: Member) -> None:
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self.static_member_ids
            self.static_member_ids[member.group_instance_id] = member.member_id
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._supporters.update(name for name, _ in member.protocols)
        self.pending_join_ids.discard(member.member_id)

    def update(self, member: Member, protocols: Protocols, rebalance_timeout_ms: int, session_timeout_ms: int) -> None:
        self._supporters.subtract(name for name, _ in member.protocols)
        self._supporters.update(name for name, _ in protocols)
        member.protocols = protocols
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def remove(self, member_id: str) -> Member | None:
        """Forget a member or a pending id; the next in line leads if it was the leader."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._supporters.subtract(name for name, _ in member.protocols)
            if member.group_instance_id is not None:
                self.static_member_ids.pop(member.group_instance_id, None)
        if self.is_leader(member_id):
            self.leader_id = next(iter(self.members), None)
        self.pending_join_ids.discard(member_id)
        self.pending_sync_ids.pop(member_id, None)
        return member

    def replace_static(self, group_instance_id: str, old_id: str, new_id: str) -> Member:
        """Give a static member a new id; everything else, its place among the members too, stays. Answers nobody."""
        old = self.members[old_id]
        new = dataclasses.replace(old, member_id=new_id, awaiting_join=None, awaiting_sync=None, is_new=False)
        self.members = {
            new_id if key == old_id else key: new if key == old_id else member for key, member in self.members.items()
        }
        if self.is_leader(old_id):
            self.leader_id = new_id
        self.static_member_ids[group_instance_id] = new_id
        self.pending_sync_ids = {new_id if key == old_id else key: None for key in self.pending_sync_ids}
        return new

    def elect_joined_leader(self) -> bool:
        """Make sure that the leader is among those who rejoined. False if nobody did."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].awaiting_join is not None:
            return True
        for member in self.members.values():
            if member.awaiting_join is not None:
                self.leader_id = member.member_id
                return True
        return False

    def check_member(self, member_id: str, group_instance_id: str | None) -> None:
        """Whether this member id may act, and act for this instance id."""
        if group_instance_id is not None:
            current = self.static_member_ids.get(group_instance_id)
            if current is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if current != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        if member_id not in self.members:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)

    # Protocols

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with these protocols could be in this group."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        return self.protocol_type == protocol_type and any(map(self._all_support, (name for name, _ in protocols)))

    def _all_support(self, protocol: str) -> bool:
        return self._supporters[protocol] == len(self.members)

    def select_protocol(self) -> str:
        """Every member votes for its first protocol that all support; the most votes win, the first of equals."""
        votes = Counter(
            next(name for name, _ in member.protocols if self._all_support(name)) for member in self.members.values()
        )
        return max(votes, key=lambda name: votes[name])

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def is_subscribed_to(self, topic: str) -> bool:
        """When a consumer group's subscriptions cannot be read, it counts as subscribed to everything."""
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed_topics

    def compute_subscribed_topics(self) -> frozenset[str] | None:
        """The topics of all members; None when they cannot be known."""
        if not self.uses_consumer_protocol:
            return None
        if not self.members:
            return frozenset()
        if self.protocol is None:
            return None
        try:
            return frozenset(
                topic for m in self.members.values() for topic in _subscription_topics(m.metadata_for(self.protocol))
            )
        except MalformedMessage:
            return None

    # Records

    def as_record(self, assignments: dict[str, bytes]) -> GroupMetadataValue:
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation_id,
            protocol=self.protocol,
            leader=self.leader_id,
            current_state_timestamp=NO_TIMESTAMP if self.state_timestamp_ms is None else self.state_timestamp_ms,
            members=[
                GroupMetadataValue.MemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.metadata_for(self.protocol),
                    assignment=assignments.get(member.member_id, b""),
                )
                for member in self.members.values()
            ],
        )

    @classmethod
    def from_record(cls, group_id: str, partition: int, value: GroupMetadataValue) -> "Group":
        timestamp = value.current_state_timestamp
        group = cls(group_id, partition, None if timestamp == NO_TIMESTAMP else timestamp)
        group.generation_id = value.generation
        group.protocol_type = value.protocol_type or None
        group.protocol = value.protocol
        group.leader_id = value.leader
        if value.members:
            group.state = GroupState.STABLE
        for stored in value.members:
            # Records from before version 1 have one time-out for both.
            has_both = stored.rebalance_timeout != -1
            rebalance_timeout_ms = stored.rebalance_timeout if has_both else stored.session_timeout
            member = Member(
                stored.member_id,
                stored.group_instance_id,
                stored.client_id,
                stored.client_host,
                rebalance_timeout_ms,
                stored.session_timeout,
                value.protocol_type,
                ((value.protocol or "", stored.subscription),),
                stored.assignment,
            )
            group.add(member)
        group.subscribed_topics = group.compute_subscribed_topics()
        return group


def distinct_protocols(protocols: Iterable[tuple[str, bytes]]) -> Protocols:
    """The first of each name, in order."""
    first: dict[str, bytes] = {}
    for name, metadata in protocols:
        first.setdefault(name, metadata)
    return tuple(first.items())


def _subscription_topics(metadata: bytes) -> Sequence[str]:
    # Version 0 is a prefix of every version, so it reads what members will send in years to come.
    if len(metadata) < 2:
        raise MalformedMessage("a subscription without a version")
    subscription, _ = decode_prefix(ConsumerProtocolSubscription, 0, metadata, 2)
    return subscription.topics
