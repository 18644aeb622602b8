"""A pipeline as a streaming query: its source, its function, and one transaction per micro-batch."""

import dataclasses
import json
import re
from collections.abc import Iterable
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from fencepost.client.blocking import Admin, Client
from fencepost.client.errors import BrokerError, ClientError, UnknownTopic
from fencepost.client.kafka_types import ResourceType
from fencepost.spark import batch_states
from fencepost.spark.adoption import Adoption, adoption_of
from fencepost.spark.checkpoint import Checkpoint
from fencepost.spark.formats import Format
from fencepost.spark.materialising import again_if_kept_rows_were_lost
from fencepost.spark.ownership import end_what_was_left, first_decision, refuse_members
from fencepost.spark.package_shipping import ship
from fencepost.spark.pipeline_declaration import Declaration, InvalidPipeline, Source
from fencepost.spark.pipeline_plans import input_formats, output_formats, output_rows, tagged, union
from fencepost.spark.query_sources import trigger_of
from fencepost.spark.requirements import is_connect, refuse_trigger, transaction_timeout
from fencepost.spark.run_producer import TIMEOUT_MAX
from fencepost.spark.source_settings import CLIENT_OPTIONS
from fencepost.spark.transaction_timeouts import TransactionTimeout
from fencepost.wire.errors import ErrorCode

DEFAULT_MAX_MESSAGE_BYTES = 1_048_588


@dataclasses.dataclass(frozen=True)
class StartOptions:
    """The arguments of `Pipeline.start`, which explains them."""

    bootstrap_servers: str
    checkpoint: str
    trigger: dict[str, Any] = dataclasses.field(default_factory=dict)
    starting_offsets: str = "earliest"
    rows_per_batch_max: int | None = None
    kafka: dict[str, str] = dataclasses.field(default_factory=dict)
    source_format: str = "fencepost"
    source_options: dict[str, str] = dataclasses.field(default_factory=dict)
    transaction_timeout_ms: int | None = None
    max_writers: int | None = None
    adopt: str = "refuse"
    source_bootstrap_servers: str | None = None

    @property
    def reads_from(self) -> str:
        """The cluster of the sources."""
        named = self.source_options.get("kafka.bootstrap.servers")
        return named or self.source_bootstrap_servers or self.bootstrap_servers


class MissingTopics(InvalidPipeline):
    """Topics of a pipeline that the cluster does not have."""


def start(pipeline: Declaration, spark: SparkSession, options: StartOptions) -> Any:
    """The running query. What cannot work is refused before it starts."""
    if not options.checkpoint:
        raise InvalidPipeline(
            f"pipeline {pipeline.name} has no checkpoint", "give checkpoint= a directory that outlives the query"
        )
    refuse_trigger(options.trigger)
    definition = pipeline.definition
    ship(spark)
    limits = record_limits(pipeline, options)
    reading = input_formats(pipeline)
    process = Processor(pipeline, options, output_formats(pipeline), limits)
    writer = (
        tagged(pipeline, records(pipeline, spark, options), reading)
        .writeStream.foreachBatch(process)
        .outputMode(definition.output_mode)
        .queryName(pipeline.name)
        .option("checkpointLocation", options.checkpoint)
    )
    if options.trigger:
        writer = writer.trigger(**options.trigger)
    if not is_connect(spark):
        end_predecessor(pipeline, spark, options)
    return writer.start()


def transaction_timeout_of(
    pipeline: Declaration, spark: SparkSession, query: Any, options: StartOptions
) -> TransactionTimeout:
    """What the transactions of a query that was started here run with. Not under Connect."""
    wanted = transaction_timeout(spark, trigger_of(query._jsq.streamingQuery()), _given_timeout_ms(pipeline, options))
    return wanted.at_most(broker_timeout_ms_max(options))


def _given_timeout_ms(pipeline: Declaration, options: StartOptions) -> int | None:
    return options.transaction_timeout_ms or pipeline.definition.transaction_timeout_ms


def broker_timeout_ms_max(options: StartOptions) -> int | None:
    """As far as a broker can be asked and its settings may be read."""
    try:
        with Admin(options.bootstrap_servers, **_client_options(options)) as admin:
            node_id = min(broker.node_id for broker in admin.describe_cluster().brokers)
            entries = admin.describe_configs(ResourceType.BROKER, str(node_id), keys=(TIMEOUT_MAX,))
        return next((int(entry.value) for entry in entries if entry.value), None)
    except (ClientError, ValueError):
        return None


def check_formats(pipeline: Declaration) -> None:
    """Refuses formats that cannot be read or written, and schemas that the registry does not have."""
    input_formats(pipeline)
    output_formats(pipeline)


def check_ownership(pipeline: Declaration, spark: SparkSession, options: StartOptions) -> None:
    """Refuses what the first batch would refuse: a group that others use, or that another query has written.

    For whoever wants to change something in the cluster before there is a first batch.
    """
    name = pipeline.name
    with Admin(options.bootstrap_servers, **_client_options(options)) as admin:
        try:
            refuse_members(name, admin.describe_group(name).members)
        except BrokerError as error:
            if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
                raise
        first_decision(admin, name, Checkpoint(options.checkpoint, spark), options.adopt)


def adoption(pipeline: Declaration, spark: SparkSession | None, options: StartOptions) -> Adoption | None:
    """What `adopt` would do, for a person to decide; None if it has nothing to do. Raises what it does not help."""
    with Admin(options.bootstrap_servers, **_client_options(options)) as admin:
        checkpoint = Checkpoint(options.checkpoint, spark)
        return adoption_of(admin, pipeline.name, checkpoint, options.starting_offsets)


def end_predecessor(pipeline: Declaration, spark: SparkSession, options: StartOptions) -> None:
    """Readers need not wait for a transaction that a dead driver has left open until there is a first batch."""
    client = _client_options(options)
    with Admin(options.bootstrap_servers, **client) as admin, Client(options.bootstrap_servers, **client) as caller:
        end_what_was_left(caller, admin, pipeline.name, Checkpoint(options.checkpoint, spark), options.adopt)


def records(pipeline: Declaration, spark: SparkSession, options: StartOptions) -> dict[str, DataFrame]:
    """The records of each source, by its name."""
    return {name: _records(source, spark, options) for name, source in pipeline.definition.inputs.items()}


def _records(source: Source, spark: SparkSession, options: StartOptions) -> DataFrame:
    reader = (
        spark.readStream.format(options.source_format)
        .option("kafka.bootstrap.servers", options.reads_from)
        .option("startingOffsets", starting_offsets(options.starting_offsets, source))
        .option("includeHeaders", "true")
    )
    if source.pattern is None:
        reader = reader.option("subscribe", ",".join(source.topics))
    else:
        reader = reader.option("subscribePattern", source.pattern)
    for name, value in options.kafka.items():
        reader = reader.option(f"kafka.{name.removeprefix('kafka.')}", value)
    if options.rows_per_batch_max is not None:
        reader = reader.option("maxOffsetsPerTrigger", str(options.rows_per_batch_max))
    return reader.options(**options.source_options).options(**source.options).load()


def starting_offsets(text: str, source: Source) -> str:
    """Of Spark's JSON each source gets the part about its own topics; it would refuse the rest."""
    try:
        given = json.loads(text)
    except ValueError:
        return text
    if not isinstance(given, dict):
        return text
    own = {
        topic: offsets
        for topic, offsets in given.items()
        if (topic in source.topics if source.pattern is None else re.fullmatch(source.pattern, topic))
    }
    return json.dumps(own) if own else "earliest"


class Processor:
    """What Spark calls with each micro-batch. It is pickled under Connect, so it holds values only."""

    def __init__(
        self, pipeline: Declaration, options: StartOptions, formats: dict[str, Format], limits: dict[str, int]
    ) -> None:
        self._pipeline = pipeline
        self._options = options
        self._formats = formats
        self._limits = limits

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        again_if_kept_rows_were_lost(lambda: self._process(batch, batch_id))

    def _process(self, batch: DataFrame, batch_id: int) -> None:
        # With pyarrow, which takes a fifth of a second: `running.session` loads it while the JVM starts.
        from fencepost.spark.sink import transaction

        options, name = self._options, self._pipeline.name
        batch_states.enter(name, batch_id)
        with transaction(
            batch,
            batch_id,
            name,
            bootstrap_servers=options.bootstrap_servers,
            kafka=options.kafka,
            transaction_timeout_ms=_given_timeout_ms(self._pipeline, options),
            max_writers=options.max_writers,
            adopt=options.adopt,
            checkpoint=options.checkpoint,
            source_bootstrap_servers=options.reads_from if options.reads_from != options.bootstrap_servers else None,
        ) as opened:
            if not opened.replayed:
                frames = output_rows(self._pipeline, batch, opened.once, self._formats, self._limits)
                if frames:
                    opened.write(union(frames))
        rows_out: dict[str, int] = {}
        if opened.committed is not None:
            for where, count in opened.committed.records.items():
                rows_out[where.topic] = rows_out.get(where.topic, 0) + count
        batch_states.leave(name, replayed=opened.replayed, rows_out=rows_out)


def record_limits(pipeline: Declaration, options: StartOptions) -> dict[str, int]:
    """The largest record that each output topic takes. Finds out on the way whether the topics are there."""
    definition = pipeline.definition
    limits: dict[str, int] = {}
    is_one_cluster = options.reads_from == options.bootstrap_servers
    if not is_one_cluster:
        with Admin(options.reads_from, **_source_client_options(options)) as admin:
            _refuse_missing(pipeline, options.reads_from, admin, definition.sources)
    with Admin(options.bootstrap_servers, **_client_options(options)) as admin:
        needed = (*definition.sources, *definition.topics) if is_one_cluster else definition.topics
        _refuse_missing(pipeline, options.bootstrap_servers, admin, needed)
        for topic in definition.topics:
            limits[topic] = _max_message_bytes(admin, topic)
    return limits


def _refuse_missing(pipeline: Declaration, servers: str, admin: Admin, topics: Iterable[str]) -> None:
    missing = []
    for topic in topics:
        try:
            admin.describe_topic(topic)
        except UnknownTopic:
            missing.append(topic)
    if missing:
        raise MissingTopics(
            f"pipeline {pipeline.name} needs topics that {servers} does not have: {', '.join(missing)}",
            f"make them: `fencepost topics create {' '.join(missing)} --partitions 3 --bootstrap-server {servers}`",
        )


def _max_message_bytes(admin: Admin, topic: str) -> int:
    """As far as the topic's settings may be read; else Kafka's default."""
    try:
        entries = admin.describe_configs(ResourceType.TOPIC, topic)
    except (BrokerError, ClientError):
        return DEFAULT_MAX_MESSAGE_BYTES
    found = [entry.value for entry in entries if entry.name == "max.message.bytes" and entry.value]
    return int(found[0]) if found else DEFAULT_MAX_MESSAGE_BYTES


def _client_options(options: StartOptions) -> dict[str, Any]:
    return {name.removeprefix("kafka."): value for name, value in options.kafka.items()}


def _source_client_options(options: StartOptions) -> dict[str, Any]:
    """For the cluster that is read, if it is another one."""
    given = {**options.kafka, **options.source_options}
    client = {name.removeprefix("kafka."): value for name, value in given.items()}
    return {name: value for name, value in client.items() if name in CLIENT_OPTIONS}
