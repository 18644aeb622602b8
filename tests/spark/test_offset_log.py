"""Spark's offset log in both of its formats, under both sources: the input offsets are committed with the rows."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.extras import require_arrow

require_arrow()
pytest.importorskip("pyspark.sql.streaming.datasource", reason="the second format needs PySpark 4.2")

from pyspark.errors import StreamingQueryException  # noqa: E402

from fencepost.client import TopicPartition  # noqa: E402
from fencepost.spark import exactly_once  # noqa: E402
from tests.peers.fencepost_process import FencepostProcess  # noqa: E402
from tests.spark.sink_scene import Scene  # noqa: E402

pytestmark = pytest.mark.timeout(400)
FORMAT_VERSION = "spark.sql.streaming.offsetLog.formatVersion"


@pytest.fixture(scope="module")
def broker() -> Iterator[FencepostProcess]:
    with FencepostProcess() as process:
        yield process


@pytest.fixture
def scene(spark: Any, broker: FencepostProcess, tmp_path: Path) -> Scene:
    return Scene(spark, broker, tmp_path / "checkpoint")


def stream(scene: Scene, source: str, topic: str) -> Any:
    reader = scene.spark.readStream.format(source).option("kafka.bootstrap.servers", scene.servers)
    return reader.option("subscribe", topic).option("startingOffsets", "earliest").load().select("key", "value")


@pytest.mark.parametrize("version", ["1", "2"])
def test_offsets_of_both_sources_are_committed(scene: Scene, version: str) -> None:
    purchases, orders, invoices = scene.create("purchases"), scene.create("orders", 1), scene.create("invoices")
    sink = exactly_once(scene.name, scene.servers, topic=invoices)
    scene.spark.conf.set(FORMAT_VERSION, version)
    try:
        for first in (0, 20):
            scene.send(purchases, range(first, first + 10))
            scene.send(orders, range(first + 10, first + 20))
            rows = stream(scene, "kafka", purchases).union(stream(scene, "fencepost", orders))
            scene.run(rows, sink)
    finally:
        scene.spark.conf.unset(FORMAT_VERSION)
    assert (scene.checkpoint / "offsets" / "0").read_text().startswith(f"v{version}\n")
    assert scene.numbers(invoices) == list(range(40))
    offsets = {partition: stored.offset for partition, stored in scene.offsets().items()}
    assert offsets.pop(TopicPartition(orders, 0)) == 20
    assert sum(offsets.values()) == 20
    assert {partition.topic for partition in offsets} == {purchases}


@pytest.mark.parametrize("source", ["kafka", "fencepost"])
def test_what_is_not_understood_is_refused_before_data_moves(scene: Scene, source: str) -> None:
    purchases, invoices = scene.create("purchases"), scene.create("invoices")
    scene.send(purchases, range(10))
    sink = exactly_once(scene.name, scene.servers, topic=invoices)

    def after(change: tuple[str, str]) -> Any:
        def process(batch: Any, number: int) -> None:
            log = scene.checkpoint / "offsets" / str(number)
            log.write_text(log.read_text().replace(*change))
            sink(batch, number)

        return process

    for change, match in (
        (("v1\n", "v3\n"), "offset log has format 3"),
        (('{"0"', '{"p0"'), "reads Kafka, but its offsets are not understood"),
    ):
        with pytest.raises(StreamingQueryException, match=match):
            scene.run(stream(scene, source, purchases), after(change))
        scene.checkpoint = scene.checkpoint.with_name("another")
    assert scene.committed(invoices, isolation="read_uncommitted") == []
    assert scene.offsets() == {}
