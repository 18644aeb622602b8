"""Members of a consumer group with transactions (KIP-447): who slept through a rebalance commits nothing."""

import pytest

from fencepost.simulation.fault_actions import carry_out
from fencepost.simulation.faults import Fault
from fencepost.simulation.members import GroupMember
from fencepost.simulation.world import World

SECONDS = 30


def lived(seed: int, kinds: frozenset[Fault]) -> tuple[list[str], list[GroupMember]]:
    world = World(seed, SECONDS, kinds, carry_out)
    anomalies = world.run()
    return anomalies, [client for client in world.clients if isinstance(client, GroupMember)]


@pytest.mark.parametrize("kinds", [frozenset(), frozenset(Fault)], ids=["at peace", "every fault"])
def test_members_that_are_left_behind_are_refused_and_nothing_is_copied_twice(kinds: frozenset[Fault]) -> None:
    generations = left_behind = 0
    for seed in (1, 3, 5):
        anomalies, members = lived(seed, kinds)
        assert not anomalies, "\n".join(anomalies[:5])
        generations += sum(member.generations for member in members)
        left_behind += sum(member.left_behind for member in members)
    assert generations > 6
    assert left_behind > 0, "nobody slept through a rebalance"
