"""Streaming queries into the sink, on Fencepost and on Apache Kafka, judged by librdkafka as read_committed."""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.extras import require_arrow

require_arrow()
pytest.importorskip("pyspark", reason="PySpark is not installed")

from pyspark.errors import StreamingQueryException  # noqa: E402

from fencepost.client import TopicPartition, TransactionProtocol  # noqa: E402
from fencepost.client.partitioner import partition_of_key  # noqa: E402
from fencepost.spark import exactly_once, transaction  # noqa: E402
from fencepost.spark.commit_records import newest  # noqa: E402
from tests.peers.broker_process import BrokerProcess  # noqa: E402
from tests.peers.fencepost_process import FencepostProcess  # noqa: E402
from tests.peers.kafka import ApacheKafka  # noqa: E402
from tests.spark.sink_scene import Scene  # noqa: E402

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module", params=[FencepostProcess, ApacheKafka], ids=["fencepost", "apache"])
def broker(request: pytest.FixtureRequest) -> Iterator[BrokerProcess]:
    with request.param() as process:
        yield process


@pytest.fixture
def scene(spark: Any, broker: BrokerProcess, tmp_path: Path) -> Scene:
    return Scene(spark, broker, tmp_path / "checkpoint")


@pytest.mark.parametrize("protocol", list(TransactionProtocol), ids=lambda protocol: protocol.name)
def test_every_row_arrives_once_in_order_and_its_offsets_with_it(scene: Scene, protocol: TransactionProtocol) -> None:
    purchases, invoices = scene.create("purchases", 2), scene.create("invoices", 5)
    scene.send(purchases, range(300))
    rows = scene.stream(purchases, maxOffsetsPerTrigger="150").select("key", "value")
    sink = exactly_once(scene.name, scene.servers, topic=invoices, protocol=protocol, kafka={"compression.type": "lz4"})
    scene.run(rows, sink)
    scene.send(purchases, range(300, 400))
    query = scene.run(rows, sink)
    assert scene.numbers(invoices) == list(range(400))
    for record in scene.committed(invoices):
        assert record.partition == partition_of_key(record.key or b"", 5)
    by_key: dict[bytes | None, list[int]] = {}
    for record in scene.committed(invoices):
        by_key.setdefault(record.key, []).append(int(record.value or b"-1"))
    assert all(numbers == sorted(numbers) for numbers in by_key.values())
    offsets = scene.offsets()
    assert set(offsets) == {TopicPartition(purchases, 0), TopicPartition(purchases, 1)}
    assert sum(offset.offset for offset in offsets.values()) == 400
    record = newest(offsets)
    assert record is not None
    marker = record.marker
    assert (marker.term, marker.query_id) == (1, query.id)
    assert {offset.metadata for offset in offsets.values()} == {marker.text()}


def test_a_batch_that_spark_replays_is_not_written_again(scene: Scene) -> None:
    purchases, invoices, shipments = scene.create("purchases"), scene.create("invoices", 3), scene.create("shipments")
    replayed: dict[int, bool] = {}

    def shop(batch: Any, number: int) -> None:
        from pyspark.sql import functions as F

        with transaction(batch, number, scene.name, scene.servers) as opened:
            replayed[number] = opened.replayed
            sold = opened.once(batch.withColumn("shipment", random_text(F.col("key"))))
            opened.write(sold.select("key", F.concat_ws(" ", "value", "shipment").alias("value")), topic=invoices)
            opened.write(sold.select("key", F.concat_ws(" ", "value", "shipment").alias("value")), topic=shipments)

    random_text = random_udf()
    rows = scene.stream(purchases).select("key", "value")
    scene.send(purchases, range(50))
    scene.run(rows, shop)
    scene.send(purchases, range(50, 80))
    scene.run(rows, shop)
    written = scene.committed(invoices)
    last = max(replayed)
    assert not any(replayed.values())
    scene.forget_commit(last)
    scene.send(purchases, range(80, 90))
    scene.run(rows, shop)
    assert replayed[last]
    assert not replayed[max(replayed)]
    after = scene.committed(invoices)
    assert [record for record in after if record in written] == written
    # The random part of a row is the same in both topics.
    assert sorted(record.value or b"" for record in after) == sorted(
        record.value or b"" for record in scene.committed(shipments)
    )
    assert sorted(int((record.value or b"").split()[0]) for record in after) == list(range(90))


def test_a_batch_that_foreach_batch_leaves_out_does_not_stop_the_next(scene: Scene) -> None:
    purchases, invoices = scene.create("purchases", 1), scene.create("invoices", 1)
    sink = exactly_once(scene.name, scene.servers, topic=invoices)
    seen: list[int] = []

    def process(batch: Any, number: int) -> None:
        seen.append(number)
        if batch.isEmpty():
            return
        sink(batch, number)

    scene.send(purchases, range(30))
    # Batches of ten, of which the second has rows that the stream leaves out.
    rows = scene.stream(purchases, maxOffsetsPerTrigger="10").select("key", "value")
    rows = rows.where("cast(cast(value as string) as int) not between 10 and 19")
    scene.run(rows, process)
    assert len(seen) == 3
    assert scene.numbers(invoices) == [*range(10), *range(20, 30)]
    scene.send(purchases, range(10, 20))
    scene.run(rows, process)
    scene.send(purchases, range(30, 40))
    # Nobody can see any more why the batch before was left out.
    with pytest.raises(StreamingQueryException, match=r"if df\.isEmpty\(\): return.* return inside its block"):
        scene.run(rows, process)
    scene.run(rows, exactly_once(scene.name, scene.servers, topic=invoices, adopt="continue"))
    assert scene.numbers(invoices) == [*range(10), *range(20, 40)]


def test_two_sinks_in_one_batch_are_two_names_or_one_transaction(scene: Scene) -> None:
    purchases, invoices, shipments = scene.create("purchases"), scene.create("invoices"), scene.create("shipments")
    scene.send(purchases, range(20))
    rows = scene.stream(purchases).select("key", "value")
    names = [scene.name, scene.name]

    def process(batch: Any, number: int) -> None:
        exactly_once(names[0], scene.servers, topic=invoices)(batch, number)
        exactly_once(names[1], scene.servers, topic=shipments)(batch, number)

    with pytest.raises(
        StreamingQueryException, match=r"(?s)one transaction per batch.*se transaction\(\) and write both"
    ):
        scene.run(rows, process)
    assert scene.numbers(shipments) == []
    # What the message offers makes up for it.
    names[1] = f"{scene.name}-shipments"
    scene.run(rows, process)
    scene.send(purchases, range(20, 30))
    scene.run(rows, process)
    assert scene.numbers(invoices) == scene.numbers(shipments) == list(range(30))


def random_udf() -> Any:
    from pyspark.sql import functions as F

    return F.udf(lambda _: str(uuid.uuid4()), "string").asNondeterministic()


def test_rows_may_name_topics_partitions_and_headers(scene: Scene) -> None:
    from pyspark.sql import functions as F

    purchases, even, odd = scene.create("purchases", 3), scene.create("even", 20), scene.create("odd", 3)
    scene.send(purchases, range(200))
    number = F.col("value").cast("string").cast("int")
    rows = scene.stream(purchases).select(
        F.when(number % 2 == 0, F.lit(even)).otherwise(F.lit(odd)).alias("topic"),
        F.when(number % 2 == 0, number % 20).cast("int").alias("partition"),
        "key",
        "value",
        F.array(F.struct(F.lit("number").alias("key"), F.col("value").alias("value"))).alias("headers"),
    )
    scene.run(rows, exactly_once(scene.name, scene.servers))
    assert scene.numbers(even) == list(range(0, 200, 2))
    assert scene.numbers(odd) == list(range(1, 200, 2))
    for record in scene.committed(even, odd):
        value = int(record.value or b"-1")
        assert record.headers == [("number", record.value)]
        assert record.partition == (value % 20 if value % 2 == 0 else partition_of_key(record.key or b"", 3))
