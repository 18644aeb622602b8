"""A short run through every kind of fault; `make chaos` is the long one."""

from pathlib import Path

import pytest

from fencepost.history import Report
from fencepost.history.explaining import explain
from tests.chaos.run import Chaos

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("chaos")]


def assert_sound(report: Report) -> None:
    assert report.is_clean, "\n".join(explain(report))
    assert not report.unjudged
    assert report.operations["txn", "ok"] > 0
    assert report.operations["send", "ok"] > 0


def test_kills_pauses_and_a_bad_network_leave_no_anomaly(tmp_path: Path) -> None:
    chaos = Chaos(tmp_path, seed=1)
    faults = [
        "kill_broker",
        "cut_connections",
        "kill_client",
        "pause_broker",
        "lose_answers",
        "hold_end",
        "kill_broker",
    ]
    assert_sound(chaos.run(faults, work_between=60))
