"""The Spark side of the Spark rows, a process of its own: `python -m bench.spark_jobs`.

Keeps one session, so that every sample but the first finds it warm. Reads a job as a line of JSON on stdin and answers
with a line on the stream that stdout was before Spark could write to it.
"""

import json
import os
import shutil
import sys
import tempfile
import time
from typing import Any

from tests.spark.sessions import spark_session

OURS, CONNECTOR = "fencepost", "connector"


def topic_to_topic(spark: Any, job: dict[str, Any]) -> dict[str, Any]:
    """Everything that is in one topic to another, with Trigger.AvailableNow."""
    checkpoint = tempfile.mkdtemp(prefix="checkpoint-")
    is_ours = job["side"] == OURS
    reader = spark.readStream.format("fencepost" if is_ours else "kafka")
    reader = reader.option("kafka.bootstrap.servers", job["bootstrap"]).option("startingOffsets", "earliest")
    if "max_offsets" in job:
        reader = reader.option("maxOffsetsPerTrigger", str(job["max_offsets"]))
    rows = reader.option("subscribe", job["source"]).load().select("key", "value")
    if is_ours:
        from fencepost.spark import exactly_once

        sink = exactly_once(job["name"], job["bootstrap"], topic=job["target"])
        writer = rows.writeStream.foreachBatch(sink)
    else:
        writer = rows.writeStream.format("kafka").option("kafka.bootstrap.servers", job["bootstrap"])
        writer = writer.option("topic", job["target"])
    writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    began = time.perf_counter()
    query = writer.start()
    try:
        query.awaitTermination()
        seconds = time.perf_counter() - began
        durations = [progress["durationMs"] for progress in query.recentProgress if progress["numInputRows"]]
    finally:
        query.stop()
        shutil.rmtree(checkpoint, ignore_errors=True)
    return {"seconds": seconds, "batches": durations}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    cores = os.cpu_count() or 1
    settings = {"spark.driver.memory": "2g", "spark.sql.streaming.numRecentProgressUpdates": "1000"}
    with spark_session(f"local[{cores}]", with_connector=True, **settings) as spark:
        print(json.dumps({"ready": True}), file=answers, flush=True)
        for line in sys.stdin:
            try:
                answer = topic_to_topic(spark, json.loads(line))
            except Exception as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
