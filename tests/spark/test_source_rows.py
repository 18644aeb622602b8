"""The source beside Spark's own Kafka source: the same options on the same topics give the same rows."""

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.extras import require_arrow

require_arrow()
pytest.importorskip("pyspark.sql.streaming.datasource", reason="the source needs PySpark 4.2")

from fencepost.client import Admin, Client, NewTopic, Producer  # noqa: E402
from tests.peers.broker_process import BrokerProcess  # noqa: E402
from tests.peers.fencepost_process import FencepostProcess  # noqa: E402
from tests.peers.kafka import ApacheKafka  # noqa: E402
from tests.spark.sessions import spark_session  # noqa: E402

_serial = itertools.count()
ROWS = 300


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with spark_session(with_connector=True) as session:
        yield session


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
