"""A pipeline under Spark Connect, where foreachBatch runs beside the server and there is no SparkContext."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fencepost.client.blocking import Admin, Producer
from fencepost.client.kafka_types import NewTopic
from tests.peers.build import require_java
from tests.peers.fencepost_process import FencepostProcess
from tests.spark.chaos.examples import INPUT_PARTITIONS, OUTPUT_PARTITIONS, SHOP, encode
from tests.spark.sink_scene import Seen, read
from tests.support.patience import patient

PROGRAM = Path(__file__).with_name("connect_program.py")
PURCHASES = 200
TIMEOUT_SECONDS = patient(500)


@pytest.mark.timeout(TIMEOUT_SECONDS + 60)
def test_the_shop_runs_under_connect(tmp_path: Path) -> None:
    require_java()
    with FencepostProcess() as broker:
        numbers: dict[str, int] = {}
        with Admin(broker.bootstrap_servers) as admin:
            admin.create_topic(NewTopic(SHOP.source, INPUT_PARTITIONS))
            for topic in (*SHOP.outputs, f"{SHOP.source}.dlq"):
                admin.create_topic(NewTopic(topic, OUTPUT_PARTITIONS))
        with Producer(broker.bootstrap_servers) as producer:
            for number in range(PURCHASES):
                row = SHOP.make_input(number)
                producer.send(SHOP.source, encode(row), partition=number % INPUT_PARTITIONS)
                numbers[SHOP.name_of(row)] = number
        done = subprocess.run(
            [sys.executable, str(PROGRAM), broker.bootstrap_servers, str(tmp_path / "checkpoint")],
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable},
            cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_SECONDS,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-5000:]
        outputs = read(broker.bootstrap_servers, SHOP.outputs, "read_committed")
    invoices, shipments = ({name_of(one): one for one in outputs if one.topic == topic} for topic in SHOP.outputs)
    assert len(outputs) == 2 * PURCHASES, "each once"
    assert invoices.keys() == shipments.keys() == numbers.keys()
    assert all(SHOP.agree(row_of(invoices[name]), row_of(shipments[name])) for name in numbers)
    # What comes from one input partition stands in an output partition in the same order.
    by_way: dict[tuple[str, int, int], list[int]] = {}
    for one in outputs:
        number = numbers[name_of(one)]
        by_way.setdefault((one.topic, one.partition, number % INPUT_PARTITIONS), []).append(number)
    assert all(found == sorted(found) for found in by_way.values())


def row_of(record: Seen) -> dict[str, Any]:
    return json.loads(record.value or b"")


def name_of(record: Seen) -> str:
    return SHOP.name_of(row_of(record))
