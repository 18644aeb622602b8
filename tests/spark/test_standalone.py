"""The same pipeline file on a real Spark cluster whose executors lack the package, with a worker killed on the way."""

from pathlib import Path

import pytest

from tests.peers.build import require_java
from tests.peers.fencepost_process import FencepostProcess
from tests.spark.chaos.examples import SHOP
from tests.spark.chaos.run import chaos
from tests.spark.standalone import standalone_cluster


@pytest.mark.timeout(900)
def test_the_shop_runs_on_a_cluster_and_survives_the_loss_of_a_machine(tmp_path: Path) -> None:
    require_java()
    with standalone_cluster(tmp_path / "cluster") as cluster, FencepostProcess() as broker:
        result = chaos(
            SHOP, broker, "TV2", tmp_path / "run", seed=2, kills=["machine"],
            master=cluster.url, environment={"PYSPARK_PYTHON": cluster.python}, machines=cluster.workers,
        )  # fmt: skip
    assert result.verdict.is_clean, str(result.verdict)
    assert result.verdict.outputs == 2 * result.verdict.inputs > 0
    assert result.kills == {"machine": 1}
