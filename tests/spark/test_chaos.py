"""A short run under kills; `make chaos-spark` is the long one."""

from pathlib import Path

import pytest

from tests.peers.fencepost_process import FencepostProcess
from tests.spark.chaos.examples import SHOP
from tests.spark.chaos.run import chaos


@pytest.mark.timeout(900)
def test_purchases_become_one_invoice_and_one_shipment_each_through_kills(tmp_path: Path) -> None:
    kills = ["worker", "broker", "driver"]
    with FencepostProcess() as broker:
        result = chaos(SHOP, broker, "TV2", tmp_path, seed=1, kills=kills)
    assert result.verdict.is_clean, result.verdict
    assert result.verdict.inputs > 0
    assert result.verdict.outputs == 2 * result.verdict.inputs
    assert sum(result.kills.values()) == len(kills)
