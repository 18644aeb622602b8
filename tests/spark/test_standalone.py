"""The same pipeline file on a real Spark cluster of two hosts, whose executors lack the package.

On the way a task hangs until Spark has run a copy of it on the other host, and then one of the machines is lost.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.peers.build import require_java
from tests.peers.fencepost_process import FencepostProcess
from tests.spark.chaos.examples import SLOW_SHOP
from tests.spark.chaos.run import Result, chaos
from tests.spark.sessions import QUICK_EXECUTORS
from tests.spark.standalone import standalone_cluster

pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("writers_write")]
HOSTS = ("127.0.0.1", "127.0.0.2")
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.multiplier": "1.1",
    # A task that is alone in its stage has no others to be compared with.
    "spark.speculation.task.duration.threshold": "2s",
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("standalone")


@pytest.fixture(scope="module")
def result(directory: Path) -> Result:
    require_java()
    events = directory / "events"
    events.mkdir()
    logging = {
        "spark.eventLog.enabled": "true", "spark.eventLog.dir": events.as_uri(), "spark.eventLog.compress": "false",
    }  # fmt: skip
    with standalone_cluster(directory / "cluster", HOSTS) as cluster, FencepostProcess() as broker:
        return chaos(
            SLOW_SHOP, broker, "TV2", directory / "run", seed=2, kills=["machine"],
            master=cluster.url, environment={"PYSPARK_PYTHON": cluster.python}, machines=cluster.workers,
            settings={**SPECULATION, **QUICK_EXECUTORS, **logging},
        )  # fmt: skip


def test_the_shop_runs_on_a_cluster_and_survives_the_loss_of_a_machine(result: Result) -> None:
    assert result.verdict.is_clean, str(result.verdict)
    assert result.verdict.outputs == 2 * result.verdict.inputs > 0
    assert result.kills == {"machine": 1}


def test_a_copy_of_a_slow_task_ran_on_the_other_host(result: Result, directory: Path) -> None:
    started = [event for event in recorded(directory / "events") if event["Event"] == "SparkListenerTaskStart"]
    tasks = [event["Task Info"] for event in started]
    assert [task for task in tasks if task["Speculative"]], "no speculative task was started"
    assert {task["Host"] for task in tasks} == set(HOSTS)
    assert result.task_failures == {"hangs": 1, "copied": 1}, "no copy of the hanging task came to its end"


def recorded(directory: Path) -> Iterator[dict[str, Any]]:
    """Spark's own log of events; its last line may be cut short."""
    for file in directory.rglob("events_*"):
        for line in file.read_text().splitlines():
            if line.endswith("}"):
                yield json.loads(line)
