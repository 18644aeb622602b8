"""A sample of the crash points of a recorded trace; `make crash-points` tries them all."""

import pytest

from fencepost.simulation.disk import PowerCut
from tests.durability.crash_points import sample, sweep

PER_STRATUM = 15


@pytest.fixture(scope="module")
def chosen() -> set[tuple[int, PowerCut]]:
    return sample(PER_STRATUM)


@pytest.mark.parametrize("mode", list(PowerCut))
def test_everything_promised_outlasts_power_cuts_before_writes_and_syncs_of_a_recorded_trace(
    chosen: set[tuple[int, PowerCut]], mode: PowerCut
) -> None:
    cases = {case for case in chosen if case[1] is mode}
    tried = list(sweep(cases))
    assert len(tried) == len(cases) > 50
    assert {operation for (_, operation), _ in tried} >= {"write", "sync", "sync of a directory", "rename", "removal"}
    assert {kind for (kind, _), _ in tried} >= {"start", "produce", "send", "offset", "end", "commit", "create"}
