"""Speculation for real: on a cluster of two hosts a task hangs, a copy of it runs on the other, and it counts once."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.peers.build import require_java
from tests.peers.fencepost_process import FencepostProcess
from tests.spark.chaos.examples import SLOW_SHOP
from tests.spark.chaos.run import chaos
from tests.spark.standalone import standalone_cluster

HOSTS = ("127.0.0.1", "127.0.0.2")
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.multiplier": "1.1",
    # A task that is alone in its stage has no others to be compared with.
    "spark.speculation.task.duration.threshold": "2s",
}


@pytest.mark.timeout(900)
def test_a_copy_of_a_slow_task_on_another_host_writes_nothing_twice(tmp_path: Path) -> None:
    require_java()
    events = tmp_path / "events"
    events.mkdir()
    logging = {
        "spark.eventLog.enabled": "true", "spark.eventLog.dir": events.as_uri(), "spark.eventLog.compress": "false",
    }  # fmt: skip
    with standalone_cluster(tmp_path / "cluster", HOSTS) as cluster, FencepostProcess() as broker:
        result = chaos(
            SLOW_SHOP, broker, "TV2", tmp_path / "run", seed=3, kills=[],
            master=cluster.url, environment={"PYSPARK_PYTHON": cluster.python}, settings={**SPECULATION, **logging},
        )  # fmt: skip
    assert result.verdict.is_clean, str(result.verdict)
    assert result.verdict.outputs == 2 * result.verdict.inputs > 0
    tasks = [event["Task Info"] for event in recorded(events) if event["Event"] == "SparkListenerTaskStart"]
    copies = [task for task in tasks if task["Speculative"]]
    assert copies, "no speculative task was started"
    assert {task["Host"] for task in tasks} == set(HOSTS)
    assert result.task_failures == {"hangs": 1, "copied": 1}, "no copy of the hanging task came to its end"


def recorded(directory: Path) -> Iterator[dict[str, Any]]:
    """Spark's own log of events; its last line may be cut short."""
    for file in directory.rglob("*"):
        if file.is_file() and not file.name.startswith("."):
            for line in file.read_text().splitlines():
                if line.endswith("}"):
                    yield json.loads(line)
