"""The sink: `exactly_once` for an existing query, `transaction` inside the user's own foreachBatch, and for batch jobs
`write_exactly_once`. One micro-batch is one Kafka transaction, with the input offsets in it.

    df.writeStream.foreachBatch(exactly_once("shop", bootstrap_servers="127.0.0.1:9092", topic="invoices"))
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Self, Unpack

from fencepost.spark.batch_attempts import Attempts, Batch, Committed
from fencepost.spark.batch_decisions import Step
from fencepost.spark.batch_job import write_exactly_once
from fencepost.spark.errors import NotSupported
from fencepost.spark.heartbeat import keep_alive
from fencepost.spark.input_clusters import InputClusters, Source
from fencepost.spark.materialising import again_if_kept_rows_were_lost, is_of_lost_rows, materialised, release
from fencepost.spark.outputs import Output, checked_output
from fencepost.spark.package_shipping import ship
from fencepost.spark.planned_batches import plans_of
from fencepost.spark.query_run import QueryContext, QueryRun, query_context, run_of
from fencepost.spark.requirements import (
    refuse_dynamic_allocation,
    require_arrow,
    require_pyspark,
    transaction_timeout,
)
from fencepost.spark.run_producer import RunProducer
from fencepost.spark.sink_settings import SinkOptions, SinkSettings, sink_settings
from fencepost.spark.small_batches import SmallBatches, rows_max

__all__ = ["ExactlyOnce", "Transaction", "exactly_once", "transaction", "write_exactly_once"]


def exactly_once(
    name: str,
    bootstrap_servers: str | Sequence[str],
    topic: str | None = None,
    **options: Unpack[SinkOptions],
) -> "ExactlyOnce":
    """A function for `foreachBatch`. The frame has the columns of Spark's Kafka sink.

    `name` is the transactional id and the group of the input offsets. Options: `kafka` holds Kafka's own.
    `adopt="continue"` accepts a checkpoint that the group knows nothing of, once. `protocol` None is the newest the
    cluster has finalized; `checkpoint` is needed only under Spark Connect. `transaction_timeout_ms` (default: derived
    from the trigger and Spark's time-outs), `max_writers`.
    """
    return ExactlyOnce(sink_settings(name, bootstrap_servers, topic, **options))


@dataclasses.dataclass(frozen=True)
class ExactlyOnce:
    """Holds settings only: `foreachBatch` functions are copied."""

    settings: SinkSettings

    def __call__(self, df: Any, batch_id: int) -> None:
        again_if_kept_rows_were_lost(lambda: self._process(df, batch_id))

    def _process(self, df: Any, batch_id: int) -> None:
        with Transaction(df, batch_id, self.settings) as opened:
            if not opened.replayed:
                opened.write(df, self.settings.topic)


def transaction(
    df: Any,
    batch_id: int,
    name: str,
    bootstrap_servers: str | Sequence[str],
    **options: Unpack[SinkOptions],
) -> "Transaction":
    """The transaction of a micro-batch as a block: what was given to `write` is committed at its end as one.

    The options are those of `exactly_once`.
    """
    return Transaction(df, batch_id, sink_settings(name, bootstrap_servers, **options))


class Transaction:
    """The block commits at its end, in one job; an exception aborts."""

    def __init__(self, df: Any, batch_id: int, settings: SinkSettings) -> None:
        self._df = df
        self._batch_id = int(batch_id)
        self._settings = settings
        self._outputs: list[Output] = []
        self._attempts: Attempts | None = None
        self._run: QueryRun | None = None
        self._is_active: Callable[[], bool] = lambda: True
        self.replayed = False
        """The batch was committed before: what is given to `write` is not written again."""
        self.committed: Committed | None = None
        """After the block: what became of it."""

    def __enter__(self) -> Self:
        settings, spark = self._settings, self._df.sparkSession
        require_pyspark()
        require_arrow()
        context = query_context(spark, settings.checkpoint)
        run = run_of(context.key(settings.name), lambda: _run(spark, context, settings))
        batch = Batch(
            query_id=context.query_id,
            batch_id=self._batch_id,
            group_id=settings.name,
            client_id=client_id(context.application_id, settings.name, str(self._batch_id)),
            writer=context.writer,
            planned=plans_of(context.checkpoint),
        )
        self._attempts, self._run = Attempts(spark, run, settings, batch), run
        self._is_active = context.is_active
        if run.is_in_batch:
            raise NotSupported(
                f"a transaction of {settings.name!r} is open already", "write everything of a batch in one transaction"
            )
        run.begin_batch()
        try:
            while run.kept:
                release(run.kept.pop())
            self.replayed = self._attempts.enter() is Step.SKIP
        except BaseException:
            run.end_batch()
            raise
        return self

    def once(self, df: Any) -> Any:
        """The same rows for everything made of them: a random or timed column is computed once and kept."""
        kept = materialised(df)
        if self._run is not None:
            # Until the next batch: foreachBatch may go on with them after the block.
            self._run.kept.append(kept)
        return kept

    def write(self, rows: Any, topic: str | None = None) -> None:
        """Add rows to the transaction; they are written when the block ends."""
        self._outputs.append(checked_output(rows, topic))

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        attempts, run = self._attempts, self._run
        assert attempts is not None
        assert run is not None
        try:
            self._end(attempts, run, error)
        except Exception as failed:
            _say_if_kept_rows_were_lost(failed)
            raise
        finally:
            run.end_batch()
        if error is None:
            keep_alive(run, self._settings.name, self._is_active)

    def _end(self, attempts: Attempts, run: QueryRun, error: BaseException | None) -> None:
        if error is not None:
            _say_if_kept_rows_were_lost(error)
            try:
                attempts.abort()
            except Exception as second:
                error.add_note(f"and the abort failed: {second}")
            return
        if self.replayed:
            self.committed = attempts.skip()
            self._run_plan()
        else:
            if not self._outputs:
                self._run_plan()
            self.committed = attempts.write(self._outputs)
        run.finish(self._batch_id)

    def _run_plan(self) -> None:
        """The state store of a stateful query needs every version: the plan has to run, whatever is written of it."""
        self._df.write.format("noop").mode("overwrite").save()


def _say_if_kept_rows_were_lost(error: BaseException) -> None:
    """A pipeline and `exactly_once` begin such a batch anew; a function of the user's own cannot be called again."""
    if is_of_lost_rows(error):
        error.add_note(
            "rows that `once` had kept were lost with an executor; nothing of the batch is visible. Start the query "
            "again: it does the batch anew"
        )


def client_id(application_id: str, name: str, batch: str) -> str:
    """What a broker shows for the transaction: who, which pipeline, which batch."""
    return f"spark/{application_id}/{name}/{batch}"


def _run(spark: Any, context: QueryContext, settings: SinkSettings) -> QueryRun:
    refuse_dynamic_allocation(spark)
    ship(spark)
    producer = RunProducer(
        settings.bootstrap_servers,
        settings.name,
        settings.options,
        timeout=transaction_timeout(spark, context.trigger, settings.transaction_timeout_ms),
        protocol=settings.protocol,
    )
    sources = context.sources()
    if not sources and settings.source_bootstrap_servers:
        sources = (Source(settings.source_bootstrap_servers, settings.options),)
    return QueryRun(
        producer, inputs=InputClusters(sources, producer, settings.name), small=SmallBatches(rows_max(spark))
    )
