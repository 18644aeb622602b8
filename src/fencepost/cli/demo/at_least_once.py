"""The shop pipeline without Fencepost: the same function and the same rows, but an at-least-once sink.

With the jars of Spark's own Kafka connector, the connector reads and writes; without them, a plain producer writes the
rows. `fencepost demo --compare` starts it and kills it in the same way as ours.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fencepost.examples.shop import shop
from fencepost.spark.pipeline_plans import input_formats, output_formats, output_rows, tagged, union
from fencepost.spark.pipeline_run import session
from fencepost.spark.pipeline_start import StartOptions, records

# Imports inside functions: each command loads only what it needs, so that it starts quickly.

LIMIT_BYTES = 1_000_000


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap-server", required=True)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--rows-per-batch", type=int, required=True)
    parser.add_argument("--connector-jars", type=Path)
    given = parser.parse_args()
    conf = {}
    if given.connector_jars is not None:
        conf["spark.jars"] = ",".join(str(jar.resolve()) for jar in sorted(given.connector_jars.glob("*.jar")))
    spark = session("shop-at-least-once", None, conf)
    definition = shop.definition
    options = StartOptions(
        bootstrap_servers=given.bootstrap_server,
        checkpoint=given.checkpoint,
        rows_per_batch_max=given.rows_per_batch,
        source_format="fencepost" if given.connector_jars is None else "kafka",
    )
    formats = output_formats(shop)
    limits = dict.fromkeys(definition.topics, LIMIT_BYTES)

    def process(batch: Any, _batch_id: int) -> None:
        rows = union(output_rows(shop, batch, lambda frame: frame.localCheckpoint(), formats, limits))
        if given.connector_jars is None:
            rows.foreachPartition(PlainProducer(given.bootstrap_server))
        else:
            rows.write.format("kafka").option("kafka.bootstrap.servers", given.bootstrap_server).save()

    query = (
        tagged(shop, records(shop, spark, options), input_formats(shop))
        .writeStream.foreachBatch(process)
        .option("checkpointLocation", given.checkpoint)
        .start()
    )
    query.awaitTermination()


class PlainProducer:
    """Idempotent and with acks=all. But a task or batch that is repeated writes its rows again."""

    def __init__(self, address: str) -> None:
        self._address = address

    def __call__(self, rows: Iterator[Any]) -> None:
        from fencepost.client.blocking import Producer

        with Producer(self._address) as producer:
            for row in rows:
                key = None if row["key"] is None else bytes(row["key"])
                producer.send(row["topic"], bytes(row["value"]), key=key)
            producer.flush()


if __name__ == "__main__":
    main()
