"""The record of a batch: what it looks like in the group, and which one counts."""

from fencepost.client.kafka_types import CommittedOffset
from fencepost.spark.commit_records import POSITIONS_BYTES_MAX, Marker, Record, newest, parse
from fencepost.topic_partition import TopicPartition

QUERY, OTHER = "b7a0", "c8b1"
AT = [TopicPartition("purchases", number) for number in range(4)]
FULL = Marker(
    7, 12345, QUERY, "0a1b2c3d4e5f60718293", "local-1795000000000 on worker-3, process 4711", 1_795_000_000_000
)


def test_a_marker_survives_the_metadata_of_an_offset():
    for marker in (Marker(7, 12345, QUERY), FULL, FULL.with_inputs({AT[0]: 17, AT[1]: 4}, {})):
        offsets = Record(marker, {AT[0]: 17, AT[1]: 4}).entries()
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
    assert FULL.with_inputs(many, {}).positions == ()
    fits = FULL.with_inputs(dict(list(many.items())[:150]), {})
    assert len(fits.positions or ()) == 150
    assert len(fits.text()) < POSITIONS_BYTES_MAX + 400
    assert newest(Record(fits, {}, AT[0]).entries()).positions == dict(list(many.items())[:150])


def test_the_copy_on_an_output_holds_the_whole_marker_and_survives_the_inputs():
    whole = FULL.with_inputs({AT[0]: 17, AT[1]: 4}, {"purchases": "9bA1"})
    invoices = TopicPartition("invoices", 0)
    record = Record(whole, {AT[0]: 17, AT[1]: 4}, invoices)
    entries = record.entries()
    assert newest(entries) == record
    assert entries[invoices].offset == -1, "every tool takes that for nothing committed"
    assert parse(entries[AT[0]].metadata) == FULL
    left = newest({invoices: entries[invoices]})
    assert left == Record(whole, {}, invoices)
    assert left.positions == {AT[0]: 17, AT[1]: 4}


def test_a_copy_of_an_older_batch_does_not_count():
    """Its place may change: an earlier batch has written another topic."""
    older = Record(Marker(1, 8, QUERY, positions=()), {}, AT[3]).entries()
    newer = Record(Marker(1, 9, QUERY), {AT[0]: 5})
    assert newest({**older, **newer.entries()}) == newer


def test_a_record_across_clusters_of_an_earlier_version_is_understood():
    held = FULL.with_inputs({AT[1]: 4}, {})
    place = CommittedOffset(0, metadata=held.text())
    record = newest({TopicPartition("invoices", 0): place})
    assert record.positions == {AT[1]: 4}
    assert record.entries() == {TopicPartition("invoices", 0): place}


def test_topic_ids_are_left_out_where_they_do_not_fit():
    ids = {f"a-topic-with-a-name-{number}": "abcdefghijklmnopqrstuv" for number in range(100)}
    assert FULL.with_inputs({AT[0]: 1}, ids).topic_ids == ()
    assert len(FULL.with_inputs({AT[0]: 1}, ids).text()) < POSITIONS_BYTES_MAX
