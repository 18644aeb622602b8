"""What goes wrong under the sink: lost answers, killed workers, a successor, a broker that refuses. Nothing may be
lost, repeated or torn, and whoever reads the error learns what to do."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.extras import require_arrow
from tests.support.patience import patient

require_arrow()
pytest.importorskip("pyspark.sql.streaming.datasource", reason="the source needs PySpark 4.2")

from confluent_kafka import Consumer  # noqa: E402
from pyspark.errors import PySparkException, StreamingQueryException  # noqa: E402

from fencepost.client import Admin, Client, IsolationLevel, Reset, TopicPartition  # noqa: E402
from fencepost.spark import exactly_once, transaction, write_exactly_once  # noqa: E402
from fencepost.spark.commit_records import newest  # noqa: E402
from fencepost.spark.errors import InvalidOutput  # noqa: E402
from fencepost.spark.query_run import close_runs  # noqa: E402
from tests.faults.proxy import Direction, FaultProxy  # noqa: E402
from tests.peers.fencepost_process import FencepostProcess  # noqa: E402
from tests.spark.sessions import finished  # noqa: E402
from tests.spark.sink_scene import Scene  # noqa: E402

pytestmark = [pytest.mark.timeout(400), pytest.mark.usefixtures("writers_write")]


@pytest.fixture(scope="module")
def broker() -> Iterator[FencepostProcess]:
    with FencepostProcess({"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}) as process:
        yield process


@pytest.fixture
def scene(spark: Any, broker: FencepostProcess, tmp_path: Path) -> Scene:
    return Scene(spark, broker, tmp_path / "checkpoint")


@pytest.fixture
def proxy(broker: FencepostProcess) -> Iterator[FaultProxy]:
    with FaultProxy(broker.address) as between:
        yield between
    close_runs()


def purchases_of(scene: Scene, count: int = 100) -> str:
    topic = scene.create("purchases")
    scene.send(topic, range(count))
    return topic


def python_workers() -> list[int]:
    """The processes in which this session's tasks run: children of the daemon that Spark's JVM has started for them."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = (int(fields[1]), (entry / "cmdline").read_bytes())
            except OSError:
                continue

    def is_ours(process: int) -> bool:
        while process in parents:
            process = parents[process][0]
            if process == os.getpid():
                return True
        return False

    daemons = {one for one, (_, command) in parents.items() if b"pyspark.worker" in command and is_ours(one)}
    return [one for one, (parent, _) in parents.items() if parent in daemons]


def test_a_worker_that_is_killed_while_it_writes_leaves_nothing_behind(scene: Scene, proxy: FaultProxy) -> None:
    purchases, invoices = purchases_of(scene), scene.create("invoices")
    killed: list[int] = []

    def kill() -> None:
        for worker in python_workers():
            try:
                os.kill(worker, signal.SIGKILL)
                killed.append(worker)
            except ProcessLookupError:
                continue

    # The broker has the first batches, and the answer is on its way.
    proxy.on("Produce", kill, Direction.RESPONSE)
    rows = scene.stream(purchases).select("key", "value")
    scene.run(rows, exactly_once(scene.name, proxy.bootstrap_servers, topic=invoices))
    assert killed
    assert scene.numbers(invoices) == list(range(100))
    # What the killed attempt had written is in the log, and aborted.
    assert len(scene.committed(invoices, isolation="read_uncommitted")) > 100


@pytest.mark.parametrize("api", ["Produce", "TxnOffsetCommit", "EndTxn"])
def test_an_answer_that_is_lost_is_asked_for_again(scene: Scene, proxy: FaultProxy, api: str) -> None:
    purchases, invoices = purchases_of(scene), scene.create("invoices")
    lost = proxy.drop(api, Direction.RESPONSE)
    rows = scene.stream(purchases).select("key", "value")
    scene.run(rows, exactly_once(scene.name, proxy.bootstrap_servers, topic=invoices))
    assert lost.caught.is_set()
    assert scene.numbers(invoices) == list(range(100))
    assert sum(offset.offset for offset in scene.offsets().values()) == 100


def test_a_successor_ends_the_query_and_the_error_says_so(scene: Scene, proxy: FaultProxy) -> None:
    purchases, invoices = purchases_of(scene), scene.create("invoices")

    def take_over() -> None:
        with Client(scene.servers) as client:
            client.init_producer_id(scene.name)

    # At the last moment: everything is written, and the old driver is about to commit.
    proxy.on("EndTxn", take_over)
    rows = scene.stream(purchases).select("key", "value")
    with pytest.raises(StreamingQueryException, match="another driver has taken over"):
        scene.run(rows, exactly_once(scene.name, proxy.bootstrap_servers, topic=invoices))
    proxy.clear()
    assert scene.numbers(invoices) == []
    scene.run(rows, exactly_once(scene.name, proxy.bootstrap_servers, topic=invoices))
    assert scene.numbers(invoices) == list(range(100))


def test_running_out_of_time_names_the_setting(scene: Scene, proxy: FaultProxy) -> None:
    purchases, invoices = purchases_of(scene), scene.create("invoices")
    late = proxy.hold("TxnOffsetCommit")

    def release_when_aborted() -> None:
        late.caught.wait(patient(300))
        # The broker has aborted what was written: its end is stable again, and nothing of it is to be seen.
        deadline = time.monotonic() + patient(300)
        while time.monotonic() < deadline and stable_end(scene, invoices) == 0:
            time.sleep(0.05)
        late.release()

    waiting = threading.Thread(target=release_when_aborted)
    waiting.start()
    rows = scene.stream(purchases).select("key", "value")
    try:
        with pytest.raises(StreamingQueryException, match="raise transaction_timeout_ms"):
            scene.run(rows, exactly_once(scene.name, proxy.bootstrap_servers, invoices, transaction_timeout_ms=1_000))
    finally:
        late.caught.set()
        waiting.join()
    assert scene.committed(invoices) == []


def stable_end(scene: Scene, topic: str) -> int:
    """How far a read_committed reader gets, over all partitions."""
    with Admin(scene.servers) as admin:
        ends = admin.list_offsets(
            {TopicPartition(topic, partition): Reset.LATEST for partition in range(2)},
            isolation_level=IsolationLevel.READ_COMMITTED,
        )
    return sum(end.offset for end in ends.values())


def test_a_topic_that_refuses_its_rows_keeps_the_others_from_being_seen(scene: Scene) -> None:
    purchases, invoices = purchases_of(scene), scene.create("invoices")
    labels = scene.create("labels", 1, max_message_bytes="200")

    def shop(batch: Any, number: int) -> None:
        with transaction(batch, number, scene.name, scene.servers) as opened:
            opened.write(batch, topic=invoices)
            opened.write(batch, topic=labels)

    rows = scene.stream(purchases).select("key", "value")
    with pytest.raises(StreamingQueryException, match=r"MESSAGE_TOO_LARGE.* Send smaller records"):
        scene.run(rows, shop)
    assert scene.committed(invoices, labels) == []


def test_an_exception_in_the_block_aborts(scene: Scene) -> None:
    purchases, invoices = purchases_of(scene), scene.create("invoices")
    faults = [LookupError("no price for this")]

    def shop(batch: Any, number: int) -> None:
        with transaction(batch, number, scene.name, scene.servers) as opened:
            opened.write(batch, topic=invoices)
            if faults:
                raise faults.pop()

    rows = scene.stream(purchases).select("key", "value")
    with pytest.raises(StreamingQueryException, match="no price for this"):
        scene.run(rows, shop)
    assert scene.committed(invoices) == []
    scene.run(rows, shop)
    assert scene.numbers(invoices) == list(range(100))


def test_a_skipped_batch_still_advances_the_state(scene: Scene) -> None:
    purchases, counts = purchases_of(scene), scene.create("counts", 1)

    def totals() -> Any:
        from pyspark.sql import functions as F

        counted = scene.stream(purchases).groupBy("key").agg(F.count("*").cast("string").alias("value"))
        return counted.select("key", "value")

    def run() -> None:
        sink = exactly_once(scene.name, scene.servers, topic=counts)
        writer = totals().writeStream.foreachBatch(sink).outputMode("update").trigger(availableNow=True)
        finished(writer.option("checkpointLocation", str(scene.checkpoint)).start)

    run()
    scene.forget_commit(0)
    scene.send(purchases, range(100, 140))
    run()
    last = {record.key: int(record.value or b"0") for record in scene.committed(counts)}
    assert sum(last.values()) == 140
    assert len(scene.committed(counts)) == 14


def refused(scene: Scene, invoices: str, match: str, **options: Any) -> None:
    rows = scene.stream(invoices.replace("invoices", "purchases")).select("key", "value")
    before = len(scene.committed(invoices))
    with pytest.raises(StreamingQueryException, match=match):
        scene.run(rows, exactly_once(scene.name, scene.servers, topic=invoices, **options))
    assert len(scene.committed(invoices)) == before


def test_a_group_with_members_is_refused(scene: Scene) -> None:
    purchases, invoices = purchases_of(scene), scene.create("invoices")
    consumer = Consumer({"bootstrap.servers": scene.servers, "group.id": scene.name, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([purchases])
        assert consumer.poll(patient(60)) is not None
        refused(scene, invoices, "has members")
    finally:
        consumer.close()


def test_a_query_without_a_checkpoint_is_refused(scene: Scene) -> None:
    purchases, invoices = purchases_of(scene), scene.create("invoices")
    rows = scene.stream(purchases).select("key", "value")
    sink = exactly_once(scene.name, scene.servers, topic=invoices)
    query = rows.writeStream.foreachBatch(sink).trigger(availableNow=True).start()
    with pytest.raises(StreamingQueryException, match="checkpointLocation"):
        query.awaitTermination()
    assert scene.committed(invoices) == []


@pytest.mark.parametrize("is_forced", [False, True], ids=["as Spark checks it", "with Spark's check off"])
def test_asynchronous_progress_is_refused(scene: Scene, is_forced: bool) -> None:
    purchases, invoices = purchases_of(scene), scene.create("invoices")
    sink = exactly_once(scene.name, scene.servers, topic=invoices)
    writer = scene.stream(purchases).select("key", "value").writeStream.foreachBatch(sink)
    writer = writer.option("asyncProgressTrackingEnabled", "true").option("checkpointLocation", str(scene.checkpoint))
    writer = writer.option("_asyncProgressTrackingOverrideSinkSupportCheck", str(is_forced).lower())

    def run() -> None:
        query = writer.start()
        try:
            query.awaitTermination(300)
        finally:
            query.stop()

    with pytest.raises(PySparkException, match=r"(?i)async"):
        run()
    assert scene.committed(invoices) == []


def test_another_checkpoint_is_refused_until_it_is_adopted(scene: Scene, tmp_path: Path) -> None:
    purchases, invoices = purchases_of(scene), scene.create("invoices")
    rows = scene.stream(purchases).select("key", "value")
    scene.run(rows, exactly_once(scene.name, scene.servers, topic=invoices))
    scene.checkpoint = tmp_path / "another"
    refused(scene, invoices, "adopt='continue'")
    scene.run(rows, exactly_once(scene.name, scene.servers, topic=invoices, adopt="continue"))
    record = newest(scene.offsets())
    assert record is not None
    assert record.marker.term == 2
    assert len(scene.committed(invoices)) == 200
    # The first query may not go on as if nothing had happened.
    scene.checkpoint = tmp_path / "checkpoint"
    scene.send(purchases, range(100, 110))
    refused(scene, invoices, "was written by query")


def test_rows_that_cannot_be_written_are_told_before_anything_moves(spark: Any, scene: Scene) -> None:
    purchases, invoices = purchases_of(scene), scene.create("invoices")
    rows = scene.stream(purchases).selectExpr("key", "value", "array() as header")
    with pytest.raises(StreamingQueryException, match="header would not be written"):
        scene.run(rows, exactly_once(scene.name, scene.servers, topic=invoices))
    frame = spark.createDataFrame([(1,)], "value int")
    with pytest.raises(InvalidOutput, match="Cast `value`"):
        write_exactly_once(frame, scene.name, scene.servers, run_id="today", topic=invoices)
    frame = spark.createDataFrame([("1", 1)], "value string, offset long")
    with pytest.raises(InvalidOutput, match="does not exist"):
        write_exactly_once(frame, scene.name, scene.servers, run_id="today", topic="nowhere")


def test_a_load_is_written_once_however_often_it_is_run(spark: Any, scene: Scene) -> None:
    loads = scene.create("loads", 3)

    def load(run_id: str, count: int) -> Any:
        from pyspark.sql import functions as F

        frame = spark.range(count).select(F.col("id").cast("string").alias("value"))
        return write_exactly_once(frame, scene.name, scene.servers, run_id=run_id, topic=loads)

    assert load("monday", 40).record_count == 40
    assert load("tuesday", 10).record_count == 10
    for run_id in ("monday", "tuesday"):
        again = load(run_id, 40)
        assert (again.replayed, again.record_count) == (True, 0)
    assert len(scene.committed(loads)) == 50
