"""Short runs through every kind of fault; `make chaos` is the long one."""

from pathlib import Path

import pytest

from fencepost.history import Report
from fencepost.history.finding_text import explain
from tests.chaos.disk import small_file_system
from tests.chaos.run import Chaos

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("chaos")]
FAULTS = ("kill_broker", "cut_connections", "kill_client", "pause_broker", "lose_answers", "hold_end", "kill_broker")


def assert_sound(report: Report) -> None:
    assert report.is_clean, "\n".join(explain(report))
    assert not report.unjudged
    assert report.operations["txn", "ok"] > 0
    assert report.operations["send", "ok"] > 0


def test_kills_pauses_and_a_bad_network_leave_no_anomaly(tmp_path: Path) -> None:
    assert_sound(Chaos(tmp_path, seed=1).run(FAULTS, work_between=60))


def test_a_full_disk_leaves_no_anomaly(tmp_path: Path) -> None:
    with small_file_system(tmp_path / "small") as directory:
        chaos = Chaos(tmp_path, seed=2, broker_directory=directory / "broker")
        assert_sound(chaos.run(("fill_disk", "kill_broker"), work_between=60))
