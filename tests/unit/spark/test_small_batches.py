"""Which batches the driver may write itself."""

import pytest

from tests.support.extras import require_arrow

require_arrow()

from fencepost.spark.errors import NotSupported  # noqa: E402
from fencepost.spark.planned_batches import Planned, planned  # noqa: E402
from fencepost.spark.small_batches import BATCHES_UNTIL_NEXT_TRY, ROWS_MAX, SmallBatches, rows_max  # noqa: E402
from fencepost.topic_partition import TopicPartition  # noqa: E402

ONE, OTHER = TopicPartition("in", 0), TopicPartition("in", 1)


def plan(one: int, other: int = 0, **starts: int) -> Planned:
    begin = {TopicPartition("in", int(name[1:])): offset for name, offset in starts.items()}
    return Planned({ONE: one, OTHER: other}, "digest", starts=begin)


def test_a_batch_is_small_by_what_it_reads_since_the_one_before() -> None:
    run = SmallBatches(read_until={ONE: 10_000, OTHER: 500})
    assert run.is_next(7, plan(10_000 + ROWS_MAX, 500), None)
    assert not run.is_next(7, plan(10_000 + ROWS_MAX, 501), None)
    assert run.is_next(7, plan(10_000, 500), None)  # Spark runs one without data to advance a watermark


def test_the_first_batch_of_a_run_begins_where_the_checkpoint_says() -> None:
    run = SmallBatches()
    assert run.is_next(7, plan(10_003, 501), plan(10_000, 500))
    assert not run.is_next(7, plan(10_003, 501), None)
    assert run.is_next(0, plan(10_003, 501, p0=10_000, p1=500), None)
    assert not run.is_next(0, plan(10_003, 501, p0=10_000), None)


def test_a_topic_that_was_made_again_begins_anew() -> None:
    run = SmallBatches(read_until={ONE: 10_000, OTHER: 500})
    assert not run.is_next(7, plan(9_000, 500, p0=0), None)
    assert run.is_next(7, plan(3, 500, p0=0), None)


def test_a_partition_that_is_new_and_begins_nobody_knows_where_is_not_small() -> None:
    assert not SmallBatches(read_until={ONE: 10}).is_next(7, plan(10, 1), None)


@pytest.mark.parametrize("of_batch", [None, Planned({}, "digest of a rate source")])
def test_what_cannot_be_counted_is_not_small(of_batch: Planned | None) -> None:
    assert not SmallBatches(read_until={}).is_next(7, of_batch, None)


def test_a_batch_that_gave_much_is_not_tried_again_for_a_while() -> None:
    run = SmallBatches(read_until={ONE: 0, OTHER: 0})
    run.was_too_large(7)
    assert not run.is_next(6 + BATCHES_UNTIL_NEXT_TRY, plan(1), None)
    assert run.is_next(7 + BATCHES_UNTIL_NEXT_TRY, plan(1), None)


def test_the_offset_log_says_where_a_first_batch_began() -> None:
    head = 'v1\n{"batchTimestampMs":1}\n'
    first, second = '{"in":{"0":12,"1":4},"@start:in":{"0":10,"1":3}}', '{"in":{"1":9},"@start:in":{"1":2}}'
    assert planned(f"{head}{first}\n{second}\n7").starts == {ONE: 10, OTHER: 2}
    assert planned(head + '{"in":{"0":12}}').starts == {}


class Session:
    """Of a session only what is asked: its settings."""

    _jsparkSession = None

    def __init__(self, **settings: str) -> None:
        self.conf = self
        self.get = lambda name, default: settings.get(name.rpartition(".")[2], default)


def test_a_setting_says_how_many_rows_are_few() -> None:
    assert rows_max(Session()) == ROWS_MAX
    assert rows_max(Session(smallBatchRows="7")) == 7
    assert not SmallBatches(rows_max(Session(smallBatchRows="0")), {ONE: 0, OTHER: 0}).is_next(1, plan(0), None)
    with pytest.raises(NotSupported, match="smallBatchRows=many is not a number of rows"):
        rows_max(Session(smallBatchRows="many"))
