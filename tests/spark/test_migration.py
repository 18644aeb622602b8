"""docs/migration.md, word for word: the code of each step is taken from the page and run, before and after."""

import re
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
from tests.peers.broker_process import BrokerProcess  # noqa: E402
from tests.peers.fencepost_process import FencepostProcess  # noqa: E402
from tests.peers.kafka import ApacheKafka  # noqa: E402
from tests.spark.sessions import run_again_if_spark_was_too_slow  # noqa: E402

pytestmark = pytest.mark.timeout(600)  # a machine under load
PAGE = Path(__file__).parents[2] / "docs" / "migration.md"


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


class Job:
    """The code of one section of the page, with addresses and directories of this test."""

    def __init__(self, section: str, spark: Any, broker: BrokerProcess, directory: Path) -> None:
        text = PAGE.read_text().partition(f"\n## {section}\n")[2].partition("\n## ")[0]
        self.before, self.after = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        self._places = {
            "kafka:9092": broker.bootstrap_servers,
            "/checkpoints": str(directory / "checkpoints"),
            "/lake": str(directory / "lake"),
        }
        self._spark = spark
        self.lake = directory / "lake"
        self.checkpoint = directory / "checkpoints" / "invoicing"

    @property
    def after_the_first_start(self) -> str:
        assert ', adopt="continue"' in self.after
        return self.after.replace(', adopt="continue"', "")

    def run(self, code: str) -> None:
        """Until everything that is there has been read."""
        for name, place in self._places.items():
            code = code.replace(name, place)

        def run() -> None:
            names: dict[str, Any] = {"spark": self._spark}
            exec(code, names)
            try:
                names["query"].processAllAvailable()
            finally:
                names["query"].stop()

        run_again_if_spark_was_too_slow(run)

    def forget_commit(self) -> None:
        """As if the driver had died between the transaction's commit and Spark's own note of it."""
        commits = self.checkpoint / "commits"
        last = max(int(entry.name) for entry in commits.iterdir() if entry.name.isdecimal())
        (commits / str(last)).unlink()
        (commits / f".{last}.crc").unlink(missing_ok=True)


def read(broker: BrokerProcess, topic: str = "invoices") -> Counter[str]:
    """What a foreign reader of committed records finds."""
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": f"audit {topic}",
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    consumer = Consumer(settings)
    found: Counter[str] = Counter()
    try:
        consumer.subscribe([topic])
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


def expected(word: str, count: int) -> Counter[str]:
    return Counter(f"{word} {number}" for number in range(count))


def test_a_job_moves_with_its_checkpoint(spark: Any, broker: BrokerProcess, tmp_path: Path) -> None:
    job = Job("Spark's connector on both sides", spark, broker, tmp_path)
    buy(broker, range(100))
    job.run(job.before)
    buy(broker, range(100, 150))
    # The group knows nothing of the batches before; that has to be said once.
    with pytest.raises(StreamingQueryException, match="adopt='continue'"):
        job.run(job.after_the_first_start)
    job.run(job.after)
    buy(broker, range(150, 200))
    job.forget_commit()
    job.run(job.after_the_first_start)
    assert read(broker) == expected("invoice", 200)
    with Admin(broker.bootstrap_servers) as admin:
        partitions = [TopicPartition("purchases", number) for number in range(3)]
        committed = admin.committed_offsets("invoicing")
        assert sum(committed[partition].offset for partition in partitions) == 200
    buy(broker, range(200, 210))
    job.run(job.before)
    assert read(broker) == expected("invoice", 210)


@pytest.mark.parametrize("broker", [FencepostProcess], indirect=True, ids=["fencepost"])
def test_a_producer_in_foreach_batch_becomes_a_block(spark: Any, broker: BrokerProcess, tmp_path: Path) -> None:
    with Admin(broker.bootstrap_servers) as admin:
        admin.create_topic(NewTopic("shipments", 2))
    job = Job("A producer inside of foreachBatch", spark, broker, tmp_path)
    buy(broker, range(50))
    job.run(job.before)
    buy(broker, range(50, 80))
    job.run(job.after)
    buy(broker, range(80, 100))
    job.forget_commit()
    job.run(job.after_the_first_start)
    assert read(broker) == expected("invoice", 100)
    assert read(broker, "shipments") == expected("shipment", 100)


@pytest.mark.parametrize("broker", [FencepostProcess], indirect=True, ids=["fencepost"])
def test_files_beside_kafka_are_replaced_by_a_repeated_batch(spark: Any, broker: BrokerProcess, tmp_path: Path) -> None:
    job = Job("Parquet or Delta beside Kafka", spark, broker, tmp_path)
    buy(broker, range(50))
    job.run(job.before)
    buy(broker, range(50, 80))
    job.run(job.after)
    buy(broker, range(80, 100))
    job.forget_commit()
    job.run(job.after_the_first_start)
    assert read(broker) == expected("invoice", 100)
    stored = [spark.read.parquet(str(job.lake / name)) for name in ("invoices", "invoices-by-batch")]
    assert Counter(row.value for rows in stored for row in rows.select("value").collect()) == expected("invoice", 100)


def test_every_block_of_the_page_is_run() -> None:
    text = PAGE.read_text()
    assert text.count("```python") == 6
    assert len(re.findall(r"^## ", text, re.MULTILINE)) == 3
