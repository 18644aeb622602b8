"""A job that was written for Spark's Kafka connector moves: one word where it reads, one line where it writes."""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.extras import require_arrow
from tests.support.patience import patient

require_arrow()
pytest.importorskip("pyspark.sql.streaming.datasource", reason="the source needs PySpark 4.2")

from confluent_kafka import Consumer  # noqa: E402
from pyspark.errors import StreamingQueryException  # noqa: E402

from fencepost.client import Admin, NewTopic, Producer, TopicPartition  # noqa: E402
from fencepost.spark import exactly_once  # noqa: E402
from tests.peers.broker_process import BrokerProcess  # noqa: E402
from tests.peers.fencepost_process import FencepostProcess  # noqa: E402
from tests.peers.kafka import ApacheKafka  # noqa: E402
from tests.spark.sessions import run_again_if_spark_was_too_slow, spark_session  # noqa: E402

pytestmark = pytest.mark.timeout(600)  # a machine under load


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with spark_session(with_connector=True) as session:
        yield session


@pytest.fixture(params=[FencepostProcess, ApacheKafka], ids=["fencepost", "apache"])
def broker(request: pytest.FixtureRequest) -> Iterator[BrokerProcess]:
    with request.param() as process:
        with Admin(process.bootstrap_servers) as admin:
            admin.create_topic(NewTopic("purchases", 3))
            admin.create_topic(NewTopic("invoices", 2))
        yield process


def buy(broker: BrokerProcess, numbers: Iterable[int]) -> None:
    with Producer(broker.bootstrap_servers) as producer:
        for number in numbers:
            producer.send("purchases", b"%d" % number, key=b"customer %d" % (number % 5))


def finish(writer: Any) -> None:
    def run() -> None:
        query = writer.trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()

    run_again_if_spark_was_too_slow(run)


def before(spark: Any, servers: str, checkpoint: Path) -> None:
    rows = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", "purchases")
        .option("startingOffsets", "earliest")
        .load()
    )
    invoices = rows.selectExpr("key", "concat('invoice ', cast(value as string)) as value")
    finish(
        invoices.writeStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", "invoices")
        .option("checkpointLocation", str(checkpoint))
    )


def after(spark: Any, servers: str, checkpoint: Path, adopt: str) -> None:
    rows = (
        spark.readStream.format("fencepost")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", "purchases")
        .option("startingOffsets", "earliest")
        .load()
    )
    invoices = rows.selectExpr("key", "concat('invoice ', cast(value as string)) as value")
    finish(
        invoices.writeStream.foreachBatch(exactly_once("invoicing", servers, topic="invoices", adopt=adopt)).option(
            "checkpointLocation", str(checkpoint)
        )
    )


def invoices(broker: BrokerProcess) -> Counter[str]:
    """What a foreign reader of committed records finds."""
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": "audit",
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    consumer = Consumer(settings)
    found: Counter[str] = Counter()
    try:
        consumer.subscribe(["invoices"])
        ended: set[int] = set()
        while len(ended) < 2:
            message = consumer.poll(patient(60))
            assert message is not None, "nothing came for a minute"
            if message.error() is None:
                found[message.value().decode()] += 1
            else:
                ended.add(message.partition())
    finally:
        consumer.close()
    return found


def test_a_job_moves_with_its_checkpoint(spark: Any, broker: BrokerProcess, tmp_path: Path) -> None:
    servers = broker.bootstrap_servers
    buy(broker, range(100))
    before(spark, servers, tmp_path)
    buy(broker, range(100, 150))
    # The group knows nothing of the batches before; that has to be said once.
    with pytest.raises(StreamingQueryException, match="adopt='continue'"):
        after(spark, servers, tmp_path, adopt="refuse")
    after(spark, servers, tmp_path, adopt="continue")
    buy(broker, range(150, 200))
    after(spark, servers, tmp_path, adopt="refuse")
    assert invoices(broker) == Counter(f"invoice {number}" for number in range(200))
    with Admin(servers) as admin:
        partitions = [TopicPartition("purchases", number) for number in range(3)]
        committed = admin.committed_offsets("invoicing")
        assert sum(committed[partition].offset for partition in partitions) == 200
