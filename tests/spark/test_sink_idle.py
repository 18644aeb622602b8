"""A pipeline that is quiet for longer than the cluster remembers: its record is renewed, and expiry is no takeover."""

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.extras import require_arrow
from tests.support.patience import patient

require_arrow()
pytest.importorskip("pyspark.sql.streaming.datasource", reason="the source needs PySpark 4.2")

from fencepost.client import Admin, BrokerError, Client, NewTopic, TopicPartition, TransactionProtocol  # noqa: E402
from fencepost.client.sending import Sending  # noqa: E402
from fencepost.spark import exactly_once, heartbeat  # noqa: E402
from fencepost.spark.batch_attempts import Attempts, Batch  # noqa: E402
from fencepost.spark.batch_decisions import Step  # noqa: E402
from fencepost.spark.checkpoint import Checkpoint  # noqa: E402
from fencepost.spark.commit_records import Marker, Record, newest  # noqa: E402
from fencepost.spark.errors import BatchRefused, FencedBySuccessor  # noqa: E402
from fencepost.spark.heartbeat import beat, keep_alive, period_seconds  # noqa: E402
from fencepost.spark.input_clusters import InputClusters  # noqa: E402
from fencepost.spark.ownership import end_what_was_left  # noqa: E402
from fencepost.spark.planned_batches import planned  # noqa: E402
from fencepost.spark.query_run import QueryRun, close_runs  # noqa: E402
from fencepost.spark.run_producer import ClusterLimits, OutputRecord, RunProducer  # noqa: E402
from fencepost.spark.sink_settings import sink_settings  # noqa: E402
from fencepost.wire.errors import ErrorCode  # noqa: E402
from tests.faults.proxy import FaultProxy  # noqa: E402
from tests.peers.broker_process import BrokerProcess  # noqa: E402
from tests.peers.fencepost_process import FencepostProcess  # noqa: E402
from tests.peers.kafka import ApacheKafka  # noqa: E402
from tests.spark.sink_scene import Scene, read  # noqa: E402

pytestmark = pytest.mark.timeout(400)
EXPIRY_MS = 2_000
FORGETFUL = {
    "transactional.id.expiration.ms": str(EXPIRY_MS),
    "transaction.remove.expired.transaction.cleanup.interval.ms": "100",
}
PROTOCOLS = pytest.mark.parametrize("protocol", list(TransactionProtocol), ids=lambda protocol: protocol.name)
_serial = itertools.count()


@pytest.fixture(scope="module", params=[FencepostProcess, ApacheKafka], ids=["fencepost", "apache"])
def broker(request: pytest.FixtureRequest) -> Iterator[BrokerProcess]:
    with request.param(FORGETFUL) as process:
        yield process


class Pipeline:
    """The sink's part of a driver, without Spark: batches that only record how far they have read."""

    def __init__(
        self,
        broker: BrokerProcess,
        name: str,
        topic: str,
        query: str = "query",
        through: FaultProxy | None = None,
        **options: Any,
    ) -> None:
        self.name, self.topic, self.query = name, topic, query
        self.settings = sink_settings(name, broker.bootstrap_servers)
        producer = RunProducer((through or broker).bootstrap_servers, name, {}, **options)
        self.run = QueryRun(producer, inputs=InputClusters([], producer, name))

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, 0)

    def attempts(self, batch_id: int) -> Attempts:
        def plan(number: int) -> Any:
            head = f'v1\n{{"batchTimestampMs":{time.time() * 1000:.0f}}}\n'
            return planned(f'{head}{{"{self.topic}":{{"0":{number * 10}}}}}')

        batch = Batch(self.query, batch_id, self.name, "spark/test/batch", f"writer of {self.name}", plan)
        return Attempts(None, self.run, self.settings, batch)

    def batch(self, batch_id: int) -> Step:
        attempts = self.attempts(batch_id)
        if attempts.enter() is Step.SKIP:
            attempts.skip()
            return Step.SKIP
        attempts.write([])
        return Step.WRITE

    def close(self) -> None:
        self.run.has_ended.set()
        with self.run.turn:
            self.run.producer.close()


@pytest.fixture
def start(broker: BrokerProcess) -> Iterator[Callable[..., Pipeline]]:
    topic = f"idle-{next(_serial)}"
    with Admin(broker.bootstrap_servers) as admin:
        admin.create_topic(NewTopic(topic, 1))
    made: list[Pipeline] = []

    def make(**options: Any) -> Pipeline:
        made.append(Pipeline(broker, f"sink-{topic}", topic, **options))
        return made[-1]

    yield make
    for pipeline in made:
        pipeline.close()


def is_known(broker: BrokerProcess, name: str) -> bool:
    with Admin(broker.bootstrap_servers) as admin:
        try:
            admin.describe_transaction(name)
        except BrokerError as error:
            if error.code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
            return False
        return True


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + patient(120)
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@PROTOCOLS
def test_a_run_whose_transactional_id_has_expired_goes_on(
    broker: BrokerProcess, start: Callable[..., Pipeline], protocol: TransactionProtocol
) -> None:
    pipeline = start(protocol=protocol)
    assert pipeline.batch(0) is Step.WRITE
    until(lambda: not is_known(broker, pipeline.name))
    assert pipeline.batch(1) is Step.WRITE
    until(lambda: not is_known(broker, pipeline.name))
    beat(pipeline.run, pipeline.name)
    assert is_known(broker, pipeline.name)
    assert pipeline.batch(2) is Step.WRITE


def test_an_old_driver_whose_id_expired_and_was_made_anew_is_fenced(
    broker: BrokerProcess, start: Callable[..., Pipeline]
) -> None:
    old = start()
    old.batch(0)
    until(lambda: not is_known(broker, old.name))
    new = start()
    new.batch(1)
    with pytest.raises(FencedBySuccessor):
        old.batch(2)
    new.batch(2)


def test_the_heartbeat_keeps_id_and_record_alive(broker: BrokerProcess, start: Callable[..., Pipeline]) -> None:
    pipeline = start()
    pipeline.batch(0)
    with Admin(broker.bootstrap_servers) as admin:
        admin.delete_group(pipeline.name)  # as if it had expired
        first = admin.describe_transaction(pipeline.name)
        keep_alive(pipeline.run, pipeline.name, lambda: True)
        # Every beat brings an epoch: so many of them last longer than the id would have.
        until(lambda: admin.describe_transaction(pipeline.name).producer_epoch >= first.producer_epoch + 6)
        record = newest(admin.committed_offsets(pipeline.name))
    assert record == pipeline.run.held
    with pipeline.run.turn:
        assert pipeline.batch(1) is Step.WRITE


@PROTOCOLS
@pytest.mark.parametrize("kept", ["TxnOffsetCommit", "EndTxn"])
def test_a_late_call_of_a_heartbeat_does_nothing_to_the_batch_after_it(
    broker: BrokerProcess, start: Callable[..., Pipeline], protocol: TransactionProtocol, kept: str
) -> None:
    """The network keeps a call, the driver asks again on another connection and goes on; then the first one arrives.
    If the batch had the same epoch (TV1), the late call would commit half of it, or take its record from the group."""
    with FaultProxy(broker.address) as proxy:
        pipeline = start(protocol=protocol, through=proxy)
        pipeline.batch(0)
        held = proxy.hold(kept, hang_up=True)
        beat(pipeline.run, pipeline.name)
        held.wait()
        batch, producer = pipeline.attempts(1), pipeline.run.producer
        batch.enter()
        producer.write([OutputRecord(pipeline.topic, 0, None, b"of batch 1")], Sending())
        if kept == "TxnOffsetCommit":
            producer.send_offsets(pipeline.name, Record(Marker(1, 1, "query"), {pipeline.place: 10}).entries())
        held.release().outcome()
        assert read(broker.bootstrap_servers, [pipeline.topic], "read_committed") == []
        if kept == "EndTxn":
            producer.send_offsets(pipeline.name, Record(Marker(1, 1, "query"), {pipeline.place: 10}).entries())
        producer.commit()
        record = newest(producer.committed(pipeline.name, stable=producer.is_settled()))
    assert record is not None
    assert record.marker.batch_id == 1


def test_a_heartbeat_leaves_a_group_alone_that_is_not_its_own_any_more(
    broker: BrokerProcess, start: Callable[..., Pipeline]
) -> None:
    old, new = start(), start()
    old.batch(0)
    entered = new.attempts(1)
    entered.enter()
    beat(old.run, old.name)
    assert old.run.fenced_by is not None
    entered.write([])
    beat(old.run, old.name)
    assert newest(new.run.producer.committed(new.name, stable=True)) == new.run.held
    new.batch(2)


def test_a_restart_after_the_group_expired_is_refused_with_what_the_checkpoint_says(
    broker: BrokerProcess, start: Callable[..., Pipeline]
) -> None:
    pipeline = start()
    pipeline.batch(0)
    with Admin(broker.bootstrap_servers) as admin:
        admin.delete_group(pipeline.name)
    with pytest.raises(BatchRefused, match=rf"have expired .*{pipeline.topic}-0 at 0"):
        start().batch(1)
    assert pipeline.batch(1) is Step.WRITE


@PROTOCOLS
@pytest.mark.parametrize("is_in_batch", [False, True], ids=["between batches", "in a batch"])
def test_a_driver_that_was_suspended_before_its_bare_call_gives_way_when_it_wakes_up(
    start: Callable[..., Pipeline],
    protocol: TransactionProtocol,
    is_in_batch: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fencepost.spark.batch_attempts.GIVE_WAY_SECONDS", patient(60))
    first = start(protocol=protocol)
    first.batch(0)
    asleep, successor = start(protocol=protocol), start(protocol=protocol)
    entered: list[Attempts] = []
    bare = asleep.run.producer.begin

    def begin() -> None:
        """The ownership check is behind it; meanwhile its successor starts and writes."""
        successor.batch(1)
        successor.batch(2)
        if is_in_batch:
            entered.append(successor.attempts(3))
            entered[0].enter()
        bare()

    monkeypatch.setattr(asleep.run.producer, "begin", begin)
    with pytest.raises(BatchRefused, match=r"does not follow|another driver runs"):
        asleep.batch(1)
    if is_in_batch:
        entered[0].write([])
    else:
        assert successor.batch(3) is Step.WRITE
    assert successor.batch(4) is Step.WRITE
    record = newest(successor.run.producer.committed(successor.name, stable=True))
    assert record == successor.run.held
    assert not record.marker.is_yielded


def test_a_driver_that_was_replaced_stops_at_once(start: Callable[..., Pipeline]) -> None:
    old, new = start(), start()
    old.batch(0)
    new.batch(1)
    with pytest.raises(FencedBySuccessor):
        old.batch(2)
    with pytest.raises(FencedBySuccessor):
        old.batch(2)


def checkpoint_at(directory: Path, pipeline: Pipeline, query: str, done: int, planned_batches: int) -> Checkpoint:
    for log, count in (("offsets", planned_batches), ("commits", done)):
        (directory / log).mkdir(parents=True)
        for number in range(count):
            (directory / log / str(number)).write_text(f'v1\n{{}}\n{{"{pipeline.topic}":{{"0":{number * 10}}}}}')
    (directory / "metadata").write_text(f'{{"id":"{query}"}}')
    return Checkpoint(str(directory))


def test_a_successor_ends_what_was_left_open_when_it_starts_if_it_is_its_turn(
    broker: BrokerProcess, start: Callable[..., Pipeline], tmp_path: Path
) -> None:
    pipeline = start()
    pipeline.batch(0)
    servers, name = broker.bootstrap_servers, pipeline.name
    with Client(servers) as dead, Admin(servers) as admin, Client(servers) as client:
        left = dead.producer(name)
        left.init()
        left.begin()
        left.send(pipeline.topic, b"of batch 1", partition=0)
        left.flush()

        def is_ended(checkpoint: Checkpoint) -> bool:
            return end_what_was_left(client, admin, name, checkpoint, "refuse")

        assert not is_ended(checkpoint_at(tmp_path / "other", pipeline, "another query", 1, 1))
        assert not is_ended(checkpoint_at(tmp_path / "ahead", pipeline, "query", 2, 3))
        assert admin.describe_transaction(name).state == "Ongoing"
        # It died in batch 1.
        mine = checkpoint_at(tmp_path / "mine", pipeline, "query", 1, 2)
        assert mine.next_batch() == 1
        assert is_ended(mine)
        assert admin.describe_transaction(name).state != "Ongoing"
        assert not is_ended(mine)


def test_a_beat_comes_four_times_in_the_shorter_time_and_at_least_every_hour() -> None:
    assert period_seconds(ClusterLimits()) == heartbeat.PERIOD_SECONDS_MAX == 3_600
    assert period_seconds(ClusterLimits(60_000, 8_000)) == 2
    assert period_seconds(ClusterLimits(60_000, 80_000)) == 15


def test_a_query_that_was_quiet_for_too_long_writes_on(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without heartbeats: the writers of the next batch meet an id that has expired."""
    monkeypatch.setattr("fencepost.spark.sink.keep_alive", lambda *_: None)
    with FencepostProcess(FORGETFUL) as broker:
        scene = Scene(spark, broker, tmp_path / "checkpoint")
        purchases, invoices = scene.create("purchases"), scene.create("invoices")
        scene.send(purchases, range(20))
        rows = scene.stream(purchases).select("key", "value")
        query = scene.start(
            rows, exactly_once(scene.name, scene.servers, topic=invoices), None, processingTime="0 seconds"
        )
        try:
            until(lambda: TopicPartition(purchases, 0) in scene.offsets() or not query.isActive)
            until(lambda: not is_known(broker, scene.name))
            with Admin(scene.servers) as admin:
                admin.delete_group(scene.name)
            scene.send(purchases, range(20, 40))
            until(lambda: bool(scene.offsets()) or not query.isActive)
            assert query.isActive, query.exception()
        finally:
            query.stop()
            close_runs()
        assert scene.numbers(invoices) == list(range(40))
