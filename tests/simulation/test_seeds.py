"""A slice of `make simulate`: some seeds with every fault, none of which may show an anomaly."""

import json

import pytest
from typer.testing import CliRunner

from fencepost.cli.app import app
from fencepost.simulation.faults import Fault
from fencepost.simulation.seed_run import ALL_FAULTS, replay_command, run_seed

SEEDS, SECONDS = 20, 60


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_client_sees_anything_that_cannot_be(seed: int) -> None:
    result = run_seed(seed, SECONDS)
    assert not result.anomalies, f"{replay_command(seed, SECONDS, ALL_FAULTS)}\n" + "\n".join(result.anomalies[:5])
    assert result.transactions["ok"] > 100
    # Whatever fails: administrators get their work done, and compaction runs.
    for deed in ("create", "delete", "configure", "compaction", "internal-compaction"):
        assert result.administration[deed] > 0, deed


def test_a_world_without_faults_is_busy_and_at_peace() -> None:
    result = run_seed(1, SECONDS // 2, frozenset())
    assert not result.anomalies
    assert not any(result.hits.values())
    assert result.restarts == 0
    assert result.transactions["ok"] > 100
    assert result.calls > 1_000


@pytest.mark.parametrize(
    "kind",
    [
        Fault.POWER_TORN,
        Fault.DIE_AT_DISK_CALL,
        Fault.SYNC_EIO,
        Fault.ENOSPC,
        Fault.NET_HOLD,
        Fault.TWIN,
        Fault.DELETE_UNDER_SYNC,
        Fault.DELETE_UNDER_CLEANING,
        Fault.DIE_IN_CLEANING,
        Fault.CROWDED_DISK,
        Fault.CHECKPOINT_LOST,
    ],
)
def test_a_fault_on_its_own_hits_and_does_no_harm(kind: Fault) -> None:
    result = run_seed(3, 15, frozenset({kind}))
    assert not result.anomalies, "\n".join(result.anomalies[:5])
    assert result.hits[kind.value] > 0


def test_the_command_prints_figures_for_programs() -> None:
    arguments = ["simulate", "--seed", "5", "--seeds", "2", "--seconds", "3", "--processes", "1", "--json"]
    outcome = CliRunner().invoke(app, arguments)
    assert outcome.exit_code == 0, outcome.output
    figures = json.loads(outcome.stdout)
    assert (figures["seeds"], figures["anomalies"], figures["failures"]) == (2, 0, [])
    assert set(figures["hits"]) == {kind.value for kind in Fault}


def test_the_command_knows_its_faults() -> None:
    listed = CliRunner().invoke(app, ["simulate", "--faults", "help"])
    assert listed.stdout.split() == [kind.value for kind in Fault]
    refused = CliRunner().invoke(app, ["simulate", "--faults", "meteor"])
    assert refused.exit_code != 0
    assert "meteor" in refused.output
