"""A sample of the crash points of a recorded trace; `make crash-points` tries them all."""

from fencepost.simulation.disk import PowerCut
from tests.durability.crash_points import sample, sweep

PER_STRATUM = 14


def test_everything_promised_outlasts_power_cuts_before_writes_and_syncs_of_a_recorded_trace() -> None:
    chosen = sample(PER_STRATUM)
    tried = list(sweep(chosen))
    assert len(tried) == len(chosen) > 100
    assert {mode for _, mode in tried} == set(PowerCut)
    assert {operation for (_, operation), _ in tried} >= {"write", "sync", "sync of a directory", "rename"}
    assert {kind for (kind, _), _ in tried} >= {"start", "produce", "send", "offset", "end", "commit", "create"}
