"""Batches of a few rows, which the driver writes itself: the same promises as with writers, and what is too much for
it goes to them.

The source is Spark's own: it needs no Python process, for whose start Spark has no patience. It does not tell where its
first batch began, so that one is left to the writers.
"""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.extras import require_arrow

require_arrow()
pytest.importorskip("pyspark", reason="PySpark is not installed")

from pyspark.errors import StreamingQueryException  # noqa: E402

from fencepost.client import Client, TransactionProtocol  # noqa: E402
from fencepost.client.partitioner import partition_of_key  # noqa: E402
from fencepost.spark import exactly_once, small_batches, transaction  # noqa: E402
from fencepost.spark.query_run import close_runs  # noqa: E402
from tests.faults.proxy import Direction, FaultProxy  # noqa: E402
from tests.peers.broker_process import BrokerProcess  # noqa: E402
from tests.peers.fencepost_process import FencepostProcess  # noqa: E402
from tests.peers.kafka import ApacheKafka  # noqa: E402
from tests.spark.sessions import spark_session  # noqa: E402
from tests.spark.sink_scene import Scene  # noqa: E402

pytestmark = pytest.mark.timeout(400)

ROWS_MAX = 60


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with spark_session("local[2, 4]", with_connector=True) as session:  # a task may fail three times
        yield session
    close_runs()


@pytest.fixture(scope="module", params=[FencepostProcess, ApacheKafka], ids=["fencepost", "apache"])
def broker(request: pytest.FixtureRequest) -> Iterator[BrokerProcess]:
    with request.param() as process:
        yield process


@pytest.fixture
def scene(spark: Any, broker: BrokerProcess, tmp_path: Path) -> Scene:
    return Scene(spark, broker, tmp_path / "checkpoint")


@pytest.fixture
def proxy(broker: BrokerProcess) -> Iterator[FaultProxy]:
    if isinstance(broker, ApacheKafka):
        pytest.skip("its clients would go around the proxy")
    with FaultProxy(broker.address) as between:
        yield between
    close_runs()


@pytest.fixture(autouse=True)
def by_the_driver(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    monkeypatch.setattr(small_batches, "ROWS_MAX", ROWS_MAX)
    caplog.set_level(logging.DEBUG, "fencepost.spark")
    return caplog


def stream(scene: Scene, topic: str, **options: str) -> Any:
    reader = scene.spark.readStream.format("kafka").option("kafka.bootstrap.servers", scene.servers)
    return reader.option("subscribe", topic).option("startingOffsets", "earliest").options(**options).load()


def begin(scene: Scene, topic: str, rows: Any, function: Any) -> None:
    """The first batch, of the number 0."""
    scene.send(topic, [0])
    scene.run(rows, function)


def rows_by_the_driver(caplog: pytest.LogCaptureFixture) -> list[int]:
    """Of each batch that it wrote."""
    return [
        int(str(record.args[0]))
        for record in caplog.records
        if record.msg.startswith("the driver writes") and record.args
    ]


@pytest.mark.parametrize("protocol", list(TransactionProtocol), ids=lambda protocol: protocol.name)
def test_every_row_arrives_once_in_order_and_its_offsets_with_it(
    scene: Scene, protocol: TransactionProtocol, by_the_driver: pytest.LogCaptureFixture
) -> None:
    purchases, invoices = scene.create("purchases", 2), scene.create("invoices", 5)
    rows = stream(scene, purchases, maxOffsetsPerTrigger="50").select("key", "value")
    sink = exactly_once(scene.name, scene.servers, topic=invoices, protocol=protocol, kafka={"compression.type": "lz4"})
    begin(scene, purchases, rows, sink)
    scene.send(purchases, range(1, 100))
    scene.run(rows, sink)
    scene.forget_commit(2)
    scene.send(purchases, range(100, 120))
    scene.run(rows, sink)
    assert scene.numbers(invoices) == list(range(120))
    by_key: dict[bytes | None, list[int]] = {}
    for record in scene.committed(invoices):
        assert record.partition == partition_of_key(record.key or b"", 5)
        by_key.setdefault(record.key, []).append(int(record.value or b"-1"))
    assert all(numbers == sorted(numbers) for numbers in by_key.values())
    assert sum(offset.offset for offset in scene.offsets().values()) == 120
    assert sum(rows_by_the_driver(by_the_driver)) == 119


def test_two_outputs_are_one_transaction_and_rows_may_name_topics_partitions_and_headers(
    scene: Scene, by_the_driver: pytest.LogCaptureFixture
) -> None:
    from pyspark.sql import functions as F

    purchases, even, odd, all_of_them = (scene.create(stem, 4) for stem in ("purchases", "even", "odd", "all"))
    number = F.col("value").cast("string").cast("int")

    def shop(batch: Any, batch_id: int) -> None:
        with transaction(batch, batch_id, scene.name, scene.servers) as opened:
            opened.write(
                batch.select(
                    F.when(number % 2 == 0, F.lit(even)).otherwise(F.lit(odd)).alias("topic"),
                    F.when(number % 2 == 0, number % 4).cast("int").alias("partition"),
                    "key",
                    F.when(number != 8, F.col("value")).alias("value"),
                    F.array(F.struct(F.lit("number").alias("key"), F.col("value").alias("value"))).alias("headers"),
                )
            )
            opened.write(batch.select(F.col("value").cast("string")), topic=all_of_them)

    begin(scene, purchases, stream(scene, purchases), shop)
    scene.send(purchases, range(1, 25))
    scene.run(stream(scene, purchases), shop)
    assert rows_by_the_driver(by_the_driver) == [48]
    assert scene.numbers(all_of_them) == list(range(25))
    found = scene.committed(even, odd)
    assert sorted(int(record.headers[0][1] or b"-1") for record in found) == list(range(25))
    for record in found:
        value = int(record.headers[0][1] or b"-1")
        assert record.value == (None if value == 8 else b"%d" % value)
        assert record.topic == (odd if value % 2 else even)
        assert record.partition == (partition_of_key(record.key or b"", 4) if value % 2 else value % 4)


@pytest.mark.parametrize("what", ["many rows", "a large row"])
def test_few_records_that_become_too_much_are_left_to_the_writers(
    scene: Scene, what: str, by_the_driver: pytest.LogCaptureFixture
) -> None:
    from pyspark.sql import functions as F

    purchases, invoices = scene.create("purchases"), scene.create("invoices")
    rows = stream(scene, purchases).select("key", "value")
    if what == "many rows":
        rows = rows.withColumn("value", F.explode(F.array_repeat("value", 50)))
    else:
        rows = rows.withColumn("value", F.concat("value", F.lit(bytearray(b" " * small_batches.ROW_BYTES_MAX))))
    sink = exactly_once(scene.name, scene.servers, topic=invoices)
    begin(scene, purchases, rows, sink)
    scene.send(purchases, range(1, 20))
    scene.run(rows, sink)
    copies = 50 if what == "many rows" else 1
    assert scene.numbers(invoices) == sorted(list(range(20)) * copies)
    assert rows_by_the_driver(by_the_driver) == []


def test_a_task_that_is_repeated_gives_its_rows_once(scene: Scene, by_the_driver: pytest.LogCaptureFixture) -> None:
    from pyspark.sql import functions as F

    @F.udf("binary")
    def fails_at_first(value):
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is not None and context.attemptNumber() == 0 and int(bytes(value)) > 20:
            raise RuntimeError("the first attempt of this task ends here")
        return bytes(value)

    purchases, invoices = scene.create("purchases"), scene.create("invoices")
    rows = stream(scene, purchases).select("key", fails_at_first("value").alias("value"))
    sink = exactly_once(scene.name, scene.servers, topic=invoices)
    begin(scene, purchases, rows, sink)
    scene.send(purchases, range(1, 50))
    scene.run(rows, sink)
    assert scene.numbers(invoices) == list(range(50))
    assert rows_by_the_driver(by_the_driver) == [49]


@pytest.mark.parametrize("api", ["Produce", "TxnOffsetCommit", "EndTxn"])
def test_an_answer_that_is_lost_is_asked_for_again(scene: Scene, proxy: FaultProxy, api: str) -> None:
    purchases, invoices = scene.create("purchases"), scene.create("invoices")
    rows = stream(scene, purchases).select("key", "value")
    begin(scene, purchases, rows, exactly_once(scene.name, proxy.bootstrap_servers, topic=invoices))
    scene.send(purchases, range(1, 50))
    lost = proxy.drop(api, Direction.RESPONSE)
    scene.run(rows, exactly_once(scene.name, proxy.bootstrap_servers, topic=invoices))
    assert lost.caught.is_set()
    assert scene.numbers(invoices) == list(range(50))
    assert sum(offset.offset for offset in scene.offsets().values()) == 50


@pytest.mark.parametrize("api", ["Produce", "EndTxn"])
def test_a_successor_ends_the_query_and_nothing_of_its_batch_is_seen(scene: Scene, proxy: FaultProxy, api: str) -> None:
    purchases, invoices = scene.create("purchases"), scene.create("invoices")
    rows = stream(scene, purchases).select("key", "value")
    begin(scene, purchases, rows, exactly_once(scene.name, proxy.bootstrap_servers, topic=invoices))
    scene.send(purchases, range(1, 50))

    def take_over() -> None:
        with Client(scene.servers) as client:
            client.init_producer_id(scene.name)

    proxy.on(api, take_over)
    with pytest.raises(StreamingQueryException, match="another driver has taken over"):
        scene.run(rows, exactly_once(scene.name, proxy.bootstrap_servers, topic=invoices))
    proxy.clear()
    assert scene.numbers(invoices) == [0]
    scene.run(rows, exactly_once(scene.name, proxy.bootstrap_servers, topic=invoices))
    assert scene.numbers(invoices) == list(range(50))


@pytest.mark.parametrize("what", ["partition", "topic", "size"])
def test_rows_that_cannot_be_written_are_told_and_nothing_is_seen(scene: Scene, what: str) -> None:
    from pyspark.sql import functions as F

    purchases, invoices = scene.create("purchases"), scene.create("invoices", max_message_bytes="1000")
    rows = stream(scene, purchases).select("key", "value")
    begin(scene, purchases, rows, exactly_once(scene.name, scene.servers, topic=invoices))
    scene.send(purchases, range(1, 10))
    is_last = F.col("value") == F.lit(bytearray(b"9"))
    wrong, said = {
        "partition": (rows.withColumn("partition", F.when(is_last, 2)), "partition 2 of topic .* which has 2"),
        "topic": (rows.withColumn("topic", F.when(~is_last, invoices)), "a row has no topic"),
        "size": (
            rows.withColumn("value", F.when(is_last, F.lit(bytearray(2_000))).otherwise(F.col("value"))),
            "MESSAGE_TOO_LARGE",
        ),
    }[what]
    with pytest.raises(StreamingQueryException, match=said):
        scene.run(wrong, exactly_once(scene.name, scene.servers, topic=None if what == "topic" else invoices))
    assert scene.numbers(invoices) == [0]
