"""Checkpoints that were set back, damaged or copied, on Fencepost and on Apache Kafka: refused, or exact."""

import shutil
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.extras import require_arrow
from tests.support.patience import patient

require_arrow()
pytest.importorskip("pyspark.sql.streaming.datasource", reason="the source needs PySpark 4.2")

from pyspark.errors import StreamingQueryException  # noqa: E402

from fencepost.client import Admin, NewTopic, TopicPartition  # noqa: E402
from fencepost.spark import exactly_once, transaction  # noqa: E402
from tests.peers.broker_process import BrokerProcess  # noqa: E402
from tests.peers.fencepost_process import FencepostProcess  # noqa: E402
from tests.peers.kafka import ApacheKafka  # noqa: E402
from tests.spark.sessions import finished  # noqa: E402
from tests.spark.sink_scene import Scene  # noqa: E402

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module", params=[FencepostProcess, ApacheKafka], ids=["fencepost", "apache"])
def broker(request: pytest.FixtureRequest) -> Iterator[BrokerProcess]:
    with request.param() as process:
        yield process


class Shop(Scene):
    """Purchases that become invoices, unchanged."""

    def __init__(self, spark: Any, broker: BrokerProcess, checkpoint: Path) -> None:
        super().__init__(spark, broker, checkpoint)
        self.purchases, self.invoices = self.create("purchases", 2), self.create("invoices", 2)

    def sell(self, numbers: range, checkpoint: Path | None = None, adopt: str = "refuse", **source: str) -> None:
        self.send(self.purchases, numbers)
        rows = self.stream(self.purchases, **source).select("key", "value")
        sink = exactly_once(self.name, self.servers, topic=self.invoices, adopt=adopt)
        self.run(rows, sink, checkpoint)

    def refused(self, match: str, numbers: range = range(0), checkpoint: Path | None = None, **source: str) -> str:
        """The message; nothing was written."""
        before = self.numbers(self.invoices)
        with pytest.raises(StreamingQueryException, match=match) as raised:
            self.sell(numbers, checkpoint, **source)
        assert self.numbers(self.invoices) == before
        return str(raised.value)

    def forget(self, batch_id: int) -> None:
        """As an operator does with files that a power cut has emptied."""
        for log in ("offsets", "commits"):
            for name in (str(batch_id), f".{batch_id}.crc"):
                (self.checkpoint / log / name).unlink(missing_ok=True)

    def await_numbers(self, query: Any, wanted: Iterable[int]) -> None:
        deadline = time.monotonic() + patient(120)
        while self.numbers(self.invoices) != sorted(wanted):
            assert query.isActive, query.exception()
            assert time.monotonic() < deadline, self.numbers(self.invoices)
            time.sleep(0.2)

    def make_again(self, topic: str) -> None:
        """Deletes the topic and creates it again: another topic of the same name."""
        with Admin(self.servers) as admin:
            count = len(admin.describe_topic(topic).partitions)
            admin.delete_topic(topic)
            admin.create_topic(NewTopic(topic, count))

    def starting_offsets(self) -> str:
        import json

        from fencepost.spark.commit_records import nested, newest

        record = newest(self.offsets())
        assert record is not None
        return json.dumps(nested(record.positions))


@pytest.fixture
def shop(spark: Any, broker: BrokerProcess, tmp_path: Path) -> Shop:
    return Shop(spark, broker, tmp_path / "checkpoint")


def test_a_copy_that_is_one_batch_behind_is_refused_and_a_new_checkpoint_at_the_groups_offsets_is_exact(
    shop: Shop, tmp_path: Path
) -> None:
    shop.sell(range(100))
    shutil.copytree(shop.checkpoint, tmp_path / "copy")
    shop.sell(range(100, 200))
    said = shop.refused(r"batch 1 was committed to group", range(200, 300), tmp_path / "copy")
    assert "would be skipped" in said
    shop.sell(range(0), tmp_path / "new", adopt="continue", startingOffsets=shop.starting_offsets())
    assert shop.numbers(shop.invoices) == list(range(300))


def test_files_that_a_power_cut_emptied_and_an_operator_deleted_lose_no_rows(shop: Shop) -> None:
    shop.sell(range(100))
    shop.sell(range(100, 200))
    shop.forget(1)
    shop.refused(r"batch 1 was committed to group", range(200, 300))


def test_files_that_were_deleted_do_no_harm_if_the_batch_comes_out_the_same(shop: Shop) -> None:
    shop.sell(range(100))
    shop.sell(range(100, 200))
    shop.forget(1)
    shop.sell(range(0))
    shop.sell(range(200, 300))
    assert shop.numbers(shop.invoices) == list(range(300))


def test_a_smaller_batch_in_the_place_of_a_committed_one_writes_nothing_twice(shop: Shop) -> None:
    shop.sell(range(100))
    shop.sell(range(100, 200))
    shop.forget(1)
    said = shop.refused(r"batch 1 was committed to group", maxOffsetsPerTrigger="38")
    assert "would be read again" in said


def test_two_copies_that_went_different_ways_are_told_apart(shop: Shop, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shop.sell(range(100))
    shutil.copytree(shop.checkpoint, copy)
    shop.sell(range(100, 200))
    shop.send(shop.purchases, range(200, 250))
    # Batch 1 of the copy ends elsewhere, and was done without the sink.
    shop.run(shop.stream(shop.purchases), lambda batch, number: None, copy)
    said = shop.refused("ended at other offsets than in this checkpoint", range(250, 260), copy)
    assert "Two copies of one checkpoint" in said
    shop.sell(range(260, 300))
    assert shop.numbers(shop.invoices) == list(range(300))


def test_a_group_that_was_deleted_is_told_as_that_and_a_run_goes_on(shop: Shop) -> None:
    shop.send(shop.purchases, range(100))
    deleted: list[int] = []

    def deleting(batch: Any, number: int) -> None:
        if number == 1:
            with Admin(shop.servers) as admin:
                admin.delete_group(shop.name)
            deleted.append(number)
        with transaction(batch, number, shop.name, shop.servers) as opened:
            opened.write(batch.select("key", "value"), topic=shop.invoices)

    shop.run(shop.stream(shop.purchases, maxOffsetsPerTrigger="50"), deleting)
    assert deleted == [1]
    assert shop.numbers(shop.invoices) == list(range(100))
    with Admin(shop.servers) as admin:
        admin.delete_group(shop.name)
    said = shop.refused(r"offsets\.retention\.minutes", range(100, 110))
    assert "adopt='continue'" in said
    assert f"{shop.purchases}-0 at" in said


def test_a_function_may_pass_over_batches_but_not_write_one_twice(shop: Shop) -> None:
    shop.send(shop.purchases, range(200))
    sink = exactly_once(shop.name, shop.servers, topic=shop.invoices)
    wanted: list[int] = []

    def only_even_batches(batch: Any, number: int) -> None:
        if number % 2:
            return
        wanted.extend(int(row["value"]) for row in batch.select("value").collect())
        sink(batch.select("key", "value"), number)

    shop.run(shop.stream(shop.purchases, maxOffsetsPerTrigger="30"), only_even_batches)
    assert shop.numbers(shop.invoices) == sorted(wanted)
    assert 50 < len(wanted) < 150

    def twice(batch: Any, number: int) -> None:
        sink(batch.select("key", "value"), number)
        sink(batch.select("key", "value"), number)

    shop.sell(range(200, 210))
    shop.send(shop.purchases, range(210, 220))
    for _ in range(2):
        with pytest.raises(StreamingQueryException, match="has had its transaction"):
            shop.run(shop.stream(shop.purchases), twice)
    assert shop.numbers(shop.invoices) == sorted([*wanted, *range(200, 220)])


def test_a_pipeline_that_starts_ends_what_a_dead_driver_left_open(spark: Any, shop: Shop) -> None:
    """Before there is a batch: readers of the output would have to wait for it."""
    from fencepost.client import Client
    from fencepost.spark import Output, pipeline

    @pipeline(shop.name, source=shop.purchases, format="bytes", outputs=[Output(shop.invoices, format="bytes")])
    def copy(records: Any) -> Any:
        return {shop.invoices: records.select("value")}

    with Client(shop.servers) as dead:
        left = dead.producer(shop.name)
        left.init()
        left.begin()
        left.send(shop.invoices, b"999", partition=0)
        left.flush()
    finished(
        lambda: copy.start(
            spark,
            bootstrap_servers=shop.servers,
            checkpoint=str(shop.checkpoint),
            trigger={"availableNow": True},
        )
    )
    with Admin(shop.servers) as admin:
        assert admin.describe_transaction(shop.name).state != "Ongoing"
    assert shop.numbers(shop.invoices) == []


@pytest.mark.parametrize("count", [60, 150], ids=["shorter", "longer"])
def test_a_source_topic_that_was_made_again_is_named_and_read_on_in_with_fail_on_data_loss_off(
    shop: Shop, count: int
) -> None:
    shop.sell(range(100))
    before = shop.numbers(shop.invoices)
    shop.make_again(shop.purchases)
    shop.send(shop.purchases, range(1000, 1000 + count))
    shop.refused("was deleted and created again" if count > 100 else "the topic was deleted and created again")
    shop.sell(range(0), failOnDataLoss="false")
    # A source that starts only sees the lengths of logs: as in Spark's own, a longer one is read from where it was.
    read = set(shop.numbers(shop.invoices)) - set(before)
    assert read == set(range(1000, 1000 + count)) if count < 100 else 0 < len(read) < count
    shop.sell(range(2000, 2050))
    assert set(shop.numbers(shop.invoices)) - set(before) == read | set(range(2000, 2050))
    assert len(shop.numbers(shop.invoices)) == 100 + len(read) + 50


def test_a_topic_that_is_made_again_under_a_running_query_is_read_on_in_and_so_after_a_restart(shop: Shop) -> None:
    shop.send(shop.purchases, range(100))
    sink = exactly_once(shop.name, shop.servers, topic=shop.invoices)
    rows = shop.stream(shop.purchases, failOnDataLoss="false").select("key", "value")
    query = shop.start(rows, sink, None, processingTime="0 seconds")
    try:
        shop.await_numbers(query, range(100))
        shop.make_again(shop.purchases)
        shop.send(shop.purchases, range(1000, 1030))
        shop.await_numbers(query, [*range(100), *range(1000, 1030)])
    finally:
        query.stop()
    # The record has the id of the new topic: whoever is to fail on data loss has no reason to.
    shop.sell(range(1030, 1040))
    assert shop.numbers(shop.invoices) == [*range(100), *range(1000, 1040)]


def test_a_record_without_a_copy_as_an_earlier_version_wrote_it_is_gone_with_its_topic_and_that_is_told(
    shop: Shop,
) -> None:
    shop.sell(range(50))
    shop.sell(range(50, 100))
    with Admin(shop.servers) as admin:
        admin.delete_offsets(shop.name, [TopicPartition(shop.invoices, 0)])
        assert not any(offset.offset < 0 for offset in admin.committed_offsets(shop.name, with_notes=True).values())
    shop.sell(range(100, 150))
    with Admin(shop.servers) as admin:
        (copy,) = [at for at, held in admin.committed_offsets(shop.name, with_notes=True).items() if held.offset < 0]
        assert copy == TopicPartition(shop.invoices, 0)
        assert copy not in admin.committed_offsets(shop.name)
        admin.delete_offsets(shop.name, [copy])
    shop.make_again(shop.purchases)
    shop.refused("holds no marker", range(1000, 1010), failOnDataLoss="false")
