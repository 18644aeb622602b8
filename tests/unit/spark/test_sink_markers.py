"""The record of a batch: what it looks like in the group, and which one counts."""

from fencepost.client.kafka_types import CommittedOffset
from fencepost.spark.markers import POSITIONS_BYTES_MAX, Marker, Record, newest, parse
from fencepost.topic_partition import TopicPartition

QUERY, OTHER = "b7a0", "c8b1"
AT = [TopicPartition("purchases", number) for number in range(4)]
FULL = Marker(
    7, 12345, QUERY, "0a1b2c3d4e5f60718293", "local-1795000000000 on worker-3, process 4711", 1_795_000_000_000
)


def test_a_marker_survives_the_metadata_of_an_offset():
    for marker in (Marker(7, 12345, QUERY), FULL, FULL.with_positions({AT[0]: 17, AT[1]: 4})):
        offsets = marker.on({AT[0]: 17, AT[1]: 4})
        assert [offset.offset for offset in offsets.values()] == [17, 4]
        assert {parse(offset.metadata) for offset in offsets.values()} == {marker}
        assert len(marker.text()) < 300
        assert newest(offsets) == Record(marker, {AT[0]: 17, AT[1]: 4})
        assert newest(offsets).positions == {AT[0]: 17, AT[1]: 4}


def test_a_marker_of_the_first_version_is_understood():
    assert parse('{"term":1,"query":"b7a0","batch":3}') == Marker(1, 3, QUERY)


def test_the_newest_marker_counts_and_foreign_metadata_does_not():
    texts = ("", "consumer-1", '{"a": 1}', "[1]", Marker(1, 8, QUERY).text(), Marker(1, 9, QUERY).text())
    held = {TopicPartition("t", number): CommittedOffset(number, metadata=text) for number, text in enumerate(texts)}
    assert newest(held) == Record(Marker(1, 9, QUERY), {TopicPartition("t", 5): 5})
    adopted = CommittedOffset(1, metadata=Marker(2, 3, OTHER).text())
    assert newest({**held, AT[0]: adopted}) == Record(Marker(2, 3, OTHER), {AT[0]: 1})
    assert newest({at: offset for at, offset in held.items() if at.partition < 4}) is None


def test_positions_of_another_cluster_are_in_the_marker_if_they_fit():
    many = {TopicPartition("a-topic-with-a-name", number): 1_000_000 + number for number in range(1_000)}
    assert FULL.with_positions(many).positions == ()
    fits = FULL.with_positions(dict(list(many.items())[:150]))
    assert len(fits.positions or ()) == 150
    assert len(fits.text()) < POSITIONS_BYTES_MAX + 400
    assert newest(fits.on({AT[0]: 0})).positions == dict(list(many.items())[:150])
