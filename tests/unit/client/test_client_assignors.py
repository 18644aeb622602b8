"""Who reads what: every partition once, evenly, and without more moves than that takes."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from fencepost.client.assignors import ASSIGNORS, Assignment, Subscription
from fencepost.topic_partition import TopicPartition

ALL = sorted(ASSIGNORS)


def members(*topics_of: str, generation_id: int = -1) -> dict[str, Subscription]:
    """One member per argument, which is the topics it reads, one letter each."""
    return {
        f"member-{at}": Subscription(frozenset(topics), generation_id=generation_id)
        for at, topics in enumerate(topics_of)
    }


def owning(before: dict[str, Subscription], assignment: Assignment, generation_id: int) -> dict[str, Subscription]:
    return {
        member: Subscription(subscription.topics, tuple(assignment.get(member, ())), generation_id)
        for member, subscription in before.items()
    }


def settled(assignor: str, group: dict[str, Subscription], counts: dict[str, int]) -> tuple[Assignment, int]:
    """Rebalances until nobody has to give anything up any more; the result and how many it took."""
    for round_number in range(1, 10):
        assignment = ASSIGNORS[assignor].assign(group, counts)
        given_up = [
            partition
            for member, subscription in group.items()
            for partition in subscription.owned
            if partition not in assignment[member]
        ]
        group = owning(group, assignment, round_number)
        if not given_up:
            return assignment, round_number
    raise AssertionError("it never settles")


def test_range_gives_neighbours_and_the_rest_to_the_first() -> None:
    assignment = ASSIGNORS["range"].assign(members("ab", "ab", "a"), {"a": 7, "b": 3})
    assert assignment["member-0"] == [TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("a", 2),
                                      TopicPartition("b", 0), TopicPartition("b", 1)]  # fmt: skip
    assert assignment["member-1"] == [TopicPartition("a", 3), TopicPartition("a", 4), TopicPartition("b", 2)]
    assert assignment["member-2"] == [TopicPartition("a", 5), TopicPartition("a", 6)]


def test_static_members_keep_their_place_whatever_their_new_id() -> None:
    def group(first: str, second: str) -> dict[str, Subscription]:
        return {
            first: Subscription(frozenset("a"), group_instance_id="one"),
            second: Subscription(frozenset("a"), group_instance_id="two"),
        }

    before = ASSIGNORS["range"].assign(group("x", "y"), {"a": 4})
    after = ASSIGNORS["range"].assign(group("z", "y"), {"a": 4})
    assert (before["x"], before["y"]) == (after["z"], after["y"])


def test_a_partition_that_moves_is_given_up_before_it_is_given_on() -> None:
    alone = {"member-0": Subscription(frozenset("a"), tuple(TopicPartition("a", at) for at in range(4)), 1)}
    group = alone | {"member-1": Subscription(frozenset("a"))}
    first = ASSIGNORS["cooperative-sticky"].assign(group, {"a": 4})
    assert (len(first["member-0"]), first["member-1"]) == (2, [])
    second = ASSIGNORS["cooperative-sticky"].assign(owning(group, first, 2), {"a": 4})
    assert (len(second["member-0"]), len(second["member-1"])) == (2, 2)
    assert second["member-0"] == first["member-0"]


def test_an_owner_of_an_older_generation_is_not_believed() -> None:
    claim = (TopicPartition("a", 0),)
    group = {
        "zombie": Subscription(frozenset("a"), claim, 3),
        "owner": Subscription(frozenset("a"), claim, 4),
    }
    assert ASSIGNORS["cooperative-sticky"].assign(group, {"a": 1}) == {"owner": list(claim), "zombie": []}


def test_two_owners_of_one_generation_both_lose_it_first() -> None:
    claim = (TopicPartition("a", 0),)
    group = {name: Subscription(frozenset("a"), claim, 4) for name in ("one", "two")}
    assert sorted(map(len, ASSIGNORS["cooperative-sticky"].assign(group, {"a": 1}).values())) == [0, 1]


topics = st.lists(st.sampled_from("abc"), min_size=1, unique=True).map("".join)


@pytest.mark.parametrize("assignor", ALL)
@given(
    readers=st.lists(topics, min_size=1, max_size=6), counts=st.dictionaries(st.sampled_from("abc"), st.integers(0, 9))
)
def test_every_partition_that_somebody_reads_goes_to_exactly_one_of_its_readers(
    assignor: str, readers: list[str], counts: dict[str, int]
) -> None:
    group = members(*readers)
    assignment, _ = settled(assignor, group, counts)
    handed_out = [partition for held in assignment.values() for partition in held]
    wanted = [
        TopicPartition(topic, at)
        for topic, count in counts.items()
        if any(topic in read for read in readers)
        for at in range(count)
    ]
    assert sorted(handed_out) == sorted(wanted)
    assert all(partition.topic in group[member].topics for member, held in assignment.items() for partition in held)


@given(first=st.integers(1, 8), second=st.integers(1, 8), count=st.integers(0, 40))
def test_sticky_stays_even_and_moves_no_more_than_it_must_when_members_come_and_go(
    first: int, second: int, count: int
) -> None:
    before, _ = settled("cooperative-sticky", members(*["a"] * first), {"a": count})
    assert max(map(len, before.values())) - min(map(len, before.values())) <= 1
    group = owning(members(*["a"] * second), before, 5)
    after, rounds = settled("cooperative-sticky", group, {"a": count})
    assert rounds <= 2
    assert max(map(len, after.values())) - min(map(len, after.values())) <= 1
    moved = sum(len(set(after[member]) - set(before.get(member, ()))) for member in after)
    gone = sum(len(held) for member, held in before.items() if member not in after)
    joined = sum(len(after[member]) for member in after if member not in before)
    assert moved == gone if second <= first else moved == joined
