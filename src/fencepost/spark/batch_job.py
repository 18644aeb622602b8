"""A batch job written exactly once: the run id is the marker, and a second run with it writes nothing."""

from collections.abc import Mapping, Sequence
from typing import Any

from fencepost.client.transaction_calls import TransactionProtocol
from fencepost.spark.batch_attempts import Attempts, Batch, Committed
from fencepost.spark.batch_decisions import Step
from fencepost.spark.errors import FencepostSparkError
from fencepost.spark.outputs import checked_output
from fencepost.spark.package_shipping import ship
from fencepost.spark.planned_batches import NOTHING_PLANNED
from fencepost.spark.query_run import QueryRun, writer
from fencepost.spark.requirements import is_connect, refuse_dynamic_allocation, require_arrow, require_pyspark
from fencepost.spark.run_producer import RunProducer
from fencepost.spark.sink_settings import sink_settings
from fencepost.spark.transaction_timeouts import UNBOUNDED, given


def write_exactly_once(
    df: Any,
    name: str,
    bootstrap_servers: str | Sequence[str],
    *,
    run_id: str,
    topic: str | None = None,
    kafka: Mapping[str, Any] | None = None,
    transaction_timeout_ms: int | None = None,
    max_writers: int | None = None,
    protocol: TransactionProtocol | None = None,
) -> Committed:
    """Write a frame in one transaction. `run_id` says which load this is ("2026-11-16", say).

    A run whose id was committed before writes nothing and says `replayed`. That is remembered in the group
    `<name>.<run id>`, for as long as the cluster keeps the offsets of a group without members (7 days by default).
    """
    if not run_id:
        raise FencepostSparkError("write_exactly_once needs a run id", "name the load, by its date for example")
    settings = sink_settings(
        name, bootstrap_servers, topic=topic, kafka=kafka, transaction_timeout_ms=transaction_timeout_ms,
        max_writers=max_writers, protocol=protocol,
    )  # fmt: skip
    spark = df.sparkSession
    require_pyspark()
    require_arrow()
    refuse_dynamic_allocation(spark)
    ship(spark)
    output = checked_output(df, topic)
    if topic is None:
        raise FencepostSparkError("write_exactly_once needs a topic to record the run in", "give topic=")
    application = "connect" if is_connect(spark) else spark.sparkContext.applicationId
    batch = Batch(
        query_id=run_id,
        batch_id=0,
        group_id=f"{name}.{run_id}",
        client_id=f"spark/{application}/{name}/{run_id}",
        writer=writer(application),
        planned=lambda _: NOTHING_PLANNED,
    )
    producer = RunProducer(
        settings.bootstrap_servers,
        name,
        settings.options,
        timeout=UNBOUNDED if transaction_timeout_ms is None else given(transaction_timeout_ms),
        protocol=protocol,
    )
    try:
        attempts = Attempts(spark, QueryRun(producer), settings, batch)
        if attempts.enter() is Step.SKIP:
            return attempts.skip()
        return attempts.write([output])
    finally:
        producer.close()
