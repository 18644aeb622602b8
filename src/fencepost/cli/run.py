"""`fencepost run`: runs a pipeline from a file and shows its progress, until it is caught up or interrupted."""

import logging
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from fencepost.cli.options import parse_assignments
from fencepost.cli.output import CommandFailed
from fencepost.cli.run_adopting import Adopting
from fencepost.cli.run_again import RESTARTS_DEFAULT, SoFar, StartAgain, delay_seconds, so_far, start_again
from fencepost.cli.run_view import CAUGHT_UP, FAILED, INTERRUPTED, View, view
from fencepost.client.errors import ClientError

# Imports inside functions: Spark may not be installed, and Spark, the client and the broker take long to load. Every
# command of `fencepost` imports this module.

if TYPE_CHECKING:
    from fencepost.spark.pipeline_start import StartOptions
    from fencepost.spark.pipelines import Pipeline

EPILOG = """\
\b
Try it with a temporary broker and generated input:
  fencepost run examples/shop.py --sample 1000 --until-caught-up

\b
On a cluster, permanently. Started again with the same file, cluster and checkpoint, it continues where it stopped,
whatever the reason.
  fencepost run shop.py --bootstrap-server kafka:9092 --checkpoint /checkpoints/shop

\b
From cron, process what has arrived since the last run:
  fencepost run shop.py --bootstrap-server kafka:9092 --checkpoint /checkpoints/shop --until-caught-up

\b
Start with new records only, one batch every ten seconds, at most 50,000 records each:
  fencepost run shop.py ... --starting-offsets latest --trigger-interval '10 seconds' --rows-per-batch 50000

\b
On a Spark cluster, and on a secured Kafka:
  fencepost run shop.py ... --master spark://master:7077 --conf spark.executor.memory=4g
  fencepost run shop.py ... --kafka security.protocol=SASL_SSL --kafka sasl.mechanism=PLAIN ...

\b
From one cluster to another; --source-option kafka.NAME=VALUE configures the client of the source cluster:
  fencepost run shop.py --source-bootstrap-server old:9092 --bootstrap-server new:9092 --checkpoint /checkpoints/shop

\b
Continue although group and checkpoint do not match, after confirming the difference (--yes in a script):
  fencepost run shop.py ... --adopt continue

Ctrl-C stops after the current batch; a second Ctrl-C stops at once, which is as safe as a crash. If Spark's Java
process dies or Spark cannot start a Python worker, the command restarts Spark, after 1, 2, 4 ... seconds. If the sink
refuses a batch or your own code raises an exception, the command ends at once, because it would happen again.

With --json each line is a document: "starting", "running", "batch" (rows_in and rows_out count the rows of the batch),
"stopping", "restarting", and always "ended" as the last one, with its reason: caught up, interrupted, or failed with
the error.
"""
_HAS_ITS_OPTION = {
    "subscribe": "the pipeline declares its topics",
    "subscribepattern": "the pipeline declares its topics",
    "assign": "the pipeline declares its topics",
    "startingoffsets": "use --starting-offsets",
    "failondataloss": "use --no-fail-on-data-loss",
    "maxoffsetspertrigger": "use --rows-per-batch",
    "includeheaders": "a pipeline always reads the headers",
    "kafka.bootstrap.servers": "use --source-bootstrap-server",
}


def run(
    context: typer.Context,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", show_default=False, help="Python file that declares a @pipeline.")
    ],
    name: Annotated[
        str | None,
        typer.Option("--pipeline", metavar="NAME", help="Name of the pipeline, if the file declares several."),
    ] = None,
    bootstrap_server: Annotated[
        str | None,
        typer.Option(
            "--bootstrap-server",
            envvar="FENCEPOST_BOOTSTRAP_SERVER",
            metavar="HOST:PORT[,...]",
            help="The cluster. Without it, a broker is started for this run.",
        ),
    ] = None,
    source_bootstrap_server: Annotated[
        str | None,
        typer.Option(
            "--source-bootstrap-server",
            metavar="HOST:PORT[,...]",
            help="The cluster to read from, if it is not the one to write to.",
        ),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Spark's checkpoint directory. Optional if the run has a broker of its own; then it is temporary.",
        ),
    ] = None,
    until_caught_up: Annotated[
        bool,
        typer.Option(
            "--until-caught-up",
            "--available-now",
            help="Stop when everything available now is processed (Spark's availableNow).",
        ),
    ] = False,
    trigger_interval: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Time between batches, for example '10 seconds'. Default: no pause."),
    ] = None,
    rows_per_batch: Annotated[
        int | None,
        typer.Option(
            "--rows-per-batch",
            "--max-offsets-per-trigger",
            min=1,
            metavar="N",
            help="Maximum number of rows per batch (Spark's maxOffsetsPerTrigger).",
        ),
    ] = None,
    starting_offsets: Annotated[
        str,
        typer.Option(
            metavar="WHERE",
            help="earliest, latest or Spark's JSON. Used at the first start only; later the checkpoint decides.",
        ),
    ] = "earliest",
    fail_on_data_loss: Annotated[
        bool,
        typer.Option(
            "--fail-on-data-loss/--no-fail-on-data-loss",
            help="Stop if records were deleted before they were read, or continue without them.",
        ),
    ] = True,
    source_option: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=VALUE", help="Another option of the source, for example minPartitions=8. Can be repeated."
        ),
    ] = [],  # noqa: B006
    transaction_timeout_ms: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="MS",
            help="How long a transaction may be open. Default: derived from the trigger and Spark's timeouts. "
            "Readers wait this long if a driver dies and is not restarted.",
        ),
    ] = None,
    master: Annotated[str | None, typer.Option(metavar="URL", help="Spark master; default local[*].")] = None,
    conf: Annotated[
        list[str], typer.Option("--conf", metavar="NAME=VALUE", help="A Spark setting. Can be repeated.")
    ] = [],  # noqa: B006
    kafka: Annotated[
        list[str], typer.Option("--kafka", metavar="NAME=VALUE", help="A setting of the Kafka client. Can be repeated.")
    ] = [],  # noqa: B006
    restarts: Annotated[
        int,
        typer.Option(
            min=0, metavar="N", help="Maximum number of restarts of Spark in a row without a completed batch."
        ),
    ] = RESTARTS_DEFAULT,
    sample: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            help="First write N generated rows, to the run's own broker or to that of --bootstrap-server.",
        ),
    ] = 0,
    create_topics: Annotated[
        int, typer.Option(min=0, metavar="N", help="Create missing topics with N partitions.")
    ] = 0,
    adopt: Annotated[
        str,
        typer.Option(
            metavar="HOW",
            help="continue: run although group and checkpoint do not match. Shows the consequences and asks.",
        ),
    ] = "refuse",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation of --adopt.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document per line and event.")] = False,
) -> None:
    """Run a pipeline from a file, exactly once: each micro-batch is one transaction that includes its input offsets."""
    done = so_far()
    shown = view(as_json=as_json)
    shown.go_on(done)
    try:
        with _reporting_the_end(shown):
            source = context.get_parameter_source("bootstrap_server")
            if sample and source is not None and source.name == "ENVIRONMENT":
                raise typer.BadParameter(
                    "generated rows are not written to a cluster that is only named in the environment "
                    f"({bootstrap_server}): name it with --bootstrap-server, or unset "
                    "FENCEPOST_BOOTSTRAP_SERVER to use a temporary broker",
                    param_hint="--sample",
                )
            if bootstrap_server is not None and checkpoint is None:
                raise typer.BadParameter(
                    "give a checkpoint directory that outlives the run",
                    param_hint="--checkpoint",
                )
            if source_bootstrap_server is not None:
                _refuse_beside_two_clusters(bootstrap_server, sample, create_topics)
            trigger = _trigger(trigger_interval, until_caught_up)
            source_options = _source_options(source_option, has_cluster=source_bootstrap_server is not None)
            if not fail_on_data_loss:
                source_options["failOnDataLoss"] = "false"
            spark_settings, client_settings = parse_assignments(conf, "--conf"), parse_assignments(kafka, "--kafka")
            _require_spark()
            from fencepost.cli.run_file import load_pipeline
            from fencepost.spark.pipeline_start import StartOptions

            pipeline = load_pipeline(file, name)
            if sample and pipeline.sample_row is None:
                raise CommandFailed(
                    f"pipeline {pipeline.name} declares no sample input", f"add a function with @{pipeline.name}.sample"
                )
            surroundings = _Surroundings(pipeline, bootstrap_server, checkpoint, create_topics, done.directory)
            with surroundings.entered() as (servers, place):
                shown.starting(pipeline, servers)
                options = StartOptions(
                    bootstrap_servers=servers,
                    checkpoint=place,
                    trigger=trigger,
                    starting_offsets=starting_offsets,
                    rows_per_batch_max=rows_per_batch,
                    kafka=client_settings,
                    source_options=source_options,
                    transaction_timeout_ms=transaction_timeout_ms,
                    adopt=adopt,
                    source_bootstrap_servers=source_bootstrap_server,
                )
                adopting = Adopting(pipeline, options, spark_settings, is_agreed=yes or done.is_prepared)
                adopting.ask_before_spark(shown)
                changes = _Changes(create_topics if bootstrap_server is not None else 0, sample)
                running = _Running(pipeline, options, master, spark_settings, shown, changes, done, restarts, adopting)
                running.run()
    except StartAgain:
        start_again(running.done._replace(directory=surroundings.temporary))


@contextmanager
def _reporting_the_end(shown: View) -> Iterator[None]:
    """Reports the end of the run and its reason, whatever it is."""
    from fencepost.spark.errors import FencepostSparkError

    try:
        yield
    except StartAgain:
        raise
    except FencepostSparkError as error:
        shown.ended(FAILED, error.fact, error.advice)
        raise CommandFailed(error.fact, error.advice) from None
    except CommandFailed as error:
        shown.ended(FAILED, error.message, error.advice)
        raise
    except ClientError as error:
        shown.ended(FAILED, str(error), error.advice)
        raise
    except KeyboardInterrupt:
        shown.ended(INTERRUPTED)
        raise
    except Exception as error:
        shown.ended(FAILED, str(error) or type(error).__name__)
        raise


def _refuse_beside_two_clusters(bootstrap_server: str | None, sample: int, create_topics: int) -> None:
    hint = "--source-bootstrap-server"
    if bootstrap_server is None:
        raise typer.BadParameter("also name the cluster to write to: --bootstrap-server", param_hint=hint)
    if sample or create_topics:
        raise typer.BadParameter(
            "--sample and --create-topics work with one cluster only: create the topics with `fencepost topics create`",
            param_hint=hint,
        )


def _trigger(interval: str | None, until_caught_up: bool) -> dict[str, Any]:
    if interval is not None and until_caught_up:
        raise typer.BadParameter(
            "--until-caught-up processes everything without a pause: give only one of the two",
            param_hint="--trigger-interval",
        )
    if until_caught_up:
        return {"availableNow": True}
    return {} if interval is None else {"processingTime": interval}


def _source_options(given: list[str], *, has_cluster: bool) -> dict[str, str]:
    options = parse_assignments(given, "--source-option")
    for name in options:
        is_clients = name.lower().startswith("kafka.") and not has_cluster
        advice = _HAS_ITS_OPTION.get(name.lower()) or ("use --kafka" if is_clients else None)
        if advice is not None:
            raise typer.BadParameter(f"{name} cannot be given here: {advice}", param_hint="--source-option")
    return options


def _require_spark() -> None:
    from fencepost.spark.requirements import PYSPARK_FOR_SOURCE, require_arrow, require_pyspark

    require_pyspark(PYSPARK_FOR_SOURCE, "a pipeline")
    require_arrow()


class _Changes(NamedTuple):
    """Changes to the cluster before the query starts."""

    topic_partitions: int
    """Partitions of missing topics; 0: do not create them."""
    sample_rows: int


class _Running:
    """The pipeline in this process, until it has ended or Spark was lost."""

    def __init__(
        self,
        pipeline: "Pipeline",
        options: "StartOptions",
        master: str | None,
        conf: dict[str, str],
        shown: View,
        changes: _Changes,
        done: SoFar,
        restarts_max: int,
        adopting: Adopting,
    ) -> None:
        self._pipeline = pipeline
        self._options = options
        self._master = master
        self._conf = conf
        self._shown = shown
        self._changes = changes
        self._restarts_max = restarts_max
        self._adopting = adopting
        self._asked_to_stop = threading.Event()
        self.done = done

    def run(self) -> None:
        from fencepost.spark.pipeline_run import cause, close, session, spark_is_lost

        # When Java dies, Py4J logs a traceback for every pending call.
        logging.getLogger().addFilter(lambda record: "py4j" not in Path(record.pathname).parts)
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # like Ctrl-C, until there is a batch to finish
        spark = session(self._pipeline.name, self._master, self._conf)
        try:
            self._adopting.ask(self._shown, spark)
            # Spark sets a handler that cancels every job when a session starts, so ours is set after that.
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda *_: self._interrupted())
            if not self.done.is_prepared:
                _prepare(self._pipeline, spark, self._options, self._changes)
                self.done = self.done._replace(is_prepared=True)
            self._follow(spark)
        except Exception as error:
            lost = None if self._asked_to_stop.is_set() else spark_is_lost(spark, error)
            if lost is not None:
                self._start_again(lost)
            if _is_sparks(error):
                raise CommandFailed(cause(error)) from None
            raise
        finally:
            self._shown.close()
            close(spark)
        self._shown.ended(INTERRUPTED if self._asked_to_stop.is_set() else CAUGHT_UP)

    def _follow(self, spark: Any) -> None:
        from fencepost.spark.pipeline_run import Run

        running, shown = Run(self._pipeline, spark, self._options), self._shown
        shown.running(running.transaction_timeout)
        for progress in running.progress():
            if progress is not None:
                shown.batch(progress)
                self.done = SoFar(0, shown.batches, shown.rows_in, shown.rows_out, shown.skipped, is_prepared=True)
            else:
                shown.meanwhile(running.state)
            if progress is None and self._asked_to_stop.is_set() and not running.is_stopping:
                shown.stopping()
                running.stop()

    def _start_again(self, reason: str) -> None:
        """Waits, then raises StartAgain; raises CommandFailed after the last restart."""
        self.done = self.done._replace(failures=self.done.failures + 1)
        delay = delay_seconds(self.done.failures, self._restarts_max)
        if delay is None:
            tried = f", again after {self._restarts_max} restarts in a row" if self._restarts_max else ""
            raise CommandFailed(
                f"{reason}{tried}",
                "nothing is lost or duplicated: start it again with the same checkpoint; if it ran out of memory, "
                "give it more (--conf spark.driver.memory=4g) or read less per batch (--rows-per-batch)",
            )
        self._shown.restarting(reason, self.done.failures, self._restarts_max, delay)
        if self._asked_to_stop.wait(delay):
            raise KeyboardInterrupt
        raise StartAgain(reason)

    def _interrupted(self) -> None:
        if self._asked_to_stop.is_set():
            raise KeyboardInterrupt
        self._asked_to_stop.set()


def _is_sparks(error: Exception) -> bool:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return isinstance(error, PySparkException | Py4JError)


def _prepare(pipeline: "Pipeline", spark: Any, options: "StartOptions", changes: _Changes) -> None:
    """Changes nothing in the cluster if the run would be refused."""
    from fencepost.spark.pipeline_start import check_formats, check_ownership, record_limits

    if changes.topic_partitions or changes.sample_rows:
        check_formats(pipeline)
        check_ownership(pipeline, spark, options)
    if changes.topic_partitions:
        topics = [*pipeline.definition.sources, *pipeline.definition.topics]
        _create_topics(options.bootstrap_servers, topics, changes.topic_partitions, options.kafka)
    if changes.sample_rows:
        record_limits(pipeline, options)  # raises if topics are missing
        _write_sample(pipeline, options.bootstrap_servers, options.kafka, changes.sample_rows)


class _Surroundings:
    """The cluster and the checkpoint: those given, or a temporary broker with a checkpoint beside its data."""

    def __init__(
        self,
        pipeline: "Pipeline",
        bootstrap_server: str | None,
        checkpoint: str | None,
        create_topics: int,
        temporary: str | None,
    ) -> None:
        self._pipeline = pipeline
        self._bootstrap_server = bootstrap_server
        self._checkpoint = checkpoint
        self._partitions = create_topics or 3
        self.temporary = temporary
        """A directory that is removed at the end, but kept across restarts."""

    @contextmanager
    def entered(self) -> Iterator[tuple[str, str]]:
        import tempfile

        if self._bootstrap_server is not None:
            assert self._checkpoint is not None
            yield self._bootstrap_server, self._checkpoint
            return
        from fencepost import Broker

        if self._checkpoint is None and self.temporary is None:
            self.temporary = tempfile.mkdtemp(prefix="fencepost-run-")
        place = self._checkpoint or f"{self.temporary}/checkpoint"
        definition = self._pipeline.definition
        topics = dict.fromkeys([*definition.sources, *definition.topics], self._partitions)
        is_over = True
        try:
            with Broker(data=Path(f"{place.rstrip('/')}.broker"), topics=topics) as broker:
                yield broker.bootstrap_servers, place
        except StartAgain:
            is_over = False
            raise
        finally:
            if self.temporary is not None and is_over:
                shutil.rmtree(self.temporary, ignore_errors=True)


def _create_topics(bootstrap_server: str, topics: list[str], partitions: int, kafka: dict[str, str]) -> None:
    from fencepost.client.blocking import Admin
    from fencepost.client.errors import BrokerError
    from fencepost.client.kafka_types import NewTopic
    from fencepost.wire.errors import ErrorCode

    with Admin(bootstrap_server, **kafka) as admin:
        for topic in topics:
            try:
                admin.create_topic(NewTopic(topic, partitions))
            except BrokerError as error:
                if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise


def _write_sample(pipeline: "Pipeline", servers: str, kafka: dict[str, str], count: int) -> None:
    from fencepost.client.blocking import Producer
    from fencepost.spark.testing import input_records

    assert pipeline.sample_row is not None
    inputs = pipeline.definition.inputs
    with Producer(servers, **kafka) as producer:
        for number in range(count):
            made = pipeline.sample_row(number)
            for name, row in made.items() if len(inputs) > 1 else [(next(iter(inputs)), made)]:
                for record in input_records(pipeline, name, [row]):
                    producer.send(record.topic, record.value, key=record.key)
        producer.flush()
