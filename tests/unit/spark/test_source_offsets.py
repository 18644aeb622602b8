"""Offsets as Spark's Kafka source writes them, the share of a batch, and the tasks of a range."""

from hypothesis import given
from hypothesis import strategies as st

from fencepost.spark.checkpoint import parse_offsets
from fencepost.spark.source_offsets import OffsetRange, cut, limited, offsets_of, starts_of, to_json
from fencepost.topic_partition import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def test_offsets_look_as_those_of_spark() -> None:
    assert to_json({B0: 3, A1: 2, A0: 1}) == {"a": {"0": 1, "1": 2}, "b": {"0": 3}}
    assert offsets_of({"a": {"0": 1, "1": 2}}) == {A0: 1, A1: 2}


def test_the_first_batch_remembers_its_start_beside_its_end() -> None:
    stored = to_json({A0: 9, A1: 8}, starts={A0: 1})
    assert offsets_of(stored) == {A0: 9, A1: 8}
    assert starts_of(stored) == {A0: 1}
    assert starts_of(to_json({A0: 9})) == {}


def test_the_sink_reads_the_end_of_a_first_batch() -> None:
    import json

    log = "\n".join(["v1", "{}", json.dumps(to_json({A0: 9}, starts={A0: 1}))])
    assert parse_offsets(log) == {A0: 9}


def test_a_limit_is_shared_by_what_waits() -> None:
    assert limited({A0: 0, A1: 100, B0: 0}, {A0: 900, A1: 200, B0: 0}, 100) == {A0: 90, A1: 110, B0: 0}
    assert limited({A0: 0}, {A0: 5}, 100) == {A0: 5}


def test_a_small_partition_is_not_starved() -> None:
    assert limited({A0: 0, A1: 0}, {A0: 1_000_000, A1: 1}, 10)[A1] == 1


ENDS = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), min_size=1, max_size=5)


@given(ENDS, st.integers(1, 500))
def test_a_limited_batch_goes_forward_and_never_beyond(sizes: list[tuple[int, int]], most: int) -> None:
    start = {TopicPartition("t", number): begin for number, (begin, _) in enumerate(sizes)}
    end = {TopicPartition("t", number): begin + size for number, (begin, size) in enumerate(sizes)}
    until = limited(start, end, most)
    assert until.keys() == end.keys()
    assert all(start[at] <= until[at] <= end[at] for at in end)
    assert sum(until[at] - start[at] for at in end) <= most + len(sizes)
    assert until == start if start == end else until != start


@given(ENDS, st.none() | st.integers(1, 40), st.none() | st.integers(1, 300))
def test_tasks_cover_every_range_once(sizes: list[tuple[int, int]], least: int | None, most: int | None) -> None:
    ranges = [OffsetRange("t", number, begin, begin + size) for number, (begin, size) in enumerate(sizes)]
    tasks = cut(ranges, least, most)
    covered = [(task.partition, offset) for task in tasks for offset in range(task.start, task.end)]
    assert sorted(covered) == [(one.partition, offset) for one in ranges for offset in range(one.start, one.end)]
    assert all(task.size > 0 for task in tasks)
    assert most is None or all(task.size <= most for task in tasks)


def test_tasks_are_as_many_as_spark_makes() -> None:
    # The examples of Spark's own test of its range calculator.
    assert cut([OffsetRange("t", 1, 1, 5)], 3) == [("t", 1, 1, 2), ("t", 1, 2, 3), ("t", 1, 3, 5)]
    assert cut([OffsetRange("t", 1, 1, 5), OffsetRange("t", 2, 1, 5)], 4) == [
        ("t", 1, 1, 3),
        ("t", 1, 3, 5),
        ("t", 2, 1, 3),
        ("t", 2, 3, 5),
    ]
    assert cut([OffsetRange("t", 1, 1, 10_001), OffsetRange("t", 2, 1, 2)], 3)[-1] == ("t", 2, 1, 2)
