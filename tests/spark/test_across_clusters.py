"""Reading one cluster and writing another, exactly once, with a driver that is killed in between."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.extras import require_arrow
from tests.support.patience import patient

require_arrow()
pytest.importorskip("pyspark.sql.streaming.datasource", reason="the source needs PySpark 4.2")

from pyspark.errors import StreamingQueryException  # noqa: E402

from fencepost.client import Admin, NewTopic, Producer, TopicPartition  # noqa: E402
from fencepost.spark import Output, exactly_once, pipeline  # noqa: E402
from fencepost.spark.commit_records import newest  # noqa: E402
from tests.faults.proxy import Direction, FaultProxy  # noqa: E402
from tests.peers.broker_process import BrokerProcess  # noqa: E402
from tests.peers.fencepost_process import FencepostProcess  # noqa: E402
from tests.peers.kafka import ApacheKafka  # noqa: E402
from tests.spark.sessions import finished  # noqa: E402
from tests.spark.sink_scene import Scene, read  # noqa: E402

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def brokers() -> Iterator[tuple[BrokerProcess, BrokerProcess]]:
    with FencepostProcess() as fencepost, ApacheKafka() as apache:
        yield fencepost, apache


@pytest.fixture(params=[False, True], ids=["fencepost to apache", "apache to fencepost"])
def direction(request: pytest.FixtureRequest, brokers: tuple[BrokerProcess, BrokerProcess]) -> Any:
    return brokers[::-1] if request.param else brokers


def numbers(broker: BrokerProcess, topic: str) -> list[int]:
    return sorted(int(seen.value or b"-1") for seen in read(broker.bootstrap_servers, [topic], "read_committed"))


PROGRAM = """
import sys
from tests.spark.sessions import spark_session
from tests.spark.sink_scene import Scene
from fencepost.spark import exactly_once
source, target, checkpoint, name, purchases, invoices = sys.argv[1:]
with spark_session() as spark:
    rows = spark.readStream.format("fencepost").option("kafka.bootstrap.servers", source)
    rows = rows.option("subscribe", purchases).option("startingOffsets", "earliest")
    rows = rows.option("maxOffsetsPerTrigger", "40").load().select("key", "value")
    writer = rows.writeStream.foreachBatch(exactly_once(name, target, topic=invoices)).trigger(availableNow=True)
    writer.option("checkpointLocation", checkpoint).start().awaitTermination()
"""


def test_a_driver_that_is_killed_after_its_commit_is_followed_exactly(
    spark: Any, direction: tuple[BrokerProcess, BrokerProcess], tmp_path: Path
) -> None:
    source, target = direction
    scene = Scene(spark, source, tmp_path / "checkpoint")
    purchases, invoices = scene.create("purchases", 3), f"{scene.name}-invoices"
    with Admin(target.bootstrap_servers) as admin:
        admin.create_topic(NewTopic(invoices, 2))
    scene.send(purchases, range(100))
    with FaultProxy(target.address) as proxy:
        # The second batch is committed, and the driver dies before it hears of it.
        arguments = [source.bootstrap_servers, proxy.bootstrap_servers, str(scene.checkpoint), scene.name]
        driver = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *arguments, purchases, invoices],
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        proxy.on("EndTxn", lambda: os.killpg(driver.pid, signal.SIGKILL), Direction.RESPONSE, nth=2)
        assert driver.wait(patient(300)) == -signal.SIGKILL
    assert not (scene.checkpoint / "commits" / "1").exists()
    written = numbers(target, invoices)
    assert 0 < len(written) < 100
    rows = scene.stream(purchases).select("key", "value")
    scene.run(rows, exactly_once(scene.name, target.bootstrap_servers, topic=invoices))
    assert numbers(target, invoices) == list(range(100))
    # The record is where the rows are; the lag can be seen where the input is.
    ends = {TopicPartition(purchases, number): end for number, end in _ends(scene).items()}
    with Admin(target.bootstrap_servers) as admin:
        record = newest(admin.committed_offsets(scene.name, with_notes=True))
        assert not admin.committed_offsets(scene.name), "nobody shall take the record for a lag"
    assert record is not None
    assert record.copy_at == TopicPartition(invoices, 0)
    assert record.positions == ends
    told = scene.offsets()
    assert {at: offset.offset for at, offset in told.items()} == ends
    assert newest(told) is None


def _ends(scene: Scene) -> dict[int, int]:
    last = max(int(file.name) for file in (scene.checkpoint / "offsets").iterdir() if file.name.isdecimal())
    held = json.loads((scene.checkpoint / "offsets" / str(last)).read_text().splitlines()[2])
    (by_partition,) = [of for topic, of in held.items() if not topic.startswith("@")]
    return {int(number): end for number, end in by_partition.items()}


def test_a_topic_of_the_same_name_is_copied_and_a_checkpoint_that_was_set_back_is_refused(
    spark: Any, direction: tuple[BrokerProcess, BrokerProcess], tmp_path: Path
) -> None:
    source, target = direction
    scene = Scene(spark, source, tmp_path / "checkpoint")
    purchases = scene.create("purchases", 2)
    with Admin(target.bootstrap_servers) as admin:
        admin.create_topic(NewTopic(purchases, 1))

    def copy() -> None:
        rows = scene.stream(purchases).select("key", "value")
        scene.run(rows, exactly_once(scene.name, target.bootstrap_servers, topic=purchases))

    scene.send(purchases, range(100))
    copy()
    scene.send(purchases, range(100, 150))
    copy()
    assert numbers(target, purchases) == list(range(150))
    for log in ("offsets", "commits"):
        for name in ("1", ".1.crc"):
            (scene.checkpoint / log / name).unlink(missing_ok=True)
    scene.send(purchases, range(150, 160))
    with pytest.raises(StreamingQueryException, match="batch 1 was committed to group"):
        copy()
    assert numbers(target, purchases) == list(range(150))


def test_a_pipeline_reads_one_cluster_and_writes_another(
    spark: Any, brokers: tuple[BrokerProcess, BrokerProcess], tmp_path: Path
) -> None:
    source, target = brokers

    @pipeline("across", source="across-in", format="bytes", outputs=[Output("across-out", format="bytes")])
    def across(records: Any) -> Any:
        return {"across-out": records.select("value")}

    for broker, topic in ((source, "across-in"), (target, "across-out")):
        with Admin(broker.bootstrap_servers) as admin:
            admin.create_topic(NewTopic(topic, 2))
    with Producer(source.bootstrap_servers) as producer:
        for number in range(30):
            producer.send("across-in", b"%d" % number)
    finished(
        lambda: across.start(
            spark,
            bootstrap_servers=target.bootstrap_servers,
            source_bootstrap_servers=source.bootstrap_servers,
            checkpoint=str(tmp_path / "checkpoint"),
            trigger={"availableNow": True},
        )
    )
    assert numbers(target, "across-out") == list(range(30))
    with Admin(source.bootstrap_servers) as admin:
        assert sum(offset.offset for offset in admin.committed_offsets("across").values()) == 30
