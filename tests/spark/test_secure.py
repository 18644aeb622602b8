"""Source and sink through a listener that asks who is there: TLS, and a login on it."""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.extras import require_arrow
from tests.support.patience import patient

require_arrow()
pytest.importorskip("pyspark.sql.streaming.datasource", reason="the source needs PySpark 4.2")

from confluent_kafka import Consumer  # noqa: E402
from pyspark.errors import StreamingQueryException  # noqa: E402

from fencepost.client import Admin, NewTopic, Producer  # noqa: E402
from fencepost.spark import exactly_once  # noqa: E402
from tests.security.secured import PASSWORD, USER, SecuredFencepost  # noqa: E402
from tests.spark.sessions import run_again_if_spark_was_too_slow  # noqa: E402

pytestmark = pytest.mark.timeout(600)  # a machine under load
RECORDS = 40


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredFencepost]:
    with SecuredFencepost(tmp_path_factory.mktemp("secured")) as process:
        with Admin(process.address_of("PLAINTEXT")) as admin:
            admin.create_topic(NewTopic("purchases", 2))
            admin.create_topic(NewTopic("invoices", 2))
        with Producer(process.address_of("PLAINTEXT")) as producer:
            for number in range(RECORDS):
                producer.send("purchases", b"%d" % number)
        yield process


def login(broker: SecuredFencepost, mechanism: str, password: str = PASSWORD) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.username": USER,
        "sasl.password": password,
        "ssl.ca.location": str(broker.authority.file),
    }


def copy(spark: Any, broker: SecuredFencepost, name: str, checkpoint: Path, options: dict[str, str]) -> None:
    servers = broker.address_of("SASL_SSL")

    def run() -> None:
        rows = spark.readStream.format("fencepost").option("kafka.bootstrap.servers", servers)
        rows = rows.options(**{f"kafka.{key}": value for key, value in options.items()})
        rows = rows.option("subscribe", "purchases").option("startingOffsets", "earliest").load().select("value")
        writer = rows.writeStream.foreachBatch(exactly_once(name, servers, topic="invoices", kafka=options))
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()

    run_again_if_spark_was_too_slow(run)


def invoices(broker: SecuredFencepost) -> list[int]:
    settings = {"group.id": str(uuid.uuid4()), "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "bootstrap.servers": broker.address_of("PLAINTEXT"), "enable.partition.eof": True})
    consumer.subscribe(["invoices"])
    found: list[int] = []
    ended: set[int] = set()
    try:
        while len(ended) < 2:
            message = consumer.poll(patient(60))
            assert message is not None, "nothing came for a minute"
            if message.error():
                ended.add(message.partition())
            else:
                found.append(int(message.value()))
    finally:
        consumer.close()
    return sorted(found)


def test_a_pipeline_reads_and_writes_over_tls_with_a_login(
    spark: Any, broker: SecuredFencepost, tmp_path: Path
) -> None:
    with pytest.raises(StreamingQueryException) as refused:
        copy(spark, broker, "secure", tmp_path / "refused", login(broker, "SCRAM-SHA-256", "guessed"))
    assert "SASL_AUTHENTICATION_FAILED" in str(refused.value) or "authentication" in str(refused.value).lower()
    assert PASSWORD not in str(refused.value)
    assert invoices(broker) == []

    copy(spark, broker, "secure", tmp_path / "checkpoint", login(broker, "SCRAM-SHA-256"))
    assert invoices(broker) == list(range(RECORDS))
    copy(spark, broker, "secure", tmp_path / "checkpoint", login(broker, "SCRAM-SHA-256"))
    assert invoices(broker) == list(range(RECORDS))
