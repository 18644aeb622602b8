"""A slice of the chaos run of sources, on Fencepost, and a mutant that is caught; `make chaos-sources` runs it all."""

import pytest

from tests.connect.chaos.run import Run
from tests.peers.fencepost_process import FencepostProcess
from tests.peers.postgres import Postgres, require_postgres

require_postgres()


@pytest.mark.timeout(300)
def test_under_faults_nothing_is_lost_twice_out_of_order_or_torn() -> None:
    faults = ["die before commit", "zombie", "broker", "database", "die after commit"]
    with FencepostProcess() as broker, Postgres() as database:
        result = Run(broker, database, seed=5).run(faults, seconds_between=0.4)
    assert result.is_clean, f"{result.refused} {result.verdict}"
    assert result.verdict is not None
    assert result.verdict.changes > 300
    assert result.verdict.aborted_batches > 0
    assert result.zombies_fenced == 1


@pytest.mark.timeout(300)
def test_a_position_that_is_read_uncommitted_is_caught_by_the_auditor() -> None:
    with FencepostProcess() as broker, Postgres() as database:
        run = Run(broker, database, seed=5, mutant="position read uncommitted")
        result = run.run(["die before commit"], seconds_between=0.3)
    assert result.refused == ""
    assert result.verdict is not None
    assert result.verdict.lost > 0
