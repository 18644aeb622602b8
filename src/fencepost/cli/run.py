"""`fencepost run`: a pipeline from a file, with a line that says how it goes, until it is caught up or interrupted."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fencepost.cli.options import parse_assignments
from fencepost.cli.output import CommandFailed, report

if TYPE_CHECKING:
    from fencepost.spark.pipelines import Pipeline

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
    sample: Annotated[int, typer.Option(min=0, metavar="N", help="First write N rows of sample input.")] = 0,
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
    from fencepost.cli.run_file import load_pipeline
    from fencepost.cli.run_view import view
    from fencepost.spark.errors import FencepostSparkError

    if bootstrap_server is not None and checkpoint is None:
        raise typer.BadParameter(
            "say where Spark shall keep its place, in a directory that outlives the run", param_hint="--checkpoint"
        )
    spark_settings, client_settings = parse_assignments(conf, "--conf"), parse_assignments(kafka, "--kafka")
    shown = view(as_json=as_json)
    try:
        pipeline = load_pipeline(file, name)
        with _surroundings(pipeline, bootstrap_server, checkpoint, create_topics, client_settings) as (servers, place):
            if sample:
                _write_sample(pipeline, servers, client_settings, sample)
            shown.starting(pipeline, servers)
            from fencepost.spark.starting import StartOptions

            options = StartOptions(
                bootstrap_servers=servers,
                checkpoint=place,
                trigger={"availableNow": True} if until_caught_up else {},
                rows_per_batch_max=rows_per_batch,
                kafka=client_settings,
                adopt=adopt,
            )
            _run(pipeline, options, master, spark_settings, shown)
    except FencepostSparkError as error:
        raise CommandFailed(error.fact, error.advice) from None


def _run(pipeline: "Pipeline", options: Any, master: str | None, conf: dict[str, str], shown: Any) -> None:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from fencepost.spark.running import Run, cause, session

    spark = session(pipeline.name, master, conf)
    asked_to_stop = threading.Event()
    try:
        # Spark's own handler cancels every job; it is set when a session starts, so ours comes after it.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: _interrupted(asked_to_stop))
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
    kafka: dict[str, str],
) -> Iterator[tuple[str, str]]:
    """The cluster and the checkpoint: those that were given, or a broker of its own and a place beside it."""
    import shutil
    import tempfile

    topics = [*pipeline.definition.sources, *pipeline.definition.topics]
    if bootstrap_server is not None:
        assert checkpoint is not None
        if create_topics:
            _create_topics(bootstrap_server, topics, create_topics, kafka)
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

    if pipeline.sample_row is None:
        report(f"pipeline {pipeline.name} declares no sample input", f"add a function with @{pipeline.name}.sample")
        raise typer.Exit(1)
    with Producer(servers, **kafka) as producer:
        for number in range(count):
            producer.send(pipeline.definition.sources[0], encoded_row(pipeline, pipeline.sample_row(number)))
        producer.flush()
    sys.stdout.flush()
