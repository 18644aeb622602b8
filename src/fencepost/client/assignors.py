"""The partition assignors of the classic group protocol, as pure functions.

The leader of a group runs an assignor that all members support. Members are processed in the order of their ids, so
that every leader computes the same assignment.
"""

import collections
import dataclasses
from collections.abc import Callable, Mapping, Sequence

from fencepost.topic_partition import TopicPartition

Assignment = dict[str, list[TopicPartition]]


@dataclasses.dataclass(frozen=True, slots=True)
class Subscription:
    topics: frozenset[str]
    owned: tuple[TopicPartition, ...] = ()
    generation_id: int = -1
    group_instance_id: str | None = None


Members = Mapping[str, Subscription]
PartitionCounts = Mapping[str, int]


def assign_range(members: Members, partition_counts: PartitionCounts) -> Assignment:
    """Assigns consecutive partitions of each topic to each member; the first members get one more if there is a
    remainder."""
    assignment: Assignment = {member: [] for member in members}
    for topic, count in sorted(partition_counts.items()):
        readers = [member for member in _in_order(members) if topic in members[member].topics]
        if not readers:
            continue
        each, extra = divmod(count, len(readers))
        start = 0
        for position, member in enumerate(readers):
            end = start + each + (1 if position < extra else 0)
            assignment[member] += [TopicPartition(topic, partition) for partition in range(start, end)]
            start = end
    return assignment


def assign_round_robin(members: Members, partition_counts: PartitionCounts) -> Assignment:
    """Assigns the partitions of all topics to the members in turn."""
    assignment: Assignment = {member: [] for member in members}
    queue = collections.deque(_in_order(members))
    for partition in _all_partitions(partition_counts):
        for _ in range(len(queue)):
            member = queue[0]
            queue.rotate(-1)
            if partition.topic in members[member].topics:
                assignment[member].append(partition)
                break
    return assignment


def assign_cooperative_sticky(members: Members, partition_counts: PartitionCounts) -> Assignment:
    """Balances with as few moves as possible. A partition that moves is left unassigned for one round: its owner
    revokes it first, and the rebalance that follows assigns it (KIP-429)."""
    owners = _owners(members, partition_counts)
    assignment: Assignment = {member: [] for member in _in_order(members)}
    for partition, owner in owners.items():
        assignment[owner].append(partition)

    def readers(partition: TopicPartition) -> list[str]:
        return [member for member in assignment if partition.topic in members[member].topics]

    def least_loaded(partition: TopicPartition) -> str | None:
        return min(readers(partition), key=lambda member: len(assignment[member]), default=None)

    for partition in _all_partitions(partition_counts):
        if partition not in owners and (member := least_loaded(partition)) is not None:
            assignment[member].append(partition)
    while _move_one(assignment, least_loaded, owners):
        pass
    return {
        member: sorted(partition for partition in held if owners.get(partition, member) == member)
        for member, held in assignment.items()
    }


def _move_one(
    assignment: Assignment,
    least_loaded: Callable[[TopicPartition], str | None],
    owners: Mapping[TopicPartition, str],
) -> bool:
    """Moves one partition from a member that has at least two more than another that could read it."""
    for member in sorted(assignment, key=lambda member: -len(assignment[member])):
        held = assignment[member]
        # Partitions assigned in this round move first, because that costs nothing.
        for partition in sorted(held, key=lambda partition: owners.get(partition) == member):
            other = least_loaded(partition)
            if other is not None and len(held) - len(assignment[other]) >= 2:
                held.remove(partition)
                assignment[other].append(partition)
                return True
    return False


def _owners(members: Members, partition_counts: PartitionCounts) -> dict[TopicPartition, str]:
    """The owners according to the members' claims. The newest generation wins; equal claims cancel each other out."""
    claims: dict[TopicPartition, tuple[int, str | None]] = {}
    for member in _in_order(members):
        subscription = members[member]
        for partition in subscription.owned:
            if partition.topic not in subscription.topics:
                continue
            if partition.partition >= partition_counts.get(partition.topic, 0):
                continue
            generation, owner = claims.get(partition, (-2, None))
            if subscription.generation_id > generation:
                claims[partition] = (subscription.generation_id, member)
            elif subscription.generation_id == generation and owner is not None:
                claims[partition] = (generation, None)
    return {partition: owner for partition, (_, owner) in sorted(claims.items()) if owner is not None}


def _in_order(members: Members) -> list[str]:
    """Static members first and by their instance, so that a restart does not move partitions."""
    return sorted(members, key=lambda member: (not members[member].group_instance_id,
                                               members[member].group_instance_id or member))  # fmt: skip


def _all_partitions(partition_counts: PartitionCounts) -> Sequence[TopicPartition]:
    return [
        TopicPartition(topic, partition)
        for topic, count in sorted(partition_counts.items())
        for partition in range(count)
    ]


@dataclasses.dataclass(frozen=True, slots=True)
class Assignor:
    name: str
    assign: Callable[[Members, PartitionCounts], Assignment]
    is_cooperative: bool = False


ASSIGNORS = {
    assignor.name: assignor
    for assignor in (
        Assignor("range", assign_range),
        Assignor("roundrobin", assign_round_robin),
        Assignor("cooperative-sticky", assign_cooperative_sticky, is_cooperative=True),
    )
}
