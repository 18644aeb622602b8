"""`fencepost run`: a pipeline from a file, with a line that says how it goes, until it is caught up or interrupted."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from fencepost.cli.options import parse_assignments
from fencepost.cli.output import CommandFailed

if TYPE_CHECKING:
    from fencepost.spark.pipelines import Pipeline
    from fencepost.spark.starting import StartOptions

EPILOG = """\
\b
Examples:
  fencepost run examples/shop.py --sample 1000 --until-caught-up       try it: a broker of its own, made-up input
  fencepost run shop.py --bootstrap-server kafka:9092 --checkpoint /checkpoints/shop
  fencepost run shop.py --bootstrap-server kafka:9092 --checkpoint s3a://bucket/shop \\
                        --master spark://master:7077 --conf spark.executor.memory=4g
  fencepost run shop.py --bootstrap-server kafka:9093 --checkpoint /checkpoints/shop \\
                        --kafka security.protocol=SASL_SSL --kafka sasl.mechanism=PLAIN ...

Ctrl-C ends after the batch under way; a second one at once, which is as safe as a crash. With --json each batch is a
line, and so is the end.
"""


def run(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", show_default=False, help="Python file with a @pipeline.")],
    name: Annotated[
        str | None, typer.Option("--pipeline", metavar="NAME", help="Which, if the file has several.")
    ] = None,
    bootstrap_server: Annotated[
        str | None,
        typer.Option(
            "--bootstrap-server",
            envvar="FENCEPOST_BOOTSTRAP_SERVER",
            metavar="HOST:PORT[,...]",
            help="The cluster. Without it a broker is started for this run.",
        ),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            metavar="DIR", help="Where Spark keeps its place. Without one, and a broker of its own: temporary."
        ),
    ] = None,
    master: Annotated[str | None, typer.Option(metavar="URL", help="Of Spark; default local[*].")] = None,
    until_caught_up: Annotated[
        bool, typer.Option("--until-caught-up", help="End when all that is there is done.")
    ] = False,
    rows_per_batch: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="At most so many rows a batch.")
    ] = None,
    sample: Annotated[
        int,
        typer.Option(
            min=0, metavar="N", help="First write N made-up rows, to a broker of its own or that of --bootstrap-server."
        ),
    ] = 0,
    create_topics: Annotated[int, typer.Option(min=0, metavar="N", help="Make missing topics, of N partitions.")] = 0,
    conf: Annotated[list[str], typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark; several.")] = [],  # noqa: B006
    kafka: Annotated[
        list[str], typer.Option("--kafka", metavar="NAME=VALUE", help="A setting of the Kafka client; several.")
    ] = [],  # noqa: B006
    adopt: Annotated[
        str, typer.Option(metavar="HOW", help="Take over what another query has written; see the docs.")
    ] = "refuse",
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON document per batch and line.")] = False,
) -> None:
    """Run a pipeline from a file, exactly once."""
    from fencepost.spark.errors import FencepostSparkError

    source = context.get_parameter_source("bootstrap_server")
    if sample and source is not None and source.name == "ENVIRONMENT":
        raise typer.BadParameter(
            f"it writes made-up rows, and not to a cluster that was only found in the environment ({bootstrap_server}):"
            " name the cluster with --bootstrap-server, or unset FENCEPOST_BOOTSTRAP_SERVER for a broker of its own",
            param_hint="--sample",
        )
    if bootstrap_server is not None and checkpoint is None:
        raise typer.BadParameter(
            "say where Spark shall keep its place, in a directory that outlives the run", param_hint="--checkpoint"
        )
    spark_settings, client_settings = parse_assignments(conf, "--conf"), parse_assignments(kafka, "--kafka")
    try:
        _require_spark()
        from fencepost.cli.run_file import load_pipeline
        from fencepost.cli.run_view import view
        from fencepost.spark.starting import StartOptions

        pipeline = load_pipeline(file, name)
        if sample and pipeline.sample_row is None:
            raise CommandFailed(
                f"pipeline {pipeline.name} declares no sample input", f"add a function with @{pipeline.name}.sample"
            )
        shown = view(as_json=as_json)
        with _surroundings(pipeline, bootstrap_server, checkpoint, create_topics) as (servers, place):
            shown.starting(pipeline, servers)
            options = StartOptions(
                bootstrap_servers=servers,
                checkpoint=place,
                trigger={"availableNow": True} if until_caught_up else {},
                rows_per_batch_max=rows_per_batch,
                kafka=client_settings,
                adopt=adopt,
            )
            changes = _Changes(create_topics if bootstrap_server is not None else 0, sample)
            _run(pipeline, options, master, spark_settings, shown, changes)
    except FencepostSparkError as error:
        raise CommandFailed(error.fact, error.advice) from None


def _require_spark() -> None:
    from fencepost.spark.requirements import PYSPARK_FOR_SOURCE, require_arrow, require_pyspark

    require_pyspark(PYSPARK_FOR_SOURCE, "a pipeline")
    require_arrow()


class _Changes(NamedTuple):
    """What is changed in the cluster before the query starts."""

    topic_partitions: int
    """Of missing topics; 0: they are not made."""
    sample_rows: int


def _run(
    pipeline: "Pipeline",
    options: "StartOptions",
    master: str | None,
    conf: dict[str, str],
    shown: Any,
    changes: _Changes,
) -> None:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from fencepost.spark.running import Run, cause, session

    spark = session(pipeline.name, master, conf)
    asked_to_stop = threading.Event()
    try:
        # Spark's own handler cancels every job; it is set when a session starts, so ours comes after it.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: _interrupted(asked_to_stop))
        _prepare(pipeline, spark, options, changes)
        running = Run(pipeline, spark, options)
        for progress in running.progress():
            if progress is not None:
                shown.batch(progress)
            else:
                shown.meanwhile(running.state)
            if progress is None and asked_to_stop.is_set() and not running.is_stopping:
                shown.stopping()
                running.stop()
    except (PySparkException, Py4JError) as error:
        raise CommandFailed(cause(error)) from None
    finally:
        shown.close()
        spark.stop()
    shown.ended(interrupted=asked_to_stop.is_set())


def _prepare(pipeline: "Pipeline", spark: Any, options: "StartOptions", changes: _Changes) -> None:
    """A run that would be refused leaves the cluster as it was."""
    from fencepost.spark.starting import check_formats, check_ownership, record_limits

    if changes.topic_partitions or changes.sample_rows:
        check_formats(pipeline)
        check_ownership(pipeline, spark, options)
    if changes.topic_partitions:
        topics = [*pipeline.definition.sources, *pipeline.definition.topics]
        _create_topics(options.bootstrap_servers, topics, changes.topic_partitions, options.kafka)
    if changes.sample_rows:
        record_limits(pipeline, options)  # refuses topics that are missing
        _write_sample(pipeline, options.bootstrap_servers, options.kafka, changes.sample_rows)


def _interrupted(asked_to_stop: threading.Event) -> None:
    if asked_to_stop.is_set():
        raise KeyboardInterrupt
    asked_to_stop.set()


@contextmanager
def _surroundings(
    pipeline: "Pipeline",
    bootstrap_server: str | None,
    checkpoint: str | None,
    create_topics: int,
) -> Iterator[tuple[str, str]]:
    """The cluster and the checkpoint: those that were given, or a broker of its own and a place beside it."""
    import shutil
    import tempfile

    topics = [*pipeline.definition.sources, *pipeline.definition.topics]
    if bootstrap_server is not None:
        assert checkpoint is not None
        yield bootstrap_server, checkpoint
        return
    from fencepost import Broker

    temporary = None if checkpoint is not None else tempfile.mkdtemp(prefix="fencepost-run-")
    place = checkpoint if temporary is None else str(Path(temporary, "checkpoint"))
    assert place is not None
    data = Path(f"{place.rstrip('/')}.broker")
    try:
        with Broker(data=data, topics=dict.fromkeys(topics, create_topics or 3)) as broker:
            yield broker.bootstrap_servers, place
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


def _create_topics(bootstrap_server: str, topics: list[str], partitions: int, kafka: dict[str, str]) -> None:
    from fencepost.client.blocking import Admin
    from fencepost.client.errors import BrokerError
    from fencepost.client.values import NewTopic
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
    from fencepost.spark.testing import encoded_row

    assert pipeline.sample_row is not None
    with Producer(servers, **kafka) as producer:
        for number in range(count):
            producer.send(pipeline.definition.sources[0], encoded_row(pipeline, pipeline.sample_row(number)))
        producer.flush()
