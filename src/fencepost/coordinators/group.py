"""One classic group: its members, its generation, and the table of its states.

Owns the rules that need nothing but the group itself: which transitions are legal, which protocol is chosen, who leads,
who may act in whose name. Time-outs, replies and records are the business of `rebalance` and its neighbours.

What is durable and what is not:

- Durable is `stored`, the last record of the group in __consumer_offsets: a generation that has got an assignment or
  has no members, with the ids of its static members. It changes by replay alone (`Group.from_record`, `Group.replay`,
  which `GroupShard.replay` calls), and so does what follows from it: a group comes to exist, becomes Empty, gets the
  assignment that its members are handed, and gives the place of a static member to a new id while it is Stable.
- Volatile is the conversation with the members, which a restart forgets, as Kafka's protocol allows: who takes part in
  the rebalance under way (`members` while the group is PreparingRebalance or CompletingRebalance, `pending_join_ids`,
  `pending_sync_ids`, `new_member_added`), the generation that is being formed and has no assignment yet, parked
  answers, the protocols that a member offers besides the chosen one, and every timer. It changes in memory.

In a Stable group both say the same: `contradiction` checks it.
"""

import dataclasses
import enum
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

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

Undo = Callable[[], None]
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
    """Its first join has not been answered yet."""

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def has_satisfied_heartbeat(self) -> bool:
        """A member whose join or sync is parked here cannot heartbeat, and need not; a new one must still come back."""
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)

    def metadata_for(self, protocol: str | None) -> bytes:
        return dict(self.protocols)[protocol] if protocol is not None else b""

    # Parked answers

    def park_join(self, reply: Promise[JoinGroupResponse]) -> None:
        """A member that asks again while its first request is parked gets one answer on both."""
        if self.awaiting_join is not None:
            reply.then(self.awaiting_join.resolve)
        self.awaiting_join = reply

    def park_sync(self, reply: Promise[SyncGroupResponse]) -> None:
        if self.awaiting_sync is not None:
            reply.then(self.awaiting_sync.resolve)
        self.awaiting_sync = reply

    def answer_join(self, answer: JoinGroupResponse) -> None:
        parked, self.awaiting_join = self.awaiting_join, None
        if parked is not None:
            parked.resolve(answer)

    def answer_sync(self, answer: SyncGroupResponse) -> None:
        parked, self.awaiting_sync = self.awaiting_sync, None
        if parked is not None:
            parked.resolve(answer)

    def settle_in(self) -> None:
        """Its first join is being answered: from now on it has an id to heartbeat with."""
        self.is_new = False


class Group:
    def __init__(self, group_id: str, partition: int, state_timestamp_ms: int | None) -> None:
        self.group_id = group_id
        self.partition = partition
        self.state = GroupState.EMPTY
        self.previous_state = GroupState.DEAD
        self.state_timestamp_ms = state_timestamp_ms
        self.stored: GroupMetadataValue | None = None
        """The group's last record; None for a group that only commits offsets."""
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
        # The generation whose assignment is being written.
        self._storing_generation_id: int | None = None
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
        """Its members are known and their assignment is not. Without members the generation begins by replay."""
        self.generation_id += 1
        self.protocol = self.select_protocol() if self.members else None
        self.subscribed_topics = self.compute_subscribed_topics()
        self.transition_to(GroupState.COMPLETING_REBALANCE if self.members else GroupState.EMPTY, wall_ms)
        self.pending_sync_ids.clear()

    def expect_syncs(self) -> None:
        """Every member is to ask for its assignment."""
        self.pending_sync_ids = dict.fromkeys(self.members)

    def note_company(self) -> None:
        self.new_member_added = True

    def take_company(self) -> bool:
        """Whether a member has joined since this was asked last."""
        has_company, self.new_member_added = self.new_member_added, False
        return has_company

    # The assignment

    @property
    def is_storing_assignment(self) -> bool:
        return self._storing_generation_id == self.generation_id

    def storing_assignment(self) -> None:
        self._storing_generation_id = self.generation_id

    def stored_assignment(self, generation_id: int) -> None:
        """Its record is durable, or lost."""
        if self._storing_generation_id == generation_id:
            self._storing_generation_id = None

    def hand_out(self, wall_ms: int) -> None:
        """The record of this generation is durable: its members get what it says."""
        assert self.stored is not None
        assigned = {stored.member_id: stored.assignment for stored in self.stored.members}
        for member in self.members.values():
            member.assignment = assigned.get(member.member_id, b"")
        self.transition_to(GroupState.STABLE, wall_ms)

    def withdraw_assignment(self) -> None:
        for member in self.members.values():
            member.assignment = b""

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

    def replace_static(self, old_id: str, new_id: str) -> Member:
        """Give a static member a new id; everything else, its place among the members too, stays. Answers nobody."""
        new = dataclasses.replace(
            self.members[old_id], member_id=new_id, awaiting_join=None, awaiting_sync=None, is_new=False
        )
        self._replace(old_id, new)
        return new

    def _replace(self, old_id: str, new: Member) -> None:
        self._supporters.subtract(name for name, _ in self.members[old_id].protocols)
        self._supporters.update(name for name, _ in new.protocols)
        self.members = {
            new.member_id if key == old_id else key: new if key == old_id else member
            for key, member in self.members.items()
        }
        if self.is_leader(old_id):
            self.leader_id = new.member_id
        assert new.group_instance_id is not None
        self.static_member_ids[new.group_instance_id] = new.member_id
        self.pending_sync_ids = {new.member_id if key == old_id else key: None for key in self.pending_sync_ids}

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
        return _most_votes([member.protocols for member in self.members.values()], self._supporters)

    def protocol_with(self, member_id: str, protocols: Protocols) -> str:
        """What would be selected if this member offered these protocols."""
        supporters = self._supporters.copy()
        supporters.subtract(name for name, _ in self.members[member_id].protocols)
        supporters.update(name for name, _ in protocols)
        offers = [protocols if key == member_id else member.protocols for key, member in self.members.items()]
        return _most_votes(offers, supporters)

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
        """The present generation with this assignment."""
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

    def empty_record(self, wall_ms: int) -> GroupMetadataValue:
        """The next generation, which nobody is in."""
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation_id + 1,
            protocol=None,
            leader=None,
            current_state_timestamp=wall_ms,
        )

    def takeover_record(
        self, old_id: str, new_id: str, protocols: Protocols, rebalance_timeout_ms: int, session_timeout_ms: int
    ) -> GroupMetadataValue:
        """The present generation with another id, and other time-outs, for a static member that has come back."""
        record = self.as_record({member_id: member.assignment for member_id, member in self.members.items()})
        if self.is_leader(old_id):
            record.leader = new_id
        for member in record.members:
            if member.member_id == old_id:
                member.member_id = new_id
                member.rebalance_timeout = rebalance_timeout_ms
                member.session_timeout = session_timeout_ms
                member.subscription = dict(protocols)[self.protocol] if self.protocol is not None else b""
        return record

    def replay(self, value: GroupMetadataValue) -> Undo:
        """Apply the next record of a group that is in use. Returns how to take it back."""
        previous, self.stored = self.stored, value
        undo: Undo | None = None
        if not value.members:
            undo = self._become_empty(value)
        elif self.state is GroupState.STABLE:
            undo = self._give_places(value)

        def take_back() -> None:
            if undo is not None:
                undo()
            self.stored = previous

        return take_back

    def _become_empty(self, value: GroupMetadataValue) -> Undo:
        before = self.generation_id, self.protocol, self.subscribed_topics
        state, previous_state, since_ms = self.state, self.previous_state, self.state_timestamp_ms
        self.begin_next_generation(value.current_state_timestamp)

        def take_back() -> None:
            if self.state is not GroupState.EMPTY or self.generation_id != value.generation:
                return  # a member has joined meanwhile: the generation that is being formed goes on
            self.generation_id, self.protocol, self.subscribed_topics = before
            self.state, self.previous_state, self.state_timestamp_ms = state, previous_state, since_ms

        return take_back

    def _give_places(self, value: GroupMetadataValue) -> Undo:
        """Static members get the ids of the record: those who had their places before are not members any more."""
        replaced: list[tuple[str, Member]] = []
        for stored in value.members:
            instance_id = stored.group_instance_id
            old_id = None if instance_id is None else self.static_member_ids.get(instance_id)
            if old_id is None or old_id == stored.member_id:
                continue
            replaced.append((stored.member_id, self.members[old_id]))
            member = self.replace_static(old_id, stored.member_id)
            self.update(member, member.protocols, stored.rebalance_timeout, stored.session_timeout)

        def take_back() -> None:
            for new_id, old in reversed(replaced):
                if new_id in self.members:
                    self._replace(new_id, old)

        return take_back

    def contradiction(self) -> str | None:
        """What the group's state says other than its record, at rest; None if they agree."""
        stored = self.stored
        if self.state is GroupState.EMPTY and stored is not None and (stored.members or self.members):
            return "Empty with members"
        if self.state not in (GroupState.STABLE, GroupState.EMPTY) or stored is None:
            return "Stable without a record" if self.state is GroupState.STABLE else None
        if (stored.generation, stored.protocol, stored.leader) != (self.generation_id, self.protocol, self.leader_id):
            return (
                f"generation {self.generation_id} {self.protocol} led by {self.leader_id}, but in the log "
                f"{stored.generation} {stored.protocol} led by {stored.leader}"
            )
        members = {member.member_id: (member.group_instance_id, member.assignment) for member in self.members.values()}
        in_log = {member.member_id: (member.group_instance_id, member.assignment) for member in stored.members}
        return None if members == in_log else f"members {members}, but in the log {in_log}"

    @classmethod
    def from_record(cls, group_id: str, partition: int, value: GroupMetadataValue) -> "Group":
        timestamp = value.current_state_timestamp
        group = cls(group_id, partition, None if timestamp == NO_TIMESTAMP else timestamp)
        group.stored = value
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


def _most_votes(offers: Sequence[Protocols], supporters: Counter[str]) -> str:
    votes = Counter(next(name for name, _ in offer if supporters[name] == len(offers)) for offer in offers)
    return max(votes, key=lambda name: votes[name])


def _subscription_topics(metadata: bytes) -> Sequence[str]:
    # Version 0 is a prefix of every version, so it reads what members will send in years to come.
    if len(metadata) < 2:
        raise MalformedMessage("a subscription without a version")
    subscription, _ = decode_prefix(ConsumerProtocolSubscription, 0, metadata, 2)
    return subscription.topics
