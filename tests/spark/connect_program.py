"""A pipeline under Spark Connect, in a process of its own: BOOTSTRAP CHECKPOINT. The server is started beside it."""

import sys

from pyspark.sql import SparkSession

from fencepost.examples.shop import shop

if __name__ == "__main__":
    bootstrap, checkpoint = sys.argv[1:]
    spark = (
        SparkSession.builder.remote("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    assert "connect" in type(spark).__module__, type(spark)
    query = shop.start(
        spark, bootstrap_servers=bootstrap, checkpoint=checkpoint, starting_offsets="earliest",
        trigger={"availableNow": True},
    )  # fmt: skip
    query.awaitTermination()
    print("done", flush=True)
    spark.stop()
