"""The source in Spark: beside Spark's own Kafka source, which gives the same rows, and in streaming queries that are
stopped, crash in their first batch, and change from one source to the other."""

import contextlib
import itertools
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.extras import require_arrow

require_arrow()
pytest.importorskip("pyspark.sql.streaming.datasource", reason="the source needs PySpark 4.2")

from fencepost.client import Admin, Client, NewTopic, Producer  # noqa: E402
from fencepost.spark.query_run import close_runs  # noqa: E402
from tests.peers.broker_process import BrokerProcess  # noqa: E402
from tests.peers.fencepost_process import FencepostProcess  # noqa: E402
from tests.peers.kafka import ApacheKafka  # noqa: E402
from tests.spark.sessions import run_again_if_spark_was_too_slow  # noqa: E402

pytestmark = pytest.mark.timeout(600)  # a machine under load
_serial = itertools.count()
ROWS = 300


# Rows


@pytest.fixture(scope="module", params=[FencepostProcess, ApacheKafka], ids=["fencepost", "apache"])
def topics(request: pytest.FixtureRequest) -> Iterator[tuple[BrokerProcess, str]]:
    """Two topics with everything that can be in one: nulls, headers, times, aborted and open transactions."""
    with request.param() as broker:
        stem = f"rows-{next(_serial)}"
        with Admin(broker.bootstrap_servers) as admin:
            for suffix in ("a", "b"):
                admin.create_topic(NewTopic(f"{stem}-{suffix}", 3))
        with Producer(broker.bootstrap_servers) as producer:
            for number in range(ROWS):
                producer.send(
                    f"{stem}-{'ab'[number % 2]}",
                    b"v%d" % number if number % 7 else None,
                    key=b"k%d" % number if number % 3 else None,
                    partition=number % 3,
                    headers=[("h", b"%d" % number), ("none", None)] if number % 5 == 0 else (),
                    timestamp_ms=1_700_000_000_000 + number * 1000,
                )
            producer.flush()
        with Client(broker.bootstrap_servers) as client:
            with contextlib.suppress(LookupError), client.transaction("aborted") as transaction:
                transaction.send(f"{stem}-a", b"never seen", partition=0)
                transaction.flush()
                raise LookupError
            producing = client.producer("open")
            producing.init()
            producing.begin()
            producing.send(f"{stem}-a", b"not yet seen", partition=1)
            producing.flush()
            yield broker, stem
            producing.abort()


SELECTIONS = {
    "a topic": {"subscribe": "{stem}-a"},
    "a pattern": {"subscribePattern": "{stem}-[ab]"},
    "partitions": {"assign": '{{"{stem}-a":[0,2],"{stem}-b":[1]}}'},
    "offsets": {
        "subscribe": "{stem}-a",
        "startingOffsets": '{{"{stem}-a":{{"0":10,"1":-2,"2":3}}}}',
        "endingOffsets": '{{"{stem}-a":{{"0":20,"1":-1,"2":4}}}}',
    },
    "times": {
        "subscribe": "{stem}-b",
        "startingOffsetsByTimestamp": '{{"{stem}-b":{{"0":1700000030000,"1":1700000060500,"2":0}}}}',
        "endingTimestamp": "1700000200000",
    },
    "tasks": {"subscribe": "{stem}-a,{stem}-b", "minPartitions": "11", "maxRecordsPerPartition": "40"},
}


@pytest.mark.parametrize("selection", SELECTIONS, ids=lambda name: name.replace(" ", "-"))
def test_rows_are_those_of_sparks_own_source(spark: Any, topics: tuple[BrokerProcess, str], selection: str) -> None:
    broker, stem = topics
    options = {name: value.format(stem=stem) for name, value in SELECTIONS[selection].items()}
    options |= {"kafka.bootstrap.servers": broker.bootstrap_servers, "includeHeaders": "true"}
    ours = spark.read.format("fencepost").options(**options).load()
    theirs = spark.read.format("kafka").options(**options).option("kafka.isolation.level", "read_committed").load()
    assert ours.schema == theirs.schema
    found = sorted(ours.collect(), key=lambda row: (row.topic, row.partition, row.offset))
    assert found == sorted(theirs.collect(), key=lambda row: (row.topic, row.partition, row.offset))
    assert found
    if selection == "tasks":
        assert ours.rdd.getNumPartitions() == theirs.rdd.getNumPartitions() == 12
        assert len(found) == ROWS


# Queries


@pytest.fixture(scope="module")
def broker() -> Iterator[FencepostProcess]:
    with FencepostProcess() as process:
        yield process


@pytest.fixture
def topic(broker: FencepostProcess) -> str:
    return create(broker)


def create(broker: FencepostProcess) -> str:
    name = f"stream-{next(_serial)}"
    with Admin(broker.bootstrap_servers) as admin:
        admin.create_topic(NewTopic(name, 2))
    return name


def send(broker: FencepostProcess, topic: str, numbers: Iterable[int]) -> None:
    with Producer(broker.bootstrap_servers) as producer:
        for number in numbers:
            producer.send(topic, b"%d" % number, partition=number % 2)


def load(spark: Any, broker: FencepostProcess, topic: str, *, source: str = "fencepost", **options: str) -> Any:
    reader = spark.readStream.format(source).option("kafka.bootstrap.servers", broker.bootstrap_servers)
    return reader.option("subscribe", topic).options(**options).load()


class Collected:
    """A sink that shows what it was given, batch by batch, and can die in the midst of one."""

    def __init__(self) -> None:
        self.batches: dict[int, list[int]] = {}
        self.dies_in: int | None = None

    def __call__(self, batch: Any, number: int) -> None:
        self.batches[number] = sorted(int(row.value) for row in batch.select("value").collect())
        if number == self.dies_in:
            raise LookupError("the driver dies here")

    @property
    def numbers(self) -> list[int]:
        return [number for batch in self.batches.values() for number in batch]

    def run(self, rows: Any, checkpoint: Path) -> Any:
        """Everything that is there now; returns the ended query."""
        writer = rows.writeStream.foreachBatch(self).option("checkpointLocation", str(checkpoint))
        return run_again_if_spark_was_too_slow(lambda: _finished(writer.trigger(availableNow=True).start()))


def _finished(query: Any) -> Any:
    try:
        query.awaitTermination()
    finally:
        query.stop()
    return query


def test_a_query_goes_on_where_its_checkpoint_ends(
    spark: Any, broker: FencepostProcess, topic: str, tmp_path: Path
) -> None:
    collected = Collected()
    rows = load(spark, broker, topic, startingOffsets="earliest", maxOffsetsPerTrigger="40")
    send(broker, topic, range(100))
    query = collected.run(rows, tmp_path)
    assert sorted(collected.numbers) == list(range(100))
    assert [len(batch) for batch in collected.batches.values()] == [40, 40, 20]
    (source,) = query.recentProgress[0]["sources"]
    # What is behind, by the progress report alone.
    assert source["latestOffset"] == f'{{"{topic}": {{"0": 50, "1": 50}}}}'
    send(broker, topic, range(100, 110))
    collected.run(rows, tmp_path)
    assert sorted(collected.numbers) == list(range(110))
    before = len(collected.batches)
    collected.run(rows, tmp_path)
    assert len(collected.batches) == before


def test_a_crash_in_the_first_batch_loses_nothing_with_latest(
    spark: Any, broker: FencepostProcess, topic: str, tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    send(broker, topic, range(10))
    collected = Collected()
    collected.dies_in = 0
    with pytest.raises(StreamingQueryException, match="the driver dies here"):
        collected.run(load(spark, broker, topic, startingOffsets="latest"), tmp_path)
    first = collected.batches[0]
    send(broker, topic, range(10, 20))
    collected.dies_in = None
    collected.run(load(spark, broker, topic, startingOffsets="latest"), tmp_path)
    assert collected.batches[0] == first
    assert sorted(collected.numbers) == list(range(10, 20))


def test_a_checkpoint_moves_from_sparks_source_and_back(
    spark: Any, broker: FencepostProcess, topic: str, tmp_path: Path
) -> None:
    collected = Collected()
    for number, source in enumerate(["kafka", "fencepost", "kafka", "fencepost"]):
        send(broker, topic, range(number * 10, number * 10 + 10))
        collected.run(load(spark, broker, topic, source=source, startingOffsets="earliest"), tmp_path)
        assert sorted(collected.numbers) == list(range(number * 10 + 10))


def test_a_topic_that_is_made_again_under_a_running_query_is_read_on(
    spark: Any, broker: FencepostProcess, topic: str, tmp_path: Path
) -> None:
    send(broker, topic, range(100))
    collected = Collected()
    rows = load(spark, broker, topic, startingOffsets="earliest", failOnDataLoss="false", maxOffsetsPerTrigger="200")
    writer = rows.writeStream.foreachBatch(collected).option("checkpointLocation", str(tmp_path))

    def started() -> Any:
        query = writer.start()
        query.processAllAvailable()
        return query

    query = run_again_if_spark_was_too_slow(started)
    try:
        assert sorted(collected.numbers) == list(range(100))
        with Admin(broker.bootstrap_servers) as admin:
            admin.delete_topic(topic)
            admin.create_topic(NewTopic(topic, 2))
        send(broker, topic, range(1000, 1300))
        query.processAllAvailable()
    finally:
        query.stop()
    assert sorted(collected.numbers) == [*range(100), *range(1000, 1300)]
    assert max(len(batch) for batch in collected.batches.values()) <= 200
    # A batch that is replayed reads the same.
    last = max(collected.batches)
    before = collected.batches.pop(last)
    (tmp_path / "commits" / str(last)).unlink()
    (tmp_path / "commits" / f".{last}.crc").unlink(missing_ok=True)
    collected.run(rows, tmp_path)
    assert collected.batches[last] == before


def test_an_error_tells_a_user_what_to_do(spark: Any, broker: FencepostProcess, topic: str, tmp_path: Path) -> None:
    from pyspark.errors import PySparkException, StreamingQueryException

    with pytest.raises(PySparkException, match=r"Did you mean 'kafka\.security\.protocol'\?"):
        load(spark, broker, topic, **{"kafka.securty.protocol": "SSL"})
    with pytest.raises(StreamingQueryException, match="topic 'nowhere' does not exist"):
        Collected().run(load(spark, broker, "nowhere"), tmp_path)


def test_a_writer_is_told_the_line_to_write(spark: Any, broker: FencepostProcess, topic: str, tmp_path: Path) -> None:
    from pyspark.errors import PySparkException

    from fencepost.spark import write_stream

    output = create(broker)
    options = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "topic": output,
        "checkpointLocation": str(tmp_path),
    }
    send(broker, topic, range(10))
    rows = load(spark, broker, topic, startingOffsets="earliest").select("key", "value")
    with pytest.raises(PySparkException, match=r"write_stream\(df, \*\*\{") as refused:
        _finished(rows.writeStream.format("fencepost").options(**options).trigger(availableNow=True).start())
    for name, value in options.items():
        assert f"{name!r}: {value!r}" in str(refused.value)
    batch = spark.range(1).selectExpr("cast(id as string) as value")
    with pytest.raises(PySparkException, match=r"write_exactly_once\(df, .*topic='") as refused:
        batch.write.format("fencepost").options(**options).mode("append").save()
    assert broker.bootstrap_servers in str(refused.value)
    shutil.rmtree(tmp_path)  # The query that was refused has left its id there.
    run_again_if_spark_was_too_slow(
        lambda: _finished(write_stream(rows, **options, name="numbers", trigger={"availableNow": True}))
    )
    read = spark.read.format("fencepost").option("kafka.bootstrap.servers", broker.bootstrap_servers)
    assert sorted(int(row.value) for row in read.option("subscribe", output).load().collect()) == list(range(10))
    close_runs()


@pytest.mark.parametrize(
    "trigger", [{"continuous": "1 second"}, {"realTime": "5 minutes"}], ids=["continuous", "real time"]
)
def test_triggers_without_micro_batches_start_nothing(
    spark: Any, broker: FencepostProcess, topic: str, tmp_path: Path, trigger: dict[str, str]
) -> None:
    from pyspark.errors import PySparkException

    from fencepost.spark import exactly_once

    send(broker, topic, range(10))
    rows = load(spark, broker, topic, startingOffsets="earliest").select("key", "value")
    output = create(broker)
    sink = exactly_once(output, broker.bootstrap_servers, topic=output)
    writer = rows.writeStream.foreachBatch(sink).trigger(**trigger).option("checkpointLocation", str(tmp_path))
    with pytest.raises(PySparkException):
        _finished(writer.start())
    with Admin(broker.bootstrap_servers) as admin:
        assert admin.committed_offsets(output) == {}
    close_runs()
