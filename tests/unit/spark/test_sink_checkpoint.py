"""Spark's offset log as the sink reads it."""

import pytest

from fencepost.spark.checkpoint import Checkpoint, parse_offsets, refuse_temporary
from fencepost.spark.errors import FencepostSparkError, NotSupported
from fencepost.spark.planned_batches import planned
from fencepost.topic_partition import TopicPartition

HEAD = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}\n'


def test_offsets_of_all_kafka_shaped_sources_are_merged_and_the_smaller_wins():
    text = HEAD + '{"a":{"0":5,"1":7}}\n{"a":{"1":6},"b":{"0":1}}\n-\n0\n{"offset":1000,"timestamp":1000}'
    assert parse_offsets(text) == {
        TopicPartition("a", 0): 5,
        TopicPartition("a", 1): 6,
        TopicPartition("b", 0): 1,
    }


def test_the_second_format_names_its_sources_and_has_them_in_any_order():
    lines = ['second:{"b": {"0": 5}, "@start:b": {"0": 0}}', "2:-", "clock:5", '0:{"a":{"0":7,"1":9}}']
    text = HEAD.replace("v1", "v2") + "\n".join(lines)
    assert parse_offsets(text, reads_kafka=True) == {
        TopicPartition("a", 0): 7,
        TopicPartition("a", 1): 9,
        TopicPartition("b", 0): 5,
    }


def test_an_unknown_format_is_refused():
    with pytest.raises(NotSupported, match=r"format 3, and formats up to 2.*formatVersion=2"):
        parse_offsets(HEAD.replace("v1", "v3") + '{"a":{"0":5}}')


@pytest.mark.parametrize("line", ['[{"a":{"0":5}}]', '0:{"a":{"0":5}}', '{"a":{"0":{"offset":5}}}'])
def test_offsets_of_kafka_that_are_not_understood_are_not_left_out(line):
    assert parse_offsets(HEAD + line) == {}
    with pytest.raises(NotSupported, match="reads Kafka, but its offsets are not understood"):
        parse_offsets(HEAD + line, reads_kafka=True)


@pytest.mark.parametrize("line", ["-", "{}"], ids=["nothing read yet", "a pattern without topics"])
def test_a_source_of_kafka_without_partitions_is_understood(line):
    assert parse_offsets(HEAD + line + '\n{"logOffset":3}', reads_kafka=True) == {}


def test_where_a_first_batch_began_is_not_an_offset_to_commit():
    assert parse_offsets(HEAD + '{"a":{"0":5},"@start:a":{"0":2}}') == {TopicPartition("a", 0): 5}


def test_a_checkpoint_is_read_from_its_directory(tmp_path):
    directory = tmp_path / "a place with spaces"
    (directory / "offsets").mkdir(parents=True)
    (directory / "offsets" / "3").write_text(HEAD + '{"a":{"0":5}}')
    (directory / "metadata").write_text('{"id":"b7a0"}')
    for location in (str(directory), directory.as_uri()):
        checkpoint = Checkpoint(location)
        assert checkpoint.query_id() == "b7a0"
        assert checkpoint.offsets(3) == {TopicPartition("a", 0): 5}
        with pytest.raises(FencepostSparkError, match="offsets/4"):
            checkpoint.offsets(4)


def test_a_temporary_checkpoint_is_refused():
    with pytest.raises(NotSupported, match="checkpointLocation"):
        refuse_temporary("file:/tmp/temporary-375ebcdf-aed5-41fe-8848-61eaa150d642")
    refuse_temporary("file:/tmp/temporary-work")


def test_something_else_is_not_taken_for_an_offset_log():
    with pytest.raises(FencepostSparkError, match="not an offset log"):
        parse_offsets("hello")


def test_a_batch_has_one_digest_in_both_formats_and_any_order() -> None:
    head = '{"batchTimestampMs":1700000000000}'
    orders, audit, files = '{"orders":{"0":5,"1":7}}', '{"audit":{"0":3}}', '{"logOffset":2}'
    first = planned("\n".join(["v1", head, orders, files, audit]))
    second = planned("\n".join(["v2", head, f"2:{audit}", '0:{"orders":{"1":7,"0":5}}', f"1:{files}"]))
    assert first == second
    assert first.digest != planned("\n".join(["v1", head, orders, '{"logOffset":3}', audit])).digest
