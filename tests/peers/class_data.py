"""Makes archives of Java's classes: `python -m tests.peers.class_data`, a part of `make peers`.

A JVM maps an archive into memory instead of finding, parsing and checking thousands of classes at every start, which is
half the work of those that tests start. A small run of Apache Kafka and one of Spark load the classes, and write the
archives when they end. Java ignores one that does not fit its version or the jars: then tests only take longer.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from tests.peers.build import BUILD, require_java
from tests.peers.java import KAFKA_ARCHIVE, QUICK, SPARK_ARCHIVE
from tests.peers.kafka import ApacheKafka
from tests.spark.sessions import SETTINGS

RECORDS = 10


def main() -> None:
    version = subprocess.run([require_java(), "-version"], capture_output=True, text=True, check=True).stderr
    pyspark = find_spec("pyspark")
    assert pyspark is not None
    assert pyspark.origin is not None
    _make(KAFKA_ARCHIVE, version, BUILD / "lib", run_kafka)
    _make(SPARK_ARCHIVE, version, Path(pyspark.origin).with_name("jars"), run_spark)


def _make(archive: Path, version: str, jars: Path, run: Callable[[str], None]) -> None:
    found = [(jar.name, jar.stat().st_size, jar.stat().st_mtime_ns) for jar in sorted(jars.glob("*.jar"))]
    made_from = f"{version}{Path(__file__).read_text()}{jars}{found}"
    stamp = archive.with_suffix(".archived")  # `peers/setup` has its own stamps beside it
    if archive.exists() and stamp.exists() and stamp.read_text() == made_from:
        return
    new = archive.with_suffix(".new")
    new.unlink(missing_ok=True)
    try:
        run(f"-XX:ArchiveClassesAtExit={new}")
        new.replace(archive)
    except Exception as error:
        print(f"no archive of classes for {archive.stem}, tests take longer: {error}", file=sys.stderr)
    else:
        stamp.write_text(made_from)


def run_kafka(option: str) -> None:
    from fencepost.client import Admin, CommittedOffset, NewTopic, Producer, TopicPartition

    with ApacheKafka(java_options=(*QUICK, option, "-Xlog:disable")) as broker:
        with Admin(broker.bootstrap_servers) as admin, Producer(broker.bootstrap_servers) as producer:
            admin.create_topic(NewTopic("numbers", 2))
            for number in range(RECORDS):
                producer.send("numbers", b"%d" % number)
            producer.flush()
            admin.commit_offsets("readers", {TopicPartition("numbers", 0): CommittedOffset(1)})
        broker.stop()


def run_spark(option: str) -> None:
    os.environ["SPARK_SUBMIT_OPTS"] = " ".join((*QUICK, option, "-Xlog:disable"))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    java = spark.sparkContext._gateway.proc
    with tempfile.TemporaryDirectory() as directory:
        writer = (
            spark.readStream.format("rate").load().selectExpr("to_json(struct(value))", "value % 2 AS key").writeStream
        )
        writer = writer.foreachBatch(lambda rows, _: rows.groupBy("key").count().collect())
        writer.option("checkpointLocation", directory).trigger(availableNow=True).start().awaitTermination()
        spark.range(RECORDS).mapInArrow(lambda batches: batches, "id bigint").collect()
        spark.stop()
    java.stdin.close()  # it ends then, and writes the archive
    java.wait()


if __name__ == "__main__":
    main()
