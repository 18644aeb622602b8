"""The source without Spark around it: the calls that Spark makes, in the order it makes them, on a real broker."""

import contextlib
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from tests.support.extras import require_arrow

require_arrow()
pytest.importorskip("pyspark.sql.streaming.datasource", reason="the source needs PySpark 4.2")

import pyarrow as pa  # noqa: E402
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows  # noqa: E402

from fencepost.client import Admin, Client, NewTopic, Producer, ResourceType, TopicPartition  # noqa: E402
from fencepost.client.errors import UnknownPartition, UnknownTopic  # noqa: E402
from fencepost.spark import source_progress  # noqa: E402
from fencepost.spark.source import FencepostSource, FencepostStreamReader, UnknownStart, columns  # noqa: E402
from fencepost.spark.source_errors import DataLoss, InvalidSourceOption, UnmatchedTimestamp  # noqa: E402
from fencepost.spark.source_offsets import offsets_of  # noqa: E402
from fencepost.spark.source_reading import close_lines  # noqa: E402
from fencepost.wire.arrow_records import encode_batches  # noqa: E402
from fencepost.wire.compression import Codec  # noqa: E402
from tests.peers.fencepost_process import FencepostProcess  # noqa: E402

ALL = ReadAllAvailable()
UNCOMMITTED = {"kafka.isolation.level": "read_uncommitted"}
_serial = itertools.count()


@pytest.fixture(scope="module")
def broker() -> Iterator[FencepostProcess]:
    with FencepostProcess() as process:
        yield process
    close_lines()


@pytest.fixture(scope="module")
def admin(broker: FencepostProcess) -> Iterator[Admin]:
    with Admin(broker.bootstrap_servers) as made:
        yield made


@pytest.fixture(scope="module")
def producer(broker: FencepostProcess) -> Iterator[Producer]:
    with Producer(broker.bootstrap_servers) as made:
        yield made


@pytest.fixture
def topic(admin: Admin) -> str:
    return create(admin, partitions=2)


def create(admin: Admin, partitions: int, **configs: str) -> str:
    name = f"source-{next(_serial)}"
    admin.create_topic(NewTopic(name, partitions, configs={key.replace("_", "."): to for key, to in configs.items()}))
    return name


def send(producer: Producer, topic: str, values: Iterable[bytes], partition: int = 0, **fields: Any) -> None:
    for value in values:
        producer.send(topic, value, partition=partition, **fields)
    producer.flush()


def source(broker: FencepostProcess, **options: str) -> FencepostSource:
    return FencepostSource({"kafka.bootstrap.servers": broker.bootstrap_servers, **options})


class Query:
    """What Spark does with a stream reader; a batch that is not committed is replayed by the next query."""

    def __init__(
        self, broker: FencepostProcess, checkpoint: list[dict[str, Any]] | None = None, **options: str
    ) -> None:
        made = source(broker, **options)
        self.reader: FencepostStreamReader = made.streamReader(made.schema())
        self.ends: list[dict[str, Any]] = checkpoint if checkpoint is not None else []
        """The offset log."""

    def __enter__(self) -> "Query":
        return self

    def __exit__(self, *_: object) -> None:
        self.reader.stop()

    def plan(self, limit: Any = None) -> bool:
        """Write the end of the next batch to the log; False if there is nothing new."""
        start = self.ends[-1] if self.ends else self.reader.initialOffset()
        end = self.reader.latestOffset(start, self.reader.getDefaultReadLimit() if limit is None else limit)
        if self.ends and end == start:
            return False
        self.ends.append(end)
        return True

    def run_last(self) -> list[tuple[int, int, bytes | None]]:
        """Rows of the last batch in the log: partition, offset, value."""
        start = self.ends[-2] if len(self.ends) > 1 else self.reader.initialOffset()
        return rows(self.reader, self.reader.partitions(start, self.ends[-1]))

    def values(self, limit: Any = None) -> list[bytes | None]:
        return [value for _, _, value in self.run_last()] if self.plan(limit) else []


def rows(reader: Any, partitions: Iterable[Any]) -> list[tuple[int, int, bytes | None]]:
    found = tables(reader, partitions)
    return [
        (row["partition"], row["offset"], row["value"])
        for row in found.select(["partition", "offset", "value"]).to_pylist()
    ]


def tables(reader: Any, partitions: Iterable[Any], *, headers: bool = False) -> pa.Table:
    from pyspark.sql.pandas.types import to_arrow_schema

    # Spark refuses every batch that is not exactly of this schema.
    schema = to_arrow_schema(columns(include_headers=headers), timezone="UTC")
    batches = [batch for partition in partitions for batch in reader.read(partition)]
    assert all(schema.equals(batch.schema) for batch in batches)
    return pa.Table.from_batches(batches, schema=schema)


def batch(broker: FencepostProcess, **options: str) -> list[tuple[int, int, bytes | None]]:
    made = source(broker, **options)
    reader = made.reader(made.schema())
    return rows(reader, reader.partitions())


# Where a query begins


def test_a_first_batch_that_is_replayed_begins_where_it_began(
    broker: FencepostProcess, producer: Producer, topic: str
) -> None:
    send(producer, topic, [b"before"])
    checkpoint: list[dict[str, Any]] = []
    with Query(broker, checkpoint, subscribe=topic, startingOffsets="latest") as query:
        query.reader.initialOffset()
        send(producer, topic, [b"one", b"two"])
        assert query.plan()
        planned = query.run_last()
        # Here the driver dies: the offsets are stored, the batch is not committed.
    send(producer, topic, [b"three"])
    with Query(broker, checkpoint, subscribe=topic, startingOffsets="latest") as query:
        assert query.run_last() == planned
        assert [value for _, _, value in planned] == [b"one", b"two"]
        assert query.values() == [b"three"]
        assert query.values() == []


def test_a_first_batch_without_rows_remembers_its_start_too(
    broker: FencepostProcess, producer: Producer, topic: str
) -> None:
    checkpoint: list[dict[str, Any]] = []
    with Query(broker, checkpoint, subscribe=topic, startingOffsets="latest") as query:
        assert query.values() == []
    assert len(checkpoint) == 1
    send(producer, topic, [b"one"])
    with Query(broker, checkpoint, subscribe=topic, startingOffsets="latest") as query:
        assert query.run_last() == []
        assert query.values() == [b"one"]


def test_a_first_batch_of_sparks_source_is_taken_over_only_if_its_start_is_certain(
    broker: FencepostProcess, producer: Producer, topic: str
) -> None:
    send(producer, topic, [b"one", b"two"])
    stored = [{topic: {"0": 2, "1": 0}}]
    with Query(broker, stored, subscribe=topic, startingOffsets="earliest") as query:
        assert [value for _, _, value in query.run_last()] == [b"one", b"two"]
    with Query(broker, stored, subscribe=topic, startingOffsets="latest") as query, pytest.raises(UnknownStart):
        query.run_last()


@pytest.mark.parametrize("option", ["startingOffsets", "startingOffsetsByTimestamp", "startingTimestamp"])
def test_a_query_begins_where_its_options_say(
    broker: FencepostProcess, producer: Producer, topic: str, option: str
) -> None:
    for second in range(4):
        send(producer, topic, [b"%d" % second], timestamp_ms=1000 * second)
    value = {
        "startingOffsets": f'{{"{topic}":{{"0":2,"1":-2}}}}',
        "startingOffsetsByTimestamp": f'{{"{topic}":{{"0":1001,"1":0}}}}',
        "startingTimestamp": "1001",
    }[option]
    strategy = {"startingOffsetsByTimestampStrategy": "latest"}
    with Query(broker, subscribe=topic, **{option: value}, **strategy) as query:
        assert query.values() == [b"2", b"3"]
    if option != "startingOffsets":
        with Query(broker, subscribe=topic, **{option: value}) as query, pytest.raises(UnmatchedTimestamp):
            query.plan()


def test_offsets_must_name_every_partition(broker: FencepostProcess, topic: str) -> None:
    with (
        Query(broker, subscribe=topic, startingOffsets=f'{{"{topic}":{{"0":0}}}}') as query,
        pytest.raises(InvalidSourceOption, match=f"Assigned: {{{topic}-0, {topic}-1}}"),
    ):
        query.plan()


def test_batch_reads_have_two_bounds(broker: FencepostProcess, producer: Producer, topic: str) -> None:
    for second in range(6):
        send(producer, topic, [b"%d" % second], timestamp_ms=1000 * second)
    assert [value for _, _, value in batch(broker, subscribe=topic)] == [b"%d" % second for second in range(6)]
    ends = {"endingTimestamp": "4000", "startingOffsets": f'{{"{topic}":{{"0":1,"1":0}}}}'}
    assert [offset for _, offset, _ in batch(broker, subscribe=topic, **ends)] == [1, 2, 3]
    beyond = {"endingOffsets": f'{{"{topic}":{{"0":2,"1":0}}}}', "startingOffsets": f'{{"{topic}":{{"0":3,"1":0}}}}'}
    with pytest.raises(InvalidSourceOption, match="resolved start offset 3 is greater"):
        batch(broker, subscribe=topic, **beyond)
    assert batch(broker, assign=f'{{"{topic}":[1]}}') == []


# Transactions


def test_a_query_stops_at_an_open_transaction_and_leaves_out_what_was_aborted(
    broker: FencepostProcess, producer: Producer, topic: str
) -> None:
    with (
        Client(broker.bootstrap_servers) as client,
        Query(broker, subscribe=topic, startingOffsets="earliest") as query,
    ):
        send(producer, topic, [b"plain"])
        with contextlib.suppress(LookupError), client.transaction("aborting") as transaction:
            transaction.send(topic, b"aborted", partition=0)
            transaction.flush()
            raise LookupError
        with client.transaction("open") as transaction:
            transaction.send(topic, b"committed", partition=0)
            transaction.flush()
            send(producer, topic, [b"behind"])
            assert query.values() == [b"plain"]
            assert query.values() == []
        # The commit is answered before its markers are written.
        found: list[bytes | None] = []
        while not found:
            found = query.values()
        assert found == [b"committed", b"behind"]
        assert query.values() == []
    with Query(broker, subscribe=topic, startingOffsets="earliest", **UNCOMMITTED) as query:
        assert query.values() == [b"plain", b"aborted", b"committed", b"behind"]


def test_a_checkpoint_ahead_of_an_open_transaction_waits(
    broker: FencepostProcess, producer: Producer, topic: str
) -> None:
    with Client(broker.bootstrap_servers) as client, client.transaction("ahead") as transaction:
        transaction.send(topic, b"open", partition=0)
        transaction.flush()
        checkpoint: list[dict[str, Any]] = []
        with Query(broker, checkpoint, subscribe=topic, startingOffsets="earliest", **UNCOMMITTED) as query:
            assert query.values() == [b"open"]
        with Query(broker, checkpoint, subscribe=topic) as query:
            assert query.values() == []


# Shapes of records


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
def test_many_fetches_and_tasks_give_every_record_once(broker: FencepostProcess, admin: Admin, codec: Codec) -> None:
    topic = create(admin, 1)
    count = 30_000
    values = pa.array([b"%06d" % number + bytes(number % 50) for number in range(count)])
    with Client(broker.bootstrap_servers) as client, client.transaction(f"many-{codec.name}") as transaction:
        for encoded in encode_batches(values, timestamps=5, batch_bytes=20_000, compression=codec):
            transaction.send_batch(topic, 0, encoded)
    small = {"kafka.max.partition.fetch.bytes": "50000"}
    for split in ({}, {"minPartitions": "7"}, {"maxRecordsPerPartition": "4321"}):
        found: list[Any] = []
        while not found:  # until the marker is there
            found = batch(broker, subscribe=topic, **small, **split)
        assert found == [(0, number, b"%06d" % number + bytes(number % 50)) for number in range(count)]


def test_keys_headers_and_timestamp_types_are_columns(
    broker: FencepostProcess, admin: Admin, producer: Producer
) -> None:
    topic = create(admin, 1)
    producer.send(topic, None, key=b"k", headers=[("a", b"1"), ("b", None)], timestamp_ms=1234)
    producer.send(topic, b"v", timestamp_ms=-1)
    producer.flush()
    admin.alter_configs(ResourceType.TOPIC, topic, {"message.timestamp.type": "LogAppendTime"})
    producer.send(topic, b"", timestamp_ms=1).result()
    made = source(broker, subscribe=topic, includeHeaders="true")
    reader = made.reader(made.schema())
    first, second, third = tables(reader, reader.partitions(), headers=True).to_pylist()
    assert (first["key"], first["value"], first["topic"], first["timestampType"]) == (b"k", None, topic, 0)
    assert first["headers"] == [{"key": "a", "value": b"1"}, {"key": "b", "value": None}]
    assert first["timestamp"].timestamp() == 1.234
    assert (second["key"], second["headers"], second["offset"]) == (None, None, 1)
    assert (third["value"], third["timestampType"]) == (b"", 1)
    assert third["timestamp"].timestamp() > 1_000_000


# How much at once


def test_a_limit_is_kept_and_all_is_read_in_the_end(broker: FencepostProcess, producer: Producer, topic: str) -> None:
    send(producer, topic, [b"%d" % number for number in range(90)])
    send(producer, topic, [b"%d" % number for number in range(10)], partition=1)
    with Query(broker, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="30") as query:
        assert query.reader.getDefaultReadLimit() == ReadMaxRows(30)
        sizes = []
        while found := query.values():
            sizes.append(len(found))
        assert sizes == [30, 30, 30, 10]
    with Query(broker, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="30") as query:
        assert len(query.values(ALL)) == 100


def test_a_minimum_is_waited_for_but_not_for_ever(
    broker: FencepostProcess, producer: Producer, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    with Query(
        broker, subscribe=topic, startingOffsets="earliest", minOffsetsPerTrigger="3", maxTriggerDelay="60s"
    ) as query:
        monkeypatch.setattr(query.reader._progress, "_clock", lambda: now)
        assert query.values() == []
        send(producer, topic, [b"1", b"2"])
        assert query.values() == []
        now = 59.0
        assert query.values() == []
        send(producer, topic, [b"3"])
        assert query.values() == [b"1", b"2", b"3"]
        send(producer, topic, [b"4"])
        assert query.values() == []
        now = 120.0
        assert query.values() == [b"4"]


def test_available_now_stops_at_what_was_there(broker: FencepostProcess, producer: Producer, topic: str) -> None:
    send(producer, topic, [b"%d" % number for number in range(10)])
    with Query(broker, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="4") as query:
        query.reader.prepareForTriggerAvailableNow()
        send(producer, topic, [b"later"])
        found: list[bytes | None] = []
        while more := query.values():
            found += more
        assert found == [b"%d" % number for number in range(10)]
        assert query.reader.reportLatestOffset() == {topic: {"0": 10, "1": 0}}
    with Query(broker, query.ends, subscribe=topic) as query:
        assert query.reader.reportLatestOffset() is None
        assert query.values() == [b"later"]
        assert query.reader.reportLatestOffset() == {topic: {"0": 11, "1": 0}}


# What changes under a running query


def test_new_partitions_and_topics_begin_at_their_first_record(
    broker: FencepostProcess, admin: Admin, producer: Producer
) -> None:
    name = f"growing-{next(_serial)}"
    admin.create_topic(NewTopic(f"{name}-a", 1))
    with Query(broker, subscribePattern=f"{name}-.*", startingOffsets="latest") as query:
        assert query.values() == []
        admin.create_topic(NewTopic(f"{name}-b", 1))
        admin.add_partitions(f"{name}-a", 2)
        send(producer, f"{name}-a", [b"second partition"], partition=1)
        send(producer, f"{name}-b", [b"second topic"])
        assert query.values() == [b"second partition", b"second topic"]
        assert query.ends[-1] == {f"{name}-a": {"0": 0, "1": 1}, f"{name}-b": {"0": 1}}


def test_deleted_records_end_the_query_or_are_passed_over(
    broker: FencepostProcess, admin: Admin, producer: Producer, topic: str
) -> None:
    send(producer, topic, [b"%d" % number for number in range(5)])
    begin = {"startingOffsets": f'{{"{topic}":{{"0":0,"1":0}}}}'}
    admin.delete_records({TopicPartition(topic, 0): 3})
    with Query(broker, subscribe=topic, **begin) as query, pytest.raises(DataLoss, match=r"\[0, 5\).*3 to 5"):
        query.values()
    with Query(broker, subscribe=topic, failOnDataLoss="false", **begin) as query:
        assert query.values() == [b"3", b"4"]


def test_a_deleted_topic_ends_the_query_or_is_left_out(
    broker: FencepostProcess, admin: Admin, producer: Producer, topic: str
) -> None:
    other = create(admin, 1)
    options = {"subscribe": f"{topic},{other}", "startingOffsets": "earliest"}
    checkpoint: list[dict[str, Any]] = []
    with Query(broker, checkpoint, **options) as query:
        assert query.values() == []
        admin.delete_topic(other)
        with pytest.raises(DataLoss, match=f"Partitions {other}-0 have been deleted"):
            query.plan()
    send(producer, topic, [b"goes on"])
    with Query(broker, checkpoint, failOnDataLoss="false", **options) as query:
        assert query.values() == [b"goes on"]
        assert offsets_of(query.ends[-1]).keys() == {TopicPartition(topic, 0), TopicPartition(topic, 1)}


def test_a_topic_that_was_made_again_is_another_one(
    broker: FencepostProcess, admin: Admin, producer: Producer, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_progress, "SHRUNK_LOG_TRIES", 2)
    send(producer, topic, [b"1", b"2", b"3"])
    checkpoint: list[dict[str, Any]] = []
    with Query(broker, checkpoint, subscribe=topic, startingOffsets="earliest") as query:
        assert query.values() == [b"1", b"2", b"3"]
    admin.delete_topic(topic)
    admin.create_topic(NewTopic(topic, 2))
    with Producer(broker.bootstrap_servers) as fresh:
        send(fresh, topic, [b"new"])
    with Query(broker, checkpoint, subscribe=topic) as query, pytest.raises(DataLoss, match="changed from 3 to 1"):
        query.values()
    with Query(broker, checkpoint, subscribe=topic, failOnDataLoss="false") as query:
        assert query.values() == [b"new"]


def test_a_batch_that_is_replayed_after_its_topic_was_made_again_reads_nothing_twice(
    broker: FencepostProcess, admin: Admin, producer: Producer, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_progress, "SHRUNK_LOG_TRIES", 2)
    send(producer, topic, [b"1", b"2", b"3"])
    checkpoint: list[dict[str, Any]] = []
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    with Query(broker, checkpoint, **options) as query:
        assert query.values() == [b"1", b"2", b"3"]
        send(producer, topic, [b"4", b"5", b"6", b"7"])
        query.plan()  # and the driver dies
    admin.delete_topic(topic)
    admin.create_topic(NewTopic(topic, 2))
    expected = [b"new %d" % number for number in range(5)]
    with Producer(broker.bootstrap_servers) as fresh:
        send(fresh, topic, expected)
    with Query(broker, list(checkpoint), **options) as strict, pytest.raises(DataLoss, match="changed from 7 to 5"):
        strict.run_last()
    with Query(broker, checkpoint, failOnDataLoss="false", **options) as query:
        # Its log has records at these offsets, but they are others.
        assert query.run_last() == []
        assert query.values() == expected


@pytest.mark.parametrize("count", [1, 3, 9], ids=["fewer records", "as many records", "more records"])
def test_a_topic_that_was_made_again_between_two_looks_is_read_from_its_beginning(
    broker: FencepostProcess, admin: Admin, producer: Producer, topic: str, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(source_progress, "SHRUNK_LOG_TRIES", 2)
    send(producer, topic, [b"1", b"2", b"3"])
    checkpoint: list[dict[str, Any]] = []
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "4"}
    expected = [b"new %d" % number for number in range(count)]
    with (
        Query(broker, checkpoint, failOnDataLoss="false", **options) as query,
        Query(broker, list(checkpoint), **options) as strict,
    ):
        assert query.values() == strict.values() == [b"1", b"2", b"3"]
        admin.delete_topic(topic)
        admin.create_topic(NewTopic(topic, 2))
        with Producer(broker.bootstrap_servers) as fresh:
            send(fresh, topic, expected)
        with pytest.raises(DataLoss, match=f"Topic {topic} has been deleted and created again"):
            strict.plan()
        found: list[bytes | None] = []
        while more := query.values():
            assert len(more) <= 4
            found += more
            # A batch that is replayed by the next run, which knows less, reads the same.
            with Query(broker, list(checkpoint), failOnDataLoss="false", **options) as successor:
                assert [value for _, _, value in successor.run_last()] == more
        assert found == expected


def test_what_does_not_exist_is_said_at_once(broker: FencepostProcess, topic: str) -> None:
    with Query(broker, subscribe="nowhere") as query, pytest.raises(UnknownTopic):
        query.plan()
    with Query(broker, assign=f'{{"{topic}":[0,9]}}') as query, pytest.raises(UnknownPartition):
        query.plan()


def test_the_schema_is_fixed(broker: FencepostProcess, topic: str) -> None:
    from pyspark.sql.types import LongType, StructType

    with pytest.raises(InvalidSourceOption, match="fixed schema"):
        source(broker, subscribe=topic).reader(StructType().add("a", LongType()))
