"""A pipeline under Spark Connect, where foreachBatch runs beside the server and there is no SparkContext."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fencepost.client.blocking import Admin, Producer
from fencepost.client.values import NewTopic
from tests.peers.build import require_java
from tests.peers.fencepost_process import FencepostProcess
from tests.spark.chaos.examples import INPUT_PARTITIONS, OUTPUT_PARTITIONS, SHOP, encode
from tests.spark.chaos.run import read_committed
from tests.spark.chaos.verdict import Origin, judge

PROGRAM = Path(__file__).with_name("connect_program.py")
PURCHASES = 200
TIMEOUT_SECONDS = 500


@pytest.mark.timeout(TIMEOUT_SECONDS + 60)
def test_the_shop_runs_under_connect(tmp_path: Path) -> None:
    require_java()
    with FencepostProcess() as broker:
        inputs: dict[str, Origin] = {}
        with Admin(broker.bootstrap_servers) as admin:
            admin.create_topic(NewTopic(SHOP.source, INPUT_PARTITIONS))
            for topic in (*SHOP.outputs, f"{SHOP.source}.dlq"):
                admin.create_topic(NewTopic(topic, OUTPUT_PARTITIONS))
        with Producer(broker.bootstrap_servers) as producer:
            for number in range(PURCHASES):
                row = SHOP.make_input(number)
                partition = number % INPUT_PARTITIONS
                producer.send(SHOP.source, encode(row), partition=partition)
                inputs[row["purchase_id"]] = Origin(partition, number // INPUT_PARTITIONS)
        done = subprocess.run(
            [sys.executable, str(PROGRAM), broker.bootstrap_servers, str(tmp_path / "checkpoint")],
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable},
            cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_SECONDS,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-5000:]
        verdict = judge(SHOP, inputs, read_committed(broker.bootstrap_servers, SHOP.outputs), [])
    assert verdict.is_clean, verdict
    assert verdict.outputs == 2 * PURCHASES
